//! Starting a run: the agent's files, its environment, its shim.
//!
//! A start may be repeated: a shim that finds its run under way says so, and the one that has it is watched.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use caliban_contract::HandedOver;
use caliban_contract::tree_limits::TreeLimits;
use caliban_contract::variables::SECRET_NAMES;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{LifecycleEvent, Outcome, State};
use caliban_core::spec::{Isolation, SpawnSpec};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

use super::agent::DaemonAgent;
use super::phase::{Hibernating, Keeper, Phase, Queued, Renewing, Run, Tries};
use super::spawn::make_dir;
use super::store::RegistryReader;
use super::unconfirmed_run::VOID_PID;
use super::{Msg, Owner};
use crate::places::Places;
use crate::process::{self, MARKER, Traces};
use crate::records::{self, Again, LaunchRecord, ResumeOrder, ShimRecord};
use crate::shim::{ShimArgs, Word, arguments, is_being_replaced, passes};
use caliban_process::Patience;

/// How long a shim may take to start a worker. It may have to wait for the shim of an earlier run.
const WORD_LIMIT: Duration = Duration::from_secs(40);
/// The most that a shim says.
const WORD_CAP: usize = 64 * 1024;
/// How long a shim that has said its last word may take to leave, and the pause between two looks.
const REAP_LIMIT: Duration = Duration::from_secs(10);
const REAP_PAUSE: Duration = Duration::from_millis(2);
/// What we run, whatever became of its file.
const OWN_LINK: &str = "/proc/self/exe";

/// Why a run was not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StartError {
    /// Something that may pass: out of descriptors, processes, memory or room, or the repo is gone. Nothing was launched.
    Later(String),
    /// A shim was launched, and nobody knows what became of it.
    Doubt(String),
    /// The worker's program or its request cannot be had, perhaps because it is being replaced. Nothing was launched. It does
    /// not wait for ever.
    Missing(String),
    /// Something that does not.
    Never(String),
}

/// All that a start needs.
struct StartOrder {
    id: AgentId,
    nonce: String,
    marker: String,
    traces: Traces,
    program: PathBuf,
    shim: PathBuf,
    has_secrets: bool,
    resume_prompt: Option<String>,
    is_resumed: bool,
    grace_ms: u64,
    limits: TreeLimits,
    spec: Option<Box<SpawnSpec>>,
    specs: RegistryReader,
    places: Places,
}

impl Owner {
    pub(super) fn start_run(&mut self, id: AgentId) {
        if self.agents.get(&id).is_some_and(|agent| matches!(agent.phase, Phase::Queued(_))) {
            self.begins(id);
        }
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let (spec, tries) = match &mut agent.phase {
            Phase::Queued(queued) => (queued.spec.take(), queued.tries),
            Phase::Renewing(Renewing::Wake(tries)) => (None, *tries),
            Phase::Registering(_) | Phase::Renewing(Renewing::Void(_) | Renewing::Resume) => return,
            Phase::Running(_) | Phase::Hibernating(_) | Phase::Stopping(_) => return,
            Phase::Ended | Phase::Leaving(_) => return,
        };
        agent.phase = Phase::Running(Run { keeper: Keeper::Starting, stop: None, tries: tries.begin() });
        let order = StartOrder {
            id,
            nonce: agent.record.nonce.clone(),
            marker: agent.marker(),
            traces: agent.traces(None),
            program: agent.record.program.clone(),
            shim: self.own_program.clone(),
            has_secrets: agent.record.has_secrets,
            resume_prompt: agent.record.resume_prompt.clone(),
            is_resumed: agent.record.runs > 1,
            grace_ms: self.options.grace_ms,
            limits: self.options.limits,
            spec,
            specs: self.store.reader(),
            places: self.places.clone(),
        };
        self.later(async move {
            let nonce = order.nonce.clone();
            let outcome = start(order).await;
            Some(Msg::Started { id, nonce, outcome })
        });
    }

