//! A socket that says what the sessions of a screen are at, and nothing else: what `cafleet` asks a caliban member.
//!
//! A member's messages come out of its mailbox, and its questions are its person's. So nobody can speak, decide or make
//! sessions through this socket.

use std::sync::Arc;

use caliban_acp::{
    ProtocolVersion,
    connection::{ConnError, ConnectionLimits, Inbox, Incoming},
    extension::{STATE, StateAnswer},
    v1::{AGENT_METHOD_NAMES, Error, Implementation, InitializeResponse},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::UnixListener,
};
use tokio_util::sync::CancellationToken;

use crate::{listen::accept, sessions::Sessions};

/// The longest line that is read: nothing long is asked here.
const LINE_BYTES: usize = 64 * 1024;

/// Answers everybody of our own user who connects, for ever.
pub async fn listen_state(listener: UnixListener, sessions: Arc<Sessions>, version: &str) {
    let each = |reader, writer| answer(reader, writer, sessions.clone(), version.to_owned());
    accept(listener, CancellationToken::new(), each).await;
}

async fn answer(
    reader: impl AsyncRead + Send + Unpin + 'static,
    writer: impl AsyncWrite + Send + Unpin + 'static,
    sessions: Arc<Sessions>,
    version: String,
) -> Result<(), ConnError> {
    let mut inbox =
        Inbox::open(reader, writer, ConnectionLimits { line: LINE_BYTES, ..ConnectionLimits::default() });
    while let Some(incoming) = inbox.next().await? {
        let Incoming::Request { method, responder, .. } = incoming else { continue };
        if method == AGENT_METHOD_NAMES.initialize {
            let welcome = InitializeResponse::new(ProtocolVersion::V1)
                .agent_info(Implementation::new("caliban", version.clone()).title("Caliban"));
            responder.answer(Ok(welcome)).await?;
        } else if method == STATE {
            responder.answer(Ok(StateAnswer { state: sessions.state() })).await?;
        } else {
            responder.answer::<()>(Err(Error::method_not_found().data(method))).await?;
        }
    }
    inbox.close().await;
    Ok(())
}
