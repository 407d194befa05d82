//! What other processes of the same user can see of ours (docs/adr/0072).
//!
//! A program that somebody allowed runs as the user, and could read a provider's key where the kernel shows it: the
//! environment of a process as it was started, and its memory.

use std::io;

use caliban_contract::variables;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::sys;

/// Takes the environment out of `/proc/PID/environ`, but for the marks by which our processes know each other. The program and
/// what it starts have it as before. Call it first thing in `main`, when there is one thread.
pub fn hide_environment() {
    sys::move_variables(|name| name.to_str().is_some_and(variables::is_shown));
}

/// From now on nobody but the administrator can look into this process: its memory, descriptors, environment and directories. What
/// it executes can be looked at again.
pub fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
