//! A connection: newline-delimited JSON-RPC 2.0 over any pair of byte streams.
//!
//! Owns the reading half: lines with a limit, requests in flight with a limit, answers brought to whoever waits,
//! `$/cancel_request`. Reading happens only while somebody asks for the next message, so nothing piles up here.
//! Knows nothing of sessions.

use std::{collections::VecDeque, io, time::Duration};

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

use crate::wire::{self, Malformed, WireLine};
pub use crate::{
    peer::{CallError, Closed, Peer, PendingRequest, Responder},
    wire::Params,
};

/// The longest line that is read: a prompt of 10 MB with every second byte escaped.
pub const MAX_LINE_BYTES: usize = 32 * 1024 * 1024;
/// How many bytes may wait to be written before senders wait.
pub const WRITE_BUFFER_BYTES: usize = 256 * 1024;
/// A reader that takes nothing for so long is dead. A stopped one (Ctrl+Z) costs little: this is long.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Requests of the other side that are handled at the same time.
pub const MAX_IN_FLIGHT: usize = 64;
/// How long the last lines may take when a connection is closed.
const FAREWELL: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 64 * 1024;

/// The caps of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The longest line that is read.
    pub line: usize,
    /// Bytes that may wait to be written.
    pub write_buffer: usize,
    /// How long the other side may take nothing before it is dropped; for ever when absent.
    pub write_timeout: Option<Duration>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { line: MAX_LINE_BYTES, write_buffer: WRITE_BUFFER_BYTES, write_timeout: Some(WRITE_TIMEOUT) }
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnError {
    /// The stream failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// A line is too long; what follows cannot be told apart from it.
    #[error("a line is longer than {limit} bytes")]
    LineTooLong {
        /// The limit.
        limit: usize,
    },
    /// The writing half is gone.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// What the other side wants.
#[expect(missing_docs, reason = "the parts of a message, by their names in the protocol")]
#[derive(Debug)]
pub enum Incoming {
    /// Something to be answered.
    Request { method: String, params: Params, responder: Responder },
    /// Something to be known.
    Notification { method: String, params: Params },
}

/// The receiving half. The connection ends when it is dropped.
pub struct Inbox {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Option<AbortOnDropHandle<()>>,
    peer: Peer,
    limits: ConnectionLimits,
    buffer: Vec<u8>,
    /// Where the next line starts in the buffer.
    start: usize,
    /// Up to here there is no newline.
    scanned: usize,
    /// Answers to lines that were no messages; kept here so that dropping `next` loses none.
    owed: VecDeque<Vec<u8>>,
    too_long: bool,
}

impl Inbox {
    /// Opens a connection over two streams.
    pub fn open(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        limits: ConnectionLimits,
    ) -> Self {
        let (peer, writer) = Peer::start(writer, limits);
        Self {
            reader: Box::new(reader),
            writer: Some(writer),
            peer,
            limits,
            buffer: Vec::new(),
            start: 0,
            scanned: 0,
            owed: VecDeque::new(),
            too_long: false,
        }
    }

    /// The other side, for sending.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Changes the longest line that is read from now on.
    pub fn set_line_limit(&mut self, limit: usize) {
        self.limits.line = limit;
    }

    /// The next request or notification; `None` when the other side has closed. Safe to drop at any await.
    pub async fn next(&mut self) -> Result<Option<Incoming>, ConnError> {
        loop {
            while let Some(line) = self.owed.front() {
                self.peer.send(line.clone()).await?;
                self.owed.pop_front();
            }
            if self.too_long {
                return Err(ConnError::LineTooLong { limit: self.limits.line });
            }
            if let Some(end) = self.line_end() {
                let parsed = wire::parse(&self.buffer[self.start..end]);
                let blank = self.buffer[self.start..end].trim_ascii().is_empty();
                self.start = end + 1;
                self.scanned = self.start;
                if !blank && let Some(incoming) = self.take(parsed) {
                    return Ok(Some(incoming));
                }
                continue;
            }
            if self.buffer.len() - self.start > self.limits.line {
                let why = format!("a line is longer than {} bytes", self.limits.line);
                self.owed.push_back(wire::refusal(&RequestId::Null, &Error::invalid_request().data(why)));
                self.too_long = true;
                continue;
            }
            self.compact();
            let read = tokio::select! {
                read = self.reader.read_buf(&mut self.buffer) => read?,
                () = self.peer.closed() => return Err(Closed.into()),
            };
            if read == 0 {
                return Ok(None);
            }
        }
    }

    /// Ends the connection after what is queued is written.
    pub async fn close(mut self) {
        self.peer.finish();
        if let Some(writer) = self.writer.take() {
            // Best effort: a reader that takes nothing now is not waited for.
            let _late = tokio::time::timeout(FAREWELL, writer).await;
        }
    }

    /// Where the next line ends. A line over the limit is not looked at.
    fn line_end(&mut self) -> Option<usize> {
        let found = memchr::memchr(b'\n', &self.buffer[self.scanned..]);
        match found {
            Some(offset) if self.scanned + offset - self.start <= self.limits.line => {
                Some(self.scanned + offset)
            }
            Some(_) => None,
            None => {
                self.scanned = self.buffer.len();
                None
            }
        }
    }

    fn take(&mut self, parsed: Result<WireLine, Malformed>) -> Option<Incoming> {
        match parsed {
            Ok(WireLine::Request { id, method, params }) => match self.peer.accept(id.clone(), MAX_IN_FLIGHT)
            {
                Ok(responder) => return Some(Incoming::Request { method, params, responder }),
                Err(why) => self.owed.push_back(wire::refusal(&id, &Error::invalid_request().data(why))),
            },
            Ok(WireLine::Notification { method, params }) => {
                if method != PROTOCOL_LEVEL_METHOD_NAMES.cancel_request {
                    return Some(Incoming::Notification { method, params });
                }
                if let Ok(cancel) = params.parse::<CancelRequestNotification>() {
                    self.peer.cancel_incoming(&cancel.request_id);
                }
            }
            Ok(WireLine::Response { id, result }) => self.peer.resolve(&id, result),
            Err(Malformed::NotJson) => {
                self.owed.push_back(wire::refusal(&RequestId::Null, &Error::parse_error()));
            }
            Err(Malformed::NotRpc { id, why }) => {
                self.owed.push_back(wire::refusal(&id, &Error::invalid_request().data(why)));
            }
        }
        None
    }

    fn compact(&mut self) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.scanned -= self.start;
            self.start = 0;
        }
        if self.buffer.is_empty() && self.buffer.capacity() > READ_BYTES {
            self.buffer = Vec::new();
        }
        self.buffer.reserve(READ_BYTES);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.peer.hang_up();
    }
}
