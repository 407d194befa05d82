//! Requests of ours that wait for an answer on a connection that carries all of them, and what else comes on it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::sync::oneshot;

use crate::{
    message::{Incoming, RpcError},
    unrequested::Unrequested,
};

type Answer = Result<Value, RpcError>;

/// The requests that wait, by their ids.
#[derive(Default)]
pub(crate) struct Pending(Mutex<HashMap<u64, oneshot::Sender<Answer>>>);

/// One of them. It is forgotten when its caller is gone.
pub(crate) struct PendingAnswer<'a> {
    pending: &'a Pending,
    id: u64,
    answer: oneshot::Receiver<Answer>,
}

impl Pending {
    pub(crate) fn wait(&self, id: u64) -> PendingAnswer<'_> {
        let (sender, answer) = oneshot::channel();
        self.table().insert(id, sender);
        PendingAnswer { pending: self, id, answer }
    }

    /// Nothing will come any more: everybody who waits is told.
    pub(crate) fn clear(&self) {
        self.table().clear();
    }

    /// Brings what came to whom it is for. What the server asks is answered through `send`, and not in the way of what
    /// comes behind it: a person may have to think, or a further message may be what the server waits for.
    pub(crate) fn take<F>(
        &self,
        incoming: Incoming,
        heard: &Arc<Unrequested>,
        send: impl FnOnce(String) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        match incoming {
            Incoming::Answer { id, result } => {
                let answer = self.table().remove(&id);
                // Its caller may have left just now.
                let _best_effort = answer.map(|answer| answer.send(result));
            }
            Incoming::Request { id, method, params } => {
                let heard = Arc::clone(heard);
                tokio::spawn(async move { send(heard.reply(&id, &method, &params).await).await });
            }
            Incoming::Notification { method, params } => heard.take(&method, &params),
            Incoming::Other => {}
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingAnswer<'_> {
    /// The answer; none when the connection ended first.
    pub(crate) async fn come(mut self) -> Option<Answer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        self.pending.table().remove(&self.id);
    }
}
