//! A small HTTP/1.1 client: one request, one streamed response.
//!
//! Owns connections, TLS, proxies, the pool and the address policy. It refuses to follow redirects
//! (the caller does, so that each hop is checked), to decompress, to retry (except once on a kept
//! connection that the server had closed) and to read the environment: everything comes in [`ClientOptions`].

mod client;
mod connect;
mod error;
mod pool;
mod proxy;
mod response;
mod tls;

pub use caliban_core::address::AddressPolicy;
pub use client::{ClientOptions, DEFAULT_CONNECT_TIMEOUT, HttpClient};
pub use error::HttpError;
pub use http::{HeaderMap, Method};
pub use proxy::ProxySettings;
pub use response::{Body, Response};
pub use url::Url;
