//! `agent show`: one active agent of the session.

use caliban_store::broker::BrokerError;

use crate::answer::VerbAnswer;
use crate::args::AgentShowArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render::agent::AgentForm;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut VerbContext, args: &AgentShowArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let acting = context.acting(&args.agent_id).await?;
    let id = context
        .agent_named(acting.session, &args.id, |given| BrokerError::AgentNotFound(given).into())
        .await?;
    let agent = context.broker().await?.agent(acting.session, &id).await?;
    Ok(VerbAnswer::new(
        render::agent::text(&agent, detail),
        render::agent::json(&agent, detail, AgentForm::Show),
    ))
}
