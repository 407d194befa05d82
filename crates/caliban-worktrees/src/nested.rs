//! Repositories in a tree that an agent can write: submodules, clones, bare repositories of tests.
//!
//! Git runs what their configuration and hooks name as soon as somebody stands in them; for a submodule `git status` at the top is
//! enough. So in those that were there before a command that part is held, and of new ones it is put aside.
//!
//! The tree is looked through once, before the first command that can change it, and after each command only where a directory has
//! changed since.

mod links;
mod seen_tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read as _},
    os::unix::fs::PermissionsExt as _,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use caliban_rooted::{Below, FileType, FoundEntry, Identity, JudgedPlace, Root, is_gone};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};

use crate::found_git::{GitFile, common_of, git_file};
use crate::private_view::gitlinks;
pub use links::GitLink;
use seen_tree::{Fingerprints, SeenTree};
use serde::{Deserialize, Serialize};

const GIT: &str = ".git";
/// What in a git directory decides what git runs, or where git looks for that.
const PARTS: [&str; 6] = ["config", "config.worktree", "hooks", "commondir", "gitdir", "modules"];
/// Those of them that the record of a worktree has, too.
const LEADING_PARTS: [&str; 2] = ["commondir", "gitdir"];
/// Where a store has the records of its worktrees.
const RECORDS: &str = "worktrees";
/// Directories of ours at the top of a tree; they are protected as a whole.
const OURS: [&str; 2] = [GIT, ".caliban"];
/// The largest configuration that is read.
const CONFIG_BYTES: u64 = 1 << 20;
/// The largest index that is read.
const INDEX_BYTES: u64 = 256 << 20;
/// The kernel's clock for changes ticks this coarsely: a directory that changed just now is looked at again.
const TICK: Duration = Duration::from_millis(20);
/// What stands in the place of a configuration that was put aside.
const PLAIN: &str = "[core]\n\trepositoryformatversion = 0\n\tlogallrefupdates = true\n";

/// The nested repositories of one tree.
#[derive(Debug)]
pub struct NestedRepos {
    root: Arc<Root>,
    seen: SeenTree,
    fingerprints: Fingerprints,
    /// Git directories and files that the last look found, by the directory that they were found in.
    gits: BTreeMap<Below, Vec<Below>>,
    /// Links in git directories that the last look found, by the directory that they were found in.
    links: BTreeMap<Below, Vec<Below>>,
    /// What was there before.
    known: KnownRepos,
    /// Those that have come since.
    made: Vec<Below>,
    /// Directories that nobody could look into, and that the last look opened up.
    opened: Vec<Below>,
    /// Directories that the last look could not look into, and why.
    unseen: BTreeMap<Below, String>,
}

/// What of git's was in a tree before the commands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRepos {
    /// Git directories and files, each by its name.
    #[serde(rename = "known")]
    pub gits: BTreeSet<Below>,
    /// Links in them that git writes through.
    #[serde(default)]
    pub links: BTreeSet<GitLink>,
}

/// What a directory has that matters here.
#[derive(Debug, Default)]
struct ListedDirectory {
    /// To look into.
    directories: Vec<OsString>,
    /// Git directories or files; itself, when it is one.
    gits: Vec<Below>,
    /// Links, where git writes.
    links: Vec<Below>,
}

/// What a look does with a directory that its owner may not list or search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ClosedDirectories {
    /// Passes over them: they are the user's.
    Pass,
    /// Opens those up that a command has closed or changed since: a repository in there is hidden from looks, and not from git.
    OpenUp,
}

/// A step of the walk.
enum WalkStep {
    /// Into a directory, which is this one of the last walk.
    Enter(Below, Option<usize>),
    Leave(usize),
}

/// What a fence has to hold because of nested repositories.
#[derive(Debug, Default)]
pub struct NestedDuties {
    /// What must not change.
    pub fixed: Vec<JudgedPlace>,
    /// What must not be made, and the link that is there.
    pub absent: Vec<(Below, Option<OsString>)>,
}

impl NestedRepos {
    /// Looks through a tree for the first time: what is there is the user's.
    pub fn new(root: Arc<Root>) -> io::Result<Self> {
        let mut nested = Self::empty(root);
        nested.known.gits = nested.look(ClosedDirectories::Pass)?;
        nested.known.links = nested.found_links();
        Ok(nested)
    }

    /// Looks through a tree in which a command may have been killed: only these were there before it. A line for each of the others
    /// from which something was taken.
    pub fn knowing(root: Arc<Root>, known: KnownRepos) -> io::Result<(Self, Vec<String>)> {
        let mut nested = Self::empty(root);
        nested.known = known;
        let lines = nested.disarm_new()?;
        Ok((nested, lines))
    }

