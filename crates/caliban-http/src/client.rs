//! The client: builds requests, chooses connections.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Method, Request,
    header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, HOST, PROXY_AUTHORIZATION, USER_AGENT},
};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use crate::{
    AddressPolicy, HttpError, ProxySettings, Response,
    connect::{authority, connect},
    pool::{Pool, PooledConnection},
    proxy::{Hop, basic},
    tls::Tls,
};

/// How long a connection may take unless the options say otherwise.
pub const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// What we call ourselves unless the caller says otherwise.
const DEFAULT_USER_AGENT: &str = concat!("caliban/", env!("CARGO_PKG_VERSION"));

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// Proxies.
    pub proxy: ProxySettings,
    /// For everything before the request is sent: DNS, TCP, proxy and TLS together.
    pub connect_timeout: Duration,
    /// Which addresses may be connected to.
    pub address_policy: AddressPolicy,
    /// Certificates (PEM) that are trusted beside the system's.
    pub extra_roots_pem: Option<Vec<u8>>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            proxy: ProxySettings::default(),
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            address_policy: AddressPolicy::default(),
            extra_roots_pem: None,
        }
    }
}

/// An HTTP client. Cheap to make: nothing is read or opened before the first request.
#[derive(Debug)]
pub struct HttpClient {
    proxy: ProxySettings,
    connect_timeout: Duration,
    policy: AddressPolicy,
    tls: Tls,
    pool: Arc<Pool>,
}

impl HttpClient {
    /// A client with these options.
    pub fn new(options: ClientOptions) -> Self {
        Self {
            proxy: options.proxy,
            connect_timeout: options.connect_timeout,
            policy: options.address_policy,
            tls: Tls::new(options.extra_roots_pem),
            pool: Arc::default(),
        }
    }

