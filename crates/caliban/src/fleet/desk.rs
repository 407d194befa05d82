//! The questions that lie before an attached person: one is shown at a time, and an answer goes to the one that was
//! shown when it was typed. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// A question that took the place of another one is not answered by what comes sooner: it was typed for the other.
const READING_TIME: Duration = Duration::from_secs(1);

/// Open questions, the shown one first.
#[derive(Debug)]
pub(super) struct Desk<Q> {
    open: VecDeque<Q>,
    /// Since when the first one is shown, when it took the place of another.
    changed: Option<Instant>,
}

/// What an answer meets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken<Q> {
    /// Nothing is asked.
    Nothing,
    /// The question has changed under the person's hands.
    Changed,
    /// This question.
    Question(Q),
}

impl<Q> Default for Desk<Q> {
    fn default() -> Self {
        Self { open: VecDeque::new(), changed: None }
    }
}

impl<Q> Desk<Q> {
    /// Puts a question behind the others.
    pub(super) fn put(&mut self, question: Q) {
        self.open.push_back(question);
    }

    /// The one that is shown, or is to be shown.
    pub(super) fn shown(&self) -> Option<&Q> {
        self.open.front()
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Removes those that are moot; whether the shown one was among them.
    pub(super) fn drop_moot(&mut self, is_moot: impl Fn(&Q) -> bool, now: Instant) -> bool {
        let was_shown = self.open.front().is_some_and(&is_moot);
        self.open.retain(|question| !is_moot(question));
        if was_shown {
            self.changed = Some(now);
        }
        was_shown
    }

    /// The question that a line answers which comes now.
    pub(super) fn take(&mut self, now: Instant) -> Taken<Q> {
        if self.open.is_empty() {
            return Taken::Nothing;
        }
        if self.changed.is_some_and(|since| now.duration_since(since) < READING_TIME) {
            return Taken::Changed;
        }
        self.changed = Some(now);
        self.open.pop_front().map_or(Taken::Nothing, Taken::Question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_goes_to_the_question_that_was_shown_when_it_was_typed() {
        let start = Instant::now();
        let mut desk = Desk::default();
        assert_eq!(desk.take(start), Taken::Nothing);
        for question in ["a", "b", "c"] {
            desk.put(question);
        }
        assert_eq!(desk.shown(), Some(&"a"));
        // Somebody else answers "a" while a yes to it is being typed.
        assert!(desk.drop_moot(|question| *question == "a", start));
        assert_eq!(desk.take(start), Taken::Changed);
        assert_eq!(desk.shown(), Some(&"b"));
        let later = start + READING_TIME;
        assert!(!desk.drop_moot(|question| *question == "c", later));
        assert_eq!(desk.take(later), Taken::Question("b"));
        desk.put("d");
        // Typed twice in a row, it is no answer to what follows.
        assert_eq!((desk.take(later), desk.len()), (Taken::Changed, 1));
        assert_eq!(desk.take(later + READING_TIME), Taken::Question("d"));
    }
}
