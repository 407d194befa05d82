//! A coding agent's terminal face, played by this test binary under the name `claude` or `codex`.
//!
//! It draws an input line, takes bracketed pastes, submits on Enter, and writes all it gets into a
//! log. What it shows is told by a file that the test changes: `free`, `draft`, `dialog`, `mute`.

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

/// Runs only when the test binary is started as a fake agent in a pane.
#[test]
#[ignore = "not a test: the fake agent that the pane tests start"]
fn play() {
    #[expect(clippy::disallowed_methods, reason = "how a pane test tells the fake agent where it is")]
    let Some(dir) = std::env::var_os("FAKE_AGENT_DIR").map(PathBuf::from) else { return };
    let codex = std::env::args().next().is_some_and(|name| name.ends_with("codex"));
    Face { dir, codex, transcript: Vec::new(), input: String::new(), pasting: false, pending: Vec::new() }
        .live();
}

struct Face {
    dir: PathBuf,
    codex: bool,
    transcript: Vec<String>,
    input: String,
    pasting: bool,
    pending: Vec<u8>,
}

const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

impl Face {
    fn live(&mut self) {
        let tty = std::io::stdin();
        let mut raw = tcgetattr(&tty).expect("a terminal");
        raw.make_raw();
        tcsetattr(&tty, OptionalActions::Now, &raw).expect("raw mode");
        print!("\x1b[?2004h");
        let mut shown = String::new();
        loop {
            let mode = fs::read_to_string(self.dir.join("mode")).unwrap_or_default();
            let now = format!("{mode}{}{}", self.input, self.transcript.len());
            if now != shown {
                self.draw(mode.trim());
                shown = now;
                fs::write(self.dir.join("shown"), mode).expect("shown");
            }
            let mut fds = [PollFd::new(&tty, PollFlags::IN)];
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let Ok(1..) = poll(&mut fds, Some(&wait)) else { continue };
            let mut bytes = [0; 4096];
            let got = std::io::stdin().read(&mut bytes).unwrap_or(0);
            if got == 0 {
                return;
            }
            self.pending.extend_from_slice(&bytes[..got]);
            self.take();
        }
    }

    /// Takes what has come: pastes, Enter, other keys.
    fn take(&mut self) {
        while !self.pending.is_empty() {
            if self.pending.starts_with(PASTE_BEGIN) {
                self.pasting = true;
                self.pending.drain(..PASTE_BEGIN.len());
            } else if self.pending.starts_with(PASTE_END) {
                self.pasting = false;
                self.pending.drain(..PASTE_END.len());
            } else if PASTE_BEGIN.starts_with(&self.pending) || PASTE_END.starts_with(&self.pending) {
                return;
            } else {
                let text = match std::str::from_utf8(&self.pending) {
                    Ok(text) => text,
                    Err(error) if error.valid_up_to() > 0 => {
                        std::str::from_utf8(&self.pending[..error.valid_up_to()]).expect("valid")
                    }
                    Err(_) => return,
                };
                let c = text.chars().next().expect("a character");
                self.pending.drain(..c.len_utf8());
                self.key(c);
            }
        }
    }

    fn key(&mut self, c: char) {
        match (c, self.pasting) {
            ('\r', true) => self.input.push('\n'),
            ('\r', false) => {
                let text = std::mem::take(&mut self.input);
                self.log(&format!("submitted {text:?}"));
                self.transcript.push(text);
            }
            (c, _) if c.is_control() => self.log(&format!("control {c:?}")),
            (c, true) => self.input.push(c),
            (c, false) => {
                self.log(&format!("key {c:?}"));
                self.input.push(c);
            }
        }
    }

    fn log(&self, line: &str) {
        let mut log =
            fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).expect("log");
        writeln!(log, "{line}").expect("log");
    }

    fn draw(&self, mode: &str) {
        let prompt = if self.codex { "›" } else { "❯" };
        let rule = "─".repeat(60);
        let mut screen = String::from("\x1b[2J\x1b[H");
        for text in &self.transcript {
            screen.push_str(&format!("> {}\r\n\r\n", text.replace('\n', "\r\n  ")));
        }
        let title = if mode == "dialog" { "[ ! ] Action Required" } else { "agent" };
        if self.codex {
            screen.push_str(&format!("\x1b]2;{title}\x1b\\"));
        }
        match mode {
            "mute" => screen.push_str("just text\r\n"),
            "dialog" => {
                screen.push_str(&format!("Do you want to proceed?\r\n {prompt} 1. Yes\r\n   2. No\r\n"))
            }
            mode => {
                let draft = if mode == "draft" { "half a thought" } else { "" };
                let typed = self.input.replace('\n', "\r\n  ");
                let hint = if typed.is_empty() && draft.is_empty() {
                    "\x1b[2mTry \"fix the bug\"\x1b[0m"
                } else {
                    ""
                };
                screen.push_str(&format!(
                    "{rule}\r\n{prompt} {draft}{typed}{hint}\r\n{rule}\r\n  ? for help\r\n"
                ));
            }
        }
        print!("{screen}");
        std::io::stdout().flush().expect("draw");
    }
}
