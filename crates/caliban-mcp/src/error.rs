//! Why a server or a call failed, in words.

use std::time::Duration;

/// Why a server or a call failed.
#[expect(missing_docs, reason = "a field is what the message of its variant says")]
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// The program could not be started.
    #[error("cannot start {program}")]
    Start { program: String, source: std::io::Error },
    /// The connection is gone.
    #[error("the server is gone: {how}")]
    Gone { how: String },
    /// The server answered with an error.
    #[error("the server answered with error {code}: {message}")]
    Answer { code: i64, message: String },
    /// The server broke the protocol.
    #[error("the server does not keep to the protocol: {0}")]
    Protocol(String),
    /// The request could not be made.
    #[error(transparent)]
    Http(#[from] caliban_http::HttpError),
    /// The server answered with this HTTP status.
    #[error("the server answered with HTTP status {status}{hint}")]
    Status { status: u16, hint: String },
    /// The HTTP session is over; a new one has to be begun.
    #[error("the server has ended the session")]
    SessionOver,
    /// It took too long.
    #[error("{what} took longer than {} s", limit.as_secs_f32())]
    Timeout { what: &'static str, limit: Duration },
    /// Somebody gave up on it.
    #[error("cancelled")]
    Cancelled,
}
