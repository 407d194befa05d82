//! The agents of a fleet whose daemon is not running, as its last daemon and their own processes recorded them.
//!
//! Reads a copy of the registry: opening a store may migrate it and fold its log back, which is the daemon's job. What an
//! end means is decided by the daemon's own functions. Does not check whether a process still runs.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::{ffi::OsStringExt as _, fs::DirBuilderExt as _},
    path::{Path, PathBuf},
};

use caliban_contract::{
    Places,
    records::{self, ExitRecord, HIBERNATED, STATUS_VERSION, StopOrder, WorkerStatus},
};
use caliban_core::lifecycle::{State, Status};
use caliban_store::{
    HostId, StoreUrl,
    fleet::{AgentRecord, Registry, WantedState},
};

use crate::{
    decide::{self, RunEnd},
    protocol::AgentRow,
    row::{About, RowFacts},
};

/// The registry's file.
pub const REGISTRY: &str = "fleet.db";
/// What of a store may be in its log alone.
pub const LOG: &str = "fleet.db-wal";

/// The longest path of a repo that is read.
const PATH_CAP: u64 = 64 * 1024;

/// The directories of all fleets that ever were.
pub fn bases(parent: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut bases: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    bases.retain(|base| base.join(REGISTRY).is_file());
    bases.sort();
    Ok(bases)
}

/// The repo that a fleet's directory says it is about.
#[must_use]
pub fn repo_of(base: &Path) -> Option<PathBuf> {
    let note = base.join("repo");
    note.symlink_metadata().ok().filter(|note| note.is_file() && note.len() <= PATH_CAP)?;
    let mut text = fs::read(note).ok()?;
    if text.last() == Some(&b'\n') {
        text.pop();
    }
    let repo = PathBuf::from(std::ffi::OsString::from_vec(text));
    repo.is_absolute().then_some(repo)
}

/// The agents of the fleet in `base`; the copy is made in our own runtime directory.
pub async fn read(base: &Path, places: &Places, own: &Places) -> Result<Vec<AgentRow>, String> {
    let copy = Copy::make(base, own).map_err(|error| format!("its registry cannot be copied: {error}"))?;
    let host = caliban_process::machine().map_err(|error| error.to_string())?;
    let url = StoreUrl::sqlite(copy.0.join(REGISTRY));
    let mut registry = Registry::open(&url, &HostId::of(&host)).await.map_err(|error| error.to_string())?;
    let (mut rows, mut last, mut queued) = (Vec::new(), 0, 0);
    loop {
        let page = registry.page(last).await.map_err(|error| error.to_string())?;
        let Some((record, _)) = page.last() else { break };
        last = record.seq;
        for (record, spec) in page {
            let order: Option<StopOrder> =
                records::read(&base.join("agents").join(record.id.to_string()), records::STOP);
            if caliban_contract::archive::was_removed(base, record.id) {
                continue;
            }
            let mut row = agent(record, order, &spec, base, places);
            if row.state == State::Spawning {
                row.queued_behind = Some(queued);
                // Who waits for others is before nobody.
                queued += u64::from(row.after.is_empty());
            }
            rows.push(row);
        }
    }
    registry.close().await;
    Ok(rows)
}

/// A copy of a registry, gone with us.
struct Copy(PathBuf);

impl Copy {
    fn make(base: &Path, own: &Places) -> io::Result<Self> {
        own.prepare_runtime().map_err(io::Error::other)?;
        let place = own.runtime().join(format!("look-{}", caliban_contract::random_hex::<8>()?));
        DirBuilder::new().mode(0o700).create(&place)?;
        let copy = Self(place);
        fs::copy(base.join(REGISTRY), copy.0.join(REGISTRY))?;
        match fs::copy(base.join(LOG), copy.0.join(LOG)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(copy),
        }
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // Best effort by name: it lies in a directory that goes with the login.
        let _gone = fs::remove_dir_all(&self.0);
    }
}

fn agent(
    record: AgentRecord,
    order: Option<StopOrder>,
    spec: &str,
    base: &Path,
    places: &Places,
) -> AgentRow {
    let dir = base.join("agents").join(record.id.to_string());
    let report: Option<WorkerStatus> = records::read(&dir, records::STATUS);
    // A later format may mean something else by the same words.
    let report = report.filter(|report| report.version <= STATUS_VERSION);
    let exit: Option<ExitRecord> = records::read(&dir, records::EXIT);
    let own = report.as_ref().filter(|report| report.nonce == record.nonce);
    let exit = exit.filter(|exit| exit.nonce == record.nonce);
    let order = order.filter(|order| order.is_for(&record.nonce));
    let wanted = if order.is_some() { WantedState::Kill } else { record.wanted };
    let timed_out_ms = order.and_then(|order| order.timed_out_ms);
    let status = standing(&record.status, (wanted, timed_out_ms), own, exit.as_ref());
    let hibernated = status.state() == State::Idle && exit.is_some_and(|exit| exit.code == Some(HIBERNATED));
    let about = About::of_json(spec, caliban_contract::limits::RaisedLimits::read(&dir));
    let begun =
        about.is_timed().then(|| records::read::<records::BegunRecord>(&dir, records::BEGUN)).flatten();
    let review: Option<records::ReviewRecord> = records::read(&dir, records::REVIEW);
    let facts = RowFacts {
        record: &record,
        status: &status,
        about: &about,
        report: report.as_ref(),
        shim: None,
        socket: places.agent_socket(record.id),
        dir,
        queued_behind: None,
        queued_for: None,
        review: review.filter(|review| review.runs == record.runs).map(|review| review.review),
        begun: begun.as_ref(),
        time_left_ms: None,
        hibernated,
    };
    facts.row()
}

