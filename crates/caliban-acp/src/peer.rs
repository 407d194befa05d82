//! The sending half of a connection: requests, notifications, answers, and the task that writes them.
//!
//! What waits to be written is bounded in bytes: whoever sends waits for room. Only error answers to requests
//! whose handler went away skip the queue's bound; there are at most as many as requests in flight.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, Error, PROTOCOL_LEVEL_METHOD_NAMES, RequestId,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{connection::ConnectionLimits, wire};

/// How much is put together for one write.
const WRITE_BATCH_BYTES: usize = 64 * 1024;

/// The connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection is closed")]
pub struct Closed;

/// Why a request has no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    /// The connection is gone.
    #[error("the connection is closed")]
    Closed,
    /// The other side said no.
    #[error("{}", .0.message)]
    Refused(Error),
    /// The other side's answer is not what was agreed.
    #[error("the answer cannot be understood: {0}")]
    Nonsense(String),
}

impl From<Closed> for CallError {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

/// What an answer holds.
type RpcAnswer = Result<Box<RawValue>, Error>;
/// Our requests that wait for an answer.
type Requests = HashMap<i64, oneshot::Sender<RpcAnswer>>;

/// The other side, for sending. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Peer(Arc<PeerShared>);

#[derive(Debug)]
struct PeerShared {
    queue: mpsc::UnboundedSender<QueueItem>,
    room: Arc<Semaphore>,
    capacity: usize,
    next_id: AtomicI64,
    pending: Mutex<Requests>,
    /// Their requests that are being handled.
    in_flight: Mutex<HashMap<RequestId, CancellationToken>>,
    closed: CancellationToken,
}

#[derive(Debug)]
enum QueueItem {
    Line(Vec<u8>, Option<OwnedSemaphorePermit>),
    End,
}

impl Peer {
    /// Starts the writing task.
    pub(crate) fn start(
        writer: impl AsyncWrite + Send + Unpin + 'static,
        limits: ConnectionLimits,
    ) -> (Self, AbortOnDropHandle<()>) {
        let (queue, items) = mpsc::unbounded_channel();
        let capacity = limits.write_buffer.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let closed = CancellationToken::new();
        let peer = Self(Arc::new(PeerShared {
            queue,
            room: Arc::new(Semaphore::new(capacity)),
            capacity,
            next_id: AtomicI64::new(1),
            pending: Mutex::default(),
            in_flight: Mutex::default(),
            closed: closed.clone(),
        }));
        let task = tokio::spawn(async move {
            if let Err(error) = write_all(writer, items, limits.write_timeout).await {
                tracing::debug!(%error, "a connection's writer ended");
            }
            closed.cancel();
        });
        (peer, AbortOnDropHandle::new(task))
    }

    /// Sends a request. The answer is the returned future's.
    pub async fn request(&self, method: &str, params: &impl Serialize) -> Result<PendingRequest, CallError> {
        let number = self.0.next_id.fetch_add(1, Ordering::Relaxed);
        let line = wire::call(Some(&RequestId::Number(number)), method, params);
        let line = line.map_err(|error| CallError::Nonsense(error.to_string()))?;
        let (sender, answer) = oneshot::channel();
        self.pending().insert(number, sender);
        let pending = PendingRequest { peer: self.clone(), number, answer };
        self.send(line).await?;
        Ok(pending)
    }

    /// Sends a request and waits for its result.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
    ) -> Result<T, CallError> {
        let result = self.request(method, params).await?.await?;
        serde_json::from_str(result.get()).map_err(|error| CallError::Nonsense(error.to_string()))
    }

    /// Sends a notification.
    pub async fn notify(&self, method: &str, params: &impl Serialize) -> Result<(), Closed> {
        match wire::call(None, method, params) {
            Ok(line) => self.send(line).await,
            Err(error) => {
                tracing::warn!(method, %error, "a notification cannot be written");
                Ok(())
            }
        }
    }

    /// Ends when the connection does.
    pub async fn closed(&self) {
        self.0.closed.cancelled().await;
    }

    /// Waits for room, then queues a line.
    pub(crate) async fn send(&self, line: Vec<u8>) -> Result<(), Closed> {
        let need = u32::try_from(line.len().clamp(1, self.0.capacity)).unwrap_or(u32::MAX);
        let room = tokio::select! {
            biased;
            () = self.0.closed.cancelled() => return Err(Closed),
            room = self.0.room.clone().acquire_many_owned(need) => room.map_err(|_| Closed)?,
        };
        self.0.queue.send(QueueItem::Line(line, Some(room))).map_err(|_| Closed)
    }

    /// Queues a line without waiting; for small ones whose number is bounded.
    fn send_now(&self, line: Vec<u8>) {
        // Nobody is there to be told when the writer has gone.
        let _gone = self.0.queue.send(QueueItem::Line(line, None));
    }

    /// Lets the writer end after what is queued.
    pub(crate) fn finish(&self) {
        let _gone = self.0.queue.send(QueueItem::End);
    }

