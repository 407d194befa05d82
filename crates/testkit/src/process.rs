//! Running programs: with stdin, a hard time limit, and all processes killed at the end.
//!
//! Each program gets a process group of its own, which is killed by its pid when the limit passes or the
//! guard is dropped. A program that ends but leaves its stdout open in a child is reported, not waited for.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::wait::{LIMIT, poll_until};

/// The result of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The exit code; 128 + the signal's number when it was killed by one.
    pub code: i32,
    /// Everything on stdout; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Everything on stderr; bytes that are not UTF-8 are replaced.
    pub stderr: String,
}

impl Output {
    /// Panics with the whole output unless the code is 0.
    #[track_caller]
    pub fn ok(self) -> Self {
        self.expect_code(0)
    }

    /// Panics with the whole output unless this is the code.
    #[track_caller]
    pub fn expect_code(self, code: i32) -> Self {
        assert!(self.code == code, "exit code {} instead of {code}\n{}", self.code, self.shown());
        self
    }

    /// Stdout as one JSON value.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|e| panic!("stdout is not the JSON that was expected: {e}\n{}", self.shown()))
    }

    /// Stdout as one JSON value per line.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line: &str| {
            serde_json::from_str(line)
                .unwrap_or_else(|e| panic!("not a line of JSON: {line:?}: {e}\n{}", self.shown()))
        };
        self.stdout.lines().map(parse).collect()
    }

    fn shown(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}\n---", self.stdout, self.stderr)
    }
}

/// A program about to be started.
#[derive(Debug)]
pub struct ProgramRun {
    command: Command,
    stdin: Vec<u8>,
    limit: Duration,
}

impl ProgramRun {
    /// From a command, such as one of [`Env::cmd`](crate::Env::cmd).
    pub fn new(command: Command) -> Self {
        Self { command, stdin: Vec::new(), limit: LIMIT }
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets the working directory.
    pub fn dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets several variables.
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(mut self, vars: impl IntoIterator<Item = (N, V)>) -> Self {
        self.command.envs(vars);
        self
    }

    /// The program's stdin; empty by default.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// The time limit; [`LIMIT`] by default.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end. Panics with the output so far when the limit passes.
    #[track_caller]
    pub fn output(self) -> Output {
        let (stdin, limit) = (self.stdin, self.limit);
        let mut spawned = Spawned::start(self.command);
        let writer = spawned.stdin.take().map(|mut pipe| {
            // A program may end without reading its stdin: EPIPE is not a failure.
            std::thread::spawn(move || drop(pipe.write_all(&stdin)))
        });
        let output = spawned.finish(limit);
        if let Some(writer) = writer {
            drop(writer.join());
        }
        output
    }

    /// Starts it with an open stdin (the bytes of [`ProgramRun::stdin`] are written first) and leaves it running.
    #[track_caller]
    pub fn spawn(self) -> Spawned {
        let mut spawned = Spawned::start(self.command);
        if !self.stdin.is_empty() {
            spawned.write(&self.stdin);
        }
        spawned
    }
}

/// A running program. Its process group is killed when this is dropped.
#[derive(Debug)]
pub struct Spawned {
    name: String,
    child: Child,
    status: Option<ExitStatus>,
    stdin: Option<ChildStdin>,
    stdout: Gathered,
    stderr: Gathered,
}

impl Spawned {
    #[track_caller]
    fn start(mut command: Command) -> Self {
        let name = format!("{command:?}");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("cannot start {name}: {e}"));
        let stdin = child.stdin.take();
        let stdout = Gathered::from(child.stdout.take().expect("stdout is a pipe"));
        let stderr = Gathered::from(child.stderr.take().expect("stderr is a pipe"));
        Self { name, child, status: None, stdin, stdout, stderr }
    }

