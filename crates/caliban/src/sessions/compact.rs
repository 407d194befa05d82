//! `caliban sessions compact`: a summary for the model in place of the older part.

use caliban_agent::{Attendance, conversation::Conversation, event::Outcome};
use caliban_core::setup::AgentSetup;
use tokio_util::sync::CancellationToken;

use crate::{
    Here,
    compose::{ComposeRequest, WantedConversation, compose},
    report::{Code, Failure, Result},
    session_places::FoundSession,
};

/// The session's own provider and model make the summary.
fn as_before(found: &FoundSession) -> Result<AgentSetup> {
    let records = super::records(found)?;
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    let header = conversation.header();
    Ok(AgentSetup {
        provider: header.map(|header| header.provider.clone()),
        model: header.map(|header| header.model.clone()),
        ..AgentSetup::default()
    })
}

pub(super) fn compact(found: &FoundSession, Here { environment, cwd, out }: Here<'_>) -> Result<Code> {
    crate::runtime()?.block_on(async {
        let setup = as_before(found)?;
        let composition = compose(environment, ComposeRequest::here(cwd, &setup, Attendance::Nobody)).await?;
        let mut agent = composition.open(WantedConversation::Old(found.clone()), None).await?;
        let before = agent.conversation().messages().len();
        let result = agent.compact(&CancellationToken::new()).await;
        let after = agent.conversation().messages().len();
        agent.close().await;
        match result {
            Ok(()) => {
                writeln!(
                    out,
                    "Session {}: {before} messages became {after}; the transcript keeps everything.",
                    found.id
                )?;
                Ok(Code::Done)
            }
            Err(Outcome::Failed { error, hint }) => Err(Failure::hinted(error, hint)),
            Err(other) => Err(Failure::new(format!("not compacted: {other:?}"))),
        }
    })
}
