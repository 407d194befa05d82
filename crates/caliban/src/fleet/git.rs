//! git calls of the fleet's verbs: plain ones in the user's own tree, hardened ones for what touches an agent's branch.
//!
//! No git that writes is ever run in an agent's worktree from here: what an agent left uncommitted is read file by
//! file and committed through the repository's store alone (SANDBOX.md 5), without hooks or filters.

use std::{
    ffi::{OsStr, OsString},
    io::{self, BufWriter, Write},
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use caliban_core::{inert, names::Slug};
use caliban_worktrees::Repo;
use tokio::process::Command;

use crate::report::Failure;

/// Variables that would point git at another repository or index.
const DROPPED: [&str; 9] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_COMMON_DIR",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_ATTR_SOURCE",
];

/// The environment of a hardened call.
const HARD_ENV: [(&str, &str); 12] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_EDITOR", "false"),
    ("GIT_ASKPASS", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_ATTR_NOSYSTEM", "1"),
];

/// The configuration of a hardened call.
const HARD_CONFIG: [&str; 13] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.alternateRefsCommand=",
    "submodule.recurse=false",
    "commit.gpgSign=false",
    "credential.helper=",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "gc.recentObjectsHook=",
    "core.sparseCheckout=true",
];

/// The configuration of a look at the user's tree.
const LOOK_CONFIG: [&str; 5] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
    "status.submoduleSummary=false",
];
/// The keys under which a configuration names programs that files go through.
const FILTERS: &str = r"^filter\..*\.(clean|smudge|process|required)$";

/// One git call.
pub(super) struct Git {
    command: Command,
    shown: String,
}

impl Git {
    /// In the user's own tree, as the user would run it: their configuration and hooks count.
    pub(super) fn plain(dir: &Path) -> Self {
        let mut command = Command::new("git");
        command.current_dir(dir).stdin(Stdio::null());
        for name in DROPPED {
            command.env_remove(name);
        }
        Self { command, shown: String::new() }
    }

    /// On the repository's store alone; nothing that an agent could have written is run.
    pub(super) fn hardened(git_dir: &Path) -> Self {
        let mut git = Self::plain(Path::new("/"));
        git.command.arg("--no-pager").env("GIT_DIR", git_dir).envs(HARD_ENV);
        for config in HARD_CONFIG {
            git.command.args(["-c", config]);
        }
        git
    }

    /// The same for what a linked worktree is: its record and its files, which git is told and never finds out.
    pub(super) fn hardened_at(common: &Path, admin: &Path, files: &Path) -> Self {
        let git = Self::hardened(admin);
        git.env("GIT_COMMON_DIR", common).env("GIT_WORK_TREE", files)
    }

