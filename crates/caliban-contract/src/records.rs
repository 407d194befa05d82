//! The small files in an agent's directory: who writes which, and their shape.
//!
//! `shim.json` and `exit.json` are the shim's, `status.json` and `rights.json` the worker's, `launch.json`, `queued.json`,
//! `resume.json`, `review.json` and `stop.json` the daemon's. Each is replaced whole (temporary file, rename), so a reader sees the old one or the new one.
//! Each carries the nonce of the run that it belongs to; one of another run does not count.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use caliban_core::budget::{Limits, NearLimit};
use caliban_core::call_text::Excerpt;
pub use caliban_core::event::Answer as AskAnswer;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Outcome, WaitingFor};
use caliban_core::mode::Mode;
use caliban_core::price::MicroUsd;
use caliban_core::review::Review;
use caliban_core::usage::Usage;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk_room::ReservedRoom;
use crate::tree_limits::Excess;

/// The directory, in that of an agent or a session, that is `/tmp` of its fenced commands.
pub const PRIVATE_TMP: &str = "tmp";

/// The request, kept for respawn (`caliban_core::spec::SpawnSpec`).
pub const SPEC: &str = "spec.json";
/// The shim's word on who it is ([`ShimRecord`]).
pub const SHIM: &str = "shim.json";
/// The shim's word on how it ended ([`ExitRecord`]).
pub const EXIT: &str = "exit.json";
/// Everything that happened in the conversation, a record a line. Written by the agent.
pub const TRANSCRIPT: &str = "transcript.jsonl";
/// The directories of the sessions of the foreground, in a repo's.
pub const SESSIONS: &str = "sessions";
/// The directories of an agent's sub-agents, in its own.
pub const SUB_AGENTS: &str = "sub";
/// The directories of a session's background agents, in its own.
pub const BACKGROUND: &str = "bg";
/// In a session's directory: what files were before its tools changed them, byte for byte.
pub const CHECKPOINTS: &str = "checkpoints";
/// The worker's word on how it stands ([`WorkerStatus`]).
pub const STATUS: &str = "status.json";
/// The programs of the repo's git configuration that a person has accepted, in the repo's data directory.
pub const GIT_PROGRAMS: &str = "git-programs.json";
/// Git directories and stores that a person has accepted for a repo, by path and identity, in the repo's data directory.
pub const GIT_PLACES: &str = "git-places.json";
/// The worker's word on what it may do ([`Rights`]).
pub const RIGHTS: &str = "rights.json";
/// What only the registry has of an agent that waits for its start ([`QueuedRecord`]).
pub const QUEUED: &str = "queued.json";
/// What a resumed worker is told ([`ResumeOrder`]).
pub const RESUME: &str = "resume.json";
/// The run that a shim was launched for last ([`LaunchRecord`]).
pub const LAUNCH: &str = "launch.json";
/// The limits that were raised at resumes, by the daemon; what they mean is the worker's.
pub const LIMITS: &str = "limits.json";
/// When it starts by a clock that nobody sets ([`StartRecord`]).
pub const START: &str = "start.json";
/// How a shim that is told to end should do it ([`StopOrder`]).
pub const STOP: &str = "stop.json";
/// When it left the queue ([`BegunRecord`]).
pub const BEGUN: &str = "begun.json";
/// How its work stood when somebody looked last ([`ReviewRecord`]), by the daemon.
pub const REVIEW: &str = "review.json";
/// Room for `stop.json`, taken when the agent is spawned. An order has a few names of 32 bytes.
pub const STOP_ROOM: ReservedRoom = ReservedRoom::often(STOP, ".stop.reserved", 1024);
/// Room for `exit.json`, taken by the shim before the worker starts.
pub const EXIT_ROOM: ReservedRoom = ReservedRoom::once(EXIT, ".exit.reserved", 4096);
/// Room for a `status.json` that says that the disk is full.
pub const STATUS_ROOM: ReservedRoom = ReservedRoom::once(STATUS, ".status.reserved", 64 * 1024);
/// Room for the last `status.json` of a run, in which no call is open any more.
pub const LAST_STATUS_ROOM: ReservedRoom = ReservedRoom::once(STATUS, ".status.last", 16 * 1024);
/// The lock that a shim holds for life.
pub const SHIM_LOCK: &str = caliban_process::SHIM_LOCK;
/// Before its id, the name of the directory of an agent that was removed and whose row may still be there.
pub const LEAVING: &str = ".rm-";
/// What the worker prints.
pub const WORKER_LOG: &str = "worker.log";

