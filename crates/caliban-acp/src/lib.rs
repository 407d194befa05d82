//! The Agent Client Protocol (v1) for both sides: the connection, the client, and our extensions of the protocol.
//!
//! A terminal UI links this crate and nothing that runs an agent; `caliban-acp-host` serves one. Reads no environment and
//! prints nothing.

pub mod agent_socket;
pub mod client;
pub mod code_fence;
pub mod connection;
pub mod cut_arguments;
pub mod extension;
mod peer;
mod wire;

pub use agent_client_protocol_schema::{ProtocolVersion, v1};
pub use agent_socket::{Link, Unreached, state_at};
pub use client::{AcpClient, AcpEvents, ClientError, ClientEvent};
pub use extension::TurnEndedNotice;

/// What an agent is told about whose words follow, when they are not a person's (a10).
#[must_use]
pub fn not_the_users(who: &str) -> String {
    format!("[What follows is from {who}, not from the user.]")
}
