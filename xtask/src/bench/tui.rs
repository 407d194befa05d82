//! `tui`: the terminal UI in a terminal of its own: the time until its first frame, the latency of a key, its cost when
//! idle, and its cost while agents stream.
//!
//! The terminal is a pty that this process reads; the model is a script. Other agents are measured beside it if they
//! are installed.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::pty::{Winsize, openpty};

use super::rivals::found;
use super::table::{Table, ms, times};
use super::{Bed, Bench, measure};

pub(super) const BENCH: Bench = Bench {
    name: "tui",
    what: "the screen in a terminal of 120 × 40; × is to an empty session, or to caliban",
    run: measure,
};

/// Number of lines of the long conversation.
const LINES: usize = 10_000;
/// Number of keys pressed.
const KEYS: usize = 60;
/// Duration of the idle phase.
const IDLE: Duration = Duration::from_secs(5);
/// Duration of the streaming phase.
const STREAM: Duration = Duration::from_secs(5);
/// Time limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);
/// The promised limits.
const KEY_MS: f64 = 16.0;
const MEMORY_MB: f64 = 40.0;
const STREAM_CPU: f64 = 0.5;

fn measure(bed: &Bed) -> Result<Table> {
    let dir = bed.dir("tui")?;
    let mut table = Table::new(&["value", "ratio"]);
    let start = median(bed.runs.min(10), || {
        let mut screen = Screen::start(&caliban(bed, &dir, &short())?)?;
        let at = screen.wait_for("what shall I do?")?;
        screen.end();
        Ok(at)
    })?;
    table.row("start to the first frame", [ms(start), String::new()]);
    for name in ["codex", "claude"] {
        let Some(program) = found(name) else { continue };
        let home = bed.dir(&format!("{name}-screen"))?;
        let line = ScreenRun { program, args: Vec::new(), home, dir: dir.clone() };
        // Their first frame counts as complete after a hundred bytes.
        let theirs = median(3, || {
            let mut screen = Screen::start(&line)?;
            let at = screen.wait_until(|seen| seen.len() > 100)?;
            screen.end();
            Ok(at)
        })?;
        table.row(format!("{name}: start to its first bytes"), [ms(theirs), times(theirs / start.max(1.0))]);
    }
    let empty = keys(&mut opened(bed, &dir, &short())?)?;
    table.row("key to frame, empty", [ms(empty), String::new()]);
    let mut screen = opened(bed, &dir, &long())?;
    screen.say("count")?;
    // Blanks that are on the screen already are not written again, so only the number is looked for.
    screen.wait_for(&LINES.to_string())?;
    screen.settle(Duration::from_millis(500));
    let full = keys(&mut screen)?;
    table.row(format!("key to frame, {LINES} lines"), [ms(full), times(full / empty.max(1.0))]);
    let (bytes, cpu) = screen.over(IDLE)?;
    table.row(format!("idle for {} s: bytes written", IDLE.as_secs()), [bytes.to_string(), String::new()]);
    table.row("idle: CPU", [ms(cpu * 1e6), format!("{:.2} %", 100.0 * cpu / IDLE.as_secs_f64())]);
    let memory = screen.memory_mb()?;
    table.row("memory", [format!("{memory:.1} MB"), String::new()]);
    screen.end();
    let mut screen = opened(bed, &dir, &streaming())?;
    for number in 0..3 {
        screen.say(&format!("/bg stream {number}"))?;
        screen.settle(Duration::from_millis(200));
    }
    screen.say("stream too")?;
    screen.settle(Duration::from_millis(500));
    let (bytes, cpu) = screen.over(STREAM)?;
    let share = cpu / STREAM.as_secs_f64();
    table.row("four streaming agents: CPU", [format!("{:.0} % of a core", share * 100.0), String::new()]);
    let rate = bytes as f64 / STREAM.as_secs_f64() / 1_024.0;
    table.row("four streaming agents: output", [format!("{rate:.1} KB/s"), String::new()]);
    screen.end();
    table.promise("key to frame", full / 1_000.0, KEY_MS, " ms");
    table.promise("memory", memory, MEMORY_MB, " MB");
    table.promise("CPU of four streaming agents", share, STREAM_CPU, " of a core");
    Ok(table)
}

fn short() -> String {
    r#"{"steps": [{"text": "hello", "repeat": true}]}"#.to_owned()
}

