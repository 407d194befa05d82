//! What one agent's policy gives another: never more than its parent has at that moment.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::policy::{Effect, Policy, SourcedRule};

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
        hides_objects: own.hides_objects,
        roots: own.roots,
        path: own.path,
        agents_places: own.agents_places,
        is_written_meanwhile: own.is_written_meanwhile,
        // What its parent wrote is not the user's for it, either.
        began_at: own.began_at.min(parent.began_at).or(own.began_at).or(parent.began_at),
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