/// The format of `status.json` written today.
pub const STATUS_VERSION: u32 = 1;
/// The exit code of a worker that has left memory and wants to be woken.
pub const HIBERNATED: i32 = 10;
/// The largest of these files that is read: a message of the largest size fits, whatever is in it.
pub const RECORD_CAP: u64 = 8 * 1024 * 1024;

/// `shim.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    /// The shim's process id.
    pub pid: i32,
    /// When the kernel started it, in clock ticks since boot (`/proc/<pid>/stat`, field 22).
    pub start_time: u64,
    /// Which boot that was.
    pub boot_id: String,
    /// The run.
    pub nonce: String,
    /// The worker, once it is started.
    #[serde(default)]
    pub worker_pid: Option<i32>,
    /// When the kernel started it.
    #[serde(default)]
    pub worker_start_time: Option<u64>,
    /// The control group of the run, where one could be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<PathBuf>,
    /// Where the worker was told to listen: the runtime directory of its daemon, not of a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// The worker's program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
}

/// `exit.json`: written when the whole process tree is gone, or what is left of it cannot be ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// The run.
    pub nonce: String,
    /// The worker's exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// Or the signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why there was no worker at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_started: Option<String>,
    /// Whether another try may do better then.
    #[serde(default, skip_serializing_if = "Again::is_never")]
    pub again: Again,
    /// Whether the worker was killed, not by us, in a run in which the kernel ended somebody for want of memory.
    #[serde(default)]
    pub out_of_memory: bool,
    /// How that is known.
    #[serde(default)]
    pub told_by: ToldBy,
    /// What it took too much of with all that it had started, for which it was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exceeded: Option<Excess>,
    /// Processes that could not be ended (stuck in the kernel, or another user's).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<i32>,
    /// When, in milliseconds since 1970.
    pub at: u64,
}

/// `review.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewRecord {
    /// After how many runs somebody looked.
    pub runs: u32,
    /// What there was.
    pub review: Review,
}

/// Whether what could not be started is tried again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Again {
    /// What is wrong stays so.
    #[default]
    Never,
    /// It passes by itself: no descriptors, processes, memory, room.
    Soon,
    /// The program is not there, or cannot be run: an upgrade may be putting another in its place.
    IfReplaced,
}

impl Again {
    fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// Whose count of ends for want of memory rose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToldBy {
    /// The run's own: something of it was ended, the worker or a command earlier.
    #[default]
    Run,
    /// The counter of a control group shared with other processes.
    Group,
    /// The whole machine's.
    System,
}

/// `status.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// [`STATUS_VERSION`].
    pub version: u32,
    /// The run, as the worker was told with `--nonce`.
    pub nonce: String,
    /// How it stands.
    pub state: WorkerState,
    /// What it is doing, in a few words (`Bash cargo test`).
    pub activity: Option<String>,
    /// What it cannot go on without.
    pub waiting_for: Option<Waiting>,
    /// Calls that wait for a person.
    pub asks: Vec<AskRecord>,
    /// Turns so far.
    pub turns: u64,
    /// Tokens so far.
    pub usage: Usage,
    /// Cost so far, when the price is known.
    pub micro_usd: Option<MicroUsd>,
    /// What the model request counts, at least, that has no end yet. A worker that is killed now has spent it, too.
    pub in_flight: Usage,
    /// Its cost, when the price is known.
    pub in_flight_micro_usd: Option<MicroUsd>,
    /// The limit of which it has used most, when that is much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub near_limit: Option<NearLimit>,
    /// The model that it uses.
    pub model: Option<String>,
    /// The branch of its worktree.
    pub branch: Option<String>,
    /// Its worktree.
    pub worktree: Option<PathBuf>,
    /// The commit that its work is measured against.
    pub base_commit: Option<String>,
    /// The end of what it said last (at most 200 characters).
    pub last_text: Option<String>,
    /// How it ended, when `state` is `done` or `failed`.
    pub ending: Option<WorkerEnding>,
    /// The limit, when it ended at one of turns.
    pub turn_limit: Option<u64>,
    /// Whether it leaves memory now and wants to be woken by a message or an attach.
    pub hibernated: bool,
    /// When this was written, in milliseconds since 1970.
    pub updated_at: u64,
}

