//! `rights.json`: what the agent may do and spend, for the daemon, which gives no more to what its commands start (a11).
//!
//! Written before the agent can run a command, and again when a person changes it. What cannot be written is taken away:
//! without the file an agent's command hands on the least.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
};

use caliban_contract::records::{self, RIGHTS, Rights};
use caliban_core::{budget::Limits, mode::Mode};
use caliban_permissions::Policy;

/// Keeps the file.
pub(super) struct RightsFile {
    directory: PathBuf,
    nonce: String,
    budget: Limits,
    max_turns: u64,
    policy: Arc<RwLock<Policy>>,
    /// The mode and the number of rules that are written; nothing else of a policy ever changes.
    written: Option<(Mode, usize)>,
}

impl RightsFile {
    /// For the agent in this directory, in this run.
    pub(super) fn new(
        directory: &Path,
        nonce: &str,
        (budget, max_turns): (Limits, u32),
        policy: Arc<RwLock<Policy>>,
    ) -> Self {
        let (directory, nonce) = (directory.to_owned(), nonce.to_owned());
        let mut kept = Self { directory, nonce, budget, max_turns: max_turns.into(), policy, written: None };
        kept.write();
        kept
    }

    /// Writes the file when it differs from what is there.
    pub(super) fn write(&mut self) {
        let policy = self.policy.read().unwrap_or_else(PoisonError::into_inner);
        let now = (policy.mode, policy.rules.len());
        if self.written == Some(now) {
            return;
        }
        let value = serde_json::to_value(&*policy).map_err(std::io::Error::other);
        drop(policy);
        let written = value.and_then(|policy| {
            let rights = Rights {
                nonce: self.nonce.clone(),
                mode: now.0,
                budget: self.budget,
                max_turns: self.max_turns,
                policy,
            };
            records::write(&self.directory, RIGHTS, &rights)
        });
        self.written = Some(now);
        if let Err(error) = written {
            tracing::warn!(%error, "what the agent may hand on is not written down");
            let _none = std::fs::remove_file(self.directory.join(RIGHTS));
            self.written = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_what_a_person_changes_is_written_and_what_cannot_be_written_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let policy = Arc::new(RwLock::new(Policy::new("/work", "/home/me")));
        policy.write().unwrap().mode = Mode::Unattended;
        let budget = Limits { tokens: Some(7), ..Limits::NONE };
        let mut kept = RightsFile::new(dir.path(), "n", (budget, 9), policy.clone());
        let read = || -> Option<Rights> { records::read(dir.path(), RIGHTS) };
        let is = |mode: Mode| Rights {
            nonce: "n".into(),
            mode,
            budget,
            max_turns: 9,
            policy: serde_json::to_value(&*policy.read().unwrap()).unwrap(),
        };
        assert_eq!(read(), Some(is(Mode::Unattended)));
        policy.write().unwrap().mode = Mode::Plan;
        kept.write();
        assert_eq!(read(), Some(is(Mode::Plan)));
        // Nothing can be written under the name that comes first: what was wider must not stay.
        std::fs::create_dir(dir.path().join(".rights.json.new")).unwrap();
        policy.write().unwrap().mode = Mode::Default;
        kept.write();
        assert_eq!(read(), None);
    }
}
