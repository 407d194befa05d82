//! The end of a daemon: waiting for it, and a signal to one that cannot be asked.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use super::ClientError;
use caliban_contract::lock;
use caliban_contract::places::Places;

/// How long a daemon that was asked to leave may take for its requests in flight.
const LEAVE_LIMIT: Duration = Duration::from_secs(60);
/// How long one that got a signal may take before it is ended by force. It can die at any instant without loss, so this
/// is short.
const SIGNAL_LIMIT: Duration = Duration::from_secs(15);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(5);

/// What a signal did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalResult {
    /// There was no daemon.
    None,
    /// It has left.
    Left,
    /// It had to be killed.
    Killed,
}

/// Waits until the daemon with this process id has let go of its lock. Another that has it by now is not waited for.
pub(super) async fn wait_until_gone(places: &Places, daemon: Option<i32>) -> Result<(), ClientError> {
    let give_up = Instant::now() + LEAVE_LIMIT;
    let path = places.daemon_lock();
    while lock::is_held(&path) {
        let who = lock::holder(&path).unwrap_or_default();
        if let (Some((pid, _)), Some(daemon)) = (lock::parse_holder(&who), daemon)
            && pid != daemon
        {
            break;
        }
        if Instant::now() > give_up {
            return Err(ClientError::Broken(format!(
                "the daemon ({who}) has not left after {LEAVE_LIMIT:?}"
            )));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// Ends the process that holds the daemon's lock, for when it cannot be asked: TERM, and KILL when that does nothing.
/// The handle is taken before its start time is looked at, so no stranger gets a signal (r04).
pub async fn end_by_signal(places: &Places) -> Result<SignalResult, ClientError> {
    let path = places.daemon_lock();
    let broken = |error: std::io::Error| ClientError::Broken(format!("{}: {error}", path.display()));
    if !lock::is_held(&path) {
        return Ok(SignalResult::None);
    }
    let Some((pid, process)) = lock::process(&path).map_err(broken)? else { return Ok(SignalResult::None) };
    for (signal, ended) in [(Signal::TERM, SignalResult::Left), (Signal::KILL, SignalResult::Killed)] {
        // It may be gone by now, which is what we want.
        let _gone_already = rustix::process::pidfd_send_signal(&process, signal);
        let give_up = Instant::now() + SIGNAL_LIMIT;
        while Instant::now() < give_up {
            let is_ours = lock::process(&path).map_err(broken)?.is_some_and(|(holder, _)| holder == pid);
            if !is_ours || !lock::is_held(&path) {
                return Ok(ended);
            }
            sleep(LOOK).await;
        }
    }
    Err(ClientError::Broken(format!("the daemon (pid {pid}) cannot be ended")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use caliban_contract::lock::{HeldLock, holder_line};

    #[tokio::test]
    async fn the_next_holder_of_the_lock_is_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let places = Places::exactly(at("repo"), at("rt"), at("base")).unwrap();
        std::fs::create_dir(at("base")).unwrap();
        let mut held = HeldLock::try_take(&places.daemon_lock()).unwrap().unwrap();
        held.say(&holder_line(12, 1), None).unwrap();
        let waits = wait_until_gone(&places, Some(12));
        tokio::pin!(waits);
        tokio::select! {
            biased;
            _ = &mut waits => panic!("the lock is still held by the one that was asked"),
            () = sleep(LOOK * 4) => held.say(&holder_line(13, 1), None).unwrap(),
        }
        // Held for ever, but by another.
        waits.await.unwrap();
    }
}
