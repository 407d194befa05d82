//! Unconfirmed runs: a shim was launched, and nobody knows whether it began, because the daemon or the shim died.
//!
//! Such a run counts as neither queued nor running until it is settled. Either it turns out to have begun, and is
//! watched; or it is made void (a shim that comes later finds its run taken), and the agent gets another run. A run
//! whose files cannot be read is unconfirmed, too, until they can.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;

use super::agent::DaemonAgent;
use super::phase::{Hibernating, Keeper, Phase, WantedStop};
use super::{Msg, Owner};
use crate::lock::HeldLock;
use crate::process::{self, Traces};
use crate::records::{self, LaunchRecord, ShimRecord};

/// The process of a run that was made void.
pub(super) const VOID_PID: i32 = 0;
/// How long a shim that holds its lock may take to say who it is.
const LIMIT: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// An unconfirmed run, and all that is needed to settle it.
pub(super) struct UnconfirmedRun {
    dir: PathBuf,
    nonce: String,
    boot_id: String,
    traces: Traces,
    end: UnconfirmedEnd,
}

/// What becomes of a run whose files cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnconfirmedEnd {
    /// It stays unconfirmed.
    NotWanted,
    /// It is to end, whatever they say.
    Wanted,
}

impl Owner {
    pub(super) fn settle_doubts(&mut self) {
        for id in
            self.ids_of(|agent| agent.run().is_some_and(|run| matches!(run.keeper, Keeper::Unconfirmed)))
        {
            self.settle(id);
        }
    }

    /// Settles the run of an agent if it is unconfirmed.
    pub(super) fn settle(&mut self, id: AgentId) {
        let Some(doubt) = self.doubt(id) else { return };
        let Some(run) = self.agents.get_mut(&id).and_then(DaemonAgent::run_mut) else { return };
        if !matches!(run.keeper, Keeper::Unconfirmed) {
            return;
        }
        run.keeper = Keeper::Settling;
        self.later(async move {
            let nonce = doubt.nonce.clone();
            let settled = tokio::task::spawn_blocking(move || doubt.settle()).await;
            let outcome = settled.unwrap_or_else(|error| Err(error.to_string()));
            Some(Msg::Settled { id, nonce, outcome })
        });
    }

    /// What came of it.
    pub(super) fn settled(&mut self, id: AgentId, nonce: &str, outcome: Result<Option<ShimRecord>, String>) {
        if self.agents.get(&id).is_none_or(|agent| agent.record.nonce != nonce) {
            return;
        }
        match outcome {
            Ok(Some(shim)) if shim.boot_id == self.boot_id => self.started(id, nonce, Ok(shim)),
            // A run of an earlier boot is over.
            Ok(Some(_)) => {
                let exit = self.exit_of(id, nonce).ok().flatten();
                self.gone(id, nonce, exit.as_ref());
            }
            Ok(None) => self.never_began(id),
            Err(text) => self.cannot_tell(id, &text),
        }
    }

    /// The run of an agent stays unconfirmed; every tick tries again.
    pub(super) fn cannot_tell(&mut self, id: AgentId, why: &str) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        let Some(run) = agent.run_mut() else { return };
        run.keeper = Keeper::Unconfirmed;
        let text = format!("nobody can tell whether it runs: {why}");
        if agent.record.note.as_deref() != Some(&text) {
            tracing::warn!(%id, "{text}");
            agent.record.note = Some(text);
        }
        self.publish(id);
    }

    /// Its run is void: it gets another one, unless it was to end.
    pub(super) fn never_began(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get_mut(&id) else { return };
        agent.record.note = None;
        let Some(run) = agent.run() else { return };
        let tries = run.tries;
        match after_void(agent.state(), run.stop.is_some()) {
            AfterVoid::Killed => self.killed_before_start(id),
            AfterVoid::AnotherRun => self.renew_void(id, tries),
            AfterVoid::RunOver => {
                let nonce = agent.record.nonce.clone();
                let exit = self.exit_of(id, &nonce).ok().flatten();
                self.gone(id, &nonce, exit.as_ref());
            }
            AfterVoid::Hibernates => {
                agent.phase = Phase::Hibernating(Hibernating { tries, refused: None });
                self.publish(id);
            }
            AfterVoid::Ended => self.leave_run(id, Vec::new(), Phase::Ended),
        }
    }

    /// The present run of an agent, to be settled.
    pub(super) fn doubt(&self, id: AgentId) -> Option<UnconfirmedRun> {
        let agent = self.agents.get(&id)?;
        Some(UnconfirmedRun {
            dir: self.places.agent_dir(id),
            nonce: agent.record.nonce.clone(),
            boot_id: self.boot_id.clone(),
            traces: agent.traces(None),
            end: match agent.run().and_then(|run| run.stop.as_ref()) {
                Some(WantedStop { ordered: Some(_), .. }) => UnconfirmedEnd::Wanted,
                Some(WantedStop { ordered: None, .. }) | None => UnconfirmedEnd::NotWanted,
            },
        })
    }

    /// Whether a shim may have been launched for a run that has not begun as far as anybody knows.
    pub(super) fn was_launched(&self, id: AgentId, nonce: &str) -> io::Result<bool> {
        let dir = self.places.agent_dir(id);
        let launch = records::try_read::<LaunchRecord>(&dir, records::LAUNCH)?;
        let shim = records::try_read::<ShimRecord>(&dir, records::SHIM)?;
        Ok(launch.is_some_and(|launch| launch.nonce == nonce) || shim.is_some_and(|shim| shim.nonce == nonce))
    }
}

