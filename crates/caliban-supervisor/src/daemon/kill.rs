//! `POST /v1/agents/{id}/kill`: the order to end is written durably first (`stop_order.rs`); then TERM, grace, KILL.
//! `killed` is said when the whole tree is gone. A daemon that dies in between leaves the rest to the next.

use std::path::Path;
use std::time::Duration;

use caliban_contract::detached;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::LifecycleEvent;
use caliban_store::StoreError;
use caliban_store::fleet::WantedState;
use rustix::process::Signal;

use super::phase::{Keeper, Ordered, Phase, Waiter, WantedStop};
use super::spawn::bad;
use super::store::Then;
use super::{Msg, Owner, ReplyTo, VerbResult, stop_order, store_refusal};
use crate::protocol::{GRACE_CAP_MS, KillRequest};
use crate::records::StopOrder;
use caliban_process::Patience;

/// How long the disk may take with an order before the run is ended without it.
const ORDER_LIMIT: Duration = Duration::from_secs(2);
/// How long a shim may take, after the grace, to end what only KILL ends. After that it is ended itself.
const SHIM_LIMIT: Duration = Duration::from_secs(15);

/// Ends what an agent detached: who ends a living agent means all of it.
async fn end_detached(jobs: &Path, id: AgentId) {
    let (place, agent) = (jobs.to_owned(), id.to_string());
    let running = tokio::task::spawn_blocking(move || detached::running_of(&place, &agent)).await;
    for record in running.unwrap_or_default() {
        match caliban_keeper::stop_detached(jobs, &record).await {
            Ok(true) => tracing::info!(%id, "ended its detached command {}", record.id),
            Ok(false) => tracing::warn!(%id, "its detached command {} does not end", record.id),
            Err(error) => tracing::warn!(%id, "its detached command {}: {error}", record.id),
        }
    }
}

impl Owner {
    pub(super) fn kill(&mut self, query: &str, request: &KillRequest, reply: &mut ReplyTo) -> VerbResult {
        let grace = request.grace_ms.unwrap_or(self.options.grace_ms);
        if grace > GRACE_CAP_MS {
            return Err(bad(format!("a grace of {grace} ms is over the limit of {GRACE_CAP_MS}")));
        }
        // Also one that is just being woken or resumed: then it is not started.
        let id = self.resolve(query)?;
        self.kill_then(id, grace, Waiter::Kill(reply.take()));
        Ok(None)
    }

