//! The rows of the agent view: their order, which one is chosen, and which part of the list is on the screen.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

use super::{AgentKey, FleetEffect, FleetRow, FleetState, Focus};
use caliban_core::status_word::StatusGroup;

/// A line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListLine {
    Blank,
    /// The head of a group, and how many are in it.
    Head(StatusGroup, usize),
    /// The row of this number among those that are shown.
    Row(usize),
}

impl FleetState {
    /// The rows that match the filter, group by group; within a group in the order in which they were spawned.
    pub(super) fn shown(&self) -> Vec<&FleetRow> {
        let filter = self.filter.to_lowercase();
        // The agent that somebody writes to stays in the list, whatever it does meanwhile.
        let held = self.chosen.as_ref().filter(|_| matches!(self.focus, Focus::Peek(_)));
        let matches = |row: &&FleetRow| {
            let label = row.label.as_deref().unwrap_or_default();
            let repo = row.key.repo.to_string_lossy();
            filter.is_empty()
                || held == Some(&row.key)
                || [row.key.id.as_str(), label, &row.state, &row.doing, &repo]
                    .iter()
                    .any(|text| text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&FleetRow> = self.rows.iter().filter(matches).collect();
        rows.sort_by_key(|row| row.group());
        rows
    }

    pub(super) fn chosen_row(&self) -> Option<&FleetRow> {
        let chosen = self.chosen.as_ref()?;
        self.shown().into_iter().find(|row| row.key == *chosen)
    }

    /// The marked agents, or the chosen one when none is marked.
    pub(super) fn targets(&self) -> Vec<AgentKey> {
        if self.marked.is_empty() {
            return self.chosen_row().map(|row| row.key.clone()).into_iter().collect();
        }
        self.rows.iter().filter(|row| self.marked.contains(&row.key)).map(|row| row.key.clone()).collect()
    }

    /// Of these agents those in, or not in, the group of the finished.
    pub(super) fn only(&self, keys: Vec<AgentKey>, is_finished: bool) -> Vec<AgentKey> {
        let is_so = |key: &AgentKey| {
            let row = self.rows.iter().find(|row| row.key == *key);
            row.is_some_and(|row| (row.group() == StatusGroup::Finished) == is_finished)
        };
        keys.into_iter().filter(is_so).collect()
    }

    /// Moves the choice by so many rows.
    pub(super) fn step(&mut self, by: isize) {
        let rows = self.shown();
        let at = place(&rows, self.chosen.as_ref()).unwrap_or(0);
        let at = at.saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(at).map(|row| row.key.clone());
    }

    /// Chooses the next agent that needs a person, and round.
    pub(super) fn next_in_need(&mut self, now: Instant) {
        let rows = self.shown();
        let at = place(&rows, self.chosen.as_ref()).unwrap_or(0);
        let after = rows.iter().skip(at + 1).chain(rows.iter().take(at + 1));
        let next = after.filter(|row| row.needs_you()).map(|row| row.key.clone()).next();
        match next {
            Some(key) => self.chosen = Some(key),
            None => self.say("nobody needs you", now),
        }
    }

    /// Takes the rows as they are now. The chosen agent stays chosen, and stays where it is on the screen.
    pub(super) fn take_rows(&mut self, rows: Vec<FleetRow>, now: Instant) -> Vec<FleetEffect> {
        let before = self.shown();
        let place_before = place(&before, self.chosen.as_ref());
        let line_before = place_before.and_then(|at| line_of(&lines(&before), at));
        self.is_ready = true;
        let ring = self.asked_since(&rows);
        self.rows = rows;
        let known: BTreeSet<&AgentKey> = self.rows.iter().map(|row| &row.key).collect();
        self.marked.retain(|key| known.contains(key));
        let after = self.shown();
        // One that is gone leaves its place to the next.
        let at = place(&after, self.chosen.as_ref())
            .or_else(|| after.len().checked_sub(1).map(|last| place_before.unwrap_or(0).min(last)));
        let line_after = at.and_then(|at| line_of(&lines(&after), at));
        let chosen = at.and_then(|at| after.get(at)).map(|row| row.key.clone());
        if let (Some(before), Some(after)) = (line_before, line_after) {
            self.top = (self.top + after).saturating_sub(before);
        }
        let has_moved_on = chosen != self.chosen;
        self.chosen = chosen;
        ring.into_iter().chain(self.after_rows(has_moved_on, now)).collect()
    }

    /// Rings when agents of the list have begun to ask something.
    fn asked_since(&self, rows: &[FleetRow]) -> Option<FleetEffect> {
        let known: BTreeMap<&AgentKey, &[String]> =
            self.rows.iter().map(|row| (&row.key, row.asks.as_slice())).collect();
        let has_news = |row: &&FleetRow| {
            let before = known.get(&row.key);
            before.is_some_and(|before| row.asks.iter().any(|ask| !before.contains(ask)))
        };
        let asking = rows.iter().filter(has_news).map(|row| format!("{}: {}", row.name(), row.doing));
        let asking: Vec<String> = asking.collect();
        (!asking.is_empty()).then(|| FleetEffect::Ring(asking.join(", ")))
    }

    /// What is open on the screen follows the rows.
    fn after_rows(&mut self, has_moved_on: bool, now: Instant) -> Vec<FleetEffect> {
        let revision = self.chosen_row().map(|row| row.revision);
        match &mut self.focus {
            Focus::Peek(_) if has_moved_on => {
                self.leave_peek();
                self.say("that agent was removed", now);
            }
            Focus::Peek(peek) if revision.is_some_and(|revision| revision != peek.revision) => {
                peek.revision = revision.unwrap_or_default();
                return self.chosen.clone().map(FleetEffect::Peek).into_iter().collect();
            }
            Focus::Asking(_) => self.withdraw_asks(now),
            Focus::List
            | Focus::Filter
            | Focus::Dispatch
            | Focus::Confirm(..)
            | Focus::Peek(_)
            | Focus::Page(_) => {}
        }
        Vec::new()
    }

    /// The choice is always on the screen, and no more of the list is scrolled away than needed.
    pub(super) fn keep_in_sight(&mut self) {
        let room = usize::from(super::view::areas(self).list.height);
        let rows = self.shown();
        let lines = lines(&rows);
        // A choice that the filter has hidden is none: keys never act on what is not shown.
        let at = place(&rows, self.chosen.as_ref()).unwrap_or(0);
        let chosen = rows.get(at).map(|row| row.key.clone());
        let line = line_of(&lines, at).unwrap_or(0);
        let last = lines.len().saturating_sub(room);
        // The head of a group is shown with its first row.
        let above = line.saturating_sub(1);
        let lowest = above.min(last);
        let highest = (line + 1).saturating_sub(room);
        self.top = self.top.min(lowest).max(highest);
        self.chosen = chosen;
    }
}

/// Where an agent stands among the rows.
fn place(rows: &[&FleetRow], key: Option<&AgentKey>) -> Option<usize> {
    rows.iter().position(|row| Some(&row.key) == key)
}

fn line_of(lines: &[ListLine], row: usize) -> Option<usize> {
    lines.iter().position(|line| *line == ListLine::Row(row))
}

/// The lines of the list: rows below the heads of their groups.
pub(super) fn lines(rows: &[&FleetRow]) -> Vec<ListLine> {
    let mut lines = Vec::with_capacity(rows.len() + 8);
    let mut group = None;
    for (number, row) in rows.iter().enumerate() {
        if group.replace(row.group()) != Some(row.group()) {
            if !lines.is_empty() {
                lines.push(ListLine::Blank);
            }
            let count = rows.iter().filter(|other| other.group() == row.group()).count();
            lines.push(ListLine::Head(row.group(), count));
        }
        lines.push(ListLine::Row(number));
    }
    lines
}
