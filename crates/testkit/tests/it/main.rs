//! The test kit's own tests, against a raw client.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod anthropic;
mod chat;
mod environment;
mod faults;
mod gemini;
mod product;
mod raw;
mod responses;
mod server;
mod skip;
