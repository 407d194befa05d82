//! `message broadcast`: one message for every other agent, and a summary for the sender.

use caliban_store::Stamp;
use caliban_store::broker::{AgentId, Broker, NewBroadcast, PollQuery, Scope, Task, TaskId};
use serde_json::json;

use super::message_send::{delivery_trouble, sender, task_id, unconfirmed, was_notified};
use crate::answer::Answer;
use crate::args::MessageBroadcastArgs;
use crate::context::Context;
use crate::failure::Failure;
use crate::input;
use crate::pane::deliver::deliver;
use crate::render::task::StateShown;
use crate::render::{self, Detail};

pub(crate) async fn run(context: &mut Context, args: &MessageBroadcastArgs) -> Result<Answer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let id = task_id(&["message", "broadcast"], args.id.as_deref())?.unwrap_or_else(TaskId::random);
    let session = context.session().await?;
    let text = args.text.body().map(|body| input::body(&body)).transpose()?.unwrap_or_default();
    let new = NewBroadcast { session, from: sender(&args.agent_id)?, text, id: Some(id) };
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let done = broker.broadcast(&new, Stamp::now()).await.map_err(|error| unconfirmed(error, id))?;
    let mut notified = 0_u64;
    let mut trouble = None;
    for recipient in done.recipients.iter().filter(|recipient| recipient.placement.is_some()) {
        // The messages are stored: whatever goes wrong from here on is a remark, not a failure.
        trouble = trouble.or(delivery_trouble(deliver(broker, &settings, recipient).await));
        notified += u64::from(was_notified_of(broker, recipient.id, &done.summary).await);
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
    Ok(Answer::new(text, json).note(trouble))
}

/// Whether the agent's copy of the broadcast was typed into its pane.
async fn was_notified_of(broker: &mut Broker, agent: AgentId, summary: &Task) -> bool {
    let query = PollQuery {
        agent,
        scope: Scope::All,
        since: None,
        // The copies follow their summary in the order of the store, one for each agent.
        after: Some(summary.seq),
        page_size: 1,
    };
    match broker.poll(&query).await {
        Ok(page) => page.tasks.iter().any(|task| task.origin == Some(summary.id) && was_notified(task)),
        Err(_) => false,
    }
}
