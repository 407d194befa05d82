//! The task that runs the agent: one job after the other, and what was said meanwhile before it rests.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use caliban_agent::{AgentChange, TurnReport, event::Outcome, handle::Handle};
use caliban_core::usage::Usage;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{
    hosted::Hosted,
    ticket::EndedTurn,
    work_queue::{HostBoard, NextWork, Prompt, Utterance},
};

/// What the host and the agent's task share.
pub(super) struct HostShared {
    pub(super) handle: Handle,
    pub(super) window: Arc<AtomicU64>,
    pub(super) board: Mutex<HostBoard>,
    /// A message has come to the disk, or cannot.
    pub(super) arrived: Notify,
    /// Changes when the agent has come to rest.
    pub(super) rested: watch::Sender<()>,
}

/// What the runner is told to do.
pub(super) enum RunnerJob {
    Turn(Box<NextWork>),
    Compact {
        cancel: CancellationToken,
        done: oneshot::Sender<Result<(), Outcome>>,
    },
    /// Something that must not meet a turn.
    Work {
        cancel: CancellationToken,
        work: Box<dyn FnOnce() + Send>,
    },
    Configure {
        change: AgentChange,
        done: oneshot::Sender<Result<(), String>>,
    },
    Close,
}

impl HostShared {
    pub(super) fn board(&self) -> MutexGuard<'_, HostBoard> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shut(&self) {
        let mut board = self.board();
        board.closed = true;
        board.cancel();
    }

    /// The end of a turn that was not needed.
    pub(super) fn over(&self, outcome: Outcome) -> EndedTurn {
        let report = TurnReport {
            outcome,
            text: String::new(),
            usage: Usage::default(),
            micro_usd: None,
            turns: 0,
            refused: Vec::new(),
            structured: None,
            notes: Vec::new(),
            elapsed: Duration::ZERO,
        };
        EndedTurn { at: self.handle.feed().end(), report: Arc::new(report) }
    }

    /// Somebody's prompt is the next in the feed.
    fn speaks(&self, utterance: Option<Utterance>) {
        let begun = self.handle.feed().end();
        self.board().speakers.push((begun, utterance));
    }

    /// The turn is over: decides what comes next, and tells who waited for it.
    fn end_turn(&self, report: TurnReport) -> NextWork {
        let mut board = self.board();
        // After a failure the queue is left alone: the next attempt would fail, too.
        let can_hear =
            matches!(report.outcome, Outcome::Done | Outcome::TurnLimit { .. } | Outcome::Cancelled);
        let is_cancelled = report.outcome == Outcome::Cancelled
            || board.running.as_ref().is_some_and(|it| it.is_cancelled());
        // Said too late for this turn: heard in another one, or taken down when it was cancelled. Who waits, waits for that.
        if can_hear && !board.closed && self.handle.is_queue_waiting() {
            return board.hear_queue(is_cancelled, Some(report));
        }
        // What was said after the cancel does not overtake what was said before it.
        if is_cancelled && !board.next.is_empty() && board.coming > 0 {
            return NextWork::Settle { so_far: report };
        }
        let ended = EndedTurn { at: self.handle.feed().end(), report: Arc::new(report) };
        board.last = Some(ended.clone());
        let mut told = ended.clone();
        for waiter in std::mem::take(&mut board.waiting) {
            // A client that has gone needs no answer.
            let _gone = waiter.send(told.clone());
            // What the turn took is in one answer: whoever adds the answers up counts it once.
            let micro_usd = ended.report.micro_usd.map(|_| 0);
            let report =
                TurnReport { usage: Usage::default(), micro_usd, ..TurnReport::clone(&ended.report) };
            told = EndedTurn { report: Arc::new(report), ..ended.clone() };
        }
        board.next_turn()
    }

    /// Ends when nothing is on its way to the disk.
    async fn settled(&self) {
        while self.board().coming > 0 {
            self.arrived.notified().await;
        }
    }

    /// Something other than a turn is over. What a person has said meanwhile begins a turn; what we have to tell the model
    /// waits for one.
    fn rest(&self, is_cancelled: bool) -> NextWork {
        let mut board = self.board();
        if !board.closed && self.handle.is_turn_wanted() {
            return board.hear_queue(is_cancelled, None);
        }
        board.next_turn()
    }
}

/// When the agent's task ends, in whatever way, nobody waits for it in vain.
pub(super) struct Gone(pub(super) Arc<HostShared>);

impl Drop for Gone {
    fn drop(&mut self) {
        let mut board = self.0.board();
        board.closed = true;
        board.running = None;
        board.waiting.clear();
        board.next.clear();
        drop(board);
        self.0.handle.feed().close();
    }
}

/// Runs the agent's turns until the host is closed or dropped.
pub(super) async fn run(
    mut agent: Box<dyn Hosted>,
    mut jobs: mpsc::UnboundedReceiver<RunnerJob>,
    gone: Gone,
) {
    let shared = gone.0.clone();
    while let Some(job) = jobs.recv().await {
        let mut next = match job {
            RunnerJob::Turn(turn) => *turn,
            RunnerJob::Compact { cancel, done } => {
                let result = agent.compact(&cancel).await;
                let next = shared.rest(cancel.is_cancelled());
                // Who asked may have gone.
                let _gone = done.send(result);
                next
            }
            RunnerJob::Work { cancel, work } => {
                work();
                shared.rest(cancel.is_cancelled())
            }
            RunnerJob::Configure { change, done } => {
                let result = agent.configure(change).await;
                // Who asked may have gone.
                let _gone = done.send(result);
                NextWork::Rest
            }
            RunnerJob::Close => break,
        };
        loop {
            next = match next {
                NextWork::Prompt { prompt: Prompt { message, author, utterance }, cancel } => {
                    shared.speaks(utterance);
                    shared.end_turn(agent.prompt(message, author, &cancel).await)
                }
                NextWork::GoOn { cancel, so_far } => {
                    let report = agent.go_on(&cancel).await;
                    shared.end_turn(match so_far {
                        Some(earlier) => both(earlier, report),
                        None => report,
                    })
                }
                NextWork::Settle { so_far } => {
                    shared.settled().await;
                    shared.end_turn(so_far)
                }
                NextWork::Rest => break,
            };
            // The server may have told it with the first answer.
            shared.window.store(agent.window(), Ordering::Relaxed);
        }
        shared.rested.send_replace(());
    }
    agent.close().await;
    drop(gone);
}

/// Two turns that are one for those who wait.
fn both(earlier: TurnReport, later: TurnReport) -> TurnReport {
    TurnReport {
        usage: earlier.usage + later.usage,
        micro_usd: earlier.micro_usd.zip(later.micro_usd).map(|(a, b)| a.saturating_add(b)),
        turns: earlier.turns.saturating_add(later.turns),
        refused: earlier.refused.into_iter().chain(later.refused).collect(),
        notes: earlier.notes.into_iter().chain(later.notes).collect(),
        elapsed: earlier.elapsed + later.elapsed,
        outcome: later.outcome,
        text: later.text,
        structured: later.structured,
    }
}
