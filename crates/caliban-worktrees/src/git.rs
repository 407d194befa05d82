//! Starting `git`: the two environments it runs in, its output under caps, and its end on cancellation.
//!
//! *Hardened* calls (SANDBOX.md 5) are for everything that looks at what an agent could have written: no
//! hooks, filters, drivers, monitors, helpers, prompts or network, and never a `.git` file or `commondir`
//! found on disk. *Trusted* calls are for making a worktree, before any agent was in it: the user's own
//! configuration and filters (LFS) count, hooks still do not run.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};

/// Most that one git command may answer.
const STDOUT_CAP: usize = 256 * 1024 * 1024;
/// How much of the end of stderr is kept.
const STDERR_CAP: usize = 16 * 1024;
/// How long a git that was told to end may take to remove its lock files.
const END_GRACE: Duration = Duration::from_secs(2);
/// How often a command that met another git's lock is tried again, and the longest pause between.
const LOCK_TRIES: u32 = 60;
const LOCK_PAUSE_MS: u64 = 100;

/// Which git to run, and with what environment.
#[derive(Debug, Clone)]
pub struct GitOptions {
    /// The program, looked up in `PATH` when it is a bare name.
    pub program: PathBuf,
    /// Where its environment comes from.
    pub environment: Environment,
}

impl Default for GitOptions {
    fn default() -> Self {
        Self { program: "git".into(), environment: Environment::Inherit }
    }
}

/// Where the environment of git and of setup commands comes from.
#[derive(Debug, Clone)]
pub enum Environment {
    /// This process's own, without what would point git somewhere else.
    Inherit,
    /// Exactly these variables.
    Exactly(BTreeMap<OsString, OsString>),
}

/// Variables that change which repository, index or configuration a git works on, or make it run or
/// write something (`git rev-parse --local-env-vars` and the tracing and program ones).
const DROPPED: [&str; 41] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_OBJECT_DIRECTORY",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_REPLACE_REF_BASE",
    "GIT_PREFIX",
    "GIT_SHALLOW_FILE",
    "GIT_COMMON_DIR",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NAMESPACE",
    "GIT_QUARANTINE_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_ATTR_SOURCE",
    "GIT_ATTR_NOSYSTEM",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_TRACE2_PERF",
    "GIT_TRACE_SETUP",
    "GIT_TRACE_PACKET",
    "GIT_TRACE_PERFORMANCE",
    "GIT_TRACE_CURL",
    "GIT_INDEX_VERSION",
    "GIT_DEFAULT_HASH",
    "GIT_REFLOG_ACTION",
    "GIT_ADVICE",
    "GIT_FLUSH",
    "GIT_REF_PARANOIA",
    "GIT_ALLOW_PROTOCOL",
];

/// What a hardened call sets (SANDBOX.md 5), beside the directories and the attribute source.
const HARD_ENV: [(&str, &str); 12] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_EDITOR", "false"),
    ("GIT_SEQUENCE_EDITOR", "false"),
    ("GIT_PAGER", "cat"),
    ("GIT_ASKPASS", "false"),
    ("GIT_SSH_COMMAND", "false"),
    ("GIT_ATTR_NOSYSTEM", "1"),
];

/// Those of [`HARD_ENV`] that keep the configuration of the user and of the machine out.
const OUTSIDE_ENV: [&str; 2] = ["GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL"];
/// Keeps the user's own ignore file out.
const NO_EXCLUDES: &str = "core.excludesFile=/dev/null";

