//! `session create`: a session, its root Director in this pane, its Administrator.

use caliban_store::Stamp;
use caliban_store::broker::{CreateSession, Placement};

use super::setup;
use crate::answer::VerbAnswer;
use crate::args::{CodingAgent, SessionCreateArgs};
use crate::context::VerbContext;
use crate::failure::Failure;
use crate::pane::{deliverer, own_pane};
use crate::{input, render};

pub(crate) async fn run(context: &mut VerbContext, args: &SessionCreateArgs) -> Result<VerbAnswer, Failure> {
    let label = args.label.as_deref().map(|label| input::name("--label", label)).transpose()?;
    let now = Stamp::now();
    // Before the store is opened: outside tmux nothing is written.
    let placement = if args.no_tmux { None } else { Some(placement(context, args.coding_agent, now).await?) };
    let has_pane = placement.is_some();
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let created = broker.create_session(&CreateSession { label, placement }, now).await?;
    if has_pane {
        deliverer::ensure(broker, &settings, created.session.id).await;
    }
    let answer = VerbAnswer::new(
        render::session::created_text(&created, args.full),
        render::session::created_json(&created),
    );
    Ok(answer.note(setup::old(&context.settings)))
}

async fn placement(context: &VerbContext, agent: CodingAgent, now: Stamp) -> Result<Placement, Failure> {
    let here = own_pane::find(&context.settings, "cafleet session create").await.map_err(|failure| {
        failure.hint(
            "'cafleet session create --no-tmux' makes a session without a pane; its Director polls for messages",
        )
    })?;
    let identity = here.identity();
    let facts = here.facts;
    Ok(Placement {
        host: own_pane::host()
            .map_err(|error| Failure::internal(format!("cannot tell this machine: {error}")))?,
        director: None,
        tmux_session: facts.session,
        tmux_window: facts.window,
        tmux_pane: Some(facts.pane),
        coding_agent: agent.name().to_owned(),
        created_at: now,
        identity,
    })
}
