//! What can go wrong with a worktree, as a kind for exit codes and a hint for people.
//!
//! Texts that come from git are kept, cut to a cap; they are shown by the caller, which makes them inert.

use std::io;
use std::path::{Path, PathBuf};

use caliban_contract::disk_room;
use caliban_core::names::NameError;

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a worktree could not be made, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name breaks the one rule for names.
    #[error("not a worktree name: {0}")]
    Name(#[from] NameError),
    /// The directory is in no repository that git accepts.
    #[error("{} is not in a git repository: {detail}", path.display())]
    NotARepository {
        /// Where it was looked for.
        path: PathBuf,
        /// What git says.
        detail: String,
    },
    /// Git would work on a repository that does not say that the directory is its own.
    #[error("{} is in no repository of its own: git would use {}, which does not say that it is this directory's", path.display(), leads_to.display())]
    OtherRepository {
        /// Where it was looked for.
        path: PathBuf,
        /// What git would use.
        leads_to: PathBuf,
    },
    /// `git` itself cannot be started.
    #[error("cannot start {}: {source}", program.display())]
    GitMissing {
        /// The program that was tried.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No commit yet.
    #[error("the repository has no commit yet, so there is nothing to base a worktree on")]
    UnbornHead,
    /// The base is not a commit here.
    #[error("base_ref '{}' names no commit in this repository", .0.escape_debug())]
    UnknownRevision(String),
    /// A worktree of that name is there already.
    #[error("a worktree named '{name}' already exists at {}", path.display())]
    Exists {
        /// Its name.
        name: String,
        /// Where it is.
        path: PathBuf,
    },
    /// Somebody makes, uses or removes it at this moment.
    #[error("the worktree '{name}' at {} is in use by another process", path.display())]
    Busy {
        /// Its name.
        name: String,
        /// Where it is.
        path: PathBuf,
    },
    /// The branch is taken.
    #[error("the branch '{0}' already exists")]
    BranchExists(String),
    /// The branch cannot be made beside another one.
    #[error("the branch '{branch}' cannot be made: {detail}")]
    BranchConflict {
        /// The branch.
        branch: String,
        /// What git says.
        detail: String,
    },
    /// No worktree of ours has that name.
    #[error("there is no worktree named '{0}'")]
    NotFound(String),
    /// It is not where we put it.
    #[error("the worktree '{name}' was moved to {}", path.display())]
    Moved {
        /// The name.
        name: String,
        /// Where git says it is.
        path: PathBuf,
    },
    /// No rescue of that name.
    #[error("there is no rescue named '{0}'")]
    RescueNotFound(String),
    /// A sparse path is not a path beneath the root.
    #[error("sparse path '{}' is refused: {why}", path.escape_debug())]
    SparsePath {
        /// As it was given.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// A shared directory is refused.
    #[error("symlink_directories '{}' is refused: {why}", path.escape_debug())]
    Link {
        /// As it was given.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// A part of the place for worktrees is not a plain directory.
    #[error("{} is refused: {why}", path.display())]
    Place {
        /// The path.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// `.worktreeinclude` matches too much.
    #[error(".worktreeinclude matches more than {0}")]
    IncludeTooLarge(String),
    /// The setup command failed.
    #[error("the setup command {ending}: {command}")]
    Setup {
        /// What ran.
        command: String,
        /// How it ended, in words.
        ending: String,
        /// The end of what it printed.
        output: String,
    },
    /// git waited for something that does not come.
    #[error("git {0} was ended: it made no progress")]
    Stalled(String),
    /// Something in the worktree cannot be read, so it cannot be saved.
    #[error("cannot read everything in the worktree, so nothing was removed: {0}")]
    Unreadable(String),
    /// A file changed while it was being saved.
    #[error("{} changed while it was being saved; nothing was removed", .0.display())]
    ChangedWhileSaving(PathBuf),
    /// The disk is full.
    #[error("no space left on the device while {0}")]
    DiskFull(String),
    /// Its making was cut short.
    #[error("the worktree '{0}' was never finished, and nobody has worked in it")]
    Unfinished(String),
    /// The record is there, the directory is not.
    #[error("the directory of the worktree '{name}' is gone: {}", path.display())]
    FilesGone {
        /// Its name.
        name: String,
        /// Where it was.
        path: PathBuf,
    },
    /// git failed.
    #[error("git {command} failed{}: {stderr}", code.map(|c| format!(" ({c})")).unwrap_or_default())]
    Git {
        /// The subcommand.
        command: String,
        /// Its exit code, if it had one.
        code: Option<i32>,
        /// The end of what it said.
        stderr: String,
    },
    /// git knows no name for a commit.
    #[error("git does not know who you are")]
    Nameless,
    /// git said something that we do not understand.
    #[error("git {command} answered something unexpected: {detail}")]
    Answer {
        /// The subcommand.
        command: &'static str,
        /// What.
        detail: String,
    },
    /// A file operation failed.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The private git of a worktree cannot be had, or what is in it cannot be shown to the user.
    #[error("the private git: {0}")]
    PrivateGit(String),
    /// The caller gave up.
    #[error("cancelled")]
    Cancelled,
}

/// A class of errors, for exit codes and protocol answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The caller asked for something that cannot be.
    Usage,
    /// It is not there.
    NotFound,
    /// It is there already, or in use.
    Conflict,
    /// Asked for something that is never done.
    Refused,
    /// The setup command failed.
    Setup,
    /// The machine: disk, permissions, git.
    Environment,
    /// The caller gave up.
    Cancelled,
}

/// What git says when it does not know who commits.
const NAMELESS: [&str; 3] = ["tell me who you are", "identity unknown", "empty ident name"];

impl Error {
    /// Which class it is in.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(_)
            | Self::UnknownRevision(_)
            | Self::UnbornHead
            | Self::NotARepository { .. }
            | Self::OtherRepository { .. } => ErrorKind::Usage,
            Self::NotFound(_) | Self::RescueNotFound(_) => ErrorKind::NotFound,
            Self::Exists { .. }
            | Self::Busy { .. }
            | Self::BranchExists(_)
            | Self::BranchConflict { .. }
            | Self::Unfinished(_)
            | Self::FilesGone { .. }
            | Self::Moved { .. } => ErrorKind::Conflict,
            Self::SparsePath { .. } | Self::Link { .. } | Self::Place { .. } | Self::IncludeTooLarge(_) => {
                ErrorKind::Refused
            }
            Self::Setup { .. } => ErrorKind::Setup,
            Self::GitMissing { .. }
            | Self::Unreadable(_)
            | Self::Stalled(_)
            | Self::ChangedWhileSaving(_)
            | Self::DiskFull(_)
            | Self::Git { .. }
            | Self::Nameless
            | Self::Answer { .. }
            | Self::PrivateGit(_)
            | Self::Io { .. } => ErrorKind::Environment,
            Self::Cancelled => ErrorKind::Cancelled,
        }
    }

    /// What to do about it, where we know.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::UnbornHead => {
                "make a first commit (`git commit --allow-empty -m start`) and try again".into()
            }
            Self::OtherRepository { .. } => {
                "did you make it so (--separate-git-dir, a worktree that was moved)? then `caliban trust` accepts it".into()
            }
            Self::Exists { name, .. } => format!(
                "choose another name, or remove it with `caliban worktrees rm {name}` (its work is kept)"
            ),
            Self::Busy { name, .. } => {
                format!("wait until it is done, or choose another name than '{name}'")
            }
            Self::Unfinished(name) => {
                format!("resume its agent, or remove it with `caliban worktrees rm {name}`")
            }
            Self::FilesGone { name, .. } => format!(
                "what was committed is on the branch caliban/{name}; `caliban worktrees rm {name}` tidies the record"
            ),
            Self::BranchExists(branch) => format!(
                "it may hold earlier work: look with `git log {branch}`, delete it with `git branch -d {branch}`, \
                 or choose another name"
            ),
            Self::BranchConflict { .. } => {
                "rename the branch that is in the way, or choose another name".into()
            }
            Self::UnknownRevision(_) => {
                "`git rev-parse --verify <base_ref>` must work in the repository".into()
            }
            Self::NotFound(_) => "`caliban worktrees list` shows what is there".into(),
            Self::RescueNotFound(_) => "`caliban worktrees rescue list` shows what is there".into(),
            Self::Moved { path, .. } => {
                format!("it is left alone; `git worktree remove {}` removes it", path.display())
            }
            Self::Link { .. } => {
                "name an existing directory of the repository, relative to its root, without links on the way"
                    .into()
            }
            Self::SparsePath { .. } => {
                "name directories relative to the repository's root, like `src/`".into()
            }
            Self::DiskFull(_) => "make room and try again; nothing half-made was left".into(),
            Self::Setup { output, .. } if !output.is_empty() => format!("its output ended with:\n{output}"),
            Self::GitMissing { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "install git 2.42 or newer".into()
            }
            Self::ChangedWhileSaving(_) => "stop what is still writing there and try again".into(),
            Self::Stalled(_) => {
                "is there a pipe or a device in the place of a file that git reads, such as .gitignore? \
                 `find <worktree> -name '.git*' -not -type f -not -type d` shows it"
                    .into()
            }
            Self::Unreadable(_) => "make it readable (chmod u+rX) and try again".into(),
            Self::Nameless => {
                "tell git who you are: git config --global user.name \"…\"; git config --global user.email \"…\""
                    .into()
            }
            _ => return None,
        })
    }

    /// git has failed, with this at the end of what it said.
    pub(crate) fn of_git(command: String, code: Option<i32>, stderr: String) -> Self {
        if NAMELESS.iter().any(|part| stderr.contains(part)) {
            return Self::Nameless;
        }
        Self::Git { command, code, stderr }
    }

    pub(crate) fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> Self {
        let (doing, source) = (doing.into(), source.into());
        if disk_room::is_full(&source) { Self::DiskFull(doing) } else { Self::Io { doing, source } }
    }

    pub(crate) fn at(doing: &str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::io(format!("{doing} {}", path.display()), source)
    }
}
