//! Lines that a person types at a terminal in plain mode and in `attach --plain`. Owns the thread that reads stdin, and
//! answers one question: was this line begun before something was shown? Knows nothing of what lines mean.
//!
//! The terminal edits lines itself and delivers only whole ones. A *look* takes the unfinished line out: canonical mode is
//! switched off for a moment and the pending bytes are read. They become the beginning of the next line. The reader also
//! looks after each line: bytes that follow a line within a few milliseconds are the rest of a paste.
//!
//! A terminal delivers an unfinished line by itself only at Ctrl+D, so that means the end of input.

use std::{
    io::{self, IsTerminal as _, Read as _, Write as _},
    os::unix::net::UnixStream,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    termios::{LocalModes, OptionalActions, SpecialCodeIndex},
};
use tokio::sync::mpsc;

/// Lines that follow each other faster than this are pasted, and one message.
const PASTE_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// How long a look may take to be answered; it is counted in any case.
const LOOK_LIMIT: Duration = Duration::from_millis(100);
/// Why the reader is woken: to take out the unfinished line, or to give out all and end.
const LOOK: u8 = 0;
const FINISH: u8 = 1;
/// What a terminal that does not keep lines together gives out for the key.
const CTRL_D: u8 = 4;
/// As much as is read at once; a terminal keeps no more than 4 KiB.
const READ_BYTES: usize = 8 * 1024;

/// A message as it was typed.
#[derive(Debug)]
pub(crate) struct TypedLine {
    pub text: String,
    /// How many looks there had been when its first key was pressed.
    pub looks: u64,
    /// When its end came.
    pub at: Instant,
    /// Whether it was finished (Enter) before the end of all.
    pub is_whole: bool,
}

/// A terminal that is read.
pub(crate) struct Keyboard {
    lines: mpsc::UnboundedReceiver<TypedLine>,
    wake: UnixStream,
    looked: Receiver<(u64, Draft)>,
    /// How often the reader was woken.
    looks: u64,
}

/// Whether an unfinished line stands on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Draft {
    None,
    Some,
}

impl Keyboard {
    /// Reads stdin; none where it is no terminal.
    pub(crate) fn open() -> io::Result<Option<Self>> {
        if !io::stdin().is_terminal() {
            return Ok(None);
        }
        let (lines, received) = mpsc::unbounded_channel();
        let (wake, woken) = UnixStream::pair()?;
        let (answer, looked) = channel();
        // Reading a terminal blocks, so it has a thread of its own; that ends with us.
        std::thread::spawn(move || {
            KeyboardReader { lines, woken, answer, looks: 0, text: Vec::new(), begun: 0 }.run();
        });
        Ok(Some(Self { lines: received, wake, looked, looks: 0 }))
    }

    /// What is typed next. The end is Ctrl+D.
    pub(crate) async fn next(&mut self) -> Option<TypedLine> {
        self.lines.recv().await
    }

    /// The same where there may be no keyboard: then nothing is ever typed.
    pub(crate) async fn next_of(keyboard: &mut Option<Self>) -> Option<TypedLine> {
        match keyboard {
            Some(keyboard) => keyboard.next().await,
            None => std::future::pending().await,
        }
    }

    /// The same, for a thread of its own.
    pub(crate) fn blocking_next(&mut self) -> Option<TypedLine> {
        self.lines.blocking_recv()
    }

    /// Ends the reading; what was typed and not asked for, an unfinished line included.
    pub(crate) fn rest(&mut self) -> impl Iterator<Item = TypedLine> {
        self.wake(FINISH);
        std::iter::from_fn(|| self.lines.try_recv().ok())
    }

    /// Looks at the terminal: lines that are begun from now on have at least as many looks as this one's number.
    pub(crate) fn look(&mut self) -> (u64, Draft) {
        let draft = self.wake(LOOK);
        (self.looks, draft)
    }

    fn wake(&mut self, why: u8) -> Draft {
        self.looks += 1;
        // One that has ended reads nothing any more.
        if self.wake.write_all(&[why]).is_err() {
            return Draft::None;
        }
        answer(&self.looked, self.looks, LOOK_LIMIT)
    }
}

/// The answer to this look. Those to earlier ones, which came too late, are not taken for it.
fn answer(looked: &Receiver<(u64, Draft)>, look: u64, limit: Duration) -> Draft {
    let give_up = Instant::now() + limit;
    loop {
        match looked.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
            Ok((number, draft)) if number == look => return draft,
            Ok(_) => {}
            Err(_) => return Draft::None,
        }
    }
}