    /// Sends one request and waits for the head of its response, however long that takes (a caller
    /// that has a limit sets it around this). Dropping the future closes the connection.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response, HttpError> {
        let url = parse(url)?;
        let hop = self.proxy.hop_for(&url)?;
        let request = build(method, &url, hop.as_ref(), headers, body)?;
        let origin = origin(&url, hop.as_ref());
        let host = authority(&url);
        if let Some(connection) = self.pool.take(&origin).await {
            // A kept connection may have been closed by the other side at any time; then, and only then, the same
            // request is made again on a new one: if nothing of it was written, or if twice is as good as once.
            match exchange(connection, request.clone()).await {
                Ok((response, connection)) => return Ok(self.response(response, connection, host, origin)),
                Err(Broken { sent: SentRequest::Nothing, .. }) => {}
                Err(broken) if was_closed(&broken.error) && request.method().is_idempotent() => {}
                Err(broken) => return Err(broken.into_error(host)),
            }
        }
        let connection = self.open(&url, hop.as_ref(), &host).await?;
        match exchange(connection, request).await {
            Ok((response, connection)) => Ok(self.response(response, connection, host, origin)),
            Err(broken) => Err(broken.into_error(host)),
        }
    }

    async fn open(&self, url: &Url, hop: Option<&Hop>, host: &str) -> Result<PooledConnection, HttpError> {
        let limit = self.connect_timeout;
        let stream = tokio::time::timeout(limit, connect(url, hop, self.policy, &self.tls))
            .await
            .map_err(|_| HttpError::Timeout { what: format!("connecting to {host}"), limit })??;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| HttpError::other(host, error))?;
        // Its errors reach us through the request; the task only moves bytes and ends with the handle.
        let driver = tokio::spawn(async move {
            let _reported_to_the_request = connection.await;
        });
        Ok(PooledConnection { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    fn response(
        &self,
        response: http::Response<Incoming>,
        connection: PooledConnection,
        host: String,
        origin: String,
    ) -> Response {
        let (head, body) = response.into_parts();
        Response {
            status: head.status.as_u16(),
            headers: head.headers,
            host,
            origin,
            body: Some((body, connection)),
            pool: Arc::clone(&self.pool),
        }
    }
}

/// How an exchange failed.
struct Broken {
    sent: SentRequest,
    error: hyper::Error,
}

/// What the other side can have seen of a request.
enum SentRequest {
    Nothing,
    Something,
}

impl Broken {
    fn into_error(self, host: String) -> HttpError {
        if was_closed(&self.error) { HttpError::Closed { host } } else { HttpError::other(&host, self.error) }
    }
}

async fn exchange(
    mut connection: PooledConnection,
    request: Request<Full<Bytes>>,
) -> Result<(http::Response<Incoming>, PooledConnection), Broken> {
    match connection.sender.try_send_request(request).await {
        Ok(response) => Ok((response, connection)),
        Err(mut failed) => {
            // hyper gives the request back only when it had not begun to write it.
            let sent =
                if failed.take_message().is_some() { SentRequest::Nothing } else { SentRequest::Something };
            Err(Broken { sent, error: failed.into_error() })
        }
    }
}

fn was_closed(error: &hyper::Error) -> bool {
    let by_peer = |kind| {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
    };
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || io.is_some_and(|io| by_peer(io.kind()))
}

fn parse(text: &str) -> Result<Url, HttpError> {
    let bad = |reason: String| HttpError::BadUrl { url: printable(text), reason };
    let url = Url::parse(text).map_err(|error| bad(error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad("only http and https are known here".to_owned()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(bad("it has no host".to_owned()));
    }
    Ok(url)
}

/// The URL for an error message: short, without control characters and without a login.
fn printable(text: &str) -> String {
    let without_login = match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &text[..scheme + 3], &text[at + 1..]),
        _ => text.to_owned(),
    };
    without_login.chars().filter(|c| !c.is_control()).take(200).collect()
}

fn origin(url: &Url, hop: Option<&Hop>) -> String {
    let through = hop.map(|hop| hop.url.as_str()).unwrap_or_default();
    format!("{}://{} {through}", url.scheme(), authority(url))
}

fn build(
    method: Method,
    url: &Url,
    hop: Option<&Hop>,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Request<Full<Bytes>>, HttpError> {
    let plain_proxy = hop.filter(|_| url.scheme() == "http");
    let target = match (plain_proxy, url.query()) {
        (Some(_), query) => {
            let query = query.map(|query| format!("?{query}")).unwrap_or_default();
            format!("http://{}{}{query}", host_header(url), url.path())
        }
        (None, Some(query)) => format!("{}?{query}", url.path()),
        (None, None) => url.path().to_owned(),
    };
    let bad_url =
        |error: http::Error| HttpError::BadUrl { url: printable(url.as_str()), reason: error.to_string() };
    let needs_length = !body.is_empty() || !matches!(method, Method::GET | Method::HEAD);
    let length = body.len();
    let mut request = Request::builder().method(method).uri(target).body(Full::new(body)).map_err(bad_url)?;
    let all = request.headers_mut();
    for (name, value) in headers {
        let bad = || HttpError::BadHeader((*name).to_owned());
        let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| bad())?;
        all.append(key, HeaderValue::from_str(value).map_err(|_| bad())?);
    }
    let ours = [
        (HOST, Some(host_header(url))),
        (USER_AGENT, Some(DEFAULT_USER_AGENT.to_owned())),
        (ACCEPT_ENCODING, Some("identity".to_owned())),
        (CONTENT_LENGTH, needs_length.then(|| length.to_string())),
        (AUTHORIZATION, basic(url)),
        (PROXY_AUTHORIZATION, plain_proxy.and_then(|hop| hop.authorization.clone())),
    ];
    for (key, value) in ours {
        if let Some(value) = value
            && !all.contains_key(&key)
        {
            let bad = HttpError::BadHeader(key.to_string());
            all.insert(key, HeaderValue::from_str(&value).map_err(|_| bad)?);
        }
    }
    Ok(request)
}

/// The host as the `Host` header has it: the port only where it is not the usual one.
fn host_header(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}
