//! Git keeps files that rules keep from being read: then its objects are in no fence.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use caliban_core::fence::Profile;
use caliban_fence::{ByteText, Fence, HeldPlace, Hold};
use caliban_permissions::Policy;
use caliban_rooted::{Identity, Root};
use caliban_worktrees::{FileState, Repo, alternates, followed_by_git};
use serde::{Deserialize, Serialize};

use super::{Fences, is_bare};

/// Where a store has objects.
const OBJECTS: [&str; 4] = ["objects", "lfs", "modules", "caliban"];

/// What is known of what git keeps.
#[derive(Debug, Default)]
pub struct Kept {
    /// By their directories: what rules hide is said by paths from there.
    stores: BTreeMap<(PathBuf, Vec<PathBuf>), KeptStore>,
    rules: Vec<String>,
    /// Stores whose index and refs commands can write, once they kept something: what a command takes out of index and refs is
    /// still in the objects.
    hidden: BTreeMap<PathBuf, Identity>,
}

/// What the next process of an agent has to know of that.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HiddenStores(Vec<(ByteText, Identity)>);

#[derive(Debug, Default)]
struct KeptStore {
    repo: Option<Repo>,
    /// Whether a tree has a path that rules hide: for these rules.
    trees: BTreeMap<String, bool>,
    /// The last answer, and the state of index and refs that it holds for.
    answer: Option<(Vec<FileState>, bool)>,
}

