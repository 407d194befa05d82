//! Where an agent's work goes: what is checked out in the user's tree, or a branch that is checked out nowhere.

use std::fs;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::refusal::{LandingRefusal, Operation};
use crate::error::Result;
use crate::git::GitPlace;
use crate::marker::Oid;
use crate::repo::Repo;

/// Where it goes.
pub(super) enum LandingTarget {
    /// What is checked out in this tree; without a name when HEAD is detached.
    Here { tree: PathBuf, name: Option<String> },
    /// A branch that is checked out nowhere.
    Branch { name: String },
}

/// The mark that each operation leaves in the git directory until it is finished.
const MARKS: [(&str, Operation); 6] = [
    ("MERGE_HEAD", Operation::Merge),
    ("CHERRY_PICK_HEAD", Operation::CherryPick),
    ("REVERT_HEAD", Operation::Revert),
    ("rebase-merge", Operation::Rebase),
    ("rebase-apply", Operation::Rebase),
    ("BISECT_LOG", Operation::Bisect),
];
/// Those of them that are refs. In a repository with reftables they are no files.
const MARKS_IN_REFTABLES: [(&str, Operation); 2] =
    [("CHERRY_PICK_HEAD", Operation::CherryPick), ("REVERT_HEAD", Operation::Revert)];

impl LandingTarget {
    pub(super) async fn find(repo: &Repo, into: Option<&str>) -> Result<Self, LandingRefusal> {
        let head = repo.symbolic_ref(repo.opened(), "HEAD").await?;
        let short = |name: &str| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned();
        let into = match (into, &head, repo.source()) {
            (Some(into), _, _) => into.to_owned(),
            (None, head, Some(tree)) => {
                return Ok(Self::Here { tree: tree.to_owned(), name: head.as_deref().map(short) });
            }
            // What is "checked out" in a bare repository is a branch like others.
            (None, Some(head), None) => short(head),
            (None, None, None) => return Err(LandingRefusal::BareHead),
        };
        let mut reference = format!("refs/heads/{}", short(&into));
        // A branch that is another name for a branch.
        if let Some(other) = repo.symbolic_ref(repo.store(), &reference).await? {
            reference = other;
        }
        if let (Some(tree), true) = (repo.source(), Some(&reference) == head.as_ref()) {
            return Ok(Self::Here { tree: tree.to_owned(), name: Some(short(&reference)) });
        }
        let call = repo.git.hardened(repo.store(), "rev-parse");
        let call = call.args(["--verify", "--quiet", "--end-of-options", reference.as_str()]);
        if !reference.starts_with("refs/heads/") || !call.succeeds().await? {
            return Err(LandingRefusal::NoSuchBranch(into));
        }
        let branch = short(&reference);
        if let Some(place) = repo.checkouts_of(&reference).await?.first() {
            return Err(LandingRefusal::CheckedOutElsewhere { branch, place: place.display().to_string() });
        }
        if let Some(operation) = in_use(repo.common_dir(), &reference) {
            return Err(LandingRefusal::BranchInUse { operation, branch });
        }
        Ok(Self::Branch { name: branch })
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here { name: None, .. } => "the detached HEAD",
            Self::Here { name: Some(name), .. } | Self::Branch { name } => name,
        }
    }

    pub(super) fn is_detached(&self) -> bool {
        matches!(self, Self::Here { name: None, .. })
    }

    /// The commit that it is at.
    pub(super) async fn commit(&self, repo: &Repo) -> Result<Oid, LandingRefusal> {
        let name = match self {
            Self::Here { .. } => "HEAD^{commit}".to_owned(),
            Self::Branch { name } => format!("refs/heads/{name}^{{commit}}"),
        };
        let call = repo.git.hardened(repo.opened(), "rev-parse");
        let found = call.args(["--verify", "--quiet", "--end-of-options", name.as_str()]).run().await?;
        found.oid().ok_or_else(|| LandingRefusal::NoCommit(self.name().to_owned()))
    }
}

impl Repo {
    /// The branch that work would land in, in words for people.
    pub async fn landing_target(
        &self,
        into: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<String, LandingRefusal> {
        let target = LandingTarget::find(&self.until(cancel), into).await?;
        Ok(target.name().to_owned())
    }

    /// What a symbolic ref names; `None` for other refs.
    pub(super) async fn symbolic_ref(&self, place: GitPlace<'_>, name: &str) -> Result<Option<String>> {
        let found = self.git.hardened(place, "symbolic-ref").args(["--quiet", name]).run().await?;
        Ok(found.status.success().then(|| found.line()))
    }

    /// What is not finished in the tree with this administrative directory.
    pub(super) async fn unfinished(&self, git_dir: &Path) -> Result<Option<Operation>> {
        let is_there = |(mark, _): &(&str, Operation)| git_dir.join(mark).symlink_metadata().is_ok();
        if let Some((_, operation)) = MARKS.into_iter().find(is_there) {
            return Ok(Some(operation));
        }
        if !git_dir.join("reftable").is_dir() {
            return Ok(None);
        }
        let common = self.common_dir();
        for (mark, operation) in MARKS_IN_REFTABLES {
            let place = GitPlace::Tree { common, git_dir, files: common };
            let call = self.git.hardened(place, "rev-parse").args(["--verify", "--quiet", mark]);
            if call.succeeds().await? {
                return Ok(Some(operation));
            }
        }
        Ok(None)
    }
}

/// A rebase or bisection of the branch in some tree: HEAD is detached there, and git moves the branch at the end.
fn in_use(common: &Path, reference: &str) -> Option<Operation> {
    let linked =
        fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is =
        |path: PathBuf, wanted: &str| fs::read(path).is_ok_and(|text| text.trim_ascii() == wanted.as_bytes());
    let short = reference.strip_prefix("refs/heads/").unwrap_or(reference);
    std::iter::once(common.to_owned()).chain(linked).find_map(|dir| {
        if is(dir.join("rebase-merge/head-name"), reference)
            || is(dir.join("rebase-apply/head-name"), reference)
        {
            return Some(Operation::Rebase);
        }
        is(dir.join("BISECT_START"), short).then_some(Operation::Bisect)
    })
}
