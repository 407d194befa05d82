//! The hermetic environment: every directory and variable that a program under test sees.
//!
//! Owns one temp dir and the processes in it: when an [`Env`] is dropped, every process that still has the dir in its
//! environment is killed by pid, daemons included, and the dir is removed. So are the empty control groups of agents
//! whose shims were killed that way. Refuses to pass on any variable of the outer environment but `PATH`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::process::{Output, ProgramRun};

/// Maximum length of the outer temp dir that leaves room for Unix sockets (108 bytes) below ours.
const MAX_TEMP_ROOT: usize = 32;

/// Number of rounds in which the dir's processes are killed at the end: a process that is forked during one round is
/// found in the next.
const KILL_ROUNDS: usize = 50;

const GIT_CONFIG: &str = "[user]\n\tname = Test Person\n\temail = test@example.org\n[init]\n\tdefaultBranch = main\n\
    [commit]\n\tgpgsign = false\n[tag]\n\tgpgsign = false\n[core]\n\tautocrlf = false\n[gc]\n\tauto = 0\n\
    [maintenance]\n\tauto = false\n[advice]\n\tdetachedHead = false\n";

/// A home, XDG directories, a temp dir and a git identity of its own, below one temp dir.
#[derive(Debug)]
pub struct Env {
    root: TempDir,
    vars: Vec<(OsString, OsString)>,
    repos: AtomicUsize,
}

impl Env {
    /// A fresh environment.
    #[track_caller]
    pub fn new() -> Self {
        let root = fresh_root();
        let at = |name: &str| root.path().join(name);
        for dir in ["home", "config", "data", "state", "cache", "run", "tmp", "work"] {
            std::fs::create_dir(at(dir)).expect("cannot make a directory of the test environment");
        }
        for private in ["run", "home"] {
            std::fs::set_permissions(at(private), std::fs::Permissions::from_mode(0o700))
                .expect("cannot make a directory private");
        }
        std::fs::write(at("gitconfig"), GIT_CONFIG).expect("cannot write the git config");
        let mut vars: Vec<(OsString, OsString)> = [
            ("HOME", "home"),
            ("XDG_CONFIG_HOME", "config"),
            ("XDG_DATA_HOME", "data"),
            ("XDG_STATE_HOME", "state"),
            ("XDG_CACHE_HOME", "cache"),
            ("XDG_RUNTIME_DIR", "run"),
            ("TMPDIR", "tmp"),
            ("TMUX_TMPDIR", "run"),
            ("GIT_CONFIG_GLOBAL", "gitconfig"),
            ("GIT_CEILING_DIRECTORIES", ""),
        ]
        .into_iter()
        .map(|(name, dir)| (name.into(), if dir.is_empty() { root.path().into() } else { at(dir).into() }))
        .collect();
        for (name, value) in [
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("LANG", "C.UTF-8"),
            ("TZ", "UTC"),
            ("TERM", "dumb"),
            ("SHELL", "/bin/sh"),
            ("USER", "test"),
            ("LOGNAME", "test"),
            ("NO_COLOR", "1"),
        ] {
            vars.push((name.into(), value.into()));
        }
        vars.push(("PATH".into(), outer_path()));
        Self { root, vars, repos: AtomicUsize::new(0) }
    }

