//! An agent's life: seven states, the events between them, and what is said beside the state.
//!
//! Owns the only way to change a state, [`apply`]. Refuses to guess: an event that does not fit is an error,
//! and an ending is left by an explicit resume and by nothing else.

#![deny(clippy::wildcard_enum_match_arm)]

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{calendar, inert};

/// Where an agent is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Accepted and recorded; waits for a place, for others, or for its worker to come up.
    Spawning,
    /// A turn is in progress, or waits for something within it.
    Running,
    /// Between turns; takes messages. Its worker may have left memory.
    Idle,
    /// Ended on request; its whole process tree is gone.
    Killed,
    /// Ended, with its work done.
    Done,
    /// Ended by itself, without its work done.
    Failed,
    /// Its worker vanished without a word.
    Crashed,
}

/// What an agent cannot go on without.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum WaitingFor {
    /// A person's yes or no to a call.
    Approval {
        /// The call, in words.
        call: String,
    },
    /// A person's next message.
    Input,
    /// The provider's rate limit.
    RateLimit {
        /// When it is over, in milliseconds since 1970.
        #[serde(rename = "until_at", with = "crate::instant")]
        until_ms: u64,
    },
    /// The model's server, which cannot be reached or has failed.
    Model {
        /// When it is tried again, in milliseconds since 1970.
        #[serde(rename = "until_at", with = "crate::instant")]
        until_ms: u64,
    },
    /// The end of the quiet hours.
    QuietHours {
        /// When they are over, in milliseconds since 1970.
        #[serde(rename = "until_at", with = "crate::instant")]
        until_ms: u64,
    },
}

/// How an agent ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ending {
    /// It said that it is finished.
    Finished,
    /// It used up its turns.
    TurnLimit {
        /// How many it had.
        limit: u64,
    },
    /// The ledger refused its next request.
    BudgetExceeded {
        /// The refusal, in words.
        reason: String,
    },
    /// Its time was up (`--timeout`).
    TimedOut {
        /// How long it had, in milliseconds.
        after_ms: u64,
    },
    /// Something went wrong.
    Error {
        /// What, in words.
        text: String,
    },
    /// A signal ended the worker.
    Signal {
        /// Its number.
        number: i32,
    },
    /// It was ended on request, without a signal: not yet started, or out of memory.
    Stopped,
    /// Nothing is known but that the worker is gone (a reboot, a lost exit record).
    Unknown,
}

/// What happens to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LifecycleEvent {
    /// Its worker is up and at work.
    Started,
    /// The worker could not be started.
    SpawnFailed {
        /// Why, in words.
        text: String,
    },
    /// A message woke it.
    TurnStarted,
    /// A turn is over and it takes messages.
    TurnEnded,
    /// It cannot go on without something.
    Waits(WaitingFor),
    /// What it waited for has come.
    GoesOn,
    /// It ended by itself, at work or between turns.
    Ended(Outcome),
    /// It was ended on request, and its process tree is gone.
    Killed {
        /// The last signal that was needed, if the worker did not leave before any.
        signal: Option<i32>,
    },
    /// It was ended because its time was up, and its process tree is gone.
    TimedOut {
        /// How long it had, in milliseconds.
        after_ms: u64,
    },
    /// Its worker is gone and did not say why.
    Lost {
        /// The signal, when the shim saw one.
        signal: Option<i32>,
    },
    /// A person, or a policy set by one, wants an ended agent to go on.
    Resumed,
}

/// How an agent ends by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// Its work is done.
    Finished,
    /// It used up its turns.
    TurnLimit {
        /// How many it had.
        limit: u64,
    },
    /// The ledger refused its next request.
    BudgetExceeded {
        /// The refusal, in words.
        reason: String,
    },
    /// Something went wrong.
    Error {
        /// What, in words.
        text: String,
    },
}

/// An event that does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an agent that is {state} cannot be {event}")]
pub struct EventRefused {
    /// The state, which stays.
    pub state: State,
    /// The event's name.
    pub event: &'static str,
}

