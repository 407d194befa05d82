//! `message show`: one message with an end in the session.

use caliban_store::broker::{BrokerError, IdPrefix};
use serde_json::json;

use crate::answer::Answer;
use crate::args::MessageShowArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::render::task::StateShown;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut Context, args: &MessageShowArgs) -> Result<Answer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let acting = context.acting(&args.agent_id).await?;
    let task = IdPrefix::parse(&args.task_id).map_err(|error| BrokerError::TaskNotFound(error.0))?;
    let task = context.broker().await?.task(acting.session, &task).await?;
    Ok(Answer::new(
        render::task::text(&task, detail, StateShown::IfEnded),
        json!({"task": render::task::json(&task, detail)}),
    ))
}
