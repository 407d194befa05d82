//! Places over all repos (`fleet.max_running_user`): one link for each agent that takes a place, in a directory that all
//! daemons of the user share (ADR 0086).
//!
//! A link counts as long as the shim that it names lives, so nothing is lost or leaked when daemons or agents are killed.
//! Only whoever wants a place counts, under a lock. Daemons that wait say so in links of their own, by which the order
//! between repos is kept; whoever frees a place rings. Everything here happens in one task, in order, beside the owner.
//!
//! The text of a link is so short that it is in the directory: it needs no room on a full disk, and gives none back.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use caliban_contract::monotonic_ms;
use caliban_core::ids::AgentId;
use caliban_core::priority::Priority;
use caliban_process::Patience;
use caliban_store::doorbell::{Bell, Bells};
use tokio::sync::mpsc;

use super::{Msg, Owner};
use crate::places::{Places, private_dir};
use crate::process;
use crate::records::{self, LaunchRecord, ShimRecord};

/// The directory, beside those of the repos.
const DIRECTORY: &str = "running";
/// Held while places are counted.
const LOCK: &str = ".lock";
/// Where those who wait listen, and for what.
const BELLS: &str = ".bells";
const ROOM: &str = "place";
/// The file of a daemon that waits, in front of its repo's hash.
const WAITS: &str = "waits-";
/// How long another daemon may hold the lock before this one tries again at its next look.
const LOCK_LIMIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// A daemon that waits says so every second. One that has not for this long is not waited for.
const STALE_MS: u64 = 5_000;
/// How long a shim may take to say that it lives, when the daemon that launched it is gone.
const LAUNCH_MS: u64 = 60_000;

/// Characters of a boot's and of a run's name: enough to tell them apart.
const BOOT_CHARS: usize = 8;
const NONCE_CHARS: usize = 16;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pid: i32,
    start_time: u64,
    /// The first characters of the boot's id.
    boot: String,
}

/// One agent that takes a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TakenSlot {
    /// Its shim; before that is known, the daemon that starts it.
    holder: Holder,
    /// The first characters of its run's name.
    nonce: String,
    /// When this was written, by the monotonic clock.
    at_ms: u64,
}

/// A daemon that waits for a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waits {
    holder: Holder,
    /// The priority of its next agent.
    priority: Priority,
    /// Since when, by the monotonic clock.
    since_ms: u64,
    /// When it said so last.
    at_ms: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.pid, self.start_time, self.boot)
    }
}

impl Holder {
    fn parse<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<Self> {
        let (pid, start_time) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { pid, start_time, boot: words.next()?.to_owned() })
    }
}

impl fmt::Display for TakenSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.holder, self.nonce, self.at_ms)
    }
}

impl TakenSlot {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (holder, nonce) = (Holder::parse(&mut words)?, words.next()?.to_owned());
        Some(Self { holder, nonce, at_ms: words.next()?.parse().ok()? })
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.holder, self.priority, self.since_ms, self.at_ms)
    }
}

impl Waits {
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let (holder, priority) = (Holder::parse(&mut words)?, words.next()?.parse().ok()?);
        Some(Self {
            holder,
            priority,
            since_ms: words.next()?.parse().ok()?,
            at_ms: words.next()?.parse().ok()?,
        })
    }
}

/// An agent that wants a place.
#[derive(Debug, Clone)]
pub(super) struct WantedSlot {
    pub(super) id: AgentId,
    pub(super) nonce: String,
    pub(super) priority: Priority,
}

enum SlotJob {
    /// Takes places for as many as there are.
    Take {
        wanted: Vec<WantedSlot>,
        limit: u32,
        since_ms: u64,
    },
    /// This daemon waits no more.
    Rest,
    Hold(AgentId, String, Holder),
    Release(AgentId),
    /// Only these agents of the repo have places.
    Only(BTreeSet<AgentId>),
}

/// What the owner knows.
pub(super) struct Slots {
    jobs: mpsc::UnboundedSender<SlotJob>,
    /// Who has a file, and the shim that it names.
    registered: BTreeMap<AgentId, Option<i32>>,
    is_asking: bool,
    /// Since when the next agent waits for others' places.
    waits_since: Option<u64>,
}

