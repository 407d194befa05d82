//! What the agent's git says, and what the user's git says: refs, HEAD, the index and unfinished operations.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use caliban_core::hex;
use caliban_rooted::{
    Below,
    tree::{self, FoundFile},
};
use rustix::fs::{FileType, Timespec};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

use super::index_file::Index;
use super::names::{Refs, STASH, is_ref};
use super::state_files::{self, StateFiles};
use super::{PrivateGit, words};
use crate::error::{Error, Result};
use crate::marker::Oid;

/// The largest index, list of refs or log that is read.
pub(super) const CAP: u64 = 1 << 30;
const REF_CAP: u64 = 4096;
/// Not looked at: a new object without a ref to it is nobody's work yet.
const UNWATCHED: [&str; 3] = ["objects", "lfs", "modules"];

/// Where HEAD is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Head {
    /// On a branch, by its full name.
    On(String),
    At(Oid),
}

impl Head {
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_end();
        match text.strip_prefix("ref:") {
            Some(name) => Some(name.trim_start().to_owned()).filter(|name| is_ref(name)).map(Self::On),
            None => Oid::parse(text).map(Self::At),
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::On(name) => format!("ref: {name}\n"),
            Self::At(oid) => format!("{oid}\n"),
        }
    }

    /// The branch under another name, if it has one.
    pub(super) fn renamed(&self, name: impl Fn(&str) -> Option<String>) -> Self {
        match self {
            Self::On(branch) => Self::On(name(branch).unwrap_or_else(|| branch.clone())),
            Self::At(oid) => Self::At(oid.clone()),
        }
    }
}

/// All that one of the two says.
#[derive(Debug, Clone, Default)]
pub(super) struct Side {
    pub(super) refs: Refs,
    pub(super) head: Option<Head>,
    pub(super) index: Option<(Index, Timespec)>,
    pub(super) state: StateFiles,
}

/// What is remembered of a side.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SideMark {
    pub(super) refs: Refs,
    pub(super) head: Option<Head>,
    pub(super) index: Option<String>,
    pub(super) state: String,
}

impl Side {
    pub(super) fn mark(&self) -> SideMark {
        SideMark {
            refs: self.refs.clone(),
            head: self.head.clone(),
            index: self.index.as_ref().map(|(index, _)| index.digest()),
            state: digest(&state_files::hard(&self.state)),
        }
    }
}

