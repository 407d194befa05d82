//! `choices.json`: what a person has chosen in a session: the mode, rules, the model. Whoever goes back to the session, or forks it,
//! finds them again; what was narrowed stays narrow.
//!
//! Written when something is chosen, before it is answered. Best effort: a full disk keeps nobody from narrowing.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use caliban_contract::records;
use caliban_core::{kept_rules::KeptRules, message::Effort, mode::Mode};
use caliban_permissions::{Effect, Policy, SourcedRule};
use serde::{Deserialize, Serialize};

use crate::blueprint::Blueprint;

/// Writes rules into the user's settings; where they are now, or why not.
pub type KeepRules = Arc<dyn Fn(&KeptRules) -> Result<PathBuf, String> + Send + Sync>;

/// In a session's directory.
const FILE: &str = "choices.json";

/// What was chosen; what is absent is as the settings say.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Choices {
    /// The mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Rules that were given in the session.
    pub rules: Vec<SourcedRule>,
    /// The model, and whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<(String, String)>,
    /// How hard it thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
}

/// What was chosen on the command line just now, and counts more than what was chosen in the session before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChosenNow {
    /// The mode.
    pub mode: bool,
    /// The model.
    pub model: bool,
    /// How hard it thinks.
    pub effort: bool,
}

impl Choices {
    /// Those of the session in this directory.
    pub fn read(session: &Path) -> Self {
        records::read(session, FILE).unwrap_or_default()
    }

    /// Notes something that was chosen in the session in this directory.
    pub fn note(session: &Path, change: impl FnOnce(&mut Self)) {
        let mut choices = Self::read(session);
        change(&mut choices);
        if let Err(error) = records::write(session, FILE, &choices) {
            tracing::warn!(%error, "what was chosen in the session is not written down");
        }
    }

    /// Notes a rule.
    pub fn note_rule(session: &Path, rule: SourcedRule) {
        Self::note(session, |choices| {
            let is_same =
                |other: &SourcedRule| other.effect == rule.effect && other.rule.text() == rule.rule.text();
            choices.rules.retain(|other| !is_same(other));
            choices.rules.push(rule);
        });
    }

    /// A fork has them, too.
    pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
        match std::fs::copy(from.join(FILE), to.join(FILE)) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Sets up the agent that goes on with the session. `unattended` is never chosen by going back: it has to be said again, or to be
    /// in force now.
    pub fn take_up(self, blueprint: &mut Blueprint, now: ChosenNow, in_force: Option<Mode>) {
        let Self { mode, rules, model, effort } = self;
        let mode = mode.filter(|mode| *mode != Mode::Unattended || in_force == Some(Mode::Unattended));
        if let Some(mode) = mode.filter(|_| !now.mode) {
            blueprint.policy.mode = mode;
        }
        add_rules(&mut blueprint.policy, rules);
        let is_ours = |(provider, _): &(String, String)| provider == blueprint.provider.name();
        if let Some((_, model)) = model.filter(is_ours).filter(|_| !now.model) {
            blueprint.model = model;
        }
        if let Some(effort) = effort.filter(|_| !now.effort) {
            blueprint.effort = effort;
        }
    }
}

/// What survives of one session in a new one: what was narrowed.
pub fn keep_narrow(before: &Policy, policy: &mut Policy) {
    policy.mode = policy.mode.narrower(before.mode);
    let narrowing = before.rules.iter().filter(|rule| rule.effect != Effect::Allow);
    add_rules(policy, narrowing.cloned().collect());
}

fn add_rules(policy: &mut Policy, rules: Vec<SourcedRule>) {
    for rule in rules {
        let is_there = policy
            .rules
            .iter()
            .any(|other| other.effect == rule.effect && other.rule.text() == rule.rule.text());
        if !is_there {
            policy.rules.push(rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(mode: Mode, rules: &[(Effect, &str)]) -> Policy {
        let mut policy = Policy::new("/work", "/home/me");
        policy.mode = mode;
        for (effect, rule) in rules {
            policy.add_at(1, *effect, rule.parse().unwrap(), "/permissions");
        }
        policy
    }

    #[test]
    fn a_new_session_keeps_what_was_narrowed_and_nothing_that_was_allowed() {
        let rules =
            [(Effect::Allow, "Bash(make *)"), (Effect::Deny, "Bash(rm *)"), (Effect::Ask, "WebFetch")];
        for (settings, before, after) in [
            (Mode::Unattended, Mode::Plan, Mode::Plan),
            (Mode::Default, Mode::Unattended, Mode::Default),
            (Mode::Default, Mode::AcceptEdits, Mode::Default),
        ] {
            let mut new = policy(settings, &[]);
            keep_narrow(&policy(before, &rules), &mut new);
            keep_narrow(&policy(before, &rules), &mut new);
            assert_eq!(new.mode, after);
            let kept: Vec<&str> = new.rules.iter().map(|rule| rule.rule.text()).collect();
            assert_eq!(kept, ["Bash(rm *)", "WebFetch"]);
        }
    }

    #[test]
    fn what_was_chosen_is_read_again_and_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::create_dir_all(&one).unwrap();
        std::fs::create_dir_all(&two).unwrap();
        Choices::copy(&one, &two).unwrap();
        assert_eq!(Choices::read(&two).mode, None);
        Choices::note(&one, |choices| choices.mode = Some(Mode::Plan));
        for rule in policy(Mode::Default, &[(Effect::Deny, "Bash"), (Effect::Deny, "Bash")]).rules {
            Choices::note_rule(&one, rule);
        }
        Choices::copy(&one, &two).unwrap();
        let read = Choices::read(&two);
        assert_eq!((read.mode, read.rules.len()), (Some(Mode::Plan), 1));
    }
}
