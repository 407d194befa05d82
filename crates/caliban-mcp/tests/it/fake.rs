//! The fake server as a child process, and what tests ask of tools.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use caliban_contract::tree_limits::TreeLimits;
use caliban_core::message::ResultPart;
use caliban_http::{ClientOptions, HttpClient};
use caliban_mcp::{ConnectedServer, McpEndpoint, McpError, Outputs, ServerConfig, connect, tools};
use caliban_tools::{CallContext, Tool, ToolOutput};
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Long enough for a loaded machine; no test waits for it.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// What the model gets in tests.
pub(crate) const CHARS: usize = 1_000;

pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("examples/fake_mcp")
}

pub(crate) fn config(directory: &Path, mode: &str) -> ServerConfig {
    ServerConfig {
        name: "hub".to_owned(),
        endpoint: McpEndpoint::Stdio {
            helper: program(),
            command: program().into(),
            args: vec![directory.into(), mode.into()],
            env: vec![("ONLY".into(), "this".into())],
            cwd: directory.to_owned(),
            fence: None,
            limits: TreeLimits::default(),
        },
        timeout: LONG,
        startup_timeout: LONG,
    }
}

pub(crate) async fn connected(config: ServerConfig) -> Result<Arc<ConnectedServer>, McpError> {
    let http = Arc::new(HttpClient::new(ClientOptions::default()));
    let mut all = connect(&[config], &http, None, &CancellationToken::new()).await;
    let (name, server) = all.remove(0);
    assert_eq!((name.as_str(), all.len()), ("hub", 0));
    server
}

pub(crate) struct Hub {
    pub(crate) directory: TempDir,
    pub(crate) server: Arc<ConnectedServer>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
}

impl Hub {
    pub(crate) async fn new(mode: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let server = connected(config(directory.path(), mode)).await.unwrap();
        Self::of(directory, server)
    }

    pub(crate) fn of(directory: TempDir, server: Arc<ConnectedServer>) -> Self {
        let outputs = Arc::new(Outputs::new(directory.path().join("outputs"), CHARS, None));
        let tools = tools(std::slice::from_ref(&server), &outputs);
        Self { directory, server, tools }
    }

    pub(crate) fn tool(&self, name: &str) -> &Arc<dyn Tool> {
        let name = format!("mcp__hub__{name}");
        self.tools.iter().find(|tool| tool.spec().name == name).unwrap()
    }

    pub(crate) async fn call(&self, name: &str, input: Value) -> ToolOutput {
        self.call_until(name, input, &CancellationToken::new()).await
    }

    pub(crate) async fn call_until(
        &self,
        name: &str,
        input: Value,
        cancel: &CancellationToken,
    ) -> ToolOutput {
        self.tool(name).call(input, CallContext { id: "c1", cancel, progress: &|_| {}, fence: None }).await
    }

    /// Waits for a trace of the server.
    pub(crate) async fn trace(&self, name: &str) -> String {
        let path = self.directory.path().join(name);
        until(|| path.exists()).await;
        std::fs::read_to_string(path).unwrap()
    }
}

/// Waits for a condition; the test runner ends a test that waits for ever.
pub(crate) async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn text(text: &str) -> ResultPart {
    ResultPart::Text { text: text.to_owned() }
}
