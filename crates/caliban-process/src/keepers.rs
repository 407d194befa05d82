//! Daemons, shims and the keepers of detached commands, which do not belong to the process that started them (adr 0032). A daemon that an agent had to
//! start serves everybody, and so do the shims of the agents that others spawned through it.
//!
//! Such a process leads a session, runs a program of our own installation, and is named by pid and start time in a held
//! `daemon.lock`, `shim.lock` or `job.lock` below `repos/` of the same data directory, which no fenced command can write. All of
//! this can be seen of a process that hides its memory (adr 0150). Which program it runs is then told by its command line.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::stat::{read, stat};

/// What our programs are called.
const PROGRAMS: [&str; 2] = ["caliban", "caliband"];
/// The lock that a daemon holds for life, in its fleet's directory.
pub const DAEMON_LOCK: &str = "daemon.lock";
/// The lock that a shim holds for life, in its agent's directory.
pub const SHIM_LOCK: &str = "shim.lock";
/// The lock that the keeper of a detached command holds for life, in that command's directory.
pub const JOB_LOCK: &str = "job.lock";

/// The keepers of all fleets of one data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keepers {
    repos: PathBuf,
}

/// Who keeps what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeper {
    /// A daemon.
    Daemon,
    /// The shim of the agent with this directory.
    Shim(PathBuf),
    /// The keeper of the detached command with this directory.
    Job(PathBuf),
}

impl Keepers {
    /// Those of the fleets in this directory, which need not exist yet.
    pub fn in_repos(repos: PathBuf) -> Self {
        Self { repos }
    }

    /// Those beside the fleet with this directory (`…/repos/<hash>`).
    pub fn beside(base: &Path) -> Option<Self> {
        Some(Self::in_repos(base.parent()?.to_owned()))
    }

    /// Those of the data directory that a `caliban` with this environment uses. A fleet elsewhere (one that a test of the
    /// command's made) belongs to the command.
    pub fn of_environment(env: &[(OsString, OsString)]) -> Option<Self> {
        let absolute = |name: &str| {
            let (_, value) = env.iter().rfind(|(known, _)| known == name)?;
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
        Some(Self::in_repos(data.join("caliban/repos")))
    }

    /// Those beside the fleet whose daemon we are; none when we are no daemon.
    pub fn beside_us() -> Option<Self> {
        let own = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let files = own.filter_map(|fd| fs::read_link(fd.path()).ok());
        let mut locks = files.filter(|file| file.file_name().is_some_and(|name| name == DAEMON_LOCK));
        Self::beside(locks.next()?.parent()?)
    }

    /// What a process keeps, if it is a keeper.
    pub fn who(&self, pid: i32) -> Option<Keeper> {
        // For most processes this is the whole question.
        let stat = stat(pid).filter(|stat| stat.session == pid)?;
        let arguments = command_line(pid);
        if !runs_our_program(pid, arguments.first()?) {
            return None;
        }
        let repos = fs::canonicalize(&self.repos).ok()?;
        let kept = |file: &PathBuf| is_held_by(file, pid, stat.start_time);
        locks(&repos, &arguments).find(kept).and_then(|file| lock(&repos, &file))
    }
}

/// What a keeper writes into its lock: by this others know it.
#[must_use]
pub fn holder_line(pid: i32, start_time: u64) -> String {
    format!("pid {pid} start {start_time}")
}

/// The process of such a line: pid and start time.
#[must_use]
pub fn parse_holder(line: &str) -> Option<(i32, u64)> {
    let mut words = line.split_whitespace();
    match (words.next()?, words.next()?, words.next()?, words.next()?) {
        ("pid", pid, "start", start) => Some((pid.parse().ok()?, start.parse().ok()?)),
        _ => None,
    }
}

fn command_line(pid: i32) -> Vec<OsString> {
    let line = read(Path::new(&format!("/proc/{pid}/cmdline"))).ok().flatten().unwrap_or_default();
    line.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned()).collect()
}

