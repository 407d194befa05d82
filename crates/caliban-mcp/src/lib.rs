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
mod heard;
mod http;
mod log;
mod message;
mod names;
mod resources;
mod server;
mod sse;
mod stdio;
mod stream;
mod tool;

pub use config::{DEFAULT_STARTUP_TIMEOUT, DEFAULT_TIMEOUT, Endpoint, ServerConfig};
pub use content::Outputs;
pub use elicitation::{Elicit, ElicitationForm, ElicitationReply, Question};
pub use error::McpError;
pub use resources::{NAME as RESOURCE_TOOL, expanded, resource_tool};
pub use server::{ConnectedServer, RemoteTool, connect};
pub use tool::tools;
