//! The rules as the agent meets them.

#![expect(clippy::disallowed_methods, reason = "tests make their trees by path")]
#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod bypasses;
mod commands;
mod differential;
mod fences;
mod held;
mod junk;
mod meaning;
mod modes;
mod names;
mod narrowing;
mod outside;
mod paths;
mod place;
mod rules;
mod secrets;
