//! What an agent left uncommitted, as a commit: made from the files alone, through the repository's store. No hook and no
//! filter is run. The agent's branch and index move only when the commit has landed; until then nothing of the agent's
//! is changed, so there is nothing to take back.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use caliban_rooted::tree::{self, FoundFile};

use super::attributes::{Treatment, has_crlf, looks_like_text};
use super::refusal::{CannotCommit, LandingRefusal};
use super::work::Work;
use crate::error::{Error, Result};
use crate::fast_import::{self, Identity, Snapshot, TEXT_CAP, TemporaryRefs, find};
use crate::index::IndexStamp;
use crate::leftovers::TEMPORARY;
use crate::marker::Oid;
use crate::repo::{Located, Repo};
use crate::survey::{ChangeKind, SavePlan, Staged};

/// A commit that nothing but a temporary ref holds yet; settled or dropped.
pub(super) struct PreparedCommit {
    at: Located,
    index: IndexStamp,
    before: Oid,
    commit: Oid,
    /// The temporary ref.
    place: String,
}

impl PreparedCommit {
    /// Makes the commit. `into` is where it is meant to land.
    pub(super) async fn make(
        repo: &Repo,
        work: &Work,
        message: &str,
        into: &Oid,
    ) -> Result<Self, LandingRefusal> {
        let worktree = work.worktree();
        if work.branch.as_deref() != Some(&work.changes.branch) {
            return Err(LandingRefusal::NotOnItsBranch { branch: work.changes.branch.clone(), worktree });
        }
        let files = tree::open_dir(&worktree).map_err(|e| Error::at("opening", &worktree, e))?;
        let before = work.head.clone();
        let index = index(repo, work).await?;
        let refuse = |(path, why): (String, CannotCommit)| LandingRefusal::CannotCommit {
            path,
            why,
            worktree: worktree.clone(),
        };
        let plan = plan(&files, work, &index).map_err(refuse)?;
        let read: Vec<PathBuf> = plan.paths.iter().filter(|path| is_file(&files, path)).cloned().collect();
        let mut treatments = repo.treatments(&before, &read).await?;
        repo.decide_guesses(&files, &before, &mut treatments).await?;
        let mut text = BTreeSet::new();
        for (path, treatment) in treatments {
            match treatment {
                Treatment::Refused(why) => return Err(refuse((path.to_string_lossy().into_owned(), why))),
                Treatment::Text if is_too_large(&files, &path) => {
                    return Err(refuse((path.to_string_lossy().into_owned(), CannotCommit::TooLarge)));
                }
                Treatment::Text => {
                    text.insert(path);
                }
                Treatment::Kept | Treatment::Guessed => {}
            }
        }
        let place = format!("{TEMPORARY}/landing-{}", work.at.name.as_str());
        let refs = TemporaryRefs { tree: place.clone(), index: format!("{place}-index") };
        // One lands at a time: a lock is a killed one's.
        repo.unlock_temporary(&refs.tree);
        repo.unlock_temporary(&refs.index);
        let earlier = repo.resolve_ref(&place).await?;
        let snapshot = Snapshot {
            head: Some(before.clone()),
            other_parents: Vec::new(),
            files: Some(files),
            plan,
            text,
            message: format!("{}\n", message.trim_end()),
            identity: repo.users_identity().await?,
            refs,
        };
        // A merge that was killed may have left the ref.
        let fast_import = repo.git.durable(repo.store(), "fast-import").arg("--force");
        let mut commit = fast_import::write(fast_import, snapshot).await?;
        if let Some(earlier) = earlier
            && repo.is_same_change(&earlier, &commit).await?
            && repo.is_ancestor(&earlier, into).await?
        {
            // A merge that was killed landed it already.
            repo.update_refs(&format!("update {place}\0{earlier}\0{commit}\0")).await?;
            commit = earlier;
        }
        Ok(Self { at: work.at.clone(), index: work.index.clone(), before, commit, place })
    }

    pub(super) fn commit(&self) -> &Oid {
        &self.commit
    }

