//! What a fence has to hide and to hold for a policy: files that rules are about, and protected places.

use std::{
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
};

use caliban_core::access::Access;
use caliban_rooted::{Below, FileType, FoundEntry, JudgedPlace, Root, RootsError};

use crate::{
    policy::{Effect, Judge, Policy, SourcedRule},
    protected::PROTECTED,
    rule::Covers,
};

/// How many names are looked at. Behind more of them a rule could not be held.
pub(crate) const MOST: usize = 100_000;
/// How often files are looked for that are moved meanwhile.
const TRIES: usize = 3;

/// What a fence has to do for the rules.
#[derive(Debug, Clone, Default)]
pub struct FenceDuties {
    /// Files and directories whose content must not be there.
    pub masks: Vec<JudgedPlace>,
    /// Files and directories that must not change.
    pub fixed: Vec<JudgedPlace>,
    /// Protected places that are not there, or only as a link, and must not be made.
    pub absent: Vec<AbsentPlace>,
    /// Where files are kept from being read: directories that have a `.git`, or are repositories by themselves. Objects there may hold
    /// what is masked.
    pub repositories: Vec<PathBuf>,
}

/// A protected place that is not there, or where there is a link on the way.
#[derive(Debug, Clone)]
pub struct AbsentPlace {
    /// The directory that it is beneath.
    pub root: Arc<Root>,
    /// Its name there.
    pub name: Below,
    /// The part of the name that is a link, and what the link says.
    pub link: Option<(Below, OsString)>,
}

/// Whether a command finds what links lead to that leave the directories of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinksOut {
    /// In a fence that shows those directories.
    AreNotThere,
    /// In one that shows everything.
    AreFollowed,
}

impl Policy {
    /// What holds for a command in this directory. An error, in words, when it cannot be found out.
    pub fn held(&self, cwd: &Path) -> Result<FenceDuties, String> {
        let mut held = self.held_by_rules(LinksOut::AreNotThere)?;
        for (root, directory) in self.watched(cwd).map_err(|error| error.to_string())? {
            for protected in PROTECTED {
                let name = directory.join(protected).map_err(|error| error.to_string())?;
                let path = name.under(root.path());
                if self.decide("Write", &[Access::Write(path.clone())]).is_allowed() {
                    continue;
                }
                match root.look(&name).map_err(|error| format!("{}: {error}", path.display()))? {
                    FoundEntry::Nothing => {
                        held.absent.push(AbsentPlace { root: root.clone(), name, link: None })
                    }
                    FoundEntry::Link { at, to } => {
                        // What it leads to in the same tree is what is run or trusted later.
                        held.fixed.extend(
                            self.roots.judge(&path).filter(|place| place.path.starts_with(root.path())),
                        );
                        held.absent.push(AbsentPlace { root: root.clone(), name, link: Some((at, to)) });
                    }
                    FoundEntry::Directory(identity)
                    | FoundEntry::File { identity, .. }
                    | FoundEntry::Special(identity) => {
                        held.fixed.push(JudgedPlace { path, identity });
                    }
                }
            }
        }
        Ok(held)
    }

    /// Whether a rule keeps this path from being read.
    pub fn hides(&self, path: &Path) -> bool {
        let judge = Judge::new(self);
        judge.about_files(Covers::is_read).iter().any(|rule| judge.matches(&rule.rule, path))
    }

    /// Whether rules keep files from being read.
    pub fn hides_files(&self) -> bool {
        self.rules.iter().any(|rule| rule.effect != Effect::Allow && rule.rule.covers.is_read())
    }

    /// What rules about files hold in every fence. An error, in words, when it cannot be found out.
    pub fn held_by_rules(&self, links_out: LinksOut) -> Result<FenceDuties, String> {
        for _ in 0..TRIES {
            match self.seen_by_rules(links_out) {
                Ok(held) => return Ok(held),
                Err(WalkError::Changed) => {}
                Err(WalkError::TooMany) => {
                    return Err(format!(
                        "there are more than {MOST} files, and Read and Edit rules could not be held for all of them"
                    ));
                }
                Err(WalkError::Closed(path)) => {
                    return Err(format!(
                        "nobody may look into {0}, and Read and Edit rules could not be held there (hint: chmod u+rwx {0})",
                        path.display()
                    ));
                }
            }
        }
        Err("files that rules are about are moved while they are looked for (hint: end what moves them)"
            .to_owned())
    }

