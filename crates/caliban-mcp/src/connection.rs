//! A connection to a server, whichever way it goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use caliban_http::Client;
use caliban_keeper::{Environment, Launch, Streams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{config::Endpoint, error::McpError, http::HttpConnection, message, stdio::StdioConnection};

/// The version that we ask for.
const VERSION: &str = "2025-06-18";
/// The versions that we can speak; for tools they are the same.
const KNOWN_VERSIONS: [&str; 4] = ["2025-11-25", VERSION, "2025-03-26", "2024-11-05"];

pub(crate) struct Connection {
    way: Way,
    next: AtomicU64,
}

enum Way {
    Stdio(StdioConnection),
    Http(HttpConnection),
}

/// When a request ends without an answer.
pub(crate) struct Limits<'a> {
    pub(crate) what: &'static str,
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
}

impl Connection {
    /// Connects and agrees on a version; tells whether there are tools.
    pub(crate) async fn open(endpoint: &Endpoint, http: &Arc<Client>) -> Result<(Self, bool), McpError> {
        let way = match endpoint {
            Endpoint::Stdio { helper, command, args, env, cwd } => {
                let launch = Launch {
                    program: command.clone(),
                    arguments: args.clone(),
                    directory: cwd.clone(),
                    environment: Environment::Exactly(env.clone()),
                    streams: Streams::Live,
                };
                Way::Stdio(StdioConnection::start(helper, &launch).await?)
            }
            Endpoint::Http { url, headers } => Way::Http(HttpConnection::new(Arc::clone(http), url, headers)),
        };
        let connection = Self { way, next: AtomicU64::new(1) };
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": {"name": "caliban", "version": env!("CARGO_PKG_VERSION")},
        });
        let id = connection.next();
        let answer = connection.send(id, "initialize", &params).await?;
        let version = answer.get("protocolVersion").and_then(Value::as_str).unwrap_or_default();
        if !KNOWN_VERSIONS.contains(&version) {
            return Err(McpError::Protocol(format!(
                "it speaks version `{version}`, which is not known here"
            )));
        }
        if let Way::Http(http) = &connection.way {
            http.use_version(version);
        }
        connection.notify(message::notification("notifications/initialized", &json!({}))).await;
        let has_tools = answer.get("capabilities").is_some_and(|offered| offered.get("tools").is_some());
        Ok((connection, has_tools))
    }

    /// Sends a request and waits for its answer; the server is told when nobody waits any more.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &Value,
        limits: Limits<'_>,
    ) -> Result<Value, McpError> {
        let id = self.next();
        let (error, reason) = tokio::select! {
            biased;
            () = limits.cancel.cancelled() => (McpError::Cancelled, "the user cancelled it"),
            answer = self.send(id, method, params) => return answer,
            () = tokio::time::sleep(limits.timeout) => {
                (McpError::Timeout { what: limits.what, limit: limits.timeout }, "it took too long")
            }
        };
        let message = message::cancelled(id, reason);
        match &self.way {
            Way::Stdio(stdio) => stdio.notify(message),
            Way::Http(http) => http.cancel(message).await,
        }
        Err(error)
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_over(&self) -> bool {
        match &self.way {
            Way::Stdio(stdio) => stdio.is_over(),
            Way::Http(http) => http.is_over(),
        }
    }

    /// What the server said on standard error.
    pub(crate) fn log(&self) -> String {
        match &self.way {
            Way::Stdio(stdio) => stdio.log(),
            Way::Http(_) => String::new(),
        }
    }

    pub(crate) async fn close(&self) {
        match &self.way {
            Way::Stdio(stdio) => stdio.close().await,
            Way::Http(http) => http.close().await,
        }
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn send(&self, id: u64, method: &str, params: &Value) -> Result<Value, McpError> {
        match &self.way {
            Way::Stdio(stdio) => stdio.request(id, method, params).await,
            Way::Http(http) => http.request(id, method, params).await,
        }
    }

    async fn notify(&self, message: String) {
        match &self.way {
            Way::Stdio(stdio) => stdio.notify(message),
            Way::Http(http) => http.notify(message).await,
        }
    }
}
