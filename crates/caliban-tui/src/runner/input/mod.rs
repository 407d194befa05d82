//! Keys, pastes, the mouse and the size of the terminal, as they come.

mod decode;

use std::{
    collections::VecDeque,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

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
use super::{frame_pace::until, terminal};
use crate::theme::Ground;

/// Bytes that are read at once.
const CHUNK: usize = 64 * 1024;

/// How long the terminal may take to say what its letters stand on before the screen is left.
const ANSWER_WITHIN: Duration = Duration::from_millis(100);

/// What comes from the terminal.
#[derive(Debug)]
pub(super) enum Happened {
    /// The person did something.
    Terminal(Event),
    /// The terminal says what its letters stand on.
    Ground(Ground),
}

/// What the person does at the terminal. Dropped, the terminal's input is somebody else's.
pub(super) struct TerminalInput {
    terminal: AsyncFd<OwnedFd>,
    resized: Signal,
    decoder: Decoder,
    /// When bytes came last.
    came: Instant,
    ready: VecDeque<Event>,
    is_over: bool,
    /// When the terminal was asked something that it has not answered.
    asked: Option<Instant>,
}

impl TerminalInput {
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
            asked: None,
        })
    }

    /// Asks the terminal what its letters stand on.
    pub(super) fn ask_ground(&mut self) -> io::Result<()> {
        self.asked = Some(Instant::now());
        terminal::ask_ground()
    }

    /// What comes next; nothing when the terminal is gone. Safe to drop at any await.
    pub(super) async fn next(&mut self) -> Option<io::Result<Happened>> {
        loop {
            if let Some(ground) = self.decoder.take_ground() {
                self.asked = None;
                return Some(Ok(Happened::Ground(ground)));
            }
            if let Some(event) = self.ready.pop_front() {
                return Some(Ok(Happened::Terminal(event)));
            }
            if self.is_over {
                return None;
            }
            // Counted from the last byte: other things may wake the loop meanwhile.
            let patience = self.decoder.patience().map(|patience| self.came + patience);
            tokio::select! {
                biased;
                ready = self.terminal.readable() => match ready {
                    Ok(mut ready) => match read(ready.get_inner()) {
                        Ok(ReadResult::Bytes(bytes)) => {
                            self.came = Instant::now();
                            self.ready.extend(self.decoder.feed(&bytes));
                        }
                        Ok(ReadResult::NothingYet) => ready.clear_ready(),
                        Ok(ReadResult::Over) => self.is_over = true,
                        Err(error) => return Some(Err(error)),
                    },
                    Err(error) => return Some(Err(error)),
                },
                _ = self.resized.recv() => {
                    return Some(crossterm::terminal::size().map(|(columns, rows)| Happened::Terminal(Event::Resize(columns, rows))));
                }
                () = until(patience) => self.ready.extend(self.decoder.rest()),
            }
        }
    }
}

/// An answer that is still on its way must not be typed into the shell.
impl Drop for TerminalInput {
    fn drop(&mut self) {
        let Some(until) = self.asked.map(|asked| asked + ANSWER_WITHIN) else { return };
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match read_within(self.terminal.get_ref(), left) {
                Ok(ReadResult::Bytes(bytes)) => drop(self.decoder.feed(&bytes)),
                Ok(ReadResult::NothingYet) => {}
                Ok(ReadResult::Over) | Err(_) => return,
            }
            if self.decoder.take_ground().is_some() {
                return;
            }
        }
    }
}

enum ReadResult {
    Bytes(Vec<u8>),
    NothingYet,
    /// The terminal is gone.
    Over,
}

/// What is there now. The terminal is shared with other programs, so it is never set to non-blocking: it is asked first.
fn read(terminal: &OwnedFd) -> io::Result<ReadResult> {
    read_within(terminal, Duration::ZERO)
}

/// What is there within this time.
fn read_within(terminal: &OwnedFd, time: Duration) -> io::Result<ReadResult> {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut asked, Some(&time)) {
        Ok(0) | Err(Errno::INTR) => return Ok(ReadResult::NothingYet),
        Ok(_) => {}
        Err(error) => return Err(error.into()),
    }
    let mut bytes = vec![0; CHUNK];
    match rustix::io::read(terminal, &mut bytes) {
        Ok(0) | Err(Errno::IO) => Ok(ReadResult::Over),
        Ok(count) => {
            bytes.truncate(count);
            Ok(ReadResult::Bytes(bytes))
        }
        Err(Errno::INTR | Errno::AGAIN) => Ok(ReadResult::NothingYet),
        Err(error) => Err(error.into()),
    }
}
