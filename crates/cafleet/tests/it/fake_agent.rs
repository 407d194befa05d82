//! A coding agent's terminal face, played by this test binary under the name `claude` or `codex`.
//!
//! It draws an input line with the cursor in it, takes bracketed pastes, submits on Enter, works for a while, answers, and
//! writes all it gets into a log. What it shows is told by a file that the test changes:
//!
//! `free`, `draft`, `mute`; `dialog`, which approves on Enter; `question`, which takes a digit; `search`, a field below the
//! input line that has the cursor; `busy`, at work until told otherwise; `plain`, which takes no bracketed paste;
//! `deaf`, which does not take the first Enter; `refuses`, which runs no command of a `!` line; `forgets`, which
//! drops what is entered; and `chaos SEED`, all of these at random, which also loses Enters.
//! `chaos SEED mortal` also dies after its third paste, before Enter, `chaos SEED shell` becomes a shell.
//!
//! In chaos each screen ends with a request for the cursor's place. tmux answers it among the keys, so what comes before the
//! answer was typed when tmux had not seen the screen yet, and is judged by the screen before: nobody can do better.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::termios::{OptionalActions, QueueSelector, tcflush, tcgetattr, tcgetwinsize, tcsetattr};

/// Runs only when the test binary is started as a fake agent in a pane.
#[test]
#[ignore = "not a test: the fake agent that the pane tests start"]
#[expect(clippy::disallowed_methods, reason = "how a pane test tells the fake agent where and what it is")]
fn play() {
    let Some(dir) = std::env::var_os("FAKE_AGENT_DIR").map(PathBuf::from) else { return };
    let codex = std::env::args().next().is_some_and(|name| name.ends_with("codex"));
    // A member has a directory of its own, named by its pane.
    let arguments = std::env::var("FAKE_ARGS").unwrap_or_default();
    let pane = std::env::var("TMUX_PANE").unwrap_or_default();
    let dir = if arguments.is_empty() { dir } else { dir.join(pane) };
    fs::create_dir_all(&dir).expect("directory");
    if !arguments.is_empty() {
        fs::write(dir.join("arguments"), &arguments).expect("arguments");
        let cwd = std::env::current_dir().expect("cwd");
        fs::write(dir.join("cwd"), cwd.display().to_string()).expect("cwd");
    }
    // What was said before it was a shell.
    let said = fs::read_to_string(dir.join("transcript")).unwrap_or_default();
    Face {
        dir,
        codex,
        transcript: said.split('\0').filter(|text| !text.is_empty()).map(str::to_owned).collect(),
        input: String::new(),
        search: String::new(),
        pasting: false,
        pending: Vec::new(),
        works_until: None,
        deaf: 1,
        chaos: None,
    }
    .live();
}

struct Face {
    dir: PathBuf,
    codex: bool,
    transcript: Vec<String>,
    input: String,
    search: String,
    pasting: bool,
    pending: Vec<u8>,
    works_until: Option<Instant>,
    /// How many Enters are still not taken in the mode `deaf`.
    deaf: u32,
    chaos: Option<Chaos>,
}

/// Moods that come and go by themselves.
struct Chaos {
    state: u64,
    /// After how many more pastes it dies, before it takes Enter.
    lives_for: u32,
    /// Whether it becomes a shell now and then.
    has_shell: bool,
    mood: &'static str,
    former: &'static str,
    until: Instant,
    /// How many screens ended with a request for the cursor's place, and how many of those tmux has answered.
    asked: u64,
    answered: u64,
    /// The request of the first screen that shows the mood.
    mood_asked: u64,
}

impl Chaos {
    /// `lives` is how often it was a shell before.
    fn new(told: &str, lives: u64) -> Self {
        let mut words = told.split(' ');
        let seed: u64 = words.next().and_then(|seed| seed.parse().ok()).expect("a seed");
        let more = words.next();
        Self {
            // Seeds that differ little begin far apart.
            state: (seed * 1_000 + lives + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            lives_for: if more == Some("mortal") { 3 } else { u32::MAX },
            has_shell: more == Some("shell"),
            mood: "free",
            former: "free",
            until: Instant::now(),
            asked: 0,
            answered: 0,
            mood_asked: 0,
        }
    }

    /// Whether tmux has seen a screen that shows the mood.
    fn is_seen(&self) -> bool {
        self.answered >= self.mood_asked
    }

    fn next(&mut self, bound: u64) -> u64 {
        // xorshift: the same choices for the same seed.
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 32) % bound
    }
}

