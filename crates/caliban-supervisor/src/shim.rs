//! The shim: keeper of one worker, entered before any runtime is built.
//!
//! Owns the process tree of one run: session leader and child subreaper, so whatever the tree does (`setsid`,
//! double fork, ignoring TERM) ends up below it. Writes `shim.json`, waits, reaps, ends what the worker left
//! behind, writes `exit.json` when nothing is left (or who cannot be ended), exits. TERM and INT make it end the tree.
//!
//! A run happens once: the shim holds `shim.lock` for life, and one that finds a `shim.json` of its own nonce
//! leaves at once. So a daemon that does not know whether its predecessor came to start a run just starts it.
//!
//! Refuses: talking to the worker, deciding what an end means.

mod args;
pub(crate) mod cgroup;
mod log;
mod tree;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::sleep;

use self::cgroup::{Group, Standing};
use self::log::WorkerLog;
use self::tree::Family;
use crate::lock::Held;
use crate::process;
use crate::records::{self, Again, ExitRecord, ShimRecord, StopOrder, ToldBy};
use crate::wall_ms;
use caliban_process::{Patience, Spent};

pub(crate) use self::args::{ShimArgs, arguments};

/// The exit code of a shim whose run has happened or is happening under another one.
pub(crate) const DUPLICATE: u8 = 3;
/// How long what the worker left behind may end by itself.
const NATURAL: Duration = Duration::from_millis(100);
/// How long it gets after TERM.
const LEFT_GRACE: Duration = Duration::from_millis(500);
/// How long KILL is tried: only processes of other users and ones stuck in the kernel outlive this.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// The longest pause between two rounds of KILL.
const KILL_PAUSE: Duration = Duration::from_millis(20);
/// How many of those who outlived it are written down.
const LEFT_NAMED: usize = 100;
/// How long the worker's program may be missing while it is replaced. The daemon saw it a moment ago.
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
    // Fails when we lead a group already; then we have what it is for.
    let _leader_already = rustix::process::setsid();
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

