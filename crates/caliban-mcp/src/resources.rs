//! Resources of servers: a tool that lists and reads them, and `@server:uri` in a prompt.

use std::sync::Arc;

use caliban_core::{
    access::Access,
    cap::{self, Cap},
    message::ToolSpec,
};
use caliban_tools::{BoxFuture, CallContext, Tool, ToolOutput};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    content::{ContentPart, Outputs},
    error::McpError,
    server::ConnectedServer,
};

/// The tool's name.
pub const NAME: &str = "McpResource";
/// Resources that one list shows.
const LISTED: usize = 200;
/// Characters of one resource in a prompt.
const PROMPT_CHARS: usize = 50_000;
/// Pages of a list that are asked for.
const PAGES: usize = 20;

/// The tool by which the model lists and reads resources; none when no server has any.
pub fn resource_tool(servers: &[Arc<ConnectedServer>], outputs: &Arc<Outputs>) -> Option<Arc<dyn Tool>> {
    let servers: Vec<Arc<ConnectedServer>> =
        servers.iter().filter(|server| server.has_resources()).cloned().collect();
    if servers.is_empty() {
        return None;
    }
    let names: Vec<&str> = servers.iter().map(|server| server.name()).collect();
    let spec = ToolSpec {
        name: NAME.to_owned(),
        description: format!(
            "Read a resource of an MCP server ({}); without uri: list them.",
            names.join(", ")
        ),
        input_schema: json!({"type": "object", "properties": {
            "server": {"type": "string"}, "uri": {"type": "string"}}, "required": ["server"]}),
    };
    Some(Arc::new(ResourceTool { spec, servers, outputs: Arc::clone(outputs) }))
}

/// What the `@server:uri` of a prompt stand for, one text for each; what cannot be read says why.
pub async fn expanded(
    servers: &[Arc<ConnectedServer>],
    prompt: &str,
    cancel: &CancellationToken,
) -> Vec<String> {
    let mut texts = Vec::new();
    for word in prompt.split_whitespace() {
        let Some((name, uri)) = word.strip_prefix('@').and_then(|word| word.split_once(':')) else {
            continue;
        };
        let Some(server) = servers.iter().find(|server| server.name() == name) else { continue };
        // Behind a word of a sentence.
        let uri = uri.trim_end_matches([',', ';', '!', '?', ')']);
        let text = match read(server, uri, cancel).await {
            Ok(parts) => {
                let text = parts.into_iter().map(ContentPart::into_text).collect::<Vec<_>>().join("\n");
                cap::middle(&text, Cap::Chars(PROMPT_CHARS)).into_owned()
            }
            Err(error) => format!("cannot be read: {error}"),
        };
        texts.push(format!("[@{name}:{uri}]\n{text}"));
    }
    texts
}

async fn read(
    server: &ConnectedServer,
    uri: &str,
    cancel: &CancellationToken,
) -> Result<Vec<ContentPart>, McpError> {
    let answer = server.ask("resources/read", &json!({"uri": uri}), cancel).await?;
    match answer.get("contents").and_then(Value::as_array) {
        Some(contents) => Ok(contents.iter().map(ContentPart::of_resource).collect()),
        None => Err(McpError::Protocol("its resource has no contents".to_owned())),
    }
}

async fn list(server: &ConnectedServer, cancel: &CancellationToken) -> Result<String, McpError> {
    let (mut lines, mut params) = (Vec::new(), json!({}));
    for _ in 0..PAGES {
        let page = server.ask("resources/list", &params, cancel).await?;
        for resource in page.get("resources").and_then(Value::as_array).into_iter().flatten() {
            let field = |name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default();
            let about = [field("name"), field("description")].join(" ");
            lines.push(format!("{} {}", field("uri"), about.trim()).trim().to_owned());
        }
        match page.get("nextCursor").and_then(Value::as_str) {
            Some(cursor) if !cursor.is_empty() && lines.len() < LISTED => params = json!({"cursor": cursor}),
            _ => break,
        }
    }
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    if more > 0 {
        lines.push(format!("[{more} more]"));
    }
    Ok(if lines.is_empty() { "no resources".to_owned() } else { lines.join("\n") })
}

struct ResourceTool {
    spec: ToolSpec,
    servers: Vec<Arc<ConnectedServer>>,
    outputs: Arc<Outputs>,
}

impl ResourceTool {
    fn parse<'a>(&'a self, input: &'a Value) -> Result<(&'a Arc<ConnectedServer>, Option<&'a str>), String> {
        let field = |name: &str| input.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let name = field("server").ok_or_else(|| format!("{NAME}: missing field `server`"))?;
        let server = self.servers.iter().find(|server| server.name() == name).ok_or_else(|| {
            let names: Vec<&str> = self.servers.iter().map(|server| server.name()).collect();
            format!("no server `{name}` has resources; there are {}", names.join(", "))
        })?;
        Ok((server, field("uri")))
    }
}

impl Tool for ResourceTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        let (server, _) = self.parse(input)?;
        Ok(vec![Access::Mcp {
            server: server.name().to_owned(),
            tool: "resources".to_owned(),
            read_only: true,
        }])
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let (server, uri) = match self.parse(&input) {
                Ok(parsed) => parsed,
                Err(error) => return ToolOutput::error(error),
            };
            let parts = match uri {
                Some(uri) => read(server, uri, call.cancel).await,
                None => list(server, call.cancel).await.map(|text| vec![ContentPart::Text(text)]),
            };
            match parts {
                Ok(parts) => self.outputs.parts(parts, false),
                Err(McpError::Cancelled) => ToolOutput::error("cancelled"),
                Err(error) => ToolOutput::error(format!("the MCP server {} failed: {error}", server.name())),
            }
        })
    }
}
