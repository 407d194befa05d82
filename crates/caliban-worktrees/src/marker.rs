//! `caliban.json` in a worktree's administrative directory: what says that the worktree is ours, and what
//! it was made from. An agent may be able to write it, so nothing in it is a path that is deleted, and its
//! object id is checked before it becomes an argument.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use caliban_core::names::Slug;
use caliban_rooted::{
    Below,
    tree::{self, WriteUntil},
};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The file's name in `.git/worktrees/<id>/`.
pub(crate) const FILE: &str = "caliban.json";
/// The largest marker that is read; `.worktreeinclude` lists live in it.
const SIZE_CAP: u64 = 4 * 1024 * 1024;

/// A full object id in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Takes 40 or 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        (hex && matches!(text.len(), 40 | 64)).then(|| Self(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first ten digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..10]
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.bytes().all(|b| b == b'0')
    }
}

impl TryFrom<String> for Oid {
    type Error = String;
    fn try_from(text: String) -> std::result::Result<Self, String> {
        Self::parse(&text).ok_or_else(|| format!("not an object id: {}", text.escape_debug()))
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> Self {
        oid.0
    }
}

impl std::fmt::Display for Oid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far the making of a worktree came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Making {
    /// Not to its end: nobody has worked in it, and what is missing in it was never there.
    Begun,
    /// It is whole, and somebody may have worked in it.
    #[default]
    Finished,
}

/// What is recorded about a worktree when it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Its name.
    pub name: Slug,
    /// The commit it was based on.
    pub base: Oid,
    /// When, in seconds since 1970.
    pub created: u64,
    /// Who asked for it: an agent's id, a session's id.
    pub owner: Option<String>,
    /// A path that exists for as long as somebody counts on the worktree, such as an agent's directory.
    #[serde(default)]
    pub holder: Option<PathBuf>,
    /// Whether all of it was made.
    #[serde(default)]
    pub making: Making,
    /// Whether somebody decided that it stays: then only a removal by name takes it.
    #[serde(default)]
    pub kept: bool,
    /// The rescues of that name which were there when it was made: nothing of it is in them.
    #[serde(default)]
    pub rescues: Vec<Oid>,
    /// The working tree it was made from: links and included files come from there.
    pub source: Option<PathBuf>,
    /// Linked directories, relative to the root.
    pub links: Vec<PathBuf>,
    /// The lines of the repository's own exclude file when it was made: what came later may be an agent's.
    #[serde(default)]
    pub excludes: Vec<String>,
    /// Files copied in through `.worktreeinclude`, relative to the root.
    pub included: Vec<PathBuf>,
}

impl Marker {
    /// Reads the marker of an administrative directory; none, or one that makes no sense, is `None`.
    pub(crate) fn read(admin: &Path) -> Option<Self> {
        serde_json::from_slice(&tree::read_small(&admin.join(FILE), SIZE_CAP).ok()?).ok()
    }

    /// Refuses a worktree whose making was cut short: what is missing in it is nobody's deletion.
    pub(crate) fn finished(&self) -> Result<()> {
        match self.making {
            Making::Finished => Ok(()),
            Making::Begun => Err(Error::Unfinished(self.name.as_str().to_owned())),
        }
    }

    /// Whether somebody counts on the worktree, at work in it or not.
    pub(crate) fn is_held(&self) -> bool {
        // What cannot be looked at may well be there.
        self.holder.as_ref().is_some_and(|path| path.try_exists().unwrap_or(true))
    }

    /// Writes it whole or not at all. One that says that the worktree is finished is on the disk afterwards: what an
    /// agent does in it must never be taken for a making that was cut short. The others are not synced: a worktree
    /// whose marker a power cut took is never touched.
    pub(crate) fn write(&self, admin: &Path) -> Result<()> {
        let durability = match self.making {
            Making::Begun => WriteUntil::Visible,
            Making::Finished => WriteUntil::OnDisk,
        };
        serde_json::to_vec(self)
            .map_err(std::io::Error::other)
            .and_then(|bytes| tree::write_whole(admin, &Below::fixed(FILE), &bytes, durability))
            .map_err(|e| Error::at("writing", &admin.join(FILE), e))
    }

    /// Writes it over what is there, which needs no room on the disk. Only where it is no longer than that.
    pub(crate) fn overwrite(&self, admin: &Path) -> Result<()> {
        let path = admin.join(FILE);
        let write = || {
            let mut bytes = serde_json::to_vec(self)?;
            // An agent may have put a link there.
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(rustix::fs::open(&path, flags, Mode::empty())?);
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(0);
            if bytes.len() > length {
                return Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
            }
            bytes.resize(length, b' ');
            file.write_all_at(&bytes, 0)?;
            file.sync_all()
        };
        write().map_err(|e| Error::at("writing", &path, e))
    }
}
