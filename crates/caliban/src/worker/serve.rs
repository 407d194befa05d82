//! The agent's own socket: anybody of the same user may attach. One that was taken away (a logout, a tmp cleaner) is
//! bound again. The secrets of a person's shell are known before its first word is read, so that what is said does not
//! bring them to the disk (a12).

use std::{
    ffi::OsString,
    io::Read as _,
    os::unix::ffi::OsStringExt as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use caliban_acp_host::{Say, ServeOptions, Sessions, serve};
use caliban_contract::ancestry::{self, Ancestry};
use caliban_contract::modes;
use caliban_contract::sockets::{self, Bound};
use caliban_core::redact::Redactor;
use tokio::{net::UnixListener, task::JoinSet};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    report::Failure,
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
pub(super) struct Server {
    clients: Arc<AtomicUsize>,
    ending: CancellationToken,
    accepting: Option<AbortOnDropHandle<()>>,
}

impl Server {
    /// Listens at `path`, which becomes visible only when it is ready. `redactor` is the agent's.
    pub(super) fn listen(path: &Path, sessions: Arc<Sessions>, redactor: Redactor) -> Result<Self, Failure> {
        let cannot =
            |error: std::io::Error| Failure::new(format!("cannot listen at {}: {error}", path.display()));
        let (listener, bound) = sockets::bind(path).map_err(cannot)?;
        let place = Place { listener, bound, told: path.to_owned() };
        let (clients, ending) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
        let accepting = tokio::spawn(accept(place, sessions, redactor, clients.clone(), ending.clone()));
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
struct Place {
    listener: UnixListener,
    bound: Bound,
    /// Where we were told to.
    told: std::path::PathBuf,
}

impl Place {
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
    mut place: Place,
    sessions: Arc<Sessions>,
    redactor: Redactor,
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
        let (sessions, redactor, clients) = (sessions.clone(), redactor.clone(), clients.clone());
        clients.fetch_add(1, Ordering::Relaxed);
        served.spawn(async move {
            let (reader, writer) = stream.into_split();
            let pid = peer.and_then(|peer| peer.pid());
            let say = say(pid);
            // An agent's process teaches nothing: it could hide what was done from whoever reads the transcript.
            if let (Say::Full, Some(pid)) = (&say, pid) {
                match environment_of(pid) {
                    Ok(environment) => redactor.learn(spoken_secrets(&environment)),
                    Err(error) => tracing::warn!(%error, pid, "a client's secrets are not known"),
                }
            }
            let options = ServeOptions { say, ..ServeOptions::socket(env!("CARGO_PKG_VERSION")) };
            if let Err(error) = serve(reader, writer, sessions, options).await {
                tracing::debug!(%error, "a client is gone");
            }
            clients.fetch_sub(1, Ordering::Relaxed);
        });
    }
    place.bound.remove();
    while served.join_next().await.is_some() {}
}

/// Who connects decides nothing when it is an agent's process: one could allow another what nobody has allowed (a10, a11).
fn say(peer: Option<i32>) -> Say {
    let ancestry = peer.map_or(Ancestry::Unknown, |pid| ancestry::above(pid, &[modes::REAP]));
    ancestry.agent_in_words().map_or(Say::Full, Say::None)
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
