//! The Agent Client Protocol (v1): the server that shares live conversations, the client, and their connection.
//!
//! Owns the mapping between our events and the protocol, and everything about connections: limits, order, who is
//! told what. Makes no agents (a [`Factory`] does), reads no environment and prints nothing.

mod attach;
pub mod client;
mod commands;
pub mod conn;
mod content;
pub mod failure;
pub mod host;
pub mod listen;
mod peer;
pub mod permission;
mod render;
pub mod server;
pub mod sessions;
pub mod stdio;
mod tools;
pub mod turn_end;
mod wire;

pub use agent_client_protocol_schema::{ProtocolVersion, v1};
pub use client::{Client, ClientError, ClientEvent, Events};
pub use content::unfenced;
pub use failure::{AcpFailure, FailureKind};
pub use host::{Clients, SessionHost};
pub use listen::listen;
pub use render::disk_full;
pub use server::{Say, ServeOptions, serve};
pub use sessions::{Factory, LoadSession, NewSession, Sessions};
pub use stdio::serve_stdio;
pub use turn_end::TurnEndedNotice;
