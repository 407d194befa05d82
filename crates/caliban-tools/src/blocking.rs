//! Blocking work of a tool, on the blocking pool, that a cancelled call does not wait for.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio_util::sync::CancellationToken;

use crate::ToolOutput;

/// What the model is told of a call that was cancelled before it did anything.
pub(crate) const INTERRUPTED: &str = "interrupted before it was done";

/// Runs `work` on the blocking pool. Returns at once when the call is cancelled; `work` gets the token
/// and is expected to look at it in its loops. A panic is an error output, as a tool never panics.
pub(crate) async fn run<F>(cancel: &CancellationToken, work: F) -> ToolOutput
where
    F: FnOnce(&CancellationToken) -> ToolOutput + Send + 'static,
{
    look(cancel, work).await.unwrap_or_else(ToolOutput::error)
}

/// Like [`run`] for work that finds something out.
pub(crate) async fn look<F, T>(cancel: &CancellationToken, work: F) -> Result<T, String>
where
    F: FnOnce(&CancellationToken) -> T + Send + 'static,
    T: Send + 'static,
{
    if cancel.is_cancelled() {
        return Err(INTERRUPTED.into());
    }
    let token = cancel.clone();
    let task = tokio::task::spawn_blocking(move || work(&token));
    tokio::select! {
        biased;
        done = task => done.map_err(|_| "internal fault: the tool panicked".to_owned()),
        () = cancel.cancelled() => Err(INTERRUPTED.into()),
    }
}

/// Decides, exactly once, whether a change takes place or its call was cancelled first, so that the
/// model is never told "interrupted" about a file that did change.
#[derive(Debug, Default)]
pub(crate) struct Commit(AtomicU8);

const OPEN: u8 = 0;
const TAKEN: u8 = 1;
const ABANDONED: u8 = 2;

impl Commit {
    /// The worker is about to make its change visible; false when the call was cancelled.
    pub(crate) fn take(&self) -> bool {
        self.0.compare_exchange(OPEN, TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The call was cancelled; false when the change is already being made.
    pub(crate) fn abandon(&self) -> bool {
        self.0.compare_exchange(OPEN, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Like [`run`] for work that changes a file: what a cancelled call reports is what happened.
pub(crate) async fn run_change<F>(cancel: &CancellationToken, work: F) -> ToolOutput
where
    F: FnOnce(&Commit) -> ToolOutput + Send + 'static,
{
    if cancel.is_cancelled() {
        return ToolOutput::error(INTERRUPTED);
    }
    let commit = std::sync::Arc::new(Commit::default());
    let theirs = commit.clone();
    let mut task = tokio::task::spawn_blocking(move || work(&theirs));
    let done = tokio::select! {
        biased;
        done = &mut task => done,
        () = cancel.cancelled() => {
            if commit.abandon() {
                return ToolOutput::error(INTERRUPTED);
            }
            // Only the rename is left.
            task.await
        }
    };
    done.unwrap_or_else(|_| ToolOutput::error("internal fault: the tool panicked"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_and_a_cancellation_exclude_each_other() {
        let commit = Commit::default();
        assert_eq!((commit.take(), commit.abandon()), (true, false));
        let commit = Commit::default();
        assert_eq!((commit.abandon(), commit.take()), (true, false));
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let output = run(&CancellationToken::new(), |_| panic!("on purpose")).await;
        assert_eq!(output, ToolOutput::error("internal fault: the tool panicked"));
    }

    #[tokio::test]
    async fn a_cancelled_call_does_not_wait() {
        let cancel = CancellationToken::new();
        let (release, held) = std::sync::mpsc::channel::<()>();
        let token = cancel.clone();
        let call = tokio::spawn(async move {
            run(&token, move |_| {
                let _ = held.recv();
                ToolOutput::text("late", "late")
            })
            .await
        });
        cancel.cancel();
        assert_eq!(call.await.unwrap(), ToolOutput::error(INTERRUPTED));
        drop(release);
    }
}