/// The one way from state to state.
pub fn apply(state: State, event: &LifecycleEvent) -> Result<State, EventRefused> {
    let refused = || EventRefused { state, event: event.name() };
    match state {
        State::Spawning => match event {
            LifecycleEvent::Started => Ok(State::Running),
            LifecycleEvent::SpawnFailed { .. } | LifecycleEvent::TimedOut { .. } => Ok(State::Failed),
            LifecycleEvent::Killed { .. } => Ok(State::Killed),
            LifecycleEvent::Lost { .. } => Ok(State::Crashed),
            LifecycleEvent::TurnStarted
            | LifecycleEvent::TurnEnded
            | LifecycleEvent::Waits(_)
            | LifecycleEvent::GoesOn
            | LifecycleEvent::Ended(_)
            | LifecycleEvent::Resumed => Err(refused()),
        },
        State::Running => match event {
            LifecycleEvent::TurnEnded => Ok(State::Idle),
            LifecycleEvent::Waits(_) | LifecycleEvent::GoesOn => Ok(State::Running),
            LifecycleEvent::Ended(outcome) => Ok(outcome.state()),
            LifecycleEvent::TimedOut { .. } => Ok(State::Failed),
            LifecycleEvent::Killed { .. } => Ok(State::Killed),
            LifecycleEvent::Lost { .. } => Ok(State::Crashed),
            LifecycleEvent::Started
            | LifecycleEvent::SpawnFailed { .. }
            | LifecycleEvent::TurnStarted
            | LifecycleEvent::Resumed => Err(refused()),
        },
        State::Idle => match event {
            LifecycleEvent::TurnStarted => Ok(State::Running),
            LifecycleEvent::Waits(WaitingFor::Input) | LifecycleEvent::GoesOn => Ok(State::Idle),
            LifecycleEvent::Ended(outcome) => Ok(outcome.state()),
            LifecycleEvent::TimedOut { .. } => Ok(State::Failed),
            LifecycleEvent::Killed { .. } => Ok(State::Killed),
            LifecycleEvent::Lost { .. } => Ok(State::Crashed),
            // Approvals and rate limits are met within a turn.
            LifecycleEvent::Waits(
                WaitingFor::Approval { .. }
                | WaitingFor::RateLimit { .. }
                | WaitingFor::Model { .. }
                | WaitingFor::QuietHours { .. },
            )
            | LifecycleEvent::Started
            | LifecycleEvent::SpawnFailed { .. }
            | LifecycleEvent::TurnEnded
            | LifecycleEvent::Resumed => Err(refused()),
        },
        State::Killed | State::Done | State::Failed | State::Crashed => match event {
            LifecycleEvent::Resumed => Ok(State::Spawning),
            LifecycleEvent::Started
            | LifecycleEvent::SpawnFailed { .. }
            | LifecycleEvent::TurnStarted
            | LifecycleEvent::TurnEnded
            | LifecycleEvent::Waits(_)
            | LifecycleEvent::GoesOn
            | LifecycleEvent::Ended(_)
            | LifecycleEvent::TimedOut { .. }
            | LifecycleEvent::Killed { .. }
            | LifecycleEvent::Lost { .. } => Err(refused()),
        },
    }
}

/// A state with what is said beside it. The three always fit each other: an ending has its reason, nothing
/// else has one, and only a living agent waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StatusParts")]
pub struct Status {
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting_for: Option<WaitingFor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ending: Option<Ending>,
}

/// Stored parts that do not fit each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the stored status is not one that an agent can have: {state}, {what}")]
pub struct Inconsistent {
    state: State,
    what: &'static str,
}

impl Default for Status {
    fn default() -> Self {
        Self { state: State::Spawning, waiting_for: None, ending: None }
    }
}

