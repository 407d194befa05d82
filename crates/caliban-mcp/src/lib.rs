//! MCP servers as tools: connects to the configured servers, lists what they offer and calls it.
//!
//! Owns the client side of the Model Context Protocol over stdio and streamable HTTP, as far as tools need it:
//! no resources, prompts, sampling or elicitation. A server gets only the environment that the caller passes.
//! Whether a call is allowed is judged elsewhere; what a server says about itself is never trusted further than
//! a label.

mod config;
mod connection;
mod content;
mod error;
mod http;
mod log;
mod message;
mod names;
mod server;
mod sse;
mod stdio;
mod tool;

pub use config::{DEFAULT_STARTUP_TIMEOUT, DEFAULT_TIMEOUT, Endpoint, ServerConfig};
pub use content::Outputs;
pub use error::McpError;
pub use server::{RemoteTool, Server, connect};
pub use tool::tools;
