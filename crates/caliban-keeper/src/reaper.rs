//! The reaper: the hidden mode of our own binary that runs one command and leaves nothing of it.
//!
//! It ends the command's [`Tree`] when the main process has ended, when its own standard input closes (the caller is gone,
//! or wants the command to end), and on TERM, HUP and INT. It exits when the tree is empty. Entered before any runtime is
//! built.
//!
//! Standard input: a [`Launch`], then nothing until it closes, or the input of a program that serves ([`Streams::Live`]) or
//! what is typed ([`Streams::Terminal`]).
//! Standard output: the command's output. Standard error: see [`Streams`].

use std::{
    fs::File,
    io::{self, Read, Write},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    process::{ExitCode, Stdio},
    time::Duration,
};

use caliban_contract::tree_limits::Excess;
use caliban_contract::{
    modes,
    process_mark::{self, AgentMark},
};
use caliban_fence::FenceChild;
use caliban_process::{ElapsedTime, Keepers, NO_ROOM, Patience, thread_with_room, with_room};
use rustix::{io::FdFlags, pipe::PipeFlags, process::Pid};
use tokio::{
    io::{Interest, unix::AsyncFd},
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

use crate::{
    group,
    launch::{Launch, LaunchEnvironment, Streams},
    limit_watch,
    out_of_memory::{COMMAND_SCORE, OomCount, OwnScore},
    report::{ExitOutcome, Report},
    terminal::Terminal,
    tree::{Subreaper, Tree},
};

/// How long the processes that a main process left behind may take to end by themselves (`>(tee log)`).
pub const NATURAL: Duration = Duration::from_millis(100);
/// The grace period of processes that were left behind.
pub const LEFT_GRACE: Duration = Duration::from_millis(500);
/// How long a program that serves may take to leave when its input ends.
const LEAVE: Duration = Duration::from_millis(500);
/// The grace period of a command that is stopped.
pub const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long KILL is tried: only processes of other users and ones stuck in the kernel outlive this.
pub const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The most that is read of the shell's last working directory.
const CWD_BYTES: u64 = 64 << 10;
/// How many left processes are named.
const NAMED: usize = 5;
/// How long the rest of what stands on a terminal is waited for.
const SHOWN: Duration = Duration::from_millis(500);
/// The exit code when the command could not be started.
pub(crate) const NOT_STARTED: u8 = 125;

/// Starts a reaper; waits a while where the system has no room for another process (EAGAIN). It gets nothing of our
/// environment; its launch comes through the pipe.
pub async fn start_reaper(helper: &Path) -> io::Result<tokio::process::Child> {
    let (limit, pause) = NO_ROOM;
    let mut spent = ElapsedTime::new();
    loop {
        match started_reaper(helper) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && spent.so_far() < limit => {
                tokio::time::sleep(pause).await;
            }
            other => return other,
        }
    }
}

