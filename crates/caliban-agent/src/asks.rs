//! Calls that wait for a person. An answer is bound to exactly one call and counts once: the first wins.
//!
//! Where the settings limit the time, an ask says when it ends. That is recorded with it, so a process that takes the turn up
//! again waits no longer than the one before would have.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    event::{Answer, Ask, Event, GivenAnswer},
    feed::{Feed, FeedEntry},
    transcript::{Durability, Transcript},
};

/// How often the clock is read while an ask waits for its end: the machine may sleep meanwhile, and its timers with it.
const CLOCK_LOOK: Duration = Duration::from_secs(10);

/// So many of those that are not open any more are known, for who answers late.
const CLOSED_KEPT: usize = 16;

/// The open asks of an agent.
#[derive(Debug, Clone, Default)]
pub struct Asks {
    book: Arc<Mutex<AskBook>>,
    /// The transcript of the agent, once it is made: where questions are recorded that no call of the model asks.
    home: Arc<OnceLock<Transcript>>,
    /// How long each of them waits; for ever when absent.
    patience: Option<Duration>,
    /// Those that an earlier process of the same turn had open, by their ids.
    earlier: Arc<Mutex<BTreeMap<String, Ask>>>,
    /// Calls that somebody did not want to run again outside of their fence.
    refused_outside: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Debug, Default)]
struct AskBook {
    /// Where the answer of each open one goes.
    open: BTreeMap<String, (Ask, oneshot::Sender<GivenAnswer>)>,
    /// The open ones and those before them, the newest last.
    known: VecDeque<KnownAsk>,
}

impl AskBook {
    fn know(&mut self, ask: KnownAsk) {
        self.known.push_back(ask);
        // One that nobody holds any more has ended.
        let is_over = |known: &KnownAsk| known.end.has_changed().is_err();
        let closed = self.known.iter().filter(|known| is_over(known)).count();
        let mut surplus = closed.saturating_sub(CLOSED_KEPT);
        self.known.retain(|known| {
            let is_forgotten = surplus > 0 && is_over(known);
            surplus -= usize::from(is_forgotten);
            !is_forgotten
        });
    }
}

/// An ask that is open, or was a moment ago.
#[derive(Debug, Clone)]
pub struct KnownAsk {
    /// The ask.
    pub ask: Ask,
    end: watch::Receiver<Option<GivenAnswer>>,
}

impl KnownAsk {
    /// Waits until an answer is recorded; what it was and whose. None when the ask is closed without one.
    pub async fn recorded(mut self) -> Option<GivenAnswer> {
        self.end.wait_for(Option::is_some).await.ok()?.clone()
    }
}

/// What came of waiting for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waited {
    Answered(GivenAnswer),
    /// The time is over; in words.
    TooLate(String),
    /// The turn is over, or nobody can answer any more.
    Cancelled,
}

impl Asks {
    /// Asks that wait for at most so long.
    pub fn patient(patience: Option<Duration>) -> Self {
        Self { patience, ..Self::default() }
    }

    /// All open asks.
    pub fn open(&self) -> Vec<Ask> {
        self.lock().open.values().map(|(ask, _)| ask.clone()).collect()
    }

    /// The one that is meant among those of this id, open or closed a moment ago; of several the newest.
    pub fn find(&self, id: &str, is_meant: impl Fn(&Ask) -> bool) -> Option<KnownAsk> {
        let book = self.lock();
        book.known.iter().rev().find(|known| known.ask.id == id && is_meant(&known.ask)).cloned()
    }

    /// Answers one. `false` when it is not open (any more): somebody else was first, or it never was.
    pub fn answer(&self, id: &str, answer: impl Into<GivenAnswer>) -> bool {
        let open = self.lock().open.remove(id);
        open.is_some_and(|(_, to)| to.send(answer.into()).is_ok())
    }

    /// Answers only this exact call; a later call that reuses the id stays open.
    pub fn answer_exactly(&self, ask: &Ask, answer: impl Into<GivenAnswer>) -> bool {
        let mut book = self.lock();
        if book.open.get(&ask.id).is_none_or(|(open, _)| open != ask) {
            return false;
        }
        let open = book.open.remove(&ask.id);
        open.is_some_and(|(_, to)| to.send(answer.into()).is_ok())
    }

    /// Whether somebody has said that this call shall not run again outside of its fence.
    pub(crate) fn is_refused_outside(&self, input: &Value) -> bool {
        let refused = self.refused_outside.lock().unwrap_or_else(PoisonError::into_inner);
        refused.contains(&input.to_string())
    }

    pub(crate) fn refuse_outside(&self, input: &Value) {
        let mut refused = self.refused_outside.lock().unwrap_or_else(PoisonError::into_inner);
        refused.insert(input.to_string());
    }

