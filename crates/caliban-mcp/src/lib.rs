//! MCP servers as tools: connects to the configured servers, lists what they offer and calls it.
//!
//! Owns the client side of the Model Context Protocol over stdio, streamable HTTP and the older stream of events, as far as
//! tools and resources need it, with questions to a person: no prompts, no sampling. A server gets only the environment that the caller passes.
//! Whether a call is allowed is judged elsewhere; what a server says about itself is never trusted further than
//! a label.

mod config;
mod connection;
mod content;
mod elicitation;
mod error;
mod http;
mod http_sse;
mod message;
mod names;
mod pending;
mod resources;
mod server;
mod stderr_log;
mod stdio;
mod tool;
mod unrequested;

pub use config::{DEFAULT_STARTUP_TIMEOUT, DEFAULT_TIMEOUT, McpEndpoint, ServerConfig};
pub use content::Outputs;
pub use elicitation::{Elicit, ElicitationForm, ElicitationReply, ServerQuestion};
pub use error::McpError;
pub use resources::{NAME as RESOURCE_TOOL, expanded, resource_tool};
pub use server::{ConnectedServer, RemoteTool, connect};
pub use tool::tools;
