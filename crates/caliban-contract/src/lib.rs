//! What the programs of a fleet must agree on: hidden modes, records on disk, places, variable names, and on whose
//! behalf a process acts.
//!
//! Daemon, shim, worker, agent, worktrees and `cafleet` are different processes, often of different ages. Every name or
//! shape that two of them share lives here, once. This crate knows no protocol and runs no process.

pub mod ancestry;
pub mod archive;
pub mod daemon_options;
pub mod detached;
pub mod disk_room;
pub mod handover;
pub mod limits;
pub mod local_time;
pub mod lock;
pub mod member;
pub mod mentions;
pub mod modes;
pub mod moved_repos;
pub mod places;
pub mod private_tmp;
pub mod process_mark;
pub mod recorded_ask;
pub mod records;
pub mod secrets;
pub mod sockets;
pub mod speaks_for;
pub mod tail;
pub mod transcript;
pub mod tree_limits;
pub mod variables;

use std::io;

use caliban_core::hex;

pub use daemon_options::{DaemonOptions, GRACE_MS, MAX_BY_MODEL, MAX_RUNNING, Sweep};
pub use handover::HandedOver;
pub use places::{PlaceSources, Places, PlacesError, SOCKET_PATH_LIMIT, repo_hash, repo_root};
pub use secrets::secrets_file;

/// Bytes that nobody can guess, from the system.
pub fn random<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(format!("no random numbers: {error}")))?;
    Ok(bytes)
}

/// The same as text for names and keys.
pub fn random_hex<const BYTES: usize>() -> io::Result<String> {
    Ok(hex::encode(&random::<BYTES>()?))
}

/// Milliseconds since 1970, for people to read. Never for order or time-outs.
#[must_use]
pub fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds of the clock that never jumps; it begins with the boot and stands still while the machine sleeps.
#[must_use]
pub fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default().saturating_mul(1000) + nanos.unwrap_or_default() / 1_000_000
}
