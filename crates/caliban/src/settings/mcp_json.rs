//! `.mcp.json`, Claude's format for a repo's MCP servers, as a layer.
//!
//! `{"mcpServers": {"name": {"command": …, "args": […], "env": {…}} | {"type": "http", "url": …}}}`

use std::{collections::BTreeMap, path::Path};

use serde::Deserialize;
use toml::{Table, Value};

use super::{
    error::{Place, SettingsError},
    file,
    layer::{Layer, Source, bad_server_name},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    #[serde(rename = "mcpServers", default)]
    servers: BTreeMap<String, Server>,
}

#[derive(Deserialize)]
struct Server {
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

/// The layer that the file makes. Keys that only Claude knows are left alone.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Layer, SettingsError> {
    let text = file::text(path, bytes)?;
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let place = Place::Position { path: path.to_owned(), line: error.line(), column: error.column() };
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        SettingsError::new(place, message).hint(
            "expected {\"mcpServers\": {\"name\": {\"command\": …} or {\"type\": \"http\", \"url\": …}}}",
        )
    })?;
    let mut layer = Layer::default();
    for (name, server) in document.servers {
        let wrong = |message: String| SettingsError::new(Place::File(path.to_owned()), message);
        if let Some(message) = bad_server_name(&name) {
            return Err(wrong(message));
        }
        if let Some(kind) = server.kind.as_deref()
            && !matches!(kind, "stdio" | "http" | "streamable-http")
        {
            return Err(wrong(format!(
                "server `{name}`: found the type `{kind}`, expected `stdio` or `http`"
            )));
        }
        let source = Source::File { path: path.to_owned(), line: 0 };
        for (key, value) in fields(server) {
            layer.set(&["mcp", "servers", &name, key], value, source.clone());
        }
    }
    Ok(layer)
}

/// The fields that are set, under the names of our own settings.
fn fields(server: Server) -> Vec<(&'static str, Value)> {
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
        ("headers", strings(server.headers)),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key, value?)))
    .collect()
}