    pub(super) fn started(&mut self, id: AgentId, nonce: &str, outcome: Result<ShimRecord, StartError>) {
        let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.record.nonce == nonce) else {
            return;
        };
        let Some(run) = agent.run_mut() else { return };
        match outcome {
            Ok(shim) => {
                let _was_not_there = std::fs::remove_file(self.places.agent_dir(id).join(records::QUEUED));
                let has_worker = shim.worker_pid.is_some();
                run.keeper = Keeper::Unwatched(shim);
                if has_worker {
                    run.tries = Tries::default();
                    agent.record.note = None;
                }
                if agent.state() == State::Spawning && has_worker {
                    self.apply(id, LifecycleEvent::Started);
                }
                self.look(id);
                self.follow(id);
                self.publish(id);
            }
            Err(StartError::Missing(text)) if !run.tries.is_program_lost() => self.start_again(id, text),
            Err(StartError::Later(text)) => self.start_again(id, text),
            Err(StartError::Doubt(text)) => {
                run.tries.again();
                run.keeper = Keeper::Unconfirmed;
                not_started(agent, text);
                self.settle(id);
                self.publish(id);
            }
            Err(StartError::Never(text) | StartError::Missing(text)) => {
                let event = match agent.state() {
                    State::Spawning => LifecycleEvent::SpawnFailed { text },
                    _ => LifecycleEvent::Ended(Outcome::Error { text }),
                };
                self.leave_run(id, vec![event], Phase::Ended);
            }
        }
    }

    /// Nothing was launched, for a reason that may pass.
    fn start_again(&mut self, id: AgentId, text: String) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        not_started(agent, text);
        let is_idle = agent.state() == State::Idle;
        if is_idle {
            // There was no such run; the next wake begins another.
            agent.record.runs -= 1;
        }
        let Some(run) = agent.run_mut() else { return };
        run.tries.again();
        let tries = run.tries;
        if run.stop.is_some() {
            self.killed_before_start(id);
        } else if is_idle {
            agent.phase = Phase::Hibernating(Hibernating { tries, refused: None });
        } else {
            agent.phase = Phase::Queued(Queued { spec: None, tries });
        }
        self.publish(id);
    }

    /// A run is over before it had a worker, for a reason that may pass: the agent gets another one, soon.
    pub(super) fn not_begun(&mut self, id: AgentId, text: String) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        if agent.state() == State::Idle {
            // There was no such run; the next wake begins another.
            agent.record.runs -= 1;
        }
        if let Some(run) = agent.run_mut() {
            run.tries.again();
        }
        self.never_began(id);
        if let Some(agent) = self.agents.get_mut(&id) {
            not_started(agent, text);
        }
        self.publish(id);
    }

    /// A shim names its worker a moment after itself: who was adopted in between is asked again.
    pub(super) fn name_worker(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let known = match agent.run_mut().map(|run| &mut run.keeper) {
            Some(Keeper::Alive(alive)) => &mut alive.shim,
            Some(Keeper::Unwatched(shim)) => shim,
            Some(Keeper::Starting | Keeper::Unconfirmed | Keeper::Settling | Keeper::Clearing) | None => {
                return;
            }
        };
        if known.worker_pid.is_some() {
            return;
        }
        let found = records::read::<ShimRecord>(&self.places.agent_dir(id), records::SHIM);
        let named = found.filter(|found| {
            (&found.nonce, found.pid) == (&known.nonce, known.pid) && found.worker_pid.is_some()
        });
        let Some(named) = named else { return };
        *known = named;
        match agent.state() {
            State::Spawning => self.apply(id, LifecycleEvent::Started),
            _ => self.publish(id),
        }
    }
}

/// Notes, and says once, that a start is tried again.
fn not_started(agent: &mut DaemonAgent, text: String) {
    if agent.record.note.as_deref() != Some(&text) {
        tracing::warn!(id = %agent.record.id, "not started, tried again soon: {text}");
        agent.record.note = Some(text);
    }
}

/// The program that shims are started from: our own, which is small and of our version.
pub(super) fn own_program() -> PathBuf {
    // When the file was replaced by an upgrade, the kernel's link still leads to what we run.
    std::env::current_exe().ok().filter(|path| path.is_file()).unwrap_or_else(|| OWN_LINK.into())
}

