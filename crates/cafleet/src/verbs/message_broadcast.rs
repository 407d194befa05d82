//! `message broadcast`: one message for every other agent, and a summary for the sender.

use caliban_store::Stamp;
use caliban_store::broker::{NewBroadcast, TaskId};
use serde_json::json;

use super::message_send::{sender, task_id, unconfirmed};
use crate::answer::VerbAnswer;
use crate::args::MessageBroadcastArgs;
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::input;
use crate::pane::deliverer;
use crate::render::task::StateShown;
use crate::render::{self, Detail};

pub(crate) async fn run(
    context: &mut VerbContext,
    args: &MessageBroadcastArgs,
) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let id = task_id(&["message", "broadcast"], args.id.as_deref())?.unwrap_or_else(TaskId::random);
    let session = context.session().await?;
    let text = args.text.body().map(|body| input::body(&body)).transpose()?.unwrap_or_default();
    let new =
        NewBroadcast { session, from: sender(context, session, &args.agent_id).await?, text, id: Some(id) };
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let done = broker.broadcast(&new, Stamp::now()).await.map_err(|error| unconfirmed(error, id))?;
    // The messages are stored; the deliverer types them, so that a broadcast waits for no pane.
    let notified = done.recipients.iter().filter(|recipient| recipient.placement.is_some()).count();
    if notified > 0 {
        deliverer::ensure(broker, &settings, session).await;
    }
    let recipients = done.recipients.len();
    let text = match detail {
        Detail::Compact(_) => format!("broadcast id={} recipients={recipients}", done.summary.id.short()),
        Detail::Full => format!(
            "broadcast id={} recipients={recipients} notified={notified}\n{}",
            done.summary.id,
            render::task::text(&done.summary, detail, StateShown::No)
        ),
    };
    let json = json!([{
        "task": render::task::json(&done.summary, detail),
        "notifications_sent_count": notified,
        "recipients": recipients,
    }]);
    Ok(VerbAnswer::new(text, json))
}