    /// Takes over what an earlier process has left open in a turn that goes on now.
    pub(crate) fn remember<'a>(&self, events: impl IntoIterator<Item = &'a Event>) {
        let mut earlier = self.earlier.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            match event {
                Event::AskOpened(ask) => {
                    earlier.insert(ask.id.clone(), ask.clone());
                }
                Event::AskAnswered { id, .. } => {
                    earlier.remove(id);
                }
                // Somebody has ended it. Who resumes it wants to be asked.
                Event::TurnEnded { .. } => earlier.clear(),
                _ => {}
            }
        }
    }

    /// Opens an ask. Dropping the answer closes it.
    pub(crate) fn park(&self, mut ask: Ask) -> Parked {
        ask.expires_at = self.end_of(&ask);
        let (answer, answered) = oneshot::channel();
        let (end, seen) = watch::channel(None);
        let mut book = self.lock();
        book.open.insert(ask.id.clone(), (ask.clone(), answer));
        book.know(KnownAsk { ask: ask.clone(), end: seen });
        drop(book);
        Parked { asks: self.clone(), ask, answered, end }
    }

    /// When an ask that opens now is over.
    fn end_of(&self, ask: &Ask) -> Option<Timestamp> {
        let before = self.earlier.lock().unwrap_or_else(PoisonError::into_inner).remove(&ask.id);
        let is_same = |before: &Ask| before.name == ask.name && before.input == ask.input;
        if let Some(end) = before.filter(is_same).and_then(|before| before.expires_at) {
            return Some(end);
        }
        Timestamp::now().checked_add(self.patience?).ok()
    }

    /// The agent is made. Of several that share these asks (sub-agents) the first has the transcript.
    pub(crate) fn settle(&self, transcript: &Transcript) {
        let _the_first = self.home.set(transcript.clone());
    }

    /// Puts a question that is no call of the model's to whoever answers asks, and records both. None when there is no agent
    /// yet, or when it ended without an answer.
    pub async fn put(&self, ask: Ask, cancel: &CancellationToken) -> Option<Answer> {
        let transcript = self.home.get()?;
        let mut parked = self.park(ask);
        let ask = parked.ask().clone();
        let id = ask.id.clone();
        transcript.append(Event::AskOpened(ask), Durability::Synced).await.ok()?;
        let (given, answer) = match parked.answer(cancel).await {
            Waited::Answered(given) => (given.clone(), Some(given.answer)),
            Waited::TooLate(why) => (Answer::No(Some(why)).into(), None),
            Waited::Cancelled => (Answer::No(None).into(), None),
        };
        // An answer counts when it is recorded.
        let answered = Event::AskAnswered { id, given: given.clone() };
        transcript.append(answered, Durability::Synced).await.ok()?;
        parked.recorded(given);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, AskBook> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An ask that is shown in a live log for as long as it is open.
pub(crate) struct LiveAsk<'a> {
    feed: &'a Feed,
    id: String,
}

impl<'a> LiveAsk<'a> {
    pub(crate) fn new(feed: &'a Feed, ask: Ask) -> Self {
        let id = ask.id.clone();
        feed.push(FeedEntry::SubAsked(Box::new(ask)));
        Self { feed, id }
    }
}

impl Drop for LiveAsk<'_> {
    fn drop(&mut self) {
        self.feed.push(FeedEntry::SubAnswered { id: self.id.clone() });
    }
}

/// An ask that waits. Dropping it closes it.
pub(crate) struct Parked {
    asks: Asks,
    ask: Ask,
    answered: oneshot::Receiver<GivenAnswer>,
    end: watch::Sender<Option<GivenAnswer>>,
}

impl Parked {
    /// The ask as it is shown and recorded.
    pub(crate) fn ask(&self) -> &Ask {
        &self.ask
    }

    /// What came of it is on the disk: whoever has answered is told.
    pub(crate) fn recorded(&self, given: GivenAnswer) {
        self.end.send_replace(Some(given));
    }

    /// Waits for its answer, or for its end.
    pub(crate) async fn answer(&mut self, cancel: &CancellationToken) -> Waited {
        loop {
            let left = self.ask.expires_at.map(left_until);
            if left.is_some_and(|left| left.is_zero()) {
                break;
            }
            tokio::select! {
                answer = &mut self.answered => return answer.map_or(Waited::Cancelled, Waited::Answered),
                () = cancel.cancelled() => return Waited::Cancelled,
                () = tokio::time::sleep(left.unwrap_or(CLOCK_LOOK).min(CLOCK_LOOK)), if left.is_some() => {}
            }
        }
        // From here on nobody answers it; an answer that was given before counts.
        self.asks.lock().open.remove(&self.ask.id);
        match self.answered.try_recv() {
            Ok(answer) => Waited::Answered(answer),
            Err(_) => Waited::TooLate(match self.asks.patience {
                Some(patience) => format!("nobody answered within {}", in_words(patience)),
                None => "nobody answered in time".to_owned(),
            }),
        }
    }
}

