//! Merging in the user's own tree: refused where something that is not committed stands in the way, done by git as the
//! user would do it, and taken back where git or a hook refuses. The error says "as before" only after the tree has been compared.
//!
//! Questions about this tree are trusted calls: they must see files as the `git merge` that follows does, with the user's
//! filters and line ends.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use super::preview::Touched;
use super::refusal::{LandingRefusal, Operation, TreeAfter};
use super::{LandAs, LandNote, MergeEnds};
use crate::error::{Error, Result};
use crate::git::GitCall;
use crate::marker::Oid;
use crate::repo::Repo;

/// Every tracked path that differs between HEAD, index and files.
const STATUS: [&str; 5] =
    ["--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=dirty"];

/// The user's tree and the merge that is to be made in it.
pub(super) struct InTree<'a> {
    pub(super) repo: &'a Repo,
    /// The same for what looks at a merge that was begun, or takes it back: that comes to its end, whoever gives up.
    pub(super) calm: Repo,
    pub(super) tree: &'a Path,
    /// The branch that is checked out there.
    pub(super) branch: Option<&'a str>,
    pub(super) ends: &'a MergeEnds,
    pub(super) note: &'a (dyn Fn(LandNote) + Sync),
}

impl InTree<'_> {
    fn git(&self, subcommand: &str) -> GitCall {
        self.repo.git.trusted(self.tree, subcommand)
    }

    /// Refuses a tree in which the merge would meet what is not committed, or another operation that is not finished.
    pub(super) async fn check(&self, touched: &[Touched]) -> Result<(), LandingRefusal> {
        let (tree, git_dir) = (self.tree.to_owned(), self.repo.opened_git_dir());
        if let Some(operation) = self.repo.unfinished(git_dir).await? {
            let is_same_merge = operation == Operation::Merge && self.is_same_merge();
            return Err(LandingRefusal::UnfinishedHere { operation, tree, is_same_merge });
        }
        let lock = git_dir.join("index.lock");
        if lock.symlink_metadata().is_ok() {
            return Err(LandingRefusal::IndexLocked { tree, lock });
        }
        let status = self.git("status").args(STATUS).ok().await?.fields();
        let (mut staged, mut announced, mut dirty) = (Vec::new(), Vec::new(), BTreeSet::new());
        for entry in &status {
            let Some((marks, path)) = entry.as_bytes().split_at_checked(3) else { continue };
            let path = PathBuf::from(OsStr::from_bytes(path));
            match marks {
                b" A " => announced.push(path),
                [b' ', ..] => {
                    dirty.insert(path);
                }
                _ => staged.push(path),
            }
        }
        if !staged.is_empty() {
            let index = self.git("write-tree").run().await?;
            let is_same_merge = index.oid().as_ref() == Some(&self.ends.merged);
            return Err(LandingRefusal::Staged { tree, files: staged, is_same_merge });
        }
        if !announced.is_empty() {
            return Err(LandingRefusal::Announced { tree, files: announced });
        }
        let is_dirty = |touched: &&Touched| dirty.contains(&touched.path);
        let mut in_the_way: BTreeSet<PathBuf> =
            touched.iter().filter(is_dirty).map(|touched| touched.path.clone()).collect();
        in_the_way.extend(self.unwatched(touched).await?);
        in_the_way.extend(self.untracked(touched).await?);
        if in_the_way.is_empty() {
            return Ok(());
        }
        Err(LandingRefusal::InTheWay(in_the_way.into_iter().collect()))
    }

    /// Merges, with the user's hooks; undone when git or a hook refuses, or when the caller gives up. The new commit.
    pub(super) async fn merge(
        &self,
        touched: &[Touched],
        message: &str,
        how: LandAs,
    ) -> Result<Oid, LandingRefusal> {
        let MergeEnds { into, head, .. } = self.ends;
        if self.head().await.is_none_or(|(commit, _)| commit != *into) {
            return Err(LandingRefusal::HeadMoved(self.tree.to_owned()));
        }
        // By the strategy that was tried, and without options that an agent could have written for it.
        let options = self.branch.map(|branch| OsString::from(format!("branch.{branch}.mergeOptions")));
        let merge = self.repo.git.as_user(self.tree, "merge").with_each(options.as_slice(), "");
        let merge = merge.args(["--no-autostash", "--quiet", "--strategy=ort"]);
        let steps = match how {
            LandAs::Squash => vec![
                merge.args(["--squash", "--ff", head.as_str()]),
                self.repo.git.as_user(self.tree, "commit").args(["--quiet", "-m", message]),
            ],
            LandAs::Merge => {
                let merge = merge.args(["--no-ff", "--no-squash", "--commit", "--no-edit"]);
                vec![merge.args(["-m", message, head.as_str()])]
            }
        };
        for step in steps {
            let output = match step.run().await {
                Ok(output) => output,
                // It could not be started, or its hooks did not end. What the step before did is taken back.
                Err(error) => {
                    let after = self.undo(touched).await;
                    return Err(match error {
                        Error::Cancelled => LandingRefusal::Interrupted(after),
                        error => LandingRefusal::MergeFailed { error, after },
                    });
                }
            };
            let is_cut = self.repo.git.cancel.is_cancelled() || output.status.signal().is_some();
            if output.status.success() && !is_cut {
                continue;
            }
            // A hook that runs after the commit may fail or be cut: the merge is there.
            if let Some((commit, parents)) = self.head().await
                && self.is_it(how, &commit, &parents).await
            {
                return Ok(commit);
            }
            let after = self.undo(touched).await;
            return Err(match is_cut {
                true => LandingRefusal::Interrupted(after),
                false => LandingRefusal::MergeFailed { error: output.failure(), after },
            });
        }
        match self.head().await {
            // Whatever a hook put on top of it.
            Some((commit, _)) if commit != *into => {
                if self.is_as_tried(&commit).await {
                    return Ok(commit);
                }
                let detail = "it made other files than the merge that was tried before".to_owned();
                let error = Error::Answer { command: "merge", detail };
                Err(LandingRefusal::MergeFailed { error, after: self.take_back(&commit, touched).await })
            }
            _ => Err(LandingRefusal::NoCommitMade(self.undo(touched).await)),
        }
    }

    /// Whether the first commit over where the merge began has the tree that was tried. A hook may change what is committed.
    async fn is_as_tried(&self, commit: &Oid) -> bool {
        let MergeEnds { into, merged, .. } = self.ends;
        let call = self.calm.git.hardened(self.calm.opened(), "rev-list").arg("--first-parent");
        let Ok(made) = call.arg(format!("{into}..{commit}")).arg("--").ok().await else { return true };
        let Some(first) = made.line().lines().last().and_then(Oid::parse) else { return true };
        match self.calm.tree_of(&first).await {
            Ok(tree) if tree != *merged => self.has_hooks().await,
            _ => true,
        }
    }

    /// Whether there is any hook; also when that is not known.
    async fn has_hooks(&self) -> bool {
        let call = self.calm.git.as_user(self.tree, "rev-parse").args(["--git-path", "hooks"]);
        let Ok(found) = call.ok().await else { return true };
        let place = self.tree.join(OsStr::from_bytes(found.stdout.trim_ascii_end()));
        let is_hook = |entry: std::fs::DirEntry| {
            entry.path().extension() != Some(OsStr::new("sample"))
                && entry.path().metadata().is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
        };
        std::fs::read_dir(place).is_ok_and(|entries| entries.flatten().any(is_hook))
    }

    /// Takes back a merge whose commit is made.
    async fn take_back(&self, commit: &Oid, touched: &[Touched]) -> TreeAfter {
        let into = &self.ends.into;
        let Ok(mut made) = self.calm.touched(into, commit).await else {
            return TreeAfter::HeadMoved(self.tree.to_owned());
        };
        let is_new = |touched: &&Touched| made.iter().all(|made| made.path != touched.path);
        let others: Vec<Touched> = touched.iter().filter(is_new).cloned().collect();
        made.extend(others);
        let back = self.calm.git.trusted(self.tree, "update-ref").args([
            "-m",
            "caliban agents merge: taken back",
            "HEAD",
        ]);
        match back.args([into.as_str(), commit.as_str()]).succeeds().await {
            Ok(true) => self.undo(&made).await,
            _ => TreeAfter::HeadMoved(self.tree.to_owned()),
        }
    }

    /// Whether this commit is the merge, and not one that somebody else made meanwhile.
    async fn is_it(&self, how: LandAs, commit: &Oid, parents: &[Oid]) -> bool {
        let MergeEnds { into, head, merged } = self.ends;
        match how {
            LandAs::Squash => {
                let tree = self.calm.tree_of(commit).await;
                *parents == [into.clone()] && tree.is_ok_and(|tree| tree == *merged)
            }
            LandAs::Merge => *parents == [into.clone(), head.clone()],
        }
    }

    /// The commit that HEAD is at, and its parents.
    async fn head(&self) -> Option<(Oid, Vec<Oid>)> {
        let call = self.calm.git.hardened(self.calm.opened(), "rev-list");
        let call = call.args(["--parents", "--max-count=1", "HEAD", "--"]);
        let line = call.ok().await.ok()?.line();
        let mut oids = line.split(' ').filter_map(Oid::parse);
        Some((oids.next()?, oids.collect()))
    }

    /// Whether the merge that is not finished is the one that is wanted.
    fn is_same_merge(&self) -> bool {
        let merging = std::fs::read(self.repo.opened_git_dir().join("MERGE_HEAD"));
        merging.is_ok_and(|text| text.trim_ascii() == self.ends.head.as_str().as_bytes())
    }

    /// Puts the tree back to where it was. Only called on a tree that had nothing staged and nothing in the merge's way: what
    /// is at the touched paths is what HEAD has, or comes from git and the hooks. What somebody else did meanwhile is left
    /// alone.
    async fn undo(&self, touched: &[Touched]) -> TreeAfter {
        let (tree, git_dir) = (self.tree.to_owned(), self.repo.opened_git_dir());
        if self.head().await.is_some_and(|(commit, _)| commit != self.ends.into) {
            return TreeAfter::HeadMoved(tree);
        }
        let is_merging = git_dir.join("MERGE_HEAD").symlink_metadata().is_ok();
        if is_merging && !self.is_same_merge() {
            return TreeAfter::OtherMerge(tree);
        }
        let is_untouched = !is_merging && self.is_back(touched).await.is_ok_and(|is| is);
        let forced = if is_untouched { Ok(()) } else { self.put_back(touched).await };
        if !self.is_back(touched).await.is_ok_and(|is| is) {
            return TreeAfter::Changed(tree, forced.err().map(|error| error.to_string()));
        }
        if is_merging {
            // Best effort by name: the next merge looks at what is left.
            let _tried = self.calm.git.trusted(self.tree, "merge").arg("--quit").run().await;
        }
        // Best effort: the file only holds a prepared message, which nothing reads any more.
        let _gone = std::fs::remove_file(git_dir.join("SQUASH_MSG"));
        TreeAfter::AsBefore
    }

    /// Takes back, path by path, what git wrote and what a hook changed. What is neither HEAD's nor the merge's goes into the
    /// store first.
    async fn put_back(&self, touched: &[Touched]) -> Result<()> {
        let git = |subcommand| self.calm.git.trusted(self.tree, subcommand).env("GIT_LITERAL_PATHSPECS", "1");
        let index = git("ls-files").arg("-z").ok().await?.fields();
        let index: BTreeSet<OsString> = index.into_iter().collect();
        let changed = git("diff-files").args(["--name-only", "--no-ext-diff", "-z"]).ok().await?.fields();
        let changed: BTreeSet<OsString> = changed.into_iter().collect();
        for Touched { path, was, will_be } in touched {
            let is_file = self.tree.join(path).symlink_metadata().is_ok_and(|found| found.is_file());
            if !is_file || (index.contains(path.as_os_str()) && !changed.contains(path.as_os_str())) {
                continue;
            }
            let blob = git("hash-object").args(["-w", "--"]).arg(path).ok().await?.line();
            let is_known = [was, will_be].into_iter().flatten().any(|known| known.oid == blob);
            if !is_known {
                (self.note)(LandNote::HookChanged { path: path.clone(), blob });
            }
        }
        let listed = |of: &dyn Fn(&&Touched) -> bool| -> Vec<u8> {
            touched.iter().filter(of).flat_map(|t| [t.path.as_os_str().as_bytes(), b"\0"].concat()).collect()
        };
        let reset = git("reset").args(["--quiet", "--pathspec-from-file=-", "--pathspec-file-nul"]);
        reset.stdin(listed(&|_| true)).ok().await?;
        for Touched { path, .. } in touched.iter().filter(|touched| touched.was.is_none()) {
            let place = self.tree.join(path);
            if place.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                std::fs::remove_file(&place).map_err(|e| Error::at("removing", &place, e))?;
            }
            // The directories that were made for it, as far as nothing else is in them.
            for dir in place.ancestors().skip(1).take_while(|dir| *dir != self.tree) {
                if std::fs::remove_dir(dir).is_err() {
                    break;
                }
            }
        }
        let back = git("checkout-index").args(["--force", "-z", "--stdin"]);
        back.stdin(listed(&|touched| touched.was.is_some())).ok().await.map(drop)
    }

    /// Whether every touched path is as HEAD has it, there and in the index.
    async fn is_back(&self, touched: &[Touched]) -> Result<bool> {
        let is_new = |touched: &Touched| {
            touched.was.is_none() && self.tree.join(&touched.path).symlink_metadata().is_ok()
        };
        if touched.iter().any(is_new) {
            return Ok(false);
        }
        let paths: BTreeSet<&[u8]> =
            touched.iter().map(|touched| touched.path.as_os_str().as_bytes()).collect();
        let entries = self.calm.git.trusted(self.tree, "status").args(STATUS).ok().await?.fields();
        Ok(!entries.iter().any(|entry| entry.as_bytes().get(3..).is_some_and(|path| paths.contains(path))))
    }

    /// Tracked files that git was told not to look at ("assume unchanged", "skip worktree") and that differ: git would
    /// not tell, and may lose them.
    async fn unwatched(&self, touched: &[Touched]) -> Result<Vec<PathBuf>> {
        let touched: BTreeSet<&Path> = touched
            .iter()
            .filter(|touched| touched.was.is_some())
            .map(|touched| touched.path.as_path())
            .collect();
        let mut found = Vec::new();
        for entry in self.git("ls-files").args(["-v", "--stage", "-z"]).ok().await?.fields() {
            let bytes = entry.as_bytes();
            let Some(tag) = bytes.first().filter(|tag| **tag == b'S' || tag.is_ascii_lowercase()) else {
                continue;
            };
            let Some(tab) = bytes.iter().position(|byte| *byte == b'\t') else { continue };
            let path = Path::new(OsStr::from_bytes(&bytes[tab + 1..]));
            if !touched.contains(path) {
                continue;
            }
            let is_there = self.tree.join(path).symlink_metadata().is_ok();
            // What a sparse checkout left out is not missed.
            if !is_there && matches!(tag, b'S' | b's') {
                continue;
            }
            let words = String::from_utf8_lossy(&bytes[..tab]).into_owned();
            let recorded = words.split(' ').nth(2).unwrap_or_default().to_owned();
            let now = self.git("hash-object").arg("--").arg(path).run().await?;
            if self.tree.join(path).is_symlink() || now.line() != recorded {
                found.push(path.to_owned());
            }
        }
        Ok(found)
    }

    /// Files that git does not track, ignored ones too, where the merge would put something: git would overwrite them, or
    /// stop half-way.
    async fn untracked(&self, touched: &[Touched]) -> Result<Vec<PathBuf>> {
        let is_new = |touched: &&Touched| touched.will_be.is_some() && touched.was.is_none();
        let new: Vec<&Path> = touched.iter().filter(is_new).map(|touched| touched.path.as_path()).collect();
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let tracked = self.git("ls-files").arg("-z").ok().await?.fields();
        let tracked: BTreeSet<OsString> = tracked.into_iter().collect();
        let mut found = Vec::new();
        for path in new {
            let mut place = PathBuf::new();
            for part in path {
                place.push(part);
                let Ok(there) = self.tree.join(&place).symlink_metadata() else { break };
                if there.is_dir() && place != path {
                    continue;
                }
                if there.is_dir() {
                    // A file or link in the place of a directory: all that is in it would go.
                    let call = self.git("ls-files").args(["--others", "-z", "--"]).arg(literal(path));
                    found.extend(call.ok().await?.fields().into_iter().map(PathBuf::from));
                } else if !tracked.contains(place.as_os_str()) {
                    found.push(place.clone());
                }
                break;
            }
        }
        Ok(found)
    }
}

/// A name of bytes, as git takes it in a list of paths: itself and nothing else.
fn literal(path: &Path) -> OsString {
    let mut spec = b":(top,literal)".to_vec();
    spec.extend_from_slice(path.as_os_str().as_bytes());
    OsString::from_vec(spec)
}
