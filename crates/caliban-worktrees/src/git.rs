//! Starting `git`: the three environments it runs in, its output under caps, and its end on cancellation.
//!
//! - *Hardened* calls read the store and what an agent could have written. No hook, filter, driver, monitor, helper,
//!   prompt or network is used, and git is told its directories instead of finding a `.git` file or `commondir`. The
//!   repository's own configuration, attributes and grafts are not read ([`common_directory`]). A call that makes no progress ends.
//! - *Trusted* calls work in the user's own tree or make a worktree before an agent is in it. The user's configuration,
//!   filters (LFS) and merge drivers count; hooks do not run.
//! - [`Git::as_user`] is for what lands work in the user's name: `merge` and `commit` in their tree, and a commit that is
//!   signed. They do what they would do if the user had typed them, hooks and terminal included.

mod common_directory;
mod hardening;
mod stall;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

pub(crate) use self::common_directory::StoreFormat;
use self::common_directory::StoreView;
pub(crate) use self::hardening::{DROPPED, PLAIN_DIFF, READING_CONFIG};
use self::hardening::{HARD_CONFIG, HARD_ENV, NO_EXCLUDES, OUTSIDE_ENV, TRUSTED_CONFIG};
use crate::accepted_git::AcceptedGit;
use crate::error::{Error, Result};
use crate::marker::Oid;
use crate::repo::split_nul;

/// Most that one git command may answer.
const STDOUT_CAP: usize = 256 * 1024 * 1024;
/// How much of the end of stderr is kept.
const STDERR_CAP: usize = 16 * 1024;
/// The usual [`GitOptions::patience`].
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a git that was told to end may take to remove its lock files.
const END_GRACE: Duration = Duration::from_secs(2);
/// How long hooks may go on after git was asked to end.
const HOOK_GRACE: Duration = Duration::from_secs(5);
/// How often a command that met another git's lock is tried again, and the longest pause between.
const LOCK_TRIES: u32 = 60;
const LOCK_PAUSE_MS: u64 = 100;

/// What git says when the disk, or the user's quota, is full.
const NO_ROOM: [&str; 2] = ["No space left on device", "Disk quota exceeded"];

/// Which git to run, and with what environment.
#[derive(Debug, Clone)]
pub struct GitOptions {
    /// The program, looked up in `PATH` when it is a bare name.
    pub program: PathBuf,
    /// Where its environment comes from.
    pub environment: GitEnvironment,
    /// Where directories are made that live as long as one call.
    pub scratch: PathBuf,
    /// How long a call on an agent's files may sleep without any progress: a pipe in the place of `.gitignore` makes git
    /// wait for ever.
    pub patience: Duration,
    /// Whether somebody sits at a terminal that hooks may ask. Without one, hooks are ended with a merge that is cut short.
    pub has_terminal: bool,
    /// Our own program, which puts fences up: what an agent's private git holds is read in one.
    pub helper: Option<PathBuf>,
    /// Git directories that a person has accepted although they do not say whose they are.
    pub accepted: AcceptedGit,
}

impl GitOptions {
    /// The usual ones, with what a person accepted for this repo; `base` is its data directory.
    pub fn accepting(base: &Path) -> Self {
        Self { accepted: AcceptedGit::read(base), ..Self::default() }
    }
}

impl Default for GitOptions {
    fn default() -> Self {
        Self {
            program: "git".into(),
            environment: GitEnvironment::Inherit,
            scratch: std::env::temp_dir(),
            patience: PATIENCE,
            has_terminal: true,
            helper: std::env::current_exe().ok(),
            accepted: AcceptedGit::default(),
        }
    }
}

/// Where the environment of git comes from.
#[derive(Debug, Clone)]
pub enum GitEnvironment {
    /// This process's own, without what would point git somewhere else.
    Inherit,
    /// Exactly these variables.
    Exactly(BTreeMap<OsString, OsString>),
}

