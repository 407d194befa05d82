//! Why work did not land: data for a program. Who shows it to a person finds the words.

use std::path::{Path, PathBuf};

use crate::error::Error;

/// Work that did not land, with as much of the request as was understood.
#[derive(Debug)]
pub struct NotLanded {
    /// What was to land, in words for people: a branch, or the detached HEAD of the worktree.
    pub branch: Option<String>,
    /// Where it was to land, in words for people.
    pub into: Option<String>,
    /// Why it did not.
    pub refusal: LandingRefusal,
}

/// Why work did not land. Except where [`TreeAfter`] says otherwise, nothing was changed.
#[derive(Debug)]
pub enum LandingRefusal {
    /// A bare repository's HEAD names no branch, and the request names none.
    BareHead,
    /// The request names a branch that does not exist.
    NoSuchBranch(String),
    /// The branch is checked out in another tree than the one that was opened.
    CheckedOutElsewhere {
        /// The branch.
        branch: String,
        /// That tree.
        place: String,
    },
    /// There is no commit to merge into.
    NoCommit(String),
    /// A rebase or bisection of the branch is not finished in some tree.
    BranchInUse {
        /// The operation.
        operation: Operation,
        /// The branch.
        branch: String,
    },
    /// An operation is not finished in the user's tree.
    UnfinishedHere {
        /// The operation.
        operation: Operation,
        /// The tree.
        tree: PathBuf,
        /// Whether it is a merge of the same work that was interrupted.
        is_same_merge: bool,
    },
    /// Another git holds the lock of the user's index.
    IndexLocked {
        /// The tree.
        tree: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// An operation is not finished in the worktree.
    UnfinishedInWorktree {
        /// The operation.
        operation: Operation,
        /// The worktree.
        worktree: PathBuf,
    },
    /// The worktree has no commit checked out.
    NoHead(PathBuf),
    /// The worktree's branch has commits that are not in what is checked out there.
    BranchNotCheckedOut {
        /// The branch.
        branch: String,
        /// The worktree.
        worktree: PathBuf,
    },
    /// The worktree has work that is in no commit, and the request does not ask to commit it.
    Uncommitted(Vec<String>),
    /// The worktree has work that is in no commit, and another branch than its own checked out.
    NotOnItsBranch {
        /// Its own branch.
        branch: String,
        /// The worktree.
        worktree: PathBuf,
    },
    /// A path cannot be committed from outside of the worktree.
    CannotCommit {
        /// The path.
        path: String,
        /// Why.
        why: CannotCommit,
        /// The worktree.
        worktree: PathBuf,
    },
    /// Both sides changed the same.
    Conflicts {
        /// What `git merge` takes to do it by hand: a branch or a commit.
        revision: String,
        /// The paths.
        files: Vec<String>,
    },
    /// A submodule would point at a commit that only the worktree has.
    SubmoduleCommits {
        /// The submodules.
        submodules: Vec<SubmoduleCommit>,
        /// The worktree.
        worktree: PathBuf,
    },
    /// The user has staged something.
    Staged {
        /// The tree.
        tree: PathBuf,
        /// The paths.
        files: Vec<PathBuf>,
        /// Whether it is the same work, staged by a squash that was interrupted.
        is_same_merge: bool,
    },
    /// The user has announced files with `git add -N`; git cannot merge beside them.
    Announced {
        /// The tree.
        tree: PathBuf,
        /// The paths.
        files: Vec<PathBuf>,
    },
    /// The user has uncommitted files that the merge would touch.
    InTheWay(Vec<PathBuf>),
    /// HEAD of the user's tree moved between the preview and the merge.
    HeadMoved(PathBuf),
    /// git, or a hook, did not do the merge.
    MergeFailed {
        /// What it said.
        error: Error,
        /// What the tree is like now.
        after: TreeAfter,
    },
    /// git did the merge and made no commit.
    NoCommitMade(TreeAfter),
    /// The caller gave up.
    Interrupted(TreeAfter),
    /// Something else failed.
    Failed(Error),
}

/// Operations of git that take several steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `git merge`
    Merge,
    /// `git cherry-pick`
    CherryPick,
    /// `git revert`
    Revert,
    /// `git rebase`
    Rebase,
    /// `git bisect`
    Bisect,
}

/// Why a path cannot be committed from outside of its worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannotCommit {
    /// It is in conflict.
    Conflicted,
    /// Its name is not text.
    NameIsNoText,
    /// git refuses its name in a tree.
    NameIsGits,
    /// It is a pipe, a socket or a device.
    NoFile,
    /// It goes through this filter, a program; none is run on an agent's files.
    Filter(String),
    /// It is kept in another encoding than in the worktree.
    Encoding,
    /// git puts its id into it.
    Ident,
    /// It is too large for its line ends to be converted.
    TooLarge,
    /// It cannot be read.
    Unreadable(String),
}

/// A submodule's commit that only the worktree has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubmoduleCommit {
    /// The submodule's path.
    pub path: String,
    /// The commit.
    pub commit: String,
}

/// What became of the user's tree when a merge did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeAfter {
    /// It is as it was before.
    AsBefore,
    /// Somebody moved HEAD meanwhile, so nothing was taken back.
    HeadMoved(PathBuf),
    /// Somebody began another merge meanwhile, so nothing was taken back.
    OtherMerge(PathBuf),
    /// It could not be taken back; why, where that is known.
    Changed(PathBuf, Option<String>),
}

impl LandingRefusal {
    /// The kind, for programs. Stable.
    pub fn code(&self) -> &'static str {
        match self {
            Self::BareHead | Self::NoSuchBranch(_) | Self::CheckedOutElsewhere { .. } => "usage",
            Self::BranchInUse { .. }
            | Self::UnfinishedHere { .. }
            | Self::IndexLocked { .. }
            | Self::UnfinishedInWorktree { .. } => "unfinished",
            Self::Uncommitted(_) => "uncommitted",
            Self::CannotCommit { .. } => "cannot_commit",
            Self::Conflicts { .. } => "conflicts",
            Self::SubmoduleCommits { .. } => "submodule",
            Self::Staged { .. } | Self::Announced { .. } => "staged",
            Self::InTheWay(_) => "in_the_way",
            Self::HeadMoved(_) | Self::MergeFailed { .. } | Self::NoCommitMade(_) => "git",
            Self::Interrupted(_) => "interrupted",
            Self::NoCommit(_)
            | Self::NoHead(_)
            | Self::BranchNotCheckedOut { .. }
            | Self::NotOnItsBranch { .. }
            | Self::Failed(_) => "failed",
        }
    }

    /// The files that it is about, by their paths in the repository.
    pub fn files(&self) -> Vec<String> {
        let text = |path: &PathBuf| Path::to_string_lossy(path).into_owned();
        match self {
            Self::Uncommitted(files) | Self::Conflicts { files, .. } => files.clone(),
            Self::CannotCommit { path, .. } => vec![path.clone()],
            Self::SubmoduleCommits { submodules, .. } => {
                submodules.iter().map(|submodule| submodule.path.clone()).collect()
            }
            Self::Staged { files, .. } | Self::Announced { files, .. } | Self::InTheWay(files) => {
                files.iter().map(text).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl From<Error> for LandingRefusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Cancelled => Self::Interrupted(TreeAfter::AsBefore),
            error => Self::Failed(error),
        }
    }
}