async fn start(mut order: StartOrder) -> Result<ShimRecord, StartError> {
    let spec = match order.spec.take() {
        Some(spec) => *spec,
        None => {
            // A registry that somebody holds, or that cannot be read now, may be read soon; but not for ever.
            let text = order.specs.get(order.id).await.map_err(StartError::Missing)?;
            SpawnSpec::from_json(&text).map_err(|error| StartError::Never(error.to_string()))?
        }
    };
    let launched = tokio::task::spawn_blocking(move || launch(&order, &spec).map(|child| (child, order)));
    let (child, order) = launched.await.map_err(|error| StartError::Never(error.to_string()))??;
    let word = tokio::time::timeout(WORD_LIMIT, hear(child.word)).await;
    let dir = order.places.agent_dir(order.id);
    let record = match word {
        Ok(Ok(Word::Started(record))) => record,
        Ok(Ok(Word::Duplicate)) => {
            reap(child.pid, REAP_LIMIT).await;
            records::try_read::<ShimRecord>(&dir, records::SHIM)
                .map_err(|error| StartError::Doubt(format!("shim.json: {error}")))?
                .filter(|record| record.nonce == order.nonce && record.pid != VOID_PID)
                .ok_or_else(|| StartError::Doubt("another shim has the run and has not said so".to_owned()))?
        }
        Ok(Ok(Word::Error { text, again })) => {
            reap(child.pid, REAP_LIMIT).await;
            return Err(match again {
                Again::Soon => StartError::Later(text),
                Again::IfReplaced => StartError::Missing(text),
                Again::Never => StartError::Never(text),
            });
        }
        Ok(Err(error)) => {
            reap(child.pid, REAP_LIMIT).await;
            return Err(StartError::Doubt(format!("the shim ended without a word: {error}")));
        }
        Err(_) => {
            end_silent(child.pid, order.traces).await;
            return Err(StartError::Doubt("the shim said nothing, and was ended".to_owned()));
        }
    };
    Ok(record)
}

struct Launched {
    pid: i32,
    word: OwnedFd,
}

/// Where the worker is started: the caller's directory. Who has a worktree of its own does not need it, and is started in
/// the repo when it is gone.
fn standing(spec: &SpawnSpec, places: &Places) -> PathBuf {
    match &spec.isolation {
        Isolation::Worktree(_) if !spec.cwd.is_dir() => places.repo().to_owned(),
        Isolation::Worktree(_) | Isolation::None => spec.cwd.clone(),
    }
}

/// Prepares the files and starts the shim. Blocks for as long as that takes.
fn launch(order: &StartOrder, spec: &SpawnSpec) -> Result<Launched, StartError> {
    let places = &order.places;
    let dir = places.agent_dir(order.id);
    for needed in [&places.sockets_dir(), &dir] {
        make_dir(needed).map_err(|error| passing(&needed.display().to_string(), &error))?;
    }
    if !places.repo().is_dir() {
        let repo = places.repo().display();
        return Err(StartError::Later(format!(
            "the repo {repo} is not there; it starts when the repo is back"
        )));
    }
    if !is_program(&order.program) {
        let program = order.program.display();
        return Err(StartError::Missing(format!(
            "its program {program} is not there; is it being replaced?"
        )));
    }
    // Whatever is there: a power failure may have left it empty, and only the registry is synced.
    records::write(&dir, records::SPEC, spec).map_err(|error| passing("spec.json", &error))?;
    if order.is_resumed {
        let before = records::try_read::<ResumeOrder>(&dir, records::RESUME)
            .map_err(|error| passing("resume.json", &error))?;
        let resume = ResumeOrder::new(order.nonce.clone(), order.resume_prompt.as_deref(), before);
        // On the disk before anybody can hear it: that it is not there any more says that it was heard.
        let write = if resume.messages.is_empty() { records::write } else { records::write_durably };
        write(&dir, records::RESUME, &resume).map_err(|error| passing("resume.json", &error))?;
    }
    // The rest of it the worker reads itself.
    let variables = match read_handover(&places.agent_secrets(order.id)) {
        Err(StartError::Never(_)) if !order.has_secrets => BTreeMap::new(),
        read => read?.variables,
    };
    let names = names_of(&variables);
    let args = ShimArgs {
        dir: dir.clone(),
        program: order.program.clone(),
        cwd: standing(spec, places),
        socket: places.agent_socket(order.id),
        nonce: order.nonce.clone(),
        grace_ms: order.grace_ms,
        limits: order.limits,
    };
    // From here on there may be a shim, whatever happens to us. A socket of an earlier run stays: the worker replaces it.
    let launch = LaunchRecord { nonce: order.nonce.clone() };
    records::write(&dir, records::LAUNCH, &launch).map_err(|error| passing("launch.json", &error))?;
    let shim = |program: &Path| {
        Command::new(program)
            .arg0(&order.shim)
            .arg(caliban_contract::modes::SHIM)
            .args(arguments(&args))
            .current_dir(&dir)
            .env_clear()
            .envs(&spec.env)
            .envs(&variables)
            .env(MARKER, &order.marker)
            .env(SECRET_NAMES, &names)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
    };
    let spawned = match shim(&order.shim) {
        Err(error) if is_being_replaced(&error) => shim(Path::new(OWN_LINK)),
        other => other,
    };
    let mut child = spawned.map_err(|error| match is_being_replaced(&error) {
        true => StartError::Later(format!("the shim cannot be started: {error}")),
        false => passing("the shim cannot be started", &error),
    })?;
    let word = child.stdout.take().ok_or_else(|| StartError::Never("no pipe".to_owned()))?;
    let pid = i32::try_from(child.id()).map_err(|_| StartError::Never("no process id".to_owned()))?;
    Ok(Launched { pid, word: word.into() })
}

