//! Agents that the registry does not know any more: it was lost, or put aside because it was damaged. Their directories
//! hold the request and the run, so they get their rows back before anything else is looked at.
//!
//! One that lives is always taken back: an agent ends before its row goes. The others are when the registry was made only
//! now; otherwise they were removed, and their daemon died before their files went. One that was acknowledged and waits for
//! its start (`queued.json`) is queued again. One that was not acknowledged is put aside: nothing is started that nobody may
//! want.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use caliban_contract::archive::{ArchiveReason, was_removed};
use caliban_contract::limits::RaisedLimits;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_core::spec::SpawnSpec;
use caliban_store::StoreError;
use caliban_store::fleet::{AgentRecord, Registry, RegistryChange, WantedState};
use caliban_store::open::OpenReport;

use super::{archive, start, stop_order};
use crate::lock::HeldLock;
use crate::places::Places;
use crate::records::{self, LaunchRecord, QueuedRecord, ResumeOrder, ShimRecord, WorkerState, WorkerStatus};
use crate::row::About;

/// What the worker's program is called.
const WORKER: &str = "caliban";
/// Stands in the fleet's directory as long as a new registry has not got the rows of those who are there.
const UNFINISHED: &str = "recovering";

/// To be called before the registry is opened: a daemon that dies in between leaves a registry which is not new any more.
pub(super) fn prepare(places: &Places) {
    let anybody = || fs::read_dir(places.agents_dir()).is_ok_and(|mut entries| entries.next().is_some());
    let is_empty = fs::metadata(places.database()).map_or(true, |found| found.len() == 0);
    if is_empty && anybody() {
        needed(places);
    }
}

/// The next daemon takes back all whose directories are there: the registry does not know them all.
pub(super) fn needed(places: &Places) {
    // On a full disk the registry cannot be made either.
    let _said_by_the_registry = fs::write(places.base().join(UNFINISHED), "");
}

/// Gives back their rows to those who have none among the `known`, and says so.
pub(super) async fn lost(
    registry: &mut Registry,
    places: &Places,
    known: &mut Vec<(AgentRecord, About)>,
) -> Result<Vec<String>, StoreError> {
    let unfinished = places.base().join(UNFINISHED);
    let is_new = registry.prepared() == OpenReport::Created || unfinished.exists();
    let with_rows: BTreeSet<AgentId> = known.iter().map(|(record, _)| record.id).collect();
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(places.agents_dir()).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<AgentId>().ok());
        let Some(id) = id.filter(|id| !with_rows.contains(id) && !was_removed(places.base(), *id)) else {
            continue;
        };
        if let Some(row) = queued(places, id).filter(|_| is_new) {
            found.push(row);
            notes.push(format!("agent {id} was in no registry and is queued again"));
        } else if !entry.path().join(records::SHIM_LOCK).exists() {
            if is_new {
                let to = archive::put_if_possible(places, id, ArchiveReason::NoRow);
                notes.push(format!(
                    "agent {id} was in no registry and had not begun; its request is in {}",
                    to.display()
                ));
            }
        } else if let Some(row) = row(places, id, is_new) {
            found.push(row);
            notes.push(format!("agent {id} was in no registry and is back"));
        }
    }
    if found.is_empty() {
        let _was_not_there = fs::remove_file(unfinished);
        return Ok(notes);
    }
    found.sort_by_key(|(record, _)| (record.created_at, record.seq, record.id));
    // An agent that was to wait for one which was removed has done so.
    let there: BTreeSet<AgentId> = found.iter().map(|(record, _)| record.id).chain(with_rows).collect();
    for (record, _) in &mut found {
        record.after.retain(|id| there.contains(id));
    }
    let next = known.iter().map(|(record, _)| record.seq + 1).max().unwrap_or(1);
    for ((record, _), seq) in found.iter_mut().zip(next..) {
        record.seq = seq;
    }
    let insert = |(record, spec): &(AgentRecord, String)| {
        RegistryChange::Insert(Box::new(record.clone()), spec.clone())
    };
    registry.commit(&found.iter().map(insert).collect::<Vec<_>>()).await?;
    let _was_not_there = fs::remove_file(unfinished);
    known.extend(
        found.into_iter().map(|(record, spec)| (record, About::of_json(&spec, RaisedLimits::default()))),
    );
    Ok(notes)
}

