//! The phases of an agent: each carries what is known, or waited for, only then.
//!
//! The agent's state (`spawning`, `running` …) is in its record and is what users see. The phase is what the daemon does
//! with it. A phase changes where the verb or the message that changes it is handled; here is what each one means.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use caliban_core::spec::SpawnSpec;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::ReplyTo;
use super::worktree::Purpose;
use crate::protocol::ApiError;
use crate::records::ShimRecord;

/// When a start that failed for a passing reason is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How long a program may be missing that is replaced by an upgrade.
const REPLACED_LIMIT: Duration = Duration::from_secs(600);
/// After this time without a try nobody waits for the program any more.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// What the daemon does with an agent.
pub(super) enum Phase {
    /// Its row is on its way to the registry. Nobody sees it yet.
    Registering(Registering),
    /// It waits for a place, for other agents, or for another try.
    Queued(Queued),
    /// The name of its next run is on its way to the registry; the run starts when it is there.
    Renewing(Renewing),
    /// It has a run, or may have one.
    Running(Run),
    /// Its worker has left memory; a message wakes it.
    Hibernating(Hibernating),
    /// It has ended, and the order that says so is on its way to the disk.
    Stopping(Vec<Waiter>),
    Ended,
    /// It has ended and goes: its worktree, directory and row are being removed or replaced.
    Leaving(Leaving),
}

/// A new agent, until it is in the registry.
pub(super) struct Registering {
    /// Requests to be answered then.
    pub(super) replies: Vec<ReplyTo>,
    pub(super) spec: Box<SpawnSpec>,
}

#[derive(Default)]
pub(super) struct Queued {
    /// The request, for a start right after the registration. A later start reads it from the registry.
    pub(super) spec: Option<Box<SpawnSpec>>,
    pub(super) tries: Tries,
}

/// Why an agent gets another run.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewing {
    /// The last one never began.
    Void(Tries),
    Wake(Tries),
    Resume,
}

#[derive(Default)]
pub(super) struct Hibernating {
    pub(super) tries: Tries,
    /// Why it was not woken, for the next request that asks.
    pub(super) refused: Option<ApiError>,
}

pub(super) struct Run {
    pub(super) keeper: Keeper,
    /// Set when the run is to end.
    pub(super) stop: Option<WantedStop>,
    pub(super) tries: Tries,
}

/// What is known of the shim of a run.
#[derive(Debug, Clone)]
pub(super) enum Keeper {
    Starting,
    /// It was launched, and nobody knows whether it began.
    Unconfirmed,
    /// A task finds out whether it began.
    Settling,
    /// It lives and is watched.
    Alive(Alive),
    /// It lives and cannot be watched now (out of file descriptors).
    Unwatched(ShimRecord),
    /// It is gone; a task ends what it left.
    Clearing,
}

/// A shim that is watched.
#[derive(Debug, Clone)]
pub(super) struct Alive {
    pub(super) shim: ShimRecord,
    pub(super) process: Arc<AsyncFd<OwnedFd>>,
}

/// The end of a run that somebody wants.
#[derive(Debug, Default)]
pub(super) struct WantedStop {
    /// None while the order is on its way to the disk. No signal is sent before.
    pub(super) ordered: Option<Ordered>,
    /// What happens when the run is over.
    pub(super) waiting: Vec<Waiter>,
    /// The time that it had, when it ends because that is up.
    pub(super) timed_out_ms: Option<u64>,
}

/// An order to end a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ordered {
    pub(super) grace_ms: u64,
    /// Whether the next daemon will find it. If not, only the registry can tell.
    pub(super) is_durable: bool,
}

/// Who waits for the end of an agent, and what for.
#[derive(Debug)]
pub(super) enum Waiter {
    Kill(ReplyTo),
    Leave(Purpose),
}

/// Why an agent goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    Removed,
    Respawned,
}

/// Starts that failed for a reason that may pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// When the next one is due.
    retry_at: Option<Instant>,
    /// Since when the program is missing.
    missing_since: Option<Instant>,
}

impl Phase {
    /// A run that is unconfirmed.
    pub(super) fn unconfirmed(stop: Option<WantedStop>, tries: Tries) -> Self {
        Self::Running(Run { keeper: Keeper::Unconfirmed, stop, tries })
    }

