//! Decides whether a tool call may go ahead: rules, modes, command lines taken apart, paths followed through
//! links.
//!
//! Everything here is a decision over data; only links, names and the index of git are read from the file
//! system. It never runs, asks, writes or reads the environment. What is not understood is never allowed.

mod command;
mod command_pattern;
mod fenced;
mod git;
mod glob;
mod inherit;
mod mentioned_files;
mod outside;
mod path;
mod policy;
mod protected;
mod read_only;
mod rule;
mod shell;
mod verdict;

pub use caliban_core::mode::{Mode, ModeError};
pub use fenced::{AbsentPlace, FenceDuties, LinksOut};
pub use inherit::inherit;
pub use path::{normalise, resolve};
pub use policy::{Effect, Fencing, Policy, SourcedRule};
pub use rule::{Rule, RuleError};
pub use verdict::Verdict;
