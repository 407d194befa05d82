//! Sessions, as text and as JSON.

use caliban_core::inert;
use caliban_store::broker::{CreatedSession, Session, SessionSummary};
use serde_json::{Value, json};

use super::agent::placement_json;

/// Two lines: session id, root Director's id; everything else with `full`.
pub(crate) fn created_text(created: &CreatedSession, full: bool) -> String {
    let short = format!("{}\n{}", created.session.id, created.director.id);
    if !full {
        return short;
    }
    let pane = created.director.placement.as_ref().map_or("-".to_owned(), |placement| {
        let pane = placement.tmux_pane.as_deref().unwrap_or("(pending)");
        format!("{}:{}:{pane}", inert::line(&placement.tmux_session), placement.tmux_window)
    });
    format!(
        "{short}\nlabel:         {}\ncreated_at:    {}\ndirector_name: {}\npane:          {pane}\nadministrator: {}",
        label(&created.session),
        created.session.created_at,
        created.director.name,
        created.administrator,
    )
}

pub(crate) fn created_json(created: &CreatedSession) -> Value {
    let director = &created.director;
    json!({
        "session_id": created.session.id.to_string(),
        "label": created.session.label,
        "created_at": created.session.created_at.to_string(),
        "administrator_agent_id": created.administrator.to_string(),
        "director": {
            "agent_id": director.id.to_string(),
            "name": director.name,
            "description": director.description,
            "registered_at": director.registered_at.to_string(),
            "placement": director.placement.as_ref().map(placement_json),
        },
    })
}

pub(crate) fn list_text(sessions: &[SessionSummary]) -> String {
    if sessions.is_empty() {
        return "No sessions found.".to_owned();
    }
    let labels: Vec<String> = sessions.iter().map(|row| label(&row.session)).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or_default().max("LABEL".len());
    let mut lines = vec![format!("{:36}  {:width$}  {:>6}  CREATED_AT", "SESSION_ID", "LABEL", "AGENTS")];
    for (row, label) in sessions.iter().zip(&labels) {
        lines.push(format!(
            "{}  {label:width$}  {:>6}  {}",
            row.session.id, row.agent_count, row.session.created_at
        ));
    }
    lines.join("\n")
}

pub(crate) fn list_json(sessions: &[SessionSummary]) -> Value {
    sessions
        .iter()
        .map(|row| {
            json!({
                "session_id": row.session.id.to_string(),
                "label": row.session.label,
                "created_at": row.session.created_at.to_string(),
                "agent_count": row.agent_count,
            })
        })
        .collect()
}

pub(crate) fn show_text(summary: &SessionSummary) -> String {
    let session = &summary.session;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    format!(
        "session_id:        {}\nlabel:             {}\nagents:            {}\ncreated_at:        {}\n\
         deleted_at:        {}\ndirector_agent_id: {}",
        session.id,
        label(session),
        summary.agent_count,
        session.created_at,
        or_dash(session.deleted_at.map(|stamp| stamp.to_string())),
        or_dash(session.director.map(|id| id.to_string())),
    )
}

pub(crate) fn show_json(summary: &SessionSummary) -> Value {
    let session = &summary.session;
    json!({
        "session_id": session.id.to_string(),
        "label": session.label,
        "created_at": session.created_at.to_string(),
        "agent_count": summary.agent_count,
        "deleted_at": session.deleted_at.map(|stamp| stamp.to_string()),
        "director_agent_id": session.director.map(|id| id.to_string()),
    })
}

fn label(session: &Session) -> String {
    inert::line(session.label.as_deref().unwrap_or_default()).into_owned()
}
