//! What one agent's policy gives another: never more than its parent has at that moment. And a policy as text, for a
//! process of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;

use caliban_core::mode::Mode;
use serde::{Deserialize, Serialize};

use crate::{
    policy::{Effect, Fencing, Policy, SourcedRule},
    rule::{Rule, RuleError},
};

/// `own`, with nothing in it that the parent does not have: its mode, tools, allowing rules and directories only where the
/// parent has them too, and all that asks and denies from both. Whatever it allows, the parent allows.
///
/// Where it may write is the parent's place; a worktree that is made for it has to be given to it afterwards.
pub fn inherit(parent: &Policy, own: Policy) -> Policy {
    let is_in = |rules: &[SourcedRule], rule: &SourcedRule| {
        rules.iter().any(|other| other.effect == rule.effect && other.rule.text() == rule.rule.text())
    };
    let mut rules = own.rules;
    rules.retain(|rule| rule.effect != Effect::Allow || is_in(&parent.rules, rule));
    for rule in &parent.rules {
        if rule.effect != Effect::Allow && !is_in(&rules, rule) {
            rules.push(rule.clone());
        }
    }
    let both = |own: Vec<PathBuf>, parents: &[PathBuf]| {
        own.into_iter().filter(|directory| parents.contains(directory)).collect()
    };
    Policy {
        rules,
        mode: own.mode.narrower(parent.mode),
        root: parent.root.clone(),
        extra_dirs: both(own.extra_dirs, &parent.extra_dirs),
        read_dirs: both(own.read_dirs, &parent.read_dirs),
        home: parent.home.clone(),
        worktree: parent.worktree.clone(),
        fencing: own.fencing,
        tools: in_both(own.tools, parent.tools.clone()),
    }
}

/// The names in both lists; an absent list has every name.
pub(crate) fn in_both(
    one: Option<BTreeSet<String>>,
    other: Option<BTreeSet<String>>,
) -> Option<BTreeSet<String>> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.intersection(&other).cloned().collect()),
        (one, other) => one.or(other),
    }
}

/// A policy as it is written down.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stored {
    mode: Mode,
    rules: Vec<StoredRule>,
    root: PathBuf,
    extra_dirs: Vec<PathBuf>,
    read_dirs: Vec<PathBuf>,
    home: PathBuf,
    worktree: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tools: Option<BTreeSet<String>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRule {
    effect: Effect,
    rule: String,
    source: String,
}

impl From<Policy> for Stored {
    fn from(policy: Policy) -> Self {
        let rule = |rule: SourcedRule| StoredRule {
            effect: rule.effect,
            rule: rule.rule.text().to_owned(),
            source: rule.source,
        };
        Self {
            mode: policy.mode,
            rules: policy.rules.into_iter().map(rule).collect(),
            root: policy.root,
            extra_dirs: policy.extra_dirs,
            read_dirs: policy.read_dirs,
            home: policy.home,
            worktree: policy.worktree,
            tools: policy.tools,
        }
    }
}

impl TryFrom<Stored> for Policy {
    type Error = RuleError;

    fn try_from(stored: Stored) -> Result<Self, RuleError> {
        let rule = |rule: StoredRule| {
            let StoredRule { effect, rule, source } = rule;
            Ok(SourcedRule { effect, rule: rule.parse::<Rule>()?, source })
        };
        Ok(Self {
            rules: stored.rules.into_iter().map(rule).collect::<Result<_, RuleError>>()?,
            mode: stored.mode,
            root: stored.root,
            extra_dirs: stored.extra_dirs,
            read_dirs: stored.read_dirs,
            home: stored.home,
            worktree: stored.worktree,
            fencing: Fencing::Holds,
            tools: stored.tools,
        })
    }
}
