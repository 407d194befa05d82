//! Why a request failed, in words.

use std::{net::IpAddr, time::Duration};

/// Why a request failed. Each message stands alone as one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// The URL (or a proxy's) cannot be used.
    #[error("{url} is not a usable URL: {reason}")]
    BadUrl {
        /// The URL as given, without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A header holds something that HTTP cannot carry.
    #[error("the header {0} holds characters that HTTP cannot carry")]
    BadHeader(String),
    /// The name is unknown, or nobody could be asked.
    #[error("cannot find the address of {host}: {source}")]
    Dns {
        /// The name.
        host: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// Nothing listens there.
    #[error("nothing answers at {host}: connection refused")]
    Refused {
        /// Host and port.
        host: String,
    },
    /// It took too long.
    #[error("{what} took longer than {} ms", limit.as_millis())]
    Timeout {
        /// What did.
        what: String,
        /// The limit.
        limit: Duration,
    },
    /// The secure connection could not be made.
    #[error("no secure connection to {host}: {reason}")]
    Tls {
        /// The host.
        host: String,
        /// Why, in the TLS library's words.
        reason: String,
    },
    /// The address policy forbids it.
    #[error("{host} is at {address}, which is not a public address")]
    AddressNotAllowed {
        /// The host.
        host: String,
        /// The address that is not allowed.
        address: IpAddr,
    },
    /// The proxy would not let us through.
    #[error("the proxy {proxy} refused: {reason}")]
    Proxy {
        /// The proxy's host and port.
        proxy: String,
        /// Why.
        reason: String,
    },
    /// The connection ended before there was a response.
    #[error("{host} closed the connection without an answer")]
    Closed {
        /// The host.
        host: String,
    },
    /// The connection ended in the middle of the body.
    #[error("{host} closed the connection in the middle of its answer")]
    ClosedMidBody {
        /// The host.
        host: String,
    },
    /// Anything else.
    #[error("the exchange with {host} failed: {reason}")]
    Other {
        /// The host.
        host: String,
        /// Why.
        reason: String,
    },
}

impl HttpError {
    pub(crate) fn other(host: &str, reason: impl std::fmt::Display) -> Self {
        Self::Other { host: host.to_owned(), reason: reason.to_string() }
    }
}
