//! git calls of the fleet's verbs: plain ones in the user's own tree, hardened ones for what touches an agent's branch.
//!
//! In an agent's worktree no git is ever run from here: what an agent left uncommitted is read file by file and
//! committed through the repository's store alone (SANDBOX.md 5), without hooks, filters or attributes.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Output, Stdio},
};

use tokio::{io::AsyncWriteExt as _, process::Command};

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
const HARD_CONFIG: [&str; 12] = [
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
];

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

    pub(super) fn env(mut self, name: &str, value: &Path) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs it, whatever its exit code.
    pub(super) async fn output(mut self) -> Result<Output, Failure> {
        let shown = self.shown;
        self.command.output().await.map_err(|error| Failure::new(format!("cannot run git {shown}: {error}")))
    }

    /// Runs it; its stdout without the last newline. Another exit code than 0 is an error in git's words.
    pub(super) async fn text(self) -> Result<String, Failure> {
        let shown = self.shown.clone();
        let output = self.output().await?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
        } else {
            Err(failure(&shown, &output))
        }
    }

    /// Runs it; the fields of its stdout that end in NUL.
    pub(super) async fn fields(self) -> Result<Vec<String>, Failure> {
        let text = self.text().await?;
        Ok(text.split('\0').filter(|field| !field.is_empty()).map(str::to_owned).collect())
    }

    /// Runs it with this on its stdin.
    pub(super) async fn feed(mut self, input: Vec<u8>) -> Result<(), Failure> {
        let shown = self.shown;
        let cannot = |error: std::io::Error| Failure::new(format!("cannot run git {shown}: {error}"));
        self.command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(cannot)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A git that ends early says why on its stderr.
            let _told_below = stdin.write_all(&input).await;
        }
        let output = child.wait_with_output().await.map_err(cannot)?;
        if output.status.success() { Ok(()) } else { Err(failure(&shown, &output)) }
    }
}

/// git's own words.
pub(super) fn failure(what: &str, output: &Output) -> Failure {
    let words = String::from_utf8_lossy(&output.stderr);
    let words = if words.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { words };
    Failure::new(format!("git {what} failed: {}", caliban_core::inert::block(words.trim())))
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
    let found = cwd.ancestors().map(|dir| dir.join(".git")).find(|git| git.symlink_metadata().is_ok());
    let Some(git) = found else { return Some(false) };
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

/// The record that the repository keeps of a linked worktree.
pub(super) fn admin_dir(common: &Path, worktree: &Path) -> Option<PathBuf> {
    let wanted = worktree.join(".git");
    std::fs::read_dir(common.join("worktrees")).ok()?.flatten().map(|entry| entry.path()).find(|admin| {
        std::fs::read_to_string(admin.join("gitdir")).is_ok_and(|text| Path::new(text.trim_end()) == wanted)
    })
}
