//! Looking at a worktree before it is shown, compared or removed: what in it is nowhere else, and therefore
//! what has to be saved. Trusts neither its `.git`, its ignore files nor the flags in its index.

mod doubts;
mod left_out;
pub(crate) mod record_only;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use caliban_rooted::{
    Below,
    tree::{self, FoundFile},
};
use serde::{Deserialize, Serialize};

use crate::blobs;
use crate::error::{Error, Result};
use crate::fast_import::find;
use crate::git::GitCall;
use crate::index::ScratchIndex;
use crate::marker::{Marker, Oid};
use crate::repo::{Located, Repo, split_nul};
use crate::status::{
    GitStatus, INDEX_ARGS, IndexEntry, IndexFacts, STATUS_ARGS, Tracked, parse_index, parse_status,
};

/// What becomes of files that git ignores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IgnoredFiles {
    /// They are build output and go with the worktree; the report names them.
    #[default]
    Drop,
    /// They are saved like any other file.
    Save,
}

/// How a path differs from what is kept elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Tracked, with another content, type or mode.
    Modified,
    /// Tracked and not there.
    Deleted,
    /// The index differs from HEAD.
    Staged,
    /// In conflict.
    Conflicted,
    /// Not tracked.
    Untracked,
    /// Ignored, and not by a rule that was committed: by a new one, or by one of the user's own; or the caller wants all.
    Ignored,
    /// A repository inside the worktree.
    NestedRepository,
    /// A submodule that was filled.
    Submodule,
    /// Copied in through `.worktreeinclude` and changed since.
    Included,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PathChange {
    /// The path from the worktree's root; bytes that are not text are replaced.
    pub path: String,
    /// How it differs.
    pub kind: ChangeKind,
}

/// A change of the index against HEAD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Staged {
    pub(crate) path: PathBuf,
    /// Mode and blob; `None` is a deletion.
    pub(crate) entry: Option<(String, Oid)>,
}

/// What must be written to save the worktree, on top of HEAD's tree.
#[derive(Debug, Default)]
pub(crate) struct SavePlan {
    /// Paths whose present state counts: file, link or nothing.
    pub(crate) paths: BTreeSet<PathBuf>,
    /// Paths that are not there because the checkout is sparse, with their staged content.
    pub(crate) staged_only: Vec<Staged>,
    /// Directories that are saved with everything in them.
    pub(crate) whole: BTreeSet<PathBuf>,
    pub(crate) staged: Vec<Staged>,
    pub(crate) unmerged: Vec<IndexEntry>,
    /// Files and directories of the record that are saved as they are: the administrative directory, and the name in it.
    pub(crate) of_record: Vec<(PathBuf, &'static str)>,
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) head: Option<Oid>,
    pub(crate) branch: Option<String>,
    /// The worktree's directory, held open; `None` when it is gone.
    pub(crate) files: Option<OwnedFd>,
    pub(crate) changes: Vec<PathChange>,
    /// Ignored paths that are not saved.
    pub(crate) ignored: Vec<PathBuf>,
    /// Other commits that it stands on: MERGE_HEAD and its kin, or where HEAD was before its branch was deleted.
    pub(crate) pending: Vec<Oid>,
    pub(crate) plan: SavePlan,
    /// Said to the user.
    pub(crate) notes: Vec<String>,
}

impl Repo {
    pub(crate) async fn survey(&self, at: &Located, ignored: IgnoredFiles) -> Result<Survey> {
        let Ok(files) = tree::open_dir(&at.path) else { return self.survey_record(at).await };
        let scratch = ScratchIndex::new(self.common_dir());
        let Some((status, index)) = self.read_status(at, &scratch).await? else {
            return self.survey_unreadable(at, files).await;
        };
        let mut survey =
            Survey { head: status.head.clone(), branch: status.branch.clone(), ..Survey::default() };
        survey.plan.unmerged = index.unmerged.clone();
        self.fill_from_record(at, &mut survey).await?;
        let fd = files.as_fd();
        let unchanged = self.unchanged(at, &status, &index, &files).await?;
        for entry in &status.tracked {
            if !unchanged.contains(&entry.path) {
                survey.tracked(entry, fd)?;
            }
        }
        for entry in &index.assumed {
            if !unchanged.contains(&entry.path) && survey.plan.paths.insert(entry.path.clone()) {
                survey.add(&entry.path, ChangeKind::Modified);
            }
        }
        for path in &status.unmerged {
            survey.plan.paths.insert(path.clone());
            survey.add(path, ChangeKind::Conflicted);
        }
        for path in &status.nested {
            survey.whole(path, ChangeKind::NestedRepository);
        }
        for path in &index.gitlinks {
            match find(fd, path).map_err(|e| unreadable(path, &e))? {
                FoundFile::Directory if is_empty(fd, path)? => {}
                FoundFile::Directory => {
                    survey.whole(path, ChangeKind::Submodule);
                    survey.notes.push(format!(
                        "the submodule {} was filled; its files are saved too",
                        path.display()
                    ));
                }
                FoundFile::Nothing => {}
                FoundFile::File { .. } | FoundFile::Link(_) | FoundFile::Special => {
                    survey.plan.paths.insert(path.clone());
                    survey.add(path, ChangeKind::Modified);
                }
            }
        }
        if matches!(tree::find(fd, &Below::fixed(".git")), Ok(FoundFile::Directory)) {
            survey.whole(Path::new(".git"), ChangeKind::NestedRepository);
        }
        self.survey_unknown(at, &status, &mut survey, &files, ignored).await?;
        survey.files = Some(files);
        survey.changes.sort();
        survey.changes.dedup();
        Ok(survey)
    }