struct KeyboardReader {
    lines: mpsc::UnboundedSender<TypedLine>,
    woken: UnixStream,
    answer: Sender<(u64, Draft)>,
    looks: u64,
    text: Vec<u8>,
    /// How many looks there had been when the text was begun.
    begun: u64,
}

impl KeyboardReader {
    fn run(mut self) {
        let stdin = io::stdin();
        loop {
            let pause = self.text.ends_with(b"\n").then_some(&PASTE_PAUSE);
            let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            match rustix::event::poll(&mut fds, pause) {
                Ok(0) => {
                    if self.hold() == HeldEnd::End {
                        self.emit();
                        return;
                    }
                    // A paste whose last line has no end goes on when that has one.
                    if self.text.ends_with(b"\n") && !self.emit() {
                        return;
                    }
                    continue;
                }
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => return,
            }
            let [is_typed, is_woken] = fds.map(|fd| !fd.revents().is_empty());
            // Lines that have come before a look are before it.
            if is_typed {
                match read() {
                    Ok(bytes) if bytes.ends_with(b"\n") => self.take(&bytes),
                    Ok(bytes) if bytes.len() == READ_BYTES => self.take(&bytes),
                    // Ctrl+D, with what stood before it.
                    Ok(bytes) => {
                        self.take(&bytes);
                        self.emit();
                        return;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => {
                        self.emit();
                        return;
                    }
                }
            } else if is_woken && !self.look() {
                return;
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.text.is_empty() {
            self.begun = self.looks;
        }
        self.text.extend_from_slice(bytes);
    }

    /// Gives out what there is; false when nobody wants it.
    fn emit(&mut self) -> bool {
        if self.text.is_empty() {
            return !self.lines.is_closed();
        }
        let bytes = std::mem::take(&mut self.text);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let line = TypedLine { is_whole: text.ends_with('\n'), text, looks: self.begun, at: Instant::now() };
        self.lines.send(line).is_ok()
    }

    fn look(&mut self) -> bool {
        let mut why = [0];
        if !matches!(self.woken.read(&mut why), Ok(1)) {
            return false;
        }
        if self.text.ends_with(b"\n") && !self.emit() {
            return false;
        }
        let held = self.hold();
        self.looks += 1;
        let draft = if self.text.is_empty() { Draft::None } else { Draft::Some };
        let is_over = why == [FINISH] || held == HeldEnd::End;
        if is_over {
            self.emit();
        }
        self.answer.send((self.looks, draft)).is_ok() && !is_over
    }

    /// Takes the unfinished line out of the terminal.
    fn hold(&mut self) -> HeldEnd {
        let held = held();
        let end = held.iter().position(|byte| *byte == CTRL_D);
        self.take(&held[..end.unwrap_or(held.len())]);
        if end.is_some() { HeldEnd::End } else { HeldEnd::GoesOn }
    }
}

/// Whether there was a Ctrl+D among what was taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HeldEnd {
    GoesOn,
    End,
}

/// Reads the terminal itself: what the library keeps back for later is not seen by `poll`.
fn read() -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; READ_BYTES];
    let read = rustix::io::read(io::stdin(), &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Takes the unfinished line out of the terminal. Best effort: where that cannot be done, nothing is held.
fn held() -> Vec<u8> {
    let stdin = io::stdin();
    // Whoever changes a terminal from the background is stopped by it.
    let own = i32::try_from(std::process::id()).ok().and_then(caliban_process::stat);
    let is_ours = own.is_some_and(|own| own.group == own.foreground_group);
    let Ok(lines) = rustix::termios::tcgetattr(&stdin) else { return Vec::new() };
    if !is_ours || !lines.local_modes.contains(LocalModes::ICANON) {
        return Vec::new();
    }
    let mut keys = lines.clone();
    keys.local_modes.remove(LocalModes::ICANON);
    // A read gives what there is, and does not wait.
    keys.special_codes[SpecialCodeIndex::VMIN] = 0;
    keys.special_codes[SpecialCodeIndex::VTIME] = 0;
    if rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &keys).is_err() {
        return Vec::new();
    }
    let mut held = read().unwrap_or_default();
    let _gone = rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &lines);
    // What was typed in this moment is given out like a line, without its end: it must not be taken for a Ctrl+D.
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    if matches!(rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1)) {
        held.extend(read().unwrap_or_default());
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_answer_is_not_taken_for_that_to_another_look() {
        let (answers, looked) = channel();
        assert_eq!(answer(&looked, 1, Duration::ZERO), Draft::None);
        answers.send((1, Draft::None)).unwrap();
        answers.send((2, Draft::Some)).unwrap();
        assert_eq!(answer(&looked, 2, LOOK_LIMIT), Draft::Some);
    }
}
