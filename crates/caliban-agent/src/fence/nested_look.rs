//! Nested repositories of the trees that commands change: they are looked for after a command, while the model answers.
//!
//! From before a command until the look after it, a file in the agent's directory names the repositories that were there. Whoever
//! resumes a killed agent finds it: what is not in it was made by a command.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

use caliban_contract::records;
use caliban_fence::{Around, ByteText, Fence};
use caliban_rooted::{Identity, Root};
use caliban_worktrees::{KnownRepos, NestedDuties, NestedRepos};
use serde::{Deserialize, Serialize};

type Trees = BTreeMap<PathBuf, NestedRepos>;

/// Which repositories were there before commands whose look has not come yet, in the agent's directory.
const KNOWN: &str = "nested.json";

/// Nested repositories of trees that a command could change, each tree by its path.
#[derive(Debug, Default, Clone)]
pub struct Nested {
    trees: Arc<Mutex<Trees>>,
    look: Arc<Mutex<PendingLook>>,
    /// Commands without a look after them, by the directory of their agent.
    unlooked: Arc<Mutex<BTreeMap<PathBuf, usize>>>,
}

/// A tree that a command is about to change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Looked<'a> {
    pub(super) tree: &'a Path,
    /// Its own index.
    pub(super) index: Option<&'a Root>,
    /// The agent's directory.
    pub(super) records: Option<&'a Path>,
}

/// What is written down of a tree.
#[derive(Debug, Serialize, Deserialize)]
struct KnownTree {
    path: ByteText,
    identity: Identity,
    #[serde(flatten)]
    known: KnownRepos,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct KnownTrees {
    /// The boot of the machine in which the identities hold.
    boot: String,
    trees: Vec<KnownTree>,
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
    /// What a command must not change in a tree, after a look at what the last command left.
    pub(super) fn duties(&self, root: &Arc<Root>, looked: &Looked<'_>) -> io::Result<NestedDuties> {
        locked(&self.look).wait();
        let mut trees = locked(&self.trees);
        let mut told = Vec::new();
        if !trees.contains_key(looked.tree) {
            let known = looked.records.and_then(|records| left_by_a_killed(records, root));
            let nested = match known {
                Some(known) => {
                    let (nested, lines) = NestedRepos::knowing(root.clone(), known)?;
                    told = lines;
                    nested
                }
                None => NestedRepos::new(root.clone())?,
            };
            trees.insert(looked.tree.to_owned(), nested);
        }
        let duties = trees
            .get(looked.tree)
            .map_or_else(|| Ok(NestedDuties::default()), |nested| nested.duties(looked.index));
        // Whoever waits for a look holds this lock, and the look wants the trees.
        drop(trees);
        locked(&self.look).untold.extend(told);
        duties
    }

    /// Waits for the look after the last command. What looks found that nobody was told.
    pub(crate) async fn settle(&self) -> Vec<String> {
        if locked(&self.look).thread.is_some() {
            let look = self.look.clone();
            let _it_does_not_panic = tokio::task::spawn_blocking(move || locked(&look).wait()).await;
        }
        std::mem::take(&mut locked(&self.look).untold)
    }

    /// What is done around one command of the agent with this directory.
    pub(super) fn around(&self, records: Option<&Path>) -> LookAfter {
        LookAfter { nested: self.clone(), records: records.map(Path::to_owned) }
    }

    fn write_known(&self, directory: &Path) -> io::Result<()> {
        let of = |nested: &NestedRepos| KnownTree {
            path: nested.root().path().into(),
            identity: nested.root().identity(),
            known: nested.known().clone(),
        };
        let trees = locked(&self.trees).values().map(of).collect();
        records::write(directory, KNOWN, &KnownTrees { boot: boot(), trees })
    }

    /// Takes from new repositories what git would run, and forgets what was written down before the command.
    fn look(&self, records: Option<&Path>) -> Vec<String> {
        let lines = disarm(&self.trees);
        let mut unlooked = locked(&self.unlooked);
        if let Some(directory) = records
            && let Some(count) = unlooked.get_mut(directory)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                unlooked.remove(directory);
                // Best effort: the next process looks once more than it has to.
                let _stays = std::fs::remove_file(directory.join(KNOWN));
            }
        }
        lines
    }
}