/// The configuration of a hardened call. Beyond SANDBOX.md 5: what could hide a change from `status`
/// (untracked cache, case folding, stale sparse bits).
const HARD_CONFIG: [&str; 45] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.attributesFile=/dev/null",
    NO_EXCLUDES,
    "core.pager=cat",
    "core.editor=false",
    "sequence.editor=false",
    "core.askPass=",
    "core.sshCommand=false",
    "core.gitProxy=",
    "core.alternateRefsCommand=",
    "diff.external=",
    "diff.submodule=short",
    "diff.ignoreSubmodules=all",
    "submodule.recurse=false",
    "status.submoduleSummary=false",
    "commit.gpgSign=false",
    "tag.gpgSign=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "credential.helper=",
    "protocol.allow=never",
    "protocol.ext.allow=never",
    "protocol.file.allow=never",
    "gc.auto=0",
    "gc.recentObjectsHook=",
    "maintenance.auto=false",
    "commit.template=",
    "rerere.enabled=false",
    "core.untrackedCache=false",
    "core.sparseCheckout=true",
    "sparse.expectFilesOutsideOfPatterns=false",
    "core.trustctime=true",
    "core.checkStat=default",
    "core.splitIndex=false",
    "color.ui=never",
    "core.quotePath=false",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.orderFile=/dev/null",
    "log.showRoot=true",
    "core.commitGraph=false",
    "core.logAllRefUpdates=false",
];

/// What a trusted call sets: never a hook, a monitor or a question on the terminal.
const TRUSTED_CONFIG: [&str; 6] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "checkout.workers=0",
];

/// Where a call looks: git is told, it never finds out by itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Only the store: objects, refs, configuration.
    Store { common: &'a Path },
    /// A worktree: its administrative directory and its files.
    Tree { common: &'a Path, git_dir: &'a Path, files: &'a Path },
}

/// What a hardened call takes from outside of the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    Nothing,
    /// The user's ignore file, wherever their configuration has it.
    UsersRules,
}

/// What ran and what it said.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    command: String,
}

impl Output {
    pub(crate) fn ok(self) -> Result<Self> {
        if self.status.success() { Ok(self) } else { Err(self.failure()) }
    }

    pub(crate) fn failure(self) -> Error {
        if self.stderr.contains("No space left on device") {
            return Error::DiskFull { doing: format!("running git {}", self.command) };
        }
        Error::Git { command: self.command, code: self.status.code(), stderr: self.stderr.trim().to_owned() }
    }

    /// The answer as one trimmed line.
    pub(crate) fn line(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }
}

/// One call, before it runs.
pub(crate) struct Call {
    command: Command,
    name: String,
    stdin: Option<Vec<u8>>,
}

impl Call {
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(key, value);
        self
    }

    pub(crate) fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// Runs it to its end.
    pub(crate) async fn run(self, cancel: &CancellationToken) -> Result<Output> {
        self.watch(cancel, &|_| {}).await
    }

    /// Runs it and hands over each line (or progress line) of stderr as it comes.
    pub(crate) async fn watch(
        self,
        cancel: &CancellationToken,
        line: &(dyn Fn(&str) + Sync),
    ) -> Result<Output> {
        let Self { mut command, name, stdin } = self;
        command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn(&mut command)?;
        let (to, out, err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let work = async {
            let feed = async {
                if let (Some(mut to), Some(bytes)) = (to, stdin) {
                    // A git that ends early closes its end; its exit code says why.
                    let _closed = to.write_all(&bytes).await;
                }
            };
            let ((), stdout, stderr) = tokio::join!(feed, read_capped(out), read_lines(err, line));
            let status = child.wait().await.map_err(|e| Error::io(format!("waiting for git {name}"), e))?;
            Ok::<_, Error>((
                status,
                stdout.map_err(|e| Error::io(format!("reading from git {name}"), e))?,
                stderr,
            ))
        };
        let done = tokio::select! {
            done = work => Some(done),
            () = cancel.cancelled() => None,
        };
        match done {
            Some(done) => {
                let (status, stdout, stderr) = done?;
                Ok(Output { status, stdout, stderr, command: name })
            }
            None => {
                end_group(&mut child).await;
                Err(Error::Cancelled)
            }
        }
    }

    /// Starts it with the given end of a pipe as stdin; the caller waits with [`finish`].
    pub(crate) fn start(self, stdin: Stdio, stdout: Stdio) -> Result<Running> {
        let Self { mut command, name, .. } = self;
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        Ok(Running { child: spawn(&mut command)?, name })
    }
}