/// What becomes of an agent whose run is void. In each case the agent leaves that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterVoid {
    /// The agent was to end.
    Killed,
    /// The agent never began: it gets another run.
    AnotherRun,
    /// The run had begun, and what it left is gone.
    RunOver,
    /// It was about to be woken and hibernates on; the client asks again.
    Hibernates,
    /// It has ended meanwhile: there is nothing left to wait for.
    Ended,
}

fn after_void(state: State, is_to_end: bool) -> AfterVoid {
    match state {
        State::Done | State::Failed | State::Killed | State::Crashed => AfterVoid::Ended,
        State::Spawning | State::Running | State::Idle if is_to_end => AfterVoid::Killed,
        State::Spawning => AfterVoid::AnotherRun,
        State::Running => AfterVoid::RunOver,
        State::Idle => AfterVoid::Hibernates,
    }
}

/// The keeper of a run whose processes cannot be ended now: every tick tries again until none is left.
pub(super) fn keeper_of_rest(found: Option<ShimRecord>, nonce: &str) -> Keeper {
    match found.filter(|shim| shim.nonce == nonce && shim.pid != VOID_PID) {
        Some(shim) => Keeper::Unwatched(shim),
        None => Keeper::Unconfirmed,
    }
}

impl UnconfirmedRun {
    /// Makes sure that the run never begins; the shim, when it has begun after all. Blocks until that is known.
    pub(super) fn settle(&self) -> Result<Option<ShimRecord>, String> {
        match self.look() {
            // It is not launched again, so the processes with its marker are all that there are.
            Err(text) if self.end == UnconfirmedEnd::Wanted => {
                tracing::warn!("{}: {text}; ended by its mark", self.traces.marker);
                self.end_all().map(|()| None)
            }
            settled => settled,
        }
    }

    fn look(&self) -> Result<Option<ShimRecord>, String> {
        let words = |error: io::Error| error.to_string();
        let mut give_up = Instant::now() + LIMIT;
        loop {
            match fs::metadata(&self.dir) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(format!("{} is no directory", self.dir.display())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return self.end_all().map(|()| None);
                }
                Err(error) => return Err(words(error)),
            }
            if Instant::now() > give_up {
                // Stopped, or stuck: it would go on one day, as the run of an agent that has none.
                self.end_all()?;
                give_up = Instant::now() + LIMIT;
            }
            let lock = HeldLock::try_take(&self.dir.join(records::SHIM_LOCK)).map_err(words)?;
            let shim = records::try_read::<ShimRecord>(&self.dir, records::SHIM).map_err(words)?;
            let own = shim.filter(|shim| shim.nonce == self.nonce);
            let is_void = own.as_ref().is_some_and(|shim| shim.pid == VOID_PID);
            if own.is_some() && !is_void {
                return Ok(own);
            }
            if is_void || lock.is_some() {
                if !is_void {
                    // A shim that comes later finds its run taken, and leaves.
                    records::write(&self.dir, records::SHIM, &self.void()).map_err(words)?;
                }
                // A shim that was killed may have left processes.
                self.end_all()?;
                return Ok(None);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn end_all(&self) -> Result<(), String> {
        let strays =
            process::end_strays(std::slice::from_ref(&self.traces)).map_err(|error| error.to_string())?;
        if strays.ended > 0 {
            tracing::warn!("{}: its shim said nothing; {} processes ended", self.traces.marker, strays.ended);
        }
        match strays.left {
            0 => Ok(()),
            left => Err(format!("{left} processes of it cannot be ended")),
        }
    }

    fn void(&self) -> ShimRecord {
        let (boot_id, nonce) = (self.boot_id.clone(), self.nonce.clone());
        ShimRecord { pid: VOID_PID, boot_id, nonce, ..ShimRecord::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r06_a_void_run_is_left_in_every_state_also_by_an_agent_that_has_ended_meanwhile() {
        for state in State::ALL {
            let expected = match state {
                State::Spawning => [AfterVoid::AnotherRun, AfterVoid::Killed],
                State::Running => [AfterVoid::RunOver, AfterVoid::Killed],
                State::Idle => [AfterVoid::Hibernates, AfterVoid::Killed],
                _ => [AfterVoid::Ended; 2],
            };
            assert_eq!([false, true].map(|is_to_end| after_void(state, is_to_end)), expected, "{state}");
        }
    }

    #[test]
    fn the_rest_of_a_run_is_looked_after_whether_its_shim_has_said_who_it_is_or_not() {
        let shim = |pid, nonce: &str| ShimRecord {
            pid,
            start_time: 1,
            boot_id: "b".to_owned(),
            nonce: nonce.to_owned(),
            worker_pid: None,
            worker_start_time: None,
            group: None,
            socket: None,
            program: None,
        };
        let keeper = |found| match keeper_of_rest(found, "n") {
            Keeper::Unwatched(shim) => format!("unwatched {}", shim.pid),
            Keeper::Unconfirmed => "unconfirmed".to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            [None, Some(shim(7, "n")), Some(shim(7, "another")), Some(shim(VOID_PID, "n"))].map(keeper),
            ["unconfirmed", "unwatched 7", "unconfirmed", "unconfirmed"]
        );
    }
}
