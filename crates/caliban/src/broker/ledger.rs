//! What was delivered, what was heard, and how long nobody but agents has spoken: folded from the transcript's records.
//!
//! Pure. A resumed worker folds the same records and so knows what it must not deliver again.

use std::collections::{BTreeMap, BTreeSet};

use caliban_agent::event::{Author, Event};
use caliban_store::broker::TaskId;

use super::{Role, limits};

/// Marks our messages among those that other senders put into the agent's queue.
const PREFIX: &str = "broker/";

/// The sender id under which a message goes into the conversation: the same message has the same id for ever.
pub(super) fn sender_id(task: TaskId, role: Role) -> String {
    format!("{PREFIX}{}/{task}", role.name())
}

fn parse(sender: &str) -> Option<(TaskId, Role)> {
    let (role, id) = sender.strip_prefix(PREFIX)?.split_once('/')?;
    let role = [Role::Administrator, Role::Director, Role::Agent].into_iter().find(|it| it.name() == role)?;
    Some((TaskId::parse(id)?, role))
}

/// Where a message of the mailbox stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The conversation does not know it.
    New,
    /// On disk in the conversation; the model has not had it.
    Waiting,
    /// Taken into a turn.
    Heard,
}

/// Whether there is something to do after an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// A message was heard, or more may be delivered.
    Act,
    /// Nothing that matters to the mail.
    None,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    begun: bool,
    waiting: BTreeMap<u64, (TaskId, Role)>,
    heard: BTreeSet<TaskId>,
    owed: Vec<TaskId>,
    in_a_row: u32,
    is_answering: bool,
}

impl Ledger {
    /// Takes in what happened.
    pub(super) fn take(&mut self, event: &Event) -> Change {
        match event {
            Event::Queued { number, sender: Some(sender), .. } => {
                if let Some(known) = parse(sender) {
                    self.waiting.insert(*number, known);
                }
                Change::None
            }
            Event::Prompt { queued, author, .. } => {
                let is_first = !std::mem::replace(&mut self.begun, true);
                match queued.and_then(|number| self.waiting.remove(&number)) {
                    Some((task, role)) => {
                        self.heard.insert(task);
                        self.owed.push(task);
                        self.is_answering = true;
                        self.in_a_row = if role == Role::Agent { self.in_a_row.saturating_add(1) } else { 0 };
                        Change::Act
                    }
                    None if *author == Author::User => {
                        let was_full = self.is_full();
                        let was_answering = std::mem::take(&mut self.is_answering);
                        self.in_a_row = 0;
                        if is_first || was_full || was_answering { Change::Act } else { Change::None }
                    }
                    None => {
                        if is_first {
                            Change::Act
                        } else {
                            Change::None
                        }
                    }
                }
            }
            Event::TurnEnded { .. } if std::mem::take(&mut self.is_answering) => Change::Act,
            _ => Change::None,
        }
    }

    /// Whether the agent has heard a message in its turn, and no word of a person since.
    pub(super) fn is_answering(&self) -> bool {
        self.is_answering
    }

    /// Where a message stands.
    pub(super) fn standing(&self, task: TaskId) -> Standing {
        if self.heard.contains(&task) {
            Standing::Heard
        } else if self.waiting.values().any(|(waiting, _)| *waiting == task) {
            Standing::Waiting
        } else {
            Standing::New
        }
    }

    /// How many more messages the conversation takes now. None before its own task has begun: that is its first word.
    pub(super) fn room(&self) -> usize {
        if self.begun { limits::WAITING.saturating_sub(self.waiting.len()) } else { 0 }
    }

    /// Whether a message of this sender may be delivered now, as far as loops go.
    pub(super) fn admits(&self, role: Role) -> bool {
        role != Role::Agent || !self.is_full()
    }

    /// The receipts that are due; they are the caller's from now on.
    pub(super) fn take_owed(&mut self) -> Vec<TaskId> {
        std::mem::take(&mut self.owed)
    }

    fn is_full(&self) -> bool {
        let waiting = self.waiting.values().filter(|(_, role)| *role == Role::Agent).count();
        u64::from(self.in_a_row) + waiting as u64 >= u64::from(limits::HEARD_IN_A_ROW)
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::message::Message;

    use super::*;

    fn queued(number: u64, task: TaskId, role: Role) -> Event {
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
        let (mut ledger, task) = (Ledger::default(), TaskId::random());
        assert_eq!(ledger.room(), 0, "the task comes first");
        assert_eq!(ledger.take(&heard(None, Author::User)), Change::Act);
        assert_eq!((ledger.room(), ledger.standing(task)), (limits::WAITING, Standing::New));
        ledger.take(&queued(0, task, Role::Agent));
        assert_eq!((ledger.room(), ledger.standing(task)), (limits::WAITING - 1, Standing::Waiting));
        assert_eq!(ledger.take_owed(), []);
        assert_eq!(ledger.take(&heard(Some(0), Author::User)), Change::Act);
        assert_eq!((ledger.take_owed(), ledger.take_owed()), (vec![task], vec![]));
        assert_eq!(ledger.standing(task), Standing::Heard);
    }

    #[test]
    fn a11_a_loop_of_agents_stops_until_somebody_else_speaks() {
        let mut ledger = Ledger::default();
        ledger.take(&heard(None, Author::User));
        for number in 0..u64::from(limits::HEARD_IN_A_ROW) {
            assert!(ledger.admits(Role::Agent), "{number}");
            ledger.take(&queued(number, TaskId::random(), Role::Agent));
            ledger.take(&heard(Some(number), Author::User));
        }
        ledger.take(&heard(None, Author::Caliban));
        assert!(!ledger.admits(Role::Agent) && ledger.admits(Role::Director));
        assert_eq!(ledger.take(&heard(Some(900), Author::User)), Change::Act, "a person, over the socket");
        assert!(ledger.admits(Role::Agent));
    }

    #[test]
    fn ids_of_other_senders_are_not_ours() {
        let task = TaskId::random();
        assert_eq!(parse(&sender_id(task, Role::Director)), Some((task, Role::Director)));
        for other in ["", "broker/", "broker/agent/x", "broker/king/0", &task.to_string()] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
