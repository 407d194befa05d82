//! A store for one call: it has the objects of the repository and none of its refs or configuration, and what is written
//! into it goes with it.

use std::path::{Path, PathBuf};

use caliban_rooted::{
    Below,
    tree::{self, nonce_name},
};

use crate::error::{Error, Result};
use crate::git::{GitPlace, StoreFormat};
use crate::repo::Repo;

/// How the names of these stores begin.
pub(crate) const PREFIX: &str = "caliban-look";

/// A bare repository with the objects of another behind it, deleted when dropped.
pub(crate) struct OneCallStore {
    path: PathBuf,
}

impl OneCallStore {
    pub(crate) fn new(repo: &Repo) -> Result<Self> {
        let path = repo.common_dir().join(nonce_name(PREFIX));
        let make = || -> std::io::Result<()> {
            std::fs::create_dir(&path)?;
            std::fs::create_dir_all(path.join("objects/info"))?;
            std::fs::create_dir_all(path.join("refs/heads"))?;
            std::fs::write(path.join("HEAD"), "ref: refs/heads/none\n")?;
            let format = StoreFormat { is_bare: true, ..repo.git.format.clone() };
            std::fs::write(path.join("config"), format.config(false))?;
            let objects = repo.common_dir().join("objects");
            let mut line = objects.as_os_str().as_encoded_bytes().to_vec();
            line.push(b'\n');
            std::fs::write(path.join("objects/info/alternates"), line)
        };
        let made = make().map_err(|e| Error::at("making", &path, e));
        // Made before the check, so that half a store goes too.
        let store = Self { path };
        made.map(|()| store)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn place(&self) -> GitPlace<'_> {
        GitPlace::Own { store: &self.path, files: None }
    }

    /// The same as if it were the store of these files.
    pub(crate) fn place_of<'a>(&'a self, files: &'a Path) -> GitPlace<'a> {
        GitPlace::Own { store: &self.path, files: Some(files) }
    }
}

impl Drop for OneCallStore {
    fn drop(&mut self) {
        if let (Some(parent), Some(name)) = (self.path.parent(), self.path.file_name())
            && let Ok(parent) = tree::open_dir(parent)
        {
            // Best effort by name: what stays is a directory that git ignores.
            let _tried = Below::new(name).and_then(|name| tree::delete(&parent, &name));
        }
    }
}
