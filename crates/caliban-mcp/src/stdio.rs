//! A server that is a child process: one JSON message per line, both ways. It runs under a reaper, like every command, so
//! nothing of it is left, even when we are killed.
//!
//! One task owns the process and its input, one reads its output, one its standard error. They end with the
//! connection.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use caliban_keeper::{Launch, Serving, ServingEnd};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{ChildStderr, ChildStdout},
    sync::mpsc,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::McpError,
    message::{self, MESSAGE_BYTES},
    pending::Pending,
    stderr_log::ServerLog,
    unrequested::Unrequested,
};

/// Messages that wait for a server that does not read.
const OUTGOING: usize = 64;
/// How long the rest of a dead server's output is waited for.
const REST: Duration = Duration::from_millis(500);

pub(crate) struct StdioConnection {
    outgoing: mpsc::Sender<String>,
    shared: Arc<StdioShared>,
    /// Asks the owner of the process to end it.
    end: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
}

struct StdioShared {
    heard_unasked: Arc<Unrequested>,
    program: String,
    pending: Pending,
    /// How the connection ended, once it has.
    how: Mutex<Option<StdioEnd>>,
    log: ServerLog,
    /// Cancelled when nothing will come any more.
    over: CancellationToken,
    /// Cancelled when the process and its tree are gone.
    ended: CancellationToken,
    /// Cancelled when its output has been read to the end.
    heard: CancellationToken,
    /// Cancelled when its standard error has been read to the end.
    noted: CancellationToken,
}

/// How a connection ended, with the last that the server said.
enum StdioEnd {
    /// The program could not be run.
    NotStarted(String),
    Gone(String),
}

impl StdioEnd {
    fn error(&self, program: &str) -> McpError {
        match self {
            Self::NotStarted(why) => {
                McpError::Start { program: program.to_owned(), source: std::io::Error::other(why.clone()) }
            }
            Self::Gone(how) => McpError::Gone { how: how.clone() },
        }
    }
}

impl StdioConnection {
    pub(crate) async fn start(
        helper: &Path,
        launch: &Launch,
        heard_unasked: Arc<Unrequested>,
    ) -> Result<Self, McpError> {
        let program = launch.program.to_string_lossy().into_owned();
        let failed = |source| McpError::Start { program: program.clone(), source };
        let (serving, stdout, stderr) = Serving::start(helper, launch).await.map_err(failed)?;
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        let shared = Arc::new(StdioShared {
            heard_unasked,
            program,
            pending: Pending::default(),
            how: Mutex::default(),
            log: ServerLog::default(),
            over: CancellationToken::new(),
            ended: CancellationToken::new(),
            heard: CancellationToken::new(),
            noted: CancellationToken::new(),
        });
        let end = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(own(serving, messages, Arc::clone(&shared), end.clone()));
        tasks.spawn(listen(stdout, outgoing.clone(), Arc::clone(&shared)));
        tasks.spawn(note(stderr, Arc::clone(&shared)));
        Ok(Self { outgoing, shared, end, tasks: Mutex::new(tasks) })
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: &Value) -> Result<Value, McpError> {
        let answer = self.shared.pending.wait(id);
        // Looked at when it waits: an end that comes now forgets it.
        if self.is_over() {
            return Err(self.shared.error());
        }
        // When the owner of the input is gone, the answer's channel closes too, and says so with a reason.
        let _told_below = self.outgoing.send(message::request(id, method, params)).await;
        Ok(answer.come().await.ok_or_else(|| self.shared.error())??)
    }

