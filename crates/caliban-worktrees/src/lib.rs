//! Git worktrees for agents: made fast, looked at without trusting them, landed, removed without losing a byte.
//!
//! Owns `.caliban/worktrees/<name>/`, the branches `caliban/<name>` and the refs `refs/caliban/rescue/…`.
//! Knows nothing of agents, settings or terminals: it takes structs, reports structs, and never prints or
//! reads the environment. Worktrees that it did not make are never touched.
//!
//! Open a [`Repo`] once, from the user's directory, and keep it; everything is a method of it.

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make their trees by path"))]

mod accepted_git;
mod accepted_programs;
mod alternates;
mod blobs;
mod commit;
mod create;
mod diff;
mod error;
mod exclude;
mod fast_import;
mod found_git;
mod git;
mod glance;
mod half_made;
mod include;
mod index;
mod inspect;
mod kept_paths;
mod landing;
mod leftovers;
mod links;
mod lookup;
mod marker;
mod nested;
mod one_call_store;
mod private_view;
mod programs;
mod progress;
mod recreate;
mod remove;
mod repo;
mod rescue;
mod setup;
mod sparse;
mod status;
mod survey;
mod sweep;

pub use accepted_git::AcceptedGit;
pub use accepted_programs::HOW_TO_ACCEPT;
pub use create::{BaseRef, CreateRequest, Created, OnProgress, Worktree};
pub use diff::{Changes, Commit, FileChange, MergeKind, MergePreview, PATCH_CAP, Patch};
pub use error::{Error, ErrorKind, Result};
pub use fast_import::{ESCAPE, EXTRAS};
pub use found_git::{FoundGit, GitFile, alternates, doubtful_places, followed_by_git, git_file};
pub use git::{GitEnvironment, GitOptions};
pub use glance::Glance;
pub use inspect::{Inspection, ListedWorktree, Presence, Use};
pub use kept_paths::{FileState, index_keeps};
pub use landing::{
    CannotCommit, CommitLeft, LandAs, LandNote, LandRequest, Landed, LandingRefusal, LandingTurn, NotLanded,
    Operation, SubmoduleCommit, TreeAfter,
};
pub use links::check_links;
pub use lookup::Lookup;
pub use marker::{Making, Marker, Oid};
pub use nested::{GitLink, KnownRepos, NestedDuties, NestedRepos};
pub use private_view::PrivateGit;
pub use programs::{FoundPrograms, GitOccasion, may_run_programs};
pub use progress::{CreationPhase, Progress};
pub use remove::{BranchFate, KeepWorktrees, RemovalOutcome, RemoveOptions, RemoveReport};
pub use repo::{BRANCH_PREFIX, Lease, PLACE, ReadingGit, Repo, branch_of, git_that_reads};
pub use rescue::{RESCUE_PREFIX, Rescue, RestoreTo, Restored};
pub use setup::{SETUP_SECONDS, Setup};
pub use survey::{ChangeKind, IgnoredFiles, PathChange};
pub use sweep::{SweepMode, SweepReport, Swept};
