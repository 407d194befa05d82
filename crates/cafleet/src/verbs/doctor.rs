//! `doctor`: which tmux pane this is, what claude and codex lack to use cafleet in it, which process delivers for each
//! session, and which members are gone.

use caliban_store::broker::{Agent, Broker, Session};
use serde_json::{Value, json};

use super::setup;
use crate::answer::VerbAnswer;
use crate::context::VerbContext;
use crate::failure::{Failure, shown};
use crate::pane::inspect::{PaneState, look_at};
use crate::pane::{own_pane, process};
use crate::settings::Settings;

use super::monitor_scan;

pub(crate) async fn run(context: &mut VerbContext) -> Result<VerbAnswer, Failure> {
    own_pane::must_be_inside(&context.settings, "cafleet doctor")?;
    let variable = context.settings.tmux_pane.clone().unwrap_or_default();
    // A tmux that is dead or does not answer is a finding; the rest can be looked at all the same.
    let (mut text, mut json) = match own_pane::find(&context.settings, "cafleet doctor").await {
        Ok(own_pane::Here { facts, .. }) => (
            format!(
                "tmux:\n  session_name: {}\n  window_id: {}\n  pane_id: {}\n  TMUX_PANE: {}",
                shown(&facts.session),
                facts.window,
                facts.pane,
                shown(&variable),
            ),
            json!({"tmux": {
                "session_name": facts.session,
                "window_id": facts.window,
                "pane_id": facts.pane,
                "tmux_pane_env": variable,
            }}),
        ),
        Err(failure) if failure.code != own_pane::NO_TMUX => return Err(failure),
        Err(failure) => {
            let why = failure.message;
            let text = format!("tmux:\n  trouble: {}\n  TMUX_PANE: {}", shown(&why), shown(&variable));
            (text, json!({"tmux": {"trouble": why, "tmux_pane_env": variable}}))
        }
    };
    let settings = context.settings.clone();
    let mut rows = Vec::new();
    for session in monitor_scan::sessions(context).await? {
        let (words, row) = examine(context.broker().await?, &settings, &session).await?;
        text.push_str(&words);
        rows.push(row);
    }
    if !rows.is_empty() {
        json["sessions"] = rows.into();
    }
    let setup = setup::looked(&settings);
    let mut answer = VerbAnswer::new(text, json);
    // Nothing to report if neither program has ever run.
    if let Some(setup) = &setup {
        answer = answer.with("setup", json!(setup));
    }
    for remark in setup.iter().flat_map(setup::remarks) {
        answer = answer.note(Some(remark));
    }
    Ok(answer)
}

/// A session's deliverer, and its agents whose panes are gone.
async fn examine(
    broker: &mut Broker,
    settings: &Settings,
    session: &Session,
) -> Result<(String, Value), Failure> {
    let known = broker.deliverer(session.id).await?;
    let is_locked = match broker.lock_deliverer(session.id).await {
        Some(lock) => {
            drop(lock);
            false
        }
        None => true,
    };
    let process = known.as_ref().and_then(|known| process::living(&known.process)).filter(|_| is_locked);
    let deliverer = match (is_locked, process) {
        (true, Some(pid)) => format!("runs (process {pid})"),
        (true, None) => "runs".to_owned(),
        (false, _) => "does not run; the next message that is held starts it".to_owned(),
    };
    let label = session.label.as_deref().map(|label| format!(" {}", shown(label))).unwrap_or_default();
    let mut text = format!("\nsession {}{label}:\n  deliverer: {deliverer}", session.id);
    let mut gone = Vec::new();
    for agent in broker.agents(session.id).await? {
        if agent.placement.is_none() {
            continue;
        }
        let seen = look_at(&agent, settings).await;
        if seen.state != PaneState::Gone {
            continue;
        }
        text.push_str(&format!(
            "\n  gone: {} {} ({}){}",
            agent.id.short(),
            shown(&agent.name),
            shown(&seen.why),
            way_back(session, &agent)
        ));
        gone.push(json!({"agent_id": agent.id.to_string(), "name": agent.name, "why": seen.why}));
    }
    let row = json!({
        "session_id": session.id.to_string(),
        "deliverer": {"running": is_locked, "pid": process},
        "gone": gone,
    });
    Ok((text, row))
}

/// The command that recovers a member.
fn way_back(session: &Session, agent: &Agent) -> String {
    let director = agent.placement.as_ref().and_then(|placement| placement.director);
    director.map_or_else(String::new, |director| {
        format!(
            "\n    bring it back: cafleet --session-id {} member create --agent-id {director} --recover {}",
            session.id, agent.id
        )
    })
}
