//! Detached commands: started so that they outlive their agent, kept by a process of their own ([`detached_main`]), ended on
//! request. The keeper is spared by all other keepers ([`caliban_process::Keepers`]), because it holds its lock.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    hash::BuildHasher as _,
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    process::{ExitCode, Stdio},
    time::Duration,
};

use caliban_contract::{
    detached::{DetachedEnd, DetachedRecord, DetachedState, LOCK, OUTPUT, RECORD, list},
    lock::HeldLock,
    modes, records,
    variables::{AGENT_ID, JOB},
    wall_ms,
};
use caliban_process::{Keepers, Patience, boot_id, stat, thread_with_room, with_room};
use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, unix::AsyncFd},
    signal::unix::{SignalKind, signal},
};

use crate::{
    group::leave_agent,
    launch::{Launch, LaunchEnvironment},
    limit_watch::command_exceeded,
    out_of_memory::{COMMAND_SCORE, OwnScore},
    reaper::{KILL_LIMIT, STOP_GRACE},
    report::ExitOutcome,
    strays::{Traces, end_strays},
    tree::{Subreaper, own_pid},
};

/// How long a keeper may take to start its command.
const START_LIMIT: Duration = Duration::from_secs(10);
/// How long a keeper may take to end its command.
const STOP_LIMIT: Duration = STOP_GRACE.saturating_add(KILL_LIMIT).saturating_add(Duration::from_secs(2));
/// Bytes of one file of output; the last two files are kept.
const OUTPUT_BYTES: u64 = 16 << 20;
/// Ended commands whose records stay.
const ENDED_KEPT: usize = 30;
/// What a keeper says when its command runs.
const STARTED: &str = "started";
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// A command to detach.
#[derive(Debug)]
pub struct Detach {
    /// The program whose hidden mode keeps it ([`modes::DETACHED`]): the own executable.
    pub helper: PathBuf,
    /// The directory of the repo's detached commands.
    pub jobs: PathBuf,
    /// What to start; its streams are not looked at: it reads nothing, and its output goes to a file.
    pub launch: Launch,
    /// The command line, for people.
    pub command: String,
    /// The session or agent that starts it.
    pub agent: String,
}

impl Detach {
    /// Starts it; returns when it runs.
    pub async fn start(self) -> io::Result<DetachedRecord> {
        let LaunchEnvironment::Exactly(mut variables) = self.launch.environment.clone() else {
            return Err(io::Error::other("a detached command needs an environment of its own"));
        };
        let (id, directory) = make_directory(&self.jobs)?;
        prune(&self.jobs);
        variables.retain(|(name, _)| name != AGENT_ID && name != JOB);
        variables.push((JOB.into(), marker(&id).into()));
        let record = DetachedRecord {
            output: directory.join(OUTPUT),
            id,
            command: self.command,
            directory: self.launch.directory.clone(),
            agent: self.agent,
            started_at: wall_ms(),
            pid: 0,
            start_time: 0,
            boot_id: boot_id()?,
            ended: None,
        };
        let launch = Launch { environment: LaunchEnvironment::Exactly(variables), ..self.launch };
        let started = begin(&self.helper, &directory, &record, &launch).await;
        if started.is_err() {
            let _best_effort = fs::remove_dir_all(&directory);
        }
        started
    }
}

/// Starts the keeper and hears from it that the command runs.
async fn begin(
    helper: &Path,
    directory: &Path,
    record: &DetachedRecord,
    launch: &Launch,
) -> io::Result<DetachedRecord> {
    records::write(directory, RECORD, record)?;
    let mut keeper = tokio::process::Command::new(helper)
        .arg(modes::DETACHED)
        .arg(directory)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (Some(mut stdin), Some(stdout)) = (keeper.stdin.take(), keeper.stdout.take()) else {
        return Err(io::Error::other("no pipes to the keeper"));
    };
    stdin.write_all(&launch.encode()?).await?;
    drop(stdin);
    let mut line = String::new();
    let mut lines = BufReader::new(stdout);
    let said = tokio::time::timeout(START_LIMIT, lines.read_line(&mut line)).await;
    if !matches!(said, Ok(Ok(_))) || line.trim_end() != STARTED {
        let _gone_already = keeper.start_kill();
        let reason = if line.trim().is_empty() { "its keeper did not start" } else { line.trim() };
        return Err(io::Error::other(reason.to_owned()));
    }
    records::read(directory, RECORD).ok_or_else(|| io::Error::other("its keeper wrote no record"))
}

/// Waits until nothing of a detached command is left; false when something is at the end of `limit`.
#[expect(deprecated, reason = "its successor is unsafe for handles that are not owned; ours is")]
pub async fn detached_gone_within(record: &DetachedRecord, limit: Duration) -> io::Result<bool> {
    let Some(process) = keeper(record)? else { return Ok(true) };
    let process = AsyncFd::new(process)?;
    Ok(tokio::time::timeout(limit, process.readable()).await.is_ok())
}

