//! Whether git keeps a path: in the index, or at the tip of a ref.

use std::collections::{BTreeMap, BTreeSet};
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
/// The largest HEAD.
const HEAD_BYTES: u64 = 4 << 10;
/// What is asked about each ref.
const TIPS: &str = "--format=%(objecttype) %(objectname) %(tree) %(*objecttype) %(*objectname) %(*tree)";

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

    /// Whether a path of which `about` says so is in the index of one of these git directories, at its HEAD or at the tip of a ref.
    /// `known` has what was found out about trees. What cannot be found out is a yes.
    pub fn keeps(
        &self,
        git_dirs: &[PathBuf],
        known: &mut BTreeMap<String, bool>,
        about: &dyn Fn(&Path) -> bool,
    ) -> bool {
        git_dirs.iter().any(|git| index_keeps(&git.join("index"), about))
            || self.keeps_at_tips(git_dirs, known, about).unwrap_or(true)
    }

    fn keeps_at_tips(
        &self,
        git_dirs: &[PathBuf],
        known: &mut BTreeMap<String, bool>,
        about: &dyn Fn(&Path) -> bool,
    ) -> Result<bool> {
        let call = self.git.hardened(self.store(), "for-each-ref");
        let listed = call.arg(TIPS).ok_blocking()?;
        let listed = String::from_utf8_lossy(&listed.stdout);
        let Some(mut trees) = listed.lines().map(tree_at_tip).collect::<Option<BTreeSet<String>>>() else {
            return Ok(true);
        };
        // What a worktree without a branch stands on is at the tip of no ref.
        let detached = git_dirs.iter().filter_map(|git| {
            let head = caliban_rooted::tree::read_small(&git.join("HEAD"), HEAD_BYTES).ok()?;
            Some(Oid::parse(std::str::from_utf8(&head).ok()?.trim())?.to_string())
        });
        for head in ["HEAD".to_owned()].into_iter().chain(detached) {
            let call = self.git.hardened(self.store(), "rev-parse").args(["--verify", "--quiet"]);
            let found = call.arg(format!("{head}^{{tree}}")).run_blocking()?;
            trees.extend(String::from_utf8_lossy(&found.stdout).split_whitespace().map(str::to_owned));
        }
        if trees.len() > TREES {
            return Ok(true);
        }
        for tree in trees {
            let tree = Oid::parse(&tree).ok_or_else(|| Error::PrivateGit("not an object id".to_owned()))?;
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

/// Whether a path of which `about` says so is in an index file. What cannot be found out is a yes.
pub fn index_keeps(index: &Path, about: &dyn Fn(&Path) -> bool) -> bool {
    match caliban_rooted::tree::read_small(index, INDEX_BYTES) {
        Ok(bytes) => indexed(&bytes).is_none_or(|paths| paths.iter().any(|path| about(path))),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// The tree at a ref, by a line about it. None when it has no paths: a file for itself may be any.
fn tree_at_tip(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [kind, name, tree, at_tag @ ..] = fields.as_slice() else { return None };
    let (kind, name, tree) = match (*kind, at_tag) {
        ("tag", [kind, name, tree]) => (*kind, *name, *tree),
        ("tag", _) => return None,
        _ => (*kind, *name, *tree),
    };
    match kind {
        "commit" => Some(tree.to_owned()),
        "tree" => Some(name.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a18_a_ref_leads_to_a_tree_or_nobody_knows() {
        let at = |line: &str| tree_at_tip(line).unwrap_or_else(|| "?".to_owned());
        assert_eq!(at("commit c t   "), "t");
        assert_eq!(at("tree t    "), "t");
        assert_eq!(at("tag x  commit c t"), "t");
        assert_eq!(at("tag x  tree t "), "t");
        for unknown in ["blob b    ", "tag x  blob b ", "tag x  tag y ", ""] {
            assert_eq!(at(unknown), "?", "{unknown}");
        }
    }
}