    /// Ends an agent if it has not ended; `waiter` goes on when it has, and when that is on the disk.
    pub(super) fn kill_then(&mut self, id: AgentId, grace_ms: u64, waiter: Waiter) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let needs_order = agent.needs_order();
        let was_alive = !matches!(agent.phase, Phase::Ended);
        match &mut agent.phase {
            // Nobody knows it yet.
            Phase::Registering(_) => return,
            Phase::Running(run) => {
                run.stop.get_or_insert_default().waiting.push(waiter);
                agent.record.wanted = WantedState::Kill;
                self.save(id, Then::Nothing(id));
            }
            Phase::Queued(_) | Phase::Renewing(_) | Phase::Hibernating(_) => {
                agent.phase = Phase::Stopping(vec![waiter]);
                agent.record.wanted = WantedState::Kill;
                self.apply(id, LifecycleEvent::Killed { signal: None });
            }
            Phase::Stopping(waiting) => return waiting.push(waiter),
            Phase::Ended if needs_order && matches!(waiter, Waiter::Kill(_)) => {
                agent.phase = Phase::Stopping(vec![waiter]);
            }
            Phase::Ended | Phase::Leaving(_) => return self.go_on(id, waiter, true),
        }
        self.order_stop(id, grace_ms, was_alive, None);
    }

    /// Writes the order that an agent should end; `timed_out_ms` is the time that it had, when that is why.
    pub(super) fn order_stop(
        &mut self,
        id: AgentId,
        grace_ms: u64,
        was_alive: bool,
        timed_out_ms: Option<u64>,
    ) {
        let Some(agent) = self.agents.get(&id) else { return };
        let (dir, nonce) = (self.places.agent_dir(id), agent.record.nonce.clone());
        let others = agent.other_runs.clone();
        let order = StopOrder { nonce: nonce.clone(), others, grace_ms, removed: false, timed_out_ms };
        let jobs = self.places.base().join(detached::DIRECTORY);
        self.later(async move {
            let writing = tokio::task::spawn_blocking(move || stop_order::write(&dir, &order));
            let why = match tokio::time::timeout(ORDER_LIMIT, writing).await {
                Ok(Ok(Ok(()))) => None,
                Ok(Ok(Err(error))) => Some(error.to_string()),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("the disk does not answer".to_owned()),
            };
            if let Some(why) = &why {
                tracing::warn!(%id, "the order to end it is in the registry only: stop.json: {why}");
            }
            // Before the run is ended: from then on nobody knows that the agent was alive when the order came.
            if was_alive {
                end_detached(&jobs, id).await;
            }
            Some(Msg::StopOrdered { id, nonce, ordered: Ordered { grace_ms, is_durable: why.is_none() } })
        });
    }

    /// The order is on the disk, or cannot be written.
    pub(super) fn stop_ordered(&mut self, id: AgentId, nonce: &str, ordered: Ordered) {
        // An order for a run that was resumed since says nothing.
        let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.is_named(nonce)) else { return };
        match &mut agent.phase {
            Phase::Running(run) => {
                let Some(stop) = &mut run.stop else { return };
                let was_durable = stop.ordered.is_some_and(|before| before.is_durable);
                stop.ordered = Some(Ordered { is_durable: was_durable || ordered.is_durable, ..ordered });
                self.end_run(id);
            }
            Phase::Stopping(waiting) => {
                let waiting = std::mem::take(waiting);
                agent.phase = Phase::Ended;
                self.go_on_all(id, waiting, ordered.is_durable);
            }
            Phase::Registering(_) | Phase::Queued(_) | Phase::Renewing(_) => {}
            Phase::Hibernating(_) | Phase::Ended | Phase::Leaving(_) => {}
        }
    }

    /// Ends the run of an agent if that was ordered.
    pub(super) fn end_run(&mut self, id: AgentId) {
        let Some(run) = self.agents.get(&id).and_then(|agent| agent.run()) else { return };
        let Some(WantedStop { ordered: Some(ordered), .. }) = &run.stop else { return };
        let process = match &run.keeper {
            Keeper::Alive(alive) => alive.process.clone(),
            Keeper::Unconfirmed => return self.settle(id),
            // When they come to be alive, or turn out not to be.
            Keeper::Starting | Keeper::Settling | Keeper::Unwatched(_) | Keeper::Clearing => return,
        };
        let grace = ordered.grace_ms;
        tracing::info!(%id, "ending its run (grace {grace} ms)");
        for signal in [Signal::TERM, Signal::CONT] {
            let _gone_already = rustix::process::pidfd_send_signal(process.get_ref(), signal);
        }
        let limit = Duration::from_millis(grace.max(self.options.grace_ms)) + SHIM_LIMIT;
        self.later(async move {
            let mut patience = Patience::new(limit);
            let late = tokio::select! {
                biased;
                _ = process.readable() => false,
                () = patience.over() => true,
            };
            if late {
                tracing::error!(%id, "its shim does not end the tree; ending both");
                let _gone_already = rustix::process::pidfd_send_signal(process.get_ref(), Signal::KILL);
            }
            None
        });
    }

    /// The run is over: goes on with what waits for that, once the order to end it is on the disk.
    pub(super) fn run_over(&mut self, id: AgentId, stop: Option<WantedStop>) {
        match stop {
            None => {}
            Some(WantedStop { ordered: Some(ordered), waiting, .. }) => {
                self.go_on_all(id, waiting, ordered.is_durable);
            }
            Some(WantedStop { ordered: None, waiting, .. }) => {
                if let Some(agent) = self.agents.get_mut(&id) {
                    agent.phase = Phase::Stopping(waiting);
                }
            }
        }
    }

    fn go_on_all(&mut self, id: AgentId, waiting: Vec<Waiter>, is_durable: bool) {
        for waiter in waiting {
            self.go_on(id, waiter, is_durable);
        }
    }

    /// Goes on with what waited for the end of an agent. `is_durable`: whether the next daemon will know of the end.
    fn go_on(&mut self, id: AgentId, waiter: Waiter, is_durable: bool) {
        match waiter {
            Waiter::Kill(reply) if is_durable => reply.send(self.row_answer(id)),
            Waiter::Kill(reply) => self.save(id, Then::Row { id, reply }),
            Waiter::Leave(purpose) => match self.resolve_free(&id.to_string()) {
                Ok(id) => self.dispose(id, purpose),
                // Another request that waited for its end was first.
                Err(error) => purpose.into_reply().send(Err(error)),
            },
        }
    }

    /// Neither the order nor the end could be recorded. The agent has ended all the same, and this daemon knows it; after a
    /// failed sync the next one may know something else.
    pub(super) fn end_not_stored(&mut self, id: AgentId, reply: ReplyTo, error: &StoreError) {
        self.mark_unsaved(id);
        let refused = error.is_unconfirmed().then(|| store_refusal(error));
        reply.send(refused.map_or_else(|| self.row_answer(id), Err));
    }
}