/// The locks that a process with this command line may hold. A shim and the keeper of a detached command name their directory; a
/// daemon may be that of any repo.
fn locks(repos: &Path, arguments: &[OsString]) -> impl Iterator<Item = PathBuf> {
    let own = arguments.get(2).and_then(|dir| fs::canonicalize(dir).ok());
    let own = own.into_iter().flat_map(|dir| [SHIM_LOCK, JOB_LOCK].map(|name| dir.join(name)));
    let daemons = fs::read_dir(repos).into_iter().flatten().flatten();
    let found = own.chain(daemons.map(|repo| repo.path().join(DAEMON_LOCK)));
    found.filter(|file| lock(repos, file).is_some())
}

/// Whether a lock is held, and names this process.
fn is_held_by(file: &Path, pid: i32, start_time: u64) -> bool {
    let text = read(file).ok().flatten().unwrap_or_default();
    let line = text.split(|byte| *byte == b'\n').next().map(String::from_utf8_lossy).unwrap_or_default();
    parse_holder(&line) == Some((pid, start_time))
        && fs::File::open(file)
            .is_ok_and(|file| matches!(file.try_lock_shared(), Err(fs::TryLockError::WouldBlock)))
}

/// What somebody keeps who holds this file.
fn lock(repos: &Path, file: &Path) -> Option<Keeper> {
    let below = file.strip_prefix(repos).ok()?;
    let names: Option<Vec<&str>> = below
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    match names?.as_slice() {
        [_, DAEMON_LOCK] => Some(Keeper::Daemon),
        [_, "agents", _, SHIM_LOCK] => Some(Keeper::Shim(file.parent()?.to_owned())),
        [_, "jobs", _, JOB_LOCK] => Some(Keeper::Job(file.parent()?.to_owned())),
        _ => None,
    }
}

/// Whether it runs what we run, or the other program of our installation; one that was replaced meanwhile, too. `first` is the
/// first word of its command line, which counts where the kernel does not tell: our own keepers are started by a whole path.
fn runs_our_program(pid: i32, first: &OsStr) -> bool {
    let linked = |process: &str| {
        let link = fs::read_link(format!("/proc/{process}/exe")).ok()?;
        Some(PathBuf::from(link.to_str()?.trim_end_matches(" (deleted)")))
    };
    let said = || {
        let path = PathBuf::from(first);
        path.is_absolute().then(|| fs::canonicalize(&path).unwrap_or(path))
    };
    let (Some(own), Some(program)) = (linked("self"), linked(&pid.to_string()).or_else(said)) else {
        return false;
    };
    own == program || is_sibling(&own, &program)
}

/// Whether a program is called like one of ours and stands beside ours, or in the same place of another version of us.
fn is_sibling(own: &Path, program: &Path) -> bool {
    let name = program.file_name().and_then(|name| name.to_str());
    let (Some(own), Some(dir)) = (own.parent(), program.parent()) else { return false };
    (own == dir || are_versions(own, dir)) && name.is_some_and(|name| PROGRAMS.contains(&name))
}