/// The directories of a call. git gets them as arguments and never searches for a repository itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum GitPlace<'a> {
    /// Only the store: objects and refs.
    Store { common: &'a Path },
    /// A worktree: its administrative directory and its files.
    Tree { common: &'a Path, git_dir: &'a Path, files: &'a Path },
    /// A store that we made ourselves, with the files that it is asked about.
    Own { store: &'a Path, files: Option<&'a Path> },
}

/// What a hardened call takes from outside of the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outside {
    Nothing,
    /// The user's ignore file, wherever their configuration has it.
    UsersRules,
}

#[derive(Debug)]
pub(crate) struct GitOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
    command: String,
}

impl GitOutput {
    pub(crate) fn ok(self) -> Result<Self> {
        if self.status.success() { Ok(self) } else { Err(self.failure()) }
    }

    pub(crate) fn failure(self) -> Error {
        if has_no_room(&self.stderr) {
            return Error::DiskFull(format!("running git {}", self.command));
        }
        let mut words = self.stderr.trim().to_owned();
        if words.is_empty() {
            // `git commit` says on stdout that there is nothing to commit.
            let end = self.stdout.len().saturating_sub(STDERR_CAP);
            words = String::from_utf8_lossy(&self.stdout[end..]).trim().to_owned();
        }
        Error::of_git(self.command, self.status.code(), words)
    }

    /// The answer as one trimmed line.
    pub(crate) fn line(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim_end().to_owned()
    }

    /// The answer as an object id; `None` when git failed or said something else.
    pub(crate) fn oid(&self) -> Option<Oid> {
        Oid::parse(&self.line()).filter(|_| self.status.success())
    }

    /// The answer's fields, each of which ends in NUL.
    pub(crate) fn fields(&self) -> Vec<OsString> {
        split_nul(&self.stdout).map(|field| OsString::from_vec(field.to_vec())).collect()
    }
}

/// One call, before it runs.
pub(crate) struct GitCall {
    command: Command,
    name: String,
    stdin: Option<Vec<u8>>,
    on_cancel: OnCancel,
    cancel: CancellationToken,
    /// What git takes for the common directory; an error to be told instead of a start.
    view: Result<Option<StoreView>>,
    /// How long it may make no progress, if that is limited.
    patience: Option<Duration>,
}

/// What a cancellation does to a running call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnCancel {
    /// Ends git and everything it started; the call is [`Error::Cancelled`].
    EndGroup,
    /// Asks git alone to end, and waits until it and its hooks are done. Its output tells what it did.
    Ask,
    /// The same, but hooks that go on are ended after a while. For a git in a process group of its own.
    AskThenEnd,
}

impl GitCall {
    fn new(git: &Git, mut command: Command, subcommand: &str, on_cancel: OnCancel) -> Self {
        command.arg(subcommand);
        let (name, cancel) = (subcommand.to_owned(), git.cancel.clone());
        Self { command, name, stdin: None, on_cancel, cancel, view: Ok(None), patience: None }
    }

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

    /// With each of these settings set to `value`. Through the environment: a name may hold a `=`, which `-c` could not spell.
    pub(crate) fn with_each(mut self, settings: &[OsString], value: &str) -> Self {
        self.command.env("GIT_CONFIG_COUNT", settings.len().to_string());
        for (n, key) in settings.iter().enumerate() {
            self = self.env(&format!("GIT_CONFIG_KEY_{n}"), key).env(&format!("GIT_CONFIG_VALUE_{n}"), value);
        }
        self
    }

    /// Whether its exit code is 0, for a caller that cannot await.
    pub(crate) fn succeeds_blocking(mut self) -> bool {
        let command = self.command.as_std_mut();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Runs it to its end, for a caller that cannot await. It reads what we wrote and the repository, so it is not watched.
    pub(crate) fn run_blocking(self) -> Result<GitOutput> {
        use std::io::Write as _;
        let Self { mut command, name, stdin, view, .. } = self;
        let _view = view?;
        let std = command.as_std_mut();
        std.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        std.stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = std.spawn();
        let mut child =
            spawned.map_err(|source| Error::GitMissing { program: std.get_program().into(), source })?;
        let to = child.stdin.take();
        let done = std::thread::scope(|scope| {
            if let (Some(mut to), Some(bytes)) = (to, stdin) {
                // A git that ends early closes its end; its exit code says why.
                scope.spawn(move || to.write_all(&bytes));
            }
            child.wait_with_output()
        });
        let done = done.map_err(|e| Error::io(format!("waiting for git {name}"), e))?;
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        Ok(GitOutput { status: done.status, stdout: done.stdout, stderr, command: name })
    }

    /// The same with this as its input.
    pub(crate) fn run_blocking_from(self, stdin: Stdio) -> Result<GitOutput> {
        let Self { mut command, name, view, .. } = self;
        let _view = view?;
        let std = command.as_std_mut();
        let done = std.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).output();
        let done = done.map_err(|source| Error::GitMissing { program: std.get_program().into(), source })?;
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        Ok(GitOutput { status: done.status, stdout: done.stdout, stderr, command: name })
    }

