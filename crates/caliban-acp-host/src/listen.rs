//! A socket in front of sessions: what a fleet worker offers to `attach`.

use std::{io, sync::Arc, time::Duration};

use caliban_acp::connection::ConnError;
use tokio::{
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    server::{ServeOptions, serve},
    sessions::Sessions,
};

/// Clients that are served at the same time; more are turned away.
pub const MAX_CLIENTS: usize = 64;
/// How long to wait before accepting again when the system has no room for another connection.
const FULL_PAUSE: Duration = Duration::from_millis(100);

/// Serves everybody of our own user who connects, until `stop`. The sessions stay as they are.
pub async fn listen(
    listener: UnixListener,
    sessions: Arc<Sessions>,
    options: ServeOptions,
    stop: CancellationToken,
) {
    let each = |reader, writer| serve(reader, writer, sessions.clone(), options.clone());
    accept(listener, stop, each).await;
}

/// Serves everybody of our own user who connects, until `stop`, each by itself.
pub(crate) async fn accept<F>(
    listener: UnixListener,
    stop: CancellationToken,
    serve: impl Fn(OwnedReadHalf, OwnedWriteHalf) -> F,
) where
    F: Future<Output = Result<(), ConnError>> + Send + 'static,
{
    let mut clients = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = clients.join_next(), if !clients.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(FULL_PAUSE).await;
                continue;
            }
        };
        if let Err(error) = admit(&stream, clients.len()) {
            tracing::warn!(%error, "a client was turned away");
            continue;
        }
        let (reader, writer) = stream.into_split();
        let served = serve(reader, writer);
        clients.spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a client's connection ended");
            }
        });
    }
    clients.shutdown().await;
}

fn admit(stream: &UnixStream, clients: usize) -> io::Result<()> {
    let (theirs, ours) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if theirs != ours {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("user {theirs} is not user {ours}"),
        ));
    }
    if clients >= MAX_CLIENTS {
        return Err(io::Error::other(format!("there are {clients} clients already")));
    }
    Ok(())
}