impl Slots {
    /// The owner's side, and the task, which ends with it.
    pub(super) fn new(places: &Places, inbox: mpsc::Sender<Msg>) -> (Self, impl Future<Output = ()> + use<>) {
        let (jobs, queue) = mpsc::unbounded_channel();
        let desk = SlotDirectory::new(places);
        (
            Self { jobs, registered: BTreeMap::new(), is_asking: false, waits_since: None },
            keep(desk, queue, inbox),
        )
    }

    /// Whether the next agent waits for places of other repos.
    pub(super) fn is_full(&self) -> bool {
        self.waits_since.is_some()
    }

    fn ask(&self, job: SlotJob) {
        let _task_ended = self.jobs.send(job);
    }
}

impl Owner {
    /// Asks for places for these agents, the first first. They start when they have them.
    pub(super) fn take_slots(&mut self, wanted: Vec<WantedSlot>, limit: u32) {
        if self.slots.is_asking {
            return;
        }
        if wanted.is_empty() {
            if self.slots.waits_since.take().is_some() {
                self.slots.ask(SlotJob::Rest);
            }
            return;
        }
        self.slots.is_asking = true;
        let since_ms = self.slots.waits_since.unwrap_or_else(monotonic_ms);
        self.slots.ask(SlotJob::Take { wanted, limit, since_ms });
    }

    /// Some of those who were asked for have a place.
    pub(super) fn slots_taken(&mut self, granted: Vec<AgentId>, is_full: bool) {
        self.slots.is_asking = false;
        // Whoever got a place stands behind the others for the next one.
        self.slots.waits_since = match (is_full, self.slots.waits_since) {
            (false, _) => None,
            (true, Some(since)) if granted.is_empty() => Some(since),
            (true, _) => Some(monotonic_ms()),
        };
        for id in granted {
            self.slots.registered.insert(id, None);
            self.start_run(id);
            self.sync_slot(id);
        }
        if !is_full {
            self.start_ready();
        }
    }

    /// Says whether an agent takes a place, where that has changed.
    pub(super) fn sync_slot(&mut self, id: AgentId) {
        let agent = self.agents.get(&id).filter(|agent| agent.takes_place());
        let known = self.slots.registered.get(&id);
        let shim = agent.and_then(|agent| Some((agent.shim()?, agent.record.nonce.clone())));
        match (agent, shim) {
            (None, _) if known.is_some() => {
                self.slots.registered.remove(&id);
                self.slots.ask(SlotJob::Release(id));
            }
            (Some(_), Some((shim, nonce))) if known != Some(&Some(shim.pid)) => {
                let holder = Holder::of(shim);
                self.slots.registered.insert(id, Some(shim.pid));
                self.slots.ask(SlotJob::Hold(id, nonce, holder));
            }
            _ => {}
        }
    }

    /// At its start a daemon says what its agents take. What the last one said of others is void.
    pub(super) fn adopt_slots(&mut self) {
        let ids: Vec<AgentId> = self.agents.keys().copied().collect();
        let taking = |id: &AgentId| self.agents.get(id).is_some_and(|agent| agent.takes_place());
        self.slots.ask(SlotJob::Only(ids.iter().copied().filter(taking).collect()));
        for id in ids {
            self.sync_slot(id);
        }
    }
}

impl Holder {
    fn of(shim: &ShimRecord) -> Self {
        Self { pid: shim.pid, start_time: shim.start_time, boot: first(&shim.boot_id, BOOT_CHARS) }
    }

    fn own() -> io::Result<Self> {
        let pid = rustix::process::getpid().as_raw_nonzero().get();
        let stat = process::stat(pid).ok_or_else(|| io::Error::other("/proc cannot be read"))?;
        Ok(Self { pid, start_time: stat.start_time, boot: first(&process::boot_id()?, BOOT_CHARS) })
    }

    /// Whether it lives, in this boot.
    fn is_alive(&self, boot: &str) -> bool {
        let is_it = |stat: caliban_process::Stat| stat.start_time == self.start_time && !stat.is_over();
        self.boot == boot && process::stat(self.pid).is_some_and(is_it)
    }
}

fn first(text: &str, count: usize) -> String {
    text.chars().take(count).collect()
}