fn long() -> String {
    let text: String = (1..=LINES).map(|number| format!("line {number}\\n\\n")).collect();
    format!(r#"{{"steps": [{{"text": "{text}", "repeat": true}}]}}"#)
}

fn streaming() -> String {
    let text: String = (1..=2_000).map(|number| format!("word {number} of the answer, ")).collect();
    format!(r#"{{"steps": [{{"text": "{text}", "chunks": 2000, "chunk_delay_ms": 10, "repeat": true}}]}}"#)
}

/// A command, and where it runs.
struct ScreenRun {
    program: std::path::PathBuf,
    args: Vec<String>,
    home: std::path::PathBuf,
    dir: std::path::PathBuf,
}

fn caliban(bed: &Bed, dir: &Path, script: &str) -> Result<ScreenRun> {
    let path = dir.join("script.json");
    std::fs::write(&path, script).context("cannot write the script")?;
    let args = vec!["--script".to_owned(), path.display().to_string()];
    Ok(ScreenRun { program: bed.program("caliban"), args, home: bed.dir("tui-home")?, dir: dir.to_owned() })
}

fn opened(bed: &Bed, dir: &Path, script: &str) -> Result<Screen> {
    let mut screen = Screen::start(&caliban(bed, dir, script)?)?;
    screen.wait_for("what shall I do?")?;
    Ok(screen)
}

/// The median time from a key to the first byte that it changes, in microseconds.
fn keys(screen: &mut Screen) -> Result<f64> {
    let mut taken = Vec::new();
    for number in 0..KEYS {
        screen.settle(Duration::from_millis(20));
        let begun = Instant::now();
        screen.write(if number % 2 == 0 { b"x" } else { b"\x7f" })?;
        let before = screen.seen.len();
        screen.wait_until(|seen| seen.len() > before)?;
        taken.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(measure::median(taken))
}

fn median(runs: usize, mut run: impl FnMut() -> Result<f64>) -> Result<f64> {
    let taken = (0..runs.max(1)).map(|_| run()).collect::<Result<Vec<_>>>()?;
    Ok(measure::median(taken))
}

/// A program in a terminal of its own.
struct Screen {
    child: Child,
    terminal: File,
    seen: Vec<u8>,
    begun: Instant,
}

impl Screen {
    fn start(line: &ScreenRun) -> Result<Self> {
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).context("there is no pty")?;
        let slave = || Ok::<_, std::io::Error>(Stdio::from(pty.slave.try_clone()?));
        let begun = Instant::now();
        // `setsid -c`: makes the pty the controlling terminal, so that signals and sizes come from it.
        let mut command = Command::new("setsid");
        for name in
            ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "NO_COLOR", "TMUX", "INSIDE_EMACS"]
        {
            command.env_remove(name);
        }
        let child = command
            .args(["-c", "-w"])
            .arg(&line.program)
            .args(&line.args)
            .current_dir(&line.dir)
            .env("HOME", &line.home)
            .env("TERM", "xterm-256color")
            .stdin(slave()?)
            .stdout(slave()?)
            .stderr(slave()?)
            .spawn()
            .context("cannot start setsid (util-linux)")?;
        drop(pty.slave);
        nix::fcntl::fcntl(&pty.master, nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK))
            .context("the pty cannot be polled")?;
        Ok(Self { child, terminal: File::from(pty.master), seen: Vec::new(), begun })
    }

    /// Reads the available output.
    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; 64 * 1024];
        loop {
            match self.terminal.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.seen.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error).context("the program has left its terminal"),
            }
        }
    }

    /// Waits for a condition on all bytes so far; returns the time since the start, in microseconds.
    fn wait_until(&mut self, holds: impl Fn(&[u8]) -> bool) -> Result<f64> {
        let begun = Instant::now();
        while !holds(&self.seen) {
            if begun.elapsed() > LIMIT {
                let end = self.seen.len().saturating_sub(2_000);
                bail!("waited in vain; the last bytes: {}", String::from_utf8_lossy(&self.seen[end..]));
            }
            std::thread::sleep(Duration::from_micros(50));
            self.read()?;
        }
        Ok(self.begun.elapsed().as_secs_f64() * 1e6)
    }

    fn wait_for(&mut self, text: &str) -> Result<f64> {
        let needle = text.as_bytes().to_owned();
        self.wait_until(move |seen| seen.windows(needle.len()).any(|window| window == needle))
    }

    /// Reads for a while.
    fn settle(&mut self, time: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < time {
            std::thread::sleep(Duration::from_millis(1));
            if self.read().is_err() {
                return;
            }
        }
        self.seen.clear();
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.terminal.write_all(bytes).context("the terminal takes no keys")
    }

    fn say(&mut self, text: &str) -> Result<()> {
        self.write(text.as_bytes())?;
        self.settle(Duration::from_millis(50));
        self.write(b"\r")
    }

    /// The bytes written and the CPU seconds used over a time.
    fn over(&mut self, time: Duration) -> Result<(usize, f64)> {
        self.read()?;
        self.seen.clear();
        let before = self.cpu_seconds()?;
        let begun = Instant::now();
        let mut bytes = 0;
        while begun.elapsed() < time {
            std::thread::sleep(Duration::from_millis(5));
            self.read()?;
            bytes += std::mem::take(&mut self.seen).len();
        }
        Ok((bytes, self.cpu_seconds()? - before))
    }

    /// The program below `setsid`, or `setsid` itself if it has become the program.
    fn pid(&self) -> Result<u32> {
        let pid = self.child.id();
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let first = children.split_whitespace().next().and_then(|child| child.parse().ok());
        let is_setsid =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "setsid");
        match (is_setsid, first) {
            (true, Some(child)) => Ok(child),
            (true, None) => bail!("the program has ended"),
            (false, _) => Ok(pid),
        }
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?))
            .context("the program has ended")?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
        // utime and stime; a tick is a hundredth of a second on every Linux that we know.
        Ok((ticks(11) + ticks(12)) / 100.0)
    }

    fn memory_mb(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))
            .context("the program has ended")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kb: f64 = line.split_whitespace().next().and_then(|kb| kb.parse().ok()).context("no VmRSS")?;
        ensure!(kb > 0.0, "no VmRSS");
        Ok(kb / 1_024.0)
    }

    fn end(&mut self) {
        if let Ok(pid) =
            self.pid().map(|pid| nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX)))
        {
            // It may have ended by itself.
            let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
            if self.read().is_err() {
                break;
            }
        }
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