    /// It has landed: the agent's branch moves to it, and the worktree's index is brought up to it, so that the worktree is
    /// clean. Neither happens where somebody has staged something meanwhile: that would look like a change against the
    /// commit.
    pub(super) async fn settle(self, repo: &Repo) -> Result<()> {
        if let Err(error) = self.index.check(&self.at) {
            self.discard(repo).await;
            return Err(error);
        }
        let Self { at, index, before, commit, place } = self;
        let repo = repo.uncancelled();
        let order =
            format!("update refs/heads/{}\0{commit}\0{before}\0delete {place}\0{commit}\0", at.branch());
        repo.update_refs(&order).await?;
        repo.bring_index_to(&at, &index, &commit).await
    }

    /// It has not landed: only the temporary ref goes.
    pub(super) async fn discard(self, repo: &Repo) {
        // Best effort by name: a ref that stays only keeps more, and the next merge overwrites it.
        let order = format!("delete {}\0{}\0", self.place, self.commit);
        let _tried = repo.uncancelled().update_refs(&order).await;
    }
}

/// What each uncommitted path becomes.
fn plan(
    files: &OwnedFd,
    work: &Work,
    index: &BTreeMap<PathBuf, (String, Oid)>,
) -> Result<SavePlan, (String, CannotCommit)> {
    let mut plan = SavePlan::default();
    for (name, kinds) in &work.uncommitted {
        let path = PathBuf::from(name);
        let refuse = |why: CannotCommit| (name.clone(), why);
        if kinds.contains(&ChangeKind::Conflicted) {
            return Err(refuse(CannotCommit::Conflicted));
        }
        if name.contains('\u{FFFD}') {
            return Err(refuse(CannotCommit::NameIsNoText));
        }
        if fast_import::escaped(&path) != path {
            return Err(refuse(CannotCommit::NameIsGits));
        }
        let found =
            find(files, &path).map_err(|error| refuse(CannotCommit::Unreadable(error.to_string())))?;
        let is_staged = kinds.iter().all(|kind| *kind == ChangeKind::Staged);
        match found {
            FoundFile::Special => return Err(refuse(CannotCommit::NoFile)),
            // Not in the files, because the checkout is sparse or it is a submodule: the index alone has it.
            FoundFile::Nothing | FoundFile::Directory if is_staged => {
                let entry = index.get(&path).cloned();
                plan.staged_only.push(Staged { path, entry });
            }
            _ => {
                plan.paths.insert(path);
            }
        }
    }
    Ok(plan)
}

/// Mode and blob of every path in the worktree's index, when something is staged.
async fn index(repo: &Repo, work: &Work) -> Result<BTreeMap<PathBuf, (String, Oid)>> {
    let mut found = BTreeMap::new();
    if !work.uncommitted.values().any(|kinds| kinds.contains(&ChangeKind::Staged)) {
        return Ok(found);
    }
    let call = repo.git.hardened(repo.tree(&work.at), "ls-files").args(["-z", "--stage"]);
    for entry in call.ok().await?.fields() {
        let bytes = entry.as_bytes();
        let Some(tab) = bytes.iter().position(|byte| *byte == b'\t') else { continue };
        let words = String::from_utf8_lossy(&bytes[..tab]).into_owned();
        if let [mode, oid, "0"] = words.split(' ').collect::<Vec<_>>().as_slice()
            && let Some(oid) = Oid::parse(oid)
        {
            let path = PathBuf::from(OsStr::from_bytes(&bytes[tab + 1..]));
            found.insert(path, ((*mode).to_owned(), oid));
        }
    }
    Ok(found)
}

impl Repo {
    /// Decides where git would guess: what is no text, or had CRLF before, is committed as it is.
    async fn decide_guesses(
        &self,
        files: &OwnedFd,
        before: &Oid,
        treatments: &mut BTreeMap<PathBuf, Treatment>,
    ) -> Result<()> {
        let guessed = |treatment: &Treatment| *treatment == Treatment::Guessed;
        for (path, treatment) in treatments.iter_mut().filter(|(_, treatment)| guessed(treatment)) {
            let is_text =
                read_text(files, path)?.is_some_and(|(bytes, _)| has_crlf(&bytes) && looks_like_text(&bytes));
            let had_crlf = is_text && {
                let blob = self.committed(before, path).await?;
                blob.is_some_and(|(bytes, _)| has_crlf(&bytes))
            };
            *treatment = if is_text && !had_crlf { Treatment::Text } else { Treatment::Kept };
        }
        Ok(())
    }