    /// Untracked and ignored files: links and copies of ours are nothing new, rules that were not committed
    /// do not count.
    async fn survey_unknown(
        &self,
        at: &Located,
        status: &GitStatus,
        survey: &mut Survey,
        files: &OwnedFd,
        ignored: IgnoredFiles,
    ) -> Result<()> {
        let (marker, held) =
            (at.marker.clone(), files.try_clone().map_err(|e| Error::at("opening", &at.path, e))?);
        // Included files may be large, so compare them off the runtime's thread.
        let ours = tokio::task::spawn_blocking(move || ours(&marker, &held)).await;
        let ours = ours.map_err(|e| Error::at("reading", &at.path, std::io::Error::other(e)))??;
        for path in &status.untracked {
            if !ours.same.contains(path) {
                survey.plan.paths.insert(path.clone());
                let kind =
                    if ours.changed.contains(path) { ChangeKind::Included } else { ChangeKind::Untracked };
                survey.add(path, kind);
            }
        }
        for path in &ours.changed {
            if survey.plan.paths.insert(path.clone()) {
                survey.add(path, ChangeKind::Included);
            }
        }
        let doubted = match ignored {
            IgnoredFiles::Save => status.ignored.iter().cloned().collect(),
            IgnoredFiles::Drop => self.ignored_by_new_rules(at, status).await?,
        };
        for path in &status.ignored {
            if ours.same.contains(path) || ours.changed.contains(path) {
                continue;
            }
            if !doubted.contains(path) {
                survey.ignored.push(path.clone());
            } else if matches!(find(files, path), Ok(FoundFile::Directory)) {
                survey.whole(path, ChangeKind::Ignored);
            } else {
                survey.plan.paths.insert(path.clone());
                survey.add(path, ChangeKind::Ignored);
            }
        }
        Ok(())
    }

    /// Status and index; `None` when git cannot make sense of the worktree's record.
    async fn read_status(
        &self,
        at: &Located,
        scratch: &ScratchIndex,
    ) -> Result<Option<(GitStatus, IndexFacts)>> {
        let mut index = None;
        loop {
            let with = |call: GitCall| match index {
                Some(path) => call.env("GIT_INDEX_FILE", path),
                None => call,
            };
            // Both at once: on a small tree the time goes into starting git.
            let (answer, listed) = tokio::join!(
                with(self.git.hardened(self.tree(at), "status").args(STATUS_ARGS)).run(),
                with(self.git.hardened(self.tree(at), "ls-files").args(INDEX_ARGS)).run(),
            );
            let answer = answer?;
            // A directory that git could not read would be missing from the answer.
            if answer.stderr.contains("could not open directory") {
                return Err(Error::Unreadable(answer.stderr.trim().to_owned()));
            }
            if !answer.status.success() {
                return Ok(None);
            }
            let Some(mut status) = parse_status(&answer.stdout) else { return Ok(None) };
            if index.is_some() {
                self.forgive_sparse(at, &mut status).await?;
            }
            let staged = status.tracked.iter().any(|entry| entry.staged != b'.');
            if let (true, Some(head), None) = (staged, &status.head, index)
                && *head != at.marker.base
                && self.index_is_base(at).await?
            {
                // A fenced agent commits with an index of its own; this one is as old as the worktree. Brought up
                // to HEAD beside it, it keeps what it knows about files that did not change.
                scratch.fill(&at.admin)?;
                let call = self.git.hardened(self.tree(at), "read-tree").env("GIT_INDEX_FILE", &scratch.path);
                call.args(["-i", "-m", head.as_str()]).ok().await?;
                index = Some(&scratch.path);
                continue;
            }
            return Ok(parse_index(&listed?.ok()?.stdout).map(|facts| (status, facts)));
        }
    }

