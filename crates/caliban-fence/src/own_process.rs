//! What other processes of the same user can see of ours (docs/adr/0072).
//!
//! A program that somebody allowed runs as the user, and could read a provider's key where the kernel shows it: the
//! environment of a process as it was started, and its memory.

use std::collections::BTreeSet;
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
pub fn take_secrets(keys: &KeyNames) -> Vec<(OsString, OsString)> {
    sys::take_variables(|name, value| keys.has(name) || is_secret(name, value), false)
}

/// Programs that we start do not inherit the secrets of the environment. Other processes see them as before: an agent learns
/// those of whoever speaks to it.
pub fn keep_secrets_back(keys: &KeyNames) {
    let _ours_still = sys::take_variables(|name, value| keys.has(name) || is_secret(name, value), true);
}

/// Names of variables that hold keys, although their names do not say so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyNames(BTreeSet<String>);

impl KeyNames {
    /// Those that an agent's daemon told it.
    #[must_use]
    pub fn handed(names: &str) -> Self {
        names.split_whitespace().map(str::to_owned).collect()
    }

    /// Whether a variable is one of them.
    #[must_use]
    pub fn has(&self, name: &OsStr) -> bool {
        name.to_str().is_some_and(|name| self.0.contains(name))
    }
}

impl FromIterator<String> for KeyNames {
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl Extend<String> for KeyNames {
    fn extend<T: IntoIterator<Item = String>>(&mut self, names: T) {
        self.0.extend(names);
    }
}

fn is_secret(name: &OsStr, value: &OsStr) -> bool {
    let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { return false };
    variables::HANDED_SECRETS.contains(&name) || !secret_parts(name, value).is_empty()
}

/// Takes all that may be a secret out of the environment and forgets it: what looks like one, and every variable that is neither
/// ordinary nor `kept`. For a program that needs no key, and so does not have to know what keys are called.
pub fn drop_secrets(kept: impl Fn(&str) -> bool) {
    let is_plain = |name: &OsStr| {
        name.to_str()
            .is_some_and(|name| variables::is_ordinary(name) || variables::is_shown(name) || kept(name))
    };
    for (_, value) in sys::take_variables(|name, value| !is_plain(name) || is_secret(name, value), false) {
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

/// The same for a daemon, a shim and a worker, which keep each other. Where `/proc` hides what nobody may look into, they stay as
/// they are: they could not see each other any more.
pub fn hide_kept_process() -> io::Result<()> {
    if caliban_process::hides_processes() { Ok(()) } else { hide_memory() }
}
