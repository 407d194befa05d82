//! Links in the git directories of a tree: git writes through them. With `logs/HEAD` as a link to a shell's profile, the next commit of
//! the user writes a line of its author's choice there. So those that were not there before a command are taken away after it.

use std::ffi::{OsStr, OsString};

use caliban_rooted::{Below, ByteText, FileType, FoundEntry};
use serde::{Deserialize, Serialize};

use super::{NestedRepos, RECORDS};

/// Directories of a git directory in which git writes files by their names.
const WRITTEN: [&str; 8] =
    ["refs", "logs", "info", OBJECTS, RECORDS, "rebase-merge", "rebase-apply", "sequencer"];
/// That one of them in which most names are made of content.
const OBJECTS: &str = "objects";
/// What in it has other names.
const NAMED_OBJECTS: [&str; 2] = ["info", "pack"];

/// A link, and what it says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GitLink(Below, ByteText);

/// Where in a git directory something is.
pub(super) struct PartOfGit {
    /// The parts of its name there.
    within: Vec<OsString>,
    /// Whether that is the `.git` of a directory.
    is_dot_git: bool,
}

impl PartOfGit {
    fn first(&self) -> Option<&OsStr> {
        self.within.first().map(OsString::as_os_str)
    }

    /// Whether there is nothing but git's own files.
    pub(super) fn is_only_gits(&self) -> bool {
        self.is_dot_git && self.first().is_none_or(|first| !first.eq_ignore_ascii_case(RECORDS))
    }

    /// Whether a directory in it is looked into when there are only git's own.
    pub(super) fn is_looked_into(&self, entry: &OsStr) -> bool {
        let is_one_of = |names: &[&str]| names.iter().any(|name| entry.eq_ignore_ascii_case(name));
        match self.within.as_slice() {
            [] => is_one_of(&WRITTEN),
            [first] if first.eq_ignore_ascii_case(OBJECTS) => is_one_of(&NAMED_OBJECTS),
            _ => true,
        }
    }

    /// Whether git writes there.
    pub(super) fn is_written(&self) -> bool {
        self.first().is_none_or(|first| WRITTEN.iter().any(|name| first.eq_ignore_ascii_case(name)))
    }
}

/// The links in a directory.
pub(super) fn among(name: &Below, entries: &[(OsString, FileType)]) -> std::io::Result<Vec<Below>> {
    entries.iter().filter(|(_, kind)| *kind == FileType::Symlink).map(|(entry, _)| name.join(entry)).collect()
}

impl NestedRepos {
    /// Where it is in the innermost git directory that the walk has come to on the way.
    pub(super) fn part_of_git(&self, name: &Below) -> Option<PartOfGit> {
        let mut within = Vec::new();
        let mut at = name.clone();
        loop {
            let has = |place: &Below| self.gits.get(place).is_some_and(|gits| gits.contains(&at));
            let above = at.split().map(|(above, last)| (above, last.to_owned()));
            let is_dot_git = above.as_ref().is_some_and(|(above, _)| has(above));
            if is_dot_git || has(&at) {
                within.reverse();
                return Some(PartOfGit { within, is_dot_git });
            }
            let (above, last) = above?;
            within.push(last);
            at = above;
        }
    }

    /// The links that the last look found.
    pub(super) fn found_links(&self) -> std::collections::BTreeSet<GitLink> {
        let link = |name: &Below| match self.root.look(name) {
            Ok(FoundEntry::Link { at, to }) if at == *name => {
                Some(GitLink(at, std::path::Path::new(&to).into()))
            }
            _ => None,
        };
        self.links.values().flatten().filter_map(link).collect()
    }

    /// Takes away those that were not there before: by another name, git would still write through some of them. A line for each.
    pub(super) fn take_new_links(&self) -> Vec<String> {
        let found = self.found_links();
        let take = |GitLink(name, to): &GitLink| {
            let shown = name.under(self.root.path());
            let (shown, to) = (shown.display(), to.path().display());
            match self.root.remove_link(name) {
                Ok(()) => {
                    format!("[{shown} was a new link to {to}, where git would have written: it is removed]")
                }
                Err(error) => {
                    format!("[{shown} is a new link to {to}, where git would write, and it stays: {error}]")
                }
            }
        };
        found.difference(&self.known.links).map(take).collect()
    }
}