const PASTE_BEGIN: &[u8] = b"\x1b[200~";
const PASTE_END: &[u8] = b"\x1b[201~";

impl Face {
    fn live(&mut self) {
        let tty = std::io::stdin();
        let cooked = tcgetattr(&tty).expect("a terminal");
        let mut raw = cooked.clone();
        raw.make_raw();
        tcsetattr(&tty, OptionalActions::Now, &raw).expect("raw mode");
        let mut shown = String::new();
        loop {
            let told = fs::read_to_string(self.dir.join("mode")).unwrap_or_else(|_| "free".to_owned());
            let mode = self.mood(told.trim());
            let is_shown = |chaos: &Chaos| chaos.is_seen() && chaos.answered == chaos.asked;
            if mode == "shell" && self.chaos.as_ref().is_some_and(is_shown) {
                // All that was typed before is the former program's.
                tcflush(&tty, QueueSelector::IFlush).expect("flush");
                tcsetattr(&tty, OptionalActions::Now, &cooked).expect("cooked mode");
                let mut lives = fs::read_to_string(self.dir.join("shell")).unwrap_or_default();
                lives.push('.');
                fs::write(self.dir.join("shell"), lives).expect("shell");
                fs::write(self.dir.join("transcript"), self.transcript.join("\0")).expect("transcript");
                print!("\x1b[2J\x1b[H\x1b[?2004l");
                std::io::stdout().flush().expect("clear");
                panic!("{}", std::process::Command::new("sh").arg("-i").exec());
            }
            if self.works_until.is_some_and(|until| Instant::now() >= until) {
                self.works_until = None;
                self.transcript.push("● Understood.".to_owned());
            }
            let size = tcgetwinsize(&tty).map(|size| (size.ws_row, size.ws_col)).unwrap_or((24, 80));
            let now = format!(
                "{mode}|{}|{}|{}|{}|{size:?}",
                self.input,
                self.search,
                self.transcript.len(),
                self.works_until.is_some()
            );
            if now != shown {
                self.draw(&mode, usize::from(size.0), usize::from(size.1));
                shown = now;
                fs::write(self.dir.join("shown"), &told).expect("shown");
            }
            let mut fds = [PollFd::new(&tty, PollFlags::IN)];
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
            let Ok(1..) = poll(&mut fds, Some(&wait)) else { continue };
            let mut bytes = [0; 4096];
            let got = std::io::stdin().read(&mut bytes).unwrap_or(0);
            if got == 0 {
                return;
            }
            self.pending.extend_from_slice(&bytes[..got]);
            if self.take(&mode) {
                print!("\x1b[2J\x1b[H\x1b[?2004l");
                return;
            }
        }
    }

    /// What is shown now: what was told, or a mood of the chaos.
    fn mood(&mut self, told: &str) -> String {
        let Some(seed) = told.strip_prefix("chaos ") else {
            self.chaos = None;
            return told.to_owned();
        };
        let chaos = self.chaos.get_or_insert_with(|| {
            let lives = fs::metadata(self.dir.join("shell")).map_or(0, |file| file.len());
            Chaos::new(seed, lives)
        });
        // A mood ends only when nothing that somebody typed stands in the way, as with a person at the keys. Work ends by
        // itself, and what was typed meanwhile stands in the input line then.
        let is_worked = chaos.mood == "busy" && !self.input.is_empty();
        if Instant::now() >= chaos.until && chaos.is_seen() && (self.input.is_empty() || is_worked) {
            let moods = ["free", "free", "free", "busy", "dialog", "search", "draft", "mute"];
            let at = usize::try_from(chaos.next(moods.len() as u64)).expect("small");
            let mut mood = if is_worked { "free" } else { moods[at] };
            if mood == "mute" && chaos.has_shell && self.works_until.is_none() {
                mood = "shell";
            }
            if mood != chaos.mood {
                chaos.former = std::mem::replace(&mut chaos.mood, mood);
                // The screen that is drawn next is the first one.
                chaos.mood_asked = chaos.asked + 1;
            }
            chaos.until = Instant::now() + Duration::from_millis(160 + chaos.next(200));
            self.search.clear();
        }
        chaos.mood.to_owned()
    }

