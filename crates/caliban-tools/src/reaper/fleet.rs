//! Who below a command is not the command's: a daemon that it had to start, and the shims of that daemon's agents. They
//! are everybody's: whoever spawned an agent meanwhile, from whatever shell, would lose it with them.
//!
//! Known by the kernel's word alone: a session leader, of our own program, that itself holds the write lock of a
//! `daemon.lock` or a `shim.lock` below `repos/` of the data directory that `caliban` has in the command's environment.
//! What a process calls itself, says in its environment or writes into a file counts for nothing. A fleet elsewhere (one
//! that a test of the command's made) is the command's own. Shims judge the same way (`caliban-supervisor`,
//! `process/keepers.rs`).

use std::{
    ffi::OsString,
    fs,
    path::{Component, Path, PathBuf},
};

use rustix::process::Pid;

use super::tree::stat;

/// What our programs are called.
const PROGRAMS: [&str; 2] = ["caliban", "caliband"];

/// The fleets of the command's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fleet {
    repos: Option<PathBuf>,
}

impl Fleet {
    /// By the environment as the command got it, not as it may change it.
    pub(super) fn of(env: &[(OsString, OsString)]) -> Self {
        let absolute = |name: &str| {
            let (_, value) = env.iter().rfind(|(known, _)| known == name)?;
            Some(PathBuf::from(value)).filter(|path| path.is_absolute())
        };
        let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
        Self { repos: data.map(|data| data.join("caliban/repos")) }
    }

    /// Whether a process is a daemon or a shim.
    pub(super) fn has(&self, pid: Pid) -> bool {
        // Both lead a session; for most of what a command leaves this is the whole question.
        if stat(pid).and_then(|stat| stat.session) != Some(pid) {
            return false;
        }
        // It may have been made only now, and what `/proc` shows has no links in it.
        let Some(repos) = self.repos.as_ref().and_then(|repos| fs::canonicalize(repos).ok()) else {
            return false;
        };
        let pid = pid.as_raw_nonzero().get();
        if !runs_our_program(pid) {
            return false;
        }
        let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut locks = open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|file| is_lock(&repos, &file)));
        locks.any(|fd| {
            let info = Path::new("/proc").join(pid.to_string()).join("fdinfo").join(fd.file_name());
            fs::read_to_string(info).is_ok_and(|info| holds(&info, pid))
        })
    }
}

/// Whether it runs what we run, or a program that is called like ours; one that was replaced meanwhile, too.
fn runs_our_program(pid: i32) -> bool {
    let Ok(program) = fs::read_link(format!("/proc/{pid}/exe")) else { return false };
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    PROGRAMS.contains(&name.trim_end_matches(" (deleted)"))
        || fs::read_link("/proc/self/exe").is_ok_and(|own| own == program)
}

/// Whether a file is the lock of a daemon or of a shim.
fn is_lock(repos: &Path, file: &Path) -> bool {
    let Ok(below) = file.strip_prefix(repos) else { return false };
    let names: Option<Vec<&str>> = below
        .components()
        .map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    matches!(names.as_deref(), Some([_, "daemon.lock"] | [_, "agents", _, "shim.lock"]))
}

/// Whether the kernel says that this very process took the write lock, and did not only inherit the file.
fn holds(info: &str, pid: i32) -> bool {
    info.lines().filter_map(|line| line.strip_prefix("lock:")).any(|lock| {
        let words: Vec<&str> = lock.split_ascii_whitespace().collect();
        matches!(words.as_slice(), [_, "FLOCK", _, "WRITE", holder, ..] if holder.parse() == Ok(pid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fleet_is_where_the_commands_caliban_would_look() {
        let of = |env: &[(&str, &str)]| {
            let env: Vec<(OsString, OsString)> =
                env.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            Fleet::of(&env).repos
        };
        assert_eq!(of(&[("HOME", "/h")]), Some("/h/.local/share/caliban/repos".into()));
        assert_eq!(of(&[("XDG_DATA_HOME", "/d"), ("HOME", "/h")]), Some("/d/caliban/repos".into()));
        assert_eq!(
            of(&[("XDG_DATA_HOME", "d"), ("HOME", "/h")]),
            Some("/h/.local/share/caliban/repos".into())
        );
        assert_eq!(of(&[("PATH", "/bin")]), None);
    }

    #[test]
    fn only_locks_of_daemons_and_shims_count_and_only_for_who_took_them() {
        let is = |file: &str| is_lock(Path::new("/d/repos"), Path::new(file));
        assert!(is("/d/repos/00ff/daemon.lock") && is("/d/repos/00ff/agents/0a/shim.lock"));
        for other in [
            "/d/repos/daemon.lock",
            "/d/repos/00ff/x/daemon.lock",
            "/d/repos/00ff/daemon.lock (deleted)",
            "/d/repos/00ff/agents/shim.lock",
            "/e/repos/00ff/daemon.lock",
        ] {
            assert!(!is(other), "{other}");
        }
        let info = "pos:\t0\nflags:\t02100002\nlock:\t1: FLOCK  ADVISORY  WRITE 12 fe:00:7 0 EOF\n";
        assert!(holds(info, 12));
        assert!(!holds(info, 1) && !holds(info, 13));
        for other in [
            "",
            "lock:\t1: FLOCK  ADVISORY  READ 12 fe:00:7 0 EOF\n",
            "lock:\t1: POSIX  ADVISORY  WRITE 12\n",
        ] {
            assert!(!holds(other, 12), "{other}");
        }
    }
}
