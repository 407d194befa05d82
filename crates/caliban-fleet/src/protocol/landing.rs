//! An agent's work over the control socket: what it changed, and landing it.

use caliban_core::{ids::AgentId, review::Review};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// `GET /v1/agents/{id}/diff`: what an agent changed against its recorded base, committed or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// The worktree.
    pub name: String,
    /// Its branch.
    pub branch: String,
    /// The commit that it was based on.
    pub base: String,
    /// The commit that is checked out.
    pub head: Option<String>,
    /// Commits over the base, newest first; the first 500.
    pub commits: Vec<DiffCommit>,
    /// How many there are.
    pub commit_count: u64,
    /// Files that differ; the first 5,000.
    pub files: Vec<DiffFile>,
    /// How many there are.
    pub file_count: u64,
    /// What is in no commit yet.
    pub uncommitted: Vec<DiffPath>,
    /// What is in no commit and is not meant to be: it is not among the files, nor in the patch.
    pub left: Vec<DiffPath>,
    /// `3 files changed, 10 insertions(+), 2 deletions(-)`.
    pub summary: String,
    /// The patch in git's format; bytes that are not text are replaced. None when only the figures were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
    /// Whether the patch goes on beyond what is here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_is_cut: Option<bool>,
}

/// A commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffCommit {
    /// Its id.
    pub oid: String,
    /// Who made it.
    pub author: String,
    /// When.
    #[serde(with = "caliban_core::instant")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub authored_at: u64,
    /// The first line of its message.
    pub subject: String,
}

/// A file that differs from the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffFile {
    /// Its path; bytes that are not text are replaced.
    pub path: String,
    /// git's letter: A, M, D or T.
    pub status: char,
    /// Lines added; none for binary files.
    pub added: Option<u64>,
    /// Lines deleted; none for binary files.
    pub deleted: Option<u64>,
}

/// A path that differs, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DiffPath {
    /// The path from the worktree's root; bytes that are not text are replaced.
    pub path: String,
    /// How it differs, in a word.
    pub kind: String,
}

/// `POST /v1/agents/{id}/merge`: lands an agent's work in the main tree of the repo, or in a branch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MergeRequest {
    /// First commit what the agent left uncommitted, with this message. Without one that is done, with the suggested message, when
    /// the agent has made no commit; else it is refused.
    pub commit: Option<String>,
    /// Commit it in any case, with the suggested message when `commit` has none.
    pub commit_left: bool,
    /// Land everything as one ordinary commit.
    pub squash: bool,
    /// The branch; what is checked out in the main tree when absent.
    pub into: Option<String>,
    /// The message of the merge.
    pub message: Option<String>,
    /// Only try it, with what is not committed: nothing is touched.
    pub preview: bool,
}

/// What came of a merge; `how` tells which.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MergeAnswer {
    /// It has landed, or had already.
    Merged(Merged),
    /// It has not.
    Refused(MergeRefused),
    /// What a merge would do.
    Preview(MergeForecast),
}

/// Work that has landed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Merged {
    /// Whose.
    #[schemars(with = "String")]
    pub agent: AgentId,
    /// What landed.
    pub branch: String,
    /// Where.
    pub into: String,
    /// As what.
    pub how: MergeHow,
    /// Where the branch is now.
    pub commit: String,
    /// How many commits of the agent that brings.
    pub commits: u64,
    /// What it changed there.
    pub summary: String,
    /// What stays in the worktree, because no commit is meant to have it: ignored files, repositories of their own.
    pub left: Vec<String>,
    /// Whether HEAD is on no branch where it landed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_detached: bool,
    /// Whether the worktree has neither a commit of its own nor a change.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_nothing: bool,
    /// The message of the commit that was made of uncommitted work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed_as: Option<String>,
}

/// How a merge went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MergeHow {
    /// A merge commit.
    Merge,
    /// One ordinary commit.
    Squash,
    /// Everything was there already.
    UpToDate,
    /// Not at all.
    Refused,
}

/// A merge that was refused: the fields that one which has landed has, as far as they are known, and why it has not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergeRefused {
    /// Whose.
    #[schemars(with = "Option<String>")]
    pub agent: Option<AgentId>,
    /// What was to land.
    pub branch: Option<String>,
    /// Where.
    pub into: Option<String>,
    /// Always `refused`.
    pub how: MergeHow,
    /// The kind, in a stable word: `conflicts`, `uncommitted`, `at_work`, `in_the_way` …
    pub reason: String,
    /// The files that it is about.
    pub files: Vec<String>,
    /// For people.
    pub error: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What a merge would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MergeForecast {
    /// Whose work.
    #[schemars(with = "String")]
    pub agent: AgentId,
    /// `up_to_date`, `fast_forward`, `clean` or `conflicts`.
    pub would_be: String,
    /// Files in conflict.
    pub conflicts: Vec<String>,
    /// What git says about them.
    pub messages: Vec<String>,
    /// Files with changes that are in no commit yet; they are part of the forecast.
    #[serde(default)]
    pub uncommitted: Vec<String>,
    /// The branch that it would land in.
    #[serde(default)]
    pub into: String,
    /// The suggested message for one commit: of what is not committed, or of a squash.
    #[serde(default)]
    pub message: String,
    /// The suggested message for a merge commit.
    #[serde(default)]
    pub merge_message: String,
    /// How many commits of its own the agent has.
    #[serde(default)]
    pub commits: u64,
    /// What it changed: `3 files changed, 10 insertions(+), 2 deletions(-)`.
    #[serde(default)]
    pub summary: String,
    /// How its work stands.
    #[serde(default)]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub review: Option<Review>,
}

impl MergeForecast {
    /// Whether there is something to land, and it lands without conflicts.
    #[must_use]
    pub fn can_land(&self) -> bool {
        !matches!(self.would_be.as_str(), "conflicts" | "up_to_date")
    }
}

/// `GET /v1/agents/{id}/log`: a part of what an agent did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogPart {
    /// Whose.
    #[schemars(with = "String")]
    pub agent: AgentId,
    /// The records of its transcript, in order, or the lines of its `worker.log`. A line that is no record is a text.
    pub records: Vec<Value>,
    /// What to ask for next (`after`): everything before it was told.
    pub next: u64,
    /// Whether there may be more at once. If not, ask again when the agent has done more.
    pub more: bool,
}
