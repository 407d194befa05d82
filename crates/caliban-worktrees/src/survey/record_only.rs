//! What lives only in a worktree's record (`.git/worktrees/<id>`): submodule stores, the index, commits that unfinished
//! operations and the log of HEAD name. Every survey asks here, also where the files are gone or git cannot read the record.
//!
//! An answer that git cannot give is never "none": what it cannot read is saved as files.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use caliban_rooted::{
    Below,
    tree::{self, nonce_name},
};

use super::{ChangeKind, Staged, Survey, change, unreadable};
use crate::error::{Error, Result};
use crate::git::{GitCall, GitPlace};
use crate::marker::Oid;
use crate::repo::{Located, Repo, split_nul};
use crate::status::{INDEX_ARGS, IndexEntry, parse_index};

/// Files of the record that name commits which an unfinished operation stands on.
const PENDING: [&str; 11] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "MERGE_AUTOSTASH",
    "rebase-merge/autostash",
    "rebase-merge/orig-head",
    "rebase-merge/amend",
    "rebase-apply/autostash",
    "rebase-apply/orig-head",
    "BISECT_HEAD",
];
/// Refs outside of `refs/` that say where HEAD is or was, and what was fetched: the log of HEAD has them too.
const NOT_PENDING: [&str; 3] = ["HEAD", "ORIG_HEAD", "FETCH_HEAD"];
/// Refs that each worktree has for itself.
const OWN_REFS: [&str; 3] = ["refs/worktree/", "refs/bisect/", "refs/rewritten/"];
const PENDING_CAP: u64 = 64 * 1024;
/// The largest log of HEAD that is read.
const LOG_CAP: u64 = 64 * 1024 * 1024;
/// The largest reftable of a worktree that is copied.
const TABLE_CAP: u64 = 64 * 1024 * 1024;
/// Where a record has its submodule stores, its index and, in a repository with reftables, its refs.
pub(crate) const MODULES: &str = "modules";
const INDEX: &str = "index";
const TABLES: &str = "reftable";

/// What an index has that a commit has not.
#[derive(Debug, Default)]
struct IndexOnly {
    staged: Vec<Staged>,
    unmerged: Vec<IndexEntry>,
}

impl Repo {
    /// The files are gone; HEAD and index may still hold something.
    pub(super) async fn survey_record(&self, at: &Located) -> Result<Survey> {
        let place = self.record_place(at);
        let call = self.git.hardened(place, "rev-parse").args(["--verify", "--quiet", "--end-of-options"]);
        let head = Oid::parse(&call.arg("HEAD^{commit}").run().await?.line());
        let notes = vec!["its directory is gone; only the record was left".to_owned()];
        let mut survey = Survey { head, notes, ..Survey::default() };
        self.fill_from_index(at, &mut survey).await?;
        survey.plan.staged_only = survey.plan.staged.clone();
        self.fill_from_record(at, &mut survey).await?;
        Ok(survey)
    }

    /// git cannot read the record (a broken HEAD or index): every file counts.
    pub(crate) async fn survey_unreadable(&self, at: &Located, files: OwnedFd) -> Result<Survey> {
        let tip = self.resolve_ref(&format!("refs/heads/{}", at.branch())).await?;
        let head = match tip {
            Some(tip) => Some(tip),
            None => self.resolve_ref(at.marker.base.as_str()).await?,
        };
        let notes = vec!["git could not read its record, so every file in it was saved".to_owned()];
        let mut survey = Survey { head, notes, ..Survey::default() };
        let entries = tree::entries(&files).map_err(|e| unreadable(&at.path, &e))?;
        let links: BTreeSet<&Path> = at.marker.links.iter().map(PathBuf::as_path).collect();
        for (name, kind) in entries {
            let path = PathBuf::from(name);
            let is_dir = kind == rustix::fs::FileType::Directory;
            if !is_dir && (links.contains(path.as_path()) || path == Path::new(".git")) {
                continue;
            }
            survey.changes.push(change(&path, ChangeKind::Untracked));
            if is_dir {
                survey.plan.whole.insert(path)
            } else {
                survey.plan.paths.insert(path)
            };
        }
        survey.files = Some(files);
        self.fill_from_index(at, &mut survey).await?;
        self.fill_from_record(at, &mut survey).await?;
        Ok(survey)
    }