/// `rights.json`: what the request, what was raised since and the settings come to. What a command of the agent starts
/// gets no more (a11).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rights {
    /// The run.
    pub nonce: String,
    /// How calls that no rule decides are treated.
    pub mode: Mode,
    /// What it may spend.
    pub budget: Limits,
    /// How many turns it has.
    pub max_turns: u64,
    /// All that decides about its calls, as it hands it over to those that it starts itself.
    pub policy: serde_json::Value,
}

/// How a worker says that it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// In a turn.
    #[default]
    Running,
    /// Between turns.
    Idle,
    /// Ended, with its work done.
    Done,
    /// Ended, without.
    Failed,
}

/// What a worker waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Waiting {
    /// A yes or no to the calls in `asks`.
    Approval,
    /// A message.
    Input,
    /// The provider's rate limit.
    RateLimit {
        /// When it is over, in milliseconds since 1970.
        #[serde(default)]
        until: u64,
    },
    /// The model's server, which cannot be reached or has failed.
    Model {
        /// When it is tried again, in milliseconds since 1970.
        #[serde(default)]
        until: u64,
    },
    /// The end of the quiet hours.
    QuietHours {
        /// When they are over, in milliseconds since 1970.
        #[serde(default)]
        until: u64,
    },
}

/// A call that waits for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskRecord {
    /// Names it in an answer.
    pub id: String,
    /// The sub-agent that asks, by its label or id; the agent itself when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The tool.
    pub name: String,
    /// The call in one line; a long one is cut, with a mark.
    pub what: String,
    /// The call with all its arguments, as far as there is room; what is left out is marked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub call: String,
    /// How many characters of the call are left out; absent in records of a worker of an earlier build.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
    /// Stands for the exact call, every byte of it: an answer is to the call with this digest only.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Why it asks.
    pub why: Option<String>,
    /// Rules that an "always" would add.
    pub suggestions: Vec<String>,
    /// Rules that an "always, outside the fence" would add.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// When it was asked, in milliseconds since 1970.
    #[serde(with = "caliban_core::instant")]
    pub opened_at: u64,
    /// When it counts as refused, if nobody has answered by then; in milliseconds since 1970.
    #[serde(with = "caliban_core::instant::option", skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<u64>,
}

impl AskRecord {
    /// The call as far as the record has it.
    pub fn excerpt(&self) -> Excerpt {
        let is_listed = !self.call.is_empty();
        let text = if is_listed { &self.call } else { &self.what };
        // What an earlier build left out stands for at least one character; a call with such a line is looked up in vain.
        let is_marked = || !is_listed || text.lines().any(|line| line.starts_with("[…"));
        Excerpt { text: text.clone(), hidden: self.hidden.unwrap_or_else(|| is_marked().into()) }
    }
}

/// How a worker ended by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerEnding {
    /// The kind.
    pub kind: EndingKind,
    /// More, in words.
    #[serde(default)]
    pub text: Option<String>,
}

/// The kinds of ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingKind {
    /// It said that it is finished.
    Finished,
    /// It used up its turns.
    TurnLimit,
    /// The ledger refused its next request.
    Budget,
    /// Something went wrong.
    Error,
    /// It was cancelled in its turn.
    Cancelled,
}

