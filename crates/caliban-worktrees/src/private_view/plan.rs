//! What is to change outside after a command of the agent's: three states are compared, what both sides agreed on last, what
//! the agent's git says and what the user's git says. Where both moved, the user wins and the agent's work is kept aside.

use std::collections::BTreeSet;

use super::base::Base;
use super::index_file::Index;
use super::names::{RefNames, Refs};
use super::side::{Head, Side, digest};
use super::state_files::{self, StateFiles};
use crate::marker::Oid;

/// One ref outside that is to change, and what it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Update {
    pub(super) name: String,
    pub(super) new: Option<Oid>,
    pub(super) old: Option<Oid>,
}

/// What is to change in the worktree's record. What is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RecordChange {
    pub(super) head: Option<Head>,
    pub(super) index: Option<Index>,
    pub(super) state: Option<StateFiles>,
}

impl RecordChange {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Parts that say the same inside and outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Same {
    pub(super) head: bool,
    pub(super) index: bool,
    pub(super) state: bool,
    /// By their names outside.
    pub(super) refs: Vec<String>,
}

/// All that is to change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) updates: Vec<Update>,
    pub(super) record: RecordChange,
    /// Whether one of the updates is of the branch that is checked out: then the record is locked.
    pub(super) moves_head: bool,
    /// What is the same on both sides already.
    pub(super) same: Same,
    /// Commits of the agent's that lost against the user's.
    pub(super) lost: BTreeSet<Oid>,
    /// Whether its HEAD and index are among them, and where its HEAD is.
    pub(super) loses_head: bool,
    pub(super) lost_tip: Option<Oid>,
}

impl Plan {
    /// Every object that something outside will name.
    pub(super) fn tips(&self) -> BTreeSet<Oid> {
        let at = match &self.record.head {
            Some(Head::At(oid)) => Some(oid),
            _ => None,
        };
        let new = self.updates.iter().filter_map(|update| update.new.as_ref());
        new.chain(&self.lost).chain(at).cloned().collect()
    }
}

/// One part of the group that moves together.
#[derive(Debug, Clone, Copy)]
struct Moved {
    agent: bool,
    user: bool,
}

/// `inside` is what the agent has now; `shown` is the same as it would be outside.
fn moved<T: PartialEq, U: PartialEq>(inside: (&T, &T), shown: &U, outside: (&U, &U)) -> Moved {
    let ((was, is), (agreed, real)) = (inside, outside);
    Moved { agent: was != is && shown != real, user: agreed != real && shown != real }
}