impl TakenSlot {
    /// Whether it takes a place; `dir` is the agent's directory.
    fn counts(&self, dir: &Path, boot: &str) -> bool {
        if self.holder.is_alive(boot) {
            return true;
        }
        // The daemon that started it may have been killed before it knew the shim.
        let is_its = |nonce: &str| first(nonce, NONCE_CHARS) == self.nonce;
        let shim: Option<ShimRecord> = records::read(dir, records::SHIM);
        match shim.filter(|shim| is_its(&shim.nonce)) {
            Some(shim) => Holder::of(&shim).is_alive(boot),
            None => {
                let launch: Option<LaunchRecord> = records::read(dir, records::LAUNCH);
                let is_fresh = monotonic_ms().saturating_sub(self.at_ms) < LAUNCH_MS;
                launch.is_some_and(|launch| is_its(&launch.nonce)) && is_fresh && self.holder.boot == boot
            }
        }
    }
}

/// The directory, as one daemon sees it.
#[derive(Debug, Clone)]
struct SlotDirectory {
    dir: PathBuf,
    /// Where the repos' own directories are.
    repos: PathBuf,
    /// The repo's hash, in front of the names of its agents' links.
    hash: String,
}

impl SlotDirectory {
    fn new(places: &Places) -> Self {
        // `…/caliban/repos/<hash>`.
        let repos = places.base().parent().unwrap_or(places.base());
        let data = repos.parent().unwrap_or(repos);
        Self { dir: data.join(DIRECTORY), repos: repos.to_owned(), hash: places.hash().to_owned() }
    }

    fn file(&self, id: AgentId) -> PathBuf {
        self.dir.join(format!("{}.{id}", self.hash))
    }

    fn waits(&self) -> PathBuf {
        self.dir.join(format!("{WAITS}{}", self.hash))
    }

    fn bells(&self) -> Bells {
        Bells::at(self.dir.join(BELLS))
    }