    pub(super) fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        for arg in args {
            let arg = arg.into();
            if self.shown.is_empty() {
                self.shown = arg.to_string_lossy().into_owned();
            }
            self.command.arg(arg);
        }
        self
    }

    pub(super) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// With these keys of the configuration set to a program that only fails.
    pub(super) fn failing(self, keys: &[OsString]) -> Self {
        self.set_to("false", keys)
    }

    fn set_to(mut self, value: &str, keys: &[OsString]) -> Self {
        self.command.env("GIT_CONFIG_COUNT", keys.len().to_string());
        for (n, key) in keys.iter().enumerate() {
            self = self.env(&format!("GIT_CONFIG_KEY_{n}"), key).env(&format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        self
    }

    /// A look at the user's own tree as the user would take it, only that nothing is run which the repository's
    /// configuration names: an agent could have written that.
    pub(super) async fn look(dir: &Path) -> Result<Self, Failure> {
        let args = ["config", "-z", "--name-only", "--show-scope", "--includes", "--get-regexp", FILTERS];
        // 1 is "none".
        let output = Self::plain(dir).args(args).output().await?;
        let found = match output.status.code() {
            Some(0 | 1) => fields(&output.stdout),
            _ => return Err(failure("config", &output)),
        };
        let is_repos = |pair: &&[OsString]| pair[0] == "local" || pair[0] == "worktree";
        let filters: Vec<OsString> =
            found.chunks_exact(2).filter(is_repos).map(|pair| pair[1].clone()).collect();
        let mut git = Self::plain(dir).set_to("", &filters).env("GIT_NO_LAZY_FETCH", "1");
        git.command.arg("--no-optional-locks");
        for config in LOOK_CONFIG {
            git.command.args(["-c", config]);
        }
        Ok(git)
    }

    /// Out of reach of what is typed at the terminal.
    pub(super) fn undisturbed(mut self) -> Self {
        self.command.process_group(0);
        self
    }

    /// Runs it, whatever its exit code.
    pub(super) async fn output(mut self) -> Result<Output, Failure> {
        let shown = self.shown;
        self.command.output().await.map_err(|error| Failure::new(format!("cannot run git {shown}: {error}")))
    }

    /// Runs it; while it runs, `until` may end it.
    pub(super) async fn output_until(mut self, until: impl Future<Output = ()>) -> Result<Output, Failure> {
        let cannot = |error: io::Error| Failure::new(format!("cannot run git {}: {error}", self.shown));
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().map_err(cannot)?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        let ended = child.wait_with_output();
        tokio::pin!(ended);
        tokio::select! {
            output = &mut ended => return output.map_err(cannot),
            () = until => {}
        }
        if let Some(pid) = pid {
            // It may have ended by itself; it takes its lock files away either way.
            let _gone = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        ended.await.map_err(cannot)
    }

    /// Runs it; its stdout. Another exit code than 0 is an error in git's words.
    pub(super) async fn bytes(self) -> Result<Vec<u8>, Failure> {
        let shown = self.shown.clone();
        let output = self.output().await?;
        if output.status.success() { Ok(output.stdout) } else { Err(failure(&shown, &output)) }
    }

    /// The same as text without the last newline.
    pub(super) async fn text(self) -> Result<String, Failure> {
        let bytes = self.bytes().await?;
        Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\n').to_owned())
    }

    /// The same as a path.
    pub(super) async fn path(self) -> Result<PathBuf, Failure> {
        let mut bytes = self.bytes().await?;
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }

    /// Runs it; the fields of its stdout that end in NUL.
    pub(super) async fn fields(self) -> Result<Vec<OsString>, Failure> {
        Ok(fields(&self.bytes().await?))
    }

    /// Runs it with what `write` writes on its stdin; its stdout.
    pub(super) async fn feed(
        mut self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), Failure> + Send + 'static,
    ) -> Result<Vec<u8>, Failure> {
        let shown = self.shown;
        let cannot = |error: io::Error| Failure::new(format!("cannot run git {shown}: {error}"));
        let (reader, writer) = io::pipe().map_err(cannot)?;
        self.command.stdin(reader).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = self.command.spawn().map_err(cannot)?;
        // It holds the reader's end, too: without it a git that ended would not be noticed.
        drop(self.command);
        let written = tokio::task::spawn_blocking(move || {
            let mut out = BufWriter::new(writer);
            write(&mut out).and_then(|()| out.flush().map_err(|error| gone(&error)))
        });
        let output = child.wait_with_output().await.map_err(cannot)?;
        let written = written.await.map_err(|error| cannot(io::Error::other(error)))?;
        match written {
            // A git that ends early says why on its stderr.
            Err(failed) if failed.message == GONE && !output.status.success() => {
                Err(failure(&shown, &output))
            }
            Err(failed) => Err(failed),
            Ok(()) if output.status.success() => Ok(output.stdout),
            Ok(()) => Err(failure(&shown, &output)),
        }
    }
}

/// What a writer for [`Git::feed`] says when git does not read any more.
const GONE: &str = "git has stopped reading";

/// An error of writing to git.
pub(super) fn gone(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::new(GONE),
        _ => Failure::new(format!("cannot write to git: {error}")),
    }
}

/// What ends in NUL.
pub(super) fn fields(bytes: &[u8]) -> Vec<OsString> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|field| !field.is_empty())
        .map(|field| OsString::from_vec(field.to_vec()))
        .collect()
}

/// The keys under which a repository's own configuration names programs that merge files.
async fn merge_drivers(git_dir: &Path) -> Result<Vec<OsString>, Failure> {
    let asked = ["config", "-z", "--name-only", "--get-regexp", r"^merge\..*\.driver$"];
    // 1 is "none".
    let output = Git::hardened(git_dir).args(asked).output().await?;
    match output.status.code() {
        Some(0 | 1) => Ok(fields(&output.stdout)),
        _ => Err(failure("config", &output)),
    }
}

/// A merge in the store alone, where no tree of the user's is at hand: the attributes are those of `commit`, and no program
/// is run.
pub(super) async fn merging(git_dir: &Path, commit: &str) -> Result<Git, Failure> {
    let drivers = merge_drivers(git_dir).await?;
    Ok(Git::hardened(git_dir).env("GIT_ATTR_SOURCE", commit).failing(&drivers))
}

