//! File descriptors that are set aside: a daemon that has no other left can still be asked to kill, list and stop.
//!
//! When a connection cannot be accepted for want of descriptors, the spare ones are closed, and connections get in on them,
//! few at a time. Each of these is [`Lent`]: it gets one answer, and the descriptors are set aside again when all are over.
//! Connections over the limit of [`connections`](super::connections) get in the same way when all others wait for an answer.

use std::fs::File;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::no_descriptors;
use crate::protocol::{ApiError, ErrorCode};

/// Descriptors that are set aside. A kill opens a record and its directory; a look at a caller opens two files in `/proc`.
const SPARE: usize = 16;
/// Connections that get in on them at once.
const AT_ONCE: usize = 4;
/// Of these, how many may take long at once: a `list` is answered while slow kills go on.
const SLOW_AT_ONCE: usize = AT_ONCE - 1;

/// The descriptors.
#[derive(Debug)]
pub(super) struct Spare {
    files: Vec<File>,
    /// Whether they are closed, for whoever wants to come in.
    is_out: bool,
    /// Whether somebody has come in since.
    is_used: bool,
    borrowers: Arc<()>,
    slow: Arc<Semaphore>,
}

/// Held by a connection that got in on spare descriptors, or over the limit.
#[derive(Debug)]
pub(super) struct Lent {
    shortage: Shortage,
    slow: Arc<Semaphore>,
    _borrower: Arc<()>,
}

/// What there is too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shortage {
    Descriptors,
    /// All connections are taken by requests that wait for an answer.
    Connections,
}

impl Lent {
    pub(super) fn shortage(&self) -> Shortage {
        self.shortage
    }

    /// Begins what takes as long as processes do, and takes it for begun until the permit is dropped.
    pub(super) fn begin_slow(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.slow.clone().try_acquire_owned().map_err(|_| self.shortage.refusal())
    }
}

impl Shortage {
    /// The refusal of a request that might wait for long: others need its connection.
    pub(super) fn refusal(self) -> ApiError {
        match self {
            Self::Descriptors => no_descriptors(),
            Self::Connections => ApiError::new(ErrorCode::Busy, "too many requests wait for an answer")
                .hint("try again later; `caliban agents list`, `kill` and `rm` work meanwhile"),
        }
    }
}

impl Spare {
    pub(super) fn new() -> Self {
        let slow = Arc::new(Semaphore::new(SLOW_AT_ONCE));
        let mut spare =
            Self { files: Vec::new(), is_out: true, is_used: false, borrowers: Arc::default(), slow };
        spare.set_aside();
        spare
    }

    /// Sets the descriptors aside again when those who came in on them are gone.
    pub(super) fn take_back(&mut self) {
        if self.is_used {
            self.set_aside();
        }
    }

    /// Sets the descriptors aside again, unless somebody has them. They may have gone elsewhere: then there are fewer.
    pub(super) fn set_aside(&mut self) {
        if self.is_out && self.lent() == 0 {
            self.is_used = false;
            self.files = std::iter::repeat_with(|| File::open("/dev/null"))
                .take(SPARE)
                .map_while(Result::ok)
                .collect();
            self.is_out = false;
        }
    }

    /// Closes them, so that somebody can come in; false when they are closed already.
    pub(super) fn close(&mut self) -> bool {
        self.files.clear();
        !std::mem::replace(&mut self.is_out, true)
    }

    pub(super) fn is_out(&self) -> bool {
        self.is_out
    }

    /// Whether one more may come in on them.
    pub(super) fn has_place(&self) -> bool {
        self.lent() < AT_ONCE
    }

    pub(super) fn lend(&mut self, shortage: Shortage) -> Lent {
        self.is_used = true;
        Lent { shortage, slow: self.slow.clone(), _borrower: self.borrowers.clone() }
    }

    fn lent(&self) -> usize {
        Arc::strong_count(&self.borrowers) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r13_descriptors_are_lent_to_few_and_set_aside_again_when_all_are_over() {
        let mut spare = Spare::new();
        assert_eq!((spare.files.len(), spare.is_out()), (SPARE, false));
        assert!(spare.close());
        assert!(!spare.close() && spare.files.is_empty());
        // Nobody has come in yet.
        spare.take_back();
        assert!(spare.is_out());
        let mut lent: Vec<Lent> = (0..AT_ONCE).map(|_| spare.lend(Shortage::Descriptors)).collect();
        assert!(!spare.has_place());
        // One of them is for what is answered at once.
        let mut slow: Vec<_> = lent.iter().filter_map(|lent| lent.begin_slow().ok()).collect();
        assert_eq!(slow.len(), AT_ONCE - 1);
        slow.pop();
        assert!(lent[0].begin_slow().is_ok());
        lent.pop();
        spare.take_back();
        assert!(spare.has_place() && spare.is_out());
        lent.clear();
        spare.take_back();
        assert_eq!((spare.files.len(), spare.is_out()), (SPARE, false));
    }
}
