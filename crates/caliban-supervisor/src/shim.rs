//! The shim: the keeper of one worker, entered before any runtime is built.
//!
//! Writes `shim.json`, starts the worker and keeps its [`Tree`]: it waits for the worker, ends what the worker left behind,
//! writes `exit.json` when the tree is empty (or names what it cannot end), and exits. TERM and INT make it end the tree.
//!
//! A run happens once: the shim holds `shim.lock` for life, and a shim that finds a `shim.json` with its own nonce exits at
//! once. So a daemon that does not know whether its predecessor started a run starts it again.
//!
//! Refuses: talking to the worker, deciding what an end means.

mod args;
mod log;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, ExitCode, Stdio};
use std::time::Duration;

use caliban_contract::tree_limits::{Excess, TreeLimits};
use caliban_keeper::{
    LEFT_GRACE, Launch, LaunchEnvironment, NATURAL, OwnScore, ShimGroups, Streams, Subreaper, Tree,
    WORKER_SCORE, agent_exceeded,
};
use caliban_process::{ElapsedTime, Keepers, Patience};
use rustix::io::Errno;
use rustix::process::{Pid, WaitStatus};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use self::log::WorkerLog;
use crate::lock::HeldLock;
use crate::process;
use crate::records::{self, Again, EXIT_ROOM, ExitRecord, ShimRecord, StopOrder, ToldBy};
use crate::wall_ms;

pub(crate) use self::args::{ShimArgs, arguments};

/// The exit code of a shim whose run has happened or is happening under another one.
pub(crate) const DUPLICATE: u8 = 3;
/// How many of the processes that could not be ended are recorded.
const LEFT_NAMED: usize = 100;
/// How long the worker's program may be missing while an upgrade replaces it.
const REPLACED_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two tries to start it.
const REPLACED_PAUSE: Duration = Duration::from_millis(20);
/// How long the shim of an earlier run may take to leave.
const LOCK_LIMIT: Duration = Duration::from_secs(20);
/// The pause between two looks at its lock.
const LOCK_PAUSE: Duration = Duration::from_millis(5);

/// Runs the mode with the arguments after it; returns when the whole tree is gone.
pub fn shim_main(args: impl IntoIterator<Item = std::ffi::OsString>) -> ExitCode {
    let args = match ShimArgs::parse(args) {
        Ok(args) => args,
        Err(text) => {
            say(&Word::Error { text, again: Again::Never });
            return ExitCode::FAILURE;
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| Trouble::of("the shim", &error));
    match runtime.and_then(|runtime| runtime.block_on(keep(&args))) {
        Ok(code) => code,
        Err(Trouble { text, again }) => {
            say(&Word::Error { text, again });
            ExitCode::FAILURE
        }
    }
}

/// What a shim prints on its standard output: one line, once.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub(crate) enum Word {
    /// The worker is started.
    Started(ShimRecord),
    /// This run happens, or has happened, under another shim.
    Duplicate,
    /// The shim itself could not do its work; nothing was started.
    Error {
        text: String,
        /// Whether another try may succeed.
        again: Again,
    },
}

/// Why a shim cannot do its work.
struct Trouble {
    text: String,
    again: Again,
}

impl Trouble {
    fn of(what: &str, error: &io::Error) -> Self {
        let again = if passes(error) { Again::Soon } else { Again::Never };
        Self { text: format!("{what}: {error}"), again }
    }

    fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), again: Again::Never }
    }
}

