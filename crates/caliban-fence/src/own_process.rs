//! What other processes of the same user can see of ours (docs/adr/0072).
//!
//! A program that somebody allowed runs as the user, and could read a provider's key where the kernel shows it: the
//! environment of a process as it was started, and its memory.

use std::ffi::{OsStr, OsString};
use std::io;

use caliban_contract::variables;
use caliban_core::redact::secret_parts;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::sys;

/// Takes the environment out of `/proc/PID/environ`, but for the marks by which our processes know each other. The program and
/// what it starts have it as before. Call it first thing in `main`, when there is one thread.
pub fn hide_environment() {
    sys::move_variables(|name| name.to_str().is_some_and(variables::is_shown));
}

/// Takes the secrets out of the environment, so that neither the kernel shows them nor a program that we start gets them.
/// Returns them, for whoever needs one. Call it before [`hide_environment`], when there is one thread.
pub fn take_secrets() -> Vec<(OsString, OsString)> {
    sys::take_variables(is_secret, false)
}

/// Programs that we start do not inherit the secrets of the environment. Other processes see them as before: an agent learns
/// those of whoever speaks to it.
pub fn keep_secrets_back() {
    let _ours_still = sys::take_variables(is_secret, true);
}

fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { return false };
    variables::HANDED_SECRETS.contains(&name) || !secret_parts(name, value).is_empty()
}

/// Takes the secrets out of the environment and forgets them.
pub fn drop_secrets() {
    for (_, value) in take_secrets() {
        let mut bytes = value.into_encoded_bytes();
        bytes.fill(0);
        // Otherwise the writes before the end of the memory could be left out.
        std::hint::black_box(&bytes);
    }
}

/// From now on nobody but the administrator can look into this process: its memory, descriptors, environment and directories. What
/// it executes can be looked at again.
pub fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}
