//! The client against small servers of its own.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod exchange;
mod kept;
mod peer;
mod proxied;
mod secure;