/// Whether an error passes by itself: out of descriptors, processes, memory, room.
pub(crate) fn passes(error: &io::Error) -> bool {
    let passing =
        [Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT, Errno::TXTBSY];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

fn say(word: &Word) {
    if let Ok(mut line) = serde_json::to_vec(word) {
        line.push(b'\n');
        // The daemon may be gone; the run goes on without it.
        let _nobody_listens = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
    }
}

async fn keep(args: &ShimArgs) -> Result<ExitCode, Trouble> {
    let score = OwnScore::open();
    // It has the keys of the worker.
    process::hide();
    let in_words = |what: &'static str| move |error: io::Error| Trouble::of(what, &error);
    // Before anything is started, so that nothing is missed.
    let subreaper = Subreaper::new().map_err(in_words("the shim cannot adopt orphans"))?;
    // Best effort: it tells an agent's process in a pid namespace from a person's.
    let _unmarked = caliban_contract::process_mark::put(caliban_contract::process_mark::AgentMark::Agent);
    let mut stops = Stops::new().map_err(in_words("signals"))?;
    let lock = take_lock(args).await.map_err(in_words("shim.lock"))?;
    let Some(_lock) = lock.filter(|_| !has_begun(args)) else {
        say(&Word::Duplicate);
        return Ok(ExitCode::from(DUPLICATE));
    };
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // Before the worker is started, so that its whole tree is inside.
    let standing = ShimGroups::join(&args.agent(), &args.nonce);
    let mut record = ShimRecord {
        pid: own,
        start_time: caliban_process::try_stat(own)
            .map_err(in_words("/proc"))?
            .ok_or_else(|| Trouble::lasting("/proc cannot be read"))?
            .start_time,
        boot_id: process::boot_id().map_err(in_words("boot id"))?,
        nonce: args.nonce.clone(),
        worker_pid: None,
        worker_start_time: None,
        group: standing.group().map(|group| group.path().to_owned()),
        socket: Some(args.socket.clone()),
        program: Some(args.program.clone()),
    };
    // Without room for `exit.json` the run does not begin; the daemon tries again when there is some.
    if let Err(error) = EXIT_ROOM.take(&args.dir)
        && passes(&error)
    {
        return Err(Trouble::of("room for exit.json", &error));
    }
    records::write(&args.dir, records::SHIM, &record).map_err(in_words("shim.json"))?;
    let oom_count = standing.oom_count();
    let watched = standing.hold(args.limits);
    let opened = WorkerLog::open(&args.dir).map_err(in_words("worker.log"));
    let started = opened.and_then(|(log, output)| Ok((log, start(args, output, &score)?)));
    standing.step_out();
    let (mut log, worker) = match started {
        Ok(started) => started,
        Err(Trouble { text, again }) => {
            if let Some(group) = standing.group() {
                group.remove();
            }
            say(&Word::Started(record));
            let exit = ExitRecord { not_started: Some(text), again, ..exit_record(args, None) };
            return write_exit(&args.dir, &exit).map(|()| ExitCode::SUCCESS);
        }
    };
    record.worker_pid = i32::try_from(worker.id()).ok();
    record.worker_start_time = record.worker_pid.and_then(process::stat).map(|stat| stat.start_time);
    // Best effort: without it the daemon still finds the worker by its marker.
    let _less_is_known = records::write(&args.dir, records::SHIM, &record);
    say(&Word::Started(record));

    let mut tree = subreaper.keep(Pid::from_child(&worker), spared(args), standing.group().cloned());
    let ended = copying(&mut log, async {
        tokio::select! {
            biased;
            () = stops.next() => TreeEnd::Asked,
            () = tree.main_ended() => TreeEnd::ByItself,
            excess = agent_exceeded(watched) => TreeEnd::Exceeded(excess),
        }
    });
    let ended = ended.await;
    match ended {
        TreeEnd::Asked => copying(&mut log, stop(&mut tree, &mut stops, args)).await,
        TreeEnd::ByItself if copying(&mut log, tree.gone_within(&mut Patience::new(NATURAL))).await => {}
        TreeEnd::ByItself => copying(&mut log, tree.end(LEFT_GRACE)).await,
        // At once: what eats the machine gets no time to eat more.
        TreeEnd::Exceeded(_) => copying(&mut log, tree.end(Duration::ZERO)).await,
    }
    log.drain();
    let mut exit = exit_record(args, tree.status());
    let killed = exit.signal == Some(rustix::process::Signal::KILL.as_raw()) && !tree.was_forced();
    if let Some(told_by) = oom_count.filter(|_| killed).and_then(|count| count.rose()) {
        (exit.out_of_memory, exit.told_by) = (true, told_by);
    }
    exit.exceeded = match ended {
        TreeEnd::Exceeded(excess) => Some(excess),
        // The kernel held it to that.
        _ if exit.out_of_memory
            && exit.told_by == ToldBy::Run
            && watched.memory.is_none()
            && standing.was_at_memory_limit() =>
        {
            args.limits.memory.map(Excess::Memory)
        }
        _ => None,
    };
    exit.left = tree.left().into_iter().take(LEFT_NAMED).collect();
    if let Some(group) = standing.group() {
        group.remove();
    }
    write_exit(&args.dir, &exit).map(|()| ExitCode::SUCCESS)
}

/// Why a run ends.
enum TreeEnd {
    /// Somebody asked for it.
    Asked,
    ByItself,
    /// It took more than it may.
    Exceeded(Excess),
}

/// Copies what the worker prints while `work` goes on.
async fn copying<T>(log: &mut WorkerLog, work: impl Future<Output = T>) -> T {
    tokio::pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = log.copy_some() => {}
        }
    }
}

/// Ends the tree on request. A further request may shorten the grace period.
async fn stop(tree: &mut Tree, stops: &mut Stops, args: &ShimArgs) {
    tree.terminate();
    let mut patience = Patience::new(grace(args));
    let gone = loop {
        tokio::select! {
            biased;
            () = stops.next() => patience.shorten(grace(args)),
            gone = tree.gone_within(&mut patience) => break gone,
        }
    };
    if !gone {
        tree.kill().await;
    }
}

