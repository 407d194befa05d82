//! What happens without us: workers replace their `status.json`, shims end.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use caliban_core::ids::AgentId;
use rustix::fs::inotify;
use rustix::process::{Pid, WaitOptions};
use tokio::io::unix::AsyncFd;

use super::agent::DaemonAgent;
use super::phase::{Alive, Keeper};
use super::{Msg, Owner, decide};
use crate::process;
use crate::records::{self, ExitRecord};

/// How often it is tried again to end what a killed shim left, or to look for it.
const AGAIN: Duration = Duration::from_secs(1);
/// How often a last word that cannot be read is looked at before it counts as not there.
const LAST_WORD_LOOKS: u32 = 30;
/// Hunts for what killed shims left, at once.
static HUNTS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);
/// Bytes of news that are read at once.
const NEWS: usize = 4096;

/// Tells whose directory has a new file. Without it (no watches left) the owner looks every tick.
pub(super) struct Watch {
    source: Option<AsyncFd<OwnedFd>>,
    dirs: BTreeMap<i32, AgentId>,
    by_id: BTreeMap<AgentId, i32>,
}

impl Watch {
    pub(super) fn new() -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let source = inotify::init(flags).map_err(std::io::Error::from).and_then(asynchronous);
        if let Err(error) = &source {
            tracing::warn!("changes are seen once a second only: {error}");
        }
        Self { source: source.ok(), dirs: BTreeMap::new(), by_id: BTreeMap::new() }
    }

    pub(super) fn add(&mut self, id: AgentId, dir: &Path) {
        let Some(source) = &self.source else { return };
        if self.by_id.contains_key(&id) {
            return;
        }
        // Best effort: without it the owner still looks every tick.
        if let Ok(watch) = inotify::add_watch(source.get_ref(), dir, inotify::WatchFlags::MOVED_TO) {
            self.dirs.insert(watch, id);
            self.by_id.insert(id, watch);
        }
    }

    pub(super) fn remove(&mut self, id: AgentId) {
        let Some(source) = &self.source else { return };
        if let Some(watch) = self.by_id.remove(&id) {
            self.dirs.remove(&watch);
            let _gone_already = inotify::remove_watch(source.get_ref(), watch);
        }
    }

    fn covers(&self, id: AgentId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) async fn changed(&self) {
        match &self.source {
            Some(source) if source.readable().await.is_ok() => {}
            _ => std::future::pending().await,
        }
    }

    /// Takes the news: who has a new file.
    fn news(&mut self) -> BTreeSet<AgentId> {
        let mut changed = BTreeSet::new();
        let Some(source) = &mut self.source else { return changed };
        let mut buffer = [MaybeUninit::uninit(); NEWS];
        let mut overflow = false;
        {
            let mut reader = inotify::Reader::new(source.get_ref(), &mut buffer);
            while let Ok(event) = reader.next() {
                overflow |= event.events().contains(inotify::ReadFlags::QUEUE_OVERFLOW);
                changed.extend(self.dirs.get(&event.wd()).copied());
            }
        }
        // All has been read: wait for the next.
        if let Some(Ok(mut guard)) = readiness(source) {
            guard.clear_ready();
        }
        if overflow {
            changed.extend(self.by_id.keys().copied());
        }
        changed
    }
}

#[expect(deprecated, reason = "its successor is unsafe for handles that are not owned; ours are")]
fn asynchronous(fd: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, tokio::io::Interest::READABLE)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whom {
    All,
    NotCovered,
}

/// The readiness of a source, if it is ready.
fn readiness(
    source: &AsyncFd<OwnedFd>,
) -> Option<std::io::Result<tokio::io::unix::AsyncFdReadyGuard<'_, OwnedFd>>> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match source.poll_read_ready(&mut context) {
        std::task::Poll::Ready(guard) => Some(guard),
        std::task::Poll::Pending => None,
    }
}

impl Owner {
    /// Follows whoever has said something new.
    pub(super) fn refresh(&mut self) {
        for id in self.watch.news() {
            self.follow(id);
        }
    }

    /// Looks at those who live and are not covered by the watch; now and then at all, for file systems whose
    /// changes are not told.
    pub(super) fn refresh_all(&mut self, whom: Whom) {
        let is_looked_at = |agent: &DaemonAgent| {
            agent.shim().is_some() && (whom == Whom::All || !self.watch.covers(agent.record.id))
        };
        for id in self.ids_of(is_looked_at) {
            self.follow(id);
        }
    }

    /// Follows what the shim and the worker say.
    pub(super) fn follow(&mut self, id: AgentId) {
        self.name_worker(id);
        let Some(agent) = self.agents.get_mut(&id) else { return };
        if !agent.read_report(&self.places) {
            return;
        }
        let events = match (agent.shim().is_some(), agent.own_report()) {
            (true, Some(report)) => decide::follow(&agent.record.status, report),
            _ => Vec::new(),
        };
        if events.is_empty() {
            return self.publish(id);
        }
        for event in events {
            self.apply(id, event);
        }
        // One who became idle has freed a place.
        self.start_ready();
    }

