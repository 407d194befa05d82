//! `message deliver`: types held messages into the panes of the session that are free now.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::answer::VerbAnswer;
use crate::args::MessageDeliverArgs;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::deliver::deliver;

/// The interval at which a pane that is not free is looked at again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(crate) async fn run(context: &mut VerbContext, args: &MessageDeliverArgs) -> Result<VerbAnswer, Failure> {
    let acting = context.reading(&args.agent_id).await?;
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let deadline = Instant::now() + Duration::from_secs(u64::from(args.wait.unwrap_or_default()));
    let mut delivered = 0;
    loop {
        let mut held = Vec::new();
        // Read again each time: agents come and go while we wait.
        for agent in broker.agents(acting.session).await? {
            if agent.placement.is_some() {
                delivered += deliver(broker, &settings, &agent).await?;
                held.extend(broker.undelivered(agent.id).await?);
            }
        }
        if held.is_empty() || Instant::now() >= deadline {
            let why = held.first().and_then(|task| task.delivery.note.as_deref()).map(shown);
            return Ok(VerbAnswer::new(
                format!("delivered={delivered} held={}", held.len()),
                json!({"delivered": delivered, "held": held.len()}),
            )
            .note(why.map(|why| format!("held: {why}"))));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
