//! Second looks at what git calls changed, unchanged or ignored without running anything: LFS files, "assume
//! unchanged" files, and ignore rules that nobody committed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use caliban_rooted::tree::FoundFile;

use super::unreadable;
use crate::blobs::{Blobs, Pointer};
use crate::error::{Error, Result};
use crate::exclude;
use crate::fast_import::find;
use crate::links;
use crate::marker::Oid;
use crate::repo::{Located, Repo, asked_to_ignore, told_ignored};
use crate::status::{GitStatus, IndexFacts, Tracked};

/// The largest committed ignore file that is compared.
const IGNORE_FILE_CAP: usize = 1024 * 1024;

impl Repo {
    /// Tracked paths that look changed, or that git was told not to look at, and are as in the index: LFS
    /// files, whose filter we do not run, and "assume unchanged" ones.
    pub(super) async fn unchanged(
        &self,
        at: &Located,
        status: &GitStatus,
        index: &IndexFacts,
        files: &OwnedFd,
    ) -> Result<BTreeSet<PathBuf>> {
        let only_content =
            |t: &&Tracked| t.staged == b'.' && t.unstaged == b'M' && t.mode_index == t.mode_file;
        let suspects: Vec<(PathBuf, Oid, PathDoubt)> = status
            .tracked
            .iter()
            .filter(only_content)
            .filter_map(|t| Some((t.path.clone(), t.index.clone()?, PathDoubt::Filtered)))
            .chain(index.assumed.iter().map(|e| {
                (e.path.clone(), e.oid.clone(), PathDoubt::Assumed { executable: e.mode == "100755" })
            }))
            .collect();
        let mut same = BTreeSet::new();
        if suspects.is_empty() {
            return Ok(same);
        }
        let mut store = Blobs::start(self.git.hardened(self.tree(at), "cat-file"))?;
        for (path, oid, doubt) in suspects {
            if self.git.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if self.is_unchanged(&mut store, files, &path, &oid, doubt).await? {
                same.insert(path);
            }
        }
        Ok(same)
    }

    async fn is_unchanged(
        &self,
        store: &mut Blobs,
        files: &OwnedFd,
        path: &Path,
        oid: &Oid,
        doubt: PathDoubt,
    ) -> Result<bool> {
        let failed = |e: std::io::Error| unreadable(path, &e);
        let FoundFile::File { mut file, size, executable } = find(files, path).map_err(failed)? else {
            return Ok(false);
        };
        if let PathDoubt::Assumed { executable: recorded } = doubt
            && recorded == executable
            && store.size(oid).await? == Some(size)
        {
            let mut equal = true;
            let mut buffer = Vec::new();
            store
                .read(oid, |chunk| {
                    buffer.resize(chunk.len(), 0);
                    std::io::Read::read_exact(&mut file, &mut buffer)?;
                    equal &= buffer == chunk;
                    Ok(())
                })
                .await?;
            return Ok(equal);
        }
        let Some(pointer) = store.pointer(oid).await? else { return Ok(false) };
        if !self.has_lfs_object(&pointer) {
            return Ok(false);
        }
        let compared = tokio::task::spawn_blocking(move || pointer.is_content_of(file, size)).await;
        compared.map_err(std::io::Error::other).and_then(|same| same).map_err(failed)
    }

    /// The content of an LFS file counts as kept only when the store really has it.
    fn has_lfs_object(&self, pointer: &Pointer) -> bool {
        let (a, b) = (&pointer.sha256[..2], &pointer.sha256[2..4]);
        let object = self.common_dir().join("lfs/objects").join(a).join(b).join(&pointer.sha256);
        object.symlink_metadata().is_ok_and(|m| m.is_file() && m.len() == pointer.size)
    }

    /// Ignored paths whose rule is in no committed ignore file, nor was in the repository's own one when the worktree
    /// was made: an agent that writes `*` into one must not thereby lose what it made.
    pub(super) async fn ignored_by_new_rules(
        &self,
        at: &Located,
        status: &GitStatus,
    ) -> Result<BTreeSet<PathBuf>> {
        let is_rules = |p: &&PathBuf| p.file_name().is_some_and(|n| n == ".gitignore");
        let changed: BTreeSet<&PathBuf> = status
            .tracked
            .iter()
            .map(|t| &t.path)
            .chain(&status.untracked)
            .chain(&status.unmerged)
            .chain(&status.ignored)
            .filter(is_rules)
            .collect();
        if status.ignored.is_empty() {
            return Ok(BTreeSet::new());
        }
        let ours: Vec<String> = at.marker.links.iter().map(|link| links::recorded_line(link)).collect();
        let known = |rule: &String| at.marker.excludes.contains(rule) || ours.contains(rule);
        let new: BTreeSet<String> =
            exclude::rules(self.common_dir())?.into_iter().filter(|rule| !known(rule)).collect();
        if changed.is_empty() && new.is_empty() {
            return Ok(BTreeSet::new());
        }
        let asked = asked_to_ignore(status.ignored.iter().map(|path| path.as_os_str().as_bytes()));
        let call = self.git.hardened(self.tree(at), "check-ignore").args([
            "--verbose",
            "-z",
            "--stdin",
            "--no-index",
        ]);
        let answer = call.stdin(asked).run().await?;
        if !matches!(answer.status.code(), Some(0 | 1)) {
            return Err(answer.failure());
        }
        let mut committed: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::new();
        let fields: Vec<&[u8]> = answer.stdout.split(|b| *b == 0).collect();
        // Whatever git does not explain is doubted.
        let mut doubted: BTreeSet<PathBuf> = status.ignored.iter().cloned().collect();
        for record in fields.chunks_exact(4) {
            let [source, _line, pattern, path] = record else { continue };
            let source = Path::new(OsStr::from_bytes(source)).to_path_buf();
            let path = Path::new(OsStr::from_bytes(told_ignored(path))).to_path_buf();
            let trusted = if changed.contains(&source) {
                if !committed.contains_key(&source) {
                    let rules = self.committed_file(status.head.as_ref(), &source).await?;
                    committed.insert(source.clone(), rules);
                }
                committed[&source]
                    .split(|b| *b == b'\n')
                    .any(|l| l.trim_ascii_end() == pattern.trim_ascii_end())
            } else if source.file_name().is_some_and(|name| name == "exclude") {
                !new.contains(String::from_utf8_lossy(pattern.trim_ascii_end()).as_ref())
            } else {
                true
            };
            if trusted {
                doubted.remove(&path);
            }
        }
        Ok(doubted)
    }

    async fn committed_file(&self, head: Option<&Oid>, path: &Path) -> Result<Vec<u8>> {
        let Some(head) = head else { return Ok(Vec::new()) };
        let mut name = OsString::from(format!("{head}:"));
        name.push(path);
        let answer = self.git.hardened(self.store(), "cat-file").arg("blob").arg(name).run().await?;
        let usable = answer.status.success() && answer.stdout.len() <= IGNORE_FILE_CAP;
        Ok(if usable { answer.stdout } else { Vec::new() })
    }
}

/// Why a tracked path is looked at again.
#[derive(Debug, Clone, Copy)]
enum PathDoubt {
    Filtered,
    Assumed { executable: bool },
}
