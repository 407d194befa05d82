//! One server: connected, its tools listed once, connected again when it was lost.

use std::sync::{Arc, Mutex, PoisonError};

use caliban_core::cap::{self, Cap};
use caliban_http::HttpClient;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::{
    config::ServerConfig,
    connection::{McpConnection, RequestLimits},
    elicitation::Elicit,
    error::McpError,
    unrequested::Unrequested,
};

/// Pages of a tool list that are asked for.
const PAGES: usize = 50;
/// Tools of one server that are taken.
const TOOLS: usize = 250;
/// The longest description that the model is told; it is paid for in every request.
const DESCRIPTION_CHARS: usize = 2_000;
/// The largest schema that is passed on.
const SCHEMA_BYTES: usize = 64 << 10;

/// A connected server. Dropping it ends its process; [`ConnectedServer::close`] does so with grace.
pub struct ConnectedServer {
    config: ServerConfig,
    http: Arc<HttpClient>,
    elicit: Option<Elicit>,
    connection: Mutex<Arc<McpConnection>>,
    /// One connects again at a time.
    reconnecting: Semaphore,
    tools: Vec<RemoteTool>,
    left_out: Vec<String>,
    has_resources: bool,
}

/// A tool as its server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTool {
    /// Its name there.
    pub name: String,
    /// What it does, within a cap.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: Value,
    /// Whether the server says that it only reads.
    pub read_only: bool,
}

/// Connects to all servers at the same time; each with its own outcome, in the same order. `elicit` puts their questions to a
/// person.
pub async fn connect(
    servers: &[ServerConfig],
    http: &Arc<HttpClient>,
    elicit: Option<&Elicit>,
    cancel: &CancellationToken,
) -> Vec<(String, Result<Arc<ConnectedServer>, McpError>)> {
    join_all(servers.iter().map(async |config| {
        let server =
            ConnectedServer::connect(config.clone(), Arc::clone(http), elicit.cloned(), cancel).await;
        (config.name.clone(), server.map(Arc::new))
    }))
    .await
}

impl ConnectedServer {
    async fn connect(
        config: ServerConfig,
        http: Arc<HttpClient>,
        elicit: Option<Elicit>,
        cancel: &CancellationToken,
    ) -> Result<Self, McpError> {
        let starting = async {
            let heard = Unrequested::new(&config.name, elicit.clone());
            let (connection, offers) = McpConnection::open(&config.endpoint, &http, heard).await?;
            let listed =
                if offers.tools { list(&connection, &config, cancel).await? } else { ListedTools::default() };
            Ok((connection, listed, offers.resources))
        };
        let (connection, listed, has_resources) = within(&config, cancel, starting).await?;
        Ok(Self {
            config,
            http,
            elicit,
            connection: Mutex::new(Arc::new(connection)),
            reconnecting: Semaphore::new(1),
            tools: listed.tools,
            left_out: listed.left_out,
            has_resources,
        })
    }

    /// Its configured name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// What it offered when it was connected, by name. The tool list stands at the beginning of every request, and changing
    /// it would cost the whole prompt cache: of later changes the model is told ([`ConnectedServer::call`]).
    pub fn remote_tools(&self) -> &[RemoteTool] {
        &self.tools
    }

    /// Tools that were not taken, and why.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// Whether it has resources.
    pub fn has_resources(&self) -> bool {
        self.has_resources
    }

    /// Asks for something that changes nothing.
    pub(crate) async fn ask(
        &self,
        method: &str,
        params: &Value,
        cancel: &CancellationToken,
    ) -> Result<Value, McpError> {
        self.request("the request", method, params, cancel, &|_| {}).await
    }

