//! How an agent stands, in one word: with its icon, its group and its tone. Every list, page and history uses this table.

use serde::{Deserialize, Serialize};

use crate::lifecycle::{State, WaitingFor};

/// The word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusWord {
    /// It waits for its start.
    Queued,
    /// It works.
    Running,
    /// It asks whether it may.
    Asks,
    /// It waits for a person's next message.
    Waits,
    /// It waits for a rate limit, a server or the end of the quiet hours.
    Limited,
    /// It is between two turns, and needs nobody.
    Idle,
    /// The same, and it has left memory.
    Asleep,
    /// It has done its work.
    Done,
    /// It could not go on.
    Failed,
    /// It has spent what it may spend.
    Budget,
    /// Somebody has stopped it.
    Killed,
    /// It vanished without a word.
    Crashed,
}

/// What a list has together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusGroup {
    /// It waits for a person.
    NeedsYou,
    /// It works.
    Working,
    /// It waits for its start.
    Queued,
    /// It has ended.
    Finished,
}

/// What a colour says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusTone {
    /// Somebody has to look.
    Attention,
    /// It goes on.
    Active,
    /// It waits.
    Waiting,
    /// It went well.
    Good,
    /// It went wrong.
    Bad,
    /// Nothing to look at.
    Quiet,
}

/// What decides about the word.
#[derive(Debug, Clone, Copy)]
pub struct StatusFacts<'a> {
    /// The state.
    pub state: State,
    /// What it waits for.
    pub waiting_for: Option<&'a WaitingFor>,
    /// Whether it has open questions.
    pub asks: bool,
    /// Whether it ended because of its budget.
    pub is_over_budget: bool,
    /// Whether one that has not started yet waits in a queue.
    pub is_queued: bool,
    /// Whether it has left memory.
    pub is_asleep: bool,
}

impl StatusWord {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Queued,
        Self::Running,
        Self::Asks,
        Self::Waits,
        Self::Limited,
        Self::Idle,
        Self::Asleep,
        Self::Done,
        Self::Failed,
        Self::Budget,
        Self::Killed,
        Self::Crashed,
    ];

    /// The word for an agent.
    pub fn of(facts: StatusFacts<'_>) -> Self {
        match (facts.state, facts.waiting_for) {
            _ if facts.asks => Self::Asks,
            (State::Done, _) => Self::Done,
            (State::Killed, _) => Self::Killed,
            (State::Crashed, _) => Self::Crashed,
            (State::Failed, _) if facts.is_over_budget => Self::Budget,
            (State::Failed, _) => Self::Failed,
            (_, Some(WaitingFor::Approval { .. })) => Self::Asks,
            (_, Some(WaitingFor::Input)) => Self::Waits,
            (
                _,
                Some(WaitingFor::RateLimit { .. } | WaitingFor::Model { .. } | WaitingFor::QuietHours { .. }),
            ) => Self::Limited,
            (State::Spawning, None) if facts.is_queued => Self::Queued,
            (State::Idle, None) if facts.is_asleep => Self::Asleep,
            (State::Idle, None) => Self::Idle,
            (State::Spawning | State::Running, None) => Self::Running,
        }
    }

    /// As it is written.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Asks => "asks",
            Self::Waits => "waits",
            Self::Limited => "limited",
            Self::Idle => "idle",
            Self::Asleep => "asleep",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Budget => "budget",
            Self::Killed => "killed",
            Self::Crashed => "crashed",
        }
    }

    /// As a person reads it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Budget => "budget exceeded",
            other => other.word(),
        }
    }

    /// As a list shows an agent in this state: the state's word, and in parentheses what it does not say.
    pub fn in_list(self, state: State) -> String {
        match (state, self) {
            (State::Spawning, Self::Running) => state.to_string(),
            _ if self.words() == state.word() => state.to_string(),
            _ => format!("{state} ({})", self.words()),
        }
    }

    /// The status that is written so.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.word() == word)
    }

    /// One character for lists.
    pub const fn icon(self) -> &'static str {
        match self {
            Self::Queued => "○",
            Self::Running | Self::Idle => "▶",
            Self::Asks => "!",
            Self::Waits => "?",
            Self::Limited => "◷",
            Self::Asleep => "☾",
            Self::Done => "✓",
            Self::Failed | Self::Killed => "✗",
            Self::Budget => "$",
            Self::Crashed => "†",
        }
    }

    /// Where it stands in a list.
    pub const fn group(self) -> StatusGroup {
        match self {
            Self::Asks => StatusGroup::NeedsYou,
            Self::Running | Self::Waits | Self::Limited | Self::Idle | Self::Asleep => StatusGroup::Working,
            Self::Queued => StatusGroup::Queued,
            Self::Done | Self::Failed | Self::Budget | Self::Killed | Self::Crashed => StatusGroup::Finished,
        }
    }

    /// How it is coloured.
    pub const fn tone(self) -> StatusTone {
        match self {
            Self::Asks => StatusTone::Attention,
            Self::Running | Self::Idle => StatusTone::Active,
            Self::Waits | Self::Limited => StatusTone::Waiting,
            Self::Done => StatusTone::Good,
            Self::Failed | Self::Budget | Self::Crashed => StatusTone::Bad,
            Self::Queued | Self::Asleep | Self::Killed => StatusTone::Quiet,
        }
    }

    /// Whether it is within a turn: what it is told is heard at its next step.
    pub const fn is_in_turn(self) -> bool {
        matches!(self, Self::Running | Self::Limited | Self::Asks)
    }

    /// Whether it ended without its work done, and nobody wanted that.
    pub const fn has_failed(self) -> bool {
        matches!(self, Self::Failed | Self::Budget | Self::Crashed)
    }

    /// Whether a person has to look at it: it asks, or it has failed. One that is idle or asleep waits for nobody.
    pub const fn needs_you(self) -> bool {
        matches!(self, Self::Asks) || self.has_failed()
    }
}

impl StatusGroup {
    /// For programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NeedsYou => "needs_you",
            Self::Working => "working",
            Self::Queued => "queued",
            Self::Finished => "finished",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_one_status_and_is_read_again() {
        for word in StatusWord::ALL {
            assert_eq!(StatusWord::parse(word.word()), Some(word));
            assert_eq!(serde_json::to_value(word).unwrap(), word.word());
            assert_eq!(word.icon().chars().count(), 1);
        }
        assert_eq!(StatusWord::parse("spawning"), None);
    }

    #[test]
    fn f07_a_list_says_the_state_first_and_then_what_it_does_not_say() {
        let cases = [
            (StatusWord::Queued, State::Spawning, "spawning (queued)"),
            (StatusWord::Running, State::Spawning, "spawning"),
            (StatusWord::Running, State::Running, "running"),
            (StatusWord::Asks, State::Running, "running (asks)"),
            (StatusWord::Limited, State::Running, "running (limited)"),
            (StatusWord::Idle, State::Idle, "idle"),
            (StatusWord::Asleep, State::Idle, "idle (asleep)"),
            (StatusWord::Budget, State::Failed, "failed (budget exceeded)"),
            (StatusWord::Killed, State::Killed, "killed"),
        ];
        for (status, state, shown) in cases {
            assert_eq!(status.in_list(state), shown);
        }
    }

    #[test]
    fn who_asks_or_has_failed_needs_a_person() {
        let needy = StatusWord::ALL.into_iter().filter(|word| word.needs_you());
        let expected = [StatusWord::Asks, StatusWord::Failed, StatusWord::Budget, StatusWord::Crashed];
        assert_eq!(needy.collect::<Vec<_>>(), expected);
    }
}
