//! `agent deregister`: an agent leaves its session.

use caliban_store::Stamp;
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::AgentDeregisterArgs;
use crate::context::VerbContext;
use crate::failure::Failure;

pub(crate) async fn run(
    context: &mut VerbContext,
    args: &AgentDeregisterArgs,
) -> Result<VerbAnswer, Failure> {
    let session = context.session().await?;
    let agent = context.member_prefix(&args.agent_id, session).await?;
    let id = context.broker().await?.deregister(session, &agent, Stamp::now()).await?;
    Ok(VerbAnswer::new(
        "Agent deregistered successfully.",
        json!({"agent_id": id.to_string(), "status": "deregistered"}),
    ))
}
