//! Rescue refs: what a removal saved, listed and brought back.
//!
//! `refs/caliban/rescue/<name>` is a commit whose tree is the worktree as it was, byte for byte. Its first
//! parent is the worktree's HEAD; the index, if it differed, is another parent. A rescue is never
//! overwritten; only [`Repo::drop_rescue`] deletes one.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use caliban_core::names::Slug;
use caliban_rooted::{Below, tree};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::blobs::Blobs;
use crate::create::{BaseRef, CreateRequest, OnProgress, Worktree};
use crate::error::{Error, Result};
use crate::fast_import::{self, Snapshot, TemporaryRefs};
use crate::git::GitPlace;
use crate::marker::Oid;
use crate::repo::{Located, Repo, split_nul};
use crate::survey::Survey;

/// Where rescues are.
pub const RESCUE_PREFIX: &str = "refs/caliban/rescue/";
/// How many rescues one name may have before the next is an error.
const SAME_NAME_CAP: u32 = 10_000;

/// Something that a removal saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rescue {
    /// What `restore` takes.
    pub name: String,
    /// The full ref.
    pub reference: String,
    /// Its commit.
    pub commit: Oid,
    /// The worktree that it was.
    pub worktree: Option<Slug>,
    /// The commit that was checked out there.
    pub head: Option<Oid>,
    /// The commit with the index, when that differed.
    pub index: Option<Oid>,
    /// What the worktree was based on.
    pub base: Option<Oid>,
    /// When it was saved, in seconds since 1970.
    pub saved: u64,
    /// How to get it back.
    pub restore: String,
}

/// Where a rescue is brought back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreTo {
    /// A worktree again, with HEAD, index and files as they were; under its old name unless another is given.
    Worktree(Option<Slug>),
    /// The files alone, in a directory that does not exist yet or is empty.
    Directory(PathBuf),
}

/// What was brought back.
#[derive(Debug)]
pub enum Restored {
    /// A worktree, held by its lease.
    Worktree(Box<Worktree>),
    /// Files in this directory.
    Directory(PathBuf),
}

impl Repo {
    /// Every rescue, oldest first.
    pub async fn rescues(&self, cancel: &CancellationToken) -> Result<Vec<Rescue>> {
        self.until(cancel).rescues_at(&[RESCUE_PREFIX.to_owned()]).await
    }

    /// Those whose refs match one of the patterns. git reads only the refs below a pattern's fixed beginning.
    async fn rescues_at(&self, patterns: &[String]) -> Result<Vec<Rescue>> {
        let format = "--format=%(refname)%00%(objectname)%00%(parent)%00%(committerdate:unix)%00%(contents:body)%00%01";
        let call = self.git.hardened(self.store(), "for-each-ref").args([format, "--sort=committerdate"]);
        let answer = call.args(patterns).ok().await?;
        let records = answer.stdout.split(|b| *b == 1);
        Ok(records.filter_map(parse_rescue).collect())
    }

    /// Those of one worktree, oldest first.
    pub(crate) async fn rescues_of(&self, name: &Slug) -> Result<Vec<Rescue>> {
        let exactly = format!("{RESCUE_PREFIX}{}", name.as_str());
        let mut found = self.rescues_at(&[format!("{exactly}-[0-9]*"), exactly]).await?;
        found.retain(|rescue| rescue.worktree.as_ref() == Some(name));
        Ok(found)
    }

    /// One rescue.
    pub async fn rescue(&self, name: &str, cancel: &CancellationToken) -> Result<Rescue> {
        let repo = &self.until(cancel);
        // A ref's name has none of the characters that are special in a pattern.
        let is_name = !name.is_empty() && !name.contains(['*', '?', '[', '\\']);
        let found =
            if is_name { repo.rescues_at(&[format!("{RESCUE_PREFIX}{name}")]).await? } else { Vec::new() };
        let found = found.into_iter().find(|r| r.name == name);
        found.ok_or_else(|| Error::RescueNotFound(name.to_owned()))
    }

    /// Brings a rescue back. The rescue itself stays.
    pub async fn restore(
        &self,
        name: &str,
        to: RestoreTo,
        progress: OnProgress<'_>,
        cancel: &CancellationToken,
    ) -> Result<Restored> {
        let repo = &self.until(cancel);
        let rescue = repo.rescue(name, cancel).await?;
        match to {
            RestoreTo::Directory(path) => {
                repo.restore_files(&rescue, &path).await?;
                Ok(Restored::Directory(path))
            }
            RestoreTo::Worktree(given) => {
                let worktree = repo.restore_worktree(&rescue, given, progress).await?;
                Ok(Restored::Worktree(Box::new(worktree)))
            }
        }
    }