/// `queued.json`: written when an agent is acknowledged that waits for its start, and removed when its run begins. Without
/// the registry the next daemon queues the agent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuedRecord {
    /// The run that it waits for.
    pub nonce: String,
    /// Its number in the order of spawning.
    pub seq: i64,
    /// How many runs there were, this one included.
    pub runs: u32,
    /// The caller's key of the request.
    pub key: Option<String>,
    /// The agents that must end `done` before it starts.
    pub after: Vec<AgentId>,
    /// The worker's program.
    pub program: PathBuf,
    /// What a resumed worker is told.
    pub resume_prompt: Option<String>,
    /// When it was spawned, in milliseconds since 1970.
    pub created_at: u64,
}

/// `begun.json`: when an agent left the queue. Its time (`--timeout`) counts from there, over restarts of anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BegunRecord {
    /// The first time, in milliseconds since 1970.
    pub first_at: u64,
    /// The last time: at its spawn or its last resume.
    pub at: u64,
    /// The same in milliseconds of the monotonic clock, which no clock that jumps changes.
    pub monotonic_ms: u64,
    /// The boot in which that clock runs.
    pub boot_id: String,
}

impl BegunRecord {
    /// How long ago that is, in milliseconds: by the monotonic clock, after a reboot by the date.
    #[must_use]
    pub fn elapsed_ms(&self, boot_id: &str, monotonic_ms: u64, wall_ms: u64) -> u64 {
        if self.boot_id == boot_id {
            monotonic_ms.saturating_sub(self.monotonic_ms)
        } else {
            wall_ms.saturating_sub(self.at)
        }
    }
}

/// `launch.json`: written before a shim is launched, so that the next daemon knows that there may be one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchRecord {
    /// The run.
    pub nonce: String,
}

/// `resume.json`: the worker of this run goes on with this, and removes it when that is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumeOrder {
    /// The run that it is for; a worker of another run ignores it.
    pub nonce: String,
    /// What the person said, in its order.
    pub messages: Vec<Told>,
}

/// A message of a resume. It keeps its name until it is heard, so that saying it twice is hearing it once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Its name, which the worker records with it.
    pub id: String,
    /// What was said.
    pub text: String,
}

/// Between the messages of a resume, when they are one text.
pub const BETWEEN: &str = "\n\n";

impl ResumeOrder {
    /// The order for a run, which has to hear `prompt`. What of it was in an order `before` keeps its name: the worker of
    /// that run may have recorded it, and not come to say so.
    pub fn new(nonce: String, prompt: Option<&str>, before: Option<Self>) -> Self {
        let mut messages = Vec::new();
        let mut rest = prompt;
        for told in before.map(|before| before.messages).unwrap_or_default() {
            let Some(after) = rest.and_then(|rest| rest.strip_prefix(told.text.as_str())) else { break };
            rest = match after.strip_prefix(BETWEEN) {
                _ if after.is_empty() => None,
                Some(after) => Some(after),
                // Another text that only begins like it.
                None => break,
            };
            messages.push(told);
        }
        messages.extend(rest.map(|rest| Told { id: format!("resume-{nonce}"), text: rest.to_owned() }));
        Self { nonce, messages }
    }

    /// All messages as one text.
    #[must_use]
    pub fn prompt(&self) -> Option<String> {
        let texts: Vec<&str> = self.messages.iter().map(|told| told.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join(BETWEEN))
    }
}

/// What `__notify` reads on its standard input: an end that only the daemon saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndNotice {
    /// The agent's directory.
    pub directory: PathBuf,
    /// `failed`, `killed` or `crashed`.
    pub event: String,
    /// Why.
    pub text: String,
    /// Where what it was handed lies; daemons of earlier builds hand all of it over in the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<PathBuf>,
}

/// `start.json`: for the next daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartRecord {
    /// The boot in which it was asked for.
    pub boot: String,
    /// The moment, in milliseconds since that boot.
    pub boot_ms: u64,
    /// The same moment as it was asked for, in milliseconds since 1970. It is void when the agent starts at another one.
    pub start_at_ms: Option<u64>,
}