/// What a shim says on its standard output, once, in one line.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(tag = "word", rename_all = "snake_case")]
pub(crate) enum Word {
    /// The worker is started.
    Started(ShimRecord),
    /// This run happens, or has happened, under another shim.
    Duplicate,
    /// The shim itself could not do its work; nothing was started.
    Error {
        /// Why.
        text: String,
        /// Whether another try may do better. Shims before it did not say.
        #[serde(default)]
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
    passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn say(word: &Word) {
    if let Ok(mut line) = serde_json::to_vec(word) {
        line.push(b'\n');
        // The daemon may be gone; the run goes on without it.
        let _nobody_listens = io::stdout().write_all(&line).and_then(|()| io::stdout().flush());
    }
}

async fn keep(args: &ShimArgs) -> Result<ExitCode, Trouble> {
    let in_words = |what: &'static str| move |error: io::Error| Trouble::of(what, &error);
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|error| Trouble::of("the shim cannot adopt orphans", &error.into()))?;
    // Before anything is started, so that nothing is missed.
    let mut events = Events::new().map_err(in_words("signals"))?;
    let Some(_lock) = take_lock(args).await.map_err(in_words("shim.lock"))? else {
        say(&Word::Duplicate);
        return Ok(ExitCode::from(DUPLICATE));
    };
    if records::read::<ShimRecord>(&args.dir, records::SHIM).is_some_and(|found| found.nonce == args.nonce) {
        say(&Word::Duplicate);
        return Ok(ExitCode::from(DUPLICATE));
    }
    let own = rustix::process::getpid().as_raw_nonzero().get();
    // Before the worker is there, so that all of it is inside.
    let standing = Standing::join(&args.agent(), &args.nonce);
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
    // Room for the last word, so that a full disk cannot take it away. Without any nothing begins: it goes on by itself when
    // there is some.
    let reserved = match reserve_exit(&args.dir) {
        Err(error) if passes(&error) => return Err(Trouble::of("room for exit.json", &error)),
        reserved => reserved.ok(),
    };
    records::write(&args.dir, records::SHIM, &record).map_err(in_words("shim.json"))?;
    let oom_count = standing.oom_count();
    let opened = WorkerLog::open(&args.dir).map_err(in_words("worker.log"));
    let started = opened.and_then(|(log, output)| Ok((log, start(args, output)?)));
    standing.step_out();
    let (mut log, main) = match started {
        Ok(started) => started,
        Err(Trouble { text, again }) => {
            if let Some(group) = standing.group() {
                group.remove();
            }
            say(&Word::Started(record));
            let exit = ExitRecord { not_started: Some(text), again, ..exit_record(args, None) };
            return write_exit(&args.dir, &exit, reserved).map(|()| ExitCode::SUCCESS);
        }
    };
    record.worker_pid = Some(main.as_raw_nonzero().get());
    record.worker_start_time = process::stat(main.as_raw_nonzero().get()).map(|stat| stat.start_time);
    // Best effort: without it the daemon still finds the worker by its marker.
    let _told_less = records::write(&args.dir, records::SHIM, &record);
    cgroup::goes_first(main);
    say(&Word::Started(record));

    let family = Family::new(args);
    let group = standing.group().cloned();
    let mut tree = Tree { family, group, main, ended: None, childless: false, forced: false };
    tree.reap();
    let mut stop = false;
    while tree.ended.is_none() && !stop {
        tokio::select! {
            biased;
            stopped = events.stop_or_child() => stop = stopped,
            () = log.copy_some() => {}
        }
        tree.reap();
    }
    if stop {
        tree.stop(&mut events, &mut log, args).await;
    } else if !tree.gone_within(&mut events, &mut log, NATURAL).await {
        tree.end(&mut events, &mut log, LEFT_GRACE).await;
    }
    log.drain();
    let mut exit = exit_record(args, tree.ended);
    let killed = exit.signal == Some(rustix::process::Signal::KILL.as_raw()) && !tree.forced;
    if let Some(told_by) = oom_count.rose().filter(|_| killed) {
        (exit.out_of_memory, exit.told_by) = (true, told_by);
    }
    exit.left = tree.left();
    if let Some(group) = &tree.group {
        group.remove();
    }
    write_exit(&args.dir, &exit, reserved).map(|()| ExitCode::SUCCESS)
}

/// The lock of this agent's shims; none when another shim has this very run.
async fn take_lock(args: &ShimArgs) -> io::Result<Option<Held>> {
    let mut spent = Spent::new();
    loop {
        if let Some(lock) = Held::try_take(&args.dir.join(records::SHIM_LOCK))? {
            return Ok(Some(lock));
        }
        let other = records::read::<ShimRecord>(&args.dir, records::SHIM);
        if other.is_some_and(|other| other.nonce == args.nonce) {
            return Ok(None);
        }
        if spent.so_far() > LOCK_LIMIT {
            return Err(io::Error::other("the shim of an earlier run does not leave"));
        }
        sleep(LOCK_PAUSE).await;
    }
}

fn start(args: &ShimArgs, output: std::os::fd::OwnedFd) -> Result<Pid, Trouble> {
    if !args.cwd.is_dir() {
        let text = format!("the directory {} is not there any more", args.cwd.display());
        return Err(Trouble::lasting(text));
    }
    let second = output.try_clone().map_err(|error| Trouble::of("worker.log", &error))?;
    let mut worker = Command::new(&args.program);
    worker
        .arg(caliban_contract::modes::WORKER)
        .arg(&args.dir)
        .arg("--nonce")
        .arg(&args.nonce)
        .arg("--socket")
        .arg(&args.socket)
        .current_dir(&args.cwd)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(second);
    let mut spent = Spent::new();
    let child = loop {
        match worker.spawn() {
            // It was there a moment ago: an upgrade puts another in its place.
            Err(error) if is_being_replaced(&error) && spent.so_far() < REPLACED_LIMIT => {
                std::thread::sleep(REPLACED_PAUSE);
            }
            other => break other,
        }
    };
    let child = child.map_err(|error| {
        let what = format!("the worker {} cannot be started", args.program.display());
        let trouble = Trouble::of(&what, &error);
        if is_being_replaced(&error) { Trouble { again: Again::IfReplaced, ..trouble } } else { trouble }
    })?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| Trouble::lasting("no process id"))
}

