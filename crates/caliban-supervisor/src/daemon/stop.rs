//! `POST /v1/shutdown`, TERM and INT (f17): requests in flight are finished, then the daemon leaves. Agents are not
//! touched.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::peer::Peer;
use super::schedule::Schedule;
use super::{DaemonAnswer, Owner};
use crate::protocol::ApiError;

/// Refuses a process of an agent, and one that cannot be seen (a19): without a daemon nobody supervises, and what waits does
/// not start.
pub(super) fn check_caller(peer: Peer) -> Result<(), ApiError> {
    peer.check_person("end the daemon", "ask the person")
}

impl Owner {
    pub(super) fn shutdown(&mut self) -> DaemonAnswer {
        tracing::info!("asked to leave");
        self.stop.cancel();
        DaemonAnswer::Stopping
    }

    /// A daemon that has no agent and no schedule, and whom nobody asks anything, is of no use: whoever wants one gets another.
    pub(super) fn leave_if_unused(&mut self) {
        let long = Duration::from_millis(self.options.stay_ms);
        let is_idle = self.agents.is_empty() && self.schedules.values().all(Schedule::is_paused);
        if is_idle && !self.events.is_read() && self.asked.elapsed() > long {
            tracing::info!("there is no agent, and nobody asks for one");
            self.stop.cancel();
        }
    }
}

/// Makes the signals that ask a daemon to leave do so.
pub(super) fn on_signals(stop: &CancellationToken) -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // Taken and not listened to: a terminal that closes is nothing to us.
    let mut hangup = signal(SignalKind::hangup())?;
    let stop = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => {}
                () = stop.cancelled() => return,
            }
        }
        tracing::info!("asked to leave by a signal");
        stop.cancel();
    });
    Ok(())
}
