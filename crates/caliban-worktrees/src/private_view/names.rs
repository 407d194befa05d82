//! What the refs of an agent are called outside. Its own branch is called the same. Everything else that it makes or moves
//! gets a name of its own, so that no ref of the user's changes.

use std::collections::BTreeMap;

use crate::marker::Oid;
use crate::repo::BRANCH_PREFIX;

/// Refs by their full names.
pub(super) type Refs = BTreeMap<String, Oid>;

/// Where every ref of ours is that is no branch.
const OURS: &str = "refs/caliban/";
/// The ref that git keeps the newest stash in.
pub(super) const STASH: &str = "refs/stash";
const HEADS: &str = "refs/heads/";

/// The names of one worktree.
#[derive(Debug, Clone)]
pub(super) struct RefNames {
    name: String,
}

impl RefNames {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The worktree's branch.
    pub(super) fn own(&self) -> String {
        format!("{HEADS}{BRANCH_PREFIX}{}", self.name)
    }

    fn heads(&self) -> String {
        format!("{HEADS}{BRANCH_PREFIX}{}+", self.name)
    }

    fn others(&self) -> String {
        format!("{OURS}refs/{}/", self.name)
    }

    pub(super) fn stash(&self) -> String {
        format!("{OURS}stash/{}/", self.name)
    }

    pub(super) fn conflicts(&self) -> String {
        format!("{OURS}conflict/{}/", self.name)
    }

    /// What a ref of the agent's is called outside, once the agent made or moved it. None for what has another way out.
    pub(super) fn outside(&self, inside: &str) -> Option<String> {
        if inside == self.own() {
            return Some(inside.to_owned());
        }
        if inside == STASH {
            return None;
        }
        match inside.strip_prefix(HEADS) {
            Some(branch) => Some(format!("{}{branch}", self.heads())),
            None => Some(format!("{}{}", self.others(), inside.strip_prefix("refs/")?)),
        }
    }

    /// What a ref of ours is called inside; none for one that is not the agent's.
    pub(super) fn inside(&self, outside: &str) -> Option<String> {
        if outside == self.own() {
            return Some(outside.to_owned());
        }
        match outside.strip_prefix(&self.heads()) {
            Some(branch) => Some(format!("{HEADS}{branch}")),
            None => Some(format!("refs/{}", outside.strip_prefix(&self.others())?)),
        }
    }

    /// What the agent finds of the repository's refs.
    pub(super) fn view(&self, real: &Refs) -> Refs {
        let is_shown =
            |name: &str| name != STASH && !name.starts_with(OURS) && !name.starts_with(&self.heads());
        let mut view: Refs = real
            .iter()
            .filter(|(name, _)| is_shown(name))
            .map(|(name, oid)| (name.clone(), oid.clone()))
            .collect();
        // The agent's own ones cover those of the same name.
        for (name, oid) in real {
            if let Some(inside) = self.inside(name) {
                view.insert(inside, oid.clone());
            }
        }
        view
    }

    /// The refs of ours that hold something of the agent's besides its branch.
    pub(super) fn holds(&self, outside: &str) -> bool {
        [self.heads(), self.others(), self.stash(), self.conflicts()]
            .iter()
            .any(|prefix| outside.starts_with(prefix.as_str()))
    }
}

/// Whether git takes this name for a ref. What it does not take is no ref.
pub(super) fn is_ref(name: &str) -> bool {
    let bad = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.starts_with("refs/")
        && name.split('/').all(is_part)
        && !name.contains(bad)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_out_and_in_again() {
        let names = RefNames::new("a1");
        for (inside, outside) in [
            ("refs/heads/caliban/a1", "refs/heads/caliban/a1"),
            ("refs/heads/feature", "refs/heads/caliban/a1+feature"),
            ("refs/heads/caliban/a10", "refs/heads/caliban/a1+caliban/a10"),
            ("refs/heads/caliban/a1-x", "refs/heads/caliban/a1+caliban/a1-x"),
            ("refs/tags/v1", "refs/caliban/refs/a1/tags/v1"),
            ("refs/notes/commits", "refs/caliban/refs/a1/notes/commits"),
        ] {
            assert_eq!(names.outside(inside).as_deref(), Some(outside));
            assert_eq!(names.inside(outside).as_deref(), Some(inside));
        }
        assert_eq!(names.outside(STASH), None);
        for foreign in ["refs/heads/caliban/a10", "refs/heads/caliban/a10+x", "refs/caliban/refs/a10/tags/v1"]
        {
            assert_eq!(names.inside(foreign), None);
            assert!(!names.holds(foreign));
        }
    }

    #[test]
    fn the_users_stash_and_our_refs_are_hidden() {
        let oid = |digit: &str| Oid::parse(&digit.repeat(40)).unwrap();
        let real: Refs = [
            ("refs/heads/main", "1"),
            ("refs/heads/feature", "2"),
            ("refs/heads/caliban/a1+feature", "3"),
            ("refs/heads/caliban/a10+feature", "4"),
            ("refs/caliban/rescue/x", "5"),
            ("refs/stash", "6"),
        ]
        .map(|(name, digit)| (name.to_owned(), oid(digit)))
        .into();
        let view: Vec<(String, Oid)> = RefNames::new("a1").view(&real).into_iter().collect();
        let expected =
            [("refs/heads/caliban/a10+feature", "4"), ("refs/heads/feature", "3"), ("refs/heads/main", "1")];
        assert_eq!(view, expected.map(|(name, digit)| (name.to_owned(), oid(digit))));
    }

    #[test]
    fn only_refs_are_refs() {
        assert!(is_ref("refs/heads/a-b+c/d.e"));
        for name in
            ["HEAD", "refs/heads/a..b", "refs/heads/a.lock", "refs/heads//a", "refs/heads/.a", "refs/a b"]
        {
            assert!(!is_ref(name), "{name}");
        }
    }
}