    /// Takes what has come: pastes, Enter, other keys. Says whether it is to leave.
    fn take(&mut self, mode: &str) -> bool {
        while !self.pending.is_empty() {
            if self.pending.starts_with(PASTE_BEGIN) {
                self.pasting = true;
                self.pending.drain(..PASTE_BEGIN.len());
            } else if self.pending.starts_with(PASTE_END) {
                self.pasting = false;
                self.pending.drain(..PASTE_END.len());
                self.chaos.iter_mut().for_each(|chaos| chaos.lives_for -= 1);
                if self.chaos.as_ref().is_some_and(|chaos| chaos.lives_for == 0) {
                    self.log(&format!("died over {:?}", self.input));
                    std::process::exit(1);
                }
            } else if let Some(length) = cursor_place(&self.pending) {
                if length == 0 {
                    return false;
                }
                self.pending.drain(..length);
                self.chaos.iter_mut().for_each(|chaos| chaos.answered += 1);
            } else if PASTE_BEGIN.starts_with(&self.pending) || PASTE_END.starts_with(&self.pending) {
                return false;
            } else {
                let text = match std::str::from_utf8(&self.pending) {
                    Ok(text) => text,
                    Err(error) if error.valid_up_to() > 0 => {
                        std::str::from_utf8(&self.pending[..error.valid_up_to()]).expect("valid")
                    }
                    Err(_) => return false,
                };
                let c = text.chars().next().expect("a character");
                self.pending.drain(..c.len_utf8());
                if self.key(c, mode) {
                    return true;
                }
            }
        }
        false
    }

    fn key(&mut self, c: char, mode: &str) -> bool {
        let unseen = self.chaos.as_ref().filter(|chaos| !chaos.is_seen());
        let mode = unseen.map_or(mode, |chaos| chaos.former);
        match (mode, c) {
            ("dialog", '\r') if !self.pasting => self.log("approved"),
            ("dialog", c) => self.log(&format!("into the dialog {c:?}")),
            ("question", c) if c.is_ascii_digit() && !self.pasting => {
                self.log(&format!("chose {c}"));
                self.set_mode("free");
                if c == '4' {
                    self.set_mode("answer");
                }
            }
            ("question", c) => self.log(&format!("into the question {c:?}")),
            ("search", '\r') if !self.pasting => self.log("searched"),
            ("search", c) => {
                self.log(&format!("into the search {c:?}"));
                self.search.push(c);
            }
            ("mute" | "shell", c) => self.log(&format!("into nothing {c:?}")),
            (_, '\r') if !self.pasting => return self.enter(mode),
            // Ctrl+J is a line break in the input line of both programs.
            (_, '\r' | '\n') => self.input.push('\n'),
            (_, c) if c.is_control() => self.log(&format!("control {c:?}")),
            (_, c) if self.pasting || mode == "plain" => self.input.push(c),
            (_, c) => {
                self.log(&format!("key {c:?}"));
                self.input.push(c);
            }
        }
        false
    }

    fn enter(&mut self, mode: &str) -> bool {
        let is_lost = match (mode, &mut self.chaos) {
            ("deaf", _) if self.deaf > 0 => {
                self.deaf -= 1;
                true
            }
            (_, Some(chaos)) => chaos.next(5) == 0,
            _ => false,
        };
        if is_lost || self.input.is_empty() {
            return false;
        }
        let text = std::mem::take(&mut self.input);
        if mode == "forgets" {
            return false;
        }
        if self.works_until.is_some() || mode == "busy" {
            self.log(&format!("while working {text:?}"));
            return false;
        }
        if mode == "draft" {
            self.log(&format!("with the draft {text:?}"));
            return false;
        }
        if mode == "answer" {
            self.log(&format!("answered {text:?}"));
            self.set_mode("free");
            return false;
        }
        self.log(&format!("submitted {text:?}"));
        if text.trim() == "/exit" {
            return true;
        }
        self.transcript.push(format!("> {}", text.replace('\n', "\n  ")));
        if let Some(line) = text.strip_prefix('!').filter(|_| mode != "refuses") {
            let out = std::process::Command::new("/bin/sh").arg("-c").arg(line).output().expect("sh");
            self.transcript.push(String::from_utf8_lossy(&out.stdout).trim_end().to_owned());
        }
        let works = fs::read_to_string(self.dir.join("works_ms")).ok();
        let works = works.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        match works {
            0 => self.transcript.push("● Understood.".to_owned()),
            ms => self.works_until = Some(Instant::now() + Duration::from_millis(ms)),
        }
        false
    }

    fn set_mode(&self, mode: &str) {
        fs::write(self.dir.join("mode"), mode).expect("mode");
    }

    fn log(&self, line: &str) {
        let mut log =
            fs::OpenOptions::new().create(true).append(true).open(self.dir.join("log")).expect("log");
        writeln!(log, "{line}").expect("log");
    }

