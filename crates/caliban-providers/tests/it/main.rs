//! The providers through their public face, against a small server that answers as told.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod bodies;
mod faults;
mod prefix;
mod refusals;
mod scripted;
mod server;
mod streams;
