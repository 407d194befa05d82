//! The test kit: a hermetic environment for the built binaries, and a scripted model server.
//!
//! Dev-only. Owns everything a whole-binary test needs from outside the program: directories and
//! variables ([`Env`]), processes with a hard time limit ([`ProgramRun`], [`Spawned`]), terminals ([`Tmux`]) and a
//! model behind HTTP ([`ModelServer`]). Refuses to know what is tested: it never links the agent, and the
//! script format is the `scripted` provider's own (`caliban_providers::script`).
//!
//! Everything here panics with a full description instead of returning errors: a failed step is a failed test.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "test code: a failed step is a failed test")]

mod answer;
mod browser;
mod closed;
mod endpoint;
mod env;
mod file_modes;
mod golden;
mod other_user;
mod process;
mod request;
mod rules;
mod server;
mod skip;
mod small_disk;
mod steps;
mod stream;
mod tmux;
mod view;
mod wait;
mod wire;

pub use browser::{Browser, BrowserTab};
pub use caliban_providers::script;
pub use closed::ClosedPort;
pub use env::Env;
pub use file_modes::{file_modes_count, processes_can_hide};
pub use golden::Golden;
pub use other_user::{OpenPrograms, was_run_by_another_user};
pub use process::{Output, ProgramRun, Spawned};
pub use request::{Recorded, RequestOutcome};
pub use rustix::process::Signal;
pub use server::{ModelServer, ServerBuilder};
pub use skip::{LIST_VARIABLE, Lack, skip};
pub use small_disk::SmallDisk;
pub use steps::*;
pub use tmux::Tmux;
pub use wait::{LIMIT, wait_until};
pub use wire::Protocol;
