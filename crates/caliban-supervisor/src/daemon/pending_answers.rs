//! Replies held back until the registry has committed the kill or the removal that they report.
//!
//! When the registry does not answer within [`STORE_LIMIT`], the fact goes into the kill journal, which the next daemon
//! reads first, and the reply is sent. When the journal cannot be written either, the reply waits on.

use std::collections::BTreeMap;
use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_store::fleet::Change;

use super::kill_journal::Deed;
use super::store::Then;
use super::{Msg, Owner, Reply, answer_to};
use crate::protocol::{ApiError, Removed};

/// How long the registry may take before things go on without it.
pub(super) const STORE_LIMIT: Duration = Duration::from_secs(2);

/// An answer that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::daemon) struct Due(u64);

/// Those that were not given yet.
#[derive(Debug, Default)]
pub(super) struct Dues {
    next: u64,
    open: BTreeMap<Due, Waits>,
}

/// Who waits, and what for.
#[derive(Debug)]
enum Waits {
    /// For the row of one that has ended.
    Row(AgentId, Reply),
    /// For its removal.
    Removal(Removed, Reply),
}

impl Owner {
    /// Answers with the row of an agent that has ended, when that is on the disk: perhaps it has been for a long time.
    pub(super) fn answer_row(&mut self, id: AgentId, reply: Reply) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        // Nothing of it changes by this.
        agent.unsaved = false;
        let change = Change::Update(Box::new(agent.record.clone()));
        let due = self.due(Waits::Row(id, reply));
        self.batch.add(change, Then::Row { id, due });
        self.answer_at_once_if_slow(id, due);
    }

    /// Removes an agent from the registry, and answers when it is gone.
    pub(super) fn answer_removal(&mut self, removed: Removed, reply: Reply) {
        let id = removed.id;
        let due = self.due(Waits::Removal(removed, reply));
        self.batch.add(Change::Delete(id), Then::Removed { id, due });
        self.answer_at_once_if_slow(id, due);
    }

    /// It is on the disk.
    pub(super) fn due_stored(&mut self, due: Due) {
        match self.dues.open.remove(&due) {
            Some(Waits::Row(id, reply)) => answer_to(reply, self.row_answer(id)),
            Some(Waits::Removal(removed, reply)) => self.removed(removed, reply),
            None => {}
        }
    }

    /// It is not, and will not be soon. `fallback`: whether one that has ended is called so all the same.
    pub(super) fn due_not_stored(&mut self, due: Due, refusal: ApiError, fallback: Fallback) {
        match self.dues.open.remove(&due) {
            Some(Waits::Row(id, reply)) if fallback == Fallback::Memory || self.is_on_file(id) => {
                answer_to(reply, self.row_answer(id));
            }
            Some(Waits::Row(_, reply)) => answer_to(reply, Err(refusal)),
            Some(Waits::Removal(removed, reply)) if self.is_removed_in_words(removed.id) => {
                self.removed(removed, reply);
            }
            Some(Waits::Removal(removed, reply)) => {
                self.stays(removed.id);
                answer_to(reply, Err(refusal));
            }
            None => {}
        }
    }

    /// The registry takes its time.
    pub(super) fn due_late(&mut self, due: Due) {
        let (id, deed) = match self.dues.open.get(&due) {
            Some(Waits::Row(id, _)) => (*id, Deed::Killed),
            Some(Waits::Removal(removed, _)) => (removed.id, Deed::Removed),
            None => return,
        };
        let is_known = match deed {
            // Its own word is in its directory.
            Deed::Killed => !self.needs_word(id) || self.write_down(id, deed),
            Deed::Removed => self.write_down(id, deed),
        };
        if is_known {
            self.due_stored(due);
        }
    }

    fn due(&mut self, waits: Waits) -> Due {
        let due = Due(self.dues.next);
        self.dues.next += 1;
        self.dues.open.insert(due, waits);
        self.later(async move {
            tokio::time::sleep(STORE_LIMIT).await;
            Some(Msg::DueLate(due))
        });
        due
    }

    /// Who has waited for the registry in vain once does not do so again.
    fn answer_at_once_if_slow(&mut self, id: AgentId, due: Due) {
        if self.is_on_file(id) {
            self.due_late(due);
        }
    }
}

/// What is said of an agent that has ended and of which nothing could be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fallback {
    /// What we know.
    Memory,
    /// What the last words say, if they do.
    Words,
}