/// Ends a detached command with everything that it started, and waits for that; false when something is left.
pub async fn stop_detached(jobs: &Path, record: &DetachedRecord) -> io::Result<bool> {
    match (record.state(jobs), keeper(record)?) {
        (DetachedState::Ended, _) => Ok(true),
        (DetachedState::Running, Some(process)) => {
            for signal in [Signal::TERM, Signal::CONT] {
                let _gone_already = rustix::process::pidfd_send_signal(&process, signal);
            }
            detached_gone_within(record, STOP_LIMIT).await
        }
        // Its keeper was killed, or is of another boot.
        (DetachedState::Running | DetachedState::Lost, _) => {
            let marker = marker(&record.id);
            let traces = Traces { variable: JOB, marker, known: Vec::new(), session: None, group: None };
            let strays = tokio::task::spawn_blocking(move || end_strays(&[traces], None)).await;
            let strays = strays.map_err(io::Error::other)??;
            let ended = Some(DetachedEnd { code: None, at: wall_ms(), exceeded: None });
            records::write(&jobs.join(&record.id), RECORD, &DetachedRecord { ended, ..record.clone() })?;
            Ok(strays.left == 0)
        }
    }
}

fn keeper(record: &DetachedRecord) -> io::Result<Option<OwnedFd>> {
    if boot_id()? != record.boot_id {
        return Ok(None);
    }
    caliban_process::open(record.pid, record.start_time)
}

fn marker(id: &str) -> String {
    format!("detached-{id}")
}

fn make_directory(jobs: &Path) -> io::Result<(String, PathBuf)> {
    DirBuilder::new().recursive(true).mode(0o700).create(jobs)?;
    loop {
        let random = std::hash::RandomState::new().hash_one(std::process::id());
        let id = format!("{:08x}", random as u32);
        let directory = jobs.join(&id);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok((id, directory)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes what is kept of commands that ended long ago.
fn prune(jobs: &Path) {
    let ended = list(jobs).into_iter().filter(|record| record.state(jobs) == DetachedState::Ended);
    let ended: Vec<DetachedRecord> = ended.collect();
    let too_many = ended.len().saturating_sub(ENDED_KEPT);
    for record in ended.iter().take(too_many) {
        let _best_effort = fs::remove_dir_all(jobs.join(&record.id));
    }
}

/// Runs the mode of [`modes::DETACHED`]: keeps one command until nothing of it is left. Its launch comes through the pipe.
pub fn detached_main(directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(keep(directory))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn keep(directory: &Path) -> io::Result<()> {
    let subreaper = Subreaper::new()?;
    // Before anything is started, so that it is in no agent's group either.
    leave_agent();
    let launch = Launch::read(&mut io::stdin().lock())?;
    let Some(_lock) = HeldLock::try_keep(&directory.join(LOCK))? else {
        return Err(io::Error::other("it is kept already"));
    };
    let mut record: DetachedRecord =
        records::read(directory, RECORD).ok_or_else(|| io::Error::other("it has no record"))?;
    record.pid = own_pid();
    record.start_time = stat(own_pid()).map(|stat| stat.start_time).unwrap_or_default();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    // The terminal of whoever started the agent may go; this stays.
    let _ignored = signal(SignalKind::hangup())?;
    let output = OutputLog::open(directory.join(OUTPUT))?;
    let (said, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let spared = match &launch.environment {
        LaunchEnvironment::Exactly(variables) => Keepers::of_environment(variables),
        LaunchEnvironment::Inherit => None,
    };
    // It ends with the last writer.
    thread_with_room("output", move || output.copy(File::from(said)))?;
    let main = OwnScore::open().goes_first(COMMAND_SCORE, || {
        let second = write.try_clone()?;
        let (mut command, _held_until_it_is_started) = launch.command()?;
        command.stdin(Stdio::null()).stdout(write).stderr(second);
        with_room(|| command.spawn())
    })?;
    let mut tree = subreaper.keep(Pid::from_child(&main), spared, None);
    records::write(directory, RECORD, &record)?;
    say(STARTED);
    let mut forever = Patience::new(FOREVER);
    let (exceeded, grace) = tokio::select! {
        _ = terminate.recv() => (None, Some(STOP_GRACE)),
        _ = interrupt.recv() => (None, Some(STOP_GRACE)),
        // At once: what eats the machine gets no time to eat more.
        excess = command_exceeded(&launch) => (Some(excess), Some(Duration::ZERO)),
        // A service that forks and lets its first process end is still there.
        _gone = tree.gone_within(&mut forever) => (None, None),
    };
    if let Some(grace) = grace {
        tree.end(grace).await;
    }
    let code = match ExitOutcome::of(tree.status()) {
        ExitOutcome::Exited(code) => Some(code),
        ExitOutcome::Killed(signal) => Some(128 + signal),
        ExitOutcome::NotStarted(_) => None,
    };
    record.ended = Some(DetachedEnd { code, at: wall_ms(), exceeded });
    records::write(directory, RECORD, &record)
}

/// One line to whoever started us, who may be gone.
fn say(line: &str) {
    let mut out = io::stdout().lock();
    let _nobody_listens = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// A command's output in a file, which begins anew when it is too large; the one before is kept.
struct OutputLog {
    path: PathBuf,
    file: File,
    written: u64,
}

impl OutputLog {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        Ok(Self { path, file, written: 0 })
    }

    fn copy(mut self, mut from: File) {
        let mut block = vec![0; 16 << 10];
        loop {
            match from.read(&mut block) {
                Ok(0) => return,
                // A disk that is full must not stop the command.
                Ok(got) => {
                    let _lost = self.write(&block[..got]);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written + bytes.len() as u64 > OUTPUT_BYTES {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
            *self = Self::open(self.path.clone())?;
        }
        self.written += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}
