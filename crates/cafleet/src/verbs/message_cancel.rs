//! `message cancel`: the sender takes back a message that is not acknowledged.

use caliban_store::Stamp;
use caliban_store::broker::{BrokerError, IdPrefix};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::MessageCancelArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render::task::StateShown;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut VerbContext, args: &MessageCancelArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let session = context.session().await?;
    let by = context.member_prefix(&args.agent_id, session).await?;
    let task = IdPrefix::parse(&args.task_id).map_err(|error| BrokerError::TaskNotFound(error.0))?;
    let task = context.broker().await?.cancel(session, &by, &task, Stamp::now()).await?;
    Ok(VerbAnswer::new(
        format!("Task canceled.\n{}", render::task::text(&task, detail, StateShown::No)),
        json!({"task": render::task::json(&task, detail)}),
    ))
}
