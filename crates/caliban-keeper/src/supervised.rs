//! A command of the user's under a reaper, as its caller sees it: one that runs to its end (a hook, a setup command,
//! `fleet.notify`), or one that serves (an MCP server). Nothing of it is left, even when the caller is killed.

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use caliban_process::Patience;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    launch::Launch,
    reaper::{STOP_GRACE, start_reaper},
};

/// How long we wait for the end of a stopped command; its reaper goes on without us.
const STOP_LIMIT: Duration = STOP_GRACE.saturating_add(Duration::from_secs(2));
/// How long the outputs are read after the end: only a process outside of the command's tree can still hold them.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);
const CHUNK: usize = 8 << 10;

/// A command to run to its end.
#[derive(Debug, Clone)]
pub struct Supervised {
    /// The program whose hidden mode reaps commands (`caliban_contract::modes::REAP`): the own executable.
    pub helper: PathBuf,
    /// The command.
    pub launch: Launch,
    /// How long it may take.
    pub limit: Duration,
    /// What is kept of each output; the rest is read and dropped.
    pub keep: KeptOutput,
}

/// Which part of an output is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptOutput {
    /// This many bytes at its beginning.
    First(usize),
    /// This many bytes at its end.
    Last(usize),
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisedEnd {
    /// Why it ended.
    pub why: CommandEnd,
    /// Its exit code, 128 + signal when it was killed; none when its reaper was killed.
    pub code: Option<i32>,
    /// The kept part of its standard output.
    pub stdout: Vec<u8>,
    /// The kept part of its standard error, or why it could not be started.
    pub stderr: Vec<u8>,
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself.
    Itself,
    /// Its time was over. If it ended by itself at the same moment, it has the exit code of that.
    Timeout,
    /// The caller cancelled it.
    Cancelled,
}

impl Supervised {
    /// Runs it to its end. Processes that it leaves running are ended before this returns.
    pub async fn run(self, cancel: &CancellationToken) -> io::Result<SupervisedEnd> {
        let launch = self.launch.encode()?;
        let mut reaper = start_reaper(&self.helper).await?;
        let (out, err) = (reaper.stdout.take(), reaper.stderr.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (why, code) = {
            let outputs =
                async { tokio::join!(read(out, &mut stdout, self.keep), read(err, &mut stderr, self.keep)) };
            let following = follow(&mut reaper, &launch, self.limit, cancel);
            tokio::pin!(outputs, following);
            tokio::select! {
                ended = &mut following => {
                    let _held_by_an_outsider = tokio::time::timeout(DRAIN_LIMIT, outputs).await;
                    ended
                }
                _both = &mut outputs => following.await,
            }
        };
        Ok(SupervisedEnd { why, code: code.and_then(|status| status.code()), stdout, stderr })
    }
}

/// A program that serves for as long as it is wanted. Dropping this, or the end of our process, closes its input. It may then
/// leave by itself for a moment, and is ended with everything that it started.
#[derive(Debug)]
pub struct Serving {
    reaper: Child,
    stdin: Option<ChildStdin>,
}

/// How a program that served has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingEnd {
    /// It never ran; the reason is the last line of its standard error.
    NotStarted,
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl Serving {
    /// Starts a program with live streams. One that cannot be run says so at its end ([`ServingEnd::NotStarted`]).
    /// `helper` is the program whose hidden mode reaps commands.
    pub async fn start(helper: &Path, launch: &Launch) -> io::Result<(Self, ChildStdout, ChildStderr)> {
        let launch = launch.encode()?;
        let mut reaper = start_reaper(helper).await?;
        let missing = || io::Error::other("a pipe is missing");
        let stdout = reaper.stdout.take().ok_or_else(missing)?;
        let stderr = reaper.stderr.take().ok_or_else(missing)?;
        let mut stdin = reaper.stdin.take().ok_or_else(missing)?;
        stdin.write_all(&launch).await?;
        Ok((Self { reaper, stdin: Some(stdin) }, stdout, stderr))
    }

    /// Writes all of it to its standard input.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(bytes).await?;
        stdin.flush().await
    }

    /// Waits for its end, and that of everything that it started. None when its reaper was killed.
    pub async fn wait(&mut self) -> Option<ServingEnd> {
        const NOT_STARTED: i32 = crate::reaper::NOT_STARTED as i32;
        match self.reaper.wait().await.ok()?.code()? {
            NOT_STARTED => Some(ServingEnd::NotStarted),
            code @ ..=128 => Some(ServingEnd::Exited(code)),
            code => Some(ServingEnd::Killed(code - 128)),
        }
    }

    /// Closes its input and waits until nothing of it is left.
    pub async fn end(&mut self) -> Option<ServingEnd> {
        self.stdin = None;
        self.wait().await
    }
}

/// Waits for the reaper's end. When its standard input is closed, it ends the command and exits.
async fn follow(
    reaper: &mut Child,
    launch: &[u8],
    limit: Duration,
    cancel: &CancellationToken,
) -> (CommandEnd, Option<ExitStatus>) {
    let mut control = reaper.stdin.take();
    let why = {
        let reaped = async {
            if let Some(control) = &mut control {
                // A reaper that is gone already says so by its exit code.
                let _gone = control.write_all(launch).await;
            }
            reaper.wait().await.ok()
        };
        // Time in which we were stopped together with the command does not count.
        let mut patience = Patience::new(limit);
        tokio::select! {
            biased;
            status = reaped => return (CommandEnd::Itself, status),
            () = cancel.cancelled() => CommandEnd::Cancelled,
            () = patience.over() => CommandEnd::Timeout,
        }
    };
    drop(control);
    let ended = tokio::time::timeout(STOP_LIMIT, reaper.wait()).await;
    (why, ended.ok().and_then(Result::ok))
}

/// Reads to the end and keeps a part.
async fn read(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, keep: KeptOutput) {
    let Some(mut pipe) = pipe else { return };
    let mut chunk = vec![0; CHUNK];
    // What was read before an error is all there is.
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        kept.extend_from_slice(&chunk[..n]);
        match keep {
            KeptOutput::First(bytes) => kept.truncate(bytes),
            KeptOutput::Last(bytes) => drop(kept.drain(..kept.len().saturating_sub(bytes))),
        }
    }
}
