//! `.mcp.json`, Claude's format for a repo's MCP servers, as a layer. A server that is not understood is left out, with a
//! line; it does not spoil the others.
//!
//! `{"mcpServers": {"name": {"command": …, "args": […], "env": {…}} | {"type": "http" | "sse", "url": …}}}`

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use toml::{Table, Value};

use super::{
    error::{SettingPlace, SettingsError},
    file,
    layer::{Layer, Source, bad_server_name},
    values::BaseUrl,
};

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "mcpServers", default)]
    servers: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct McpJsonServer {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
}

/// The layer that the file makes, and which servers are left out. Keys that only Claude knows are left alone.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<(Layer, Vec<String>), SettingsError> {
    let text = file::text(path, bytes)?;
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let place =
            SettingPlace::Position { path: path.to_owned(), line: error.line(), column: error.column() };
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        SettingsError::new(place, message).hint(
            "expected {\"mcpServers\": {\"name\": {\"command\": …} or {\"type\": \"http\", \"url\": …}}}",
        )
    })?;
    let (mut layer, mut left_out) = (Layer::default(), Vec::new());
    for (name, value) in document.servers {
        match server(&name, value) {
            Ok(server) => {
                let source = Source::File { path: path.to_owned(), line: 0 };
                for (key, value) in fields(server) {
                    layer.set(&["mcp", "servers", &name, key], value, source.clone());
                }
            }
            Err(why) => left_out.push(format!("{}: {why}; it is left out", path.display())),
        }
    }
    Ok((layer, left_out))
}

fn server(name: &str, value: serde_json::Value) -> Result<McpJsonServer, String> {
    if let Some(message) = bad_server_name(name) {
        return Err(message);
    }
    let server: McpJsonServer =
        serde_json::from_value(value).map_err(|error| format!("server `{name}`: {error}"))?;
    if let Some(kind) = server.kind.as_deref()
        && !matches!(kind, "stdio" | "http" | "streamable-http" | "sse")
    {
        return Err(format!("server `{name}`: found the type `{kind}`, expected `stdio`, `http` or `sse`"));
    }
    if server.command.is_some() == server.url.is_some() {
        let found = if server.command.is_some() { "both" } else { "neither" };
        return Err(format!("server `{name}`: found {found} of `command` and `url`, expected one of them"));
    }
    if let Some(url) = server.url.as_deref().filter(|url| !url.contains("${")) {
        BaseUrl::parse_any(url).map_err(|message| format!("server `{name}`: {message}"))?;
    }
    Ok(server)
}

/// The fields that are set, under the names of our own settings.
fn fields(server: McpJsonServer) -> Vec<(&'static str, Value)> {
    let strings = |map: BTreeMap<String, String>| {
        (!map.is_empty()).then(|| {
            Value::Table(map.into_iter().map(|(name, value)| (name, Value::String(value))).collect::<Table>())
        })
    };
    let args: Vec<Value> = server.args.into_iter().map(Value::String).collect();
    [
        ("command", server.command.map(Value::String)),
        ("args", (!args.is_empty()).then_some(Value::Array(args))),
        ("env", strings(server.env)),
        ("url", server.url.map(Value::String)),
        ("transport", server.kind.filter(|kind| kind == "sse").map(Value::String)),
        ("headers", strings(server.headers)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}
