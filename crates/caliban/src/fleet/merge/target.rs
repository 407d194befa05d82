//! Where an agent's work goes: what is checked out in the user's tree, or a branch that nobody works on.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use caliban_core::inert;
use caliban_worktrees::Repo;

use super::{
    super::git::Git,
    refused::{Reason, Refused},
};
use crate::report::Failure;

/// Where it goes.
pub(super) enum Target {
    /// What is checked out in this tree; without a name when HEAD is detached.
    Here { tree: PathBuf, name: Option<String> },
    /// A branch that is checked out nowhere.
    Branch { common: PathBuf, tree: PathBuf, name: String },
}

/// Operations of git that take several steps: where each leaves its mark, and what it is called.
const UNFINISHED: [(&str, &str); 6] = [
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("BISECT_LOG", "a bisection"),
];

impl Target {
    pub(super) async fn find(repo: &Repo, tree: PathBuf, into: Option<&str>) -> Result<Self, Refused> {
        let head = symbolic(&tree, "HEAD").await?;
        let short = |name: &str| name.strip_prefix("refs/heads/").unwrap_or(name).to_owned();
        let is_bare = repo.source().is_none();
        let into = match (into, &head) {
            (Some(into), _) => into.to_owned(),
            // What is "checked out" in a bare repo is a branch like others.
            (None, Some(head)) if is_bare => short(head),
            (None, _) if is_bare => {
                return Err(Failure::usage("this bare repo's HEAD names no branch")
                    .hint("say with --into which branch is meant")
                    .into());
            }
            (None, _) => return Ok(Self::Here { tree, name: head.as_deref().map(short) }),
        };
        let mut reference = format!("refs/heads/{}", short(&into));
        // A branch that is another name for a branch.
        if let Some(other) = symbolic(&tree, &reference).await? {
            reference = other;
        }
        if Some(&reference) == head.as_ref() && !is_bare {
            return Ok(Self::Here { tree, name: Some(short(&reference)) });
        }
        let known = Git::plain(&tree)
            .args(["rev-parse", "--verify", "--quiet", "--end-of-options", reference.as_str()])
            .output()
            .await?;
        if !known.status.success() || !reference.starts_with("refs/heads/") {
            let name = inert::line(&into);
            return Err(Failure::usage(format!("there is no branch {}", inert::quoted(&into)))
                .hint(format!(
                    "git branch lists them; git branch {name} makes it from what is checked out here"
                ))
                .into());
        }
        let name = short(&reference);
        let trees = Git::plain(&tree).args(["worktree", "list", "--porcelain", "-z"]).fields().await?;
        let mut place = String::new();
        for field in trees {
            if let Some(path) = field.as_bytes().strip_prefix(b"worktree ") {
                place = String::from_utf8_lossy(path).into_owned();
            } else if field.as_bytes().strip_prefix(b"branch ") == Some(reference.as_bytes()) {
                return Err(Failure::usage(format!(
                    "the branch {name} is checked out in {}",
                    inert::line(&place)
                ))
                .hint("give the command there, or with -C DIR")
                .into());
            }
        }
        if let Some(what) = in_use(repo.common_dir(), &reference) {
            let failure = Failure::new(format!("{what} of the branch {name} is not finished"))
                .hint("finish or abort it first: git status says how, in the worktree where it is");
            return Err(Refused::of(Reason::Unfinished, failure));
        }
        Ok(Self::Branch { common: repo.common_dir().to_owned(), tree, name })
    }

    pub(super) fn name(&self) -> &str {
        match self {
            Self::Here { name: None, .. } => "the detached HEAD",
            Self::Here { name: Some(name), .. } | Self::Branch { name, .. } => name,
        }
    }

    pub(super) fn is_detached(&self) -> bool {
        matches!(self, Self::Here { name: None, .. })
    }

    pub(super) fn tree(&self) -> &Path {
        match self {
            Self::Here { tree, .. } | Self::Branch { tree, .. } => tree,
        }
    }

    /// The commit that it is at.
    pub(super) async fn commit(&self) -> Result<String, Failure> {
        let name = match self {
            Self::Here { .. } => "HEAD^{commit}".to_owned(),
            Self::Branch { name, .. } => format!("refs/heads/{name}^{{commit}}"),
        };
        let args = ["rev-parse", "--verify", "--quiet", "--end-of-options", name.as_str()];
        let found = Git::plain(self.tree()).args(args).output().await?;
        if !found.status.success() {
            return Err(Failure::new(format!("{} has no commit yet to merge into", self.name()))
                .hint("make a first commit, or say another branch with --into"));
        }
        Ok(String::from_utf8_lossy(&found.stdout).trim().to_owned())
    }
}

/// What is not finished in a worktree, by its git directory.
pub(super) fn unfinished(git_dir: &Path) -> Option<(&'static str, &'static str)> {
    UNFINISHED.into_iter().find(|(mark, _)| git_dir.join(mark).symlink_metadata().is_ok())
}

async fn symbolic(tree: &Path, name: &str) -> Result<Option<String>, Failure> {
    let found = Git::plain(tree).args(["symbolic-ref", "--quiet", name]).output().await?;
    let named = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok(found.status.success().then_some(named))
}

/// A rebase or bisection of the branch in some worktree: there HEAD is detached, and the branch is moved at the end.
fn in_use(common: &Path, reference: &str) -> Option<&'static str> {
    let linked =
        fs::read_dir(common.join("worktrees")).into_iter().flatten().flatten().map(|entry| entry.path());
    let is =
        |path: PathBuf, wanted: &str| fs::read(path).is_ok_and(|text| text.trim_ascii() == wanted.as_bytes());
    let short = reference.strip_prefix("refs/heads/").unwrap_or(reference);
    std::iter::once(common.to_owned()).chain(linked).find_map(|dir| {
        if is(dir.join("rebase-merge/head-name"), reference)
            || is(dir.join("rebase-apply/head-name"), reference)
        {
            return Some("a rebase");
        }
        is(dir.join("BISECT_START"), short).then_some("a bisection")
    })
}
