//! The model server's record of a request.

use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;

use crate::wire::Protocol;

/// One request as it came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// `POST`.
    pub method: String,
    /// The path without the query: `/v1/messages`.
    pub path: String,
    /// The query string without the `?`.
    pub query: String,
    /// The headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body as JSON; null if it is not JSON.
    pub body: Value,
    /// The body as bytes.
    pub raw: Bytes,
    /// The protocol, if this is a request to the model.
    pub protocol: Option<Protocol>,
    /// How it was answered.
    pub outcome: RequestOutcome,
    /// When it arrived, since the server's start.
    pub at: Duration,
}

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// By a step of the script.
    Answered,
    /// By a step's fault.
    Failed,
    /// By an error of the server itself: wrong key, unknown model, or a body that the real server would refuse.
    Rejected(String),
    /// By a 500, because no step of the script matched: the reason.
    Unmatched(String),
    /// It was not a request to the model.
    Other,
}

impl Recorded {
    /// The first header of this name (lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}
