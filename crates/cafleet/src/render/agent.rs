//! Agents, as text and as JSON.

use caliban_core::inert;
use caliban_store::broker::{Agent, Placement};
use serde_json::{Value, json};

use super::{Detail, cut};

/// Maximum number of characters of a description in the compact form.
const DESCRIPTION_CHARS: usize = 60;

/// Whether a full form includes the fields that only `agent show` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentForm {
    List,
    Show,
}

pub(crate) fn text(agent: &Agent, detail: Detail) -> String {
    let name = inert::line(&agent.name);
    match detail {
        Detail::Compact(_) => format!("{} {name} {}", agent.id.short(), agent.status),
        Detail::Full => format!(
            "  agent_id:        {}\n  name:            {name}\n  description:     {}\n  status:          {}\n  \
             agent_card_json: {}\n  number:          {}",
            agent.id,
            inert::line(&agent.description),
            agent.status,
            inert::line(&agent.card),
            agent.number.map_or_else(|| "-".to_owned(), |number| number.to_string()),
        ),
    }
}

pub(crate) fn json(agent: &Agent, detail: Detail, view: AgentForm) -> Value {
    match detail {
        Detail::Compact(_) => {
            let mut value = json!({
                "id": agent.id.short(),
                "name": agent.name,
                "description": cut(&agent.description, DESCRIPTION_CHARS),
                "status": agent.status.as_str(),
            });
            if let Some(placement) = &agent.placement {
                value["coding_agent"] = json!(placement.coding_agent);
            }
            value["number"] = json!(agent.number);
            value
        }
        Detail::Full => {
            let card: Value = serde_json::from_str(&agent.card).unwrap_or(Value::Null);
            let mut value = json!({
                "agent_id": agent.id.to_string(),
                "name": agent.name,
                "description": agent.description,
                "status": agent.status.as_str(),
                "registered_at": agent.registered_at.to_string(),
                "agent_card_json": card,
                "number": agent.number,
            });
            if view == AgentForm::Show {
                value["kind"] = json!(agent.kind.as_str());
                value["placement"] = json!(agent.placement.as_ref().map(placement_json));
            }
            value
        }
    }
}

pub(crate) fn placement_json(placement: &Placement) -> Value {
    json!({
        "director_agent_id": placement.director.map(|id| id.to_string()),
        "tmux_session": placement.tmux_session,
        "tmux_window_id": placement.tmux_window,
        "tmux_pane_id": placement.tmux_pane,
        "coding_agent": placement.coding_agent,
        "created_at": placement.created_at.to_string(),
    })
}
