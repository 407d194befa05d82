//! The server and the client, over streams in memory, with a real agent on a scripted model.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod answers;
mod conformance;
mod foreign;
mod host;
mod listen;
mod permissions;
mod sharing;
mod turns;
mod wire;
mod world;
