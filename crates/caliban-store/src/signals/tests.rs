//! The broker with a fake that fails and counts on demand, and the files beside a SQLite store.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::*;
use crate::Stamp;
use crate::broker::{
    AgentId, Broker, CreateSession, MailboxScope, NewMessage, PollQuery, SessionId, Speaker,
};

/// Signals within one process. A broken fake can neither listen nor lock; the bells of a mute one fail.
#[derive(Debug, Clone, Default)]
struct InProcess(Arc<Mutex<SharedSignals>>);

#[derive(Debug, Default)]
struct SharedSignals {
    bells: HashMap<String, Arc<Notify>>,
    locked: HashSet<String>,
    rings: Vec<String>,
    listens: usize,
    waits: usize,
    is_broken: bool,
    is_mute: bool,
}

#[derive(Debug)]
struct FakeBell {
    shared: InProcess,
    bell: Arc<Notify>,
}

#[derive(Debug)]
struct FakeLock(InProcess, String);

impl InProcess {
    fn with<T>(&self, work: impl FnOnce(&mut SharedSignals) -> T) -> T {
        work(&mut self.0.lock().expect("the fake"))
    }
}

impl Signals for InProcess {
    fn ring<'a>(&'a self, who: &'a str) -> BoxFuture<'a, ()> {
        self.with(|shared| {
            shared.rings.push(who.to_owned());
            shared.bells.entry(who.to_owned()).or_default().notify_one();
        });
        Box::pin(async {})
    }

    fn listen<'a>(&'a self, who: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Bell>>> {
        let bell = self.with(|shared| {
            shared.listens += 1;
            let bell = shared.bells.entry(who.to_owned()).or_default().clone();
            if shared.is_broken { Err(io::Error::other("broken")) } else { Ok(bell) }
        });
        let shared = self.clone();
        Box::pin(async move { bell.map(|bell| Box::new(FakeBell { shared, bell }) as Box<dyn Bell>) })
    }

    fn try_lock_pane<'a>(&'a self, who: &'a str) -> BoxFuture<'a, io::Result<Option<PaneLock>>> {
        let free = self.with(|shared| {
            if shared.is_broken {
                return Err(io::Error::other("broken"));
            }
            Ok(shared.locked.insert(who.to_owned()))
        });
        let lock = free.map(|free| free.then(|| PaneLock::new(FakeLock(self.clone(), who.to_owned()))));
        Box::pin(async move { lock })
    }
}

impl Bell for FakeBell {
    fn rung(&mut self) -> BoxFuture<'_, io::Result<()>> {
        let is_mute = self.shared.with(|shared| {
            shared.waits += 1;
            shared.is_mute
        });
        Box::pin(async move {
            if is_mute {
                return Err(io::Error::other("mute"));
            }
            self.bell.notified().await;
            Ok(())
        })
    }
}

impl Drop for FakeLock {
    fn drop(&mut self) {
        self.0.with(|shared| shared.locked.remove(&self.1));
    }
}

/// A store whose brokers share a fake, with one mailbox.
struct World {
    _dir: tempfile::TempDir,
    url: StoreUrl,
    signals: InProcess,
    sender: Broker,
    session: SessionId,
    director: AgentId,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let (url, signals) = (StoreUrl::sqlite(dir.path().join("store.db")), InProcess::default());
        let mut sender = open(&url, &signals).await;
        let new = CreateSession { label: None, placement: None };
        let made = sender.create_session(&new, Stamp::now()).await.expect("create");
        let (session, director) = (made.session.id, made.director.id);
        Self { _dir: dir, url, signals, sender, session, director }
    }

    async fn send(&mut self) {
        let (session, from, to) = (self.session, self.director.into(), self.director.into());
        let new = NewMessage { session, from, to, text: "x".to_owned(), id: None };
        self.sender.send(&new, Stamp::now()).await.expect("send");
    }

    /// Waits for messages in a task of its own; returns how many came.
    async fn wait(&self, limit: Duration) -> tokio::task::JoinHandle<usize> {
        let mut reader = open(&self.url, &self.signals).await;
        let mail = PollQuery {
            agent: self.director,
            scope: MailboxScope::Open,
            since: None,
            after: None,
            page_size: 9,
        };
        tokio::spawn(async move { reader.wait(&mail, limit).await.expect("wait").tasks.len() })
    }

    async fn until(&self, condition: impl Fn(&SharedSignals) -> bool) {
        while !self.signals.with(|shared| condition(shared)) {
            tokio::task::yield_now().await;
        }
    }
}

