//! Git keeps files that rules keep from being read: then its objects are in no fence.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use caliban_core::fence::Profile;
use caliban_fence::{Fence, Hold};
use caliban_permissions::Policy;
use caliban_rooted::{Below, FoundEntry, Root};
use caliban_worktrees::{FileState, FoundGit, GitFile, Repo};

use super::{Fences, git_store};

/// Where a store has objects.
const OBJECTS: [&str; 4] = ["objects", "lfs", "modules", "caliban"];

/// What is known of what git keeps.
#[derive(Debug, Default)]
pub struct Kept {
    stores: BTreeMap<PathBuf, KeptStore>,
    rules: Vec<String>,
}

#[derive(Debug, Default)]
struct KeptStore {
    repo: Option<Repo>,
    /// Whether a tree has a path that rules hide: for these rules.
    trees: BTreeMap<String, bool>,
    /// The last answer, and the state of index and refs that it holds for.
    answer: Option<(Vec<FileState>, bool)>,
}

/// A directory that agents see, and git's directories for it.
pub(super) struct KeptTree {
    top: PathBuf,
    own: PathBuf,
    store: PathBuf,
}

impl Fences {
    /// Whether git keeps a file that rules keep from being read. Its objects are in no fence then.
    pub fn hides_objects(&self, policy: &Policy) -> bool {
        if !policy.hides_files() {
            return false;
        }
        let trees = self.kept_trees(policy);
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let rules: Vec<String> = policy.rules.iter().map(|rule| rule.rule.to_string()).collect();
        if kept.rules != rules {
            *kept = Kept { rules, ..Kept::default() };
        }
        let stores: BTreeSet<&PathBuf> = trees.iter().map(|tree| &tree.store).collect();
        stores.into_iter().any(|store| {
            let of_store: Vec<&KeptTree> = trees.iter().filter(|tree| tree.store == *store).collect();
            self.keeps(kept.stores.entry(store.clone()).or_default(), &of_store, policy)
        })
    }

    fn keeps(&self, known: &mut KeptStore, trees: &[&KeptTree], policy: &Policy) -> bool {
        if known.repo.is_none() {
            known.repo = trees.first().and_then(|tree| self.open_repo(&tree.top));
        }
        let Some(repo) = &known.repo else { return true };
        let git_dirs: Vec<PathBuf> = trees.iter().map(|tree| tree.own.clone()).collect();
        let now = repo.state_of_refs(&git_dirs);
        if let Some((then, answer)) = &known.answer
            && *then == now
        {
            return *answer;
        }
        let is_hidden = |path: &Path| trees.iter().any(|tree| policy.hides(&tree.top.join(path)));
        let answer = repo.keeps(&git_dirs, &mut known.trees, &is_hidden);
        known.answer = Some((now, answer));
        answer
    }

    /// Every directory that commands see as a whole, if it is a repository's.
    pub(super) fn kept_trees(&self, policy: &Policy) -> Vec<KeptTree> {
        let own = [&policy.root].into_iter().chain(&policy.worktree);
        let tops: BTreeSet<&PathBuf> = own.chain(&policy.extra_dirs).chain(&policy.read_dirs).collect();
        let tree = |top: &PathBuf| {
            let found = self.git_of(policy, top);
            let store = git_store(policy, top, found.as_deref())?;
            let own = found.map_or_else(|| store.clone(), |git| git.own.path().to_owned());
            Some(KeptTree { top: top.clone(), own, store })
        };
        tops.into_iter().filter_map(tree).collect()
    }

    /// Takes git's objects out of a fence: of the repositories of the work when one of them keeps what is hidden, and of each one in the
    /// trees whose index does.
    pub(super) fn hide_objects(&self, fence: &mut Fence, policy: &Policy, repositories: &[PathBuf]) {
        let mut stores = BTreeSet::new();
        if self.hides_objects(policy) {
            stores.extend(self.kept_trees(policy).into_iter().map(|tree| tree.store));
        }
        for top in repositories {
            let Some(git) = self.nested_git(top) else { continue };
            let is_hidden = |path: &Path| policy.hides(&top.join(path));
            if caliban_worktrees::index_keeps(&git.own.path().join("index"), &is_hidden) {
                stores.insert(git.store().path().to_owned());
            }
        }
        let places = stores.iter().flat_map(|store| OBJECTS.map(|name| store.join(name)));
        for place in places.collect::<Vec<_>>() {
            let is_shown = fence.profile == Profile::Open
                || fence.binds.iter().any(|bind| place.starts_with(bind.target.path()));
            if let (true, Ok(root)) = (is_shown, Root::plain(&place)) {
                fence.hold(&place, root.identity(), Hold::Hidden);
            }
        }
    }

    /// Git's directories for a directory in a tree, as they are now.
    fn nested_git(&self, top: &Path) -> Option<FoundGit> {
        let top = Root::plain(top).ok()?;
        match top.look(&Below::new(".git").ok()?).ok()? {
            FoundEntry::Directory(_) => {
                let own = Root::plain(&top.path().join(".git")).ok()?;
                Some(FoundGit { own, common: None })
            }
            _ => {
                match caliban_worktrees::git_file(&top, &|path, identity| self.is_accepted(path, identity)) {
                    GitFile::Found(found) => Some(found),
                    GitFile::None | GitFile::Doubtful(_) => None,
                }
            }
        }
    }
}