    /// Like [`Self::run_blocking`]; another exit code than 0 is an error.
    pub(crate) fn ok_blocking(self) -> Result<GitOutput> {
        self.run_blocking()?.ok()
    }

    /// It ends when it makes no progress for so long.
    pub(crate) fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    pub(crate) fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// Runs it to its end; another exit code than 0 is an error.
    pub(crate) async fn ok(self) -> Result<GitOutput> {
        self.run().await?.ok()
    }

    /// Whether its exit code is 0.
    pub(crate) async fn succeeds(self) -> Result<bool> {
        Ok(self.run().await?.status.success())
    }

    /// Runs it to its end, whatever its exit code.
    pub(crate) async fn run(self) -> Result<GitOutput> {
        self.watch(&|_| {}).await
    }

    /// Runs it and hands over each line (or progress line) of stderr as it comes.
    pub(crate) async fn watch(self, line: &(dyn Fn(&str) + Sync)) -> Result<GitOutput> {
        let Self { mut command, name, stdin, on_cancel, cancel, view, patience } = self;
        command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let view = view?;
        let running = Running { child: spawn(&mut command)?, name, on_cancel, cancel, patience, _view: view };
        running.finish_with(stdin, line).await
    }

    /// Starts it with the given end of a pipe as stdin; the caller waits with [`Running::finish`]. It may have to wait for
    /// what the caller writes, so its progress is not watched.
    pub(crate) fn start(self, stdin: Stdio, stdout: Stdio) -> Result<Running> {
        let Self { mut command, name, on_cancel, cancel, view, .. } = self;
        command.stdin(stdin).stdout(stdout).stderr(Stdio::piped());
        let view = view?;
        Ok(Running { child: spawn(&mut command)?, name, on_cancel, cancel, patience: None, _view: view })
    }
}

pub(crate) struct Running {
    pub(crate) child: Child,
    name: String,
    on_cancel: OnCancel,
    pub(crate) cancel: CancellationToken,
    patience: Option<Duration>,
    _view: Option<StoreView>,
}

impl Running {
    /// Waits for its end and takes what is left of its output.
    pub(crate) async fn finish(self) -> Result<GitOutput> {
        self.finish_with(None, &|_| {}).await
    }

    async fn finish_with(
        mut self,
        stdin: Option<Vec<u8>>,
        line: &(dyn Fn(&str) + Sync),
    ) -> Result<GitOutput> {
        let Self { child, name, on_cancel, cancel, patience, .. } = &mut self;
        let leader = pid_of(child);
        let to = child.stdin.take().filter(|_| stdin.is_some());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let mut stopped = Error::Cancelled;
        let done = {
            let work = async {
                let feed = async {
                    if let (Some(mut to), Some(bytes)) = (to, stdin) {
                        // A git that ends early closes its end; its exit code says why.
                        let _closed = to.write_all(&bytes).await;
                    }
                };
                let ((), stdout, stderr) = tokio::join!(feed, read_capped(out), read_lines(err, line));
                let status =
                    child.wait().await.map_err(|e| Error::io(format!("waiting for git {name}"), e))?;
                let stdout = stdout.map_err(|e| Error::io(format!("reading from git {name}"), e))?;
                Ok::<_, Error>((status, stdout, stderr))
            };
            tokio::pin!(work);
            tokio::select! {
                done = &mut work => Some(done),
                    () = cancel.cancelled() => {
                     if let (Some(leader), OnCancel::Ask | OnCancel::AskThenEnd) = (leader, *on_cancel) {
                        // It may have ended by itself.
                        let _gone = rustix::process::kill_process(leader, rustix::process::Signal::TERM);
                    }
                    match on_cancel {
                        OnCancel::EndGroup => None,
                        OnCancel::Ask => Some(work.await),
                        OnCancel::AskThenEnd => end_hooks(leader, &mut work).await,
                    }
                }
                () = stall::stalled(leader, *patience) => {
                    stopped = Error::Stalled(name.clone());
                    None
                }
            }
        };
        let Some(done) = done else {
            end_group(&mut self.child).await;
            return Err(stopped);
        };
        let (status, stdout, stderr) = done?;
        Ok(GitOutput { status, stdout, stderr, command: self.name })
    }
}