fn started_reaper(helper: &Path) -> io::Result<tokio::process::Child> {
    tokio::process::Command::new(helper)
        .arg(modes::REAP)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

/// Runs the mode: call it first thing in `main` when the first argument is [`modes::REAP`]. Returns when the whole tree is
/// gone, with the command's exit code (128 + signal when it was killed).
pub fn reaper_main() -> ExitCode {
    // Best effort: without the mark only the processes above tell whose a command is.
    let _unmarked = process_mark::put(AgentMark::Command);
    let mut streams = Streams::Shell;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = runtime.and_then(|runtime| {
        let begun = {
            let _for_its_signals = runtime.enter();
            BegunCommand::new(&mut streams)?
        };
        runtime.block_on(begun.keep())
    });
    let report = report.unwrap_or_else(|error| Report::bare(ExitOutcome::NotStarted(error.to_string())));
    let code = match report.outcome {
        ExitOutcome::Exited(code) => u8::try_from(code & 0xff).unwrap_or(NOT_STARTED),
        ExitOutcome::Killed(signal) => u8::try_from(128 + (signal & 0x7f)).unwrap_or(NOT_STARTED),
        ExitOutcome::NotStarted(_) => NOT_STARTED,
    };
    let last = match (streams, report) {
        (streams, report) if streams.is_shell() => report.encode(),
        (_, Report { outcome: ExitOutcome::NotStarted(reason), .. }) => reason.into_bytes(),
        (_, Report { exceeded: Some(excess), .. }) => format!("\n[{excess}]\n").into_bytes(),
        _ => Vec::new(),
    };
    // Nobody may be left to read it.
    let _best_effort = io::stderr().write_all(&last);
    ExitCode::from(code)
}

struct BegunCommand {
    launch: Launch,
    tree: Tree,
    stops: Stops,
    /// Where the shell reports its last working directory.
    cwd: OwnedFd,
    /// Told when all that the command showed on its terminal is passed on.
    shown: Option<oneshot::Receiver<()>>,
    oom_count: Option<OomCount>,
    /// The process that puts the fence up, where there is one.
    fence: Option<FenceChild>,
}

impl BegunCommand {
    /// Reads the launch and starts it. The streams are told first, because they say who hears of an error.
    fn new(streams: &mut Streams) -> io::Result<Self> {
        let subreaper = Subreaper::new()?;
        let mut control = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let launch = Launch::read(&mut control)?;
        streams.clone_from(&launch.streams);
        // Before the command starts, so that no signal is missed.
        let stops = Stops::new(control)?;
        // This process has one thread, so no other child inherits an end in between; the shell gets the writing end.
        let (cwd, shell_cwd) = rustix::pipe::pipe()?;
        rustix::io::fcntl_setfd(&cwd, FdFlags::CLOEXEC)?;
        let terminal = if launch.streams == Streams::Terminal { Some(Terminal::open()?) } else { None };
        let (main, fence) =
            OwnScore::open().goes_first(COMMAND_SCORE, || begin(&launch, shell_cwd, terminal.as_ref()))?;
        let shown = or_ended(main, terminal.map(|terminal| terminal.serve(main)).transpose())?;
        let oom_count = OomCount::here();
        // By the environment that the command was given, whatever it makes of it.
        let spared = match &launch.environment {
            LaunchEnvironment::Exactly(variables) => Keepers::of_environment(variables),
            LaunchEnvironment::Inherit => None,
        };
        let tree = subreaper.keep(main, spared, None);
        Ok(Self { launch, tree, stops, cwd, shown, oom_count, fence })
    }

    /// Waits for its end, and ends what is left of it.
    async fn keep(self) -> io::Result<Report> {
        let Self { launch, mut tree, mut stops, cwd, shown, oom_count, fence } = self;
        let stop = tokio::select! {
            biased;
            stop = stops.next() => Some(stop),
            () = tree.main_ended() => None,
            excess = limit_watch::command_exceeded(&launch) => Some(CommandStop::Exceeded(excess)),
        };
        let (mut left, mut names) = (0, Vec::new());
        match stop {
            None if tree.gone_within(&mut Patience::new(NATURAL)).await => {}
            None => {
                let mut alive = tree.left();
                alive.retain(|pid| launch.fence.is_none() || !is_first_of_namespace(*pid));
                (left, names) = (alive.len(), alive.iter().take(NAMED).map(|pid| name(*pid)).collect());
                tree.end(LEFT_GRACE).await;
            }
            // A program that serves has seen the end of its input, too, and may leave by itself.
            Some(CommandStop::Closed)
                if launch.streams == Streams::Live && tree.gone_within(&mut Patience::new(LEAVE)).await => {}
            // At once: what eats the machine gets no time to eat more.
            Some(CommandStop::Exceeded(_)) => tree.end(Duration::ZERO).await,
            Some(_) => tree.end(STOP_GRACE).await,
        }
        if let (Some(_), Some(witness)) =
            (stop, launch.fence.as_ref().and_then(|fence| fence.witness.as_ref()))
        {
            // Without a record all that is there counts as the command's.
            let _on_the_safe_side = witness.look();
        }
        if let Some(shown) = shown {
            // A process outside of the tree may still have the terminal.
            let _best_effort = tokio::time::timeout(SHOWN, shown).await;
        }
        let outcome = ExitOutcome::of(tree.status());
        // A command that we stopped needs no other reason for its end.
        let out_of_memory = oom_count.filter(|_| stop.is_none()).and_then(|count| count.rose());
        let exceeded = match stop {
            Some(CommandStop::Exceeded(excess)) => Some(excess),
            None if out_of_memory.is_some() && outcome != ExitOutcome::Exited(0) => {
                group::held_memory().map(Excess::Memory)
            }
            _ => None,
        };
        Ok(Report {
            outcome,
            left,
            names,
            stuck: tree.left().len(),
            cwd: last_cwd(&cwd),
            out_of_memory,
            is_changed: fence.is_some_and(|fence| fence.is_changed()),
            exceeded,
        })
    }
}

/// Starts the command with its streams. In a fence it is a fork of ours, so there must be one thread until then.
fn begin(
    launch: &Launch,
    shell_cwd: OwnedFd,
    terminal: Option<&Terminal>,
) -> io::Result<(Pid, Option<FenceChild>)> {
    let is_shell = launch.streams.is_shell();
    let number = shell_cwd.as_raw_fd();
    let more = is_shell.then(|| number.to_string().into());
    let _for_the_shell_only = is_shell.then_some(shell_cwd);
    let (streams, input) = streams(launch, terminal)?;
    let main = match launch.order(more.clone(), is_shell.then_some(number).as_slice())? {
        Some(order) => {
            let child = caliban_fence::fence_child(&order, streams)?;
            (child.pid, Some(child))
        }
        None => {
            let [stdin, stdout, stderr] = streams;
            let (mut command, _held_until_it_is_started) = launch.command()?;
            command.args(more).stdin(stdin).stdout(stdout).stderr(stderr);
            (Pid::from_child(&with_room(|| command.spawn())?), None)
        }
    };
    if let (Some(pipe), Streams::Apart { input }) = (input, &launch.streams) {
        or_ended(main.0, feed(pipe, input.as_encoded_bytes().to_vec()))?;
    }
    Ok(main)
}

/// A command that cannot be served does not stay.
fn or_ended<T>(main: Pid, served: io::Result<T>) -> io::Result<T> {
    if served.is_err() {
        let _ended_already = rustix::process::kill_process_group(main, rustix::process::Signal::KILL);
    }
    served
}

/// What the command reads and where it writes, and the other end of a pipe that it reads from.
fn streams(launch: &Launch, terminal: Option<&Terminal>) -> io::Result<([OwnedFd; 3], Option<File>)> {
    if let Some(terminal) = terminal {
        return Ok((terminal.ends()?, None));
    }
    let own = |stream: BorrowedFd<'_>| stream.try_clone_to_owned();
    let (stdout, stderr) = (io::stdout(), io::stderr());
    let mut input = None;
    let stdin = match &launch.streams {
        Streams::Shell | Streams::Terminal | Streams::Joined => File::open("/dev/null")?.into(),
        Streams::Live => own(io::stdin().as_fd())?,
        Streams::Apart { .. } => {
            let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
            input = Some(write.into());
            read
        }
    };
    let errors = match &launch.streams {
        Streams::Shell | Streams::Terminal | Streams::Joined => own(stdout.as_fd())?,
        Streams::Apart { .. } | Streams::Live => own(stderr.as_fd())?,
    };
    Ok(([stdin, own(stdout.as_fd())?, errors], input))
}

/// Writes the command's input in a thread, which ends with the last reader or with this process.
fn feed(mut stdin: File, input: Vec<u8>) -> io::Result<()> {
    thread_with_room("input", move || {
        // A command may close its input without reading it.
        let _closed = stdin.write_all(&input);
    })
}

/// The last directory that the shell reported, if any. An empty path means that the directory is gone.
fn last_cwd(pipe: &OwnedFd) -> Option<Vec<u8>> {
    rustix::io::ioctl_fionbio(pipe, true).ok()?;
    let mut said = Vec::new();
    // Ends with an error (would block) when a process outside of the tree still holds the writing end.
    let _ = File::from(pipe.try_clone().ok()?).take(CWD_BYTES).read_to_end(&mut said);
    let last_nul = |bytes: &[u8]| bytes.iter().rposition(|byte| *byte == 0);
    let end = last_nul(&said)?;
    let start = last_nul(&said[..end]).map_or(0, |before| before + 1);
    let path = &said[start..end];
    Some(path.strip_suffix(b"\n").unwrap_or(path).to_vec())
}

fn name(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end().to_owned()
}

/// Whether a process is the first of a process namespace: that of a fence is no process of the command.
fn is_first_of_namespace(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| numbers.split_whitespace().count() > 1 && numbers.ends_with("\t1"))
}