    /// The process id, which is also the id of its process group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Stderr so far.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Writes to stdin at once.
    #[track_caller]
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let written = match self.stdin.as_mut() {
            Some(pipe) => pipe.write_all(bytes.as_ref()).and_then(|()| pipe.flush()),
            None => panic!("stdin of {} is closed already", self.name),
        };
        if let Err(e) = written {
            panic!("cannot write to {}: {e}\n{}", self.name, self.shown());
        }
    }

    /// Closes stdin.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits until stdout contains this text. Panics if the program ends without it.
    #[track_caller]
    pub fn wait_for_stdout(&mut self, text: &str) {
        self.wait_for(text, "stdout", |spawned| spawned.stdout());
    }

    /// Waits until stderr contains this text. Panics if the program ends without it.
    #[track_caller]
    pub fn wait_for_stderr(&mut self, text: &str) {
        self.wait_for(text, "stderr", |spawned| spawned.stderr());
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str, what: &str, printed: impl Fn(&Self) -> String) {
        let mut ended = false;
        poll_until(|| {
            // Check for the end before the text, so that output at the very end is seen.
            ended = !self.running() && self.stdout.closed() && self.stderr.closed();
            ended || printed(self).contains(text)
        });
        if !printed(self).contains(text) {
            let how = if ended { "ended" } else { "ran on" };
            panic!("{} {how} without {text:?} on {what}\n{}", self.name, self.shown());
        }
    }

    /// Whether it still runs.
    pub fn running(&mut self) -> bool {
        if self.status.is_none() {
            self.status = self.child.try_wait().expect("cannot ask for the exit status");
        }
        self.status.is_none()
    }

    /// Sends a signal to the process alone; nothing happens if it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.running() {
            // It may end meanwhile, but it is not reaped yet, so no other process is hit.
            let _ = kill_process(self.raw_pid(), signal);
        }
    }

    /// Closes stdin and waits for the end, at most [`LIMIT`].
    #[track_caller]
    pub fn wait(mut self) -> Output {
        self.close_stdin();
        self.finish(LIMIT)
    }

    /// Kills the process group and returns what was printed.
    #[track_caller]
    pub fn kill(mut self) -> Output {
        self.kill_group();
        self.finish(LIMIT)
    }

    #[track_caller]
    fn finish(&mut self, limit: Duration) -> Output {
        let start = Instant::now();
        if self.status.is_none() {
            let pidfd = pidfd_open(self.raw_pid(), PidfdFlags::empty()).expect("cannot open a pidfd");
            if await_exit(&pidfd, limit) {
                self.status = Some(self.child.wait().expect("cannot reap a child"));
            } else {
                self.kill_group();
                panic!(
                    "{} did not end within {} s and was killed\n{}",
                    self.name,
                    limit.as_secs(),
                    self.shown()
                );
            }
        }
        let left = limit.saturating_sub(start.elapsed());
        if !self.stdout.await_end(left) || !self.stderr.await_end(left) {
            self.kill_group();
            panic!(
                "{} ended, but something it started still holds its stdout or stderr\n{}",
                self.name,
                self.shown()
            );
        }
        let status = self.status.expect("reaped above");
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        Output { code, stdout: self.stdout(), stderr: self.stderr() }
    }

    fn kill_group(&mut self) {
        // Only while the leader is not reaped: after that the pid may be reused, unless members of the group live on,
        // which keeps it reserved. The `Env` finds those at its end.
        if self.status.is_none() {
            let _ = kill_process_group(self.raw_pid(), Signal::KILL);
        }
    }

    fn raw_pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn shown(&self) -> String {
        format!("--- stdout\n{}\n--- stderr\n{}\n---", self.stdout(), self.stderr())
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        if self.status.is_none() {
            self.kill_group();
            drop(self.child.wait());
        }
    }
}

/// Waits until the process of a pidfd has ended; returns whether it did in time.
pub(crate) fn await_exit(pidfd: impl AsFd, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        let left = limit.saturating_sub(start.elapsed());
        let timeout = Timespec::try_from(left).expect("a limit that fits a timespec");
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => panic!("cannot poll a pidfd: {e}"),
        }
    }
}

/// The output of a pipe so far, read by a thread of its own.
#[derive(Debug, Clone)]
struct Gathered {
    shared: Arc<(Mutex<Pipe>, std::sync::Condvar)>,
}

#[derive(Debug, Default)]
struct Pipe {
    bytes: Vec<u8>,
    closed: bool,
}

impl Gathered {
    fn from(mut pipe: impl Read + Send + 'static) -> Self {
        let shared = Arc::new((Mutex::new(Pipe::default()), std::sync::Condvar::new()));
        let gathered = Self { shared: shared.clone() };
        std::thread::spawn(move || {
            let mut buffer = [0; 16 * 1024];
            loop {
                let read = match pipe.read(&mut buffer) {
                    Ok(read) => read,
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                    Err(_) => 0,
                };
                let mut state = shared.0.lock().unwrap();
                state.bytes.extend_from_slice(&buffer[..read]);
                state.closed = read == 0;
                shared.1.notify_all();
                if read == 0 {
                    return;
                }
            }
        });
        gathered
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.shared.0.lock().unwrap().bytes).into_owned()
    }

    fn closed(&self) -> bool {
        self.shared.0.lock().unwrap().closed
    }

    fn await_end(&self, limit: Duration) -> bool {
        let state = self.shared.0.lock().unwrap();
        let (state, _) = self.shared.1.wait_timeout_while(state, limit, |pipe| !pipe.closed).unwrap();
        state.closed
    }
}
