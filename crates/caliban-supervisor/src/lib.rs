//! The fleet's supervisor: control protocol, client, daemon and shim.
//!
//! # For those who call it (the `caliban` binary)
//!
//! ```no_run
//! # async fn example(sources: caliban_supervisor::PlaceSources, own: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
//! use caliban_supervisor::{Client, Places, StartOptions, protocol::{KillRequest, SpawnRequest}};
//! // Where things are: the repo of a directory, and what the binary found in its environment.
//! let places = Places::find(std::path::Path::new("/home/me/project/src"), &sources)?;
//! // Connects; starts a daemon when there is none. `Client::connect` never starts one.
//! let start = StartOptions {
//!     programs: StartOptions::programs(&own, None),
//!     environment: Default::default(), // PATH, HOME, LANG …: for the daemon's git, never for agents
//!     options: Default::default(),     // DaemonOptions: max_running, grace_ms, sweep, keep_worktrees
//! };
//! let mut client = Client::connect_or_start(&places, start).await?;
//! let spec = caliban_core::spec::SpawnSpec::new("the task", "/home/me/project");
//! let request = SpawnRequest { spec, secrets: Default::default(), program: Some(own), key: None };
//! let id = client.spawn(request).await?.id.to_string(); // durable when it returns
//! for row in client.list().await? { /* AgentRow */ }
//! let socket = client.wake(&id).await?.socket;          // a worker listens there (ACP): attach, send
//! let row = client.kill(&id, &KillRequest::default()).await?; // its whole tree is gone
//! // also: status, show, respawn, resume, rm, shutdown; everywhere an id, a unique prefix or a label
//! let mut events = client.events().await?;              // every agent, `Ready`, then news
//! while let Some(event) = events.next().await? { /* FleetEvent */ }
//! # Ok(()) }
//! ```
//! Errors are [`ClientError`]; `hint()` says what to do. `ClientError::Refused` carries the daemon's
//! [`protocol::ApiError`] with a code (`not_found`, `ambiguous`, `conflict`, `queued`, `ended`, `disk_full` …).
//!
//! Hidden modes of a binary, each entered first thing in `main`, before any runtime:
//! - [`SHIM_MODE`]: `return shim_main(args_after_the_mode)`.
//! - [`DAEMON_MODE`]: `return daemon_main(args_after_the_mode)`. `caliband` is the same.
//! - `__worker <agent dir> --nonce <nonce>` is the binary's own: the shim starts it with the agent's environment
//!   in the caller's directory (`spec.cwd`). It serves ACP on `<runtime>/<hash>/<id>.sock` (given as `--socket`),
//!   keeps `status.json` up to date with [`records::write`] of a [`records::WorkerStatus`], takes the next message
//!   from `resume.json` ([`records::ResumeOrder`]) when its nonce fits, and ends with 0 (done or failed, as the
//!   status says) or [`records::HIBERNATED`].
//!
//! # Invariants
//! - The daemon can die at any instant. What it must know is in the registry (`fleet.db`) or in the agents'
//!   directories; an agent's run has a nonce, committed before anything is started, and a nonce runs once.
//! - A state changes through `caliban_core::lifecycle` only, and `killed`, `done`, `failed`, `crashed` are shown
//!   only when the whole process tree is gone.
//! - No signal goes to a process whose start time, boot and marker do not fit.
//! - This crate does not know what an agent does: it links neither caliban-agent nor caliban-acp.

mod above;
mod client;
mod daemon;
mod daemon_mode;
mod lock;
pub mod moved;
mod options;
mod places;
mod process;
pub mod protocol;
pub mod records;
mod secrets;
mod shim;
pub mod sockets;

pub use above::{Whose, whose};
pub use client::{Client, ClientError, Ended, Events, StartOptions, end_by_signal};
pub use daemon::notify::{NOTIFY_MODE, Notice};
pub use daemon_mode::{DAEMON_MODE, DaemonArgs, daemon_main, run_daemon};
pub use options::{DaemonOptions, GRACE_MS, MAX_RUNNING, Sweep};
pub use places::{PlaceSources, Places, PlacesError, SOCKET_PATH_LIMIT, repo_hash, repo_root};
pub use process::MARKER;
pub use secrets::secrets_file;
pub use shim::{SHIM_MODE, shim_main};

/// Random bytes as hex.
pub(crate) fn random_hex<const BYTES: usize>() -> std::io::Result<String> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Milliseconds since 1970, for people to read. Never for order or time-outs.
pub(crate) fn wall_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
