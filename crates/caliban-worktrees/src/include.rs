//! `.worktreeinclude`: files that git does not track but a worktree needs (`.env`, local settings).
//!
//! The file has gitignore syntax. What it matches and git does not track is copied, sharing blocks where
//! the file system can. Links are not copied and not followed.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use caliban_rooted::{
    Below,
    tree::{self, FoundFile},
};
use rustix::fs::{Mode, OFlags};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::repo::{Repo, split_nul};

/// The file's name, in the root of the working tree.
pub(crate) const FILE: &str = ".worktreeinclude";
const FILES_CAP: usize = 20_000;
const BYTES_CAP: u64 = 2 * 1024 * 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) notes: Vec<String>,
}

/// Which files are to be copied; `None` when there is no such file.
pub(crate) async fn wanted(repo: &Repo, source: &Path) -> Result<Option<Vec<PathBuf>>> {
    let file = source.join(FILE);
    if !file.symlink_metadata().is_ok_and(|m| m.is_file()) {
        return Ok(None);
    }
    let mut exclude = OsString::from("--exclude-from=");
    exclude.push(&file);
    let call = repo.git.hardened(repo.opened(), "ls-files").args(["-z", "--others", "--ignored"]);
    let answer = call.arg(exclude).ok().await?;
    let ours = |path: &Path| path.starts_with(".caliban/worktrees");
    // A name that ends with '/' is a repository inside this one: left alone.
    let paths = split_nul(&answer.stdout).filter(|p| !p.ends_with(b"/"));
    let paths = paths.map(|p| PathBuf::from(OsString::from_vec(p.to_vec()))).filter(|p| !ours(p));
    let paths: Vec<_> = paths.collect();
    if paths.len() > FILES_CAP {
        return Err(Error::IncludeTooLarge(format!("{FILES_CAP} files")));
    }
    Ok(Some(paths))
}

/// Copies them. Runs on a thread for blocking work.
pub(crate) fn copy(
    source: &Path,
    worktree: BorrowedFd<'_>,
    wanted: Vec<PathBuf>,
    cancel: &CancellationToken,
) -> Result<Copied> {
    let root = rustix::fs::open(source, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::at("opening", source, e))?;
    let (mut copied, mut bytes) = (Copied::default(), 0);
    for path in wanted {
        if cancel.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let shown = path.display();
        let doing = |e| Error::at("copying", &path, e);
        if path.to_str().is_none() {
            copied.notes.push(format!("{shown} was not copied: its name is not text"));
            continue;
        }
        let name = Below::new(&path).map_err(doing)?;
        match tree::find(&root, &name).map_err(doing)? {
            FoundFile::File { mut file, size, executable } => {
                bytes += size;
                if bytes > BYTES_CAP {
                    return Err(Error::IncludeTooLarge(format!("{BYTES_CAP} bytes")));
                }
                match tree::create_file(worktree, &name, executable) {
                    Ok(mut to) => {
                        copy_with_rights(&mut file, &mut to).map_err(doing)?;
                        copied.files.push(path);
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                        copied.notes.push(format!("{shown} was not copied: the worktree has one"));
                    }
                    Err(e) => return Err(doing(e)),
                }
            }
            FoundFile::Link(_) => copied.notes.push(format!("{shown} was not copied: it is a link")),
            FoundFile::Directory | FoundFile::Special | FoundFile::Nothing => {}
        }
    }
    Ok(copied)
}

/// A secret that only its owner may read stays so.
fn copy_with_rights(from: &mut std::fs::File, to: &mut std::fs::File) -> std::io::Result<()> {
    to.set_permissions(from.metadata()?.permissions())?;
    tree::copy_file(from, to)
}
