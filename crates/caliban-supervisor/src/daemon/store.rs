//! The one writer of the registry: batches come in, are committed together, and come back with what was waiting
//! for them.
//!
//! Group commit: while a commit is on its way to the disk further batches gather, and go together as the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::names::Slug;
use caliban_store::StoreError;
use caliban_store::fleet::{Registry, RegistryChange, StatusChange};
use tokio::sync::{mpsc, oneshot};

use super::answers::KeptAnswer;
use super::new_run::Renewal;
use super::schedule::Schedule;
use super::{Msg, ReplyTo};
use crate::protocol::Respawned;

/// Changes with what happens when they are on the disk.
#[derive(Debug, Default)]
pub(super) struct Batch {
    changes: Vec<RegistryChange>,
    thens: Vec<Then>,
    /// How agents stood meanwhile. Not worth a commit: it comes with the next one.
    passed: Vec<RegistryChange>,
}

impl Batch {
    pub(super) fn add(&mut self, change: RegistryChange, then: Then) {
        self.changes.push(change);
        self.thens.push(then);
    }

    /// An agent stands so from now on, and the worker's own file says it too.
    pub(super) fn pass(&mut self, change: StatusChange) {
        self.passed.push(RegistryChange::Stood(change));
    }

    /// Whether nothing has to be committed.
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The endings that will be recorded, one for each agent.
    pub(super) fn endings(&self) -> Vec<State> {
        let mut last = BTreeMap::new();
        for change in &self.changes {
            if let RegistryChange::Update(record) = change {
                last.insert(record.id, record.status.state());
            }
        }
        last.into_values().filter(|state| state.is_ending()).collect()
    }
}

/// What happens when a change is on the disk.
#[derive(Debug)]
pub(super) enum Then {
    /// Nothing more: the change records what has happened to this agent.
    Nothing(AgentId),
    /// It is registered.
    Spawned(AgentId),
    /// The name of its next run is there.
    Renewed { id: AgentId, nonce: String, renewal: Renewal },
    /// Its row is the answer.
    Row { id: AgentId, reply: ReplyTo },
    /// The row of an agent that was removed is gone.
    Deleted(AgentId),
    /// The answer to a request is kept.
    Answered { request: String, kept: KeptAnswer },
    /// A schedule is there, changed or gone; how it was before, and who is to be answered.
    Scheduled { name: Slug, before: Option<Box<Schedule>>, reply: Option<ReplyTo> },
    /// It is gone, another has its place.
    Respawned { respawned: Respawned, reply: ReplyTo },
}

enum StoreJob {
    Commit(Batch),
    Spec(AgentId, oneshot::Sender<Result<Option<String>, StoreError>>),
    History(u64, u64, oneshot::Sender<Result<Vec<StatusChange>, StoreError>>),
}

/// The handle of the writer.
pub(super) struct Store {
    // Unbounded, because the owner must not wait; what can be in it is bounded by the requests in flight.
    jobs: mpsc::UnboundedSender<StoreJob>,
}

/// A way to read the registry.
#[derive(Debug, Clone)]
pub(super) struct RegistryReader(mpsc::UnboundedSender<StoreJob>);

impl Store {
    /// The handle, and the writer, which runs until the last handle is gone and everything is written.
    pub(super) fn new(registry: Registry, inbox: mpsc::Sender<Msg>) -> (Self, impl Future<Output = ()>) {
        let (jobs, queue) = mpsc::unbounded_channel();
        (Self { jobs }, write(registry, queue, inbox))
    }

    pub(super) fn commit(&self, mut batch: Batch) {
        batch.changes.splice(0..0, batch.passed.drain(..));
        if self.jobs.send(StoreJob::Commit(batch)).is_err() {
            tracing::error!("the writer of the registry is gone");
        }
    }

    pub(super) fn reader(&self) -> RegistryReader {
        RegistryReader(self.jobs.clone())
    }
}

impl RegistryReader {
    /// How agents stood from one moment to another.
    pub(super) async fn history(&self, from: u64, to: u64) -> Result<Vec<StatusChange>, String> {
        self.ask(|reply| StoreJob::History(from, to, reply)).await
    }

    /// The request of an agent, as JSON.
    pub(super) async fn get(&self, id: AgentId) -> Result<String, String> {
        let spec = self.ask(|reply| StoreJob::Spec(id, reply)).await?;
        spec.ok_or_else(|| "it is not in the registry any more".to_owned())
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> StoreJob,
    ) -> Result<T, String> {
        let (reply, answer) = oneshot::channel();
        // A writer that is gone drops the reply with the job.
        let _closed = self.0.send(job(reply));
        let answer = answer.await.map_err(|_| "the registry is closed".to_owned())?;
        answer.map_err(|error| error.to_string())
    }
}

async fn write(
    mut registry: Registry,
    mut queue: mpsc::UnboundedReceiver<StoreJob>,
    inbox: mpsc::Sender<Msg>,
) {
    let mut next = None;
    loop {
        let job = match next.take() {
            Some(job) => job,
            None => match queue.recv().await {
                Some(job) => job,
                None => break,
            },
        };
        match job {
            StoreJob::Spec(id, reply) => {
                let found = registry.spec(id).await;
                tell_if_lost(&inbox, &found).await;
                let _gone = reply.send(found);
            }
            StoreJob::History(from, to, reply) => {
                let found = registry.history(from, to).await;
                tell_if_lost(&inbox, &found).await;
                let _gone = reply.send(found);
            }
            StoreJob::Commit(mut batch) => {
                while let Ok(job) = queue.try_recv() {
                    match job {
                        StoreJob::Commit(more) => {
                            batch.changes.extend(more.changes);
                            batch.thens.extend(more.thens);
                        }
                        other => {
                            next = Some(other);
                            break;
                        }
                    }
                }
                let outcome = registry.commit(&batch.changes).await.map_err(Arc::new);
                let _owner_left = inbox.send(Msg::Stored(batch.thens, outcome)).await;
            }
        }
    }
    registry.close().await;
}

/// A registry that is not there any more is the owner's business, whoever found that out.
async fn tell_if_lost<T: Sync>(inbox: &mpsc::Sender<Msg>, found: &Result<T, StoreError>) {
    if let Err(StoreError::Replaced(file)) = found {
        let lost = Arc::new(StoreError::Replaced(file.clone()));
        let _owner_left = inbox.send(Msg::Stored(Vec::new(), Err(lost))).await;
    }
}
