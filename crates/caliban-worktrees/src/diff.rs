//! What an agent did, for its report and for landing it: commits, changed files, a patch, and a merge tried
//! without touching anything.
//!
//! Committed and uncommitted work are shown as one difference against the recorded base. For that the files
//! are written into a store that lives for one call, so nothing is left in the repository and no filter,
//! attribute or configuration of it is in force.

use caliban_core::names::Slug;
use caliban_core::review::{self, Review, ReviewState};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::fast_import::{self, Snapshot};
use crate::marker::Oid;
use crate::one_call_store::OneCallStore;
use crate::repo::{Repo, branch_of, split_nul};
use crate::survey::{IgnoredFiles, PathChange};

const COMMITS_CAP: usize = 500;
const FILES_CAP: usize = 5000;
/// How much of a patch is shown as text.
pub const PATCH_CAP: usize = 8 * 1024 * 1024;

/// A commit of the worktree's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Commit {
    /// Its id.
    pub oid: Oid,
    /// Who made it.
    pub author: String,
    /// When, in seconds since 1970.
    pub time: i64,
    /// The first line of its message.
    pub subject: String,
}

/// A file that differs from the base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Its path; bytes that are not text are replaced.
    pub path: String,
    /// git's letter: A, M, D or T.
    pub status: char,
    /// Lines added; `None` for binary files.
    pub added: Option<u64>,
    /// Lines deleted; `None` for binary files.
    pub deleted: Option<u64>,
}

/// All that a worktree holds over its base.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Changes {
    /// The worktree.
    pub name: Slug,
    /// Its branch.
    pub branch: String,
    /// What it was based on.
    pub base: Oid,
    /// What is checked out.
    pub head: Option<Oid>,
    /// Commits over the base, newest first (the first 500).
    pub commits: Vec<Commit>,
    /// How many there are.
    pub commit_count: u64,
    /// Files that differ, committed or not (the first 5,000).
    pub files: Vec<FileChange>,
    /// How many there are.
    pub file_count: usize,
    /// What is in no commit yet.
    pub uncommitted: Vec<PathChange>,
    /// What is in no commit and is not meant to be: it is not among the files, nor in a patch.
    pub left: Vec<PathChange>,
}

impl Changes {
    /// One line a file, `M src/lib.rs +3 -1`, and the summary: what `git diff --stat` tells.
    pub fn stat(&self) -> Vec<String> {
        let line = |f: &FileChange| match (f.added, f.deleted) {
            (Some(added), Some(deleted)) => format!("{} {} +{added} -{deleted}", f.status, f.path),
            _ => format!("{} {} binary", f.status, f.path),
        };
        let mut lines: Vec<String> = self.files.iter().map(line).collect();
        let more = self.file_count - self.files.len();
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
        lines.push(self.summary());
        lines
    }

    /// `3 files changed, 10 insertions(+), 2 deletions(-)`.
    pub fn summary(&self) -> String {
        let Review { files, added, deleted, .. } = self.figures();
        summary(files, added, deleted)
    }

    /// How much it is; whether it has landed is [`Repo::review`]'s.
    pub(crate) fn figures(&self) -> Review {
        let sum = |of: fn(&FileChange) -> Option<u64>| self.files.iter().filter_map(of).sum::<u64>();
        Review {
            state: ReviewState::ToReview,
            files: self.file_count as u64,
            added: sum(|f| f.added),
            deleted: sum(|f| f.deleted),
        }
    }

    /// The message that is suggested for one commit of all this.
    pub fn suggested_message(&self, task: &str) -> String {
        let only = match self.commits.as_slice() {
            [only] if self.uncommitted.is_empty() => Some(only.subject.as_str()),
            _ => None,
        };
        let paths: Vec<&str> = self.files.iter().map(|file| file.path.as_str()).collect();
        review::suggested_message(task, only, self.figures(), &paths)
    }
}

/// `3 files changed, 10 insertions(+), 2 deletions(-)`.
pub(crate) fn summary(files: u64, added: u64, deleted: u64) -> String {
    let plural = |n: u64, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let (files, added) = (plural(files, "file"), plural(added, "insertion"));
    format!("{files} changed, {added}(+), {}(-)", plural(deleted, "deletion"))
}

/// A patch against the base, in git's format, with what `git apply` needs for binary files. As bytes: the files may be in
/// any encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The patch.
    pub bytes: Vec<u8>,
    /// What is in no commit, is not meant to be, and is not in the patch either.
    pub left: Vec<PathChange>,
}

impl Patch {
    /// Whether [`Patch::text`] is cut.
    pub fn is_long(&self) -> bool {
        self.bytes.len() > PATCH_CAP
    }

    /// As text, for people and JSON: cut at [`PATCH_CAP`], bytes that are not text replaced.
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes[..self.bytes.len().min(PATCH_CAP)])
    }
}