fn left_until(end: Timestamp) -> Duration {
    Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default()
}

/// `90 seconds`, `30 minutes`, `2 hours`.
fn in_words(time: Duration) -> String {
    let seconds = time.as_secs();
    let (count, unit) = match seconds {
        0 => (0, "second"),
        _ if seconds.is_multiple_of(3600) => (seconds / 3600, "hour"),
        _ if seconds.is_multiple_of(60) => (seconds / 60, "minute"),
        _ => (seconds, "second"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.asks.lock().open.remove(&self.ask.id);
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
            outside: Vec::new(),
            preview: None,
            expires_at: None,
        }
    }

    #[tokio::test]
    async fn r24_an_ask_ends_when_it_would_have_ended_in_the_process_before() {
        let before = Asks::patient(Some(Duration::from_secs(3600)));
        let parked = before.park(ask("ls"));
        let opened = Event::AskOpened(parked.ask().clone());
        let now = Asks::patient(Some(Duration::from_secs(7200)));
        now.remember([&opened]);
        assert_eq!(now.park(ask("ls")).ask(), parked.ask());
        // The same id for another call, an answer, and a turn that somebody has ended begin anew.
        let again = |asks: &Asks, command| asks.park(ask(command)).ask().expires_at > parked.ask().expires_at;
        now.remember([&opened]);
        assert!(again(&now, "rm -r /"));
        now.remember([&opened, &Event::AskAnswered { id: "call_1".into(), given: Answer::Once.into() }]);
        assert!(again(&now, "ls"));
        let ended = Event::TurnEnded {
            outcome: crate::event::Outcome::Cancelled,
            usage: Default::default(),
            micro_usd: None,
            turns: 1,
        };
        now.remember([&opened, &ended]);
        assert!(again(&now, "ls"));
    }

    #[tokio::test]
    async fn r24_an_ask_whose_time_is_over_is_not_open_any_more() {
        let asks = Asks::patient(Some(Duration::ZERO));
        let mut parked = asks.park(ask("ls"));
        let late = parked.answer(&CancellationToken::new()).await;
        assert_eq!(late, Waited::TooLate("nobody answered within 0 seconds".into()));
        assert!(!asks.answer("call_1", Answer::Once));
        // What was answered before counts.
        let mut parked = asks.park(ask("ls"));
        assert!(asks.answer("call_1", Answer::Once));
        assert_eq!(parked.answer(&CancellationToken::new()).await, Waited::Answered(Answer::Once.into()));
        let words = [1, 90, 1800, 7200].map(|seconds| in_words(Duration::from_secs(seconds)));
        assert_eq!(words, ["1 second", "90 seconds", "30 minutes", "2 hours"]);
    }

    #[tokio::test]
    async fn a16_an_answer_to_another_call_of_the_same_id_does_not_count() {
        let asks = Asks::default();
        let mut parked = asks.park(ask("ls"));
        assert!(!asks.answer_exactly(&ask("rm -r /"), Answer::Once));
        assert_eq!(asks.open(), [ask("ls")]);
        assert!(asks.answer_exactly(&ask("ls"), Answer::Once));
        assert_eq!(parked.answer(&CancellationToken::new()).await, Waited::Answered(Answer::Once.into()));
        assert!(!asks.answer_exactly(&ask("ls"), Answer::Always), "once");
    }

    #[tokio::test]
    async fn a16_who_answers_late_is_told_what_was_recorded_first_and_by_whom() {
        let asks = Asks::default();
        let mut parked = asks.park(ask("ls"));
        let find = |command: &'static str| asks.find("call_1", move |known| *known == ask(command));
        assert!(find("rm -r /").is_none());
        let (early, given) =
            (find("ls").unwrap(), GivenAnswer { answer: Answer::Once, by: Some("x".into()) });
        assert!(asks.answer_exactly(&early.ask, given.clone()));
        assert_eq!(parked.answer(&CancellationToken::new()).await, Waited::Answered(given.clone()));
        assert!(!asks.answer("call_1", Answer::No(None)), "it is not open any more");
        // What is not on the disk has not been said.
        assert!(tokio::time::timeout(Duration::ZERO, early.clone().recorded()).await.is_err());
        parked.recorded(given.clone());
        drop(parked);
        assert_eq!(
            (early.recorded().await, find("ls").unwrap().recorded().await),
            (Some(given.clone()), Some(given))
        );
        // One that is closed without an answer has none, and not all are known for ever.
        drop(asks.park(ask("pwd")));
        assert_eq!(find("pwd").unwrap().recorded().await, None);
        (0..=CLOSED_KEPT).for_each(|_| drop(asks.park(ask("date"))));
        assert!(find("ls").is_none());
    }
}
