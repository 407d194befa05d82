//! What a daemon finds when it starts: agents that live are adopted with the same id, pid and state; those whose
//! processes are gone have ended as their last records say, or `crashed`.
//!
//! A living shim is known by nonce, boot and start time. On any mismatch it counts as gone and gets no signal (r04).

use std::collections::BTreeSet;
use std::fs;
use std::io;

use caliban_contract::archive::{ArchiveReason, was_removed};
use caliban_contract::limits::RaisedLimits;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{LifecycleEvent, State};
use caliban_store::StoreError;
use caliban_store::fleet::{AgentRecord, Registry, RegistryChange, WantedState};

use super::agent::DaemonAgent;
use super::answers::KeptAnswer;
use super::phase::{Keeper, Ordered, Phase, Queued, Tries, WantedStop};
use super::store::Then;
use super::unconfirmed_run::{VOID_PID, keeper_of_rest};
use super::{Owner, archive, rm, spawn, start_time, stop_order};
use crate::lock::HeldLock;
use crate::places::Places;
use crate::process::{self, Traces};
use crate::records::{self, ExitRecord, LEAVING, ShimRecord};
use crate::row::About;

/// What the files say of an agent's run.
enum RunFiles {
    NotBegun,
    /// It began in this boot.
    Begun(ShimRecord),
    /// It began in an earlier boot, or its shim's word is lost.
    Lost,
}

/// The rows of the registry, read page by page. Of a request only what is shown stays in memory.
pub(super) async fn read(
    registry: &mut Registry,
    places: &Places,
) -> Result<Vec<(AgentRecord, About)>, StoreError> {
    let (mut known, mut after) = (Vec::new(), 0);
    loop {
        let page = registry.page(after).await?;
        let Some((last, _)) = page.last() else { break };
        after = last.seq;
        known.extend(page.into_iter().map(|(record, spec)| {
            let dir = places.agent_dir(record.id);
            let mut about = About::of_json(&spec, RaisedLimits::read(&dir));
            start_time::recall(&dir, &mut about);
            (record, about)
        }));
    }
    registry.forget_pages().await;
    Ok(known)
}