/// What a merge of a worktree's HEAD would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MergePreview {
    /// The commit that would be merged into.
    pub into: Oid,
    /// The commit that would be merged.
    pub head: Oid,
    /// What kind of merge it would be.
    pub merge: MergeKind,
    /// Files in conflict.
    pub conflicts: Vec<String>,
    /// git's words about them.
    pub messages: Vec<String>,
}

/// The kinds of merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeKind {
    /// Nothing to do: it is in already.
    UpToDate,
    /// The branch only moves forward.
    FastForward,
    /// A merge without conflicts.
    Clean,
    /// A merge with conflicts.
    Conflicts,
}

impl Repo {
    /// Commits and files of a worktree over its base.
    pub async fn changes(&self, name: &Slug, cancel: &CancellationToken) -> Result<Changes> {
        let repo = &self.until(cancel);
        let state = repo.snapshot(name).await?;
        let (base, head) = (state.base.clone(), state.head.clone());
        let (commits, commit_count) = match &head {
            Some(head) => (repo.commits(&base, head).await?, repo.count(&base, head).await?),
            None => (Vec::new(), 0),
        };
        let call = repo.git.hardened(state.store.place(), "diff-tree");
        let call =
            call.args(["-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"]);
        let answer = call.args([base.as_str(), state.commit.as_str(), "--"]).ok().await?;
        let mut files = parse_files(&answer.stdout);
        let file_count = files.len();
        files.truncate(FILES_CAP);
        Ok(Changes {
            name: name.clone(),
            branch: branch_of(name),
            base,
            head,
            commits,
            commit_count,
            files,
            file_count,
            uncommitted: state.uncommitted,
            left: state.left,
        })
    }

    /// The same as one patch.
    pub async fn patch(&self, name: &Slug, cancel: &CancellationToken) -> Result<Patch> {
        let repo = &self.until(cancel);
        let state = repo.snapshot(name).await?;
        let call = repo.git.hardened(state.store.place(), "diff-tree");
        let call = call.args(["-r", "-p", "-M", "--binary", "--no-color", "--no-ext-diff", "--no-textconv"]);
        let answer = call.args([state.base.as_str(), state.commit.as_str(), "--"]).ok().await?;
        Ok(Patch { bytes: answer.stdout, left: state.left })
    }

    /// The same of one file, by its path from the worktree's root.
    pub async fn patch_of(&self, name: &Slug, path: &str, cancel: &CancellationToken) -> Result<Patch> {
        let repo = &self.until(cancel);
        let state = repo.snapshot(name).await?;
        let call = repo.git.hardened(state.store.place(), "diff-tree");
        let call = call.args(["-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv"]);
        let literal = format!(":(top,literal){path}");
        let call = call.args([state.base.as_str(), state.commit.as_str(), "--", &literal]);
        let answer = call.ok().await?;
        Ok(Patch { bytes: answer.stdout, left: state.left })
    }

    /// Tries the merge of the worktree's work, committed or not, into `into` (default: what was HEAD where this was opened), in
    /// a store of its own.
    pub async fn merge_preview(
        &self,
        name: &Slug,
        into: Option<&str>,
        cancel: &CancellationToken,
    ) -> Result<MergePreview> {
        let repo = &self.until(cancel);
        let state = repo.snapshot(name).await?;
        let head = state.head.clone().ok_or_else(|| Error::NotFound(name.as_str().to_owned()))?;
        let into = repo.resolve_revision(into.unwrap_or("HEAD")).await?;
        let mut preview = MergePreview {
            into,
            head,
            merge: MergeKind::UpToDate,
            conflicts: Vec::new(),
            messages: Vec::new(),
        };
        let has_uncommitted = !state.uncommitted.is_empty();
        if !has_uncommitted && repo.count(&preview.into, &preview.head).await? == 0 {
            return Ok(preview);
        }
        if repo.count(&preview.head, &preview.into).await? == 0 {
            preview.merge = if has_uncommitted { MergeKind::Clean } else { MergeKind::FastForward };
            return Ok(preview);
        }
        let call = repo.git.hardened(state.store.place(), "merge-tree").args([
            "--write-tree",
            "-z",
            "--name-only",
            "--messages",
        ]);
        let answer = call.args([preview.into.as_str(), state.commit.as_str()]).run().await?;
        match answer.status.code() {
            Some(0) => preview.merge = MergeKind::Clean,
            Some(1) => {
                preview.merge = MergeKind::Conflicts;
                (preview.conflicts, preview.messages) = parse_conflicts(&answer.stdout);
            }
            _ => return Err(answer.failure()),
        }
        Ok(preview)
    }

