//! The recently used indexes. Each has a lock of its own, which is held while the file is read, in blocking threads
//! only.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::Index;

/// Maximum number of indexes.
const KEPT: usize = 32;

/// An index that several readers share.
pub(crate) type SharedIndex = Arc<Mutex<Index>>;

/// The recently used indexes, the newest at the end.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<Vec<(PathBuf, SharedIndex)>>);

impl Shelf {
    /// The index of a transcript.
    fn of(&self, path: &Path) -> SharedIndex {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = kept.iter().position(|(known, _)| known == path).map(|at| kept.remove(at));
        let (path, index) = known.unwrap_or_else(|| (path.to_owned(), SharedIndex::default()));
        if kept.len() >= KEPT {
            kept.remove(0);
        }
        kept.push((path, Arc::clone(&index)));
        index
    }

    /// Calls `what` with the up-to-date index of a transcript. Blocks.
    pub(crate) fn with<T>(
        &self,
        path: &Path,
        what: impl FnOnce(&mut Index) -> std::io::Result<T>,
    ) -> std::io::Result<T> {
        let shared = self.of(path);
        let mut index = shared.lock().unwrap_or_else(PoisonError::into_inner);
        index.update(path)?;
        what(&mut index)
    }
}