/// `stop.json`: for the shim, and for the next daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// The run.
    pub nonce: String,
    /// Other names that the registry may have for it, because its own did not come there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// How long the tree gets between TERM and KILL.
    pub grace_ms: u64,
    /// Whether the agent was removed: said here when its directory could not be renamed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// The time that it had, in milliseconds, when it ends because that is up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timed_out_ms: Option<u64>,
}

impl StopOrder {
    /// Whether it is for the run that the registry knows by this name.
    #[must_use]
    pub fn is_for(&self, nonce: &str) -> bool {
        self.others.iter().chain([&self.nonce]).any(|name| name == nonce)
    }
}

impl WorkerStatus {
    /// What a worker has spent that is gone. If it was killed in a model request, nobody is left to say what that took: it
    /// counts as far as it was known.
    pub fn spent_when_gone(&self) -> (Usage, Option<MicroUsd>) {
        let cut = self.in_flight_micro_usd.unwrap_or_default();
        (self.usage + self.in_flight, self.micro_usd.map(|usd| MicroUsd(usd.0.saturating_add(cut.0))))
    }

    /// What it waits for, in the lifecycle's words.
    pub fn waits_for(&self) -> Option<WaitingFor> {
        Some(match self.waiting_for.as_ref()? {
            Waiting::Approval => WaitingFor::Approval {
                call: self.asks.first().map(|ask| ask.what.clone()).unwrap_or_default(),
            },
            Waiting::Input => WaitingFor::Input,
            Waiting::RateLimit { until } => WaitingFor::RateLimit { until_ms: *until },
            Waiting::Model { until } => WaitingFor::Model { until_ms: *until },
            Waiting::QuietHours { until } => WaitingFor::QuietHours { until_ms: *until },
        })
    }

    /// How it ended, in the lifecycle's words; none while it lives.
    pub fn outcome(&self) -> Option<Outcome> {
        let text = |default: &str| match self.ending.as_ref().and_then(|ending| ending.text.clone()) {
            Some(text) => text,
            None => default.to_owned(),
        };
        let kind = self.ending.as_ref().map(|ending| ending.kind);
        match (self.state, kind) {
            (WorkerState::Running | WorkerState::Idle, _) => None,
            (WorkerState::Done, _) => Some(Outcome::Finished),
            (WorkerState::Failed, Some(EndingKind::TurnLimit)) => {
                Some(Outcome::TurnLimit { limit: self.turn_limit.unwrap_or(self.turns) })
            }
            (WorkerState::Failed, Some(EndingKind::Budget)) => {
                Some(Outcome::BudgetExceeded { reason: text("the budget is used up") })
            }
            (WorkerState::Failed, Some(EndingKind::Cancelled)) => {
                Some(Outcome::Error { text: text("cancelled") })
            }
            (WorkerState::Failed, Some(EndingKind::Error | EndingKind::Finished) | None) => {
                Some(Outcome::Error { text: text("the worker gave no reason") })
            }
        }
    }
}

/// Writes one of these files, whole or not at all. It is visible to others at once, and after a power failure
/// perhaps not there.
pub fn write(dir: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    put(dir, name, value, Sync::No)
}

/// Like [`write`](fn@write), and on the disk when it returns.
pub fn write_durably(dir: &Path, name: &str, value: &impl Serialize) -> io::Result<()> {
    put(dir, name, value, Sync::Yes)
}

/// Reads one of these files; none when it is not there, torn, too large or of another shape.
pub fn read<T: DeserializeOwned>(dir: &Path, name: &str) -> Option<T> {
    serde_json::from_slice(&read_capped(&dir.join(name), RECORD_CAP).ok()?).ok()
}

/// Like [`read`], and an error when nothing can be said (out of file descriptors, a failing disk).
pub fn try_read<T: DeserializeOwned>(dir: &Path, name: &str) -> io::Result<Option<T>> {
    match read_capped(&dir.join(name), RECORD_CAP) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Other) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads a regular file of at most `cap` bytes. Never waits: a pipe that somebody put there is refused.
