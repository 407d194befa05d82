//! The client against a fake server, over stdio and over HTTP.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod fake;
mod over_http;
mod over_stdio;
mod web;
