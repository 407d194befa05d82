//! The client against small servers of its own.

mod exchange;
mod kept;
mod peer;
mod proxied;
mod secure;
