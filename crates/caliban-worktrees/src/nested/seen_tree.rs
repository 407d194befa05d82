//! The directories of a tree as they were at the last look, in about 30 bytes each.
//!
//! They stand in the order of the walk: each before what is below it, so that a directory's children are found by skipping.

use std::{
    collections::HashMap,
    ffi::OsStr,
    hash::{BuildHasher as _, RandomState},
    os::unix::ffi::OsStrExt as _,
};

use caliban_rooted::Identity;

/// The fingerprint of a directory that changed so lately that its time of change says nothing.
const UNSETTLED: u64 = 0;

/// A walk through a tree.
#[derive(Debug, Default)]
pub(super) struct SeenTree {
    nodes: Vec<SeenDirectory>,
    names: Vec<u8>,
}

#[derive(Debug)]
struct SeenDirectory {
    fingerprint: u64,
    /// Where its name begins in `names`; it ends where the next one's begins.
    name: u32,
    /// Number of directories below it.
    below: u32,
}

/// Makes fingerprints that nobody can foresee.
#[derive(Debug, Default)]
pub(super) struct Fingerprints(RandomState);

impl Fingerprints {
    /// That of a directory that changed last at this time.
    pub(super) fn of(&self, identity: Identity, changed: (i64, i64)) -> u64 {
        self.0.hash_one((identity, changed)).max(UNSETTLED + 1)
    }
}

impl SeenTree {
    /// Adds a directory that has just been looked at. Everything until [`Self::close`] is below it. `None` when there are too many.
    pub(super) fn open(&mut self, name: &OsStr, fingerprint: Option<u64>) -> Option<usize> {
        let at = self.nodes.len();
        let start = u32::try_from(self.names.len()).ok()?;
        self.names.extend_from_slice(name.as_bytes());
        let fingerprint = fingerprint.unwrap_or(UNSETTLED);
        self.nodes.push(SeenDirectory { fingerprint, name: start, below: 0 });
        Some(at)
    }

    /// The walk has left a directory.
    pub(super) fn close(&mut self, at: usize) {
        let below = u32::try_from(self.nodes.len().saturating_sub(at + 1)).unwrap_or_default();
        if let Some(node) = self.nodes.get_mut(at) {
            node.below = below;
        }
    }

    /// The walk is over.
    pub(super) fn finish(&mut self) {
        self.nodes.shrink_to_fit();
        self.names.shrink_to_fit();
    }

    /// Whether a directory is as it was.
    pub(super) fn is_same(&self, at: usize, fingerprint: u64) -> bool {
        self.nodes.get(at).is_some_and(|node| node.fingerprint == fingerprint)
    }

    /// The directories directly in one.
    pub(super) fn children(&self, at: usize) -> impl Iterator<Item = (usize, &OsStr)> {
        let end = self.nodes.get(at).map_or(at, |node| at + node.below as usize);
        let mut next = at + 1;
        std::iter::from_fn(move || {
            let child = (next <= end).then_some(next)?;
            next += 1 + self.nodes.get(child)?.below as usize;
            Some((child, self.name(child)))
        })
    }

    /// The same, by their names.
    pub(super) fn children_by_name(&self, at: Option<usize>) -> HashMap<&OsStr, usize> {
        let children = at.into_iter().flat_map(|at| self.children(at));
        children.map(|(child, name)| (name, child)).collect()
    }

    fn name(&self, at: usize) -> &OsStr {
        let start = |at: usize| self.nodes.get(at).map_or(self.names.len(), |node| node.name as usize);
        OsStr::from_bytes(self.names.get(start(at)..start(at + 1)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_found_by_skipping_what_is_below_them() {
        let mut tree = SeenTree::default();
        // top/{a/{b, c}, d}
        let mut open = |name: &str, print| tree.open(OsStr::new(name), print).unwrap();
        let (top, a, b) = (open("", Some(1)), open("a", Some(2)), open("b", Some(3)));
        tree.close(b);
        let c = tree.open(OsStr::new("c"), None).unwrap();
        tree.close(c);
        tree.close(a);
        let d = tree.open(OsStr::new("d"), Some(5)).unwrap();
        tree.close(d);
        tree.close(top);
        tree.finish();
        let named = |at| tree.children(at).map(|(at, name)| (at, name.to_owned())).collect::<Vec<_>>();
        assert_eq!(named(top), [(a, "a".into()), (d, "d".into())]);
        assert_eq!(named(a), [(b, "b".into()), (c, "c".into())]);
        assert_eq!((named(b), named(d)), (Vec::new(), Vec::new()));
        assert_eq!(tree.children_by_name(Some(top)).get(OsStr::new("d")), Some(&d));
        assert!(tree.is_same(a, 2) && !tree.is_same(a, 3) && !tree.is_same(9, 1));
        let here = Identity::of(std::fs::File::open(".").unwrap()).unwrap();
        assert!(!tree.is_same(c, Fingerprints::default().of(here, (0, 0))));
    }
}
