//! Keys, pastes, the mouse and the size of the terminal, as they come.

mod decode;

use std::{collections::VecDeque, io, os::fd::OwnedFd, time::Instant};

use crossterm::event::Event;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
};

use self::decode::Decoder;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// What the person does at the terminal. Dropped, the terminal's input is somebody else's.
pub(super) struct Input {
    terminal: AsyncFd<OwnedFd>,
    resized: Signal,
    decoder: Decoder,
    /// When bytes came last.
    came: Instant,
    ready: VecDeque<Event>,
    is_over: bool,
}

impl Input {
    /// Reads the terminal that stdin is.
    pub(super) fn new() -> io::Result<Self> {
        let terminal = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        #[expect(
            deprecated,
            reason = "safe here: the descriptor is ours and lives as long as its registration"
        )]
        let terminal = AsyncFd::with_interest(terminal, Interest::READABLE)?;
        Ok(Self {
            terminal,
            resized: signal(SignalKind::window_change())?,
            decoder: Decoder::default(),
            came: Instant::now(),
            ready: VecDeque::new(),
            is_over: false,
        })
    }

    /// What comes next; nothing when the terminal is gone. Safe to drop at any await.
    pub(super) async fn next(&mut self) -> Option<io::Result<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(event));
            }
            if self.is_over {
                return None;
            }
            // Counted from the last byte: other things may wake the loop meanwhile.
            let patience = self.decoder.patience().map(|patience| self.came + patience);
            let rest = async {
                match patience {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                ready = self.terminal.readable() => match ready {
                    Ok(mut ready) => match read(ready.get_inner()) {
                        Ok(Read::Bytes(bytes)) => {
                            self.came = Instant::now();
                            self.ready.extend(self.decoder.feed(&bytes));
                        }
                        Ok(Read::NothingYet) => ready.clear_ready(),
                        Ok(Read::Over) => self.is_over = true,
                        Err(error) => return Some(Err(error)),
                    },
                    Err(error) => return Some(Err(error)),
                },
                _ = self.resized.recv() => {
                    return Some(crossterm::terminal::size().map(|(columns, rows)| Event::Resize(columns, rows)));
                }
                () = rest => self.ready.extend(self.decoder.rest()),
            }
        }
    }
}

enum Read {
    Bytes(Vec<u8>),
    NothingYet,
    /// The terminal is gone.
    Over,
}

/// What is there now. The terminal is shared with other programs, so it is never set to non-blocking: it is asked first.
fn read(terminal: &OwnedFd) -> io::Result<Read> {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut asked, Some(&at_once)) {
        Ok(0) | Err(Errno::INTR) => return Ok(Read::NothingYet),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut bytes = vec![0; CHUNK];
    match rustix::io::read(terminal, &mut bytes) {
        Ok(0) | Err(Errno::IO) => Ok(Read::Over),
        Ok(count) => {
            bytes.truncate(count);
            Ok(Read::Bytes(bytes))
        }
        Err(Errno::INTR | Errno::AGAIN) => Ok(Read::NothingYet),
        Err(error) => Err(error.into()),
    }
}