pub fn read_capped(path: &Path, cap: u64) -> io::Result<Vec<u8>> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(found.len().min(cap)).unwrap_or(0));
    file.take(cap + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > cap {
        return Err(io::Error::other("too large"));
    }
    Ok(bytes)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sync {
    Yes,
    No,
}

fn put(dir: &Path, name: &str, value: &impl Serialize, sync: Sync) -> io::Result<()> {
    let bytes = serde_json::to_vec(value).map_err(io::Error::other)?;
    let new = dir.join(format!(".{name}.new"));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    if let Err(error) = file.write_all(&bytes) {
        // On a full disk a part of a record would only take room.
        let _part = fs::remove_file(&new);
        return Err(error);
    }
    if sync == Sync::Yes {
        file.sync_all()?;
    }
    fs::rename(&new, dir.join(name))?;
    if sync == Sync::Yes {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}

/// What the background agent in a directory was asked for.
pub fn spec_of(directory: &Path) -> Option<caliban_core::spec::SpawnSpec> {
    caliban_core::spec::SpawnSpec::from_json(&std::fs::read_to_string(directory.join(SPEC)).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_keeps_its_name_until_it_is_heard() {
        let order = |nonce: &str, prompt: Option<&str>, before: &Option<ResumeOrder>| {
            Some(ResumeOrder::new(nonce.to_owned(), prompt, before.clone()))
        };
        let names = |order: &Option<ResumeOrder>| -> Vec<(String, String)> {
            order.clone().unwrap().messages.into_iter().map(|told| (told.id, told.text)).collect()
        };
        let said = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            all.iter().map(|(id, text)| ((*id).to_owned(), (*text).to_owned())).collect()
        };
        let first = order("1", Some("a\n\na"), &None);
        assert_eq!(names(&first), said(&[("resume-1", "a\n\na")]));
        // The same run once more, and the next.
        assert_eq!(order("1", Some("a\n\na"), &first), first);
        let second = order("2", Some("a\n\na\n\nb"), &first);
        assert_eq!(names(&second), said(&[("resume-1", "a\n\na"), ("resume-2", "b")]));
        let third = order("3", Some("a\n\na\n\nb\n\nb"), &second);
        let all = said(&[("resume-1", "a\n\na"), ("resume-2", "b"), ("resume-3", "b")]);
        assert_eq!(names(&third), all);
        // It was heard; what is said now is something else, however it begins.
        assert_eq!(names(&order("4", Some("a\n\nab"), &first)), said(&[("resume-4", "a\n\nab")]));
        assert_eq!(names(&order("4", None, &first)), said(&[]));
        assert_eq!(third.unwrap().prompt().as_deref(), Some("a\n\na\n\nb\n\nb"));
        assert_eq!(order("4", None, &first).unwrap().prompt(), None);
    }

    #[test]
    fn r22_records_of_the_first_shims_are_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let shim =
            r#"{"pid":7,"start_time":8,"boot_id":"b","nonce":"n","worker_pid":9,"worker_start_time":10}"#;
        let exit = r#"{"nonce":"n","signal":9,"out_of_memory":true,"at":11}"#;
        fs::write(dir.path().join(SHIM), shim).unwrap();
        fs::write(dir.path().join(EXIT), exit).unwrap();
        let expected = ShimRecord {
            pid: 7,
            start_time: 8,
            boot_id: "b".into(),
            nonce: "n".into(),
            worker_pid: Some(9),
            worker_start_time: Some(10),
            group: None,
            socket: None,
            program: None,
        };
        assert_eq!(read(dir.path(), SHIM), Some(expected));
        let expected = ExitRecord {
            nonce: "n".into(),
            code: None,
            signal: Some(9),
            not_started: None,
            again: Again::Never,
            out_of_memory: true,
            told_by: ToldBy::Run,
            exceeded: None,
            left: Vec::new(),
            at: 11,
        };
        assert_eq!(read(dir.path(), EXIT), Some(expected));
    }
}
