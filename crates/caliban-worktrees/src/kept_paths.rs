//! Whether git keeps a path: in the index, or at the tip of a ref.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::marker::Oid;
use crate::private_view::indexed;
use crate::repo::{Repo, split_nul};

/// How many different trees are looked at. Behind more of them nobody knows.
const TREES: usize = 256;
/// The largest index that is read.
const INDEX_BYTES: u64 = 256 << 20;

/// A file of git's, and when it changed.
pub type FileState = (PathBuf, Option<(u64, i64, i64)>);

impl Repo {
    /// The state of the index and the refs, of these git directories and of the store: while it is the same, git keeps the same.
    pub fn state_of_refs(&self, git_dirs: &[PathBuf]) -> Vec<FileState> {
        let places = git_dirs.iter().map(PathBuf::as_path).chain([self.common_dir()]);
        let mut open: Vec<PathBuf> = places
            .flat_map(|place| {
                ["index", "HEAD", "packed-refs", "refs", "reftable"].map(|name| place.join(name))
            })
            .collect();
        let mut states = Vec::new();
        while let Some(path) = open.pop() {
            let found = path.symlink_metadata();
            if found.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
                open.extend(path.read_dir().into_iter().flatten().flatten().map(|entry| entry.path()));
            }
            let state = found.ok().map(|found| (found.ino(), found.ctime(), found.ctime_nsec()));
            states.push((path, state));
        }
        states
    }

    /// Whether a path of which `about` says so is in one of these index files or at the tip of a ref. `known` has what was found
    /// out about trees. What cannot be found out is a yes.
    pub fn keeps(
        &self,
        indexes: &[&Path],
        known: &mut BTreeMap<String, bool>,
        about: &dyn Fn(&Path) -> bool,
    ) -> bool {
        let in_index = |path: &&Path| match caliban_rooted::tree::read_small(path, INDEX_BYTES) {
            Ok(bytes) => indexed(&bytes).is_none_or(|paths| paths.iter().any(|path| about(path))),
            Err(error) => error.kind() != std::io::ErrorKind::NotFound,
        };
        indexes.iter().any(in_index) || self.keeps_at_tips(known, about).unwrap_or(true)
    }

    fn keeps_at_tips(
        &self,
        known: &mut BTreeMap<String, bool>,
        about: &dyn Fn(&Path) -> bool,
    ) -> Result<bool> {
        let call = self.git.hardened(self.store(), "for-each-ref");
        let listed = call.arg("--format=%(tree) %(*tree)").ok_blocking()?;
        let head = self
            .git
            .hardened(self.store(), "rev-parse")
            .args(["--verify", "--quiet", "HEAD^{tree}"])
            .run_blocking()?;
        let text = [listed.stdout, head.stdout].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let trees: std::collections::BTreeSet<&str> = text.split_whitespace().collect();
        if trees.len() > TREES {
            return Ok(true);
        }
        for tree in trees {
            let tree = Oid::parse(tree).ok_or_else(|| Error::PrivateGit("not an object id".to_owned()))?;
            let key = tree.to_string();
            if !known.contains_key(&key) {
                let call = self.git.hardened(self.store(), "ls-tree").args([
                    "-r",
                    "-z",
                    "--name-only",
                    "--full-tree",
                ]);
                let names = call.arg(&key).ok_blocking()?;
                let keeps = split_nul(&names.stdout).any(|name| about(Path::new(OsStr::from_bytes(name))));
                known.insert(key.clone(), keeps);
            }
            if known.get(&key) == Some(&true) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
