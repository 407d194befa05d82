//! What the agent does, who waits for it, and what it does next. No effects but on the senders of tickets.

use std::{collections::VecDeque, sync::Arc};

use caliban_agent::{TurnReport, event::Author, feed::Cursor};
use caliban_core::message::Message;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::ticket::{EndedTurn, Unavailable};

/// What the agent does, and who waits for it.
#[derive(Default)]
pub(super) struct HostBoard {
    /// Ends what runs; absent when the agent rests.
    pub(super) running: Option<CancellationToken>,
    pub(super) waiting: Vec<oneshot::Sender<EndedTurn>>,
    /// What cannot join the turn that runs: each begins one of its own when that has ended.
    pub(super) next: VecDeque<Lined>,
    /// Messages that are on their way to the disk.
    pub(super) coming: usize,
    /// How often somebody has cancelled: what was said before a cancel is told from what was said after it.
    pub(super) cancels: u64,
    /// The prompts that began a turn, in order: each is the first prompt of a person in the feed behind its place.
    pub(super) speakers: Vec<(Cursor, Option<Utterance>)>,
    /// The last turn.
    pub(super) last: Option<EndedTurn>,
    pub(super) closed: bool,
}

/// The name of one thing that a client has said. It goes with the words through the queue into the record, so whoever
/// walks the log knows whose they are.
pub(crate) type Utterance = Arc<str>;

/// A prompt, and whose it is.
pub(super) struct Prompt {
    pub(super) message: Message,
    pub(super) author: Author,
    pub(super) utterance: Option<Utterance>,
}

/// A turn that waits for its place.
pub(super) struct Lined {
    /// Without one, what is queued.
    pub(super) prompt: Option<Prompt>,
    pub(super) cancel: CancellationToken,
    pub(super) waiter: oneshot::Sender<EndedTurn>,
}

/// What the agent does next.
pub(super) enum NextWork {
    Prompt {
        prompt: Prompt,
        cancel: CancellationToken,
    },
    GoOn {
        cancel: CancellationToken,
        so_far: Option<TurnReport>,
    },
    /// Wait for what is on its way to the disk.
    Settle {
        so_far: TurnReport,
    },
    Rest,
}

impl HostBoard {
    pub(super) fn cancel(&mut self) {
        self.cancels += 1;
        for cancel in self.running.iter().chain(self.next.iter().map(|lined| &lined.cancel)) {
            cancel.cancel();
        }
    }

    /// The turn that was lined up, or rest.
    pub(super) fn next_turn(&mut self) -> NextWork {
        self.running = None;
        let Some(Lined { prompt, cancel, waiter }) = self.next.pop_front() else { return NextWork::Rest };
        self.running = Some(cancel.clone());
        self.waiting.push(waiter);
        match prompt {
            Some(prompt) => NextWork::Prompt { prompt, cancel },
            None => NextWork::GoOn { cancel, so_far: None },
        }
    }

    /// A turn for what is queued; one that was cancelled takes it down and ends.
    pub(super) fn hear_queue(&mut self, is_cancelled: bool, so_far: Option<TurnReport>) -> NextWork {
        let cancel = CancellationToken::new();
        if is_cancelled {
            cancel.cancel();
        }
        self.running = Some(cancel.clone());
        NextWork::GoOn { cancel, so_far }
    }

    pub(super) fn occupy(&mut self) -> Result<CancellationToken, Unavailable> {
        if self.closed {
            return Err(Unavailable::Closed);
        }
        if self.running.is_some() {
            return Err(Unavailable::Busy);
        }
        let cancel = CancellationToken::new();
        self.running = Some(cancel.clone());
        Ok(cancel)
    }
}