/// The status of an agent whose daemon is not running: what was recorded, and what its processes wrote since. It is what
/// the next daemon will find, by the same decisions.
fn standing(
    status: &Status,
    (wanted, timed_out_ms): (WantedState, Option<u64>),
    report: Option<&WorkerStatus>,
    exit: Option<&ExitRecord>,
) -> Status {
    let state = status.state();
    let facts = decide::RunFacts { state, wanted, timed_out_ms, report, exit, is_program_lost: false };
    let events = match (exit, report) {
        _ if status.state().is_ending() => Vec::new(),
        (Some(_), _) => match decide::end_of_run(&facts) {
            RunEnd::NotBegun(_) => Vec::new(),
            RunEnd::Hibernates { events, .. } | RunEnd::Over { events, .. } => events,
        },
        (None, Some(report)) => decide::follow(status, report),
        (None, None) => Vec::new(),
    };
    events.into_iter().fold(status.clone(), |status, event| status.apply(event).unwrap_or(status))
}

#[cfg(test)]
mod tests {
    use caliban_contract::records::WorkerState;
    use caliban_core::lifecycle::{Ending, WaitingFor};

    use super::*;

    fn status(state: State) -> Status {
        Status::from_parts(state, None, None).unwrap()
    }

    fn exit(code: Option<i32>, signal: Option<i32>) -> ExitRecord {
        let exit = serde_json::json!({"nonce": "n", "code": code, "signal": signal, "at": 0});
        serde_json::from_value(exit).unwrap()
    }

    #[test]
    fn an_agent_stands_as_it_and_its_keeper_said_last() {
        let says = |state| WorkerStatus { state, ..WorkerStatus::default() };
        let input = Some(records::Waiting::Input);
        let asleep = WorkerStatus { waiting_for: input, hibernated: true, ..says(WorkerState::Idle) };
        let (running, idle, done, failed) = (
            says(WorkerState::Running),
            says(WorkerState::Idle),
            says(WorkerState::Done),
            says(WorkerState::Failed),
        );
        let (well, shot) = (exit(Some(0), None), exit(None, Some(9)));
        let (rests, odd) = (exit(Some(HIBERNATED), None), exit(Some(7), None));
        let code_7 = "the worker ended with code 7 and gave no reason; see its worker.log";
        let cases = [
            (State::Running, WantedState::Run, None, None, (State::Running, None)),
            (State::Running, WantedState::Run, Some(&idle), None, (State::Idle, None)),
            (State::Idle, WantedState::Run, Some(&running), None, (State::Running, None)),
            (State::Spawning, WantedState::Run, Some(&running), None, (State::Running, None)),
            // Its processes are not gone yet.
            (State::Running, WantedState::Run, Some(&done), None, (State::Running, None)),
            (
                State::Running,
                WantedState::Run,
                Some(&done),
                Some(&well),
                (State::Done, Some(Ending::Finished)),
            ),
            (
                State::Spawning,
                WantedState::Run,
                Some(&done),
                Some(&well),
                (State::Done, Some(Ending::Finished)),
            ),
            (
                State::Running,
                WantedState::Run,
                Some(&running),
                Some(&shot),
                (State::Crashed, Some(Ending::Signal { number: 9 })),
            ),
            (
                State::Running,
                WantedState::Kill,
                Some(&running),
                Some(&well),
                (State::Killed, Some(Ending::Stopped)),
            ),
            // A kill that races a failure is a kill, as for the daemon; one that races a success is not.
            (
                State::Running,
                WantedState::Kill,
                Some(&failed),
                Some(&well),
                (State::Killed, Some(Ending::Stopped)),
            ),
            (
                State::Running,
                WantedState::Kill,
                Some(&done),
                Some(&well),
                (State::Done, Some(Ending::Finished)),
            ),
            (State::Running, WantedState::Run, Some(&asleep), Some(&rests), (State::Idle, None)),
            (
                State::Running,
                WantedState::Run,
                Some(&running),
                Some(&odd),
                (State::Failed, Some(Ending::Error { text: code_7.into() })),
            ),
        ];
        for (state, wanted, report, exit, expected) in cases {
            let found = standing(&status(state), (wanted, None), report, exit);
            assert_eq!((found.state(), found.ending().cloned()), expected, "{state} {report:?} {exit:?}");
        }
        let waits = standing(&status(State::Running), (WantedState::Run, None), Some(&asleep), None);
        assert_eq!((waits.state(), waits.waiting_for()), (State::Idle, Some(&WaitingFor::Input)));
        let ended = Status::from_parts(State::Killed, None, Some(Ending::Stopped)).unwrap();
        assert_eq!(standing(&ended, (WantedState::Run, None), Some(&done), Some(&well)), ended);
    }
}
