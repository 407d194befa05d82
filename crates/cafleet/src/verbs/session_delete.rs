//! `session delete`: a soft delete in one transaction, idempotent. With `--with-members` the members are ended first.

use std::time::Duration;

use caliban_store::Stamp;
use caliban_store::broker::{Agent, Broker, Session};
use serde_json::json;

use crate::answer::VerbAnswer;
use crate::args::SessionDeleteArgs;
use crate::context::{VerbContext, session_prefix};
use crate::failure::{Failure, shown};
use crate::pane::inspect::{PaneState, PaneTarget};
use crate::pane::leave;
use crate::settings::Settings;
use crate::worktree_hold;

/// Time limit for all members together to end.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn run(context: &mut VerbContext, args: &SessionDeleteArgs) -> Result<VerbAnswer, Failure> {
    let prefix = session_prefix(&args.id)?;
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let session = broker.session(&prefix).await?;
    let members = members(broker, &session).await?;
    let mut ended = Vec::new();
    if args.with_members {
        ended = end_all(broker, &settings, &members).await?;
    }
    let deleted = broker.delete_session(session.id, Stamp::now()).await?;
    broker.wake_deliverer(session.id).await;
    worktree_hold::let_go(broker, &settings).await?;
    let mut text = format!("Deleted session {}. Deregistered {} agents.", deleted.id, deleted.deregistered);
    for (name, how) in &ended {
        text.push_str(&format!("\n  {name}: {how}"));
    }
    let open = if args.with_members { 0 } else { members.len() };
    let note = (open > 0 && deleted.deregistered > 0).then(|| {
        format!("the panes of {open} members are still open; 'cafleet session delete --with-members' closes them first")
    });
    let mut json = json!({"session_id": deleted.id.to_string(), "deregistered": deleted.deregistered});
    if args.with_members {
        json["members"] = ended.iter().map(|(name, how)| json!({"name": name, "pane_status": how})).collect();
    }
    Ok(VerbAnswer::new(text, json).note(note))
}

async fn members(broker: &mut Broker, session: &Session) -> Result<Vec<Agent>, Failure> {
    let agents = broker.agents(session.id).await?;
    let is_member =
        |agent: &Agent| agent.placement.as_ref().is_some_and(|placement| placement.director.is_some());
    Ok(agents.into_iter().filter(is_member).collect())
}

/// Asks all members at once to end, and closes the panes of those that have not ended in time.
async fn end_all(
    broker: &mut Broker,
    settings: &Settings,
    members: &[Agent],
) -> Result<Vec<(String, &'static str)>, Failure> {
    let broker = &*broker;
    let mut all = Vec::new();
    for member in members {
        let Some(target) = member.placement.as_ref().and_then(PaneTarget::of) else { continue };
        all.push(async move {
            if target.look(settings).await.state == PaneState::Gone {
                return Ok((shown(&member.name), "gone"));
            }
            match leave::ask(broker, settings, &target, GRACE).await {
                Ok(()) => Ok((shown(&member.name), "closed")),
                Err(_) => match leave::kill(&target).await {
                    Ok(()) => Ok((shown(&member.name), "killed")),
                    Err(why) => Err((shown(&member.name), why)),
                },
            }
        });
    }
    let mut ended = Vec::new();
    for outcome in join_all(all).await {
        match outcome {
            Ok(done) => ended.push(done),
            Err((name, why)) => {
                let words =
                    format!("cannot close the pane of {name}: {}; the session is not deleted", shown(&why));
                return Err(Failure::refused("pane", words));
            }
        }
    }
    Ok(ended)
}

/// Runs futures concurrently on this one thread.
async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|cx| {
        let mut is_done = true;
        for (future, outcome) in &mut running {
            if outcome.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *outcome = Some(value),
                    std::task::Poll::Pending => is_done = false,
                }
            }
        }
        if is_done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    running.into_iter().filter_map(|(_, outcome)| outcome).collect()
}
