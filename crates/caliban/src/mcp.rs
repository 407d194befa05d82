//! MCP servers: from the settings, and from an editor that brings its own, to connected ones.

pub(crate) mod questions;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use caliban_acp::v1::McpServer as Brought;
use caliban_fence::ProgramFence;
use caliban_mcp::{ConnectedServer, Elicit, McpEndpoint, Outputs, ServerConfig};
use caliban_tools::{Tool, WorkspaceOptions};
use tokio_util::sync::CancellationToken;

use crate::settings::schema::{McpServer, McpTransport, Settings};

/// The servers that the settings name, as far as they are switched on.
pub(crate) fn configured(
    settings: &Settings,
    workspace: &WorkspaceOptions,
    fence: Option<&ProgramFence>,
) -> Vec<ServerConfig> {
    let enabled = settings.mcp.servers.iter().filter(|(_, server)| server.enabled.0);
    enabled.filter_map(|(name, server)| config(name, server, workspace, fence)).collect()
}

/// The servers that an editor brings along.
pub(crate) fn brought(
    servers: &[Brought],
    workspace: &WorkspaceOptions,
    fence: Option<&ProgramFence>,
) -> Vec<ServerConfig> {
    let mut configs = Vec::new();
    for server in servers {
        let (name, endpoint) = match server {
            Brought::Stdio(stdio) => {
                let more = stdio.env.iter().map(|variable| (variable.name.clone(), variable.value.clone()));
                let (command, cwd) = (stdio.command.clone().into_os_string(), None);
                let endpoint = program(workspace, fence, (command, &stdio.args), more, cwd);
                (stdio.name.clone(), endpoint)
            }
            Brought::Http(http) => {
                let headers = http.headers.iter().map(|header| (header.name.clone(), header.value.clone()));
                let endpoint = McpEndpoint::Http { url: http.url.clone(), headers: headers.collect() };
                (http.name.clone(), endpoint)
            }
            Brought::Sse(sse) => {
                let headers = sse.headers.iter().map(|header| (header.name.clone(), header.value.clone()));
                (sse.name.clone(), McpEndpoint::Sse { url: sse.url.clone(), headers: headers.collect() })
            }
            // Not among the capabilities that we announce.
            _ => continue,
        };
        configs.push(ServerConfig {
            name,
            endpoint,
            timeout: caliban_mcp::DEFAULT_TIMEOUT,
            startup_timeout: caliban_mcp::DEFAULT_STARTUP_TIMEOUT,
        });
    }
    configs
}

/// Connects to all of them at once; those that do not answer are left out, with a line for people.
pub(crate) async fn connect(
    configs: &[ServerConfig],
    http: &caliban_http::ClientOptions,
    elicit: Option<&Elicit>,
) -> (Vec<Arc<ConnectedServer>>, Vec<String>) {
    if configs.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let client = Arc::new(caliban_http::HttpClient::new(http.clone()));
    let (mut servers, mut notes) = (Vec::new(), Vec::new());
    for (name, result) in caliban_mcp::connect(configs, &client, elicit, &CancellationToken::new()).await {
        match result {
            Ok(server) => servers.push(server),
            Err(error) => {
                notes.push(format!("the MCP server {name} is left out: {}", crate::compose::chain(&error)));
            }
        }
    }
    (servers, notes)
}

/// The tools of connected servers, with whole outputs in `outputs`.
pub(crate) fn tools(
    servers: &[Arc<ConnectedServer>],
    outputs: &Path,
    workspace: &WorkspaceOptions,
) -> Vec<Arc<dyn Tool>> {
    let outputs = Outputs::new(outputs.to_owned(), workspace.limits.output_chars, workspace.redact.clone());
    let outputs = Arc::new(outputs);
    let mut tools = caliban_mcp::tools(servers, &outputs);
    tools.extend(caliban_mcp::resource_tool(servers, &outputs));
    tools
}

fn config(
    name: &str,
    server: &McpServer,
    workspace: &WorkspaceOptions,
    fence: Option<&ProgramFence>,
) -> Option<ServerConfig> {
    let secrets = |map: &BTreeMap<String, crate::settings::values::Secret>| -> Vec<(String, String)> {
        map.iter().map(|(name, value)| (name.clone(), value.reveal().to_owned())).collect()
    };
    let endpoint = match (&server.command, &server.url) {
        (Some(command), _) => {
            let (variables, cwd) = (secrets(&server.env), server.cwd.clone());
            program(workspace, fence, (command.into(), &server.args), variables, cwd)
        }
        (None, Some(url)) => {
            let (url, headers) = (url.clone(), secrets(&server.headers));
            match server.transport {
                McpTransport::Http => McpEndpoint::Http { url, headers },
                McpTransport::Sse => McpEndpoint::Sse { url, headers },
            }
        }
        // The settings refuse a server with neither.
        (None, None) => return None,
    };
    let timeout = Duration::from_secs(server.timeout.get().into());
    Some(ServerConfig { name: name.to_owned(), endpoint, timeout, startup_timeout: timeout })
}

/// A server that is a program, with the allow-listed environment and what is set for it.
fn program(
    workspace: &WorkspaceOptions,
    fence: Option<&ProgramFence>,
    (command, args): (OsString, &[String]),
    more: impl IntoIterator<Item = (String, String)>,
    cwd: Option<PathBuf>,
) -> McpEndpoint {
    let mut env: BTreeMap<OsString, OsString> = workspace.env.iter().cloned().collect();
    env.extend(more.into_iter().map(|(name, value)| (name.into(), value.into())));
    McpEndpoint::Stdio {
        helper: workspace.helper.clone(),
        command,
        args: args.iter().map(OsString::from).collect(),
        env: env.into_iter().collect(),
        cwd: cwd.unwrap_or_else(|| workspace.root.clone()),
        fence: fence.cloned(),
        limits: workspace.limits.taken,
    }
}