    /// Deletes a rescue for good; what it held may then be lost.
    pub async fn drop_rescue(&self, name: &str, cancel: &CancellationToken) -> Result<Rescue> {
        let repo = &self.until(cancel);
        let rescue = repo.rescue(name, cancel).await?;
        repo.update_refs(&format!("delete {}\0{}\0", rescue.reference, rescue.commit)).await?;
        Ok(rescue)
    }

    /// Saves all that the survey found under the next free rescue ref.
    pub(crate) async fn save(&self, at: &Located, survey: Survey, why: &str) -> Result<Rescue> {
        let message = format!(
            "caliban: rescue of worktree {name}\n\n{why}\n\nCaliban-Worktree: {name}\nCaliban-Base: {base}\n{head}{index}",
            name = at.name.as_str(),
            base = at.marker.base,
            head = survey
                .head
                .as_ref()
                .or(survey.pending.last())
                .map_or(String::new(), |head| format!("Caliban-Head: {head}\n")),
            index = if survey.plan.staged.is_empty() { "" } else { "Caliban-Index: yes\n" },
        );
        let snapshot = Snapshot {
            other_parents: survey.pending,
            ..Snapshot::new(survey.head.clone(), survey.files, survey.plan, message)
        };
        let refs = snapshot.refs.clone();
        let written = fast_import::write(self.git.durable(self.store(), "fast-import"), snapshot).await;
        let made = match &written {
            Ok(written) => self.name_rescue(&at.name, written).await,
            Err(_) => Err(Error::Cancelled),
        };
        self.forget_temporary(&refs).await;
        written?;
        let reference = made?;
        self.rescue(reference.trim_start_matches(RESCUE_PREFIX), &self.git.cancel).await
    }

    /// Makes the first of `<name>`, `<name>-2`, … that does not exist.
    async fn name_rescue(&self, name: &Slug, written: &Oid) -> Result<String> {
        for n in 1..SAME_NAME_CAP {
            let name = name.as_str();
            let reference =
                if n == 1 { format!("{RESCUE_PREFIX}{name}") } else { format!("{RESCUE_PREFIX}{name}-{n}") };
            match self.update_refs(&format!("create {reference}\0{written}\0")).await {
                Ok(()) => return Ok(reference),
                Err(Error::Git { stderr, .. }) if stderr.contains("already exists") => {}
                Err(e) => return Err(e),
            }
        }
        Err(Error::Answer {
            command: "update-ref",
            detail: format!("{} has too many rescues", name.as_str()),
        })
    }

    /// Best effort by name: a temporary ref that stays only keeps more.
    pub(crate) async fn forget_temporary(&self, refs: &TemporaryRefs) {
        for name in [&refs.tree, &refs.index] {
            let _tried = self.uncancelled().update_refs(&format!("delete {name}\0\0")).await;
        }
    }

    pub(crate) async fn update_refs(&self, orders: &str) -> Result<()> {
        let answer = self.git.retry_locks(&|_| {}, || {
            let call = self.git.durable(self.store(), "update-ref").args(["--stdin", "-z"]);
            call.stdin(orders.as_bytes().to_vec())
        });
        answer.await?.ok().map(drop)
    }

    async fn restore_files(&self, rescue: &Rescue, path: &Path) -> Result<()> {
        let taken =
            || Error::Place { path: path.to_path_buf(), why: "it exists and is not an empty directory" };
        std::fs::create_dir_all(path).map_err(|e| Error::at("making", path, e))?;
        let root = tree::open_dir(path).map_err(|_| taken())?;
        if !tree::entries(&root).map_err(|e| Error::at("reading", path, e))?.is_empty() {
            return Err(taken());
        }
        let call = self.git.hardened(self.store(), "ls-tree").args(["-r", "-z", "--full-tree"]);
        let answer = call.arg(rescue.commit.as_str()).ok().await?;
        let mut store = Blobs::start(self.git.hardened(self.store(), "cat-file"))?;
        for line in split_nul(&answer.stdout) {
            let Some((words, name)) = split_tab(line) else { continue };
            let [mode, _, oid] = words.as_slice() else { continue };
            if let (true, Some(oid)) = (mode != "160000", Oid::parse(oid)) {
                self.put(&mut store, root.as_fd(), name, mode, &oid).await?;
            }
            if self.git.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
        }
        Ok(())
    }