/// A directory that agents see, and git's directories for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
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
        let kept = &mut *kept;
        let rules: Vec<String> = policy.rules.iter().map(|rule| rule.rule.to_string()).collect();
        if kept.rules != rules {
            (kept.rules, kept.stores) = (rules, BTreeMap::new());
        }
        by_store(&trees).into_iter().any(|(store, trees)| self.keeps(kept, store, &trees, policy))
    }

    fn keeps(&self, kept: &mut Kept, store: &Path, trees: &[&KeptTree], policy: &Policy) -> bool {
        let tops = trees.iter().map(|tree| tree.top.clone()).collect();
        let known = kept.stores.entry((store.to_owned(), tops)).or_default();
        if known.repo.is_none() {
            let open =
                |tree: &&KeptTree| self.open_repo(&tree.top).filter(|repo| repo.common_dir() == tree.store);
            known.repo = trees.iter().find_map(open);
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
        let known = |top: &PathBuf| {
            let git = self.git_of(policy, top)?;
            let (own, store) = (git.own.path().to_owned(), git.store().path().to_owned());
            Some(KeptTree { top: top.clone(), own, store })
        };
        let trees = |top: &PathBuf| policy.roots.pin(top).map_or_else(|_| Vec::new(), |top| trees_of(&top));
        let mut all: Vec<KeptTree> =
            tops.into_iter().flat_map(|top| trees(top).into_iter().chain(known(top))).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Takes git's objects out of a fence: of the repositories of the work when one of them keeps what is hidden, and of each one in the
    /// trees that does.
    pub(super) fn hide_objects(&self, fence: &mut Fence, policy: &Policy, repositories: &[PathBuf]) {
        if !policy.hides_files() {
            return;
        }
        let mut stores = BTreeSet::new();
        if self.hides_objects(policy) {
            stores.extend(self.kept_trees(policy).into_iter().map(|tree| tree.store));
        }
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut writable: BTreeSet<PathBuf> = BTreeSet::new();
        let nested: Vec<KeptTree> = repositories
            .iter()
            .filter_map(|top| Root::plain(top).ok())
            .flat_map(|top| trees_of(&top))
            .collect();
        for (store, trees) in by_store(&nested) {
            let is_hidden = stores.contains(store) || kept.hidden.contains_key(store);
            if is_hidden || self.keeps(&mut kept, store, &trees, policy) {
                writable.insert(store.to_owned());
            }
        }
        if fence.profile == Profile::Open {
            writable.extend(stores.iter().cloned());
        }
        for store in writable {
            if let Ok(root) = Root::plain(&store) {
                kept.hidden.insert(store, root.identity());
            }
        }
        // One that cannot be looked at was closed by a command.
        kept.hidden
            .retain(|store, identity| Root::plain(store).map_or(true, |now| now.identity() == *identity));
        stores.extend(kept.hidden.keys().cloned());
        let own = stores.iter().flat_map(|store| OBJECTS.map(|name| store.join(name)));
        let others =
            stores.iter().filter_map(|store| Root::plain(store).ok()).flat_map(|store| alternates(&store));
        // Nobody keeps objects around the work or the home; whoever wrote such a list wants them gone.
        let work = [&policy.root, &policy.home].into_iter().chain(&policy.worktree).chain(&policy.extra_dirs);
        let work: Vec<&PathBuf> = work.collect();
        let others = others.map(|place| place.path().to_owned());
        let others = others.filter(|place| !work.iter().any(|work| work.starts_with(place)));
        for place in own.chain(others).collect::<Vec<_>>() {
            hide(fence, &place);
        }
    }

    /// For the next process of the agent.
    pub(super) fn hidden_stores(&self) -> HiddenStores {
        let kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        HiddenStores(
            kept.hidden.iter().map(|(store, identity)| (store.as_path().into(), *identity)).collect(),
        )
    }

    /// Takes over what an earlier process of the agent knew. In another boot it is what lies in that place.
    pub(super) fn recall_hidden(&self, hidden: &HiddenStores, is_same_boot: bool) {
        let mut kept = self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for (store, identity) in &hidden.0 {
            if let Ok(now) = Root::plain(store.path())
                && (now.identity() == *identity || !is_same_boot)
            {
                kept.hidden.insert(store.path().to_owned(), now.identity());
            }
        }
    }
}

/// Git's directories for a directory, as they are now and as git itself finds them, whether or not they count: those of its `.git`, and
/// itself when it is a repository.
fn trees_of(top: &Root) -> Vec<KeptTree> {
    let itself = is_bare(top).then(|| top.path().to_owned());
    let git = followed_by_git(top).map(|git| (git.own.path().to_owned(), git.store().path().to_owned()));
    let tree = |(own, store)| KeptTree { top: top.path().to_owned(), own, store };
    git.into_iter().chain(itself.map(|store| (store.clone(), store))).map(tree).collect()
}

/// All directories of each store.
fn by_store(trees: &[KeptTree]) -> BTreeMap<&Path, Vec<&KeptTree>> {
    let mut all: BTreeMap<&Path, Vec<&KeptTree>> = BTreeMap::new();
    for tree in trees {
        all.entry(&tree.store).or_default().push(tree);
    }
    all
}

/// Hides what is there, wherever a link leads. Where nobody may look, its owner could open it: then the directory that is closed is hidden.
fn hide(fence: &mut Fence, place: &Path) {
    for place in place.ancestors() {
        match Root::pin(place) {
            Ok(root) => {
                let place = root.path();
                // What is shown for itself is not shown then.
                fence.binds.retain(|bind| bind.target.path() != place);
                let is_in =
                    |held: &HeldPlace| held.hold == Hold::Hidden && place.starts_with(held.target.path());
                let is_shown = fence.profile == Profile::Open
                    || fence.binds.iter().any(|bind| place.starts_with(bind.target.path()));
                if is_shown && !fence.held.iter().any(is_in) {
                    fence.hold(place, root.identity(), Hold::Hidden);
                }
                return;
            }
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use caliban_permissions::Effect;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    /// A command can close a git directory, and the next one open it.
    #[test]
    fn a18_the_objects_of_a_closed_git_directory_are_hidden() {
        if testkit::was_run_by_another_user(
            "fence::kept_objects::tests::a18_the_objects_of_a_closed_git_directory_are_hidden",
        ) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(dir.path()).unwrap();
        let git = top.join("third/.git");
        for name in ["objects", "refs"] {
            fs::create_dir_all(git.join(name)).unwrap();
        }
        // Nobody knows what is in such an index.
        fs::write(git.join("index"), "x").unwrap();
        let mut policy = Policy::new(&top, "/nowhere");
        policy.add(Effect::Deny, "Read(.env)".parse().unwrap(), "test");
        let fences = Fences::off(PathBuf::new());
        let hidden = || {
            let mut fence = Fence::new(Profile::Edit, "/nowhere");
            fence.show(&Root::plain(&top).unwrap(), caliban_fence::Access::ReadWrite);
            fences.hide_objects(&mut fence, &policy, &[top.join("third")]);
            fence.held.iter().map(|held| held.target.path().to_owned()).collect::<Vec<_>>()
        };
        let close = |mode| fs::set_permissions(&git, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(hidden(), [git.join("objects")]);
        close(0);
        assert_eq!(hidden(), std::slice::from_ref(&git));
        // What it was is known, also to the next process of the agent.
        close(0o700);
        let hidden_stores = fences.hidden_stores();
        assert_eq!(hidden_stores.0.len(), 1);
        fs::remove_file(git.join("index")).unwrap();
        assert_eq!(hidden(), [git.join("objects")]);
        let next = Fences::off(PathBuf::new());
        next.recall_hidden(&hidden_stores, true);
        assert_eq!(next.hidden_stores(), hidden_stores);
    }
}
