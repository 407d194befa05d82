//! A server at a URL: each message is a POST, answered by JSON or by a stream of events.
//!
//! No stream is kept open beside the requests: what a server says unasked (progress, other tools) comes with an answer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use caliban_core::sse;
use caliban_http::{HttpClient, Method, Response};
use serde_json::Value;

use crate::{
    connection::CANCEL,
    error::McpError,
    message::{self, Incoming, MESSAGE_BYTES},
    unrequested::Unrequested,
};

/// How much of an error's body is passed on.
const HINT_CHARS: usize = 300;
/// How long a notification may take: some servers refuse everything before they have got the first one.
const NOTIFICATION: Duration = Duration::from_secs(10);
/// How long the end of a session may take.
const GOODBYE: Duration = Duration::from_secs(1);

pub(crate) struct HttpConnection {
    client: Arc<HttpClient>,
    url: String,
    headers: Vec<(String, String)>,
    session: Mutex<Session>,
    heard: Arc<Unrequested>,
}

#[derive(Default, Clone)]
struct Session {
    id: Option<String>,
    version: Option<String>,
    over: bool,
}

impl HttpConnection {
    pub(crate) fn new(
        client: Arc<HttpClient>,
        url: &str,
        headers: &[(String, String)],
        heard: Arc<Unrequested>,
    ) -> Self {
        Self { client, url: url.to_owned(), headers: headers.to_vec(), session: Mutex::default(), heard }
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: &Value) -> Result<Value, McpError> {
        let mut response = self.post(message::request(id, method, params)).await?;
        if method == "initialize"
            && let Some(session) = response.header("mcp-session-id")
        {
            self.session().id = Some(session.to_owned());
        }
        let kind = response.header("content-type").unwrap_or_default().to_ascii_lowercase();
        if kind.starts_with("text/event-stream") {
            return self.answer_in_events(id, &mut response).await;
        }
        if !kind.starts_with("application/json") {
            return Err(McpError::Protocol(format!("its answer is of type `{kind}`")));
        }
        let body = response.bytes_up_to(MESSAGE_BYTES).await?;
        if body.truncated {
            return Err(too_large());
        }
        let messages = message::read(&body.bytes)
            .map_err(|error| McpError::Protocol(format!("its answer is no JSON: {error}")))?;
        for incoming in messages {
            match incoming {
                Incoming::Answer { id: of, result } if of == id => return Ok(result?),
                Incoming::Notification { method, params } => self.heard.take(&method, &params),
                Incoming::Answer { .. } | Incoming::Request { .. } | Incoming::Other => {}
            }
        }
        Err(McpError::Protocol("its answer is to something else".to_owned()))
    }

    /// Best effort.
    pub(crate) async fn notify(&self, message: String) {
        self.tell(message, NOTIFICATION).await;
    }

    /// Best effort, and very short.
    pub(crate) async fn cancel(&self, message: String) {
        self.tell(message, CANCEL).await;
    }

    pub(crate) fn use_version(&self, version: &str) {
        self.session().version = Some(version.to_owned());
    }

    pub(crate) fn is_over(&self) -> bool {
        self.session().over
    }

    /// Ends the session, as far as the server knows of one.
    pub(crate) async fn close(&self) {
        let session = std::mem::replace(&mut *self.session(), Session { over: true, ..Session::default() });
        if session.id.is_none() {
            return;
        }
        let headers = self.headers(&session);
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let ending = self.client.send(Method::DELETE, &self.url, &headers, Bytes::new());
        if !matches!(tokio::time::timeout(GOODBYE, ending).await, Ok(Ok(_))) {
            tracing::debug!(url = self.url, "the MCP session could not be ended");
        }
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn headers(&self, session: &Session) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let ours = [
            ("content-type", Some("application/json".to_owned())),
            ("accept", Some("application/json, text/event-stream".to_owned())),
            ("mcp-session-id", session.id.clone()),
            ("mcp-protocol-version", session.version.clone()),
        ];
        headers.extend(ours.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        headers
    }

    async fn post(&self, message: String) -> Result<Response, McpError> {
        let session = self.session().clone();
        let headers = self.headers(&session);
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut response = self.client.send(Method::POST, &self.url, &headers, Bytes::from(message)).await?;
        match response.status {
            200..=299 => Ok(response),
            404 if session.id.is_some() => {
                self.session().over = true;
                Err(McpError::SessionOver)
            }
            // Servers that were restarted and know no session of ours say so in various ways.
            400 if session.id.is_some() => {
                let body = response.bytes_up_to(HINT_CHARS * 4).await;
                let hint = body.map(|body| hint(&body.bytes)).unwrap_or_default();
                if hint.to_ascii_lowercase().contains("session") {
                    self.session().over = true;
                    return Err(McpError::SessionOver);
                }
                Err(McpError::Status { status: 400, hint })
            }
            status => {
                let hint = match status {
                    300..=399 => {
                        format!(": it sends us to {}", response.header("location").unwrap_or("another place"))
                    }
                    401 | 403 => ": the key or token is missing or not accepted".to_owned(),
                    _ => match response.bytes_up_to(HINT_CHARS * 4).await {
                        Ok(body) => hint(&body.bytes),
                        Err(_) => String::new(),
                    },
                };
                Err(McpError::Status { status, hint })
            }
        }
    }

    async fn tell(&self, message: String, limit: Duration) {
        match tokio::time::timeout(limit, self.post(message)).await {
            Ok(Ok(response)) => response.release(),
            Ok(Err(error)) => tracing::debug!(%error, "a notification was not taken by the MCP server"),
            Err(_) => tracing::debug!("a notification was not taken by the MCP server in time"),
        }
    }

    async fn answer_in_events(&self, id: u64, response: &mut Response) -> Result<Value, McpError> {
        let mut events = sse::Parser::new(MESSAGE_BYTES);
        while let Some(piece) = response.chunk().await? {
            for event in events.feed(&piece).map_err(|_| too_large())? {
                let messages = message::read(event.data.as_bytes())
                    .map_err(|error| McpError::Protocol(format!("an event is no JSON: {error}")))?;
                for incoming in messages {
                    match incoming {
                        Incoming::Answer { id: of, result } if of == id => return Ok(result?),
                        Incoming::Request { id, method, params } => {
                            let reply = self.heard.reply(&id, &method, &params).await;
                            self.tell(reply, NOTIFICATION).await;
                        }
                        Incoming::Notification { method, params } => self.heard.take(&method, &params),
                        Incoming::Answer { .. } | Incoming::Other => {}
                    }
                }
            }
        }
        Err(McpError::Gone { how: "it ended the stream without an answer".to_owned() })
    }
}

pub(crate) fn too_large() -> McpError {
    McpError::Protocol(format!("a message of more than {} MiB", MESSAGE_BYTES >> 20))
}

fn hint(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String =
        text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).take(HINT_CHARS).collect();
    if line.is_empty() { String::new() } else { format!(": {line}") }
}
