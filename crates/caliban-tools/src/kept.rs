//! A command of the user's own under a keeper: one that runs to its end (a hook) and reads what it is given, or one that
//! serves (an MCP server). Its two outputs stay apart, and nothing of it is left, whatever becomes of us.

use std::{ffi::OsString, io, path::PathBuf, process::ExitStatus, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout},
};
use tokio_util::sync::CancellationToken;

use crate::reaper::{self, Order, Patience, STOP_GRACE, Streams};

/// How long the end of a stopped command is waited for; its keeper goes on without us.
const STOP_LIMIT: Duration = STOP_GRACE.saturating_add(Duration::from_secs(2));
/// How long outputs are read after the end: only somebody outside of the command can still hold them.
const DRAIN_LIMIT: Duration = Duration::from_millis(500);

/// A command to run.
#[derive(Debug, Clone)]
pub struct KeptCommand {
    /// The program whose hidden mode keeps commands (see [`crate::REAP_MODE`]): the own executable.
    pub helper: PathBuf,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Its environment, whole.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads; holds no NUL.
    pub input: String,
    /// How long it may take.
    pub limit: Duration,
    /// How many bytes of each output are kept; the rest is read and dropped.
    pub output_bytes: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptEnd {
    /// Why it ended.
    pub why: Why,
    /// Its exit code, 128 and the signal when it was killed; none when its keeper was.
    pub code: Option<i32>,
    /// What it wrote to its standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to its standard error, or why it could not be started.
    pub stderr: Vec<u8>,
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// By itself.
    Itself,
    /// Its time was over. It may have ended by itself at the same moment: then it has the code of that.
    Timeout,
    /// Somebody gave up on it.
    Cancelled,
}

impl KeptCommand {
    /// Runs it to its end. What it leaves running is ended, too, before this returns.
    pub async fn run(self, cancel: &CancellationToken) -> io::Result<KeptEnd> {
        let streams = Streams::Apart { input: self.input.into() };
        let order = Order { cwd: self.cwd, argv: self.argv, env: self.env, streams }.encode()?;
        let mut keeper = reaper::start(&self.helper)?;
        let (out, err) = (keeper.stdout.take(), keeper.stderr.take());
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (why, code) = {
            let limit = self.output_bytes;
            let outputs =
                async { tokio::join!(read(out, &mut stdout, limit), read(err, &mut stderr, limit)) };
            let following = follow(&mut keeper, &order, self.limit, cancel);
            tokio::pin!(outputs, following);
            tokio::select! {
                ended = &mut following => {
                    let _outsider_holds_them = tokio::time::timeout(DRAIN_LIMIT, outputs).await;
                    ended
                }
                _both = &mut outputs => following.await,
            }
        };
        Ok(KeptEnd { why, code: code.and_then(|status| status.code()), stdout, stderr })
    }
}

/// A command to serve for as long as it is wanted.
#[derive(Clone)]
pub struct KeptServer {
    /// The program whose hidden mode keeps commands (see [`crate::REAP_MODE`]): the own executable.
    pub helper: PathBuf,
    /// Where it runs.
    pub cwd: PathBuf,
    /// The program and its arguments.
    pub argv: Vec<OsString>,
    /// Its environment, whole.
    pub env: Vec<(OsString, OsString)>,
}

/// One that runs. Dropping it, or the end of our process, closes its input; it has a moment to leave by itself and is then
/// ended with all that it started.
#[derive(Debug)]
pub struct Serving {
    keeper: Child,
    stdin: Option<ChildStdin>,
}

/// How a command that served has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingEnd {
    /// It never ran; why is the last that is on its standard error.
    NotStarted,
    /// With this code.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl KeptServer {
    /// Starts it. A program that cannot be run says so at its end ([`ServingEnd::NotStarted`]).
    pub async fn start(self) -> io::Result<(Serving, ChildStdout, ChildStderr)> {
        let order =
            Order { cwd: self.cwd, argv: self.argv, env: self.env, streams: Streams::Live }.encode()?;
        let mut keeper = reaper::start(&self.helper)?;
        let missing = || io::Error::other("a pipe is missing");
        let stdout = keeper.stdout.take().ok_or_else(missing)?;
        let stderr = keeper.stderr.take().ok_or_else(missing)?;
        let mut stdin = keeper.stdin.take().ok_or_else(missing)?;
        stdin.write_all(&order).await?;
        Ok((Serving { keeper, stdin: Some(stdin) }, stdout, stderr))
    }
}

impl Serving {
    /// Writes all of it to its standard input.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stdin = self.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        stdin.write_all(bytes).await?;
        stdin.flush().await
    }

    /// Waits for its end, and that of all that it started. None when its keeper was killed.
    pub async fn wait(&mut self) -> Option<ServingEnd> {
        const NOT_STARTED: i32 = crate::reaper::NOT_STARTED as i32;
        match self.keeper.wait().await.ok()?.code()? {
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

/// Waits for the keeper's end. Its standard input is its life line: closed, it ends the command and itself.
async fn follow(
    keeper: &mut Child,
    order: &[u8],
    limit: Duration,
    cancel: &CancellationToken,
) -> (Why, Option<ExitStatus>) {
    let control = keeper.stdin.take();
    let why = {
        let kept = async {
            let mut control = control;
            if let Some(control) = &mut control {
                // A keeper that is gone already says so by its exit code.
                let _gone = control.write_all(order).await;
            }
            let status = keeper.wait().await;
            drop(control);
            status.ok()
        };
        // A command that was stopped together with us has not used up its time.
        let mut patience = Patience::new(limit);
        tokio::select! {
            biased;
            status = kept => return (Why::Itself, status),
            () = cancel.cancelled() => Why::Cancelled,
            () = patience.over() => Why::Timeout,
        }
    };
    let ended = tokio::time::timeout(STOP_LIMIT, keeper.wait()).await;
    (why, ended.ok().and_then(Result::ok))
}

/// Reads to the end and keeps the beginning.
async fn read(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, limit: u64) {
    let Some(pipe) = pipe else { return };
    let mut limited = pipe.take(limit);
    // What was read before an error is all there is.
    while let Ok(1..) = limited.read_buf(kept).await {}
    let _rest = tokio::io::copy(&mut limited.into_inner(), &mut tokio::io::sink()).await;
}
