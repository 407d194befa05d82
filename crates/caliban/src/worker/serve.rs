//! The agent's own socket: anybody of the same user may attach. One that was taken away (a logout, a tmp cleaner) is
//! bound again. The secrets of a person's shell are known before its first word is read, so that what is said does not
//! bring them to the disk (a12). The daemon says for which process it speaks, and that process is judged (ADR 0041).

use std::{
    ffi::OsString,
    io::Read as _,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use caliban_acp::extension::{Behalf, SecretsRequest};
use caliban_acp_host::{Caller, Judge, Learn, Say, ServeOptions, Sessions, serve};
use caliban_contract::ancestry::{self, AgentProcess, Ancestry};
use caliban_contract::sockets::{self, Bound};
use caliban_contract::{lock, records};
use caliban_core::{
    ids::AgentId,
    inert,
    redact::Redactor,
    spec::{MAX_DEPTH, SpawnSpec},
};
use tokio::{net::UnixListener, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    report::{Failure, Result},
    settings::{Environment, tool_environment::spoken_secrets},
};

/// How long clients that are attached at the end may take to read what is left.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often it is looked whether the socket is still there. Whoever wants to connect waits longer than that.
const LOOK: Duration = Duration::from_secs(2);
/// How many may be attached at once.
const MAX_CLIENTS: usize = 64;
/// The most that is read of a client's environment: all that a process can be started with, in practice.
const ENVIRONMENT_CAP: u64 = 4 * 1024 * 1024;

/// The listening end.
pub(super) struct WorkerServer {
    clients: Arc<AtomicUsize>,
    ending: CancellationToken,
    accepting: Option<AbortOnDropHandle<()>>,
}

impl WorkerServer {
    /// Listens at `path`, which becomes visible only when it is ready. `directory` and `redactor` are the agent's.
    pub(super) fn listen(
        path: &Path,
        directory: &Path,
        sessions: Arc<Sessions>,
        redactor: Redactor,
    ) -> Result<Self> {
        let cannot =
            |error: std::io::Error| Failure::new(format!("cannot listen at {}: {error}", path.display()));
        let (listener, bound) = sockets::bind(path).map_err(cannot)?;
        let place = ListeningSocket { listener, bound, told: path.to_owned() };
        let (clients, ending) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        // `<base>/agents/<id>` is the agent's directory.
        let base = directory.ancestors().nth(2).unwrap_or(directory);
        let daemon_lock = base.join(caliban_process::DAEMON_LOCK);
        let door = Door { daemon_lock, directory: directory.to_owned(), redactor };
        let accepting = tokio::spawn(accept(place, sessions, door, clients.clone(), ending.clone()));
        let accepting = Some(AbortOnDropHandle::new(accepting));
        Ok(Self { clients, ending, accepting })
    }

    /// Whether somebody is attached.
    pub(super) fn has_clients(&self) -> bool {
        self.clients.load(Ordering::Relaxed) > 0
    }

    /// Takes no more clients, and gives those that are there a moment to read the end.
    pub(super) async fn finish(mut self) {
        self.ending.cancel();
        if let Some(accepting) = self.accepting.take() {
            let _late = tokio::time::timeout(LAST_WORDS, accepting).await;
        }
    }
}

/// Where we listen.
struct ListeningSocket {
    listener: UnixListener,
    bound: Bound,
    /// Where we were told to.
    told: std::path::PathBuf,
}

impl ListeningSocket {
    /// Makes sure that we can be found.
    fn keep(&mut self) {
        if self.bound.is_there() {
            return;
        }
        match sockets::bind_agent_again(&self.told) {
            Ok((listener, bound)) => {
                tracing::warn!(path = %bound.path().display(), "the socket was taken away; listening again");
                (self.listener, self.bound) = (listener, bound);
            }
            Err(error) => tracing::warn!(%error, "the socket was taken away and cannot be made again"),
        }
    }
}

async fn accept(
    mut place: ListeningSocket,
    sessions: Arc<Sessions>,
    door: Door,
    clients: Arc<AtomicUsize>,
    ending: CancellationToken,
) {
    let mut served = JoinSet::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let accepted = tokio::select! {
            accepted = place.listener.accept() => accepted,
            Some(_) = served.join_next() => continue,
            _ = look.tick() => {
                place.keep();
                continue;
            }
            () = ending.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, mostly: wait for somebody to leave instead of spinning.
                tracing::warn!(%error, "cannot accept");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let peer = stream.peer_cred().ok();
        let is_ours = peer.is_some_and(|peer| peer.uid() == rustix::process::geteuid().as_raw());
        if !is_ours || served.len() >= MAX_CLIENTS {
            continue;
        }
        let (sessions, door, clients) = (sessions.clone(), door.clone(), clients.clone());
        clients.fetch_add(1, Ordering::Relaxed);
        served.spawn(async move {
            let (reader, writer) = stream.into_split();
            let options = door.options(peer.and_then(|peer| peer.pid()));
            if let Err(error) = serve(reader, writer, sessions, options).await {
                tracing::debug!(%error, "a client is gone");
            }
            clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
    place.bound.remove();
    while served.join_next().await.is_some() {}
}

/// Judges whoever connects.
#[derive(Clone)]
struct Door {
    /// The lock of this fleet's daemon.
    daemon_lock: PathBuf,
    /// The agent's directory.
    directory: PathBuf,
    redactor: Redactor,
}

impl Door {
    /// How a client is served.
    fn options(self, peer: Option<i32>) -> ServeOptions {
        let options = ServeOptions::socket(env!("CARGO_PKG_VERSION"));
        match peer {
            // Wherever the daemon itself was started, it decides nothing, and speaks for the one who asks it.
            Some(pid) if lock::is_daemon(&self.daemon_lock, pid) => {
                let caller = Caller::nobody("the daemon, which does not say for whom it speaks,");
                let judge = Judge(Arc::new(move |behalf| self.judge(behalf)));
                ServeOptions { caller, judge: Some(judge), ..options }
            }
            peer => {
                let caller = self.caller(peer);
                let learn = Learn(Arc::new(move |told: SecretsRequest| self.redactor.learn(told.secrets)));
                ServeOptions { caller, learn: Some(learn), ..options }
            }
        }
    }

    /// A process that ended since it asked, even if another has its pid now, is nobody's. The daemon has looked whether it may speak.
    fn judge(&self, behalf: Behalf) -> Caller {
        let started = caliban_process::stat(behalf.pid).map(|stat| stat.start_time);
        match started == Some(behalf.start_time) {
            true => self.caller(Some(behalf.pid)),
            false => Caller::nobody(Ancestry::Unknown.agent_in_words().unwrap_or_default()),
        }
    }

    fn caller(&self, pid: Option<i32>) -> Caller {
        Caller { say: self.say(pid), name: pid.and_then(program) }
    }

    /// An agent's process decides nothing: it could allow another what nobody has allowed (a10, a11). It speaks to its own agent, and
    /// to those that this one has started (a19).
    fn say(&self, pid: Option<i32>) -> Say {
        let ancestry = pid.map_or(Ancestry::Unknown, ancestry::above);
        if let Some(who) = ancestry.agent_in_words() {
            // It teaches nothing either: it could hide what was done from whoever reads the transcript.
            return if self.hears(&ancestry) { Say::None(who) } else { Say::Nothing(who) };
        }
        if let Some(pid) = pid {
            match environment_of(pid) {
                Ok(environment) => self.redactor.learn(spoken_secrets(&environment)),
                Err(error) => tracing::warn!(%error, pid, "a client's secrets are not known"),
            }
        }
        Say::Full
    }
}

impl Door {
    fn hears(&self, ancestry: &Ancestry) -> bool {
        let agents = match ancestry {
            Ancestry::Person | Ancestry::Member => return true,
            Ancestry::Agents(agents) => agents,
            Ancestry::Unknown => return false,
        };
        let Some(nearest) = agents.first() else { return false };
        // Its program does what a person or its own rules let it do.
        if nearest.which == AgentProcess::Worker || nearest.dir == self.directory {
            return true;
        }
        let caller = nearest.dir.file_name().and_then(|name| name.to_str()?.parse::<AgentId>().ok());
        let mut directory = self.directory.clone();
        for _ in 0..=MAX_DEPTH {
            let spec: Option<SpawnSpec> = records::read(&directory, records::SPEC);
            let Some(parent) = spec.and_then(|spec| spec.parent) else { return false };
            if caller == Some(parent) {
                return true;
            }
            directory.set_file_name(parent.to_string());
        }
        false
    }
}

/// The program of a process, for people: `caliban (pid 4711)`.
fn program(pid: i32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(format!("{} (pid {pid})", inert::line(name.trim_end())))
}

/// What a client was started with.
fn environment_of(pid: i32) -> std::io::Result<Environment> {
    let mut bytes = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/environ"))?.take(ENVIRONMENT_CAP).read_to_end(&mut bytes)?;
    let variables = bytes.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let part = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        Some((part(&variable[..at]), part(&variable[at + 1..])))
    });
    Ok(variables.collect())
}
