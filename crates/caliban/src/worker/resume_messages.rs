//! What the user says at a resume, heard once.
//!
//! Each message is recorded under the name that the daemon gave it, and `resume.json` goes when all are recorded. While it
//! is there the daemon says it again at the next resume: nothing that was acknowledged is lost when a run ends early, and
//! what was recorded in that very moment is known by its name.

use std::path::Path;

use caliban_agent::handle::Handle;
use caliban_contract::records::{self, ResumeOrder, Told};
use caliban_core::redact;

use crate::{
    compose::chain,
    report::{Failure, Result},
    settings::Environment,
};

/// The order for this run; the first run of an agent has none.
pub(super) fn order(directory: &Path, nonce: &str) -> Option<ResumeOrder> {
    records::read(directory, records::RESUME).filter(|order: &ResumeOrder| order.nonce == nonce)
}

/// What the worker of this run has to hear, with the secrets that were taken out of it.
pub(super) fn told(directory: &Path, nonce: &str, environment: &Environment) -> Vec<Told> {
    let told = order(directory, nonce).map(|order| order.messages).unwrap_or_default();
    // The gaps are counted through all messages. Nobody knew the nonce when they were written.
    let between = format!("\0{nonce}\0");
    let texts: Vec<&str> = told.iter().map(|told| told.text.as_str()).collect();
    let whole = redact::unveil(&texts.join(&between), &environment.handover().resume);
    let texts = whole.split(&between).map(str::to_owned);
    told.iter().zip(texts).map(|(told, text)| Told { id: told.id.clone(), text }).collect()
}

/// Says it to an agent that has not begun: all of it is on the disk when this returns, and is heard before the first
/// request to the model, behind the task if that is still to come.
pub(super) async fn say(agent: &Handle, directory: &Path, told: Vec<Told>) -> Result<()> {
    for Told { id, text } in told {
        agent.steer(text, Some(id)).await.map_err(|error| Failure::new(chain(&error)))?;
    }
    let _none = std::fs::remove_file(directory.join(records::RESUME));
    Ok(())
}