    /// The tree.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// What was there before.
    pub fn known(&self) -> &KnownRepos {
        &self.known
    }

    fn empty(root: Arc<Root>) -> Self {
        Self {
            root,
            seen: SeenTree::default(),
            fingerprints: Fingerprints::default(),
            gits: BTreeMap::new(),
            links: BTreeMap::new(),
            known: KnownRepos::default(),
            made: Vec::new(),
            opened: Vec::new(),
            unseen: BTreeMap::new(),
        }
    }

    /// What a command must not change. `index` is the file of the tree's own index.
    pub fn duties(&self, index: Option<&Root>) -> io::Result<NestedDuties> {
        let mut duties = NestedDuties::default();
        for git in self.known.gits.iter().chain(&self.made) {
            let parts: Vec<Below> = match self.root.look(git)? {
                // A worktree was removed, and another one may be made under its name.
                FoundEntry::Nothing if self.is_record(git) => Vec::new(),
                FoundEntry::Directory(_) => PARTS.iter().filter_map(|part| git.join(part).ok()).collect(),
                _ => vec![git.clone()],
            };
            let mut held = NestedDuties::default();
            match parts.into_iter().try_for_each(|part| self.hold(part, &mut held)) {
                Ok(()) => {
                    duties.fixed.append(&mut held.fixed);
                    duties.absent.append(&mut held.absent);
                }
                // Nobody may look into it: it is held as a whole.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.hold(git.clone(), &mut duties)?;
                }
                Err(error) => return Err(error),
            }
        }
        for git in index.map(links_of).unwrap_or_default() {
            if !self.known.gits.contains(&git) && !self.made.contains(&git) {
                self.hold(git, &mut duties)?;
            }
        }
        Ok(duties)
    }

    fn hold(&self, name: Below, duties: &mut NestedDuties) -> io::Result<()> {
        match self.root.look(&name)? {
            FoundEntry::Nothing => duties.absent.push((name, None)),
            FoundEntry::Link { at, to } if at == name => duties.absent.push((name, Some(to))),
            // A link on the way: it leads elsewhere, and what is there is that place's.
            FoundEntry::Link { .. } => {}
            FoundEntry::Directory(identity)
            | FoundEntry::File { identity, .. }
            | FoundEntry::Special(identity) => {
                duties.fixed.push(JudgedPlace { path: name.under(self.root.path()), identity });
            }
        }
        Ok(())
    }

    /// After a command: takes from new repositories what git would run. A line for each. Those that commands made are looked at
    /// each time: a command that began before there was one has no hold on it in its fence.
    pub fn disarm_new(&mut self) -> io::Result<Vec<String>> {
        let told = std::mem::take(&mut self.unseen);
        let found = self.look(ClosedDirectories::OpenUp)?;
        let gone: Vec<Below> =
            self.known.gits.difference(&found).filter(|git| self.is_record(git)).cloned().collect();
        self.known.gits.retain(|git| !gone.contains(git));
        // Whatever becomes of one of them: all of them are new.
        self.made = found.difference(&self.known.gits).cloned().collect();
        let mut lines = self.lines_about_opened();
        let news = self.unseen.iter().filter(|(name, _)| !told.contains_key(*name));
        lines.extend(news.map(|(name, why)| {
            let shown = name.under(self.root.path());
            format!("[{}: nobody could look for repositories there: {why}]", shown.display())
        }));
        for git in &self.made {
            let mut moved = Vec::new();
            let mut done = self.disarm(git, &mut moved);
            if let Err(error) = &done
                && error.kind() == io::ErrorKind::PermissionDenied
                && self.root.open_up(git).is_ok_and(|has_changed| has_changed)
            {
                done = self.disarm(git, &mut moved);
            }
            let shown = git.under(self.root.path());
            lines.extend(moved.into_iter().map(|aside| {
                format!(
                    "[{} is a new repository: what makes git run programs is now {}]",
                    shown.display(),
                    aside.under(self.root.path()).display()
                )
            }));
            if let Err(error) = done {
                lines.push(format!(
                    "[{} is a new repository, and what makes git run programs stays in it: {error}]",
                    shown.display()
                ));
            }
        }
        lines.extend(self.take_new_links());
        Ok(lines)
    }

    fn lines_about_opened(&mut self) -> Vec<String> {
        let opened = std::mem::take(&mut self.opened);
        let Some(first) = opened.first().map(|name| name.under(self.root.path())) else { return Vec::new() };
        let more = match opened.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        vec![format!(
            "[{}{more}: nobody could look for repositories there; its owner can read and change it now]",
            first.display()
        )]
    }

    /// `moved` gets what was put aside, also when something fails then.
    fn disarm(&self, git: &Below, moved: &mut Vec<Below>) -> io::Result<()> {
        match self.root.look(git)? {
            FoundEntry::Nothing => {}
            FoundEntry::Directory(_) => {
                let record = Root::plain(&git.under(self.root.path())).ok().filter(|_| self.is_record(git));
                let store = record.and_then(|record| common_of(&record));
                let is_worktrees = store.is_some_and(|store| self.is_watched(&store));
                for part in PARTS {
                    if is_worktrees && LEADING_PARTS.contains(&part) {
                        continue;
                    }
                    if self.is_armed(git, part)? {
                        moved.push(self.root.put_aside(&git.join(part)?)?);
                        if part == "config" {
                            self.write_plain(git)?;
                        }
                    }
                }
            }
            // A worktree that git made in a repository of this tree leads to it, and it says so, too.
            FoundEntry::File { .. } => {
                let place = git.split().map(|(place, _)| place.under(self.root.path()));
                let place = place.and_then(|place| Root::plain(&place).ok());
                let file = place.map(|place| git_file(&place, &|_, _| false));
                if !matches!(file, Some(GitFile::Found(found)) if self.is_watched(found.store())) {
                    moved.push(self.root.put_aside(git)?);
                }
            }
            FoundEntry::Link { at, .. } => moved.push(self.root.put_aside(&at)?),
            FoundEntry::Special(_) => moved.push(self.root.put_aside(git)?),
        }
        Ok(())
    }

    /// Whether a part of a new git directory makes git run something, or look elsewhere for what to run.
    fn is_armed(&self, git: &Below, part: &str) -> io::Result<bool> {
        let name = git.join(part)?;
        Ok(match (part, self.root.look(&name)?) {
            (_, FoundEntry::Nothing) => false,
            // What cannot be read may be anything.
            ("config", FoundEntry::File { .. }) => {
                !self.root.open(&name, OFlags::RDONLY | OFlags::NONBLOCK).is_ok_and(|file| {
                    let mut text = Vec::new();
                    let read = File::from(file).take(CONFIG_BYTES + 1).read_to_end(&mut text);
                    read.is_ok()
                        && text.len() as u64 <= CONFIG_BYTES
                        && is_plain(&String::from_utf8_lossy(&text))
                })
            }
            ("hooks", FoundEntry::Directory(_)) => !self.root.entries(&name).is_ok_and(|hooks| {
                !hooks.iter().any(|(hook, kind)| {
                    let is_sample = hook.as_encoded_bytes().ends_with(b".sample");
                    let runs = || {
                        let file = name.join(hook).and_then(|hook| self.root.open(&hook, OFlags::PATH));
                        let found = file.and_then(|file| File::from(file).metadata());
                        found.is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
                    };
                    !is_sample && (*kind != FileType::RegularFile || runs())
                })
            }),
            // The record of a worktree has some of them; a repository has none.
            _ => true,
        })
    }

    /// Whether git reads its settings for this store where they are held or disarmed: in a repository of this tree.
    fn is_watched(&self, store: &Root) -> bool {
        let Some(name) = self.root.name_of(store.path()) else { return false };
        let is_it = self.root.look(&name).is_ok_and(|found| found.identity() == Some(store.identity()));
        let own = Below::fixed(GIT);
        // Those of submodules are held as a whole.
        let is_module = |git: &Below| git.join("modules").is_ok_and(|modules| name.starts_with(&modules));
        let is_git = self.known.gits.contains(&name) || self.made.contains(&name);
        is_it && (is_git || self.known.gits.iter().chain([&own]).any(is_module))
    }

    /// Whether a git directory is where a repository of this tree has the records of its worktrees.
    fn is_record(&self, git: &Below) -> bool {
        let Some((records, _)) = git.split() else { return false };
        let store = records.split().filter(|(_, name)| *name == RECORDS).map(|(store, _)| store);
        store.is_some_and(|store| self.known.gits.contains(&store) || self.made.contains(&store))
    }

    fn write_plain(&self, git: &Below) -> io::Result<()> {
        let directory = self.root.open(git, OFlags::PATH | OFlags::DIRECTORY)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&directory, "config", flags, Mode::from_raw_mode(0o644))?;
        io::Write::write_all(&mut File::from(file), PLAIN.as_bytes())
    }

    /// Every git directory and git file in the tree. Directories that have not changed are not listed again.
    fn look(&mut self, closed: ClosedDirectories) -> io::Result<BTreeSet<Below>> {
        let before = std::mem::take(&mut self.seen);
        let (gits_before, links_before) = (std::mem::take(&mut self.gits), std::mem::take(&mut self.links));
        self.unseen.clear();
        let mut open = vec![WalkStep::Enter(Below::here(), Some(0))];
        while let Some(step) = open.pop() {
            let (name, was) = match step {
                WalkStep::Enter(name, was) => (name, was),
                WalkStep::Leave(at) => {
                    self.seen.close(at);
                    continue;
                }
            };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let stat = match rustix::fs::statat(&self.root, name.text(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(error) if is_gone(&error.into()) => continue,
                Err(error) => {
                    self.not_seen(&name, &error.into());
                    open.push(WalkStep::Leave(self.open_seen(&name, None)?));
                    continue;
                }
            };
            let changed = (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or_default());
            let fingerprint = self.fingerprints.of(Identity::from(&stat), changed);
            let mut is_seen = true;
            let (directories, gits, links) = match was.filter(|was| before.is_same(*was, fingerprint)) {
                Some(was) => {
                    let children = before.children(was).map(|(child, name)| (name.to_owned(), Some(child)));
                    let of = |all: &BTreeMap<Below, Vec<Below>>| all.get(&name).cloned().unwrap_or_default();
                    (children.collect(), of(&gits_before), of(&links_before))
                }
                None => {
                    if closed == ClosedDirectories::OpenUp
                        && is_closed(&stat)
                        && self.root.open_up(&name).is_ok_and(|has_changed| has_changed)
                    {
                        self.opened.push(name.clone());
                    }
                    let listed = match self.list(&name) {
                        // Nobody may read it. Until it changes there is nothing new in it.
                        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => <_>::default(),
                        // It is gone, or a link now: its parent has changed.
                        Err(error) if is_gone(&error) => continue,
                        Err(error) => {
                            is_seen = false;
                            self.not_seen(&name, &error);
                            <_>::default()
                        }
                        Ok(listed) => listed,
                    };
                    // What was no git directory before has links below it that did not matter.
                    let is_git = |gits: Option<&Vec<Below>>| gits.is_some_and(|gits| gits.contains(&name));
                    let is_as_it_was = is_git(Some(&listed.gits)) == is_git(gits_before.get(&name));
                    let known = before.children_by_name(was.filter(|_| is_as_it_was));
                    let with_known = |name: OsString| {
                        let child = known.get(name.as_os_str()).copied();
                        (name, child)
                    };
                    let directories = listed.directories.into_iter().map(with_known).collect::<Vec<_>>();
                    (directories, listed.gits, listed.links)
                }
            };
            let at = Duration::new(
                changed.0.try_into().unwrap_or_default(),
                changed.1.try_into().unwrap_or_default(),
            );
            let settled = (is_seen && at + TICK < now).then_some(fingerprint);
            open.push(WalkStep::Leave(self.open_seen(&name, settled)?));
            let enter = |(directory, was)| Some(WalkStep::Enter(name.join(directory).ok()?, was));
            open.extend(directories.into_iter().filter_map(enter));
            if !links.is_empty() {
                self.links.insert(name.clone(), links);
            }
            if !gits.is_empty() {
                self.gits.insert(name, gits);
            }
        }
        self.seen.finish();
        Ok(self.gits.values().flatten().cloned().collect())
    }

    /// The place of a directory in the last walk.
    fn open_seen(&mut self, name: &Below, fingerprint: Option<u64>) -> io::Result<usize> {
        let own_name = name.split().map_or(OsStr::new(""), |(_, name)| name);
        let too_many = || io::Error::other("there are too many directories to look for repositories");
        self.seen.open(own_name, fingerprint).ok_or_else(too_many)
    }

    /// It is looked at again; until then nobody knows what is in it.
    fn not_seen(&mut self, name: &Below, error: &io::Error) {
        // Where nobody may look it is the same as with a directory that nobody may list.
        if error.kind() != io::ErrorKind::PermissionDenied {
            self.unseen.insert(name.clone(), error.to_string());
        }
    }

    /// What a directory has. Nobody works in a `.git`: only what git writes and the records of worktrees count there. Anything else that
    /// looks like a git directory may have all kinds of directories in it.
    fn list(&self, name: &Below) -> io::Result<ListedDirectory> {
        let entries = self.root.entries(name)?;
        let links = || links::among(name, &entries);
        let part = self.part_of_git(name);
        if let Some(part) = part.as_ref().filter(|part| part.is_only_gits()) {
            let is_entered = |(entry, kind): &(OsString, FileType)| {
                *kind == FileType::Directory && part.is_looked_into(entry)
            };
            let directories = entries.iter().filter(|entry| is_entered(entry));
            return Ok(ListedDirectory {
                directories: directories.map(|(entry, _)| entry.clone()).collect(),
                gits: Vec::new(),
                links: links()?,
            });
        }
        // Where case does not matter git finds it by any spelling.
        let is = |entry: &OsStr, wanted: &str| {
            entry == wanted || (entry.eq_ignore_ascii_case(wanted) && self.is_same(name, entry, wanted))
        };
        let has = |wanted: &str| entries.iter().any(|(entry, _)| is(entry, wanted));
        let is_git = |entry: &OsStr| is(entry, GIT);
        let mut gits: Vec<Below> = Vec::new();
        if has("HEAD") && (has("commondir") || (has("objects") && has("refs"))) {
            gits.push(name.clone());
        }
        let mut directories = Vec::new();
        for (entry, kind) in &entries {
            let is_ours = name.is_here() && OURS.iter().any(|ours| entry == ours);
            if is_git(entry) && !is_ours {
                gits.push(name.join(entry)?);
            }
            if *kind == FileType::Directory && !is_ours {
                directories.push(entry.clone());
            }
        }
        let is_written = part.is_some_and(|part| part.is_written()) || gits.contains(name);
        let links = if is_written { links()? } else { Vec::new() };
        Ok(ListedDirectory { directories, gits, links })
    }

    /// Whether the file system takes this name for the other one.
    fn is_same(&self, place: &Below, entry: &OsStr, wanted: &str) -> bool {
        let identity =
            |name: &OsStr| place.join(name).ok().and_then(|name| self.root.thing(&name).ok().flatten());
        identity(entry).is_some() && identity(entry) == identity(OsStr::new(wanted))
    }
}

