//! `agent list`: the active agents of the session, in the order of registration.

use serde_json::Value;

use crate::answer::VerbAnswer;
use crate::args::AgentListArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render::agent::AgentForm;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut VerbContext, args: &AgentListArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let acting = context.acting(&args.agent_id).await?;
    let agents = context.broker().await?.agents(acting.session).await?;
    let blocks: Vec<String> = agents.iter().map(|agent| render::agent::text(agent, detail)).collect();
    let text = if blocks.is_empty() { "No agents found.".to_owned() } else { blocks.join("\n\n") };
    let json: Value =
        agents.iter().map(|agent| render::agent::json(agent, detail, AgentForm::List)).collect();
    Ok(VerbAnswer::new(text, json))
}