    async fn request(
        &self,
        what: &'static str,
        method: &str,
        params: &Value,
        cancel: &CancellationToken,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Value, McpError> {
        let limits = || RequestLimits { what, timeout: self.config.timeout, cancel, progress };
        match self.living(cancel).await?.request(method, params, limits()).await {
            // The server refused it before doing anything.
            Err(McpError::SessionOver) => self.living(cancel).await?.request(method, params, limits()).await,
            answer => answer,
        }
    }

    /// What has become of its tools, if the server said that they are others.
    pub(crate) async fn other_tools(&self, cancel: &CancellationToken) -> Option<String> {
        let connection = self.current();
        if !connection.take_other_tools() {
            return None;
        }
        let listed = list(&connection, &self.config, cancel).await.ok()?;
        let names = |tools: &[RemoteTool], known: &[RemoteTool]| {
            let is_new = |tool: &&RemoteTool| known.iter().all(|other| other.name != tool.name);
            tools.iter().filter(is_new).map(|tool| tool.name.clone()).collect::<Vec<_>>().join(", ")
        };
        let (new, gone) = (names(&listed.tools, &self.tools), names(&self.tools, &listed.tools));
        let parts = [("new", new), ("gone", gone)].into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<String> = parts.map(|(what, names)| format!("{what}: {names}")).collect();
        let what = if parts.is_empty() { "described anew".to_owned() } else { parts.join("; ") };
        Some(format!("[the tools of {} have changed ({what}); a new session has them]", self.name()))
    }

    /// The last of what it said on standard error.
    pub fn log(&self) -> String {
        self.current().log()
    }

    /// Calls a tool. A server that was lost before is connected again once; one that is lost during the call is
    /// not, because the call may have had its effect.
    pub async fn call(
        &self,
        tool: &str,
        arguments: Value,
        cancel: &CancellationToken,
        progress: &(dyn Fn(&str) + Send + Sync),
    ) -> Result<Value, McpError> {
        let params = json!({"name": tool, "arguments": arguments});
        self.request("the call", "tools/call", &params, cancel, progress).await
    }

    /// Ends the session and the process with all that it started.
    pub async fn close(&self) {
        self.current().close().await;
    }

    fn current(&self) -> Arc<McpConnection> {
        Arc::clone(&self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn living(&self, cancel: &CancellationToken) -> Result<Arc<McpConnection>, McpError> {
        let connection = self.current();
        if !connection.is_over() {
            return Ok(connection);
        }
        let _one_at_a_time = self.reconnecting.acquire().await.map_err(|_| McpError::Cancelled)?;
        let connection = self.current();
        if !connection.is_over() {
            return Ok(connection);
        }
        let heard = Unrequested::new(&self.config.name, self.elicit.clone());
        let opening = McpConnection::open(&self.config.endpoint, &self.http, heard);
        let (connection, _) = within(&self.config, cancel, opening).await?;
        let connection = Arc::new(connection);
        *self.connection.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&connection);
        Ok(connection)
    }
}

async fn within<T>(
    config: &ServerConfig,
    cancel: &CancellationToken,
    starting: impl Future<Output = Result<T, McpError>>,
) -> Result<T, McpError> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(McpError::Cancelled),
        started = tokio::time::timeout(config.startup_timeout, starting) => {
            started.unwrap_or(Err(McpError::Timeout { what: "starting the server", limit: config.startup_timeout }))
        }
    }
}

#[derive(Default)]
struct ListedTools {
    tools: Vec<RemoteTool>,
    left_out: Vec<String>,
}

async fn list(
    connection: &McpConnection,
    config: &ServerConfig,
    cancel: &CancellationToken,
) -> Result<ListedTools, McpError> {
    let mut listed = ListedTools::default();
    let mut params = json!({});
    for _ in 0..PAGES {
        let timeout = config.startup_timeout;
        let limits = RequestLimits { what: "listing the tools", timeout, cancel, progress: &|_| {} };
        let mut page = connection.request("tools/list", &params, limits).await?;
        let Some(Value::Array(tools)) = page.get_mut("tools").map(Value::take) else {
            return Err(McpError::Protocol("its tool list is no list".to_owned()));
        };
        for tool in tools {
            match described(tool) {
                Ok(_) if listed.tools.len() >= TOOLS => {
                    listed.left_out.push(format!("all tools after the first {TOOLS}"));
                    return Ok(sorted(listed));
                }
                Ok(tool) => listed.tools.push(tool),
                Err(why) => listed.left_out.push(why),
            }
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) if !cursor.is_empty() => params = json!({"cursor": cursor}),
            _ => return Ok(sorted(listed)),
        }
    }
    listed.left_out.push(format!("all tools after page {PAGES}"));
    Ok(sorted(listed))
}

/// By name, so that the same tools give the same bytes in every session.
fn sorted(mut listed: ListedTools) -> ListedTools {
    listed.tools.sort_by(|a, b| a.name.cmp(&b.name));
    listed.tools.dedup_by(|a, b| a.name == b.name);
    listed
}

fn described(mut tool: Value) -> Result<RemoteTool, String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = text(tool.get("name"));
    if name.is_empty() {
        return Err("a tool without a name".to_owned());
    }
    let description = text(tool.get("description"));
    let description = cap::middle(description.trim(), Cap::Chars(DESCRIPTION_CHARS)).into_owned();
    let read_only = tool.pointer("/annotations/readOnlyHint").and_then(Value::as_bool).unwrap_or(false);
    let input_schema = match tool.get_mut("inputSchema").map(Value::take) {
        Some(schema @ Value::Object(_)) => schema,
        _ => json!({"type": "object"}),
    };
    if input_schema.to_string().len() > SCHEMA_BYTES {
        return Err(format!("{name}: its schema is larger than {} KiB", SCHEMA_BYTES >> 10));
    }
    Ok(RemoteTool { name, description, input_schema, read_only })
}
