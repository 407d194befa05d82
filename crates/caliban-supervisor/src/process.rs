//! The processes of a run, for the daemon: how they are marked, and what is left of a run whose shim was killed.

use std::io;

pub(crate) use caliban_contract::variables::AGENT_ID as MARKER;
pub(crate) use caliban_keeper::{Strays, Traces};
use caliban_process::Keepers;
pub(crate) use caliban_process::{boot_id, machine, open, stat};

/// Nobody but the administrator looks into this daemon or shim from now on.
pub(crate) fn hide() {
    if let Err(error) = caliban_fence::hide_kept_process() {
        tracing::warn!(%error, "other processes of this user can look into this one");
    }
}

/// Ends what is left of these runs, except daemons and the shims of other runs. Blocks.
pub(crate) fn end_strays(runs: &[Traces]) -> io::Result<Strays> {
    caliban_keeper::end_strays(runs, Keepers::beside_us().as_ref())
}
