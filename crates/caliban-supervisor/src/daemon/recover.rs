//! Agents that the registry does not know any more: it was lost, or put aside because it was damaged. Their directories
//! hold the request and the run, so they get their rows back before anything else is looked at.
//!
//! One that lives is always taken back: an agent ends before its row goes. One that has ended is, when the registry was
//! made only now; otherwise it was removed, and its daemon died before its files went. Who never began is put aside:
//! whether anybody was told its id is not known, and nothing is started that nobody may want.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_core::spec::SpawnSpec;
use caliban_store::StoreError;
use caliban_store::fleet::{Change, Record, Registry, Wanted};
use caliban_store::open::Prepared;

use super::agent::About;
use super::doubt::VOID_PID;
use super::{rm, spawn, start};
use crate::lock::Held;
use crate::places::Places;
use crate::records::{self, ShimRecord};

/// Gives back their rows to those who have none among the `known`, and says so.
pub(super) async fn lost(
    registry: &mut Registry,
    places: &Places,
    known: &mut Vec<(Record, About)>,
) -> Result<Vec<String>, StoreError> {
    let is_new = registry.prepared() == Prepared::Created;
    let with_rows: BTreeSet<AgentId> = known.iter().map(|(record, _)| record.id).collect();
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(places.agents_dir()).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<AgentId>().ok());
        let Some(id) = id.filter(|id| !with_rows.contains(id)) else { continue };
        if !entry.path().join(records::SHIM_LOCK).exists() {
            if is_new {
                let to = rm::archive(places, id);
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
        return Ok(notes);
    }
    found.sort_by_key(|(record, _)| (record.created_at, record.id));
    let next = known.iter().map(|(record, _)| record.seq + 1).max().unwrap_or(1);
    for ((record, _), seq) in found.iter_mut().zip(next..) {
        record.seq = seq;
    }
    let insert = |(record, spec): &(Record, String)| Change::Insert(Box::new(record.clone()), spec.clone());
    registry.commit(&found.iter().map(insert).collect::<Vec<_>>()).await?;
    known.extend(found.into_iter().map(|(record, spec)| (record, About::of_json(&spec))));
    Ok(notes)
}

/// The row of an agent, as far as its directory tells; how its run stands is found out as for everybody.
fn row(places: &Places, id: AgentId, is_new: bool) -> Option<(Record, String)> {
    let dir = places.agent_dir(id);
    if !is_new && matches!(Held::try_take(&dir.join(records::SHIM_LOCK)), Ok(Some(_))) {
        return None;
    }
    let shim: ShimRecord =
        records::read(&dir, records::SHIM).filter(|shim: &ShimRecord| shim.pid != VOID_PID)?;
    let spec = records::read_capped(&dir.join(records::SPEC), records::RECORD_CAP).ok()?;
    let spec = String::from_utf8(spec).ok().filter(|spec| SpawnSpec::from_json(spec).is_ok())?;
    let created_at = written_at(&dir.join(records::SPEC));
    let record = Record {
        seq: 0,
        id,
        key: None,
        status: Status::from_parts(State::Running, None, None).ok()?,
        wanted: Wanted::Run,
        nonce: shim.nonce,
        runs: 1,
        after: Vec::new(),
        program: spawn::find_program(shim.program.as_deref(), &start::own_program()).ok()?,
        has_secrets: places.agent_secrets(id).exists(),
        resume_prompt: None,
        note: None,
        created_at,
        updated_at: created_at,
    };
    Some((record, spec))
}

/// When a file was written, in milliseconds since 1970.
fn written_at(file: &Path) -> u64 {
    let written = fs::metadata(file).and_then(|found| found.modified()).ok();
    let since = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
