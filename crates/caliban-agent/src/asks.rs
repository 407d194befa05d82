//! Calls that wait for a person. An answer is bound to exactly one call and counts once: the first wins.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use tokio::sync::oneshot;

use crate::{
    event::{Answer, Ask, Event},
    feed::{Entry, Feed},
    transcript::{Durability, Transcript},
};

/// The open asks of an agent.
#[derive(Debug, Clone, Default)]
pub struct Asks {
    open: Arc<Mutex<BTreeMap<String, Open>>>,
    /// The transcript of the agent, once it is made: where questions are recorded that no call of the model asks.
    home: Arc<OnceLock<Transcript>>,
}

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

    /// The agent is made. Of several that share these asks (sub-agents) the first has the transcript.
    pub(crate) fn settle(&self, transcript: &Transcript) {
        let _the_first = self.home.set(transcript.clone());
    }

    /// Puts a question that is no call of the model's to whoever answers asks, and records both. None when there is no agent
    /// yet, or when it ended without an answer.
    pub async fn put(&self, ask: Ask) -> Option<Answer> {
        let transcript = self.home.get()?;
        let id = ask.id.clone();
        let (answered, _parked) = self.park(ask.clone());
        transcript.append(Event::AskOpened(ask), Durability::Synced).await.ok()?;
        let answer = answered.await.ok();
        let event = Event::AskAnswered { id, answer: answer.clone().unwrap_or(Answer::No(None)) };
        // An answer counts when it is recorded.
        transcript.append(event, Durability::Synced).await.ok()?;
        answer
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
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