/// How git is started everywhere in this crate.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    pub(crate) options: GitOptions,
    /// The empty tree of the repository's object format: no attribute comes from it.
    pub(crate) no_attributes: &'static str,
    /// What hardened calls are told instead of the repository's configuration.
    pub(crate) format: StoreFormat,
    /// Ends its calls: the caller has given up.
    pub(crate) cancel: CancellationToken,
}

impl Git {
    /// For another caller.
    pub(crate) fn until(&self, cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), ..self.clone() }
    }

    /// Runs what `call` makes until it does not fail on another git's lock.
    pub(crate) async fn retry_locks(
        &self,
        line: &(dyn Fn(&str) + Sync),
        call: impl Fn() -> GitCall,
    ) -> Result<GitOutput> {
        let mut tries = 0;
        loop {
            let output = call().watch(line).await?;
            tries += 1;
            if output.status.success() || tries == LOCK_TRIES || !met_a_lock(&output.stderr) {
                return Ok(output);
            }
            let pause = Duration::from_millis(LOCK_PAUSE_MS.min(5 << tries.min(6)));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.cancel.cancelled() => return Err(Error::Cancelled),
            }
        }
    }

    /// A call that trusts the user's configuration.
    pub(crate) fn trusted(&self, directory: &Path, subcommand: &str) -> GitCall {
        let mut command = base_command(&self.options);
        command.current_dir(directory).env("GIT_PROGRESS_DELAY", "0");
        for config in TRUSTED_CONFIG {
            command.arg("-c").arg(config);
        }
        GitCall::new(self, command, subcommand, OnCancel::EndGroup)
    }

    /// A call exactly as the user would make it. Where there is a terminal it stays in our process group: a hook may ask
    /// something there.
    pub(crate) fn as_user(&self, directory: &Path, subcommand: &str) -> GitCall {
        let mut command = Command::new(&self.options.program);
        choose_environment(&mut command, &self.options);
        command.current_dir(directory).kill_on_drop(true);
        if self.options.has_terminal {
            return GitCall::new(self, command, subcommand, OnCancel::Ask);
        }
        command.process_group(0);
        GitCall::new(self, command, subcommand, OnCancel::AskThenEnd)
    }

    /// A call that trusts nothing.
    pub(crate) fn hardened(&self, place: GitPlace<'_>, subcommand: &str) -> GitCall {
        self.hardened_with(place, Outside::Nothing, &[], subcommand)
    }

    /// A call that trusts nothing of the place, and knows what the user wants ignored everywhere.
    pub(crate) fn with_users_rules(&self, place: GitPlace<'_>, subcommand: &str) -> GitCall {
        self.hardened_with(place, Outside::UsersRules, &[], subcommand)
    }

    /// The same for a call that saves work: what it wrote is on the disk when it ends.
    pub(crate) fn durable(&self, place: GitPlace<'_>, subcommand: &str) -> GitCall {
        self.hardened_with(place, Outside::Nothing, &["core.fsync=all"], subcommand)
    }

    fn hardened_with(
        &self,
        place: GitPlace<'_>,
        outside: Outside,
        more: &[&str],
        subcommand: &str,
    ) -> GitCall {
        let mut command = base_command(&self.options);
        let (store, git_dir, files) = match place {
            GitPlace::Store { common } => (Some(common), common, None),
            GitPlace::Tree { common, git_dir, files } => (Some(common), git_dir, Some(files)),
            GitPlace::Own { store, files } => (None, store, files),
        };
        let view = store.map(|store| StoreView::new(store, &self.options.scratch, &self.format)).transpose();
        let common = view.as_ref().ok().and_then(Option::as_ref).map_or(git_dir, StoreView::path);
        command.current_dir(files.unwrap_or(git_dir)).env("GIT_DIR", git_dir).env("GIT_COMMON_DIR", common);
        if let Some(files) = files {
            command.env("GIT_WORK_TREE", files);
        }
        let is_taken = |name: &str| outside == Outside::Nothing || !OUTSIDE_ENV.contains(&name);
        command.envs(HARD_ENV.into_iter().filter(|(name, _)| is_taken(name)));
        command.env("GIT_ATTR_SOURCE", self.no_attributes);
        command.arg("--no-pager");
        let is_taken = |config: &&&str| outside == Outside::Nothing || **config != NO_EXCLUDES;
        for config in HARD_CONFIG.iter().filter(is_taken).chain(more) {
            command.arg("-c").arg(config);
        }
        if cfg!(target_os = "linux") {
            command.arg("-c").arg("core.ignoreCase=false");
        }
        let call = GitCall::new(self, command, subcommand, OnCancel::EndGroup);
        GitCall { view, patience: Some(self.options.patience), ..call }
    }
}