    /// Sets a variable for all programs started from now on.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> &mut Self {
        let name = name.into();
        self.vars.retain(|(known, _)| *known != name);
        self.vars.push((name, value.into()));
        self
    }

    /// Sets several variables, such as those of [`ModelServer::envs`](crate::ModelServer::envs).
    pub fn set_all<N: Into<OsString>, V: Into<OsString>>(
        &mut self,
        vars: impl IntoIterator<Item = (N, V)>,
    ) -> &mut Self {
        for (name, value) in vars {
            self.set(name, value);
        }
        self
    }

    /// Removes a variable.
    pub fn unset(&mut self, name: impl AsRef<OsStr>) -> &mut Self {
        self.vars.retain(|(known, _)| known != name.as_ref());
        self
    }

    /// The value that programs get for a variable.
    pub fn var(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.vars.iter().find(|(known, _)| known == name.as_ref()).map(|(_, value)| value.as_os_str())
    }

    /// The temp dir that holds everything. Canonical: no symlink in it.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// `HOME`.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// `XDG_CONFIG_HOME`.
    pub fn config(&self) -> PathBuf {
        self.root().join("config")
    }

    /// `XDG_DATA_HOME`.
    pub fn data(&self) -> PathBuf {
        self.root().join("data")
    }

    /// `XDG_STATE_HOME`.
    pub fn state(&self) -> PathBuf {
        self.root().join("state")
    }

    /// `XDG_CACHE_HOME`.
    pub fn cache(&self) -> PathBuf {
        self.root().join("cache")
    }

    /// `XDG_RUNTIME_DIR`, mode 0700.
    pub fn runtime(&self) -> PathBuf {
        self.root().join("run")
    }

    /// `TMPDIR`.
    pub fn tmp(&self) -> PathBuf {
        self.root().join("tmp")
    }

    /// The default working directory: empty, and in no git repo.
    pub fn work(&self) -> PathBuf {
        self.root().join("work")
    }

    /// A built binary of the workspace in this environment, started in [`Env::work`].
    #[track_caller]
    pub fn cmd(&self, binary: &str) -> Command {
        self.program(built(binary))
    }

    /// Any other program in this environment: an absolute path, or a name looked up on `PATH`.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(self.vars.iter().map(|(name, value)| (name, value)))
            .current_dir(self.work());
        command
    }

    /// A run of a built binary, whose directory, stdin, variables and limit can still be set.
    #[track_caller]
    pub fn start<A: AsRef<OsStr>>(&self, binary: &str, args: impl IntoIterator<Item = A>) -> ProgramRun {
        ProgramRun::new(self.cmd(binary)).args(args)
    }

    /// Runs `caliban` with these arguments in [`Env::work`] with empty stdin.
    #[track_caller]
    pub fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.start("caliban", args).output()
    }

    /// Runs `caliban` in a directory.
    #[track_caller]
    pub fn run_in<A: AsRef<OsStr>>(
        &self,
        dir: impl AsRef<Path>,
        args: impl IntoIterator<Item = A>,
    ) -> Output {
        self.start("caliban", args).dir(dir).output()
    }

    /// Runs git in a directory and returns its stdout without the last newline; panics if it fails.
    #[track_caller]
    pub fn git(&self, dir: impl AsRef<Path>, args: &[&str]) -> String {
        let output = ProgramRun::new(self.program("git")).args(args).dir(dir).output().ok();
        output.stdout.strip_suffix('\n').unwrap_or(&output.stdout).to_owned()
    }

    /// A fresh git repo on branch `main` with one commit (a `README.md`).
    #[track_caller]
    pub fn repo(&self) -> PathBuf {
        let number = self.repos.fetch_add(1, Ordering::Relaxed);
        let name = if number == 0 { "repo".to_owned() } else { format!("repo{}", number + 1) };
        let dir = self.root().join(name);
        std::fs::create_dir(&dir).expect("cannot make the repo's directory");
        self.git(&dir, &["init", "--quiet"]);
        std::fs::write(dir.join("README.md"), "# A repo\n").expect("cannot write README.md");
        self.git(&dir, &["add", "README.md"]);
        self.git(&dir, &["commit", "--quiet", "-m", "first commit"]);
        dir
    }

    /// Writes a file, making its directories; a relative path is below [`Env::work`]. Returns the whole path.
    #[track_caller]
    pub fn write(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)
                .unwrap_or_else(|e| panic!("cannot make {}: {e}", parent.display()));
        }
        std::fs::write(&path, text).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        path
    }

    /// Reads a text file; a relative path is below [`Env::work`].
    #[track_caller]
    pub fn read(&self, path: impl AsRef<Path>) -> String {
        let path = self.work().join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
    }

    /// Every living process that was started in this environment, daemons included: pid and command line. Recognized by
    /// the temp dir in its environment, so that a process that left its group is found too.
    pub fn processes(&self) -> Vec<(u32, String)> {
        self.found().into_iter().map(|found| (found.pid, found.line)).collect()
    }

    fn found(&self) -> Vec<FoundProcess> {
        let needle = self.root().as_os_str().as_bytes();
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| *pid != std::process::id())
            .filter_map(|pid| FoundProcess::look(pid, needle))
            .collect()
    }
}

