//! Signals between processes that share a store: "look now", and "I am typing into this pane".
//!
//! Owns the interface between the broker and the mechanism: files beside a SQLite database today (`BesideFile`),
//! `LISTEN`, `NOTIFY` and advisory locks with PostgreSQL. All signals are best effort. The store is the truth: a lost
//! ring costs a waiter at most [`SLOW_CHECK`](crate::doorbell::SLOW_CHECK), and a message is claimed in the store
//! before it is typed.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use caliban_core::BoxFuture;

use crate::doorbell::{Bells, private_dir};
use crate::url::{SqliteFile, StoreUrl};

/// The signals of one store. Names are ids of broker agents.
pub trait Signals: fmt::Debug + Send + Sync {
    /// Wakes every process that listens for `who`. Best effort.
    fn ring<'a>(&'a self, who: &'a str) -> BoxFuture<'a, ()>;

    /// Starts to listen for `who`. Rings from now on are kept until [`Bell::rung`] sees them.
    ///
    /// # Errors
    /// When listening fails; the caller then polls the store.
    fn listen<'a>(&'a self, who: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Bell>>>;

    /// Takes the lock for typing into the pane of `who`, if it is free.
    ///
    /// # Errors
    /// When locking fails; then the caller must not type.
    fn try_lock_pane<'a>(&'a self, who: &'a str) -> BoxFuture<'a, io::Result<Option<PaneLock>>>;
}

/// One listener.
pub trait Bell: fmt::Debug + Send {
    /// Waits until there has been a ring since the last call.
    ///
    /// # Errors
    /// When the mechanism fails.
    fn rung(&mut self) -> BoxFuture<'_, io::Result<()>>;
}

/// The lock for typing into a pane, until it is dropped.
pub struct PaneLock(#[expect(dead_code, reason = "held for its drop")] Box<dyn Send>);

impl PaneLock {
    /// A lock that ends when `held` is dropped.
    pub fn new(held: impl Send + 'static) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for PaneLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PaneLock")
    }
}

/// The signals that go with a store.
pub(crate) fn of(url: &StoreUrl) -> Box<dyn Signals> {
    match url {
        StoreUrl::Sqlite(file) => Box::new(BesideFile::of(file)),
    }
}

/// FIFOs and lock files beside a SQLite database.
#[derive(Debug)]
struct BesideFile {
    bells: Bells,
    panes: PathBuf,
}

impl BesideFile {
    fn of(file: &SqliteFile) -> Self {
        Self { bells: Bells::at(file.bells_dir()), panes: file.panes_dir() }
    }

    fn try_lock(&self, who: &str) -> io::Result<Option<PaneLock>> {
        private_dir(&self.panes)?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(self.panes.join(who))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(PaneLock::new(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

impl Signals for BesideFile {
    fn ring<'a>(&'a self, who: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.bells.ring(who) })
    }

    fn listen<'a>(&'a self, who: &'a str) -> BoxFuture<'a, io::Result<Box<dyn Bell>>> {
        Box::pin(async move { Ok(Box::new(self.bells.listen(who)?) as Box<dyn Bell>) })
    }

    fn try_lock_pane<'a>(&'a self, who: &'a str) -> BoxFuture<'a, io::Result<Option<PaneLock>>> {
        Box::pin(async move { self.try_lock(who) })
    }
}

impl Bell for crate::doorbell::Bell {
    fn rung(&mut self) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(crate::doorbell::Bell::rung(self))
    }
}

#[cfg(test)]
mod tests;