/// Looks for repositories after one command.
pub(super) struct LookAfter {
    nested: Nested,
    records: Option<PathBuf>,
}

impl Around for LookAfter {
    fn before(&self, _: &mut Fence) -> Result<(), String> {
        let Some(directory) = &self.records else { return Ok(()) };
        let mut unlooked = locked(&self.nested.unlooked);
        self.nested
            .write_known(directory)
            .map_err(|error| format!("{}: {error}", directory.join(KNOWN).display()))?;
        *unlooked.entry(directory.clone()).or_default() += 1;
        Ok(())
    }

    /// Begins a look. What it finds is told after the next command, or at the end of the turn.
    fn after(&self, _: &Fence) -> Vec<String> {
        let mut look = locked(&self.nested.look);
        look.wait();
        let (nested, records) = (self.nested.clone(), self.records.clone());
        match std::thread::Builder::new()
            .name("nested".to_owned())
            .spawn(move || nested.look(records.as_deref()))
        {
            Ok(thread) => look.thread = Some(thread),
            // No room for a thread.
            Err(_) => look.untold.extend(self.nested.look(self.records.as_deref())),
        }
        std::mem::take(&mut look.untold)
    }
}

impl Drop for PendingLook {
    fn drop(&mut self) {
        self.wait();
    }
}

/// What was there before the commands of a killed process of this agent, if they could change this tree.
fn left_by_a_killed(directory: &Path, root: &Root) -> Option<KnownRepos> {
    let written: KnownTrees = records::read(directory, KNOWN)?;
    let is_same_boot = written.boot == boot();
    let is_it = |tree: &KnownTree| {
        tree.path.path() == root.path() && (!is_same_boot || tree.identity == root.identity())
    };
    Some(written.trees.into_iter().find(is_it)?.known)
}

fn boot() -> String {
    caliban_process::boot_id().unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a18_what_was_there_is_written_down_until_the_look_after_the_last_command() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, records) = (dir.path().join("tree"), dir.path().join("agent"));
        fs::create_dir_all(tree.join("old/.git")).unwrap();
        fs::create_dir(&records).unwrap();
        let root = Arc::new(Root::pin(&tree).unwrap());
        let looked = Looked { tree: &tree, index: None, records: Some(&records) };
        let mut fence = Fence::new(caliban_core::fence::Profile::Edit, dir.path());
        let nested = Nested::default();
        nested.duties(&root, &looked).unwrap();
        let (one, other) = (nested.around(Some(&records)), nested.around(Some(&records)));
        one.before(&mut fence).unwrap();
        other.before(&mut fence).unwrap();
        one.after(&fence);
        locked(&nested.look).wait();
        // The other one goes on, and is killed with its agent.
        fs::create_dir_all(tree.join("new/.git")).unwrap();
        fs::write(tree.join("new/.git/config"), "[core]\n\tfsmonitor = evil\n").unwrap();
        let next = Nested::default();
        next.duties(&root, &looked).unwrap();
        let told = std::mem::take(&mut locked(&next.look).untold);
        assert!(told.len() == 1 && tree.join("new/.git/config.not-used").exists(), "{told:?}");
        // It ends after all.
        other.after(&fence);
        locked(&nested.look).wait();
        assert!(!records.join(KNOWN).exists());
        fs::create_dir_all(tree.join("users/.git")).unwrap();
        fs::write(tree.join("users/.git/config"), "[core]\n\tfsmonitor = mine\n").unwrap();
        let users = Nested::default();
        users.duties(&root, &looked).unwrap();
        assert!(locked(&users.look).untold.is_empty() && tree.join("users/.git/config").exists());
    }
}