    /// Best effort: a server that does not read its input is not waited for.
    pub(crate) fn notify(&self, message: String) {
        if self.outgoing.try_send(message).is_err() {
            tracing::debug!("a notification was not taken by the MCP server");
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.is_cancelled()
    }

    pub(crate) fn log(&self) -> String {
        self.shared.log.text()
    }

    /// Ends the process and waits until its tree is gone.
    pub(crate) async fn close(&self) {
        self.end.cancel();
        self.shared.ended.cancelled().await;
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

impl StdioShared {
    fn how(&self) -> MutexGuard<'_, Option<StdioEnd>> {
        self.how.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self) -> McpError {
        match &*self.how() {
            Some(end) => end.error(&self.program),
            None => McpError::Gone { how: "its connection ended".to_owned() },
        }
    }

    /// Nothing will come any more: everybody who waits is told.
    fn finish(&self, end: StdioEnd) {
        self.how().get_or_insert(end);
        self.over.cancel();
        self.pending.clear();
    }
}

async fn own(
    mut process: Serving,
    mut messages: mpsc::Receiver<String>,
    shared: Arc<StdioShared>,
    end: CancellationToken,
) {
    // Tells whoever waits also when this task is dropped.
    let _ended = shared.ended.clone().drop_guard();
    let how = loop {
        tokio::select! {
            biased;
            () = end.cancelled() => break Some("it was closed"),
            // Whoever found that out has said why.
            () = shared.over.cancelled() => break None,
            () = shared.heard.cancelled() => break Some("it closed its output"),
            _ = process.wait() => break Some("it ended"),
            Some(mut message) = messages.recv() => {
                message.push('\n');
                let written = tokio::select! {
                    written = process.write(message.as_bytes()) => written,
                    () = end.cancelled() => break Some("it was closed"),
                    () = shared.over.cancelled() => break None,
                    () = shared.heard.cancelled() => break Some("it closed its output"),
                };
                // It closed its input; its end or its last output says more than this error.
                if let Err(error) = written {
                    tracing::debug!(%error, "an MCP server does not take input");
                }
            }
        }
    };
    let ended = process.end().await;
    // What it said last may still be in the pipes.
    for rest in [&shared.heard, &shared.noted] {
        let _best_effort = tokio::time::timeout(REST, rest.cancelled()).await;
    }
    let how = match (how, ended) {
        (_, Some(ServingEnd::NotStarted)) => {
            return shared.finish(StdioEnd::NotStarted(shared.log.tail().unwrap_or_default()));
        }
        (Some("it was closed") | None, _) | (_, None) => how.unwrap_or_default().to_owned(),
        (Some(_), Some(ServingEnd::Exited(code))) => format!("it ended (exit status: {code})"),
        (Some(_), Some(ServingEnd::Killed(signal))) => format!("it was killed (signal: {signal})"),
    };
    shared.finish(StdioEnd::Gone(match shared.log.tail() {
        Some(tail) if !how.is_empty() => format!("{how}; it said: {tail}"),
        _ => how,
    }));
}

async fn listen(stdout: ChildStdout, outgoing: mpsc::Sender<String>, shared: Arc<StdioShared>) {
    let _heard = shared.heard.clone().drop_guard();
    let mut lines = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = u64::try_from(MESSAGE_BYTES).unwrap_or(u64::MAX);
        match (&mut lines).take(limit).read_until(b'\n', &mut line).await {
            // The owner of the process tells how it ended.
            Ok(0) | Err(_) => return,
            Ok(read) if read >= MESSAGE_BYTES => {
                let how = format!("it sent a message of more than {} MiB", MESSAGE_BYTES >> 20);
                return shared.finish(StdioEnd::Gone(how));
            }
            Ok(_) => {}
        }
        let Ok(messages) = message::read(&line) else {
            // Some servers print a greeting first; it goes where it should have gone.
            shared.log.add(&line);
            continue;
        };
        for incoming in messages {
            let outgoing = outgoing.clone();
            shared.pending.take(incoming, &shared.heard_unasked, async move |reply| {
                if outgoing.try_send(reply).is_err() {
                    tracing::debug!("an answer was not taken by the MCP server");
                }
            });
        }
    }
}

async fn note(mut stderr: ChildStderr, shared: Arc<StdioShared>) {
    let _noted = shared.noted.clone().drop_guard();
    let mut buffer = vec![0; 4 << 10];
    while let Ok(read @ 1..) = stderr.read(&mut buffer).await {
        shared.log.add(&buffer[..read]);
    }
}
