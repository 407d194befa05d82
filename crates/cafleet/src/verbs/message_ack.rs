//! `message ack`: the recipient acknowledges a message.

use caliban_store::Stamp;
use caliban_store::broker::{BrokerError, IdPrefix};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::MessageAckArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render::task::StateShown;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut VerbContext, args: &MessageAckArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let session = context.session().await?;
    let by = context.member_prefix(&args.agent_id, session).await?;
    let task = IdPrefix::parse(&args.task_id).map_err(|error| BrokerError::TaskNotFound(error.0))?;
    let task = context.broker().await?.ack(session, &by, &task, Stamp::now()).await?;
    let text = if args.quiet {
        task.id.short()
    } else {
        format!("Message acknowledged.\n{}", render::task::text(&task, detail, StateShown::No))
    };
    Ok(VerbAnswer::new(text, json!({"task": render::task::json(&task, detail)})))
}
