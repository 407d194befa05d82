//! `message show`: one message whose sender or recipient is in the session. A process of a fleet agent sees only what
//! its identity sent or received.

use caliban_store::broker::{BrokerError, IdPrefix};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::MessageShowArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::render::task::StateShown;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut VerbContext, args: &MessageShowArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let acting = context.reading(&args.agent_id).await?;
    let task = IdPrefix::parse(&args.task_id).map_err(|error| BrokerError::TaskNotFound(error.0))?;
    let broker = context.broker().await?;
    let task = broker.task(acting.session, &task).await?;
    let is_end = task.from == acting.id || task.context == acting.id;
    if !is_end && !broker.sees_all(acting.session).await? {
        return Err(BrokerError::TaskNotYours(task.id).into());
    }
    Ok(VerbAnswer::new(
        render::task::text(&task, detail, StateShown::IfEnded),
        json!({"task": render::task::json(&task, detail)}),
    ))
}