/// A started call.
pub(crate) struct Running {
    pub(crate) child: Child,
    name: String,
}

impl Running {
    /// Waits for its end and takes what is left of its output.
    pub(crate) async fn finish(mut self, cancel: &CancellationToken) -> Result<Output> {
        let (out, err) = (self.child.stdout.take(), self.child.stderr.take());
        let work = async {
            let (stdout, stderr) = tokio::join!(read_capped(out), read_lines(err, &|_| {}));
            let status = self.child.wait().await.map_err(|e| Error::io("waiting for git", e))?;
            Ok::<_, Error>((status, stdout.map_err(|e| Error::io("reading from git", e))?, stderr))
        };
        let done = tokio::select! {
            done = work => Some(done),
            () = cancel.cancelled() => None,
        };
        match done {
            Some(done) => {
                let (status, stdout, stderr) = done?;
                Ok(Output { status, stdout, stderr, command: self.name })
            }
            None => {
                end_group(&mut self.child).await;
                Err(Error::Cancelled)
            }
        }
    }
}

/// How git is started everywhere in this crate.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    pub(crate) options: GitOptions,
    /// The empty tree of the repository's object format: no attribute comes from it.
    pub(crate) no_attributes: &'static str,
    /// `filter.x.clean` and the like found in the repository's configuration: each is set to nothing.
    pub(crate) drivers: Vec<OsString>,
}

impl Git {
    /// A call that trusts the user's configuration.
    pub(crate) fn trusted(&self, directory: &Path, subcommand: &str) -> Call {
        let mut command = base_command(&self.options);
        command.current_dir(directory).env("GIT_PROGRESS_DELAY", "0");
        for config in TRUSTED_CONFIG {
            command.arg("-c").arg(config);
        }
        command.arg(subcommand);
        Call { command, name: subcommand.to_owned(), stdin: None }
    }

    /// A call that trusts nothing.
    pub(crate) fn hardened(&self, place: Place<'_>, subcommand: &str) -> Call {
        self.hardened_with(place, Outside::Nothing, &[], subcommand)
    }

    /// A call that trusts nothing of the place, and knows what the user wants ignored everywhere.
    pub(crate) fn with_users_rules(&self, place: Place<'_>, subcommand: &str) -> Call {
        self.hardened_with(place, Outside::UsersRules, &[], subcommand)
    }

    /// The same for a call that saves work: what it wrote is on the disk when it ends.
    pub(crate) fn durable(&self, place: Place<'_>, subcommand: &str) -> Call {
        self.hardened_with(place, Outside::Nothing, &["core.fsync=all"], subcommand)
    }

    fn hardened_with(&self, place: Place<'_>, outside: Outside, more: &[&str], subcommand: &str) -> Call {
        let mut command = base_command(&self.options);
        match place {
            Place::Store { common } => {
                command.current_dir(common).env("GIT_DIR", common).env("GIT_COMMON_DIR", common);
            }
            Place::Tree { common, git_dir, files } => {
                command.current_dir(files).env("GIT_DIR", git_dir).env("GIT_COMMON_DIR", common);
                command.env("GIT_WORK_TREE", files);
            }
        }
        let is_taken = |name: &str| outside == Outside::Nothing || !OUTSIDE_ENV.contains(&name);
        command.envs(HARD_ENV.into_iter().filter(|(name, _)| is_taken(name)));
        command.env("GIT_ATTR_SOURCE", self.no_attributes);
        // Keys that a `-c` could not spell (a driver's name may hold '=') go through the environment.
        command.env("GIT_CONFIG_COUNT", self.drivers.len().to_string());
        for (n, key) in self.drivers.iter().enumerate() {
            // An empty merge driver would succeed and keep "ours"; one that fails is a conflict, as it should be.
            let nothing = if key.as_encoded_bytes().ends_with(b".driver") { "false" } else { "" };
            command.env(format!("GIT_CONFIG_KEY_{n}"), key).env(format!("GIT_CONFIG_VALUE_{n}"), nothing);
        }
        command.arg("--no-pager");
        let is_taken = |config: &&&str| outside == Outside::Nothing || **config != NO_EXCLUDES;
        for config in HARD_CONFIG.iter().filter(is_taken).chain(more) {
            command.arg("-c").arg(config);
        }
        if cfg!(target_os = "linux") {
            command.arg("-c").arg("core.ignoreCase=false");
        }
        command.arg(subcommand);
        Call { command, name: subcommand.to_owned(), stdin: None }
    }
}