/// Reasons to stop the command.
struct Stops {
    signals: [Signal; 3],
    control: AsyncFd<File>,
}

/// Why a command is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandStop {
    Signal,
    /// The other end of standard input was closed.
    Closed,
    /// It takes more than it may.
    Exceeded(Excess),
}

impl Stops {
    #[expect(deprecated, reason = "its successor is unsafe for handles that are not owned; ours is")]
    fn new(control: File) -> io::Result<Self> {
        Ok(Self {
            signals: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::hangup())?,
                signal(SignalKind::interrupt())?,
            ],
            control: AsyncFd::with_interest(control, CLOSED)?,
        })
    }

    async fn next(&mut self) -> CommandStop {
        let [terminate, hangup, interrupt] = &mut self.signals;
        tokio::select! {
            biased;
            _ = terminate.recv() => CommandStop::Signal,
            _ = hangup.recv() => CommandStop::Signal,
            _ = interrupt.recv() => CommandStop::Signal,
            () = closed(&self.control) => CommandStop::Closed,
        }
    }
}

/// The interest with which the pipe is watched. Every interest reports that the other end was closed; this one does not
/// wake us for input, which is the command's.
const CLOSED: Interest = Interest::PRIORITY;

/// Waits until the other end of the pipe is closed. Reads nothing and changes nothing: a program that serves reads from the
/// same pipe.
async fn closed(control: &AsyncFd<File>) {
    loop {
        let Ok(mut guard) = control.ready(CLOSED).await else { return };
        if guard.ready().is_read_closed() {
            return;
        }
        guard.clear_ready();
    }
}