    /// Takes out what looks modified only because its line ends are not those of the commit.
    pub(super) async fn forgive_line_ends(
        &self,
        at: &Located,
        head: &Oid,
        uncommitted: &mut BTreeMap<String, BTreeSet<ChangeKind>>,
    ) -> Result<()> {
        let is_modified =
            |kinds: &BTreeSet<ChangeKind>| kinds.iter().all(|kind| *kind == ChangeKind::Modified);
        let modified: Vec<PathBuf> =
            uncommitted.iter().filter(|(_, kinds)| is_modified(kinds)).map(|(path, _)| path.into()).collect();
        let Ok(files) = tree::open_dir(&at.path) else { return Ok(()) };
        for (path, treatment) in self.treatments(head, &modified).await? {
            if !matches!(treatment, Treatment::Text | Treatment::Guessed) {
                continue;
            }
            let Some((bytes, executable)) = read_text(&files, &path)? else { continue };
            if has_crlf(&bytes)
                && self.committed(head, &path).await?
                    == Some((fast_import::with_unix_line_ends(&bytes), executable))
            {
                uncommitted.remove(&*path.to_string_lossy());
            }
        }
        Ok(())
    }

    /// A file of a commit, and whether it is executable.
    async fn committed(&self, commit: &Oid, path: &Path) -> Result<Option<(Vec<u8>, bool)>> {
        let call = self.git.hardened(self.store(), "ls-tree").env("GIT_LITERAL_PATHSPECS", "1");
        let listed = call.args(["-z", "--full-tree", commit.as_str(), "--"]).arg(path).ok().await?;
        let is_executable = listed.stdout.starts_with(b"100755 ");
        let mut name = OsString::from(format!("{commit}:"));
        name.push(path);
        let blob = self.git.hardened(self.store(), "cat-file").arg("blob").arg(name).run().await?;
        Ok(blob.status.success().then_some((blob.stdout, is_executable)))
    }

    async fn users_identity(&self) -> Result<Option<Identity>> {
        let ask = |which| self.git.trusted(self.users_directory(), "var").arg(which).ok();
        let author = ask("GIT_AUTHOR_IDENT").await?.line();
        let committer = ask("GIT_COMMITTER_IDENT").await?.line();
        Ok(Some(Identity { author, committer }))
    }

    /// Whether two commits have the same tree on the same parent.
    async fn is_same_change(&self, one: &Oid, other: &Oid) -> Result<bool> {
        let call = self.git.hardened(self.store(), "rev-parse");
        let asked =
            [format!("{one}^{{tree}}"), format!("{other}^{{tree}}"), format!("{one}^"), format!("{other}^")];
        let found = call.args(asked).run().await?.line();
        Ok(matches!(found.lines().collect::<Vec<_>>().as_slice(), [a, b, c, d] if a == b && c == d))
    }
}

fn is_file(files: &OwnedFd, path: &Path) -> bool {
    matches!(find(files, path), Ok(FoundFile::File { .. } | FoundFile::Link(_)))
}

fn is_too_large(files: &OwnedFd, path: &Path) -> bool {
    matches!(find(files, path), Ok(FoundFile::File { size, .. }) if size > TEXT_CAP)
}

/// A file's content, and whether it is executable; nothing for what is no file or too large for a text.
fn read_text(files: &OwnedFd, path: &Path) -> Result<Option<(Vec<u8>, bool)>> {
    let unreadable = |e: std::io::Error| Error::at("reading", path, e);
    let found = find(files, path).map_err(unreadable)?;
    let FoundFile::File { file, size, executable } = found else { return Ok(None) };
    if size > TEXT_CAP {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(TEXT_CAP).read_to_end(&mut bytes).map_err(unreadable)?;
    Ok(Some((bytes, executable)))
}
