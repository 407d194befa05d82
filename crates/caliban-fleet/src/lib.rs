//! The fleet's control protocol and its client: what the command line, a terminal UI and a page link. The daemon is
//! `caliban-supervisor`.
//!
//! # For those who call it (the `caliban` binary)
//!
//! ```no_run
//! # async fn example(sources: caliban_contract::PlaceSources, own: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
//! use caliban_contract::Places;
//! use caliban_fleet::{Client, StartOptions, protocol::{KillRequest, SpawnRequest}};
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
//! // also: status, show, respawn, resume, rm, send, approvals, approve, deny, diff, merge, shutdown;
//! // everywhere an id, a unique prefix or a label
//! let mut events = client.events().await?;              // every agent, `Ready`, then news
//! while let Some(event) = events.next().await? { /* FleetEvent */ }
//! # Ok(()) }
//! ```
//! Errors are [`ClientError`]; `hint()` says what to do. `ClientError::Refused` carries the daemon's
//! [`protocol::ApiError`] with a code (`not_found`, `ambiguous`, `conflict`, `queued`, `ended`, `disk_full` …).

pub mod all_repos;
pub mod caller;
pub mod caller_environment;
mod client;
pub mod damaged_transcript;
pub mod decide;
pub mod feed;
pub mod git_programs;
pub mod landing;
pub mod mailbox;
pub mod offline;
mod plain;
pub mod protocol;
pub mod refusal;
pub mod respawn;
pub mod resume;
mod resume_limits;
pub mod row;
pub mod spawn;
mod spawn_checks;
pub mod words;

pub use client::{Client, ClientError, DaemonEvents, SignalResult, StartOptions, end_by_signal};
pub use plain::{one_line, plain};