/// What the worker is told of its secrets, so that it knows a key by whatever name.
pub(super) fn names_of(variables: &BTreeMap<String, String>) -> String {
    variables.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

pub(super) fn read_handover(path: &Path) -> Result<HandedOver, StartError> {
    HandedOver::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => StartError::Never(format!(
            "the secrets in {} cannot be read; resume it with new ones",
            path.display()
        )),
        io::ErrorKind::NotFound => StartError::Never(
            "its secrets are gone (they do not outlive a reboot); `caliban resume` takes yours".to_owned(),
        ),
        _ => passing("its secrets", &error),
    })
}

/// An error of a start: one that passes by itself, or not.
fn passing(what: &str, error: &io::Error) -> StartError {
    let text = format!("{what}: {error}");
    if passes(error) { StartError::Later(text) } else { StartError::Never(text) }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The shim's word.
async fn hear(word: OwnedFd) -> io::Result<Word> {
    rustix::io::ioctl_fionbio(&word, true)?;
    let mut pipe = Receiver::from_owned_fd(word)?;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < WORD_CAP {
        let mut chunk = [0; 1024];
        match pipe.read(&mut chunk).await? {
            0 => break,
            n => line.extend_from_slice(&chunk[..n]),
        }
    }
    serde_json::from_slice(&line).map_err(io::Error::other)
}

/// Ends a shim that does not say how it stands, so that it never starts a worker that nobody knows of.
async fn end_silent(pid: i32, traces: Traces) {
    // It is our child and its end was not taken, so nobody else can have the number.
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone_already = rustix::process::kill_process(pid, Signal::KILL);
    }
    reap(pid, REAP_LIMIT).await;
    let strays = tokio::task::spawn_blocking(move || process::end_strays(&[traces])).await;
    if !matches!(strays, Ok(Ok(strays)) if strays.left == 0) {
        tracing::error!("what a silent shim left cannot be ended: {strays:?}");
    }
}

/// Takes the end of a shim that has said its last word. One that lives on all the same (only we could not hear it) is left
/// alone: its end is taken when it is seen.
async fn reap(pid: i32, limit: Duration) {
    let Some(id) = Pid::from_raw(pid) else { return };
    let mut patience = Patience::new(limit);
    while let Ok(None) | Err(Errno::INTR) = rustix::process::waitpid(Some(id), WaitOptions::NOHANG) {
        tokio::select! {
            () = patience.over() => return,
            () = tokio::time::sleep(REAP_PAUSE) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[expect(clippy::zombie_processes, reason = "its end is taken by what is tested")]
    async fn a_shim_that_lives_on_holds_up_nobody_and_the_end_of_one_that_leaves_is_taken() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        reap(pid, Duration::from_millis(20)).await;
        assert!(!process::stat(pid).unwrap().is_over());
        child.stdin.take();
        reap(pid, Duration::from_secs(60)).await;
        assert!(process::stat(pid).is_none());
    }
}
