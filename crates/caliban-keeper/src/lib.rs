//! Keeping processes: starting a program and leaving nothing of it behind.
//!
//! - [`Launch`] says what to start: program, arguments, directory, environment, streams. Every program that runs on
//!   behalf of a user or a model is started from one: workers, shell commands, hooks, MCP servers, worktree setup
//!   commands and `fleet.notify`.
//! - [`Tree`] is the set of processes that a keeper answers for. It finds the members, reaps orphans, and ends the tree:
//!   TERM, a grace period, then KILL until the tree is empty.
//! - Two small programs run a [`Tree`]: the shim of a worker (in `caliban-supervisor`) and the reaper of a command
//!   ([`reaper_main`]). [`Supervised`] and [`Serving`] are the reaper's callers.
//! - A command that is meant to outlive its agent has a keeper of its own ([`Detach`], [`detached_main`]).
//! - [`end_strays`] cleans up when a keeper itself was killed.
//!
//! [`Launch::command`] is the only place where a kept program's `Command` is built, for the shim and for the reaper alike. For a
//! program with a fence (`caliban-fence`) the reaper forks the helper that puts the fence up.
//!
//! `caliban-process` only looks at processes. Everything that signals them is here.

mod detached;
mod group;
mod launch;
mod limit_watch;
mod out_of_memory;
mod reaper;
mod report;
mod strays;
mod supervised;
mod terminal;
mod tree;

pub use detached::{Detach, detached_gone_within, detached_main, stop_detached};
pub use group::{Group, ShimGroups, leave_agent, sweep, watched_here};
pub use launch::{Launch, LaunchEnvironment, Streams, Variables};
pub use limit_watch::{agent_exceeded, heaviest};
pub use out_of_memory::{COMMAND_SCORE, OomCount, OwnScore, WORKER_SCORE};
pub use reaper::{KILL_LIMIT, LEFT_GRACE, NATURAL, STOP_GRACE, reaper_main, start_reaper};
pub use report::{ExitOutcome, Report};
pub use strays::{Strays, Traces, end_strays};
pub use supervised::{CommandEnd, KeptOutput, Serving, ServingEnd, Supervised, SupervisedEnd};
pub use tree::{Subreaper, Tree};