    /// The agent has ended without a run.
    pub(super) fn end(&mut self) {
        match self {
            Self::Queued(_) | Self::Renewing(_) | Self::Hibernating(_) => *self = Self::Ended,
            // Its registration, its run or its order is waited for.
            Self::Registering(_) | Self::Running(_) | Self::Stopping(_) => {}
            Self::Ended | Self::Leaving(_) => {}
        }
    }

    /// What is being done to the agent, during which nothing else is.
    pub(super) fn busy(&self) -> Option<&'static str> {
        match self {
            Self::Renewing(Renewing::Wake(_)) => Some("woken"),
            Self::Renewing(Renewing::Resume) => Some("resumed"),
            Self::Leaving(Leaving::Removed) => Some("removed"),
            Self::Leaving(Leaving::Respawned) => Some("respawned"),
            Self::Registering(_) | Self::Queued(_) | Self::Renewing(Renewing::Void(_)) => None,
            Self::Running(_) | Self::Hibernating(_) | Self::Stopping(_) | Self::Ended => None,
        }
    }

    /// What waits for the end of the agent.
    pub(super) fn waiting(&self) -> &[Waiter] {
        match self {
            Self::Running(Run { stop: Some(stop), .. }) => &stop.waiting,
            Self::Stopping(waiting) => waiting,
            Self::Registering(_) | Self::Queued(_) | Self::Renewing(_) | Self::Running(_) => &[],
            Self::Hibernating(_) | Self::Ended | Self::Leaving(_) => &[],
        }
    }
}

impl Keeper {
    pub(super) fn shim(&self) -> Option<&ShimRecord> {
        match self {
            Self::Alive(alive) => Some(&alive.shim),
            Self::Unwatched(shim) => Some(shim),
            Self::Starting | Self::Unconfirmed | Self::Settling | Self::Clearing => None,
        }
    }
}

impl Tries {
    /// Another try is due in a moment.
    pub(super) fn again(&mut self) {
        self.retry_at = Some(Instant::now() + RETRY);
    }

    pub(super) fn is_due(&self) -> bool {
        self.retry_at.is_none_or(|at| at <= Instant::now())
    }

    pub(super) fn begin(self) -> Self {
        Self { retry_at: None, ..self }
    }

    /// Whether the program has been missing for longer than an upgrade takes.
    pub(super) fn is_program_lost(&mut self) -> bool {
        self.missing_since.get_or_insert_with(Instant::now).elapsed() > REPLACED_LIMIT
    }

    /// For a wake. After a long time without a try the program counts as missing from now on.
    pub(super) fn for_wake(self) -> Self {
        let is_recent = self.retry_at.is_some_and(|at| at.elapsed() <= GIVEN_UP);
        Self { missing_since: self.missing_since.filter(|_| is_recent), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_program_that_was_missing_at_a_wake_long_ago_is_not_missing_since_then() {
        let mut tries = Tries::default();
        assert!(!tries.is_program_lost() && tries.is_due());
        tries.again();
        assert!(!tries.is_due());
        tokio::time::advance(RETRY * 2).await;
        // Whoever wakes it asks again and again, and waits on.
        assert!(tries.is_due());
        assert_eq!(tries.for_wake(), tries);
        tokio::time::advance(REPLACED_LIMIT).await;
        assert!(tries.is_program_lost() && !tries.for_wake().is_program_lost());
        assert!(!Tries { retry_at: None, ..tries }.for_wake().is_program_lost());
    }

    #[test]
    fn an_agent_that_ends_without_a_run_has_ended_and_whoever_waits_for_its_end_waits_on() {
        let ended = |mut phase: Phase| {
            phase.end();
            matches!(phase, Phase::Ended)
        };
        assert!(ended(Phase::Queued(Queued::default())) && ended(Phase::Renewing(Renewing::Resume)));
        assert!(ended(Phase::Hibernating(Hibernating::default())));
        assert!(!ended(Phase::Stopping(Vec::new())) && !ended(Phase::Leaving(Leaving::Removed)));
        assert!(!ended(Phase::unconfirmed(None, Tries::default())));
    }
}
