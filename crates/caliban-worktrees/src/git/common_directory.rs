//! What a hardened git takes for the repository's common directory: links to the objects and refs of the real one, and a
//! configuration of ours.
//!
//! git reads `config`, `info/attributes` and `info/grafts` in that directory, and an agent can write all of them. Here they
//! do not exist, so nothing has to be found in them and overridden: no filter, driver, include or graft is known.
//! `config.worktree` is read only where `config` says so, and ours does not. Refs are not found through this directory: git
//! follows `commondir` in GIT_DIR for them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::Duration;

use caliban_contract::places::private_dir;
use caliban_rooted::{
    Below,
    tree::{self, nonce_name},
};

use crate::error::{Error, Result};

/// What the view links to. `worktrees` and `HEAD` are for `git worktree list`.
const LINKED: [&str; 6] = ["objects", "refs", "HEAD", "packed-refs", "worktrees", "reftable"];
/// What it links to when it is a plain file: git would wait for a pipe in its place.
const LINKED_FILES: [&str; 2] = ["info/exclude", "shallow"];

/// How old a view is at least that is deleted because its process is gone: a git that outlives its process may still use it.
const LEFT_AFTER: Duration = Duration::from_secs(10 * 60);

/// What git has to know about a repository whose configuration it does not read. Found when the repository is opened.
#[derive(Debug, Clone, Default)]
pub(crate) struct StoreFormat {
    pub(crate) is_sha256: bool,
    pub(crate) is_bare: bool,
    /// Settings of `core` that describe the file system or whom the files are shared with. Values are words or numbers.
    pub(crate) core: Vec<(&'static str, String)>,
}

/// One view, deleted when dropped. The views of a user are in one directory. Each is locked for as long as its process lives,
/// and the first view of every process deletes those that killed processes left.
#[derive(Debug)]
pub(crate) struct StoreView {
    path: PathBuf,
    /// The directory itself, with our lock on it.
    _held: Option<File>,
}

impl StoreView {
    /// Makes a view of the store `common` in `scratch`, where no agent looks; beside the store where that is impossible.
    pub(crate) fn new(common: &Path, scratch: &Path, format: &StoreFormat) -> Result<Self> {
        Self::make_swept(common, scratch, format)
            .or_else(|_| Self::make(common, scratch, format))
            .or_else(|_| Self::make(common, common, format))
            .map_err(|e| Error::at("making a view of", common, e))
    }

    fn make_swept(common: &Path, scratch: &Path, format: &StoreFormat) -> io::Result<Self> {
        static SWEPT: Once = Once::new();
        let views = views_dir(scratch)?;
        SWEPT.call_once(|| sweep(&views, LEFT_AFTER));
        Self::make(common, &views, format)
    }

