//! Whether the agent works, since when, and what it waits for.

use std::time::Instant;

use crate::cells::ToolStatus;

/// What the agent does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnPhase {
    /// The model has not begun to answer.
    Model,
    /// The model thinks.
    Thinking,
    /// The model writes.
    Writing,
    /// A tool runs.
    Tool(String),
    /// Something else is waited for, in words.
    Waiting(String),
    /// It is being interrupted.
    Stopping,
}

/// The turn.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// Prompts of ours that are not answered.
    prompts: usize,
    /// Whether somebody else's turn runs, as far as is known.
    is_anothers: bool,
    since: Option<Instant>,
    phase: Option<TurnPhase>,
    /// Calls that run: id and title.
    calls: Vec<(String, String)>,
}

impl Turn {
    pub(crate) fn is_running(&self) -> bool {
        self.prompts > 0 || self.is_anothers
    }

    /// Since when it runs.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since.filter(|_| self.is_running())
    }

    pub(crate) fn phase(&self) -> TurnPhase {
        match (&self.phase, self.calls.last()) {
            (Some(TurnPhase::Stopping), _) => TurnPhase::Stopping,
            (Some(waiting @ TurnPhase::Waiting(_)), _) => waiting.clone(),
            (_, Some((_, title))) => TurnPhase::Tool(title.clone()),
            (Some(phase), None) => phase.clone(),
            (None, None) => TurnPhase::Model,
        }
    }

    /// A prompt of ours was sent.
    pub(crate) fn prompted(&mut self, now: Instant) {
        if !self.is_running() {
            self.begin(now);
        }
        self.prompts += 1;
    }

    /// Something happens: a turn runs, whoever began it.
    pub(crate) fn seen(&mut self, phase: TurnPhase, now: Instant) {
        if !self.is_running() {
            self.is_anothers = true;
            self.begin(now);
        }
        if self.phase != Some(TurnPhase::Stopping) {
            self.phase = Some(phase);
        }
    }

    /// The same for a turn that was running when we came.
    pub(crate) fn found(&mut self, now: Instant) {
        self.seen(TurnPhase::Model, now);
    }

    fn begin(&mut self, now: Instant) {
        self.since = Some(now);
        self.phase = None;
        self.calls.clear();
    }

    pub(crate) fn stopping(&mut self) {
        self.phase = Some(TurnPhase::Stopping);
    }

    /// A prompt of ours is answered.
    pub(crate) fn answered(&mut self) {
        self.prompts = self.prompts.saturating_sub(1);
        if self.prompts == 0 {
            self.over();
        }
    }

    /// The turn is over for everybody.
    pub(crate) fn ended(&mut self) {
        self.is_anothers = false;
        if self.prompts == 0 {
            self.over();
        }
    }

    /// Everything is over: the session is another, or the agent is gone.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    fn over(&mut self) {
        self.is_anothers = false;
        self.phase = None;
        self.calls.clear();
    }

    /// A call has come so far.
    pub(crate) fn call(&mut self, id: &str, title: &str, status: ToolStatus) {
        self.calls.retain(|(known, _)| known != id);
        match status {
            ToolStatus::Running => self.calls.push((id.to_owned(), title.to_owned())),
            ToolStatus::Done | ToolStatus::Failed => {
                if !matches!(self.phase, Some(TurnPhase::Stopping)) {
                    self.phase = Some(TurnPhase::Model);
                }
            }
            ToolStatus::Announced => {}
        }
    }
}