async fn open(url: &StoreUrl, signals: &InProcess) -> Broker {
    Broker::open_with(url, Speaker::Anybody, Box::new(signals.clone())).await.expect("open")
}

/// The message is in the store before the bell rings, so a waiter finds it at its first look after the ring.
#[tokio::test]
async fn a_waiter_listens_before_it_looks_and_is_rung_after_the_commit() {
    let mut world = World::new().await;
    let waiter = world.wait(Duration::from_secs(3600)).await;
    world.until(|shared| shared.waits == 1).await;
    world.send().await;
    assert_eq!(waiter.await.expect("join"), 1);
    let rings = world.signals.with(|shared| shared.rings.clone());
    assert_eq!(rings, [world.director.to_string()]);
}

/// Without a bell, and with one that fails, the slow check finds the message. A failed bell is not used again.
#[tokio::test]
async fn without_a_bell_a_waiter_looks_by_itself() {
    for is_broken in [true, false] {
        let mut world = World::new().await;
        world.signals.with(|shared| (shared.is_broken, shared.is_mute) = (is_broken, true));
        assert_eq!(world.wait(Duration::from_millis(1)).await.await.expect("join"), 0);
        let waiter = world.wait(Duration::from_secs(3600)).await;
        world.until(|shared| shared.listens == 2).await;
        world.send().await;
        assert_eq!(waiter.await.expect("join"), 1);
        let waits = world.signals.with(|shared| shared.waits);
        assert!(waits <= if is_broken { 0 } else { 2 }, "{waits}");
    }
}

#[tokio::test]
async fn a_pane_is_locked_by_one_and_waited_for_by_the_next() {
    let world = World::new().await;
    let (first, second) = (&world.sender, open(&world.url, &world.signals).await);
    let held = first.lock_pane(&world.director.to_string(), Duration::ZERO).await.expect("free");
    assert!(second.lock_pane(&world.director.to_string(), Duration::ZERO).await.is_none(), "it is held");
    assert!(second.lock_pane("another", Duration::ZERO).await.is_some(), "another pane is free");
    let waiter = tokio::spawn({
        let director = world.director;
        async move { second.lock_pane(&director.to_string(), Duration::from_secs(3600)).await.is_some() }
    });
    tokio::task::yield_now().await;
    drop(held);
    assert!(waiter.await.expect("join"), "it was waited for");
    world.signals.with(|shared| shared.is_broken = true);
    assert!(
        first.lock_pane(&world.director.to_string(), Duration::from_secs(3600)).await.is_none(),
        "nobody can lock"
    );
}

#[tokio::test]
async fn the_files_of_a_sqlite_store_lock_a_pane_for_one() {
    let dir = tempfile::tempdir().expect("temp dir");
    let signals = of(&StoreUrl::sqlite(dir.path().join("store.db")));
    let held = signals.try_lock_pane("a").await.expect("lock").expect("free");
    assert!(signals.try_lock_pane("a").await.expect("lock").is_none());
    assert!(signals.try_lock_pane("b").await.expect("lock").is_some());
    drop(held);
    assert!(signals.try_lock_pane("a").await.expect("lock").is_some());
    let mode = |path: &str| fs::metadata(dir.path().join(path)).expect("made").permissions().mode() & 0o777;
    assert_eq!((mode("store.db.panes"), mode("store.db.panes/a")), (0o700, 0o600));
    // A directory that others may write to could contain another user's file.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(dir.path().join("store.db.panes"), open).expect("chmod");
    assert!(signals.try_lock_pane("a").await.is_err());
}
