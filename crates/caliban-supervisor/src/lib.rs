//! The fleet's supervisor: the daemon of a repo, and the shim of each agent.
//!
//! Clients link `caliban-fleet`; names and records that other processes share are in `caliban-contract`.
//!
//! Hidden modes of a binary, each entered first thing in `main`, before any runtime:
//! - [`caliban_contract::modes::SHIM`]: `return shim_main(args_after_the_mode)`.
//! - [`caliban_contract::modes::DAEMON`]: `return daemon_main(args_after_the_mode)`. `caliband` is the same.
//! - `__worker <agent dir> --nonce <nonce>` is the binary's own: the shim starts it with the agent's environment
//!   in the caller's directory (`spec.cwd`). It serves ACP on `<runtime>/<hash>/<id>.sock` (given as `--socket`),
//!   keeps `status.json` up to date with [`caliban_contract::records::write`] of a [`caliban_contract::records::WorkerStatus`], takes the next message
//!   from `resume.json` ([`caliban_contract::records::ResumeOrder`]) when its nonce fits, and ends with 0 (done or failed, as the
//!   status says) or [`caliban_contract::records::HIBERNATED`].
//!
//! # Invariants
//! - The daemon can die at any instant. What it must know is in the registry (`fleet.db`) or in the agents'
//!   directories; an agent's run has a nonce, committed before anything is started, and a nonce runs once.
//! - A state changes through `caliban_core::lifecycle` only, and `killed`, `done`, `failed`, `crashed` are shown
//!   only when the whole process tree is gone.
//! - No signal goes to a process whose start time, boot and marker do not fit.
//! - This crate does not know what an agent does: it links neither caliban-agent nor caliban-acp-host.
//!   It speaks to an agent as any client does (`caliban-acp`).

mod daemon;
mod daemon_mode;
mod process;
mod shim;

use caliban_contract::{ancestry, daemon_options, disk_room, lock, places, records, sockets, wall_ms};
use caliban_fleet::{git_programs, landing, protocol, row};

pub use daemon_mode::{DaemonArgs, daemon_main, run_daemon};
pub use shim::shim_main;
