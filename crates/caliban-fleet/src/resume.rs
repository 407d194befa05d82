//! An ended agent goes on in its conversation, with the same id.

use caliban_contract::{Places, limits::RaisedLimits};
use caliban_core::{budget::Limits, ids::AgentId};
use caliban_store::{
    StoreUrl,
    ledger::{AccountId, FILE, Ledger, Pool},
};

use crate::{
    Client,
    caller::FleetCaller,
    damaged_transcript,
    protocol::{AgentRow, ResumeRequest},
    refusal::{Refusal, VerbError},
    respawn::not_followed,
    resume_limits,
    words::has_ended,
};

/// What a resume is asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResumeTask {
    /// What it is told.
    pub prompt: Option<String>,
    /// The limits that are raised.
    pub limits: RaisedLimits,
    /// Whether it begins its task anew where its transcript is damaged.
    pub from_scratch: bool,
}

/// What became of it.
#[derive(Debug)]
pub struct ResumeReport {
    /// The agent now.
    pub row: AgentRow,
    /// Lines for people.
    pub notes: Vec<String>,
}

/// Lets it go on.
pub async fn resume(
    caller: &FleetCaller<'_>,
    client: &mut Client,
    agent: &str,
    order: ResumeTask,
) -> Result<ResumeReport, VerbError> {
    let ResumeTask { mut prompt, limits: asked, from_scratch } = order;
    let row = client.show(agent).await?;
    let (mut handed, _) = caller.again(&row)?;
    handed.keep_hidden(&row.socket);
    if let Some(prompt) = &mut prompt {
        handed.veil_message(prompt);
    }
    let before = RaisedLimits::read(&row.dir);
    let raised = before.with(asked);
    if has_ended(row.state) {
        let in_ledger = match asked.is_none() {
            true => in_ledger(caller.places, row.id).await,
            false => None,
        };
        resume_limits::check(&row, before, raised, in_ledger)?;
        match damaged_transcript::found(&row.dir, row.turns) {
            Some(_) if from_scratch => damaged_transcript::put_aside(&row)?,
            Some(what) => {
                let text = format!("agent {} cannot go on where it was: {what}", row.id);
                let hint = format!(
                    "its work is in its worktree; caliban resume {} --from-scratch begins its task anew",
                    row.id
                );
                return Err(Refusal::new(text).hint(hint).into());
            }
            None if from_scratch => {
                let text = "--from-scratch is for a damaged transcript, and this one is whole";
                let hint = format!("caliban resume {0}, or caliban respawn {0}", row.id);
                return Err(Refusal::usage(text).hint(hint).into());
            }
            None => {}
        }
    } else if raised != before {
        // What it runs with must not change under it, nor what its next run has.
        let text =
            format!("agent {} is {}: it has not ended, and its limits stay as they are", row.id, row.state);
        return Err(Refusal::new(text).hint(format!("caliban stop {} first", row.id)).into());
    }
    let program = Some(caller.program.to_owned());
    let request = ResumeRequest { secrets: handed.handover.into(), program, prompt, limits: asked };
    let now = client.resume(&row.id.to_string(), &request).await?;
    let notes = not_followed(client, &row, &now).await;
    Ok(ResumeReport { row: now, notes })
}

/// What the ledger lets an agent of the fleet and all below it spend; none when it does not know the agent.
async fn in_ledger(places: &Places, id: AgentId) -> Option<Limits> {
    let base = places.base();
    let file = base.parent()?.parent()?.join(FILE);
    if !file.exists() {
        return None;
    }
    let account = AccountId::new(base.file_name()?.to_str()?, &id.to_string());
    let mut ledger = Ledger::open(&StoreUrl::sqlite(file)).await.ok()?;
    let state = ledger.pool(&Pool::Tree(account), Limits::NONE).await.ok()?;
    ledger.close().await;
    state.limits
}
