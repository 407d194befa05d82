//! Repos that were moved or removed while they had agents. A fleet belongs to a path; a directory that is moved gets
//! another fleet, and those who run are in the old one.
//!
//! Owns the file `root`, which says which directory a fleet's repo is, by what a move does not change. Finds fleets
//! whose repo is gone; moves none: agents work with the paths that they were started with.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use caliban_core::ids::AgentId;

use crate::places::{PlaceSources, Places, repo_hash};
use crate::records::{self, ShimRecord};
use caliban_process as process;

/// Which directory the repo is.
const ROOT: &str = "root";
/// The path of the repo.
const REPO: &str = "repo";
/// The largest of these files.
const FILE_CAP: u64 = 16 * 1024;

/// A fleet with agents whose repo is not where it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elsewhere {
    /// Where it was.
    pub repo: PathBuf,
    /// How many agents it has.
    pub agents: usize,
    /// How many of them run.
    pub running: usize,
    /// What became of it.
    pub fate: Fate,
}

/// What became of a repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is the one that was asked about, under another path.
    IsHere,
    /// It is not where it was.
    Gone,
}

/// The fleets beside that of `here` whose repo is `here` under a former path, or is gone while agents of it run.
pub fn elsewhere(sources: &PlaceSources, here: &Places) -> Vec<Elsewhere> {
    let own = identity(here.repo()).ok();
    let bases = fs::read_dir(sources.data.join("repos")).into_iter().flatten().flatten();
    let mut found: Vec<Elsewhere> = bases
        .map(|entry| entry.path())
        .filter(|base| base != here.base())
        .filter_map(|base| look(&base, own.as_deref()))
        .collect();
    found.sort_by(|one, other| one.repo.cmp(&other.repo));
    found
}

/// The places of a fleet whose repo, in which `start` was, is gone; none when there never was one.
pub fn places_of_gone(start: &Path, sources: &PlaceSources) -> Option<Places> {
    let start = as_it_was(start)?;
    let gone = start.ancestors().take_while(|dir| is_gone(dir));
    let root = { gone }.find(|dir| {
        sources.data.join("repos").join(repo_hash(dir)).join(crate::places::DATABASE).is_file()
    })?;
    Places::of(root.to_owned(), sources).ok()
}

/// Writes down which directory the repo is, if it is there. Best effort: it is for whoever looks for it.
pub fn remember(places: &Places) {
    let Ok(now) = identity(places.repo()) else { return };
    let file = places.base().join(ROOT);
    if read(&file).as_deref() != Some(now.as_bytes()) {
        let new = file.with_extension("new");
        let _for_people = fs::write(&new, now).and_then(|()| fs::rename(&new, &file));
    }
}

/// One fleet, if its repo is not where it was and anybody would miss it.
fn look(base: &Path, own: Option<&str>) -> Option<Elsewhere> {
    let mut repo = read(&base.join(REPO))?;
    if repo.last() == Some(&b'\n') {
        repo.pop();
    }
    let repo = PathBuf::from(std::ffi::OsString::from_vec(repo));
    // One that is not where this repo's fleet would be is a copy, or not ours.
    if base.file_name()?.to_str()? != repo_hash(&repo) {
        return None;
    }
    let recorded = read(&base.join(ROOT)).and_then(|text| String::from_utf8(text).ok());
    let is_here = recorded.is_some() && recorded.as_deref() == own;
    // Both names may lead to it: then it was not moved.
    if !is_gone(&repo) && (!is_here || identity(&repo).ok() == recorded) {
        return None;
    }
    let dirs: Vec<PathBuf> = fs::read_dir(base.join("agents"))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<AgentId>().is_ok()))
        .map(|entry| entry.path())
        .collect();
    let boot = process::boot_id().ok()?;
    let running = dirs.iter().filter(|dir| runs(dir, &boot)).count();
    let fate = if is_here { Fate::IsHere } else { Fate::Gone };
    let is_missed = if is_here { !dirs.is_empty() } else { running > 0 };
    is_missed.then_some(Elsewhere { repo, agents: dirs.len(), running, fate })
}

/// Whether the shim of an agent lives.
fn runs(dir: &Path, boot: &str) -> bool {
    let shim = records::read::<ShimRecord>(dir, records::SHIM).filter(|shim| shim.boot_id == boot);
    let found = shim.and_then(|shim| process::stat(shim.pid).map(|stat| (shim, stat)));
    found.is_some_and(|(shim, stat)| stat.start_time == shim.start_time && !stat.is_over())
}

/// What stays of a directory when it is moved: device, inode, and when it was made, because inodes are used again.
fn identity(dir: &Path) -> io::Result<String> {
    let found = fs::metadata(dir)?;
    let made = found.created().ok().and_then(|made| made.duration_since(UNIX_EPOCH).ok());
    let made = made.map_or_else(|| "-".to_owned(), |made| made.as_nanos().to_string());
    Ok(format!("{} {} {made}\n", found.dev(), found.ino()))
}

fn read(path: &Path) -> Option<Vec<u8>> {
    records::read_capped(path, FILE_CAP).ok()
}

fn is_gone(path: &Path) -> bool {
    matches!(path.symlink_metadata(), Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

/// A path of which only the beginning is there, as it was when all of it was.
fn as_it_was(path: &Path) -> Option<PathBuf> {
    let there = path.ancestors().find(|dir| dir.exists())?;
    let rest = path.strip_prefix(there).ok()?;
    let is_plain = rest.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    is_plain.then(|| there.canonicalize().ok().map(|there| there.join(rest))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_identity_when_it_is_moved_and_no_other_gets_it() {
        let temp = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| temp.path().join(name));
        fs::create_dir(&one).unwrap();
        let first = identity(&one).unwrap();
        fs::rename(&one, &two).unwrap();
        assert_eq!(identity(&two).unwrap(), first);
        fs::create_dir(&one).unwrap();
        assert_ne!(identity(&one).unwrap(), first);
    }

    #[test]
    fn the_fleet_of_a_directory_that_is_gone_is_found_from_below_it_and_only_there() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let sources = PlaceSources { data: root.join("data"), ..PlaceSources::default() };
        let places = Places::of(root.join("repo"), &sources).unwrap();
        fs::create_dir_all(places.base()).unwrap();
        fs::write(places.database(), "").unwrap();
        let found = |path: &str| places_of_gone(&root.join(path), &sources);
        assert_eq!([found("repo"), found("repo/a/b")], [Some(places.clone()), Some(places.clone())]);
        assert_eq!([found("other"), found("repo/../x"), found("")], [None, None, None]);
        // What is there is not gone: a directory below it that is missing is only that.
        fs::create_dir(root.join("repo")).unwrap();
        assert_eq!([found("repo"), found("repo/a")], [None, None]);
    }
}