fn has_no_room(stderr: &str) -> bool {
    NO_ROOM.iter().any(|words| stderr.contains(words))
}

fn met_a_lock(stderr: &str) -> bool {
    (stderr.contains("could not lock config file") && !has_no_room(stderr))
        || (stderr.contains(".lock'") && stderr.contains("File exists"))
        || stderr.contains("Another git process seems to be running")
        // A record that another git is writing or deleting.
        || (stderr.contains("failed to read") && stderr.contains("/worktrees/"))
}

/// A command with the chosen environment, without anything that would lead git astray.
fn base_command(options: &GitOptions) -> Command {
    let mut command = Command::new(&options.program);
    choose_environment(&mut command, options);
    command.kill_on_drop(true).process_group(0);
    command.env("GIT_TERMINAL_PROMPT", "0").env("LC_ALL", "C").env("LANGUAGE", "");
    command
}

fn choose_environment(command: &mut Command, options: &GitOptions) {
    if let GitEnvironment::Exactly(variables) = &options.environment {
        command.env_clear().envs(variables);
    }
    for name in DROPPED {
        command.env_remove(name);
    }
    // `.git/info/grafts` would make other histories: an agent's branch merged, or related to nothing.
    command.env("GIT_GRAFT_FILE", "/dev/null");
}

fn spawn(command: &mut Command) -> Result<Child> {
    command
        .spawn()
        .map_err(|source| Error::GitMissing { program: command.as_std().get_program().into(), source })
}

fn pid_of(child: &Child) -> Option<rustix::process::Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw)
}

/// Ends a child and all that it started: TERM, so that git removes its lock files, then KILL.
async fn end_group(child: &mut Child) {
    let Some(group) = pid_of(child) else { return };
    // Best effort by name: the group may be gone already.
    let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
    let waited = tokio::time::timeout(END_GRACE, child.wait()).await;
    let _gone = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    if waited.is_err() {
        let _reaped = child.wait().await;
    }
}

/// Waits for a git that was asked to end, and ends its hooks when they take long. `None` when something of it goes on even
/// then.
async fn end_hooks<T>(
    leader: Option<rustix::process::Pid>,
    mut work: impl Future<Output = T> + Unpin,
) -> Option<T> {
    if let Ok(done) = tokio::time::timeout(HOOK_GRACE, &mut work).await {
        return Some(done);
    }
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::KILL] {
        if let Some(leader) = leader {
            // The group of git is its hooks': it is there for as long as one of them is.
            let _gone = rustix::process::kill_process_group(leader, signal);
        }
        if let Ok(done) = tokio::time::timeout(END_GRACE, &mut work).await {
            return Some(done);
        }
    }
    None
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