/// Runs what `call` makes until it does not fail on another git's lock.
pub(crate) async fn retry_locks(
    cancel: &CancellationToken,
    line: &(dyn Fn(&str) + Sync),
    call: impl Fn() -> Call,
) -> Result<Output> {
    let mut tries = 0;
    loop {
        let output = call().watch(cancel, line).await?;
        tries += 1;
        if output.status.success() || tries == LOCK_TRIES || !met_a_lock(&output.stderr) {
            return Ok(output);
        }
        let pause = Duration::from_millis(LOCK_PAUSE_MS.min(5 << tries.min(6)));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = cancel.cancelled() => return Err(Error::Cancelled),
        }
    }
}

fn met_a_lock(stderr: &str) -> bool {
    stderr.contains("could not lock config file")
        || (stderr.contains(".lock'") && stderr.contains("File exists"))
        || stderr.contains("Another git process seems to be running")
        // A record that another git is writing or deleting.
        || (stderr.contains("failed to read") && stderr.contains("/worktrees/"))
}

/// A command with the chosen environment, without anything that would lead git astray.
pub(crate) fn base_command(options: &GitOptions) -> Command {
    let mut command = Command::new(&options.program);
    apply_environment(&mut command, options);
    command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C").env("LANGUAGE", "");
    command
}

pub(crate) fn apply_environment(command: &mut Command, options: &GitOptions) {
    if let Environment::Exactly(variables) = &options.environment {
        command.env_clear().envs(variables);
    }
    for name in DROPPED {
        command.env_remove(name);
    }
    command.kill_on_drop(true).process_group(0);
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .map_err(|source| Error::GitMissing { program: command.as_std().get_program().into(), source })
}

/// Ends a child and all that it started: TERM, so that git removes its lock files, then KILL.
pub(crate) async fn end_group(child: &mut Child) {
    let Some(group) =
        child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    // Best effort by name: the group may be gone already.
    let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    let waited = tokio::time::timeout(END_GRACE, child.wait()).await;
    let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    if waited.is_err() {
        let _reaped = child.wait().await;
    }
}

async fn read_capped(stream: Option<impl AsyncRead + Unpin>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        stream.take(STDOUT_CAP as u64 + 1).read_to_end(&mut bytes).await?;
        if bytes.len() > STDOUT_CAP {
            return Err(io::Error::other(format!("it answered more than {STDOUT_CAP} bytes")));
        }
    }
    Ok(bytes)
}

/// Reads to the end, keeps the end under a cap, and hands over each line; `\r` ends a line too.
async fn read_lines(stream: Option<impl AsyncRead + Unpin>, line: &(dyn Fn(&str) + Sync)) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let (mut kept, mut open, mut buffer) = (Vec::new(), Vec::new(), vec![0; 8192]);
    while let Ok(n @ 1..) = stream.read(&mut buffer).await {
        for byte in &buffer[..n] {
            match byte {
                b'\n' | b'\r' => {
                    line(&String::from_utf8_lossy(&open));
                    // Progress lines are shown as they come and are no part of an error.
                    if *byte == b'\n' {
                        kept.append(&mut open);
                        kept.push(b'\n');
                    }
                    open.clear();
                }
                _ if open.len() < STDERR_CAP => open.push(*byte),
                _ => {}
            }
        }
        if kept.len() > 2 * STDERR_CAP {
            kept.drain(..kept.len() - STDERR_CAP);
        }
    }
    kept.append(&mut open);
    let start = kept.len().saturating_sub(STDERR_CAP);
    String::from_utf8_lossy(&kept[start..]).into_owned()
}