    /// Puts a link in the place of one of the same name.
    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        private_dir(&self.dir).map_err(io::Error::other)?;
        // Hidden from those who count, and our own: the daemon is alone in its repo.
        let new = self.dir.join(format!(".{}.new", self.hash));
        let _left_over = fs::remove_file(&new);
        std::os::unix::fs::symlink(text, &new)?;
        fs::rename(&new, path)
    }

    fn read(&self, name: &str) -> Option<String> {
        fs::read_link(self.dir.join(name)).ok()?.into_os_string().into_string().ok()
    }

    /// The directory of the agent that a link is about.
    fn agent_dir(&self, name: &str) -> Option<PathBuf> {
        let (hash, id) = name.split_once('.')?;
        Some(self.repos.join(hash).join("agents").join(id))
    }

    fn hold(&self, id: AgentId, nonce: &str, holder: Holder) -> io::Result<()> {
        let entry = TakenSlot { holder, nonce: first(nonce, NONCE_CHARS), at_ms: monotonic_ms() };
        self.write(&self.file(id), &entry.to_string())
    }

    fn release(&self, id: AgentId) {
        if fs::remove_file(self.file(id)).is_ok() {
            self.bells().ring(ROOM);
        }
    }

    fn only(&self, kept: &BTreeSet<AgentId>) {
        let _was_not_there = fs::remove_file(self.waits());
        for name in self.names() {
            let own = name.strip_prefix(&self.hash).and_then(|rest| rest.strip_prefix('.'));
            if let Some(id) = own.and_then(|id| id.parse().ok()).filter(|id| !kept.contains(id)) {
                self.release(id);
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// The lock, for as long as the file is open.
    fn lock(&self) -> io::Result<Option<File>> {
        private_dir(&self.dir).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(self.dir.join(LOCK))?;
        let began = std::time::Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(fs::TryLockError::WouldBlock) if began.elapsed() < LOCK_LIMIT => {
                    std::thread::sleep(LOCK_PAUSE);
                }
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                Err(fs::TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Takes places for as many as there are and others leave; whether somebody got none.
    fn take(&self, wanted: &[WantedSlot], limit: u32, since_ms: u64) -> io::Result<(Vec<AgentId>, bool)> {
        let Some(_locked) = self.lock()? else { return Ok((Vec::new(), true)) };
        let own = Holder::own()?;
        let boot = own.boot.as_str();
        let (mut taken, mut others) = (0, Vec::new());
        for name in self.names() {
            if let Some(hash) = name.strip_prefix(WAITS) {
                let waits = self.read(&name).and_then(|text| Waits::parse(&text));
                let is_there = |waits: &Waits| {
                    monotonic_ms().saturating_sub(waits.at_ms) < STALE_MS && waits.holder.is_alive(boot)
                };
                others.extend(waits.filter(|waits| hash != self.hash && is_there(waits)));
                continue;
            }
            let entry = self.read(&name).and_then(|text| TakenSlot::parse(&text)).zip(self.agent_dir(&name));
            match entry {
                Some((entry, dir)) if entry.counts(&dir, boot) => taken += 1,
                // Nobody has it any more.
                _ => drop(fs::remove_file(self.dir.join(&name))),
            }
        }
        let mut free = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(taken);
        let mut granted = Vec::new();
        let mut since_ms = since_ms;
        for agent in wanted {
            let ahead = |other: &&Waits| {
                (std::cmp::Reverse(other.priority), other.since_ms)
                    < (std::cmp::Reverse(agent.priority), since_ms)
            };
            if others.iter().filter(ahead).count() >= free {
                let (holder, priority, at_ms) = (own, agent.priority, monotonic_ms());
                let waits = Waits { holder, priority, since_ms, at_ms };
                let noted = self.write(&self.waits(), &waits.to_string());
                return if granted.is_empty() {
                    noted.map(|()| (granted, true))
                } else {
                    Ok((granted, true))
                };
            }
            match self.hold(agent.id, &agent.nonce, own.clone()) {
                Ok(()) => granted.push(agent.id),
                // Whoever has a place starts; the others ask again.
                Err(error) if granted.is_empty() => return Err(error),
                Err(_) => return Ok((granted, true)),
            }
            free -= 1;
            since_ms = monotonic_ms();
        }
        let _was_not_there = fs::remove_file(self.waits());
        Ok((granted, false))
    }
}

async fn keep(desk: SlotDirectory, mut jobs: mpsc::UnboundedReceiver<SlotJob>, inbox: mpsc::Sender<Msg>) {
    let mut bell: Option<Bell> = None;
    loop {
        let rung = async {
            match &mut bell {
                Some(bell) => bell.rung().await.is_ok(),
                None => std::future::pending().await,
            }
        };
        let job = tokio::select! {
            job = jobs.recv() => match job {
                Some(job) => job,
                None => break,
            },
            is_well = rung => {
                if !is_well {
                    bell = None;
                }
                let _owner_left = inbox.send(Msg::SlotFree).await;
                continue;
            }
        };
        let (desk, is_waited_for) = (desk.clone(), matches!(job, SlotJob::Take { .. }));
        // Before it is counted: a place that gets free in between is heard.
        if is_waited_for && bell.is_none() {
            bell = desk.bells_dir().and_then(|bells| bells.listen(ROOM)).ok();
        }
        let done = tokio::task::spawn_blocking(move || desk.carry_out(job)).await;
        let outcome = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        match outcome {
            Ok(Some((granted, is_full))) => {
                if !is_full {
                    bell = None;
                }
                let _owner_left = inbox.send(Msg::SlotsTaken { granted, is_full }).await;
            }
            Ok(None) => {}
            Err(error) if is_waited_for => {
                tracing::warn!("places of all repos cannot be counted, tried again soon: {error}");
                let mut patience = Patience::new(LOCK_LIMIT);
                patience.over().await;
                let _owner_left = inbox.send(Msg::SlotsTaken { granted: Vec::new(), is_full: true }).await;
            }
            Err(error) => tracing::warn!("other repos are not told who runs here: {error}"),
        }
    }
}

impl SlotDirectory {
    /// The bells, whose directory is there.
    fn bells_dir(&self) -> io::Result<Bells> {
        private_dir(&self.dir).map_err(io::Error::other)?;
        Ok(self.bells())
    }

    fn carry_out(&self, job: SlotJob) -> io::Result<Option<(Vec<AgentId>, bool)>> {
        match job {
            SlotJob::Take { wanted, limit, since_ms } => {
                return self.take(&wanted, limit, since_ms).map(Some);
            }
            SlotJob::Rest => drop(fs::remove_file(self.waits())),
            SlotJob::Hold(id, nonce, holder) => self.hold(id, &nonce, holder)?,
            SlotJob::Release(id) => self.release(id),
            SlotJob::Only(kept) => self.only(&kept),
        }
        Ok(None)
    }
}
