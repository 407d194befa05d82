//! Submodules whose new commits only the worktree has. A linked worktree has stores of its own for its submodules, which go
//! with it: a branch that points at a commit in there could not be checked out any more.

use std::path::{Component, Path, PathBuf};

use super::preview::Touched;
use super::refusal::SubmoduleCommit;
use super::work::Work;
use crate::error::Result;
use crate::git::GitPlace;
use crate::marker::Oid;
use crate::repo::{Repo, is_git_dir};

impl Repo {
    /// The submodules that would move to a commit which is neither in the user's store of the submodule nor known to come
    /// from a remote.
    pub(super) async fn unpublished_submodules(
        &self,
        work: &Work,
        touched: &[Touched],
        merged: &Oid,
    ) -> Result<Vec<SubmoduleCommit>> {
        let mut found = Vec::new();
        for Touched { path, will_be, .. } in touched {
            let Some(commit) = will_be.as_ref().filter(|entry| entry.is_submodule) else { continue };
            let name = self.submodule_name(merged, path).await?;
            let users = stores(self.common_dir(), &name, self.source().map(|tree| tree.join(path)));
            if self.any_has(&users, &commit.oid).await? {
                continue;
            }
            let agents = stores(&work.at.admin, &name, Some(work.at.path.join(path)));
            for store in &agents {
                if self.only_here(store, &commit.oid).await? {
                    let path = path.to_string_lossy().into_owned();
                    found.push(SubmoduleCommit { path, commit: commit.oid.clone() });
                    break;
                }
            }
        }
        Ok(found)
    }

    /// A submodule's name by the `.gitmodules` of a tree; its path where that does not say.
    async fn submodule_name(&self, tree: &Oid, path: &Path) -> Result<PathBuf> {
        let call = self.git.hardened(self.store(), "config").arg("--blob").arg(format!("{tree}:.gitmodules"));
        let answer = call.args(["-z", "--get-regexp", r"^submodule\..*\.path$"]).run().await?;
        let wanted = path.to_string_lossy();
        let named = answer.fields().into_iter().find_map(|entry| {
            let entry = entry.to_string_lossy().into_owned();
            let (key, value) = entry.split_once('\n')?;
            let name = key.strip_prefix("submodule.")?.strip_suffix(".path")?;
            (value == wanted).then(|| PathBuf::from(name))
        });
        Ok(named.unwrap_or_else(|| path.to_owned()))
    }

    async fn any_has(&self, stores: &[PathBuf], commit: &str) -> Result<bool> {
        for store in stores {
            let call = self.git.hardened(in_store(store), "cat-file").arg("-e");
            if call.arg(format!("{commit}^{{commit}}")).succeeds().await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a store has the commit, and on no branch of a remote.
    async fn only_here(&self, store: &Path, commit: &str) -> Result<bool> {
        let call = self.git.hardened(in_store(store), "rev-list").args(["--max-count=1", commit]);
        let answer = call.args(["--not", "--remotes", "--"]).run().await?;
        Ok(answer.status.success() && !answer.stdout.is_empty())
    }
}

/// The git directories that a submodule may have: beside its superproject's, and the old way in its own directory.
fn stores(git_dir: &Path, name: &Path, directory: Option<PathBuf>) -> Vec<PathBuf> {
    let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
    let absorbed = is_plain.then(|| git_dir.join("modules").join(name));
    let inside = directory.map(|directory| directory.join(".git"));
    absorbed.into_iter().chain(inside).filter(|store| is_git_dir(store)).collect()
}

/// As if its files were beside it: where it says that they are does not matter here.
fn in_store(store: &Path) -> GitPlace<'_> {
    GitPlace::Tree { common: store, git_dir: store, files: store }
}
