//! The keeper of one command: the hidden mode of our own binary that runs it and leaves nothing of it.
//!
//! Owns the command's whole process tree. It is a session leader and child subreaper, so whatever the
//! tree does (`setsid`, double fork, fork in a loop, ignoring TERM) ends up as its child, and it does
//! not exit before the last child is reaped. It stops the tree when the command's main process ends,
//! when its standard input closes (the parent is gone or wants it so) or on TERM, HUP and INT.
//! A daemon that the command had to start, and its agents, are not the command's ([`fleet`]): they stay, and whoever is
//! above us, or init, gets them.
//! Entered before any runtime is built; refuses to do anything else.
//!
//! Standard input: the [`Order`], then nothing until it closes, or what a command reads that serves ([`Streams::Live`]). Standard output: the command's output,
//! both streams. Standard error: one [`Report`] at the end; or, where the order wants the streams apart, the command's
//! own standard error and no report.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::{ChildStdin, Command, ExitCode, Stdio},
    time::Duration,
};

use rustix::{
    io::{Errno, FdFlags},
    process::{Pid, WaitOptions, WaitStatus},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
};

pub(crate) use caliban_process::Patience;
pub(crate) use memory::Memory;
pub(crate) use wire::{Order, Outcome, Report, Streams};

mod fleet;
mod memory;
#[cfg_attr(target_os = "linux", path = "reaper/tree_linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "reaper/tree_group.rs")]
mod tree;
mod wire;

/// The first argument that enters this mode.
pub const REAP_MODE: &str = caliban_contract::modes::REAP;

/// How long processes that the command left behind may finish by themselves (`>(tee log)`).
const NATURAL: Duration = Duration::from_millis(100);
/// How long left processes get after TERM.
const LEFT_GRACE: Duration = Duration::from_millis(500);
/// How long a command that serves may take to leave when its input ends.
const LEAVE: Duration = Duration::from_millis(500);
/// How long the whole tree gets after TERM when it is stopped.
pub(crate) const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long KILL is tried: only processes of other users and ones stuck in the kernel outlive this.
pub(crate) const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The longest pause between two rounds of KILL.
const KILL_PAUSE: Duration = Duration::from_millis(20);
/// Bytes that the shell may say about its last working directory.
const CWD_BYTES: usize = 64 << 10;
/// Left processes that are named.
const NAMED: usize = 5;
/// The exit code when the command could not be started at all.
pub(crate) const NOT_STARTED: u8 = 125;