/// The row of an agent, as far as its directory tells; how its run stands is found out as for everybody.
fn row(places: &Places, id: AgentId, is_new: bool) -> Option<(AgentRecord, String)> {
    let dir = places.agent_dir(id);
    if !is_new && matches!(HeldLock::try_take(&dir.join(records::SHIM_LOCK)), Ok(Some(_))) {
        return None;
    }
    let shim: Option<ShimRecord> = records::read(&dir, records::SHIM);
    let launched: Option<LaunchRecord> = records::read(&dir, records::LAUNCH);
    // One that never said a word counts as gone, whatever it was to hear.
    let nonce = shim.as_ref().map(|shim| shim.nonce.clone()).or(launched.map(|launched| launched.nonce))?;
    let unheard: Option<ResumeOrder> = records::read(&dir, records::RESUME);
    let program = shim.and_then(|shim| shim.program);
    let spec = spec(&dir)?;
    let created_at = made_at(&dir);
    let record = AgentRecord {
        seq: 0,
        id,
        key: None,
        status: status(&dir, &nonce)?,
        wanted: wanted(&dir, &nonce),
        nonce,
        runs: 1,
        after: Vec::new(),
        // It may be replaced just now.
        program: program.unwrap_or_else(|| start::own_program().with_file_name(WORKER)),
        has_secrets: has_secrets(places, id),
        resume_prompt: unheard.and_then(|unheard| unheard.prompt()),
        note: None,
        created_at,
        updated_at: created_at,
    };
    Some((record, spec))
}

/// The row of an agent that was acknowledged and whose run has not begun.
fn queued(places: &Places, id: AgentId) -> Option<(AgentRecord, String)> {
    let dir = places.agent_dir(id);
    let queued: QueuedRecord = records::read(&dir, records::QUEUED)?;
    let shim: Option<ShimRecord> = records::read(&dir, records::SHIM);
    let lives = matches!(HeldLock::try_take(&dir.join(records::SHIM_LOCK)), Ok(None));
    if lives || shim.is_some_and(|shim| shim.nonce == queued.nonce) {
        return None;
    }
    let record = AgentRecord {
        seq: queued.seq,
        id,
        key: queued.key,
        status: Status::default(),
        wanted: wanted(&dir, &queued.nonce),
        nonce: queued.nonce,
        runs: queued.runs,
        after: queued.after,
        program: queued.program,
        has_secrets: has_secrets(places, id),
        resume_prompt: queued.resume_prompt,
        note: None,
        created_at: queued.created_at,
        updated_at: queued.created_at,
    };
    Some((record, spec(&dir)?))
}

fn wanted(dir: &Path, nonce: &str) -> WantedState {
    if stop_order::read(dir, nonce).is_some() { WantedState::Kill } else { WantedState::Run }
}

/// Whether there are secrets that an agent needs. Those that cannot be read are needed for all we know.
fn has_secrets(places: &Places, id: AgentId) -> bool {
    let path = places.agent_secrets(id);
    path.exists() && start::read_handover(&path).map_or(true, |handover| handover.is_needed())
}

/// The request of an agent, as its directory has it.
fn spec(dir: &Path) -> Option<String> {
    let spec = records::read_capped(&dir.join(records::SPEC), records::RECORD_CAP).ok()?;
    String::from_utf8(spec).ok().filter(|spec| SpawnSpec::from_json(spec).is_ok())
}

/// As the worker said last; an end is found out as for everybody.
fn status(dir: &Path, nonce: &str) -> Option<Status> {
    let report: Option<WorkerStatus> = records::read(dir, records::STATUS);
    let report = report.filter(|report| report.nonce == nonce).unwrap_or_default();
    let state = match report.state {
        WorkerState::Idle => State::Idle,
        WorkerState::Running | WorkerState::Done | WorkerState::Failed => State::Running,
    };
    let bare = || Status::from_parts(state, None, None);
    Status::from_parts(state, report.waits_for(), None).or_else(|_| bare()).ok()
}

/// When a directory was made, as far as the file system knows, in milliseconds since 1970.
fn made_at(dir: &Path) -> u64 {
    let made = fs::metadata(dir).and_then(|found| found.created().or_else(|_| found.modified())).ok();
    let since = made.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