    fn seen_by_rules(&self, links_out: LinksOut) -> Result<FenceDuties, WalkError> {
        let judge = Judge::new(self);
        let mut held = FenceDuties::default();
        let (reads, edits) = (judge.about_files(Covers::is_read), judge.about_files(Covers::is_edit));
        if reads.is_empty() && edits.is_empty() {
            return Ok(held);
        }
        let starts = starts(self, reads.iter().chain(&edits));
        let is_about =
            |rules: &[&SourcedRule], path: &Path| rules.iter().any(|rule| judge.matches(&rule.rule, path));
        let mut linked = BTreeSet::new();
        let mut is_lost = false;
        walk(&starts, |found| {
            let path = found.path();
            // Whoever owns a closed directory can open it in a fence, too: nothing of it is there.
            if !reads.is_empty() && found.is_of_git() {
                held.repositories.extend(path.parent().map(Path::to_owned));
            }
            let hidden = is_about(&reads, &path) || (found.is_closed && !reads.is_empty());
            let fixed = is_about(&edits, &path) || (found.is_closed && !edits.is_empty());
            if !hidden && !fixed {
                return Deeper::Yes;
            }
            let place = match found.look() {
                Ok(FoundEntry::Nothing) | Err(_) => {
                    is_lost = true;
                    return Deeper::Stop;
                }
                Ok(FoundEntry::Link { .. }) => match links_out {
                    LinksOut::AreNotThere => self.roots.judge(&path),
                    LinksOut::AreFollowed => Root::pin(&path)
                        .ok()
                        .map(|end| JudgedPlace { path: end.path().to_owned(), identity: end.identity() }),
                },
                Ok(look) => {
                    if let (true, FoundEntry::File { identity, links: 2.. }) = (hidden, &look) {
                        linked.insert(*identity);
                    }
                    look.identity().map(|identity| JudgedPlace { path, identity })
                }
            };
            if hidden {
                held.masks.extend(place);
                return Deeper::No;
            }
            held.fixed.extend(place);
            Deeper::Yes
        })?;
        if is_lost {
            return Err(WalkError::Changed);
        }
        if !linked.is_empty() {
            // The same file by another name.
            walk(&starts, |found| {
                if found.kind == FileType::RegularFile
                    && let Some(identity) = found.look().ok().and_then(|look| look.identity())
                    && linked.contains(&identity)
                {
                    held.masks.push(JudgedPlace { path: found.path(), identity });
                }
                Deeper::Yes
            })?;
        }
        held.masks.sort();
        held.masks.dedup();
        Ok(held)
    }

    /// Where protected places are looked for: the directories between the tops of the work and the working directory.
    fn watched(&self, cwd: &Path) -> Result<Vec<(Arc<Root>, Below)>, RootsError> {
        let own = self.worktree.as_ref().unwrap_or(&self.root);
        let mut watched = vec![];
        for top in [own].into_iter().chain(&self.extra_dirs) {
            if top != own && !self.roots.has(top) && !top.exists() {
                continue;
            }
            let root = self.roots.in_place(top)?;
            let below = root.name_of(cwd).map(|name| name.steps()).unwrap_or_default();
            watched.extend([Below::here()].into_iter().chain(below).map(|name| (root.clone(), name)));
        }
        Ok(watched)
    }
}

