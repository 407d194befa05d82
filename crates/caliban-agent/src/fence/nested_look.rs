//! Nested repositories of the trees that commands change: they are looked for after a command, while the model answers.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use caliban_fence::{Around, Fence};
use caliban_rooted::Root;
use caliban_worktrees::{NestedDuties, NestedRepos};

type Trees = BTreeMap<PathBuf, NestedRepos>;

/// Nested repositories of trees that a command could change, each tree by its path.
#[derive(Debug, Default, Clone)]
pub struct Nested {
    trees: Arc<Mutex<Trees>>,
    look: Arc<Mutex<PendingLook>>,
}

/// The look after the last command.
#[derive(Debug, Default)]
struct PendingLook {
    thread: Option<JoinHandle<Vec<String>>>,
    /// What looks found that nobody was told.
    untold: Vec<String>,
}

impl PendingLook {
    fn wait(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.untold.extend(thread.join().unwrap_or_default());
        }
    }
}

impl Nested {
    /// What a command must not change in this tree, after a look at what the last command left.
    pub(super) fn duties(
        &self,
        root: &Arc<Root>,
        tree: &Path,
        index: Option<&Root>,
    ) -> io::Result<NestedDuties> {
        locked(&self.look).wait();
        let mut trees = locked(&self.trees);
        if !trees.contains_key(tree) {
            trees.insert(tree.to_owned(), NestedRepos::new(root.clone())?);
        }
        trees.get(tree).map_or_else(|| Ok(NestedDuties::default()), |nested| nested.duties(index))
    }

    /// Waits for the look after the last command. What looks found that nobody was told.
    pub(crate) async fn settle(&self) -> Vec<String> {
        if locked(&self.look).thread.is_some() {
            let look = self.look.clone();
            let _it_does_not_panic = tokio::task::spawn_blocking(move || locked(&look).wait()).await;
        }
        std::mem::take(&mut locked(&self.look).untold)
    }
}

impl Around for Nested {
    fn before(&self, _: &mut Fence) -> Result<(), String> {
        Ok(())
    }

    /// Begins a look. What it finds is told after the next command, or at the end of the turn.
    fn after(&self, _: &Fence) -> Vec<String> {
        let mut look = locked(&self.look);
        look.wait();
        let trees = self.trees.clone();
        match std::thread::Builder::new().name("nested".to_owned()).spawn(move || disarm(&trees)) {
            Ok(thread) => look.thread = Some(thread),
            // No room for a thread.
            Err(_) => look.untold.extend(disarm(&self.trees)),
        }
        std::mem::take(&mut look.untold)
    }
}

impl Drop for PendingLook {
    fn drop(&mut self) {
        self.wait();
    }
}

fn disarm(trees: &Mutex<Trees>) -> Vec<String> {
    let looked = |(tree, nested): (&PathBuf, &mut NestedRepos)| {
        nested.disarm_new().unwrap_or_else(|error| {
            vec![format!("[new repositories in {} could not be looked at: {error}]", tree.display())]
        })
    };
    locked(trees).iter_mut().flat_map(looked).collect()
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
