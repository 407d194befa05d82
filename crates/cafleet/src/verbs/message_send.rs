//! `message send`: store, commit, then type a preview into the recipient's pane if it has one.

use caliban_store::Stamp;
use caliban_store::broker::{BrokerError, DeliveryState, IdPrefix, NewMessage, SessionId, Task, TaskId};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::MessageSendArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::deliver::deliver;
use crate::pane::deliverer;
use crate::render::task::StateShown;
use crate::render::{self, Detail};
use crate::{input, usage};

pub(crate) async fn run(context: &mut VerbContext, args: &MessageSendArgs) -> Result<VerbAnswer, Failure> {
    let detail = Detail::choose(args.full, context.settings.max_text_len);
    let id = task_id(&["message", "send"], args.id.as_deref())?;
    // Chosen here rather than in the store, so that a failure can name it for a safe retry.
    let id = id.unwrap_or_else(TaskId::random);
    let session = context.session().await?;
    let text = args.text.body().map(|body| input::body(&body)).transpose()?.unwrap_or_default();
    let new = NewMessage {
        session,
        from: sender(context, session, &args.agent_id).await?,
        to: context.agent_named(session, &args.to, bad_destination).await?,
        text,
        id: Some(id),
    };
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let sent = broker.send(&new, Stamp::now()).await.map_err(|error| unconfirmed(error, id))?;
    let mut task = sent.task;
    let mut trouble = None;
    if sent.recipient.placement.is_some() && sent.recipient.id != task.from {
        // The message is stored: any error from here on is a remark, not a failure.
        trouble = delivery_trouble(deliver(broker, &settings, &sent.recipient).await);
        if let Ok(now) = broker.task(session, &task.id.into()).await {
            task = now;
        }
        if task.delivery.state != DeliveryState::Confirmed {
            deliverer::ensure(broker, &settings, session).await;
        }
    }
    let json = json!({
        "task": render::task::json(&task, detail),
        "notification_sent": was_notified(&task),
        "delivery": render::task::delivery_json(&task),
    });
    let text = if args.quiet {
        task.id.short()
    } else {
        format!("Message sent.\n{}", render::task::text(&task, detail, StateShown::No))
    };
    Ok(VerbAnswer::new(text, json).note(trouble).note(note(&task)))
}

/// A remark about a delivery that the store could not record.
pub(super) fn delivery_trouble(outcome: Result<usize, BrokerError>) -> Option<String> {
    let error = outcome.err()?;
    Some(format!("the message is stored, but its delivery is not known: {}", shown(&error.to_string())))
}

fn bad_destination(given: String) -> Failure {
    Failure::refused("bad_destination", format!("Invalid destination format: {}", shown(&given)))
}

/// The sender as typed; an error has the text of a send.
pub(super) async fn sender(
    context: &mut VerbContext,
    session: SessionId,
    given: &str,
) -> Result<IdPrefix, Failure> {
    context.agent_named(session, given, |given| BrokerError::SenderNotActive(given).into()).await
}

/// Parses the sender's id for the message, which must be a whole UUID.
pub(super) fn task_id(path: &[&str], given: Option<&str>) -> Result<Option<TaskId>, Failure> {
    let Some(given) = given else { return Ok(None) };
    let refused = || usage::invalid_value(path, "--id", &format!("'{given}' is not a valid UUID."));
    TaskId::parse(given).map(Some).ok_or_else(refused)
}

/// A write that failed while being synced may turn up later: says how to repeat it safely.
pub(super) fn unconfirmed(error: BrokerError, id: TaskId) -> Failure {
    let retry = matches!(&error, BrokerError::Store(store) if store.is_unconfirmed());
    let mut failure = Failure::from(error);
    if retry {
        failure.message = format!("{}; repeat it safely with --id {id}", failure.message);
    }
    failure
}

pub(super) fn was_notified(task: &Task) -> bool {
    matches!(task.delivery.state, DeliveryState::Typed | DeliveryState::Confirmed)
}

/// What the sender should know if the preview was not typed.
pub(super) fn note(task: &Task) -> Option<String> {
    let why = task.delivery.note.as_deref().unwrap_or("unknown");
    match task.delivery.state {
        DeliveryState::Held => Some(format!(
            "preview held: {}; the message is in the queue and is typed when the pane is free",
            shown(why)
        )),
        DeliveryState::Failed => {
            Some(format!("preview not typed: {}; the message is in the queue", shown(why)))
        }
        DeliveryState::Stored | DeliveryState::Typed | DeliveryState::Confirmed => None,
    }
}
