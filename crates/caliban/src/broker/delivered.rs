//! What was delivered, what was heard, and how long nobody but agents has spoken: folded from the transcript's records.
//!
//! Pure. A resumed worker folds the same records and so knows what it must not deliver again.

use std::collections::{BTreeMap, BTreeSet};

use caliban_agent::event::{Author, Event};
use caliban_store::broker::TaskId;

use super::{SenderRole, limits};

/// Marks our messages among those that other senders put into the agent's queue.
const PREFIX: &str = "broker/";

/// The sender id under which a message goes into the conversation: the same message has the same id for ever.
pub(super) fn sender_id(task: TaskId, role: SenderRole) -> String {
    format!("{PREFIX}{}/{task}", role.name())
}

fn parse(sender: &str) -> Option<(TaskId, SenderRole)> {
    let (role, id) = sender.strip_prefix(PREFIX)?.split_once('/')?;
    let role = [SenderRole::Administrator, SenderRole::Director, SenderRole::Agent]
        .into_iter()
        .find(|it| it.name() == role)?;
    Some((TaskId::parse(id)?, role))
}

/// Where a message of the mailbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageStanding {
    /// The conversation does not know it.
    New,
    /// On disk in the conversation; the model has not had it.
    Waiting,
    /// Taken into a turn.
    Heard,
}

/// Whether there is something to do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LedgerChange {
    /// A message was heard, or more may be delivered.
    Act,
    /// Nothing that matters to the mail.
    None,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct MailLedger {
    begun: bool,
    waiting: BTreeMap<u64, (TaskId, SenderRole)>,
    heard: BTreeSet<TaskId>,
    owed: Vec<TaskId>,
    in_a_row: u32,
    is_answering: bool,
}

impl MailLedger {
    /// Takes in what happened.
    pub(super) fn take(&mut self, event: &Event) -> LedgerChange {
        match event {
            Event::Queued { number, sender: Some(sender), .. } => {
                if let Some(known) = parse(sender) {
                    self.waiting.insert(*number, known);
                }
                LedgerChange::None
            }
            Event::Prompt { queued, author, .. } => {
                let is_first = !std::mem::replace(&mut self.begun, true);
                match queued.and_then(|number| self.waiting.remove(&number)) {
                    Some((task, role)) => {
                        self.heard.insert(task);
                        self.owed.push(task);
                        self.is_answering = true;
                        self.in_a_row =
                            if role == SenderRole::Agent { self.in_a_row.saturating_add(1) } else { 0 };
                        LedgerChange::Act
                    }
                    None if *author == Author::User => {
                        let was_full = self.is_full();
                        let was_answering = std::mem::take(&mut self.is_answering);
                        self.in_a_row = 0;
                        if is_first || was_full || was_answering {
                            LedgerChange::Act
                        } else {
                            LedgerChange::None
                        }
                    }
                    None => {
                        if is_first {
                            LedgerChange::Act
                        } else {
                            LedgerChange::None
                        }
                    }
                }
            }
            Event::TurnEnded { .. } if std::mem::take(&mut self.is_answering) => LedgerChange::Act,
            _ => LedgerChange::None,
        }
    }

    /// Whether the agent has heard a message in its turn, and no word of a person since.
    pub(super) fn is_answering(&self) -> bool {
        self.is_answering
    }

    /// Where a message stands.
    pub(super) fn standing(&self, task: TaskId) -> MessageStanding {
        if self.heard.contains(&task) {
            MessageStanding::Heard
        } else if self.waiting.values().any(|(waiting, _)| *waiting == task) {
            MessageStanding::Waiting
        } else {
            MessageStanding::New
        }
    }

    /// How many more messages the conversation takes now. None before its own task has begun: that is its first word.
    pub(super) fn room(&self) -> usize {
        if self.begun { limits::WAITING.saturating_sub(self.waiting.len()) } else { 0 }
    }

    /// Whether a message of this sender may be delivered now, as far as loops go.
    pub(super) fn admits(&self, role: SenderRole) -> bool {
        role != SenderRole::Agent || !self.is_full()
    }

    /// The receipts that are due; they are the caller's from now on.
    pub(super) fn take_owed(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.owed)
    }

    fn is_full(&self) -> bool {
        let waiting = self.waiting.values().filter(|(_, role)| *role == SenderRole::Agent).count();
        u64::from(self.in_a_row) + waiting as u64 >= u64::from(limits::HEARD_IN_A_ROW)
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::message::Message;

    use super::*;

    fn queued(number: u64, task: TaskId, role: SenderRole) -> Event {
        Event::Queued {
            number,
            text: String::new(),
            sender: Some(sender_id(task, role)),
            author: Author::User,
        }
    }

    fn heard(queued: Option<u64>, author: Author) -> Event {
        Event::Prompt { message: Message::user("x"), author, context: 0, queued }
    }

    #[test]
    fn a_message_is_new_then_waits_then_is_heard_and_a_receipt_is_due_once() {
        let (mut ledger, task) = (MailLedger::default(), TaskId::random());
        assert_eq!(ledger.room(), 0, "the task comes first");
        assert_eq!(ledger.take(&heard(None, Author::User)), LedgerChange::Act);
        assert_eq!((ledger.room(), ledger.standing(task)), (limits::WAITING, MessageStanding::New));
        ledger.take(&queued(0, task, SenderRole::Agent));
        assert_eq!((ledger.room(), ledger.standing(task)), (limits::WAITING - 1, MessageStanding::Waiting));
        assert_eq!(ledger.take_owed(), []);
        assert_eq!(ledger.take(&heard(Some(0), Author::User)), LedgerChange::Act);
        assert_eq!((ledger.take_owed(), ledger.take_owed()), (vec![task], vec![]));
        assert_eq!(ledger.standing(task), MessageStanding::Heard);
    }

    #[test]
    fn a11_a_loop_of_agents_stops_until_somebody_else_speaks() {
        let mut ledger = MailLedger::default();
        ledger.take(&heard(None, Author::User));
        for number in 0..u64::from(limits::HEARD_IN_A_ROW) {
            assert!(ledger.admits(SenderRole::Agent), "{number}");
            ledger.take(&queued(number, TaskId::random(), SenderRole::Agent));
            ledger.take(&heard(Some(number), Author::User));
        }
        ledger.take(&heard(None, Author::Caliban));
        assert!(!ledger.admits(SenderRole::Agent) && ledger.admits(SenderRole::Director));
        assert_eq!(
            ledger.take(&heard(Some(900), Author::User)),
            LedgerChange::Act,
            "a person, over the socket"
        );
        assert!(ledger.admits(SenderRole::Agent));
    }

    #[test]
    fn ids_of_other_senders_are_not_ours() {
        let task = TaskId::random();
        assert_eq!(parse(&sender_id(task, SenderRole::Director)), Some((task, SenderRole::Director)));
        for other in ["", "broker/", "broker/agent/x", "broker/king/0", &task.to_string()] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