/// Whether a program cannot be started for what happens to its file while another takes its place.
pub(crate) fn is_being_replaced(error: &io::Error) -> bool {
    let passing = [Errno::NOENT, Errno::ACCESS, Errno::NOEXEC, Errno::TXTBSY];
    passing.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The grace that the daemon wrote for this run, else the one of the start.
fn grace(args: &ShimArgs) -> Duration {
    let order =
        records::read::<StopOrder>(&args.dir, records::STOP).filter(|order| order.nonce == args.nonce);
    Duration::from_millis(order.map_or(args.grace_ms, |order| order.grace_ms))
}

fn exit_record(args: &ShimArgs, ended: Option<WaitStatus>) -> ExitRecord {
    let (code, signal) = match ended {
        Some(status) => (status.exit_status(), status.terminating_signal()),
        // It could not be killed, or never was.
        None => (None, None),
    };
    ExitRecord {
        nonce: args.nonce.clone(),
        code,
        signal,
        not_started: None,
        again: Again::Never,
        out_of_memory: false,
        told_by: ToldBy::Run,
        left: Vec::new(),
        at: wall_ms(),
    }
}

/// The name under which the room for `exit.json` waits.
const RESERVED: &str = ".exit.reserved";
/// Bytes of that room.
const RESERVED_BYTES: usize = 4096;

fn reserve_exit(dir: &Path) -> io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let path = dir.join(RESERVED);
    // One that a killed shim left may not be for our eyes only.
    let _none = std::fs::remove_file(&path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    // Not synced: file systems take the room when it is written to, and a start should not wait for the disk.
    let written = file.write_all(&[b' '; RESERVED_BYTES]);
    if written.is_err() {
        let _part = std::fs::remove_file(&path);
    }
    written.map(|()| file)
}

/// Writes the last word durably; into the reserved room when there is no other.
fn write_exit(dir: &Path, exit: &ExitRecord, reserved: Option<std::fs::File>) -> Result<(), Trouble> {
    let outcome = records::write_durably(dir, records::EXIT, exit).or_else(|error| {
        use std::os::unix::fs::FileExt as _;
        let file = reserved.ok_or(error)?;
        let mut bytes = serde_json::to_vec(exit).map_err(io::Error::other)?;
        bytes.resize(RESERVED_BYTES.max(bytes.len()), b' ');
        file.write_all_at(&bytes, 0)?;
        file.sync_all()?;
        std::fs::rename(dir.join(RESERVED), dir.join(records::EXIT))
    });
    let _used_or_not = std::fs::remove_file(dir.join(RESERVED));
    outcome.map_err(|error| Trouble::of("exit.json", &error))
}

struct Events {
    child: Signal,
    terminate: Signal,
    interrupt: Signal,
    _hangup: Signal,
}

impl Events {
    fn new() -> io::Result<Self> {
        Ok(Self {
            child: signal(SignalKind::child())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            // Taken and not listened to: a terminal that closes is nothing to us.
            _hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for a child's end (false) or for an order to stop (true).
    async fn stop_or_child(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = self.child.recv() => false,
        }
    }
}

/// The worker and everything below us.
struct Tree {
    family: Family,
    group: Option<Group>,
    main: Pid,
    ended: Option<WaitStatus>,
    /// Whether the kernel says that we have no child at all.
    childless: bool,
    /// Whether we sent KILL: then nobody else is blamed for it.
    forced: bool,
}

impl Tree {
    /// Takes every ended child.
    fn reap(&mut self) {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => self.ended = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => {
                    self.childless = false;
                    return;
                }
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    fn is_gone(&self) -> bool {
        (self.childless || (self.ended.is_some() && self.family.only_others())) && self.group_is_empty()
    }

    /// Who could not be ended.
    fn left(&self) -> Vec<i32> {
        if self.is_gone() {
            return Vec::new();
        }
        let grouped = self.group.as_ref().map(Group::members).unwrap_or_default();
        let grouped = grouped.into_iter().filter(|pid| !self.family.is_everybodys(*pid));
        let all: std::collections::BTreeSet<i32> = self.family.members().into_iter().chain(grouped).collect();
        all.into_iter().take(LEFT_NAMED).collect()
    }

    /// Nobody of the run can be elsewhere than below us; but what is in its group is asked for, not concluded.
    fn group_is_empty(&self) -> bool {
        let Some(group) = &self.group else { return true };
        group.members().into_iter().all(|pid| self.family.is_everybodys(pid))
    }

    /// Waits until nothing is left; false when something is after that time.
    async fn gone_within(&mut self, events: &mut Events, log: &mut WorkerLog, time: Duration) -> bool {
        let mut patience = Patience::new(time);
        loop {
            self.reap();
            if self.is_gone() {
                return true;
            }
            tokio::select! {
                biased;
                _ = events.child.recv() => {}
                () = log.copy_some() => {}
                () = patience.over() => {
                    self.reap();
                    return self.is_gone();
                }
            }
        }
    }

    /// Ends the tree on request. A further request may shorten the grace.
    async fn stop(&mut self, events: &mut Events, log: &mut WorkerLog, args: &ShimArgs) {
        self.family.ask();
        let mut patience = Patience::new(grace(args));
        loop {
            self.reap();
            if self.is_gone() {
                return;
            }
            tokio::select! {
                biased;
                _ = events.child.recv() => {}
                _ = events.terminate.recv() => patience.shorten(grace(args)),
                () = log.copy_some() => {}
                () = patience.over() => break,
            }
        }
        self.kill(events).await;
    }

    /// TERM, a grace, then KILL until nothing is left.
    async fn end(&mut self, events: &mut Events, log: &mut WorkerLog, grace: Duration) {
        self.family.ask();
        if !self.gone_within(events, log, grace).await {
            self.kill(events).await;
        }
    }

    /// KILL until nothing is left.
    async fn kill(&mut self, events: &mut Events) {
        let mut spent = Spent::new();
        let mut pause = Duration::from_millis(1);
        self.forced = self.ended.is_none();
        while spent.so_far() < KILL_LIMIT {
            self.family.kill();
            if let Some(group) = &self.group {
                group.kill(|pid| self.family.is_everybodys(pid));
            }
            self.reap();
            if self.is_gone() {
                return;
            }
            // Each end wakes us at once: a chain that forks and exits is followed as fast as it runs.
            let _woken_or_not = tokio::time::timeout(pause, events.child.recv()).await;
            pause = (pause * 2).min(KILL_PAUSE);
        }
    }
}