impl Status {
    /// A status from stored parts.
    pub fn from_parts(
        state: State,
        waiting_for: Option<WaitingFor>,
        ending: Option<Ending>,
    ) -> Result<Self, Inconsistent> {
        let what = match (state.is_ending(), &waiting_for, &ending) {
            (true, _, None) => "no ending",
            (true, Some(_), Some(_)) => "still waiting",
            (false, _, Some(_)) => "with an ending",
            (false, Some(_), None) if state == State::Spawning => "waiting within a turn",
            (true, None, Some(_)) | (false, _, None) => return Ok(Self { state, waiting_for, ending }),
        };
        Err(Inconsistent { state, what })
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// What it waits for, if anything.
    pub fn waiting_for(&self) -> Option<&WaitingFor> {
        self.waiting_for.as_ref()
    }

    /// How it ended, if it did.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// The status after `event`.
    pub fn apply(&self, event: LifecycleEvent) -> Result<Self, EventRefused> {
        let state = apply(self.state, &event)?;
        let (waiting_for, ending) = match event {
            LifecycleEvent::Waits(what) => (Some(what), None),
            LifecycleEvent::Started
            | LifecycleEvent::TurnStarted
            | LifecycleEvent::TurnEnded
            | LifecycleEvent::GoesOn
            | LifecycleEvent::Resumed => (None, None),
            LifecycleEvent::SpawnFailed { text } => (None, Some(Ending::Error { text })),
            LifecycleEvent::Ended(outcome) => (None, Some(outcome.into())),
            LifecycleEvent::TimedOut { after_ms } => (None, Some(Ending::TimedOut { after_ms })),
            LifecycleEvent::Killed { signal } => (None, Some(by_signal(signal, Ending::Stopped))),
            LifecycleEvent::Lost { signal } => (None, Some(by_signal(signal, Ending::Unknown))),
        };
        Ok(Self { state, waiting_for, ending })
    }
}

impl State {
    /// Every state, in the order of a life.
    pub const ALL: [Self; 7] =
        [Self::Spawning, Self::Running, Self::Idle, Self::Killed, Self::Done, Self::Failed, Self::Crashed];

    /// Whether nothing happens any more until somebody resumes it.
    pub fn is_ending(self) -> bool {
        match self {
            Self::Spawning | Self::Running | Self::Idle => false,
            Self::Killed | Self::Done | Self::Failed | Self::Crashed => true,
        }
    }

    /// The word that is shown and stored.
    pub fn word(self) -> &'static str {
        match self {
            Self::Spawning => "spawning",
            Self::Running => "running",
            Self::Idle => "idle",
            Self::Killed => "killed",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Crashed => "crashed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A word that is no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{} is not a state", inert::quoted(.0))]
pub struct NotAState(String);

impl FromStr for State {
    type Err = NotAState;

    fn from_str(word: &str) -> Result<Self, NotAState> {
        Self::ALL.into_iter().find(|state| state.word() == word).ok_or_else(|| NotAState(word.to_owned()))
    }
}

impl LifecycleEvent {
    /// The event in a word, as it fits "cannot be …".
    pub fn name(&self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::SpawnFailed { .. } => "refused a start",
            Self::TurnStarted => "woken",
            Self::TurnEnded => "put to idle",
            Self::Waits(_) => "made to wait",
            Self::GoesOn => "let go on",
            Self::Ended(_) => "ended",
            Self::TimedOut { .. } => "timed out",
            Self::Killed { .. } => "killed",
            Self::Lost { .. } => "lost",
            Self::Resumed => "resumed",
        }
    }
}

impl Outcome {
    /// The state that it leads to.
    pub fn state(&self) -> State {
        match self {
            Self::Finished => State::Done,
            Self::TurnLimit { .. } | Self::BudgetExceeded { .. } | Self::Error { .. } => State::Failed,
        }
    }
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Finished => Self::Finished,
            Outcome::TurnLimit { limit } => Self::TurnLimit { limit },
            Outcome::BudgetExceeded { reason } => Self::BudgetExceeded { reason },
            Outcome::Error { text } => Self::Error { text },
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::TurnLimit { limit } => write!(f, "turn limit ({limit}) reached"),
            Self::BudgetExceeded { reason } => write!(f, "budget exceeded: {}", inert::line(reason)),
            Self::TimedOut { after_ms } => write!(f, "timed out after {}", calendar::short(*after_ms)),
            Self::Error { text } => write!(f, "error: {}", inert::line(text)),
            Self::Signal { number } => write!(f, "ended by signal {number}"),
            Self::Stopped => f.write_str("stopped on request"),
            Self::Unknown => f.write_str("gone, reason unknown"),
        }
    }
}

fn by_signal(signal: Option<i32>, otherwise: Ending) -> Ending {
    signal.map_or(otherwise, |number| Ending::Signal { number })
}

#[derive(Deserialize)]
struct StatusParts {
    state: State,
    #[serde(default)]
    waiting_for: Option<WaitingFor>,
    #[serde(default)]
    ending: Option<Ending>,
}

impl TryFrom<StatusParts> for Status {
    type Error = Inconsistent;

    fn try_from(parts: StatusParts) -> Result<Self, Inconsistent> {
        Self::from_parts(parts.state, parts.waiting_for, parts.ending)
    }
}
