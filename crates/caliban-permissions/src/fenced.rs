//! What a fence has to hide and to hold for a policy: files that rules are about, and protected places.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::FileType,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use caliban_core::access::Access;

use crate::{
    policy::{Judge, Policy, SourcedRule},
    protected::protected_in,
    rule::Covers,
};

/// How many names are looked at. Behind more of them a rule could not be held.
pub(crate) const MOST: usize = 100_000;

/// What a fence has to do for the rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FenceDuties {
    /// Files and directories whose content must not be there.
    pub masks: Vec<PathBuf>,
    /// Files and directories that must not change.
    pub fixed: Vec<PathBuf>,
    /// Protected places that are not there, or only as a link, and must not be made.
    pub absent: Vec<PathBuf>,
}

impl Policy {
    /// What holds for a command in this directory. An error, in words, when it cannot be found out.
    pub fn held(&self, cwd: &Path) -> Result<FenceDuties, String> {
        let judge = Judge::new(self);
        let mut held = FenceDuties::default();
        for directory in self.watched(cwd) {
            for place in protected_in(&directory) {
                let allowed = self.decide("Write", &[Access::Write(place.clone())]).is_allowed();
                match place.symlink_metadata() {
                    _ if allowed => {}
                    Ok(found) if !found.is_symlink() => held.fixed.push(place),
                    Ok(_) | Err(_) => held.absent.push(place),
                }
            }
        }
        let (reads, edits) = (judge.about_files(Covers::is_read), judge.about_files(Covers::is_edit));
        if reads.is_empty() && edits.is_empty() {
            return Ok(held);
        }
        let starts = starts(self, reads.iter().chain(&edits));
        let is_about =
            |rules: &[&SourcedRule], path: &Path| rules.iter().any(|rule| judge.matches(&rule.rule, path));
        let too_many = |TooMany| {
            format!(
                "there are more than {MOST} files, and Read and Edit rules could not be held for all of them"
            )
        };
        let mut linked = BTreeSet::new();
        walk(&starts, |path, kind| {
            if is_about(&reads, path) {
                if let Some(found) = kind.is_file().then(|| path.metadata().ok()).flatten()
                    && found.nlink() > 1
                {
                    linked.insert((found.dev(), found.ino()));
                }
                held.masks.push(path.to_owned());
                return Deeper::No;
            }
            if is_about(&edits, path) {
                held.fixed.push(path.to_owned());
            }
            Deeper::Yes
        })
        .map_err(too_many)?;
        if !linked.is_empty() {
            // The same file by another name.
            walk(&starts, |path, kind| {
                let same = |found: std::fs::Metadata| linked.contains(&(found.dev(), found.ino()));
                if kind.is_file() && path.metadata().is_ok_and(same) {
                    held.masks.push(path.to_owned());
                }
                Deeper::Yes
            })
            .map_err(too_many)?;
            held.masks.sort();
            held.masks.dedup();
        }
        Ok(held)
    }

    /// Where protected places are looked for: the directories between the tops of the work and the working directory.
    fn watched(&self, cwd: &Path) -> Vec<PathBuf> {
        let own = self.worktree.as_ref().unwrap_or(&self.root);
        let mut watched = Vec::new();
        for top in [own].into_iter().chain(&self.extra_dirs) {
            watched.push(top.clone());
            let below = cwd.ancestors().take_while(|place| place.starts_with(top) && place != top);
            watched.extend(below.map(Path::to_owned));
        }
        watched
    }
}

/// The trees in which files can be that the rules are about.
fn starts<'a>(policy: &Policy, rules: impl Iterator<Item = &'a &'a SourcedRule>) -> Vec<PathBuf> {
    let places = [&policy.root].into_iter().chain(&policy.worktree).chain(&policy.extra_dirs);
    let mut starts: Vec<PathBuf> = places.chain(&policy.read_dirs).cloned().collect();
    for rule in rules {
        let (Covers::Read(pattern) | Covers::Edit(pattern)) = &rule.rule.covers else { continue };
        let fixed = match pattern.literal.strip_prefix("~/") {
            Some(below) => policy.home.join(below),
            None if pattern.literal.starts_with('/') => PathBuf::from(&pattern.literal),
            None => continue,
        };
        // Up to the last whole name.
        let start = if fixed.exists() { Some(fixed.as_path()) } else { fixed.parent() };
        starts.extend(start.filter(|start| start.parent().is_some()).map(Path::to_owned));
    }
    let all = starts.clone();
    starts.retain(|start| !all.iter().any(|other| start != other && start.starts_with(other)));
    starts.sort();
    starts.dedup();
    starts
}

/// Whether a walk goes on below a directory.
#[derive(PartialEq, Eq)]
pub(crate) enum Deeper {
    Yes,
    No,
    /// Nowhere.
    Stop,
}

/// There are more names than [`MOST`].
pub(crate) struct TooMany;

/// Looks at these places and at all that is in them, but for what is in git's.
pub(crate) fn walk(
    starts: &[PathBuf],
    mut look: impl FnMut(&Path, FileType) -> Deeper,
) -> Result<(), TooMany> {
    let mut seen = 0;
    let mut open = Vec::new();
    let found =
        starts.iter().filter_map(|start| Some((start.clone(), start.symlink_metadata().ok()?.file_type())));
    let mut next: Vec<(PathBuf, FileType)> = found.collect();
    loop {
        for (path, kind) in next {
            let is_gits = path.file_name() == Some(OsStr::new(".git")) && !starts.contains(&path);
            match look(&path, kind) {
                Deeper::Yes if kind.is_dir() && !is_gits => open.push(path),
                Deeper::Yes | Deeper::No => {}
                Deeper::Stop => return Ok(()),
            }
        }
        let Some(directory) = open.pop() else { return Ok(()) };
        let entries = directory.read_dir().into_iter().flatten().flatten();
        next = entries
            .filter_map(|entry| Some((entry.path(), entry.file_type().ok()?)))
            .take(MOST + 1)
            .collect();
        seen += next.len();
        if seen > MOST {
            return Err(TooMany);
        }
    }
}
