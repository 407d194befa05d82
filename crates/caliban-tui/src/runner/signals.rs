//! The signals that end the screen.

use std::io;

use futures_util::FutureExt as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// TERM, HUP and INT.
pub(super) struct Signals {
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Any of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// One that is not typed: another program has the terminal, and Ctrl+C is for that.
    pub(super) async fn end(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    /// Ctrl+C that came meanwhile was for the other program.
    pub(super) fn forget_interrupts(&mut self) {
        while let Some(Some(())) = self.interrupt.recv().now_or_never() {}
    }
}