/// Starts a keeper. It gets nothing of our environment: its order comes through the pipe.
pub(crate) fn start(helper: &Path) -> io::Result<tokio::process::Child> {
    tokio::process::Command::new(helper)
        .arg(REAP_MODE)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Runs the mode: call it first thing in `main` when the first argument is [`REAP_MODE`]. Returns when
/// the whole tree is gone, with the command's exit code (128 + signal when it was killed).
pub fn reaper_main() -> ExitCode {
    let mut streams = Streams::Joined;
    let report = match run(&mut streams) {
        Ok(report) => report,
        Err(error) => Report::not_started(error.to_string()),
    };
    let code = match report.outcome {
        Outcome::Exited(code) => u8::try_from(code & 0xff).unwrap_or(NOT_STARTED),
        Outcome::Killed(signal) => u8::try_from(128 + (signal & 0x7f)).unwrap_or(NOT_STARTED),
        Outcome::NotStarted(_) => NOT_STARTED,
    };
    let last = match (streams, report) {
        (Streams::Joined, report) => report.encode(),
        (Streams::Apart { .. } | Streams::Live, Report { outcome: Outcome::NotStarted(reason), .. }) => {
            reason.into_bytes()
        }
        (Streams::Apart { .. } | Streams::Live, _) => Vec::new(),
    };
    // Nobody may be left to read it.
    let _best_effort = io::stderr().write_all(&last);
    ExitCode::from(code)
}

fn run(streams: &mut Streams) -> io::Result<Report> {
    // Fails when we already lead a group; then we already have what it is for.
    let _ = rustix::process::setsid();
    tree::adopt_orphans()?;
    let mut control = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let order = Order::read(&mut control)?;
    streams.clone_from(&order.streams);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(keep(&order, control))
}

async fn keep(order: &Order, control: File) -> io::Result<Report> {
    // Before the command starts, so that nothing is missed.
    let mut events = Events {
        child: signal(SignalKind::child())?,
        stops: [
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
        ],
        control: watched(control)?,
    };
    // This process has one thread, so nothing inherits an end in between; the shell gets the other one.
    let (cwd, shell_cwd) = rustix::pipe::pipe()?;
    rustix::io::fcntl_setfd(&cwd, FdFlags::CLOEXEC)?;
    let main = match memory::goes_first(|| begin(order, shell_cwd)) {
        Ok(main) => main,
        Err(error) => return Ok(Report::not_started(error.to_string())),
    };
    let count = memory::Count::now();
    let fleet = fleet::Fleet::of(&order.env);
    let mut tree = Tree { main, ended: None, children: false, fleet };
    tree.reap();
    let mut stop = None;
    while tree.ended.is_none() && stop.is_none() {
        stop = events.stop_or_child().await;
        tree.reap();
    }
    let (mut left, mut names) = (0, Vec::new());
    let serves = order.streams == Streams::Live && stop == Some(Stop::Closed);
    if stop.is_some() {
        // One that serves has seen the end of its input, too, and may leave by itself.
        if serves && tree.gone_within(&mut events, LEAVE).await {
            return Ok(Report { outcome: tree.outcome(), ..Report::not_started(String::new()) });
        }
        tree.end(&mut events, STOP_GRACE).await;
    } else if !tree.gone_within(&mut events, NATURAL).await {
        let alive = tree::alive(&tree.fleet);
        (left, names) = (alive.len(), alive.iter().take(NAMED).map(|pid| tree::name(*pid)).collect());
        tree.end(&mut events, LEFT_GRACE).await;
    }
    Ok(Report {
        outcome: tree.outcome(),
        left,
        names,
        stuck: if tree.left() { tree::alive(&tree.fleet).len() } else { 0 },
        cwd: last_cwd(&cwd),
        // A KILL of ours needs no other reason.
        memory: count.filter(|_| stop.is_none()).map_or(Memory::Enough, |count| count.since()),
    })
}

/// Starts the command in a group of its own. A shell whose streams are joined gets the number of the descriptor for its
/// last working directory as its last argument.
fn begin(order: &Order, shell_cwd: OwnedFd) -> io::Result<Pid> {
    let Some((program, arguments)) = order.argv.split_first() else {
        return Err(io::Error::other("no command"));
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&order.cwd)
        .env_clear()
        .envs(order.env.iter().map(|(name, value)| (name, value)))
        .stdout(io::stdout().as_fd().try_clone_to_owned()?)
        .process_group(0);
    let child = match &order.streams {
        Streams::Joined => command
            .arg(shell_cwd.as_raw_fd().to_string())
            .stdin(Stdio::null())
            .stderr(io::stdout().as_fd().try_clone_to_owned()?)
            .spawn()?,
        Streams::Apart { input } => {
            drop(shell_cwd);
            command.stdin(Stdio::piped()).stderr(io::stderr().as_fd().try_clone_to_owned()?);
            let mut child = command.spawn()?;
            feed(child.stdin.take(), input.as_bytes().to_vec());
            child
        }
        Streams::Live => {
            drop(shell_cwd);
            let (stdin, stderr) = (io::stdin(), io::stderr());
            command.stdin(stdin.as_fd().try_clone_to_owned()?).stderr(stderr.as_fd().try_clone_to_owned()?);
            command.spawn()?
        }
    };
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no process id"))
}

/// Writes the command's input beside all else. The thread ends with the last reader, or with this process.
fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    let Some(mut stdin) = stdin else { return };
    std::thread::spawn(move || {
        // A command that does not read its input closes the pipe: that is its right.
        let _closed = stdin.write_all(&input);
    });
}

/// What the shell said last, if it said anything: an empty answer means that the directory is gone.
fn last_cwd(pipe: &OwnedFd) -> Option<Vec<u8>> {
    rustix::io::ioctl_fionbio(pipe, true).ok()?;
    let mut said = Vec::new();
    // Ends with an error (would block) when somebody outside the tree still holds the other end.
    let _ = File::from(pipe.try_clone().ok()?).take(CWD_BYTES as u64).read_to_end(&mut said);
    let whole = memchr::memrchr(0, &said)?;
    let start = memchr::memrchr(0, &said[..whole]).map_or(0, |before| before + 1);
    let path = &said[start..whole];
    Some(path.strip_suffix(b"\n").unwrap_or(path).to_vec())
}