pub(super) fn plan(
    names: &RefNames,
    base: &Base,
    inside: &Side,
    stash: &BTreeSet<Oid>,
    outside: &Side,
    shown: Option<&Index>,
) -> Plan {
    let mut plan = Plan::default();
    let (is, real) = (inside.mark(), outside.mark());
    // A HEAD that makes no sense is not the agent's wish.
    let head = inside.head.as_ref().map(|head| head.renamed(|name| names.outside(name)));
    let head = if head.is_some() { head } else { real.head.clone() };
    let index = shown.map(Index::digest).or_else(|| real.index.clone());
    let state = state_files::outside(&inside.state, names);
    let state_digest = digest(&state_files::hard(&state));
    let all: BTreeSet<&String> = is.refs.keys().chain(base.inside.refs.keys()).collect();
    let outside_of =
        |name: &&String| names.outside(name).filter(|out| real.refs.get(out) == is.refs.get(*name));
    plan.same = Same {
        head: head == real.head,
        index: index == real.index,
        state: state_digest == real.state,
        refs: all.iter().filter_map(outside_of).collect(),
    };
    let heads = moved((&base.inside.head, &is.head), &head, (&base.outside.head, &real.head));
    let indexes = moved((&base.inside.index, &is.index), &index, (&base.outside.index, &real.index));
    let states = moved((&base.inside.state, &is.state), &state_digest, (&base.outside.state, &real.state));
    let mut group: BTreeSet<String> = [names.own()].into();
    if let Some(Head::On(branch)) = &inside.head {
        group.insert(branch.clone());
    }
    let mut parts = vec![heads, indexes, states];
    let mut updates = Vec::new();
    for branch in &group {
        let (Some(tip), Some(name)) = (is.refs.get(branch), names.outside(branch)) else { continue };
        let (agreed, now) = (base.outside.refs.get(&name), real.refs.get(&name));
        let part = moved((&base.inside.refs.get(branch), &Some(tip)), &Some(tip), (&agreed, &now));
        // A branch of the user's is checked out under a name of ours.
        let is_new = now.is_none() && *branch != names.own();
        if part.agent || is_new {
            updates.push(Update { name, new: Some(tip.clone()), old: now.cloned() });
        }
        parts.push(Moved { agent: part.agent || is_new, ..part });
    }
    let agent = parts.iter().any(|part| part.agent);
    if agent && parts.iter().any(|part| part.user) {
        let own = is.refs.get(&names.own());
        let tip = match &inside.head {
            Some(Head::At(oid)) => Some(oid),
            Some(Head::On(branch)) => is.refs.get(branch),
            None => None,
        };
        plan.lost.extend(tip.into_iter().chain(own).cloned());
        plan.loses_head = true;
        plan.lost_tip = tip.cloned();
    } else if agent {
        plan.moves_head = true;
        plan.updates = updates;
        plan.record = RecordChange {
            head: head.clone().filter(|_| heads.agent),
            index: shown.cloned().filter(|_| indexes.agent),
            state: Some(state).filter(|_| states.agent),
        };
    }
    others(names, base, (&is.refs, &group), &real.refs, &mut plan);
    let stays = if plan.record.head.is_some() { plan.record.head.clone() } else { real.head.clone() };
    plan.updates.retain(|update| update.new.is_some() || stays != Some(Head::On(update.name.clone())));
    stashes(names, base, stash, &real.refs, &mut plan);
    plan
}

/// Refs that are not checked out: each for itself.
fn others(names: &RefNames, base: &Base, inside: (&Refs, &BTreeSet<String>), real: &Refs, plan: &mut Plan) {
    let (refs, group) = inside;
    let free = |name: &&String| !group.contains(*name);
    for name in refs.keys().filter(free) {
        let (Some(oid), Some(out)) = (refs.get(name), names.outside(name)) else { continue };
        let (agreed, now) = (base.outside.refs.get(&out), real.get(&out));
        if real.get(name) == Some(oid) {
            // The user's own ref says the same: ours of that name is not needed any more.
            if now == Some(oid) {
                plan.updates.push(Update { name: out, new: None, old: now.cloned() });
            }
        } else if base.inside.refs.get(name) == Some(oid) || now == Some(oid) {
        } else if agreed == now {
            plan.updates.push(Update { name: out, new: Some(oid.clone()), old: now.cloned() });
        } else {
            plan.lost.insert(oid.clone());
        }
    }
    // Deleted by the agent. A ref of the user's is never deleted, and neither is the worktree's own branch.
    for name in base.inside.refs.keys().filter(free).filter(|name| !refs.contains_key(*name)) {
        let Some(out) = names.outside(name) else { continue };
        if let Some(now) = real.get(&out)
            && base.outside.refs.get(&out) == Some(now)
        {
            plan.updates.push(Update { name: out, new: None, old: Some(now.clone()) });
        }
    }
}

fn stashes(names: &RefNames, base: &Base, stash: &BTreeSet<Oid>, real: &Refs, plan: &mut Plan) {
    let name = |oid: &Oid| format!("{}{oid}", names.stash());
    for oid in stash.iter().filter(|oid| !real.contains_key(&name(oid))) {
        plan.updates.push(Update { name: name(oid), new: Some(oid.clone()), old: None });
    }
    for oid in base.stash.difference(stash) {
        if let Some(now) = real.get(&name(oid)) {
            plan.updates.push(Update { name: name(oid), new: None, old: Some(now.clone()) });
        }
    }
}
