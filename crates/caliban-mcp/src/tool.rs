//! A server's tool as one of the agent's tools.

use std::sync::Arc;

use caliban_core::{
    access::Access,
    message::{ResultPart, ToolSpec},
};
use caliban_http::HttpError;
use caliban_tools::{BoxFuture, CallContext, Tool, ToolOutput};
use serde_json::Value;

use crate::{content::Outputs, error::McpError, names::ToolNames, server::ConnectedServer};

/// All tools of these servers, as the agent uses them. The same servers in the same order give the same names.
pub fn tools(servers: &[Arc<ConnectedServer>], outputs: &Arc<Outputs>) -> Vec<Arc<dyn Tool>> {
    let mut names = ToolNames::default();
    let mut tools: Vec<Arc<dyn Tool>> = Vec::new();
    for server in servers {
        for remote in server.remote_tools() {
            let spec = ToolSpec {
                name: names.name(server.name(), &remote.name),
                description: remote.description.clone(),
                input_schema: remote.input_schema.clone(),
            };
            tools.push(Arc::new(McpTool {
                spec,
                server: Arc::clone(server),
                name: remote.name.clone(),
                read_only: remote.read_only,
                outputs: Arc::clone(outputs),
            }));
        }
    }
    tools
}

struct McpTool {
    spec: ToolSpec,
    server: Arc<ConnectedServer>,
    /// Its name on the server.
    name: String,
    read_only: bool,
    outputs: Arc<Outputs>,
}

impl Tool for McpTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self, input: &Value) -> Result<Vec<Access>, String> {
        if !input.is_object() && !input.is_null() {
            return Err(format!("{}: the arguments must be a JSON object", self.spec.name));
        }
        Ok(vec![Access::Mcp {
            server: self.server.name().to_owned(),
            tool: self.name.clone(),
            read_only: self.read_only,
        }])
    }

    fn call<'a>(&'a self, input: Value, call: CallContext<'a>) -> BoxFuture<'a, ToolOutput> {
        Box::pin(async move {
            let arguments = if input.is_null() { Value::Object(serde_json::Map::new()) } else { input };
            let progress = |text: &str| (call.progress)(&format!("{text}\n"));
            match self.server.call(&self.name, arguments, call.cancel, &progress).await {
                Ok(result) => {
                    let mut output = self.outputs.output(&result);
                    let news = self.server.other_tools(call.cancel).await;
                    output.content.extend(news.map(|text| ResultPart::Text { text }));
                    output
                }
                Err(McpError::Cancelled) => ToolOutput::error("cancelled"),
                Err(error) => ToolOutput::error(self.told(&error)),
            }
        })
    }
}

impl McpTool {
    fn told(&self, error: &McpError) -> String {
        let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
        let lost = match error {
            McpError::Gone { .. } => {
                "\nWhether the call had an effect is not known. A further call connects again."
            }
            // The request was on its way, or there; one that never left is told by its own words.
            McpError::Http(
                HttpError::Closed { .. } | HttpError::ClosedMidBody { .. } | HttpError::Other { .. },
            ) => "\nWhether the call had an effect is not known.",
            _ => "",
        };
        format!("{} of the MCP server {} failed: {error}{source}{lost}", self.name, self.server.name())
    }
}