/// Whether two directories are the same place in two versions of our installation: `Cellar/caliban/0.1.0/bin` and
/// `…/0.2.0/bin`, `/nix/store/HASH-caliban-0.1.0/bin` and the like. After an upgrade the reaper of a running agent is of the
/// one, and a daemon that the agent's shell starts is of the other.
fn are_versions(one: &Path, other: &Path) -> bool {
    let names = |path: &Path| -> Vec<String> {
        path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()).collect()
    };
    let (one, other) = (names(one), names(other));
    let mut differing = (0..one.len()).filter(|at| one.get(*at) != other.get(*at));
    let (Some(at), None) = (differing.next(), differing.next()) else { return false };
    let is_ours = |name: &str| name.split_once("-caliban-").is_some_and(|(hash, _)| !hash.is_empty());
    one.len() == other.len()
        && match at.checked_sub(1).and_then(|above| one.get(above)).map(String::as_str) {
            Some("caliban") => true,
            Some("store") => is_ours(&one[at]) && is_ours(&other[at]),
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_of_daemons_and_shims_count_and_only_for_who_took_them() {
        let lock = |file: &str| lock(Path::new("/d/repos"), Path::new(file));
        assert_eq!(lock("/d/repos/00ff/daemon.lock"), Some(Keeper::Daemon));
        let shim = lock("/d/repos/00ff/agents/0a/shim.lock");
        assert_eq!(shim, Some(Keeper::Shim("/d/repos/00ff/agents/0a".into())));
        let job = lock("/d/repos/00ff/jobs/0a/job.lock");
        assert_eq!(job, Some(Keeper::Job("/d/repos/00ff/jobs/0a".into())));
        for other in [
            "/d/repos/0/agents/0a/job.lock",
            "/d/repos/daemon.lock",
            "/d/repos/0/daemon.lock (deleted)",
            "/d/repos/0/start.lock",
            "/d/repos/0/x/daemon.lock",
            "/d/repos/0/agents/shim.lock",
            "/e/repos/0/daemon.lock",
        ] {
            assert_eq!(lock(other), None, "{other}");
        }
    }

    #[test]
    fn the_line_names_a_process_and_its_start() {
        assert_eq!(parse_holder(&holder_line(12, 345)), Some((12, 345)));
        for text in ["", "pid 12", "pid x start 1", "start 1 pid 2"] {
            assert_eq!(parse_holder(text), None, "{text}");
        }
    }

    #[test]
    fn r06_a_program_that_is_only_called_like_ours_is_no_keeper() {
        let is_sibling = |program: &str| is_sibling(Path::new("/usr/bin/caliban"), Path::new(program));
        assert!(is_sibling("/usr/bin/caliband"));
        assert!(!is_sibling("/work/caliban") && !is_sibling("/usr/bin/python3"));
    }

    #[test]
    fn r06_a_daemon_of_another_version_of_the_installation_is_a_keeper() {
        let check = |own: &str, program: &str| is_sibling(Path::new(own), Path::new(program));
        let cellar = "/opt/homebrew/Cellar/caliban/0.1.0/bin/caliban";
        assert!(check(cellar, "/opt/homebrew/Cellar/caliban/0.2.0/bin/caliband"));
        let nix = "/nix/store/abc-caliban-0.1.0/bin/caliban";
        assert!(check(nix, "/nix/store/def-caliban-0.2.0/bin/caliban"));
        for other in [
            "/opt/homebrew/Cellar/caliban/0.2.0/bin/python3",
            "/opt/homebrew/Cellar/other/0.1.0/bin/caliban",
            "/opt/homebrew/Cellar/caliban/0.2.0/lib/bin/caliban",
            "/tmp/Cellar/caliban/0.1.0/bin/caliban",
            "/home/u/project/caliban",
        ] {
            assert!(!check(cellar, other), "{other}");
        }
        assert!(!check(nix, "/nix/store/def-python-3/bin/caliban"));
        assert!(!check("/home/u/bin/caliban", "/home/v/bin/caliban"), "no store, no versions");
    }

    #[test]
    fn the_keepers_are_where_the_commands_caliban_would_look() {
        let of = |env: &[(&str, &str)]| {
            let env: Vec<(OsString, OsString)> =
                env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Keepers::of_environment(&env)
        };
        let in_repos = |repos: &str| Some(Keepers::in_repos(repos.into()));
        assert_eq!(of(&[("HOME", "/h")]), in_repos("/h/.local/share/caliban/repos"));
        assert_eq!(of(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]), in_repos("/d/caliban/repos"));
        assert_eq!(of(&[("XDG_DATA_HOME", "d"), ("HOME", "/h")]), in_repos("/h/.local/share/caliban/repos"));
        assert_eq!(of(&[("PATH", "/bin")]), None);
    }

    #[test]
    fn a_lock_is_somebodys_while_it_is_held_and_names_him() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DAEMON_LOCK);
        let lock = fs::File::create(&path).unwrap();
        fs::write(&path, holder_line(12, 345)).unwrap();
        let is_ours = |pid, start_time| is_held_by(&path, pid, start_time);
        assert!(!is_ours(12, 345));
        lock.try_lock().unwrap();
        assert!(is_ours(12, 345) && !is_ours(12, 344) && !is_ours(13, 345));
        fs::write(&path, format!("{}\nsocket /x", holder_line(12, 345))).unwrap();
        assert!(is_ours(12, 345));
        fs::write(&path, "").unwrap();
        assert!(!is_ours(12, 345));
        drop(lock);
    }
}
