//! The questions that lie before an attached person: one is shown at a time, and a line answers the one that was shown
//! when it was begun, or none. Pure.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Nobody has read a question that came up sooner ago than this: what comes then was typed for something else.
pub(crate) const READING_TIME: Duration = Duration::from_secs(1);

/// For so long after somebody else has answered, a bare yes or no is taken for an answer that came too late.
const LATE_TIME: Duration = Duration::from_secs(10);

/// Open questions, the shown one first.
#[derive(Debug)]
pub(super) struct OpenQuestions<Q> {
    open: VecDeque<Q>,
    /// When what is shown last changed.
    turned: Option<(QuestionChange, KeyboardMoment)>,
}

/// Why another question is shown than before, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionChange {
    /// It was open when the person came, and they know of it.
    Stood,
    /// It came up, or took the place of one that the person has answered.
    CameUp,
    /// The person has answered the last.
    Answered,
    /// Somebody else has answered the one before.
    Elsewhere,
}

/// A moment, by the clock and by the looks that were taken at the keyboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyboardMoment {
    pub looks: u64,
    pub at: Instant,
}

/// What a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// A bare answer: yes, no, always.
    Answer,
    /// Anything else.
    Words,
}

/// What a line meets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TakenLine<Q> {
    /// Nothing is asked.
    Nothing,
    /// A question that was not there when the line was begun, or could not be read.
    Early,
    /// Nothing any more: it was an answer to a question that is gone.
    Late,
    Question(Q),
}

impl<Q> Default for OpenQuestions<Q> {
    fn default() -> Self {
        Self { open: VecDeque::new(), turned: None }
    }
}

impl<Q> OpenQuestions<Q> {
    /// Puts a question behind the others.
    pub(super) fn put(&mut self, question: Q) {
        self.open.push_back(question);
    }

    pub(super) fn shown(&self) -> Option<&Q> {
        self.open.front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Another question is shown from now on, or none.
    pub(super) fn turn(&mut self, turn: QuestionChange, mark: KeyboardMoment) {
        self.turned = Some((turn, mark));
    }

    /// Removes those that are moot; whether the shown one was among them.
    pub(super) fn drop_moot(&mut self, is_moot: impl Fn(&Q) -> bool) -> bool {
        let was_shown = self.open.front().is_some_and(&is_moot);
        self.open.retain(|question| !is_moot(question));
        was_shown
    }

    /// What a line meets: when it was begun by the looks, and when it came by the clock.
    pub(super) fn take(&mut self, line: KeyboardMoment, says: Says) -> TakenLine<Q> {
        let Some((turn, since)) = self.turned else {
            return self.open.pop_front().map_or(TakenLine::Nothing, TakenLine::Question);
        };
        let age = line.at.saturating_duration_since(since.at);
        let is_before = line.looks < since.looks;
        let is_soon = age < READING_TIME;
        if self.open.is_empty() {
            let is_late = match (turn, says) {
                (QuestionChange::Elsewhere, Says::Answer) => is_before || age < LATE_TIME,
                (QuestionChange::Elsewhere, Says::Words) => is_before || is_soon,
                (QuestionChange::Answered, Says::Answer) => is_soon,
                (QuestionChange::Answered, Says::Words)
                | (QuestionChange::Stood | QuestionChange::CameUp, _) => false,
            };
            return if is_late { TakenLine::Late } else { TakenLine::Nothing };
        }
        if is_before || (is_soon && turn != QuestionChange::Stood) {
            return TakenLine::Early;
        }
        self.open.pop_front().map_or(TakenLine::Nothing, TakenLine::Question)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(looks: u64, at: Instant) -> KeyboardMoment {
        KeyboardMoment { looks, at }
    }

    #[test]
    fn a_line_answers_the_question_that_was_shown_when_it_was_begun() {
        let start = Instant::now();
        let read = start + READING_TIME;
        let mut desk = OpenQuestions::default();
        assert_eq!(desk.take(mark(0, start), Says::Answer), TakenLine::Nothing);
        for question in ["a", "b", "c"] {
            desk.put(question);
        }
        desk.turn(QuestionChange::CameUp, mark(1, start));
        // Too soon; or late enough, and begun before.
        for line in [mark(1, start), mark(0, read)] {
            assert_eq!(desk.take(line, Says::Words), TakenLine::Early);
        }
        // Somebody else answers "a" while a yes to it is being typed.
        assert!(desk.drop_moot(|question| *question == "a"));
        desk.turn(QuestionChange::Elsewhere, mark(2, read));
        assert_eq!(desk.take(mark(1, read + READING_TIME), Says::Answer), TakenLine::Early);
        assert_eq!(desk.take(mark(2, read), Says::Answer), TakenLine::Early);
        assert_eq!(desk.shown(), Some(&"b"));
        assert!(!desk.drop_moot(|question| *question == "c"));
        assert_eq!(desk.take(mark(2, read + READING_TIME), Says::Answer), TakenLine::Question("b"));
    }

    #[test]
    fn what_stood_when_one_came_is_answered_at_once_and_not_by_what_was_typed_before() {
        let start = Instant::now();
        let mut desk = OpenQuestions::default();
        desk.put("a");
        desk.turn(QuestionChange::Stood, mark(1, start));
        assert_eq!(desk.take(mark(0, start), Says::Answer), TakenLine::Early);
        assert_eq!(desk.take(mark(1, start), Says::Answer), TakenLine::Question("a"));
    }

    #[test]
    fn an_answer_to_what_is_gone_is_no_message() {
        let start = Instant::now();
        let mut desk: OpenQuestions<&str> = OpenQuestions::default();
        let soon = start + READING_TIME;
        let cases = [
            (QuestionChange::Elsewhere, mark(1, soon), Says::Answer, TakenLine::Late),
            (QuestionChange::Elsewhere, mark(1, start + LATE_TIME), Says::Answer, TakenLine::Nothing),
            (QuestionChange::Elsewhere, mark(0, start + LATE_TIME), Says::Answer, TakenLine::Late),
            (QuestionChange::Elsewhere, mark(1, start), Says::Words, TakenLine::Late),
            (QuestionChange::Elsewhere, mark(1, soon), Says::Words, TakenLine::Nothing),
            (QuestionChange::Answered, mark(1, start), Says::Answer, TakenLine::Late),
            (QuestionChange::Answered, mark(1, soon), Says::Answer, TakenLine::Nothing),
            (QuestionChange::Answered, mark(1, start), Says::Words, TakenLine::Nothing),
        ];
        for (turn, line, says, expected) in cases {
            desk.turn(turn, mark(1, start));
            assert_eq!(desk.take(line, says), expected, "{turn:?} {says:?}");
        }
    }
}
