//! `POST /v1/agents/{id}/kill`: that it is wanted is committed first; then TERM, grace, KILL; `killed` is said
//! when the whole tree is gone. A daemon that dies in between leaves the rest to the next.

use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Event, State};
use caliban_store::fleet::Wanted;
use rustix::process::Signal;

use super::agent::{Keeper, Waiter};
use super::kill_journal::Deed;
use super::pending_answers::STORE_LIMIT;
use super::store::Then;
use super::{Msg, Owner, Reply, answer_to, decide, resume, start};
use crate::protocol::{ApiError, ErrorCode, GRACE_CAP_MS, KillRequest};
use crate::records::{self, Again, ExitRecord, StopOrder};
use caliban_process::Patience;

/// How long a shim may take, after the grace, to end what only KILL ends. After that it is ended itself.
const SHIM_LIMIT: Duration = Duration::from_secs(15);

impl Owner {
    pub(super) fn kill(&mut self, query: &str, request: &KillRequest, reply: Reply) {
        let grace = request.grace_ms.unwrap_or(self.options.grace_ms);
        if grace > GRACE_CAP_MS {
            let text = format!("a grace of {grace} ms is over the limit of {GRACE_CAP_MS}");
            return answer_to(reply, Err(ApiError::new(ErrorCode::BadRequest, text)));
        }
        // Also one that is just being woken or resumed: then it is not started.
        match self.resolve(query) {
            Ok(id) => self.kill_then(id, grace, Waiter::Kill(reply)),
            Err(error) => answer_to(reply, Err(error)),
        }
    }

    /// Ends an agent's run if there is one; `waiter` goes on when it is over.
    pub(super) fn kill_then(&mut self, id: AgentId, grace: u64, waiter: Waiter) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.waiting.push(waiter);
        if agent.state().is_ending() {
            return self.run_is_over(id);
        }
        agent.record.wanted = Wanted::Kill;
        match agent.keeper {
            Keeper::Nobody | Keeper::Renewing => {
                agent.keeper = Keeper::Nobody;
                // One that sleeps has a run to go on from, as far as its own files tell.
                self.order_stop(id, grace);
                self.apply(id, Event::Killed { signal: None });
                self.run_is_over(id);
            }
            Keeper::Starting | Keeper::InDoubt | Keeper::Alive(_) | Keeper::Unwatched(_) => {
                agent.orders += 1;
                self.save(id, Then::KillOrdered { id, grace });
                self.later(async move {
                    tokio::time::sleep(STORE_LIMIT).await;
                    Some(Msg::KillLate { id, grace })
                });
            }
        }
    }

    /// The registry takes its time with an order: the run is ended all the same.
    pub(super) fn kill_late(&mut self, id: AgentId, grace: u64) {
        let Some(agent) = self.agents.get(&id) else { return };
        // It may have ended meanwhile, and even been resumed.
        let is_wanted = agent.record.wanted == Wanted::Kill && !agent.state().is_ending();
        if is_wanted && agent.orders > 0 && agent.stop_with.is_none() {
            tracing::warn!(%id, "the registry takes its time; its run is ended without it");
            self.write_down(id, Deed::Killed);
            self.end_run(id, grace);
        }
    }

    /// That it should end is on the disk.
    pub(super) fn stop_run(&mut self, id: AgentId, grace: u64) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.orders = agent.orders.saturating_sub(1);
        // It may have ended meanwhile, and even been resumed: the order was for the run before.
        if agent.record.wanted == Wanted::Kill && !agent.state().is_ending() {
            self.end_run(id, grace);
        }
    }

    fn end_run(&mut self, id: AgentId, grace: u64) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.stop_with = Some(grace);
        if matches!(agent.keeper, Keeper::InDoubt) {
            return self.settle(id);
        }
        let Keeper::Alive(alive) = &agent.keeper else { return };
        tracing::info!(%id, "ending its run (grace {grace} ms)");
        let process = alive.process.clone();
        self.order_stop(id, grace);
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

    /// A run that began although its end was wanted.
    pub(super) fn stop_if_wanted(&mut self, id: AgentId) {
        if let Some(grace) = self.agents.get(&id).and_then(|agent| agent.stop_with) {
            self.end_run(id, grace);
        }
    }

    /// Writes down that the run should end, for its shim and for whoever finds only the agent's files.
    fn order_stop(&self, id: AgentId, grace: u64) {
        let Some(agent) = self.agents.get(&id) else { return };
        let order = StopOrder { nonce: agent.record.nonce.clone(), grace_ms: grace };
        if let Err(error) = records::write(&self.places.agent_dir(id), records::STOP, &order) {
            tracing::warn!(%id, "it gets the usual grace: stop.json: {error}");
        }
    }

    /// A start that failed, of an agent whose end was wanted.
    pub(super) fn killed_before_start(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        if agent.record.wanted == Wanted::Kill && !agent.state().is_ending() {
            agent.stop_with = None;
            self.apply(id, Event::Killed { signal: None });
            self.run_is_over(id);
        }
    }

    /// A run is over and its whole tree is gone.
    pub(super) fn gone(&mut self, id: AgentId, nonce: &str, exit: Option<&ExitRecord>) {
        let Some(agent) = self.agents.get_mut(&id).filter(|agent| agent.record.nonce == nonce) else {
            return;
        };
        agent.read_report(&self.places);
        if let Some((text, again)) = decide::not_begun(exit, agent.record.wanted)
            && matches!(agent.state(), State::Spawning | State::Idle)
            && (again == Again::Soon || !start::is_missed(agent))
        {
            self.watch.remove(id);
            return self.not_begun(id, text);
        }
        let facts = decide::Facts {
            state: agent.state(),
            wanted: agent.record.wanted,
            report: agent.own_report(),
            exit,
        };
        let meaning = decide::end_of_run(&facts);
        agent.keeper = Keeper::Nobody;
        agent.stop_with = None;
        agent.record.note = meaning.note;
        if agent.record.resume_prompt.is_some() && resume::was_heard(&self.places.agent_dir(id)) {
            agent.record.resume_prompt = None;
            agent.unsaved = true;
        }
        self.watch.remove(id);
        let _nobodys = std::fs::remove_file(self.places.agent_socket(id));
        for event in meaning.events {
            self.apply(id, event);
        }
        self.publish(id);
        self.run_is_over(id);
        self.start_ready();
    }

    /// Goes on with what was to happen after the end of a run.
    pub(super) fn run_is_over(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.missing_since = None;
        for waiter in std::mem::take(&mut agent.waiting) {
            match waiter {
                Waiter::Kill(reply) => self.answer_row(id, reply),
                Waiter::Respawn(request, reply) => self.respawn_ended(id, request, reply),
                Waiter::Rm(request, reply) => self.rm_ended(id, request, reply),
            }
        }
    }
}