    /// Adds what every survey must save of the record beside its index: submodule stores, and commits that only it names.
    pub(super) async fn fill_from_record(&self, at: &Located, survey: &mut Survey) -> Result<()> {
        if has_modules(&at.admin) {
            survey.save_of_record(at, MODULES);
            survey.changes.push(change(Path::new(".git/modules"), ChangeKind::Submodule));
        }
        let mut named = unfinished(&at.admin);
        if has_tables(at) {
            match self.own_refs(at).await {
                Ok(own) => named.extend(own),
                Err(Error::Cancelled) => return Err(Error::Cancelled),
                Err(error) => {
                    survey.save_of_record(at, TABLES);
                    survey.changes.push(change(Path::new(".git/reftable"), ChangeKind::Staged));
                    survey.notes.push(format!("its refs could not be read and are saved as files: {error}"));
                }
            }
        }
        if survey.head.is_none() {
            named.extend(self.logged_heads(at).await?.pop());
        }
        named.sort();
        named.dedup();
        for oid in named {
            // What the store does not have cannot be kept.
            survey.pending.extend(self.resolve_ref(oid.as_str()).await?);
        }
        Ok(())
    }

    /// Adds what only the index has. An index that git cannot read is saved as a file.
    async fn fill_from_index(&self, at: &Located, survey: &mut Survey) -> Result<()> {
        let index = at.admin.join(INDEX);
        // Without an index nothing is staged.
        let Ok(kind) = index.symlink_metadata() else { return Ok(()) };
        let head = survey.head.clone();
        let in_record = |subcommand: &str| self.git.hardened(self.record_place(at), subcommand);
        // Where HEAD makes no sense to git, the record is no git directory to it.
        let in_store =
            |subcommand: &str| self.git.hardened(self.store(), subcommand).env("GIT_INDEX_FILE", &index);
        let mut found = None;
        // git would wait for a pipe in its place.
        if kind.is_file() {
            found = self.index_only(at, head.as_ref(), &in_record).await?;
        }
        if kind.is_file() && found.is_none() {
            found = self.index_only(at, head.as_ref(), &in_store).await?;
        }
        let Some(IndexOnly { staged, unmerged }) = found else {
            survey.save_of_record(at, INDEX);
            survey.changes.push(change(Path::new(".git/index"), ChangeKind::Staged));
            survey.notes.push("its index could not be read and is saved as a file".to_owned());
            return Ok(());
        };
        survey.changes.extend(staged.iter().map(|staged| change(&staged.path, ChangeKind::Staged)));
        survey.changes.extend(unmerged.iter().map(|entry| change(&entry.path, ChangeKind::Conflicted)));
        survey.plan.staged = staged;
        survey.plan.unmerged = unmerged;
        Ok(())
    }

    /// `None` when git cannot read the index that `git` uses.
    async fn index_only(
        &self,
        at: &Located,
        head: Option<&Oid>,
        git: &(dyn Fn(&str) -> GitCall + Sync),
    ) -> Result<Option<IndexOnly>> {
        let listed = git("ls-files").args(INDEX_ARGS).run().await?;
        let Some(facts) = parse_index(&listed.stdout).filter(|_| listed.status.success()) else {
            return Ok(None);
        };
        let unmerged = facts.unmerged;
        let compare = || git("diff-index").args(["--cached", "--ignore-submodules=all"]);
        // A fenced agent commits with an index of its own; this one is as old as the worktree.
        if head.is_some_and(|head| *head != at.marker.base)
            && compare().args(["--quiet", at.marker.base.as_str(), "--"]).succeeds().await?
        {
            return Ok(Some(IndexOnly { staged: Vec::new(), unmerged }));
        }
        let against = head.map_or(self.git.no_attributes, Oid::as_str);
        let call = compare().args(["-z", "--raw", "--no-renames", against, "--"]);
        let answer = call.run().await?;
        if !answer.status.success() {
            return Ok(None);
        }
        let fields: Vec<&[u8]> = split_nul(&answer.stdout).collect();
        let mut staged = Vec::new();
        for pair in fields.chunks_exact(2) {
            let words = String::from_utf8_lossy(pair[0]).into_owned();
            let words: Vec<&str> = words.split(' ').collect();
            let [_, mode, _, oid, kind] = words.as_slice() else { continue };
            // Conflicts are among the stages.
            if *kind != "U" {
                let entry = Oid::parse(oid).filter(|o| !o.is_zero()).map(|oid| ((*mode).to_owned(), oid));
                staged.push(Staged { path: Path::new(OsStr::from_bytes(pair[1])).to_path_buf(), entry });
            }
        }
        Ok(Some(IndexOnly { staged, unmerged }))
    }

    /// The record without the worktree's files.
    fn record_place<'a>(&'a self, at: &'a Located) -> GitPlace<'a> {
        GitPlace::Tree { common: self.common_dir(), git_dir: &at.admin, files: self.common_dir() }
    }