/// The daemons and shims that do not belong to the run. Without any (the directory has no parents) nobody is spared.
fn spared(args: &ShimArgs) -> Option<Keepers> {
    let dir = std::fs::canonicalize(&args.dir).unwrap_or_else(|_| args.dir.clone());
    // `<base>/agents/<id>`.
    dir.ancestors().nth(2).and_then(Keepers::beside)
}

/// Whether a shim has written that it has this run.
fn has_begun(args: &ShimArgs) -> bool {
    records::read::<ShimRecord>(&args.dir, records::SHIM).is_some_and(|found| found.nonce == args.nonce)
}

/// The lock of this agent's shims; none when another shim has this run.
async fn take_lock(args: &ShimArgs) -> io::Result<Option<HeldLock>> {
    let mut spent = ElapsedTime::new();
    loop {
        if let Some(lock) = HeldLock::try_keep(&args.dir.join(records::SHIM_LOCK))? {
            return Ok(Some(lock));
        }
        if has_begun(args) {
            return Ok(None);
        }
        if spent.so_far() > LOCK_LIMIT {
            return Err(io::Error::other("the shim of an earlier run does not leave"));
        }
        sleep(LOCK_PAUSE).await;
    }
}

fn start(args: &ShimArgs, output: std::os::fd::OwnedFd, score: &OwnScore) -> Result<Child, Trouble> {
    if !args.cwd.is_dir() {
        let text = format!("the directory {} is not there any more", args.cwd.display());
        return Err(Trouble::lasting(text));
    }
    let second = output.try_clone().map_err(|error| Trouble::of("worker.log", &error))?;
    let launch = Launch {
        program: args.program.clone().into(),
        arguments: vec![
            caliban_contract::modes::WORKER.into(),
            args.dir.clone().into(),
            "--nonce".into(),
            args.nonce.clone().into(),
            "--socket".into(),
            args.socket.clone().into(),
        ],
        directory: args.cwd.clone(),
        identity: None,
        environment: LaunchEnvironment::Inherit,
        streams: Streams::Joined,
        fence: None,
        limits: TreeLimits::default(),
    };
    let (mut worker, _no_directory_to_hold) =
        launch.command().map_err(|error| Trouble::of("the worker", &error))?;
    worker.stdin(Stdio::null()).stdout(output).stderr(second);
    let mut spent = ElapsedTime::new();
    let child = loop {
        match score.goes_first(WORKER_SCORE, || worker.spawn()) {
            // The daemon saw the program a moment ago: an upgrade is replacing it.
            Err(error) if is_being_replaced(&error) && spent.so_far() < REPLACED_LIMIT => {
                std::thread::sleep(REPLACED_PAUSE);
            }
            other => break other,
        }
    };
    child.map_err(|error| {
        let what = format!("the worker {} cannot be started", args.program.display());
        let trouble = Trouble::of(&what, &error);
        if is_being_replaced(&error) { Trouble { again: Again::IfReplaced, ..trouble } } else { trouble }
    })
}

/// Whether a program cannot be started because its file is just being replaced.
pub(crate) fn is_being_replaced(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::ACCESS | Errno::NOEXEC | Errno::TXTBSY))
}

/// The grace that the daemon wrote for this run, else the one of the start.
fn grace(args: &ShimArgs) -> Duration {
    let order =
        records::read::<StopOrder>(&args.dir, records::STOP).filter(|order| order.nonce == args.nonce);
    Duration::from_millis(order.map_or(args.grace_ms, |order| order.grace_ms))
}

fn exit_record(args: &ShimArgs, ended: Option<WaitStatus>) -> ExitRecord {
    ExitRecord {
        nonce: args.nonce.clone(),
        // Neither where it could not be killed, or never was.
        code: ended.and_then(|status| status.exit_status()),
        signal: ended.and_then(|status| status.terminating_signal()),
        not_started: None,
        again: Again::Never,
        out_of_memory: false,
        told_by: ToldBy::Run,
        exceeded: None,
        left: Vec::new(),
        at: wall_ms(),
    }
}

fn write_exit(dir: &Path, exit: &ExitRecord) -> Result<(), Trouble> {
    let written = EXIT_ROOM.write_durably(dir, exit);
    EXIT_ROOM.give_back(dir);
    written.map_err(|error| Trouble::of("exit.json", &error))
}

struct Stops {
    terminate: Signal,
    interrupt: Signal,
    _hangup: Signal,
}

impl Stops {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            // Caught and ignored: a terminal that closes does not end the run.
            _hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
