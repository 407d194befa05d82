//! Serves live conversations over the Agent Client Protocol (v1) to any number of clients.
//!
//! Owns the mapping between our events and the protocol: order, permissions, who is told what. Makes no agents (a
//! [`Factory`] does), reads no environment and prints nothing.

mod attach;
mod client_files;
mod commands;
mod config;
mod content;
pub mod failure;
pub mod host;
pub mod listen;
mod permission;
mod render;
pub mod server;
pub mod sessions;
mod state_socket;
pub mod stdio;
mod tools;
mod turn_end;

pub use client_files::ClientFiles;
pub use commands::{CommandAnswer, CommandInfo, Commands};
pub use failure::{AcpFailure, FailureKind};
pub use host::{Clients, Hosted, SessionHost};
pub use listen::listen;
pub use server::{Caller, Judge, Learn, Say, ServeOptions, serve};
pub use sessions::{Factory, LoadSession, NewSession, OpenedSession, Sessions};
pub use state_socket::listen_state;
pub use stdio::serve_stdio;