/// Whether we are its owner and may not list or search it. Said by its mode, which holds nobody back who is root: so root finds what
/// others find.
fn is_closed(stat: &Stat) -> bool {
    let wanted = Mode::RUSR | Mode::XUSR;
    stat.st_uid == rustix::process::geteuid().as_raw()
        && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
        && !Mode::from_raw_mode(stat.st_mode).contains(wanted)
}

/// Settings that run nothing and lead nowhere: what `git init` and `git clone` write.
const HARMLESS: [(&str, &[&str]); 7] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "precomposeunicode",
            "symlinks",
            "autocrlf",
            "eol",
        ],
    ),
    ("user", &["name", "email"]),
    ("remote", &["url", "fetch", "tagopt"]),
    ("branch", &["remote", "merge", "rebase"]),
    ("extensions", &["objectformat", "refstorage"]),
    ("commit", &["gpgsign"]),
    ("submodule", &["url", "active"]),
];

/// Whether a configuration has harmless settings only. What is not understood is not harmless.
fn is_plain(config: &str) -> bool {
    let mut section = String::new();
    config.lines().all(|line| {
        let mut rest = line.trim();
        if let Some(header) = rest.strip_prefix('[') {
            let Some((name, behind)) = header.split_once(']') else { return false };
            section = name.split([' ', '\t', '.', '"']).next().unwrap_or_default().to_ascii_lowercase();
            rest = behind.trim();
        }
        if rest.is_empty() || rest.starts_with(['#', ';']) {
            return true;
        }
        let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
        let key = key.trim().to_ascii_lowercase();
        let is_known = HARMLESS.iter().any(|(known, keys)| *known == section && keys.contains(&key.as_str()));
        // A transport such as `ext::` runs what its address says; git takes quotes and backslashes out of it.
        is_known && !value.contains("::") && !value.contains(['"', '\\'])
    })
}

/// The places of submodules in an index, each with the `.git` that would be there. An index that cannot be read names none.
fn links_of(index: &Root) -> Vec<Below> {
    let mut bytes = Vec::new();
    let read = caliban_rooted::open_plain(index.path(), OFlags::RDONLY | OFlags::NONBLOCK)
        .and_then(|file| File::from(file).take(INDEX_BYTES).read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    gitlinks(&bytes).into_iter().filter_map(|place| Below::new(place).ok()?.join(GIT).ok()).collect()
}

#[cfg(test)]
mod tests;