    /// Nothing can be sent or answered any more.
    pub(crate) fn hang_up(&self) {
        self.0.closed.cancel();
        self.pending().clear();
    }

    /// An answer has come in.
    pub(crate) fn resolve(&self, id: &RequestId, result: RpcAnswer) {
        let RequestId::Number(number) = id else { return };
        if let Some(sender) = self.pending().remove(number) {
            // Whoever asked may have gone.
            let _gone = sender.send(result);
        }
    }

    /// A request has come in; an error when it may not be handled.
    pub(crate) fn accept(&self, id: RequestId, limit: usize) -> Result<Responder, &'static str> {
        let cancel = CancellationToken::new();
        let mut in_flight = self.in_flight();
        if in_flight.len() >= limit {
            return Err("too many requests at once");
        }
        if in_flight.contains_key(&id) {
            return Err("a request with this id is being handled");
        }
        in_flight.insert(id.clone(), cancel.clone());
        drop(in_flight);
        Ok(Responder { peer: self.clone(), id, cancel, answered: false })
    }

    /// The other side no longer wants an answer.
    pub(crate) fn cancel_incoming(&self, id: &RequestId) {
        if let Some(cancel) = self.in_flight().get(id) {
            cancel.cancel();
        }
    }

    fn pending(&self) -> MutexGuard<'_, Requests> {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight(&self) -> MutexGuard<'_, HashMap<RequestId, CancellationToken>> {
        self.0.in_flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of ours that waits for its answer. Dropping it forgets the request.
#[derive(Debug)]
pub struct PendingRequest {
    peer: Peer,
    number: i64,
    answer: oneshot::Receiver<RpcAnswer>,
}

impl PendingRequest {
    /// Tells the other side that no answer is wanted any more.
    pub async fn cancel(self) -> Result<(), Closed> {
        let notification = CancelRequestNotification::new(RequestId::Number(self.number));
        self.peer.notify(PROTOCOL_LEVEL_METHOD_NAMES.cancel_request, &notification).await
    }
}

impl Future for PendingRequest {
    type Output = Result<Box<RawValue>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(context).map(|answer| match answer {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => Err(CallError::Refused(error)),
            Err(_) => Err(CallError::Closed),
        })
    }
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.peer.pending().remove(&self.number);
    }
}

/// The duty to answer one request. Dropped without an answer, it answers an internal error.
#[derive(Debug)]
pub struct Responder {
    peer: Peer,
    id: RequestId,
    cancel: CancellationToken,
    answered: bool,
}

impl Responder {
    /// Fires when the other side cancels the request (`$/cancel_request`); not when it is gone.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Answers.
    pub async fn answer<T: Serialize>(mut self, result: Result<T, Error>) -> Result<(), Closed> {
        let line = match &result {
            Ok(result) => wire::answer(&self.id, Ok(result)).unwrap_or_else(|error| {
                let error = Error::internal_error().data(error.to_string());
                wire::refusal(&self.id, &error)
            }),
            Err(error) => wire::refusal(&self.id, error),
        };
        // Forgotten before it is sent: the other side may use the id again when it has the answer.
        self.forget();
        self.peer.send(line).await
    }

    fn forget(&mut self) {
        self.answered = true;
        self.peer.in_flight().remove(&self.id);
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if !self.answered {
            self.forget();
            let error = if self.cancel.is_cancelled() {
                Error::request_cancelled()
            } else {
                Error::internal_error().data("the request was dropped without an answer")
            };
            self.peer.send_now(wire::refusal(&self.id, &error));
        }
    }
}

async fn write_all(
    mut writer: impl AsyncWrite + Send + Unpin,
    mut items: mpsc::UnboundedReceiver<QueueItem>,
    limit: Option<Duration>,
) -> std::io::Result<()> {
    let mut batch = Vec::new();
    let mut rooms = Vec::new();
    let mut ended = false;
    while !ended {
        let Some(item) = items.recv().await else { break };
        let mut next = Some(item);
        while let Some(item) = next.take() {
            match item {
                QueueItem::Line(line, room) => {
                    // A large line is not copied behind others.
                    if batch.is_empty() {
                        batch = line
                    } else {
                        batch.extend_from_slice(&line)
                    }
                    rooms.extend(room);
                }
                QueueItem::End => ended = true,
            }
            if batch.len() < WRITE_BATCH_BYTES && !ended {
                next = items.try_recv().ok();
            }
        }
        let mut rest: &[u8] = &batch;
        while !rest.is_empty() {
            let written = within(limit, writer.write(rest)).await?;
            if written == 0 {
                return Err(std::io::ErrorKind::WriteZero.into());
            }
            rest = &rest[written..];
        }
        within(limit, writer.flush()).await?;
        batch = Vec::new();
        rooms.clear();
    }
    within(limit, writer.shutdown()).await
}

/// As long as something moves, a slow reader is fine; one that takes nothing for this long is dead.
async fn within<T>(
    limit: Option<Duration>,
    step: impl Future<Output = std::io::Result<T>>,
) -> std::io::Result<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, step)
            .await
            .unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())),
        None => step.await,
    }
}