struct Events {
    child: Signal,
    stops: [Signal; 3],
    control: AsyncFd<File>,
}

/// Why a command is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Somebody said so.
    Signal,
    /// Nobody is left at the other end of the pipe.
    Closed,
}

impl Events {
    /// Waits for a child's end (none) or for a reason to stop.
    async fn stop_or_child(&mut self) -> Option<Stop> {
        let [terminate, hangup, interrupt] = &mut self.stops;
        tokio::select! {
            biased;
            _ = terminate.recv() => Some(Stop::Signal),
            _ = hangup.recv() => Some(Stop::Signal),
            _ = interrupt.recv() => Some(Stop::Signal),
            () = closed(&self.control) => Some(Stop::Closed),
            _ = self.child.recv() => None,
        }
    }
}

/// What is asked of the pipe: that nobody is left at its other end, which every interest is told of. What can be read
/// is not ours, so nothing wakes us for it.
#[cfg(target_os = "linux")]
const CLOSED: Interest = Interest::PRIORITY;
#[cfg(not(target_os = "linux"))]
const CLOSED: Interest = Interest::READABLE;

#[expect(deprecated, reason = "its successor is unsafe for handles that are not owned; ours is")]
fn watched(control: File) -> io::Result<AsyncFd<File>> {
    AsyncFd::with_interest(control, CLOSED)
}

/// Waits until the other end of the pipe is closed. Reads nothing and changes nothing: a command that serves reads from
/// the same pipe.
async fn closed(control: &AsyncFd<File>) {
    loop {
        let Ok(mut guard) = control.ready(CLOSED).await else { return };
        if guard.ready().is_read_closed() {
            return;
        }
        guard.clear_ready();
    }
}

/// Our children: the command and every orphan below it.
struct Tree {
    main: Pid,
    ended: Option<WaitStatus>,
    /// Whether the kernel says that we have children.
    children: bool,
    /// Who below us is not the command's.
    fleet: fleet::Fleet,
}

impl Tree {
    /// Takes every ended child.
    fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.ended = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => {
                    self.children = true;
                    return;
                }
                Err(_) => {
                    self.children = tree::group_left(self.main);
                    return;
                }
            }
        }
    }

    /// Whether anything of the command's is left.
    fn left(&self) -> bool {
        self.children && !tree::only_fleet(&self.fleet)
    }

    /// Waits until nothing is left; false when something is after that time.
    async fn gone_within(&mut self, events: &mut Events, time: Duration) -> bool {
        let mut patience = Patience::new(time);
        loop {
            self.reap();
            if !self.left() {
                return true;
            }
            tokio::select! {
                biased;
                _ = events.child.recv() => {}
                () = patience.over() => {
                    self.reap();
                    return !self.left();
                }
            }
        }
    }

    /// TERM, a grace, then KILL until nothing is left.
    async fn end(&mut self, events: &mut Events, grace: Duration) {
        tree::ask(self.main, &self.fleet);
        if self.gone_within(events, grace).await {
            return;
        }
        let mut spent = caliban_process::Spent::new();
        let mut pause = Duration::from_millis(1);
        while spent.so_far() < KILL_LIMIT {
            tree::kill(self.main, &self.fleet);
            self.reap();
            if !self.left() {
                return;
            }
            // Each end wakes us at once: a chain that forks and exits is followed as fast as it runs.
            let _ = tokio::time::timeout(pause, events.child.recv()).await;
            pause = (pause * 2).min(KILL_PAUSE);
        }
    }

    fn outcome(&self) -> Outcome {
        match self.ended {
            Some(status) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => Outcome::Exited(code),
                (None, Some(signal)) => Outcome::Killed(signal),
                (None, None) => Outcome::NotStarted("ended in an unknown way".into()),
            },
            // It could not be killed.
            None => Outcome::Killed(rustix::process::Signal::KILL.as_raw()),
        }
    }
}