    /// Whether a merge of `other` into `commit` would change nothing.
    pub(crate) async fn has_work_of(&self, commit: &Oid, other: &Oid) -> Result<bool> {
        let store = OneCallStore::new(self)?;
        let call = self.git.hardened(store.place(), "merge-tree").args(["--write-tree", "--no-messages"]);
        let merged = call.args([commit.as_str(), other.as_str()]).run().await?;
        let call =
            self.git.hardened(self.store(), "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        let tree = call.arg(format!("{commit}^{{tree}}")).run().await?;
        Ok(merged.status.success() && tree.status.success() && merged.line() == tree.line())
    }

    /// The commit that a revision names, in the place that this was opened in.
    pub(crate) async fn resolve_revision(&self, revision: &str) -> Result<Oid> {
        let unknown = || Error::UnknownRevision(revision.to_owned());
        if revision.contains(['\0', '\n']) {
            return Err(unknown());
        }
        let call =
            self.git.hardened(self.opened(), "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        let answer = call.arg(format!("{revision}^{{commit}}")).run().await?;
        answer.oid().ok_or_else(unknown)
    }

    async fn commits(&self, base: &Oid, head: &Oid) -> Result<Vec<Commit>> {
        let call = self.git.hardened(self.store(), "log").args(["-z", "--no-show-signature", "--no-notes"]);
        let call = call.args(["--format=%H%x01%an%x01%at%x01%s", "--encoding=UTF-8"]);
        let call = call.arg(format!("--max-count={COMMITS_CAP}")).arg(format!("{base}..{head}")).arg("--");
        let answer = call.ok().await?;
        let parse = |record: &[u8]| {
            let text = String::from_utf8_lossy(record).into_owned();
            let mut parts = text.splitn(4, '\u{1}');
            Some(Commit {
                oid: Oid::parse(parts.next()?)?,
                author: parts.next()?.to_owned(),
                time: parts.next()?.parse().ok()?,
                subject: parts.next()?.to_owned(),
            })
        };
        Ok(split_nul(&answer.stdout).filter_map(parse).collect())
    }

    /// The worktree as it is now, as a commit in a store of its own, without what no commit is meant to have.
    async fn snapshot(&self, name: &Slug) -> Result<ComparedState> {
        let at = self.locate(name)?;
        if let Some(path) = at.moved {
            return Err(Error::Moved { name: name.as_str().to_owned(), path });
        }
        at.marker.finished()?;
        // What is not published is not shown: it is in no commit that anybody else can see.
        let _landing_says_so = self.publish_left(&at).await;
        let mut survey = self.survey(&at, IgnoredFiles::Drop).await?;
        let ignored = self.ignored_by_user(&at, &survey).await?;
        survey.call_ignored(&ignored);
        let left = survey.leave_unmeant();
        let (base, head, uncommitted) = (at.marker.base.clone(), survey.head.clone(), survey.changes.clone());
        let store = OneCallStore::new(self)?;
        let commit = match &head {
            Some(head) if uncommitted.is_empty() => head.clone(),
            _ => {
                let message = "snapshot\n".to_owned();
                let snapshot = Snapshot::new(survey.head, survey.files, survey.plan, message);
                fast_import::write(self.git.hardened(store.place(), "fast-import"), snapshot).await?
            }
        };
        Ok(ComparedState { base, head, commit, uncommitted, left, store })
    }
}

struct ComparedState {
    base: Oid,
    head: Option<Oid>,
    commit: Oid,
    uncommitted: Vec<PathChange>,
    left: Vec<PathChange>,
    store: OneCallStore,
}

fn parse_files(answer: &[u8]) -> Vec<FileChange> {
    let mut files: std::collections::BTreeMap<String, FileChange> = std::collections::BTreeMap::new();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = split_nul(answer);
    while let Some(field) = fields.next() {
        if field.starts_with(b":") {
            let (Some(status), Some(path)) = (field.last(), fields.next()) else { break };
            let (path, status) = (text(path), char::from(*status));
            files.insert(path.clone(), FileChange { path, status, added: None, deleted: None });
        } else {
            let line = text(field);
            let mut parts = line.splitn(3, '\t');
            let (added, deleted) =
                (parts.next().and_then(|n| n.parse().ok()), parts.next().and_then(|n| n.parse().ok()));
            if let Some(file) = parts.next().and_then(|path| files.get_mut(path)) {
                (file.added, file.deleted) = (added, deleted);
            }
        }
    }
    files.into_values().collect()
}

/// Reads `<tree> NUL <file> NUL … NUL NUL <count> NUL <paths…> NUL <kind> NUL <message> NUL …`.
fn parse_conflicts(answer: &[u8]) -> (Vec<String>, Vec<String>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut fields = answer.split(|b| *b == 0).skip(1);
    let conflicts: Vec<String> = fields.by_ref().take_while(|f| !f.is_empty()).map(text).collect();
    let mut messages = Vec::new();
    while let Some(count) = fields.next().and_then(|n| text(n).parse::<usize>().ok()) {
        // The paths, then the kind, then the message.
        match fields.nth(count + 1) {
            Some(message) => messages.push(text(message).trim_end().to_owned()),
            None => break,
        }
    }
    (conflicts, messages)
}
