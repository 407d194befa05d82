//! What the agents of one family have spent and how long they have worked, as their process counts it: for what is shown, and
//! for limits of time. Other limits are the machine's ledger's.
//!
//! **Time** is working time, measured by the caller's monotonic clock and added up; a tally never sees a date, so a clock that
//! jumps changes nothing. An agent's time is that in which it or anybody below it works: two who work side by side for a
//! minute take one minute of it, and while all of them rest it stands still.

use std::collections::{BTreeMap, BTreeSet};

use super::{AccountError, Kind, ReserveRefused, Scope, Spent};

/// Milliseconds on the caller's monotonic clock; only differences within one run of the program matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Millis(pub u64);

/// The family of one agent.
#[derive(Debug, Clone)]
pub struct FamilyTally {
    root: String,
    members: BTreeMap<String, TallyMember>,
    at_work: BTreeSet<String>,
    /// Up to here the time of those at work is counted.
    counted: Millis,
}

#[derive(Debug, Clone, Default)]
struct TallyMember {
    parent: Option<String>,
    /// Working time that it and all below it may take.
    limit_ms: Option<u64>,
    /// What it spent by itself.
    own: Spent,
    /// What it and all below it spent, and how long they worked.
    tree: Spent,
}

impl FamilyTally {
    /// A family of one.
    pub fn new(root: &str, limit_ms: Option<u64>) -> Self {
        let member = TallyMember { limit_ms, ..TallyMember::default() };
        Self {
            root: root.to_owned(),
            members: BTreeMap::from([(root.to_owned(), member)]),
            at_work: BTreeSet::new(),
            counted: Millis::default(),
        }
    }

    /// A new member below one that is there.
    ///
    /// # Errors
    /// The name is taken, or there is no such parent.
    pub fn add(&mut self, id: &str, parent: &str, limit_ms: Option<u64>) -> Result<(), AccountError<String>> {
        if self.members.contains_key(id) {
            return Err(AccountError::Exists(id.to_owned()));
        }
        if !self.members.contains_key(parent) {
            return Err(AccountError::NoParent(parent.to_owned()));
        }
        let member = TallyMember { parent: Some(parent.to_owned()), limit_ms, ..TallyMember::default() };
        self.members.insert(id.to_owned(), member);
        Ok(())
    }

    /// The agent is at work from now on: its time counts.
    pub fn start(&mut self, id: &str, now: Millis) {
        self.count_time(now);
        if self.members.contains_key(id) {
            self.at_work.insert(id.to_owned());
        }
    }

    /// The agent rests (idle, waiting for a person): its time does not count.
    pub fn pause(&mut self, id: &str, now: Millis) {
        self.count_time(now);
        self.at_work.remove(id);
    }

    /// Counts the time up to now: once for each agent that is at work, or that has somebody at work below it. A clock that goes
    /// back takes nothing back, and gives nothing twice.
    pub fn count_time(&mut self, now: Millis) {
        let elapsed = now.0.saturating_sub(self.counted.0);
        self.counted = now.max(self.counted);
        let busy: BTreeSet<String> =
            self.at_work.iter().flat_map(|id| self.chain(id)).map(|(id, _)| id.to_owned()).collect();
        for (_, member) in self.members.iter_mut().filter(|(id, _)| busy.contains(*id)) {
            member.tree.add(Spent { wall_ms: elapsed, ..Spent::default() });
        }
    }

    /// Books what an agent has spent, for all above it too. It is a fact, so no limit stands in its way.
    pub fn book(&mut self, id: &str, spent: Spent) {
        let above: Vec<String> = self.chain(id).map(|(id, _)| id.to_owned()).collect();
        for (at, member) in above.iter().enumerate() {
            let Some(member) = self.members.get_mut(member) else { continue };
            member.tree.add(spent);
            if at == 0 {
                member.own.add(spent);
            }
        }
    }

    /// What an agent spent by itself.
    pub fn own(&self, id: &str) -> Spent {
        self.members.get(id).map_or_else(Spent::default, |member| member.own)
    }

    /// What an agent and all below it spent, and how long they worked.
    pub fn spent(&self, id: &str) -> Spent {
        self.members.get(id).map_or_else(Spent::default, |member| member.tree)
    }

    /// How long the family worked.
    pub fn worked_ms(&self) -> u64 {
        self.spent(&self.root).wall_ms
    }

    /// How much longer an agent may work, by its limit and those above it; absent without a limit.
    pub fn time_left(&self, id: &str) -> Option<u64> {
        let left = |member: &TallyMember| Some(member.limit_ms?.saturating_sub(member.tree.wall_ms));
        self.chain(id).filter_map(|(_, member)| left(member)).min()
    }

    /// The limit of time that an agent has reached, the nearest first. Nobody knows how long a request takes; at the limit none
    /// is started.
    pub fn time_is_up(&self, id: &str) -> Option<ReserveRefused<String>> {
        self.chain(id).find_map(|(id, member)| {
            let (limit, spent) = (member.limit_ms?, member.tree.wall_ms);
            let scope = Scope::Tree(id.to_owned());
            let over = ReserveRefused::Over { scope, kind: Kind::Wall, limit, spent, reserved: 0, asked: 1 };
            (spent >= limit).then_some(over)
        })
    }

    /// The agent and those above it. Parents exist before their children and never change, so this ends.
    fn chain<'a>(&'a self, id: &str) -> impl Iterator<Item = (&'a str, &'a TallyMember)> {
        let member = |id: &str| self.members.get_key_value(id).map(|(id, member)| (id.as_str(), member));
        std::iter::successors(member(id), move |(_, below)| below.parent.as_deref().and_then(member))
    }
}
