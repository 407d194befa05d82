//! Kept connections: at most one idle one for each origin.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use tokio_util::task::AbortOnDropHandle;

/// After this long a server has probably closed it.
const IDLE_LIMIT: Duration = Duration::from_secs(60);
/// More origins than this are not kept.
const MAX_ORIGINS: usize = 16;
/// How much of an unread rest is worth reading to keep a connection.
const DRAIN_BYTES: usize = 64 * 1024;
/// How long that may take; the rest has usually arrived long ago.
const DRAIN_TIME: Duration = Duration::from_millis(50);

/// A connection and the task that moves its bytes. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct PooledConnection {
    pub(crate) sender: SendRequest<Full<Bytes>>,
    pub(crate) _driver: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Idle {
    connection: PooledConnection,
    /// The end of the last body, if nobody has read it yet.
    rest: Option<Incoming>,
    since: Instant,
}

/// The idle connections of one client, by origin.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<HashMap<String, Idle>>,
}

impl Pool {
    pub(crate) fn put(&self, origin: &str, connection: PooledConnection, rest: Option<Incoming>) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() >= MAX_ORIGINS && !idle.contains_key(origin) {
            idle.clear();
        }
        idle.insert(origin.to_owned(), Idle { connection, rest, since: Instant::now() });
    }

    /// A connection that can take a request now, as far as one can know.
    pub(crate) async fn take(&self, origin: &str) -> Option<PooledConnection> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).remove(origin)?;
        if idle.since.elapsed() > IDLE_LIMIT {
            return None;
        }
        let mut connection = idle.connection;
        let ready = async {
            let mut left = DRAIN_BYTES;
            if let Some(mut rest) = idle.rest {
                while let Some(frame) = rest.frame().await {
                    let read = frame.ok()?.data_ref().map_or(0, Bytes::len);
                    left = left.checked_sub(read)?;
                }
            }
            connection.sender.ready().await.ok()
        };
        tokio::time::timeout(DRAIN_TIME, ready).await.ok()??;
        Some(connection)
    }
}