    async fn restore_worktree(
        &self,
        rescue: &Rescue,
        given: Option<Slug>,
        progress: OnProgress<'_>,
    ) -> Result<Worktree> {
        let nothing = || Error::RescueNotFound(format!("{} (as a worktree: it has no HEAD)", rescue.name));
        let head = rescue.head.clone().ok_or_else(nothing)?;
        let name = given.or_else(|| rescue.worktree.clone()).ok_or_else(nothing)?;
        let mut request = CreateRequest::new(name);
        request.base_ref = BaseRef::Revision(head.to_string());
        let base = rescue.base.clone().unwrap_or_else(|| head.clone());
        let worktree = self.create_at(request, Some(base), progress).await?;
        match self.fill_restored(rescue, &head, &worktree).await {
            Ok(()) => Ok(worktree),
            Err(e) => {
                self.discard(&worktree, &head).await;
                Err(e)
            }
        }
    }

    /// Puts the saved files over the checkout of HEAD, and the saved index in its place.
    pub(crate) async fn fill_restored(&self, rescue: &Rescue, head: &Oid, worktree: &Worktree) -> Result<()> {
        let at = self.locate(&worktree.created.name)?;
        let root = worktree.lease.fd.as_fd();
        let call = self.git.hardened(self.store(), "diff-tree").args(["-r", "-z", "--raw", "--no-renames"]);
        let answer = call.args([head.as_str(), rescue.commit.as_str(), "--"]).ok().await?;
        let fields: Vec<&[u8]> = split_nul(&answer.stdout).collect();
        let mut puts = Vec::new();
        for pair in fields.chunks_exact(2) {
            let words = String::from_utf8_lossy(pair[0]).into_owned();
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            let (Some(mode), Some(oid)) = (words.get(1), words.get(3)) else { continue };
            let path = Path::new(OsStr::from_bytes(pair[1])).to_path_buf();
            Below::new(&path)
                .and_then(|name| tree::delete(root, &name))
                .map_err(|e| Error::at("replacing", &path, e))?;
            if let Some(oid) = Oid::parse(oid).filter(|oid| !oid.is_zero() && mode != "160000") {
                puts.push((path, mode.clone(), oid));
            }
        }
        let mut store = Blobs::start(self.git.hardened(self.store(), "cat-file"))?;
        for (path, mode, oid) in puts {
            self.put(&mut store, root, &path, &mode, &oid).await?;
        }
        if let Some(index) = &rescue.index {
            let place = GitPlace::Tree { common: self.common_dir(), git_dir: &at.admin, files: &at.path };
            self.git.hardened(place, "read-tree").arg(index.as_str()).ok().await?;
            // Only the recorded times change; what it says about differences is not our business.
            self.git.hardened(place, "update-index").args(["-q", "--refresh"]).run().await?;
        }
        Ok(())
    }

    async fn put(
        &self,
        store: &mut Blobs,
        root: std::os::fd::BorrowedFd<'_>,
        path: &Path,
        mode: &str,
        oid: &Oid,
    ) -> Result<()> {
        let failed = |e| Error::at("writing", path, e);
        let name = Below::new(path).map_err(failed)?;
        if mode == "120000" {
            let mut target = Vec::new();
            store
                .read(oid, |chunk| {
                    target.extend_from_slice(chunk);
                    Ok(())
                })
                .await?;
            return tree::create_link(root, &name, OsStr::from_bytes(&target)).map_err(failed);
        }
        let mut file = tree::create_file(root, &name, mode == "100755").map_err(failed)?;
        store.read(oid, |chunk| std::io::Write::write_all(&mut file, chunk)).await
    }
}

fn split_tab(line: &[u8]) -> Option<(Vec<String>, &Path)> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    let words = String::from_utf8_lossy(&line[..tab]).split(' ').map(str::to_owned).collect();
    Some((words, Path::new(OsStr::from_bytes(&line[tab + 1..]))))
}

fn parse_rescue(record: &[u8]) -> Option<Rescue> {
    let text = String::from_utf8_lossy(record);
    let fields: Vec<&str> = text.trim_start().split('\0').collect();
    let [reference, commit, parents, saved, body, _] = fields.as_slice() else { return None };
    let name = reference.strip_prefix(RESCUE_PREFIX)?.to_owned();
    let field = |key: &str| body.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
    let head = field("Caliban-Head:").and_then(Oid::parse);
    let parents: Vec<Oid> = parents.split(' ').filter_map(Oid::parse).collect();
    // The index is written in the same stream, so the message cannot name it; its place can.
    let after = usize::from(parents.first() == head.as_ref() && head.is_some());
    let index = field("Caliban-Index:").and_then(|_| parents.get(after).cloned());
    Some(Rescue {
        restore: format!("caliban worktrees rescue restore {name}"),
        name,
        reference: (*reference).to_owned(),
        commit: Oid::parse(commit)?,
        worktree: field("Caliban-Worktree:").and_then(|s| Slug::parse(s).ok()),
        head,
        index,
        base: field("Caliban-Base:").and_then(Oid::parse),
        saved: saved.parse().ok()?,
    })
}