    /// Waits for the end of a run that is watched.
    pub(super) fn watch_run(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get(&id) else { return };
        let Some(Keeper::Alive(alive)) = agent.run().map(|run| &run.keeper) else { return };
        let traces = agent.traces(Some(&alive.shim));
        let (alive, nonce, dir) = (alive.clone(), agent.record.nonce.clone(), self.places.agent_dir(id));
        self.watch.add(id, &dir);
        self.later(async move {
            let exit = wait_for_end(&alive, &dir, &nonce, traces).await?;
            Some(Msg::Gone { id, nonce, exit })
        });
    }

    /// Tries again to watch those whom we could not.
    pub(super) fn look_again(&mut self) {
        for id in
            self.ids_of(|agent| agent.run().is_some_and(|run| matches!(run.keeper, Keeper::Unwatched(_))))
        {
            self.look(id);
        }
    }

    /// Looks at the shim of an agent: watches it, or finds that the run is over.
    pub(super) fn look(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let Some(Keeper::Unwatched(shim)) = agent.run().map(|run| run.keeper.clone()) else { return };
        let (traces, nonce) = (agent.traces(Some(&shim)), agent.record.nonce.clone());
        let Some(run) = agent.run_mut() else { return };
        match open(&shim) {
            Ok(Some(alive)) => {
                run.keeper = Keeper::Alive(alive);
                self.watch_run(id);
                self.end_run(id);
            }
            Ok(None) => {
                run.keeper = Keeper::Clearing;
                let dir = self.places.agent_dir(id);
                self.later(async move {
                    let exit = clear_up(&dir, &nonce, traces).await?;
                    // Over before it could be watched; perhaps it is our child.
                    take_end(&shim);
                    Some(Msg::Gone { id, nonce, exit })
                });
            }
            Err(error) => tracing::warn!(%id, "its shim cannot be watched now: {error}"),
        }
    }
}

/// A handle on a living shim; none when it is gone.
pub(super) fn open(shim: &records::ShimRecord) -> std::io::Result<Option<Alive>> {
    let Some(process) = process::open(shim.pid, shim.start_time)? else { return Ok(None) };
    let process = std::sync::Arc::new(asynchronous(process)?);
    Ok(Some(Alive { shim: shim.clone(), process }))
}

/// Waits for the shim's end and for that of everything below it.
async fn wait_for_end(
    alive: &Alive,
    dir: &Path,
    nonce: &str,
    traces: process::Traces,
) -> Option<Option<ExitRecord>> {
    let ended = alive.process.readable().await;
    if let Err(error) = ended {
        tracing::error!("a shim cannot be watched: {error}");
        return None;
    }
    let exit = clear_up(dir, nonce, traces).await;
    take_end(&alive.shim);
    exit
}

/// Takes the end of a shim, when nothing of its run is left: until then nobody else gets its number, nor that of its
/// session. It is our child unless an earlier daemon started it; then another child of ours may have the number by now.
fn take_end(shim: &records::ShimRecord) {
    let is_it = process::stat(shim.pid).is_some_and(|stat| stat.start_time == shim.start_time);
    if let Some(pid) = Pid::from_raw(shim.pid).filter(|_| is_it) {
        let _not_ours = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    }
}

/// The last word of a shim that is gone. Without one it was killed, and what it left is ended first.
async fn clear_up(dir: &Path, nonce: &str, traces: process::Traces) -> Option<Option<ExitRecord>> {
    for look in 1.. {
        match records::try_read::<ExitRecord>(dir, records::EXIT) {
            Ok(Some(exit)) if exit.nonce == nonce => return Some(Some(exit)),
            Ok(_) => break,
            // Out of descriptors it is there all the same, and can be read soon.
            Err(error) if look < LAST_WORD_LOOKS || crate::shim::passes(&error) => {
                tracing::warn!("{}: {error}", dir.join(records::EXIT).display());
            }
            Err(error) => {
                tracing::error!("{}: {error}; taken as not there", dir.join(records::EXIT).display());
                break;
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
    loop {
        let runs = [traces.clone()];
        // Few at a time: each may take seconds, and starts wait for the same threads.
        let hunt = HUNTS.acquire().await;
        let found = tokio::task::spawn_blocking(move || process::end_strays(&runs)).await;
        drop(hunt);
        match found {
            Ok(Ok(strays)) if strays.left == 0 => {
                if strays.ended > 0 {
                    tracing::warn!(
                        "{}: its shim was killed; {} processes ended",
                        traces.marker,
                        strays.ended
                    );
                }
                return Some(None);
            }
            Ok(Ok(strays)) => {
                tracing::error!("{}: {} processes cannot be ended", traces.marker, strays.left);
            }
            Ok(Err(error)) => tracing::warn!("{}: cannot look for processes: {error}", traces.marker),
            Err(error) => tracing::error!("{}: {error}", traces.marker),
        }
        tokio::time::sleep(AGAIN).await;
    }
}