/// The trees in which files can be that the rules are about.
fn starts<'a>(policy: &Policy, rules: impl Iterator<Item = &'a &'a SourcedRule>) -> Vec<Arc<Root>> {
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
    let pinned: Vec<Arc<Root>> = starts.iter().filter_map(|start| policy.roots.pin(start).ok()).collect();
    let is_outer = |root: &Arc<Root>| {
        !pinned.iter().any(|other| other.path() != root.path() && root.path().starts_with(other.path()))
    };
    let mut outer: Vec<Arc<Root>> = pinned.iter().filter(|root| is_outer(root)).cloned().collect();
    outer.sort_by(|a, b| a.path().cmp(b.path()));
    outer.dedup_by(|a, b| a.path() == b.path());
    outer
}

/// Whether a walk goes on below a directory.
#[derive(PartialEq, Eq)]
pub(crate) enum Deeper {
    Yes,
    No,
    /// Nowhere.
    Stop,
}

/// Why a walk was not finished.
pub(crate) enum WalkError {
    /// There are more names than [`MOST`].
    TooMany,
    /// A place where the walk begins is ours, and nobody may look into it.
    Closed(PathBuf),
    /// A directory was not there any more when its turn came.
    Changed,
}

/// Something that a walk came to.
pub(crate) struct Found<'a> {
    root: &'a Root,
    name: Below,
    pub(crate) kind: FileType,
    /// Whether it is a directory that nobody may look into: the walk comes to it a second time to say so.
    pub(crate) is_closed: bool,
}

impl Found<'_> {
    /// Where it is.
    pub(crate) fn path(&self) -> PathBuf {
        self.name.under(self.root.path())
    }

    /// Whether the walk began here.
    pub(crate) fn is_start(&self) -> bool {
        self.name.is_here()
    }

    /// Whether the directory around it has a `.git`, or is a repository by itself.
    fn is_of_git(&self) -> bool {
        let Some((around, name)) = self.name.split() else { return false };
        let has = |name: &str| {
            let found = around.join(name).and_then(|name| self.root.look(&name));
            !matches!(found, Ok(FoundEntry::Nothing) | Err(_))
        };
        name.eq_ignore_ascii_case(".git")
            || (name.eq_ignore_ascii_case("HEAD") && has("objects") && has("refs"))
    }

    fn look(&self) -> std::io::Result<FoundEntry> {
        self.root.look(&self.name)
    }
}

/// Looks at these places and at all that is in them, but for what is in git's. No link is followed.
pub(crate) fn walk(
    starts: &[Arc<Root>],
    mut look: impl FnMut(&Found<'_>) -> Deeper,
) -> Result<(), WalkError> {
    let mut seen = 0;
    for root in starts {
        let kind = match root.look(&Below::here()) {
            Ok(FoundEntry::Directory(_)) => FileType::Directory,
            Ok(FoundEntry::File { .. }) => FileType::RegularFile,
            _ => FileType::Unknown,
        };
        let mut open = Vec::new();
        let mut next = vec![Found { root, name: Below::here(), kind, is_closed: false }];
        loop {
            for found in next {
                let is_gits = found.name.split().is_some_and(|(_, name)| name == OsStr::new(".git"));
                match look(&found) {
                    Deeper::Yes if found.kind == FileType::Directory && !is_gits => open.push(found.name),
                    Deeper::Yes | Deeper::No => {}
                    Deeper::Stop => return Ok(()),
                }
            }
            let Some(directory) = open.pop() else { break };
            let entries = match root.entries(&directory) {
                Ok(entries) => entries,
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                    if !directory.is_here() {
                        look(&Found {
                            root,
                            name: directory.clone(),
                            kind: FileType::Directory,
                            is_closed: true,
                        });
                    } else if root.is_ours(&directory).unwrap_or(true) {
                        return Err(WalkError::Closed(root.path().to_owned()));
                    }
                    Vec::new()
                }
                Err(_) => return Err(WalkError::Changed),
            };
            seen += entries.len();
            if seen > MOST {
                return Err(WalkError::TooMany);
            }
            let named = |(name, kind): (OsString, FileType)| {
                Some(Found { root, name: directory.join(name).ok()?, kind, is_closed: false })
            };
            next = entries.into_iter().filter_map(named).collect();
        }
    }
    Ok(())
}
