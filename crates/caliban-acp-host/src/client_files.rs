//! The client's own files (`fs/read_text_file`, `fs/write_text_file`), as an editor offers them: its text of a file may not
//! be saved yet.

use std::{
    path::Path,
    sync::{Arc, OnceLock},
};

use caliban_acp::{
    connection::Peer,
    v1::{CLIENT_METHOD_NAMES, ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest},
};
use caliban_tools::{BoxFuture, Buffers};
use serde_json::Value;

/// What of it the client can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FileAbilities {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// The files of the client that opened a session.
#[derive(Clone)]
pub struct ClientFiles(Arc<FilesInner>);

struct FilesInner {
    peer: Peer,
    abilities: FileAbilities,
    /// Known when the session is open.
    session: OnceLock<String>,
}

impl ClientFiles {
    /// None where the client offers none.
    pub(crate) fn of(peer: Peer, abilities: FileAbilities) -> Option<Self> {
        let is_some = abilities.read || abilities.write;
        is_some.then(|| Self(Arc::new(FilesInner { peer, abilities, session: OnceLock::new() })))
    }

    pub(crate) fn belong_to(&self, session: &str) {
        // Set once: a session keeps its id.
        let _known = self.0.session.set(session.to_owned());
    }

    /// For the tools.
    #[must_use]
    pub fn buffers(&self) -> Arc<dyn Buffers> {
        self.0.clone()
    }
}

impl PartialEq for ClientFiles {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for ClientFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientFiles")
    }
}

impl Buffers for FilesInner {
    fn read<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            let session = self.session.get().filter(|_| self.abilities.read)?;
            let request = ReadTextFileRequest::new(session.clone(), path);
            let answer =
                self.peer.call::<ReadTextFileResponse>(CLIENT_METHOD_NAMES.fs_read_text_file, &request);
            match answer.await {
                Ok(answer) => Some(answer.content),
                Err(error) => {
                    tracing::debug!(%error, "the client has no text of a file");
                    None
                }
            }
        })
    }

    fn write<'a>(&'a self, path: &'a Path, text: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let Some(session) = self.session.get().filter(|_| self.abilities.write) else { return };
            let request = WriteTextFileRequest::new(session.clone(), path, text);
            let answer = self.peer.call::<Value>(CLIENT_METHOD_NAMES.fs_write_text_file, &request).await;
            if let Err(error) = answer {
                // It is on the disk; the editor sees that in its own time.
                tracing::debug!(%error, "the client was not told of a file");
            }
        })
    }
}
