//! A connection to a server, whichever way it goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use caliban_http::HttpClient;
use caliban_keeper::{Launch, LaunchEnvironment, Streams};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    config::McpEndpoint, error::McpError, http::HttpConnection, http_sse::StreamConnection, message,
    stdio::StdioConnection, unrequested::Unrequested,
};

/// The version that we ask for.
const VERSION: &str = "2025-06-18";
/// How long telling the server of a cancelled call may take: the caller wants to go.
pub(crate) const CANCEL: Duration = Duration::from_millis(50);
/// The versions that we can speak; for tools they are the same.
const KNOWN_VERSIONS: [&str; 4] = ["2025-11-25", VERSION, "2025-03-26", "2024-11-05"];

/// However often a call says that it goes on, it ends.
const LONGEST: Duration = Duration::from_secs(3600);

pub(crate) struct McpConnection {
    way: Way,
    next: AtomicU64,
    heard: Arc<Unrequested>,
}

enum Way {
    Stdio(StdioConnection),
    Http(HttpConnection),
    Stream(StreamConnection),
}

/// What a server offers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Offers {
    pub(crate) tools: bool,
    pub(crate) resources: bool,
}

/// When a request ends without an answer.
pub(crate) struct RequestLimits<'a> {
    pub(crate) what: &'static str,
    /// From the start, or from the last sign of progress.
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'a CancellationToken,
    /// Takes signs of progress.
    pub(crate) progress: &'a (dyn Fn(&str) + Send + Sync),
}

impl McpConnection {
    /// Connects and agrees on a version; tells what there is.
    pub(crate) async fn open(
        endpoint: &McpEndpoint,
        http: &Arc<HttpClient>,
        heard: Unrequested,
    ) -> Result<(Self, Offers), McpError> {
        let heard = Arc::new(heard);
        let way = match endpoint {
            McpEndpoint::Stdio { helper, command, args, env, cwd, fence, limits } => {
                let starting = |source| McpError::Start { program: command.display().to_string(), source };
                let fence = fence.as_ref().map(caliban_fence::ProgramFence::judge).transpose();
                let launch = Launch {
                    program: command.clone(),
                    arguments: args.clone(),
                    directory: cwd.clone(),
                    identity: None,
                    environment: LaunchEnvironment::Exactly(env.clone()),
                    streams: Streams::Live,
                    fence: fence.map_err(starting)?,
                    limits: limits.without_disk(),
                };
                Way::Stdio(StdioConnection::start(helper, &launch, Arc::clone(&heard)).await?)
            }
            McpEndpoint::Http { url, headers } => {
                Way::Http(HttpConnection::new(Arc::clone(http), url, headers, Arc::clone(&heard)))
            }
            McpEndpoint::Sse { url, headers } => {
                let opened = StreamConnection::open(Arc::clone(http), url, headers, Arc::clone(&heard));
                Way::Stream(opened.await?)
            }
        };
        let capabilities = if heard.can_be_asked() { json!({"elicitation": {}}) } else { json!({}) };
        let connection = Self { way, next: AtomicU64::new(1), heard };
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": capabilities,
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
        let offers =
            |what: &str| answer.get("capabilities").is_some_and(|offered| offered.get(what).is_some());
        let offers = Offers { tools: offers("tools"), resources: offers("resources") };
        Ok((connection, offers))
    }

    /// Sends a request and waits for its answer; the server is told when nobody waits any more.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: &Value,
        limits: RequestLimits<'_>,
    ) -> Result<Value, McpError> {
        let id = self.next();
        let mut beats = self.heard.beats(id);
        let mut params = params.clone();
        if let Some(params) = params.as_object_mut() {
            params.insert("_meta".to_owned(), json!({"progressToken": id}));
        }
        let (error, reason) = {
            let answer = self.send(id, method, &params);
            let longest = tokio::time::sleep(LONGEST.max(limits.timeout));
            let patience = tokio::time::sleep(limits.timeout);
            tokio::pin!(answer, longest, patience);
            let timeout =
                || (McpError::Timeout { what: limits.what, limit: limits.timeout }, "it took too long");
            loop {
                tokio::select! {
                    biased;
                    () = limits.cancel.cancelled() => break (McpError::Cancelled, "the user cancelled it"),
                    answer = &mut answer => return answer,
                    Some(beat) = beats.next.recv() => {
                        patience.as_mut().reset(tokio::time::Instant::now() + limits.timeout);
                        if !beat.is_empty() {
                            (limits.progress)(&beat);
                        }
                    }
                    () = &mut patience => {
                        if !self.heard.is_somebody_thinking() {
                            break timeout();
                        }
                        patience.as_mut().reset(tokio::time::Instant::now() + limits.timeout);
                    }
                    () = &mut longest => break timeout(),
                }
            }
        };
        let message = message::cancelled(id, reason);
        match &self.way {
            Way::Stdio(stdio) => stdio.notify(message),
            Way::Http(http) => http.cancel(message).await,
            Way::Stream(stream) => {
                // The caller wants to go.
                let _best_effort = tokio::time::timeout(CANCEL, stream.notify(message)).await;
            }
        }
        Err(error)
    }

    /// Whether it is of no use any more.
    pub(crate) fn is_over(&self) -> bool {
        match &self.way {
            Way::Stdio(stdio) => stdio.is_over(),
            Way::Http(http) => http.is_over(),
            Way::Stream(stream) => stream.is_over(),
        }
    }

    /// What the server said on standard error.
    pub(crate) fn log(&self) -> String {
        match &self.way {
            Way::Stdio(stdio) => stdio.log(),
            Way::Http(_) | Way::Stream(_) => String::new(),
        }
    }

    pub(crate) async fn close(&self) {
        match &self.way {
            Way::Stdio(stdio) => stdio.close().await,
            Way::Http(http) => http.close().await,
            Way::Stream(stream) => stream.close(),
        }
    }

    /// Whether the server has said since the last time that its tools are others.
    pub(crate) fn take_other_tools(&self) -> bool {
        self.heard.take_other_tools()
    }

    fn next(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    async fn send(&self, id: u64, method: &str, params: &Value) -> Result<Value, McpError> {
        match &self.way {
            Way::Stdio(stdio) => stdio.request(id, method, params).await,
            Way::Http(http) => http.request(id, method, params).await,
            Way::Stream(stream) => stream.request(id, method, params).await,
        }
    }

    async fn notify(&self, message: String) {
        match &self.way {
            Way::Stdio(stdio) => stdio.notify(message),
            Way::Http(http) => http.notify(message).await,
            Way::Stream(stream) => stream.notify(message).await,
        }
    }
}
