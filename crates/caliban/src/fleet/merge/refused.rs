//! Why a merge was refused: an error for people, and the same as an object for programs.

use std::path::Path;

use caliban_control::{ClientError, protocol::ErrorCode};
use caliban_core::ids::AgentId;
use serde::Serialize;

use super::super::worded;
use crate::report::{Code, Failure};

/// Why it was refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) failure: Failure,
    reason: Reason,
    /// The files that it is about, by their paths in the repo.
    files: Vec<String>,
}

/// The kinds of it. Some are not told apart by more than their words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// The command line was wrong, or names a branch that cannot be merged into.
    Usage,
    /// No agent fits.
    NotFound,
    /// Several fit.
    Ambiguous,
    /// The agent has no worktree.
    NoWorktree,
    /// The agent has not ended.
    AtWork,
    /// The agent left what is not committed.
    Uncommitted,
    /// What it left cannot be committed from here.
    CannotCommit,
    /// Both sides changed the same.
    Conflicts,
    /// The user has uncommitted files that the merge would touch.
    InTheWay,
    /// The user has staged something.
    Staged,
    /// A merge, rebase or the like is not finished, of the user's or of the agent's.
    Unfinished,
    /// git, or a hook, did not do it.
    Git,
    /// It was interrupted, and taken back.
    Interrupted,
    /// Something else, in words.
    Failed,
}

/// What is known of a merge so far.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) agent: Option<AgentId>,
    pub(super) branch: Option<String>,
    pub(super) into: Option<String>,
}

impl Refused {
    pub(super) fn new<P: AsRef<Path>>(reason: Reason, failure: Failure, files: &[P]) -> Self {
        let files = files.iter().map(|path| path.as_ref().to_string_lossy().into_owned()).collect();
        Self { failure, reason, files }
    }

    /// About no file.
    pub(super) fn of(reason: Reason, failure: Failure) -> Self {
        Self { failure, reason, files: Vec::new() }
    }

    /// As programs get it.
    pub(super) fn told(&self, known: Known) -> impl Serialize + use<'_> {
        /// The fields that a merge which has landed has, too, as far as they are known, and why it has not.
        #[derive(Serialize)]
        struct Told<'a> {
            agent: Option<AgentId>,
            branch: Option<String>,
            into: Option<String>,
            how: &'static str,
            reason: Reason,
            files: &'a [String],
            error: &'a str,
            hint: Option<&'a str>,
        }
        let Known { agent, branch, into } = known;
        let Self { failure, reason, files } = self;
        let (error, hint) = (failure.message.as_str(), failure.hint.as_deref());
        Told { agent, branch, into, how: "refused", reason: *reason, files, error, hint }
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        let reason = match failure.code {
            Code::Usage => Reason::Usage,
            Code::Interrupted => Reason::Interrupted,
            Code::Done | Code::Failed | Code::Refused | Code::Limit | Code::Timeout => Reason::Failed,
        };
        Self::of(reason, failure)
    }
}

impl From<ClientError> for Refused {
    fn from(error: ClientError) -> Self {
        let reason = match &error {
            ClientError::Refused(error) if error.code == ErrorCode::NotFound => Reason::NotFound,
            ClientError::Refused(error) if error.code == ErrorCode::Ambiguous => Reason::Ambiguous,
            _ => Reason::Failed,
        };
        Self::of(reason, worded(error))
    }
}