    fn make(common: &Path, parent: &Path, format: &StoreFormat) -> io::Result<Self> {
        let path = parent.join(nonce_name("caliban-git"));
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        // Without the lock it may be deleted as a left one when it is old.
        let held = File::open(&path).ok().filter(|dir| dir.try_lock().is_ok());
        // From here on a view that is half made is deleted.
        let view = Self { path, _held: held };
        let path = &view.path;
        fs::create_dir(path.join("info"))?;
        for name in LINKED {
            symlink(common.join(name), path.join(name))?;
        }
        for name in LINKED_FILES {
            if common.join(name).symlink_metadata().is_ok_and(|found| found.is_file()) {
                symlink(common.join(name), path.join(name))?;
            }
        }
        fs::write(path.join("config"), format.config(common.join("reftable").is_dir()))?;
        Ok(view)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StoreView {
    fn drop(&mut self) {
        if let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name())
            && let Ok(parent) = tree::open_dir(parent)
        {
            // Best effort: what stays is links in a directory for temporary files.
            let _tried = Below::new(name).and_then(|name| tree::delete(&parent, &name));
        }
    }
}

/// The directory of this user's views. Others may write where it is: one that is not ours alone is not used (a01).
fn views_dir(scratch: &Path) -> io::Result<PathBuf> {
    if !scratch.is_dir() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let views = scratch.join(format!("caliban-git-{}", rustix::process::getuid().as_raw()));
    private_dir(&views).map_err(io::Error::other)?;
    Ok(views)
}

/// Deletes the views of processes that are gone. Best effort: the next process tries again.
fn sweep(views: &Path, left_after: Duration) {
    let Ok(parent) = tree::open_dir(views) else { return };
    for entry in fs::read_dir(views).into_iter().flatten().flatten() {
        let is_old = |dir: &File| {
            let made = dir.metadata().and_then(|found| found.modified()).ok();
            made.and_then(|made| made.elapsed().ok()).is_some_and(|age| age >= left_after)
        };
        if File::open(entry.path()).is_ok_and(|dir| is_old(&dir) && dir.try_lock().is_ok()) {
            let _tried = Below::new(entry.file_name()).and_then(|name| tree::delete(&parent, &name));
        }
    }
}

impl StoreFormat {
    /// The configuration of a repository of this format, and nothing else.
    pub(crate) fn config(&self, is_reftable: bool) -> String {
        let is_extended = self.is_sha256 || is_reftable;
        let mut text =
            format!("[core]\nrepositoryformatversion = {}\nbare = {}\n", u8::from(is_extended), self.is_bare);
        for (key, value) in &self.core {
            text.push_str(&format!("{key} = {value}\n"));
        }
        if is_extended {
            text.push_str("[extensions]\n");
        }
        if self.is_sha256 {
            text.push_str("objectformat = sha256\n");
        }
        if is_reftable {
            text.push_str("refstorage = reftable\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_links_and_is_deleted_without_what_it_links_to() {
        let dir = tempfile::tempdir().unwrap();
        let (common, scratch) = (dir.path().join("store"), dir.path().join("scratch"));
        for made in ["store/objects", "store/info", "store/reftable", "scratch"] {
            fs::create_dir_all(dir.path().join(made)).unwrap();
        }
        for file in ["store/config", "store/info/attributes", "store/info/grafts", "store/info/exclude"] {
            fs::write(dir.path().join(file), "of the repository\n").unwrap();
        }
        let core = vec![("sharedrepository", "group".to_owned())];
        let format = StoreFormat { is_sha256: true, is_bare: false, core };
        let view = StoreView::new(&common, &scratch, &format).unwrap();
        let path = view.path().to_owned();
        assert_eq!(
            fs::read_to_string(path.join("config")).unwrap(),
            "[core]\nrepositoryformatversion = 1\nbare = false\nsharedrepository = group\n\
             [extensions]\nobjectformat = sha256\nrefstorage = reftable\n"
        );
        assert!(path.join("objects").is_dir() && path.join("info/exclude").is_file());
        assert!(!path.join("info/attributes").exists() && !path.join("info/grafts").exists());
        assert_eq!(path.parent().and_then(Path::parent), Some(scratch.as_path()));
        drop(view);
        assert!(!path.exists() && common.join("info/exclude").exists() && common.join("objects").exists());
        let beside = StoreView::new(&common, &dir.path().join("absent"), &format).unwrap();
        assert_eq!(beside.path().parent(), Some(common.as_path()));
        // A directory that is not ours alone is not used.
        let views = views_dir(&scratch).unwrap();
        fs::remove_dir(&views).unwrap();
        symlink(dir.path(), &views).unwrap();
        let alone = StoreView::new(&common, &scratch, &format).unwrap();
        assert_eq!(alone.path().parent(), Some(scratch.as_path()));
    }

    #[test]
    fn views_of_processes_that_are_gone_are_deleted_and_those_in_use_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let common = dir.path().join("store");
        fs::create_dir_all(common.join("objects/kept")).unwrap();
        let views = views_dir(dir.path()).unwrap();
        // As a killed process leaves it.
        let left = views.join(nonce_name("caliban-git"));
        fs::create_dir(&left).unwrap();
        symlink(common.join("objects"), left.join("objects")).unwrap();
        let used = StoreView::make(&common, &views, &StoreFormat::default()).unwrap();
        sweep(&views, LEFT_AFTER);
        assert!(left.is_dir());
        sweep(&views, Duration::ZERO);
        assert!(!left.exists() && used.path().is_dir() && common.join("objects/kept").is_dir());
    }
}