/// What git says when it does not know who commits.
const NAMELESS: [&str; 3] = ["tell me who you are", "identity unknown", "empty ident name"];

/// git's own words.
pub(super) fn failure(what: &str, output: &Output) -> Failure {
    let words = String::from_utf8_lossy(&output.stderr);
    let words = if words.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { words };
    let failure = Failure::new(format!("git {what} failed: {}", inert::block(words.trim())));
    if NAMELESS.iter().any(|part| words.contains(part)) {
        return failure.hint(
            "tell git who you are: git config --global user.name \"…\"; git config --global user.email \"…\"",
        );
    }
    failure
}

/// What is said of an agent's work that cannot be looked at.
pub(super) fn worded_work(name: &Slug, error: caliban_worktrees::Error) -> Failure {
    use caliban_worktrees::Error;
    match error {
        Error::NotFound { .. } => {
            let branch = caliban_worktrees::branch_of(name);
            Failure::new(format!("git has no record of the worktree of agent {name} any more")).hint(format!(
                "was it removed by hand? what was committed in it is on the branch {branch}, if that is there: git log {branch}"
            ))
        }
        Error::NotARepository { path, detail } => no_repo(&path, &detail),
        other => super::worded_git(other),
    }
}

/// What is said where git finds no repository; other words of git's are told.
pub(super) fn no_repo(dir: &Path, detail: &str) -> Failure {
    if !detail.contains("not a git repository") {
        let detail = inert::block(detail.trim()).into_owned();
        return Failure::new(format!("git does not work in {}: {detail}", dir.display()));
    }
    Failure::new(format!("{} is in no git repo any more", dir.display()))
        .hint("was it moved, or its .git deleted? what agents committed is in that .git")
}

/// Says that there is only what git has of an agent's work.
pub(super) fn say_if_files_are_gone(repo: &Repo, name: &Slug) {
    let place = repo.path_of(name);
    if place.symlink_metadata().is_err() {
        super::say(&format!("{} is gone: this is what was committed or staged in it", place.display()));
    }
}

/// Whether there is a commit to make a worktree from.
pub(super) fn has_commits(cwd: &Path) -> bool {
    match looks_committed(cwd) {
        Some(known) => known,
        None => {
            let mut git = std::process::Command::new("git");
            for name in DROPPED {
                git.env_remove(name);
            }
            git.current_dir(cwd).args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
            git.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            git.status().is_ok_and(|status| status.success())
        }
    }
}

/// The same from the files, for the usual repository: starting git costs more than the whole command.
fn looks_committed(cwd: &Path) -> Option<bool> {
    let Some(git) = git_dir(cwd) else { return Some(false) };
    let head = std::fs::read_to_string(git.join("HEAD")).ok()?;
    let head = head.trim();
    let Some(name) = head.strip_prefix("ref: ") else {
        return (head.len() >= 40 && head.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(true);
    };
    if !name.starts_with("refs/heads/") || name.contains("..") {
        return None;
    }
    if git.join(name).is_file() {
        return Some(true);
    }
    let packed = std::fs::read_to_string(git.join("packed-refs")).ok()?;
    packed.lines().any(|line| line.split_once(' ').is_some_and(|(_, packed)| packed == name)).then_some(true)
}

/// Whether this is among git's own files: in a bare repository, where nobody works.
pub(super) fn is_bare(cwd: &Path) -> bool {
    git_dir(cwd).is_some_and(|git| cwd.starts_with(git))
}

/// What git itself would find: a `.git`, or a directory that is a repository.
fn git_dir(cwd: &Path) -> Option<PathBuf> {
    let is_repo =
        |dir: &Path| dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir();
    cwd.ancestors().find_map(|dir| {
        let inside = Some(dir.join(".git")).filter(|git| git.symlink_metadata().is_ok());
        inside.or_else(|| is_repo(dir).then(|| dir.to_owned()))
    })
}

/// The record that the repository keeps of a linked worktree.
pub(super) fn admin_dir(common: &Path, worktree: &Path) -> Option<PathBuf> {
    let wanted = worktree.join(".git");
    std::fs::read_dir(common.join("worktrees")).ok()?.flatten().map(|entry| entry.path()).find(|admin| {
        let Ok(text) = std::fs::read(admin.join("gitdir")) else { return false };
        let named = PathBuf::from(OsString::from_vec(text.trim_ascii_end().to_vec()));
        // Newer gits may write it relative to the record.
        named == wanted
            || (named.is_relative() && admin.join(named).canonicalize().ok() == wanted.canonicalize().ok())
    })
}