    /// The commits that refs in the worktree's own tables name: of unfinished operations, and those that others do not have.
    async fn own_refs(&self, at: &Located) -> Result<Vec<Oid>> {
        let call = self.git.hardened(self.record_place(at), "for-each-ref");
        let call = call.args(["--include-root-refs", "--format=%(refname) %(objectname)"]);
        let answer = call.ok().await?.line();
        let is_own = |name: &str| match name.starts_with("refs/") {
            true => OWN_REFS.iter().any(|prefix| name.starts_with(prefix)),
            false => !NOT_PENDING.contains(&name),
        };
        let named = answer.lines().filter_map(|line| line.split_once(' '));
        Ok(named.filter(|(name, _)| is_own(name)).filter_map(|(_, oid)| Oid::parse(oid)).collect())
    }

    /// The commits that HEAD of a worktree was at, by its log, oldest first.
    pub(crate) async fn logged_heads(&self, at: &Located) -> Result<Vec<Oid>> {
        if !has_tables(at) {
            return Ok(read_log(&at.admin));
        }
        let read = |place| {
            let call = self.git.hardened(place, "log");
            call.args(["--walk-reflogs", "--no-show-signature", "--format=%H", "HEAD", "--"]).run()
        };
        let mut answer = read(self.record_place(at)).await?;
        if !answer.status.success() {
            // git does not read the log of a HEAD without a commit. In a copy HEAD gets one.
            let copy = TablesCopy::new(self, at)?;
            let common = self.common_dir();
            let place = GitPlace::Tree { common, git_dir: &copy.path, files: common };
            let call = self.git.hardened(place, "update-ref").args(["--no-deref", "HEAD"]);
            if !call.arg(at.marker.base.as_str()).succeeds().await? {
                // The tables are broken; the survey has saved them as files.
                return Ok(Vec::new());
            }
            answer = read(place).await?.ok()?;
        }
        let mut heads: Vec<Oid> = answer.line().lines().filter_map(Oid::parse).collect();
        heads.reverse();
        Ok(heads)
    }
}

impl Survey {
    /// Plans to save a file or directory of the record as it is.
    fn save_of_record(&mut self, at: &Located, name: &'static str) {
        self.plan.of_record.push((at.admin.clone(), name));
    }
}

/// Whether a record has submodule stores. A link in their place is no such thing.
pub(crate) fn has_modules(admin: &Path) -> bool {
    admin.join(MODULES).symlink_metadata().is_ok_and(|found| found.is_dir())
}

fn has_tables(at: &Located) -> bool {
    at.admin.join(TABLES).is_dir()
}

/// A copy of a worktree's reftables in a git directory of its own, deleted when dropped.
struct TablesCopy {
    path: PathBuf,
}

impl TablesCopy {
    fn new(repo: &Repo, at: &Located) -> Result<Self> {
        let copy = Self { path: repo.common_dir().join(nonce_name("caliban-log")) };
        let path = &copy.path;
        let make = || -> std::io::Result<()> {
            std::fs::create_dir(path)?;
            std::fs::create_dir(path.join(TABLES))?;
            let mut common = repo.common_dir().as_os_str().as_bytes().to_vec();
            common.push(b'\n');
            std::fs::write(path.join("commondir"), common)?;
            std::fs::write(path.join("HEAD"), "ref: refs/heads/.invalid\n")?;
            let admin = tree::open_dir(&at.admin)?;
            for name in tree::files_beneath(&admin, &Below::fixed(TABLES))? {
                std::fs::write(name.under(path), tree::read_small(&name.under(&at.admin), TABLE_CAP)?)?;
            }
            Ok(())
        };
        make().map_err(|e| Error::at("copying the refs of", &at.path, e))?;
        Ok(copy)
    }
}

impl Drop for TablesCopy {
    fn drop(&mut self) {
        // Best effort by name: what stays is a directory that git ignores.
        #[expect(clippy::disallowed_methods, reason = "a directory of this call in the repository's own git")]
        let _tried = std::fs::remove_dir_all(&self.path);
    }
}

/// The ids in the files of unfinished operations, and in refs that only this worktree has.
fn unfinished(admin: &Path) -> Vec<Oid> {
    let mut files: Vec<Below> = PENDING.iter().map(|name| Below::fixed(name)).collect();
    if let Ok(root) = tree::open_dir(admin) {
        files.extend(tree::files_beneath(&root, &Below::fixed("refs")).unwrap_or_default());
    }
    let mut found = Vec::new();
    for name in files {
        let Ok(bytes) = tree::read_small(&name.under(admin), PENDING_CAP) else { continue };
        found.extend(String::from_utf8_lossy(&bytes).lines().filter_map(Oid::parse));
    }
    found
}

/// Where HEAD was, by its log, oldest first.
fn read_log(admin: &Path) -> Vec<Oid> {
    let bytes = tree::read_small(&admin.join("logs/HEAD"), LOG_CAP).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let oid = |line: &str| Oid::parse(line.split(' ').nth(1)?).filter(|oid| !oid.is_zero());
    text.lines().filter_map(oid).collect()
}
