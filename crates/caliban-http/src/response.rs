//! A response: its head at once, its body as it comes.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::{
    HttpError,
    pool::{Pool, PooledConnection},
};

/// The answer to one request. Dropping it closes the connection, unless the body was read to its end
/// or [`Response::release`] was called.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    pub(crate) host: String,
    pub(crate) origin: String,
    pub(crate) body: Option<(Incoming, PooledConnection)>,
    pub(crate) pool: Arc<Pool>,
}

/// A body that was read into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The bytes, up to the limit.
    pub bytes: Bytes,
    /// Whether there was more.
    pub truncated: bool,
}

impl Response {
    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the body; nothing at its end.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        loop {
            let Some((body, _)) = &mut self.body else { return Ok(None) };
            match body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data()
                        && !data.is_empty()
                    {
                        return Ok(Some(data));
                    }
                }
                Some(Err(_)) => {
                    self.body = None;
                    return Err(HttpError::ClosedMidBody { host: self.host.clone() });
                }
                None => {
                    if let Some((_, connection)) = self.body.take() {
                        self.pool.put(&self.origin, connection, None);
                    }
                    return Ok(None);
                }
            }
        }
    }

    /// Reads the body up to a limit and leaves the rest.
    pub async fn bytes_up_to(&mut self, limit: usize) -> Result<Body, HttpError> {
        let mut bytes = BytesMut::new();
        while let Some(chunk) = self.chunk().await? {
            let room = limit - bytes.len();
            if chunk.len() > room {
                bytes.extend_from_slice(&chunk[..room]);
                self.body = None;
                return Ok(Body { bytes: bytes.freeze(), truncated: true });
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Body { bytes: bytes.freeze(), truncated: false })
    }

    /// Ends reading where nothing of worth is left: the connection is kept, and its last few bytes
    /// are read when it is next used.
    pub fn release(mut self) {
        if let Some((body, connection)) = self.body.take() {
            self.pool.put(&self.origin, connection, Some(body));
        }
    }
}
