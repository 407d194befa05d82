//! A transcript that lost what its agent has done: going on with it would repeat side effects, so nobody does by accident.

use std::path::Path;

use caliban_contract::{records, transcript};
use caliban_core::event::Event;

use crate::{protocol::AgentRow, refusal::Refusal};

/// Why the conversation in this directory cannot be gone on with, when its agent is known to have had `turns` turns.
///
/// The last reply may be missing after a power cut. No call of it had begun: a call with side effects starts only when its
/// record is on the disk.
#[must_use]
pub fn found(directory: &Path, turns: u64) -> Option<String> {
    let path = directory.join(records::TRANSCRIPT);
    let replies = match transcript::read(directory) {
        Ok(records) => records.iter().filter(|record| matches!(record.event, Event::Reply { .. })).count(),
        Err(_) if !path.exists() => 0,
        Err(error) => return Some(error.to_string()),
    };
    let replies = u64::try_from(replies).unwrap_or(u64::MAX);
    let had = crate::words::turns(turns);
    (turns > replies.saturating_add(1))
        .then(|| format!("{} has {replies} of the agent's {had}", path.display()))
}

/// Puts the conversation aside, so that the agent begins its task anew. What it has spent stays spent (r20): the
/// ledger has it.
pub(crate) fn put_aside(row: &AgentRow) -> Result<(), Refusal> {
    let directory = row.dir.as_path();
    for name in [records::TRANSCRIPT, records::STATUS] {
        let path = directory.join(name);
        let aside = (1_u32..)
            .map(|number| directory.join(format!("{name}.damaged-{number}")))
            .find(|aside| !aside.exists())
            .unwrap_or_else(|| directory.join(format!("{name}.damaged")));
        match std::fs::rename(&path, &aside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Refusal::new(format!("cannot put {} aside: {error}", path.display())));
            }
            _ => {}
        }
    }
    Ok(())
}
