//! Stores of objects that lie in a worktree. A repository may take objects from other stores (`objects/info/alternates`). An
//! agent that "saves room" may name a directory of its worktree there. Then "reachable" does not mean "in the
//! repository": the objects would go with the worktree. So they are copied into the repository's own store before work
//! lands and before a worktree is removed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use caliban_rooted::{
    Below, Root,
    tree::{self, FoundFile, WriteUntil, nonce_name},
};

use crate::error::{Error, Result};
use crate::repo::{Located, Repo};

/// How far alternates of alternates are followed; git stops at five.
const DEPTH: usize = 6;
/// The list of other stores, in a store of objects.
const LIST: &str = "info/alternates";
/// The largest list that is read.
const LIST_CAP: u64 = 1024 * 1024;
/// The endings of a pack's files, in the order in which they are copied: git looks for an index first.
const PACK_ENDINGS: [&str; 3] = ["pack", "rev", "idx"];

impl Repo {
    /// Copies every object into the repository that it takes from a store in this worktree or in its record. These stores.
    pub(crate) async fn take_objects_in(&self, at: &Located) -> Result<Vec<PathBuf>> {
        let objects = self.common_dir().join("objects");
        #[expect(
            clippy::disallowed_methods,
            reason = "where the worktree is, to compare with stores as git finds them"
        )]
        let real = |path: &Path| path.canonicalize().ok();
        let going: Vec<PathBuf> = [real(&at.path), real(&at.admin)].into_iter().flatten().collect();
        let is_going = |store: &PathBuf| going.iter().any(|place| store.starts_with(place));
        let stores: Vec<PathBuf> = alternates(&objects).into_iter().filter(is_going).collect();
        if stores.is_empty() {
            return Ok(stores);
        }
        let copy = move || {
            stores.iter().try_for_each(|store| copy_objects(store, &objects))?;
            Ok(stores)
        };
        let copied = tokio::task::spawn_blocking(copy).await.map_err(io::Error::other).and_then(|done| done);
        copied.map_err(|e| Error::io("copying objects that lie in the worktree", e))
    }

    /// Takes stores out of the list that are about to be deleted: git complains of one that is not there.
    pub(crate) fn forget_stores(&self, stores: &[PathBuf]) -> Result<()> {
        if stores.is_empty() {
            return Ok(());
        }
        let objects = self.common_dir().join("objects");
        let list = objects.join(LIST);
        let forget = || -> io::Result<()> {
            let text = tree::read_small(&list, LIST_CAP)?;
            let stays = |line: &&[u8]| store_of(&objects, line).is_none_or(|store| !stores.contains(&store));
            let kept: Vec<&[u8]> = text.split(|byte| *byte == b'\n').filter(stays).collect();
            tree::write_whole(&objects, &Below::fixed(LIST), &kept.join(&b'\n'), WriteUntil::Visible)
        };
        forget().map_err(|e| Error::at("updating", &list, e))
    }
}

/// The store that a line of the list of `objects` names, if it is there.
#[expect(clippy::disallowed_methods, reason = "git follows links to a store, too")]
fn store_of(objects: &Path, line: &[u8]) -> Option<PathBuf> {
    if line.is_empty() || line[0] == b'#' {
        return None;
    }
    objects.join(OsStr::from_bytes(&unquoted(line))).canonicalize().ok()
}

/// Every store that this one takes objects from, directly or not. Git reads the list through a link, too.
pub(crate) fn alternates(objects: &Path) -> Vec<PathBuf> {
    let (mut found, mut open) = (Vec::new(), vec![(objects.to_path_buf(), 0)]);
    while let Some((store, depth)) = open.pop() {
        let list = Root::pin(&store.join(LIST)).and_then(|list| tree::read_small(list.path(), LIST_CAP));
        let list = list.unwrap_or_default();
        for line in list.split(|byte| *byte == b'\n') {
            if let Some(other) = store_of(&store, line)
                && !found.contains(&other)
            {
                found.push(other.clone());
                if depth < DEPTH {
                    open.push((other, depth + 1));
                }
            }
        }
    }
    found
}

/// A line of the list: git also takes a path in quotes.
fn unquoted(line: &[u8]) -> Vec<u8> {
    let Some(inner) = line.strip_prefix(b"\"").and_then(|line| line.strip_suffix(b"\"")) else {
        return line.to_vec();
    };
    let (mut out, mut is_escaped) = (Vec::new(), false);
    for byte in inner {
        is_escaped = *byte == b'\\' && !is_escaped;
        if !is_escaped {
            out.push(*byte);
        }
    }
    out
}

fn copy_objects(from: &Path, to: &Path) -> io::Result<()> {
    let root = tree::open_dir(from)?;
    let mut packs = Vec::new();
    for path in tree::files_beneath(&root, &Below::here())? {
        let parts: Vec<&str> = path.parts().filter_map(OsStr::to_str).collect();
        match parts.as_slice() {
            ["pack", name] => packs.push((*name).to_owned()),
            [first, rest] if first.len() == 2 && is_hex(first) && is_hex(rest) => copy(&root, to, &path)?,
            _ => {}
        }
    }
    for ending in PACK_ENDINGS {
        let has_ending = |name: &&String| Path::new(name).extension() == Some(OsStr::new(ending));
        for name in packs.iter().filter(|name| name.starts_with("pack-")).filter(has_ending) {
            copy(&root, to, &Below::fixed("pack").join(name)?)?;
        }
    }
    Ok(())
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Copies one file, whole or not at all; one that is there already stays.
#[expect(clippy::disallowed_methods, reason = "in the repository's own store")]
fn copy(root: &OwnedFd, to: &Path, name: &Below) -> io::Result<()> {
    let target = name.under(to);
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    let FoundFile::File { mut file, .. } = tree::find(root, name)? else { return Ok(()) };
    let dir = target.parent().unwrap_or(to);
    fs::create_dir_all(dir)?;
    // git deletes what has this prefix and is old.
    let new = dir.join(nonce_name("tmp_obj_caliban"));
    let mut copied = File::create_new(&new)?;
    let written = tree::copy_file(&mut file, &mut copied)
        .and_then(|()| copied.set_permissions(file.metadata()?.permissions()))
        .and_then(|()| copied.sync_all())
        .and_then(|()| fs::rename(&new, &target));
    if written.is_err() {
        // Best effort by name: the error is told.
        let _gone = fs::remove_file(&new);
    }
    written
}