    fn draw(&mut self, mode: &str, height: usize, width: usize) {
        let prompt = if self.codex { '›' } else { '❯' };
        let rule = "─".repeat(width.min(60));
        let is_working = self.works_until.is_some() || mode == "busy";
        // The lower part, and where in it the cursor is.
        let (lower, cursor): (Vec<String>, (usize, usize)) = match mode {
            "mute" | "shell" => (vec!["just text".to_owned()], (0, 0)),
            "dialog" => (
                vec![
                    "Do you want to proceed?".to_owned(),
                    format!(" {prompt} 1. Yes"),
                    "   2. No".to_owned(),
                    "   Esc to cancel".to_owned(),
                ],
                (1, 1),
            ),
            "question" => (
                vec![
                    "Which color?".to_owned(),
                    format!(" {prompt} 1. Red"),
                    "   2. Blue".to_owned(),
                    "   3. Green".to_owned(),
                    "   4. Type something.".to_owned(),
                ],
                (1, 1),
            ),
            mode => {
                let draft = if mode == "draft" { "half a thought" } else { "" };
                let typed = wrapped(&format!("{draft}{}", self.input), width.saturating_sub(3).max(10));
                let (row, column) =
                    (typed.len() - 1, 2 + typed.last().map_or(0, |line| line.chars().count()));
                let is_empty = draft.is_empty() && self.input.is_empty();
                let hint = if is_empty { "\x1b[2mTry \"fix the bug\"\x1b[0m" } else { "" };
                let mut lines = vec![rule.clone()];
                for (at, line) in typed.iter().enumerate() {
                    let lead = if at == 0 { format!("{prompt} ") } else { "  ".to_owned() };
                    lines.push(format!("{lead}{line}{hint}"));
                }
                lines.push(rule);
                let mut cursor = (1 + row, column);
                if mode == "search" {
                    cursor = (lines.len(), 20 + self.search.chars().count());
                    let shown: String = self.search.chars().take(30).filter(|c| !c.is_control()).collect();
                    lines.push(format!("  reverse-i-search: {shown}"));
                } else {
                    lines.push("  ? for help".to_owned());
                }
                if is_working {
                    lines.insert(0, "✻ Mulling… (2s · esc to interrupt)".to_owned());
                    cursor.0 += 1;
                }
                (lines, cursor)
            }
        };
        let mut upper: Vec<String> = Vec::new();
        for text in &self.transcript {
            for line in text.split('\n') {
                upper.extend(wrapped(line, width.saturating_sub(1).max(10)));
            }
            upper.push(String::new());
        }
        let room = height.saturating_sub(lower.len() + 1);
        let upper: Vec<String> = upper.iter().skip(upper.len().saturating_sub(room)).cloned().collect();
        let title = match (mode, is_working) {
            ("dialog" | "question", _) => "[ ! ] Action Required",
            (_, true) => "⠼ agent",
            _ => "agent",
        };
        let mut screen = String::from("\x1b[?25l\x1b[2J\x1b[H");
        screen.push_str(if mode == "plain" { "\x1b[?2004l" } else { "\x1b[?2004h" });
        if self.codex {
            screen.push_str(&format!("\x1b]2;{title}\x1b\\"));
        }
        let all: Vec<&String> = upper.iter().chain(&lower).collect();
        for (at, line) in all.iter().enumerate() {
            screen.push_str(&format!("\x1b[{};1H{line}", at + 1));
        }
        let row = upper.len() + cursor.0 + 1;
        screen.push_str(&format!("\x1b[{row};{}H", cursor.1 + 1));
        if self.codex && !matches!(mode, "dialog" | "question") {
            screen.push_str("\x1b[?25h");
        }
        if let Some(chaos) = &mut self.chaos {
            chaos.asked += 1;
            screen.push_str("\x1b[6n");
        }
        print!("{screen}");
        std::io::stdout().flush().expect("draw");
    }
}

/// How long tmux's answer about the cursor's place is, at the beginning of these bytes; 0 when it may be cut off.
fn cursor_place(bytes: &[u8]) -> Option<usize> {
    let rest = bytes.strip_prefix(b"\x1b[")?;
    let numbers = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b';').count();
    match rest.get(numbers) {
        None => Some(0),
        Some(b'R') => Some(2 + numbers + 1),
        Some(_) => None,
    }
}

/// A text in lines of at most so many characters; at least one line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    text.split('\n')
        .flat_map(|line| {
            let chars: Vec<char> = line.chars().collect();
            let mut parts: Vec<String> = chars.chunks(width).map(|part| part.iter().collect()).collect();
            if parts.is_empty() {
                parts.push(String::new());
            }
            parts
        })
        .collect()
}