impl Owner {
    /// Takes over what the registry and the agents' directories say.
    pub(super) async fn adopt(&mut self, known: Vec<(AgentRecord, About)>) {
        // The last daemon removed them and could not delete their rows.
        let (removed, known): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|(record, _)| was_removed(self.places.base(), record.id));
        for (record, _) in &removed {
            self.batch.add(RegistryChange::Delete(record.id), Then::Deleted(record.id));
            if let Some((request, removed)) = rm::answer(&self.places, record.id) {
                self.keep_answer(Some(&request), KeptAnswer::Removed(removed.clone()));
                self.answered(request, KeptAnswer::Removed(removed));
            }
        }
        let mut dead: Vec<(AgentId, Traces)> = Vec::new();
        for (record, about) in known {
            let (id, nonce) = (record.id, record.nonce.clone());
            self.next_seq = self.next_seq.max(record.seq + 1);
            let mut agent = DaemonAgent::new(record, about, Phase::Ended);
            agent.read_report(&self.places);
            agent.read_begun(&self.places);
            agent.read_review(&self.places);
            let is_over = agent.state().is_ending();
            if agent.state() != State::Spawning {
                // The last daemon died before it could remove it.
                let _was_not_there = fs::remove_file(self.places.agent_dir(id).join(records::QUEUED));
            }
            if !is_over {
                agent.phase = Phase::unconfirmed(self.stop_of(&mut agent.record), Tries::default());
            }
            self.agents.insert(id, agent);
            if is_over {
                continue;
            }
            // What cannot be read of one concerns only that one.
            if let Err(error) = self.adopt_run(id, &nonce, &mut dead) {
                self.cannot_tell(id, &error.to_string());
                self.found.notes.push(format!("agent {id}: nobody can tell yet whether it runs: {error}"));
            }
        }
        self.end_dead(dead).await;
        self.settle_queue();
        self.clear_directories(&removed.iter().map(|(record, _)| record.id).collect());
        self.clear_runtime();
        self.count_found();
        self.adopt_slots();
        self.say_what_was_missed();
    }

    /// The end that was ordered for an agent: by its file, or by the registry.
    fn stop_of(&self, record: &mut AgentRecord) -> Option<WantedStop> {
        let order = stop_order::read(&self.places.agent_dir(record.id), &record.nonce);
        if order.is_some() {
            record.wanted = WantedState::Kill;
        }
        let grace_ms = order.as_ref().map_or(self.options.grace_ms, |order| order.grace_ms);
        let timed_out_ms = order.and_then(|order| order.timed_out_ms);
        let ordered = Some(Ordered { grace_ms, is_durable: true });
        let stop = WantedStop { ordered, waiting: Vec::new(), timed_out_ms };
        (record.wanted == WantedState::Kill).then_some(stop)
    }

    /// Finds out how the run of an agent stands that has not ended as far as the registry knows.
    fn adopt_run(&mut self, id: AgentId, nonce: &str, dead: &mut Vec<(AgentId, Traces)>) -> io::Result<()> {
        let Some(agent) = self.agents.get(&id) else { return Ok(()) };
        let (state, wanted) = (agent.state(), agent.record.wanted);
        match (self.run_of(id, nonce)?, state) {
            // The last daemon may have launched a shim that has not said so yet.
            (RunFiles::NotBegun, State::Spawning) => match wanted {
                _ if self.was_launched(id, nonce)? => self.settle_now(id, nonce, dead)?,
                WantedState::Kill => self.killed_before_start(id),
                WantedState::Run => {
                    self.found.queued += 1;
                    if let Some(agent) = self.agents.get_mut(&id) {
                        agent.phase = Phase::Queued(Queued::default());
                    }
                }
            },
            // It was about to be woken.
            (RunFiles::NotBegun, State::Idle) => self.settle_now(id, nonce, dead)?,
            (RunFiles::NotBegun, _) => match (self.exit_of(id, nonce)?, self.agents.get(&id)) {
                // Its shim.json is gone; processes that it may have left are ended first.
                (None, Some(agent)) => dead.push((id, agent.traces(None))),
                (exit, _) => self.gone(id, nonce, exit.as_ref()),
            },
            (RunFiles::Lost, _) => {
                let exit = self.exit_of(id, nonce)?;
                self.gone(id, nonce, exit.as_ref());
            }
            (RunFiles::Begun(shim), _) => self.take_over(id, nonce, shim, dead)?,
        }
        Ok(())
    }

    /// Settles an unconfirmed run before the first request is served.
    fn settle_now(&mut self, id: AgentId, nonce: &str, dead: &mut Vec<(AgentId, Traces)>) -> io::Result<()> {
        let Some(doubt) = self.doubt(id) else { return Ok(()) };
        match doubt.settle() {
            Ok(Some(shim)) => return self.take_over(id, nonce, shim, dead),
            Ok(None) => self.never_began(id),
            // For example on a full disk: it stays unconfirmed, and every tick tries again.
            Err(text) => self.cannot_tell(id, &text),
        }
        if self.agents.get(&id).is_some_and(|agent| agent.state() == State::Spawning) {
            self.found.queued += 1;
        }
        Ok(())
    }

    fn run_of(&self, id: AgentId, nonce: &str) -> io::Result<RunFiles> {
        let shim = records::try_read::<ShimRecord>(&self.places.agent_dir(id), records::SHIM)?;
        Ok(match shim.filter(|shim| shim.nonce == nonce && shim.pid != VOID_PID) {
            Some(shim) if shim.boot_id == self.boot_id => RunFiles::Begun(shim),
            Some(_) => RunFiles::Lost,
            None => RunFiles::NotBegun,
        })
    }

    pub(super) fn exit_of(&self, id: AgentId, nonce: &str) -> io::Result<Option<ExitRecord>> {
        let exit = records::try_read::<ExitRecord>(&self.places.agent_dir(id), records::EXIT)?;
        Ok(exit.filter(|exit| exit.nonce == nonce))
    }

    /// Watches the shim of a run if it lives.
    fn take_over(
        &mut self,
        id: AgentId,
        nonce: &str,
        shim: ShimRecord,
        dead: &mut Vec<(AgentId, Traces)>,
    ) -> io::Result<()> {
        let has_worker = shim.worker_pid.is_some();
        let living = super::watch::open(&shim);
        let Some(agent) = self.agents.get_mut(&id) else { return Ok(()) };
        let traces = agent.traces(Some(&shim));
        let Some(run) = agent.run_mut() else { return Ok(()) };
        match living {
            Ok(Some(alive)) => run.keeper = Keeper::Alive(alive),
            // It lives for all we know; it is looked at again every tick.
            Err(error) => {
                tracing::warn!(%id, "its shim cannot be watched now: {error}");
                run.keeper = Keeper::Unwatched(shim);
            }
            Ok(None) => {
                match self.exit_of(id, nonce)? {
                    Some(exit) => self.gone(id, nonce, Some(&exit)),
                    None => dead.push((id, traces)),
                }
                return Ok(());
            }
        }
        self.found.adopted += 1;
        if has_worker && self.agents.get(&id).is_some_and(|agent| agent.state() == State::Spawning) {
            self.apply(id, LifecycleEvent::Started);
        }
        self.watch_run(id);
        // Its report was read above; what it says counts now that the run is known to live.
        if let Some(agent) = self.agents.get_mut(&id) {
            agent.report = None;
        }
        self.follow(id);
        self.end_run(id);
        Ok(())
    }

    /// Ends what shims that were killed left behind, all in one look.
    async fn end_dead(&mut self, dead: Vec<(AgentId, Traces)>) {
        if dead.is_empty() {
            return;
        }
        let runs: Vec<Traces> = dead.iter().map(|(_, traces)| traces.clone()).collect();
        let strays = tokio::task::spawn_blocking(move || process::end_strays(&runs)).await;
        let gone = match strays {
            Ok(Ok(strays)) => {
                self.found.strays = strays.ended as u64;
                strays.left == 0
            }
            Ok(Err(error)) => {
                tracing::warn!("cannot look for processes: {error}");
                false
            }
            Err(error) => {
                tracing::error!("{error}");
                false
            }
        };
        for (id, _) in dead {
            let Some(nonce) = self.agents.get(&id).map(|agent| agent.record.nonce.clone()) else { continue };
            if gone {
                self.gone(id, &nonce, None);
            } else if let Some(run) = self.agents.get_mut(&id).and_then(DaemonAgent::run_mut) {
                let found = records::read::<ShimRecord>(&self.places.agent_dir(id), records::SHIM);
                run.keeper = keeper_of_rest(found, &nonce);
            }
        }
    }

    /// Lets agents go on that wait for an agent which has ended or is gone.
    fn settle_queue(&mut self) {
        let living = self.agents.values().filter(|agent| !agent.state().is_ending());
        let waited_for: BTreeSet<AgentId> =
            living.flat_map(|agent| agent.record.after.iter().copied()).collect();
        for id in waited_for {
            match self.agents.get(&id).map(DaemonAgent::state) {
                Some(state) if state.is_ending() => self.ended(id, state),
                // It has done its task, and waits for a message.
                Some(State::Idle) => self.ended(id, State::Done),
                Some(_) => {}
                None => self.replaced_by_nobody(id),
            }
        }
    }

    /// Finishes removals, and archives directories that have no row.
    fn clear_directories(&mut self, with_rows: &BTreeSet<AgentId>) {
        self.tasks.spawn_blocking(caliban_keeper::sweep);
        for entry in fs::read_dir(self.places.agents_dir()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(id) = name.strip_prefix(LEAVING).unwrap_or(&name).parse::<AgentId>() else { continue };
            if self.agents.contains_key(&id) {
                continue;
            }
            if was_removed(self.places.base(), id) {
                // The directory of an agent says that it was removed, as long as its row is there.
                if !with_rows.contains(&id) {
                    self.deleted(id);
                }
                continue;
            }
            let begun = entry.path().join(records::SHIM_LOCK).exists();
            if !begun {
                // Never acknowledged: its daemon died before the commit.
                spawn::forget_files(&self.places, id);
            } else if matches!(HeldLock::try_take(&entry.path().join(records::SHIM_LOCK)), Ok(Some(_))) {
                let to = archive::put_if_possible(&self.places, id, ArchiveReason::NoRow);
                self.found
                    .notes
                    .push(format!("agent {id} was in no registry; its files are in {}", to.display()));
            } else {
                self.found.notes.push(format!("agent {id} lives but is in no registry; it is left alone"));
            }
        }
    }

    /// Removes sockets and secrets of agents that are gone; the daemon that removed them may have died before that.
    fn clear_runtime(&self) {
        let dirs = self.places.runtime_dirs();
        for entry in dirs.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some(Ok(id)) = name.split('.').next().map(str::parse::<AgentId>) else { continue };
            // It is never started again, so its secrets go; if it lives it keeps its socket.
            let is_needed = entry.path().extension().is_some_and(|kind| kind == "sock")
                && self.places.agent_dir(id).exists();
            if !self.agents.contains_key(&id) && !is_needed {
                let _gone_already = fs::remove_file(entry.path());
            }
        }
    }

    fn count_found(&mut self) {
        // No request was served yet: all that is to be saved was found at this start.
        for state in self.batch.endings() {
            match state {
                State::Crashed => self.found.crashed += 1,
                _ => self.found.ended += 1,
            }
        }
    }
}
