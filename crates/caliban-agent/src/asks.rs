//! Calls that wait for a person. An answer is bound to exactly one call and counts once: the first wins.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

use crate::{
    event::{Answer, Ask},
    feed::{Entry, Feed},
};

/// The open asks of an agent.
#[derive(Debug, Clone, Default)]
pub struct Asks(Arc<Mutex<BTreeMap<String, Open>>>);

#[derive(Debug)]
struct Open {
    ask: Ask,
    answer: oneshot::Sender<Answer>,
}

impl Asks {
    /// All open asks.
    pub fn open(&self) -> Vec<Ask> {
        self.lock().values().map(|open| open.ask.clone()).collect()
    }

    /// Answers one. `false` when it is not open (any more): somebody else was first, or it never was.
    pub fn answer(&self, id: &str, answer: Answer) -> bool {
        let Some(open) = self.lock().remove(id) else { return false };
        open.answer.send(answer).is_ok()
    }

    /// The same for who has seen the whole ask: another call that goes by the same id is not answered.
    pub fn answer_exactly(&self, ask: &Ask, answer: Answer) -> bool {
        let mut asks = self.lock();
        if asks.get(&ask.id).is_none_or(|open| open.ask != *ask) {
            return false;
        }
        let open = asks.remove(&ask.id);
        open.is_some_and(|open| open.answer.send(answer).is_ok())
    }

    /// Opens an ask; the receiver gets its one answer. Dropping the returned guard closes the ask.
    pub(crate) fn park(&self, ask: Ask) -> (oneshot::Receiver<Answer>, Parked) {
        let (answer, answered) = oneshot::channel();
        let id = ask.id.clone();
        self.lock().insert(id.clone(), Open { ask, answer });
        (answered, Parked { asks: self.clone(), id })
    }

    /// Puts a question that is no call of the model's to whoever answers asks, and shows it in the live log; none when it was
    /// closed without an answer.
    pub async fn put(&self, feed: &Feed, ask: Ask) -> Option<Answer> {
        let (answered, _parked) = self.park(ask.clone());
        let _shown = Shown::new(feed, ask);
        answered.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An ask that is shown in a live log for as long as it is open.
pub(crate) struct Shown<'a> {
    feed: &'a Feed,
    id: String,
}

impl<'a> Shown<'a> {
    pub(crate) fn new(feed: &'a Feed, ask: Ask) -> Self {
        let id = ask.id.clone();
        feed.push(Entry::SubAsked(ask));
        Self { feed, id }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.feed.push(Entry::SubAnswered { id: self.id.clone() });
    }
}

/// Closes an ask that nobody answered when the call goes away.
pub(crate) struct Parked {
    asks: Asks,
    id: String,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.asks.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(command: &str) -> Ask {
        Ask {
            id: "call_1".into(),
            agent: None,
            name: "Bash".into(),
            input: serde_json::json!({"command": command}),
            why: "no rule".into(),
            suggestions: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a16_an_answer_to_another_call_of_the_same_id_does_not_count() {
        let asks = Asks::default();
        let (answered, parked) = asks.park(ask("ls"));
        assert!(!asks.answer_exactly(&ask("rm -r /"), Answer::Once));
        assert_eq!(asks.open(), [ask("ls")]);
        assert!(asks.answer_exactly(&ask("ls"), Answer::Once));
        assert_eq!(answered.await, Ok(Answer::Once));
        assert!(!asks.answer_exactly(&ask("ls"), Answer::Always), "once");
        drop(parked);
    }
}