pub(super) fn digest(files: &StateFiles) -> String {
    let mut hash = sha2::Sha256::new();
    for (path, bytes) in files {
        hash.update(path.bytes());
        hash.update([0]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    }
    hex::encode(&hash.finalize())
}

impl PrivateGit {
    /// What the agent's git says.
    pub(super) fn inside(&self) -> Result<Side> {
        let git = self.open_git()?;
        let record = self.open_own_record(&git)?;
        let mut refs = packed(&read(git.as_fd(), &Below::fixed("packed-refs"), CAP)?.unwrap_or_default());
        let failed = |e| Error::io("reading the refs of the private git", e);
        for path in tree::files_beneath(&git, &Below::fixed("refs")).map_err(failed)? {
            let Some(name) = str::from_utf8(path.bytes()).ok().filter(|name| is_ref(name)) else { continue };
            let text = read(git.as_fd(), &path, REF_CAP)?.unwrap_or_default();
            let oid = std::str::from_utf8(&text).ok().and_then(|text| Oid::parse(text.trim_end()));
            match oid {
                Some(oid) => refs.insert(name.to_owned(), oid),
                // A ref to another ref is not the agent's work.
                None => refs.remove(name),
            };
        }
        refs.remove(STASH);
        Ok(Side { refs, ..self.record_side(record.as_fd())? })
    }

    pub(super) fn refs(&self) -> Result<Refs> {
        let call = self.repo.git.hardened(self.repo.store(), "for-each-ref");
        Ok(packed(&call.arg("--format=%(objectname) %(refname)").ok_blocking()?.stdout))
    }

    /// What the user's git says.
    pub(super) fn outside(&self) -> Result<Side> {
        let refs = self.refs()?;
        let record = tree::open_dir(&self.at.admin).map_err(|e| Error::at("opening", &self.at.admin, e))?;
        Ok(Side { refs, ..self.record_side(record.as_fd())? })
    }

    fn record_side(&self, record: BorrowedFd<'_>) -> Result<Side> {
        let head = read(record, &Below::fixed("HEAD"), REF_CAP)?.as_deref().and_then(Head::parse);
        let index = match open(record, &Below::fixed("index"), CAP)? {
            Some((bytes, time)) => {
                Some((Index::parse(&bytes, self.id_bytes()).map_err(|why| words(&why))?, time))
            }
            None => None,
        };
        Ok(Side { refs: Refs::new(), head, index, state: state_files::read(record)? })
    }

    /// The agent's stash, newest last.
    pub(super) fn stash(&self) -> Result<BTreeSet<Oid>> {
        let git = self.open_git()?;
        let log = read(git.as_fd(), &Below::fixed("logs/refs/stash"), CAP)?.unwrap_or_default();
        let log = String::from_utf8_lossy(&log).into_owned();
        let newest = read(git.as_fd(), &Below::fixed(STASH), REF_CAP)?.unwrap_or_default();
        let packed = packed(&read(git.as_fd(), &Below::fixed("packed-refs"), CAP)?.unwrap_or_default());
        let mut found: BTreeSet<Oid> = packed.get(STASH).cloned().into_iter().collect();
        found.extend(std::str::from_utf8(&newest).ok().and_then(|text| Oid::parse(text.trim_end())));
        if !found.is_empty() {
            found.extend(log.lines().filter_map(|line| Oid::parse(line.split(' ').nth(1)?)));
        }
        Ok(found)
    }

    /// Changes with everything that the agent's git writes but objects.
    pub(super) fn signature(&self) -> Result<String> {
        let git = self.open_git()?;
        let failed = |e| Error::io("looking at the private git", e);
        let mut hash = sha2::Sha256::new();
        for (name, kind) in tree::entries(&git).map_err(failed)? {
            if UNWATCHED.iter().any(|unwatched| name == *unwatched) {
                continue;
            }
            let top = Below::new(name).map_err(failed)?;
            let files = match kind {
                FileType::Directory => tree::files_beneath(&git, &top).map_err(failed)?,
                _ => vec![top],
            };
            for path in files {
                // One that is gone meanwhile makes another signature the next time.
                let Ok(Some(found)) = tree::stat(&git, &path) else { continue };
                hash.update(path.bytes());
                let times = (found.st_mtime, found.st_mtime_nsec, found.st_ctime, found.st_ctime_nsec);
                hash.update(format!("\0{} {} {times:?}\n", found.st_ino, found.st_size));
            }
        }
        Ok(hex::encode(&hash.finalize()))
    }
}

/// A file beneath a directory, if it is one and not too large.
pub(super) fn read(root: BorrowedFd<'_>, path: &Below, cap: u64) -> Result<Option<Vec<u8>>> {
    Ok(open(root, path, cap)?.map(|(bytes, _)| bytes))
}

fn open(root: BorrowedFd<'_>, path: &Below, cap: u64) -> Result<Option<(Vec<u8>, Timespec)>> {
    let failed = |e| Error::at("reading", &path.under(Path::new("")), e);
    match tree::find(root, path).map_err(failed)? {
        FoundFile::File { size, .. } if size > cap => {
            Err(words(&format!("{path} has {size} bytes, which is too much")))
        }
        FoundFile::File { file, .. } => {
            let found = file.metadata().map_err(failed)?;
            let mut bytes = Vec::new();
            file.take(cap).read_to_end(&mut bytes).map_err(failed)?;
            Ok(Some((bytes, Timespec { tv_sec: found.mtime(), tv_nsec: found.mtime_nsec() })))
        }
        _ => Ok(None),
    }
}

/// The refs of a list with an object id and a name in each line.
pub(super) fn packed(text: &[u8]) -> Refs {
    let mut refs = Refs::new();
    for line in text.split(|byte| *byte == b'\n') {
        if let Some((oid, name)) = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '))
            && let Some(oid) = Oid::parse(oid)
            && is_ref(name)
        {
            refs.insert(name.to_owned(), oid);
        }
    }
    refs
}