impl Default for Env {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Env {
    fn drop(&mut self) {
        for _ in 0..KILL_ROUNDS {
            let found = self.found();
            if found.is_empty() {
                break;
            }
            for process in found {
                // A process that has ended meanwhile counts as killed.
                let _ = pidfd_send_signal(&process.fd, Signal::KILL);
                process.await_end();
            }
        }
        remove_groups(&self.data());
    }
}

/// Removes the control groups of runs whose shims were killed and could not do it: those of our own agents, by their
/// records. The kernel refuses to remove one that is not empty.
fn remove_groups(data: &Path) {
    let below =
        |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    for agent in below(data.join("caliban/repos")).flat_map(|repo| below(repo.join("agents"))) {
        let record = std::fs::read(agent.join("shim.json")).unwrap_or_default();
        let record: serde_json::Value = serde_json::from_slice(&record).unwrap_or_default();
        let Some(group) = record["group"].as_str().map(Path::new) else { continue };
        let id = agent.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let name = group.file_name().and_then(OsStr::to_str).unwrap_or_default();
        if name.starts_with(&format!("caliban-{id}-")) {
            let _gone_already = std::fs::remove_dir(group);
        }
    }
}

/// A process of an environment. The pidfd was opened before the process was inspected, so a signal sent through it
/// cannot hit another process that got the same pid.
struct FoundProcess {
    pid: u32,
    line: String,
    fd: std::os::fd::OwnedFd,
}

impl FoundProcess {
    fn look(pid: u32, needle: &[u8]) -> Option<Self> {
        let fd = pidfd_open(Pid::from_raw(i32::try_from(pid).ok()?)?, PidfdFlags::empty()).ok()?;
        // Empty for a zombie. Daemons, shims and workers hide their environment, and have the place in their command line.
        let has_needle = |file: &str| {
            let text = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            text.windows(needle.len()).any(|window| window == needle)
        };
        ["environ", "cmdline"].into_iter().find(|file| has_needle(file))?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned();
        Some(Self { pid, line, fd })
    }

    fn await_end(&self) {
        crate::process::await_exit(&self.fd, std::time::Duration::from_secs(1));
    }
}

fn fresh_root() -> TempDir {
    let outer = std::env::temp_dir();
    let outer = if outer.as_os_str().len() > MAX_TEMP_ROOT { PathBuf::from("/tmp") } else { outer };
    let outer = outer.canonicalize().expect("the temp dir cannot be resolved");
    tempfile::Builder::new().prefix("tk-").tempdir_in(outer).expect("cannot make a temp dir")
}

#[expect(clippy::disallowed_methods, reason = "PATH is the one variable that is passed on")]
fn outer_path() -> OsString {
    std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into())
}

/// Where cargo put a binary of the workspace: next to the directory of the test executable.
#[track_caller]
fn built(binary: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test executable's path is unknown");
    let mut dir = test.parent().expect("the test executable is in a directory");
    if dir.ends_with("deps") || dir.ends_with("examples") {
        dir = dir.parent().expect("target/<profile>");
    }
    let path = dir.join(binary);
    assert!(
        path.is_file(),
        "{} is not built: run `cargo build --workspace --bins` or cargo xtask test",
        path.display()
    );
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_groups_of_its_own_agents_go_with_an_environment() {
        let outside = tempfile::tempdir().unwrap();
        let group = |name: &str| outside.path().join(name);
        for dir in ["caliban-0000aaaa-00ff-7", "caliban-0000bbbb-00ff-8", "caliban-0000cccc-00ff-9/busy"] {
            std::fs::create_dir_all(group(dir)).unwrap();
        }
        let env = Env::new();
        // Its own group, one of another agent, and one that is not empty.
        for (agent, recorded) in [
            ("0000aaaa", "0000aaaa-00ff-7"),
            ("0000dddd", "0000bbbb-00ff-8"),
            ("0000cccc", "0000cccc-00ff-9"),
        ] {
            let record = serde_json::json!({"group": group(&format!("caliban-{recorded}"))});
            let file = format!("caliban/repos/00ff/agents/{agent}/shim.json");
            env.write(env.data().join(file), record.to_string());
        }
        drop(env);
        let mut left: Vec<_> =
            std::fs::read_dir(outside.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["caliban-0000bbbb-00ff-8", "caliban-0000cccc-00ff-9"]);
    }
}
