//! One lock per path, so that changes of one file happen one after the other.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Table size at which locks that nobody holds are dropped.
const PRUNE_AT: usize = 256;

/// The locks of one workspace.
#[derive(Debug, Default)]
pub(crate) struct PathLocks(Mutex<HashMap<PathBuf, Weak<AsyncMutex<()>>>>);

impl PathLocks {
    /// Waits for the turn on this path. Waiters are served in order.
    pub(crate) async fn lock(&self, path: &Path) -> OwnedMutexGuard<()> {
        self.of(path).lock_owned().await
    }

    fn of(&self, path: &Path) -> Arc<AsyncMutex<()>> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = table.get(path).and_then(Weak::upgrade) {
            return lock;
        }
        if table.len() >= PRUNE_AT {
            table.retain(|_, lock| lock.strong_count() > 0);
        }
        let lock = Arc::new(AsyncMutex::new(()));
        table.insert(path.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_path_is_locked_once_and_the_table_stays_small() {
        let locks = PathLocks::default();
        let held = locks.lock(Path::new("/a")).await;
        assert!(locks.of(Path::new("/a")).try_lock().is_err());
        assert!(locks.of(Path::new("/b")).try_lock().is_ok());
        for index in 0..10 * PRUNE_AT {
            drop(locks.lock(Path::new(&format!("/{index}"))).await);
        }
        assert!(locks.0.lock().unwrap().len() <= PRUNE_AT);
        assert!(locks.of(Path::new("/a")).try_lock().is_err());
        drop(held);
        assert!(locks.of(Path::new("/a")).try_lock().is_ok());
    }
}