    /// Files outside the cone of a sparse worktree are not missing from it.
    async fn forgive_sparse(&self, at: &Located, status: &mut GitStatus) -> Result<()> {
        let missing = |t: &Tracked| t.unstaged == b'D';
        if !status.tracked.iter().any(missing) || !at.admin.join("info/sparse-checkout").is_file() {
            return Ok(());
        }
        let bytes = |t: &Tracked| [t.path.as_os_str().as_encoded_bytes(), b"\0"].concat();
        let asked = status.tracked.iter().filter(|t| missing(t)).flat_map(bytes).collect();
        let call = self.git.hardened(self.tree(at), "sparse-checkout").args(["check-rules", "-z"]);
        let answer = call.stdin(asked).ok().await?;
        let inside: BTreeSet<&[u8]> = split_nul(&answer.stdout).collect();
        status.tracked.retain(|t| !missing(t) || inside.contains(t.path.as_os_str().as_encoded_bytes()));
        Ok(())
    }

    async fn index_is_base(&self, at: &Located) -> Result<bool> {
        let call = self.git.hardened(self.tree(at), "diff-index").args(["--cached", "--quiet"]);
        let answer = call.arg("--ignore-submodules=all").arg(at.marker.base.as_str()).arg("--").run().await?;
        Ok(answer.status.success())
    }
}

impl Survey {
    fn add(&mut self, path: &Path, kind: ChangeKind) {
        self.changes.push(change(path, kind));
    }

    fn whole(&mut self, path: &Path, kind: ChangeKind) {
        self.plan.whole.insert(path.to_path_buf());
        self.add(path, kind);
    }

    fn tracked(&mut self, entry: &Tracked, files: std::os::fd::BorrowedFd<'_>) -> Result<()> {
        let content = entry.index.clone().map(|oid| (entry.mode_index.clone(), oid));
        let staged = Staged { path: entry.path.clone(), entry: content.filter(|_| entry.staged != b'D') };
        if entry.staged != b'.' {
            self.plan.staged.push(staged.clone());
            self.add(&entry.path, ChangeKind::Staged);
        }
        match entry.unstaged {
            b'.' => {}
            b'D' => self.add(&entry.path, ChangeKind::Deleted),
            _ => self.add(&entry.path, ChangeKind::Modified),
        }
        let there = find(files, &entry.path).map_err(|e| unreadable(&entry.path, &e))?;
        // Not there and not missed: the checkout is sparse, and the index alone has the content.
        if matches!(there, FoundFile::Nothing) && entry.unstaged == b'.' {
            self.plan.staged_only.push(staged);
        } else {
            self.plan.paths.insert(entry.path.clone());
        }
        Ok(())
    }
}

/// What we put into a worktree ourselves.
#[derive(Debug, Default)]
struct Ours {
    same: BTreeSet<PathBuf>,
    changed: BTreeSet<PathBuf>,
}

fn ours(marker: &Marker, files: &OwnedFd) -> Result<Ours> {
    let mut ours = Ours::default();
    let Some(source) = &marker.source else { return Ok(ours) };
    for path in &marker.links {
        let target = source.join(path);
        if matches!(find(files, path), Ok(FoundFile::Link(to)) if to == target.as_os_str()) {
            ours.same.insert(path.clone());
        }
    }
    let root = tree::open_dir(source).ok();
    for path in &marker.included {
        let Ok(FoundFile::File { file, size, .. }) = find(files, path) else {
            continue;
        };
        let original = root.as_ref().and_then(|root| find(root, path).ok());
        let same = match original {
            Some(FoundFile::File { file: original, size: as_long, .. }) if size == as_long => {
                blobs::same(file, original).map_err(|e| unreadable(path, &e))?
            }
            _ => false,
        };
        if same {
            ours.same.insert(path.clone())
        } else {
            ours.changed.insert(path.clone())
        };
    }
    Ok(ours)
}

fn change(path: &Path, kind: ChangeKind) -> PathChange {
    PathChange { path: path.to_string_lossy().into_owned(), kind }
}

fn unreadable(path: &Path, e: &std::io::Error) -> Error {
    Error::Unreadable(format!("{}: {e}", path.display()))
}

fn is_empty(files: std::os::fd::BorrowedFd<'_>, path: &Path) -> Result<bool> {
    let look = || tree::entries(tree::walk_to(files, &Below::new(path)?)?);
    Ok(look().map_err(|e| unreadable(path, &e))?.is_empty())
}
