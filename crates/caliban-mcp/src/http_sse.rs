//! A server at a URL that speaks the older way (2024-11-05): its messages come as events of one stream, which stays open; ours
//! are posted to the address that the stream names first.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use caliban_core::sse;
use caliban_http::{HttpClient, Method, Response};
use serde_json::Value;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{
    error::McpError,
    http::too_large,
    message::{self, MESSAGE_BYTES},
    pending::Pending,
    unrequested::Unrequested,
};

/// How long a notification may take.
const NOTIFICATION: Duration = Duration::from_secs(10);

pub(crate) struct StreamConnection {
    outgoing: Outgoing,
    shared: Arc<StreamShared>,
    listening: AbortHandle,
}

/// Where our messages go.
#[derive(Clone)]
struct Outgoing {
    client: Arc<HttpClient>,
    headers: Vec<(String, String)>,
    url: String,
}

#[derive(Default)]
struct StreamShared {
    pending: Pending,
    over: CancellationToken,
}

impl StreamConnection {
    /// Opens the stream and waits for the address of our messages.
    pub(crate) async fn open(
        client: Arc<HttpClient>,
        url: &str,
        headers: &[(String, String)],
        heard: Arc<Unrequested>,
    ) -> Result<Self, McpError> {
        let mut all: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        all.push(("accept", "text/event-stream"));
        let mut response = client.send(Method::GET, url, &all, Bytes::new()).await?;
        if !(200..=299).contains(&response.status) {
            let hint = match response.status {
                401 | 403 => ": the key or token is missing or not accepted".to_owned(),
                _ => String::new(),
            };
            return Err(McpError::Status { status: response.status, hint });
        }
        let mut events = sse::Parser::new(MESSAGE_BYTES);
        let mut early = Vec::new();
        let address = loop {
            let Some(piece) = response.chunk().await? else {
                return Err(McpError::Gone { how: "it ended the stream before it began".to_owned() });
            };
            let mut address = None;
            for event in events.feed(&piece).map_err(|_| too_large())? {
                match event.name.as_str() {
                    "endpoint" => address = Some(event.data),
                    _ => early.push(event.data),
                }
            }
            if let Some(address) = address {
                break address;
            }
        };
        let outgoing = Outgoing { client, headers: headers.to_vec(), url: beside(url, address.trim())? };
        let shared = Arc::new(StreamShared::default());
        let listening: JoinHandle<()> =
            tokio::spawn(listen(response, events, early, outgoing.clone(), Arc::clone(&shared), heard));
        Ok(Self { outgoing, shared, listening: listening.abort_handle() })
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: &Value) -> Result<Value, McpError> {
        let answer = self.shared.pending.wait(id);
        if self.is_over() {
            return Err(gone());
        }
        self.outgoing.post(message::request(id, method, params)).await?;
        Ok(answer.come().await.ok_or_else(gone)??)
    }

    /// Best effort.
    pub(crate) async fn notify(&self, message: String) {
        self.outgoing.tell(message).await;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.shared.over.is_cancelled()
    }

    pub(crate) fn close(&self) {
        self.listening.abort();
        self.shared.finish();
    }
}

impl Drop for StreamConnection {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl StreamShared {
    /// Nothing will come any more: everybody who waits is told.
    fn finish(&self) {
        self.over.cancel();
        self.pending.clear();
    }
}

impl Outgoing {
    async fn post(&self, message: String) -> Result<(), McpError> {
        let mut headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        headers.push(("content-type", "application/json"));
        let response = self.client.send(Method::POST, &self.url, &headers, Bytes::from(message)).await?;
        let status = response.status;
        response.release();
        match status {
            200..=299 => Ok(()),
            status => Err(McpError::Status { status, hint: String::new() }),
        }
    }

    async fn tell(&self, message: String) {
        if !matches!(tokio::time::timeout(NOTIFICATION, self.post(message)).await, Ok(Ok(()))) {
            tracing::debug!("a notification was not taken by the MCP server");
        }
    }
}

async fn listen(
    mut response: Response,
    mut events: sse::Parser,
    early: Vec<String>,
    outgoing: Outgoing,
    shared: Arc<StreamShared>,
    heard: Arc<Unrequested>,
) {
    let mut waiting = early;
    loop {
        for data in waiting.drain(..) {
            // What is no message is of no use to us.
            for incoming in message::read(data.as_bytes()).unwrap_or_default() {
                let outgoing = outgoing.clone();
                shared.pending.take(incoming, &heard, async move |reply| outgoing.tell(reply).await);
            }
        }
        let Ok(Some(piece)) = response.chunk().await else { break };
        let Ok(more) = events.feed(&piece) else { break };
        waiting.extend(more.into_iter().map(|event| event.data));
    }
    shared.finish();
}

fn gone() -> McpError {
    McpError::Gone { how: "it ended the stream of events".to_owned() }
}

/// The address of our messages, which must be at the same server: our key goes there.
fn beside(stream: &str, address: &str) -> Result<String, McpError> {
    let no_address = || McpError::Protocol(format!("it names `{address}` as its address"));
    let base = url::Url::parse(stream).map_err(|_| no_address())?;
    let joined = base.join(address).map_err(|_| no_address())?;
    if joined.origin() == base.origin() {
        Ok(joined.into())
    } else {
        Err(McpError::Protocol(format!("it sends us to another server, {joined}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_go_to_the_server_of_the_stream_only() {
        let to = |address| beside("https://host:8/mcp/sse", address).ok();
        assert_eq!(to("/messages?id=1").as_deref(), Some("https://host:8/messages?id=1"));
        assert_eq!(to("post").as_deref(), Some("https://host:8/mcp/post"));
        assert_eq!(to("https://host:8/x").as_deref(), Some("https://host:8/x"));
        assert_eq!(to("https://elsewhere/x"), None);
        assert_eq!(to("//elsewhere/x"), None);
    }
}
