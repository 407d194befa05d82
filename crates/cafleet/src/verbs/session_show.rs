//! `session show`: one session, deleted or not.

use caliban_store::broker::SessionSummary;

use crate::answer::VerbAnswer;
use crate::args::SessionShowArgs;
use crate::context::{VerbContext, session_prefix};
use crate::failure::Failure;
use crate::render;

pub(crate) async fn run(context: &mut VerbContext, args: &SessionShowArgs) -> Result<VerbAnswer, Failure> {
    let prefix = session_prefix(&args.id)?;
    let broker = context.broker().await?;
    let session = broker.session(&prefix).await?;
    let agent_count = broker.active_agents(session.id).await?;
    let summary = SessionSummary { session, agent_count };
    Ok(VerbAnswer::new(render::session::show_text(&summary), render::session::show_json(&summary)))
}
