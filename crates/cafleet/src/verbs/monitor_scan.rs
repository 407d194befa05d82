//! `monitor scan`: looks at every pane once, with the time and a hash of its content. Costs no tokens.

use caliban_store::Stamp;
use caliban_store::broker::{Activity, Agent, Broker, IdPrefix, Session, SessionId};
use serde_json::{Value, json};

use crate::answer::VerbAnswer;
use crate::context::{VerbContext, session_prefix};
use crate::failure::{Failure, shown};
use crate::pane::inspect::{PaneLook, look_at};
use crate::pane::own_pane;
use crate::render::member::{columns, duration, idle};
use crate::settings::Settings;

/// One agent with a pane.
pub(super) struct ScanRow {
    pub(super) agent: Agent,
    pub(super) seen: PaneLook,
    pub(super) activity: Activity,
    pub(super) is_root: bool,
}

pub(crate) async fn run(context: &mut VerbContext) -> Result<VerbAnswer, Failure> {
    let sessions = sessions(context).await?;
    let settings = context.settings.clone();
    let broker = context.broker().await?;
    let now = Stamp::now();
    let mut rows = Vec::new();
    for session in &sessions {
        rows.extend(look_around(broker, &settings, session).await?);
    }
    let json: Value = rows.iter().map(|row| row_json(row, now)).collect();
    let text = if rows.is_empty() { "No panes found.".to_owned() } else { table(&rows, now) };
    Ok(VerbAnswer::new(text, json))
}

/// The session given, or every living one with a pane on this machine.
pub(super) async fn sessions(context: &mut VerbContext) -> Result<Vec<Session>, Failure> {
    if let Ok(given) = context.session_given().map(str::to_owned) {
        let prefix = session_prefix(&given)?;
        return Ok(vec![context.broker().await?.session(&prefix).await?]);
    }
    let here = own_pane::host().ok();
    let broker = context.broker().await?;
    let mut found = Vec::new();
    for summary in broker.sessions().await? {
        let agents = broker.agents(summary.session.id).await?;
        if agents
            .iter()
            .any(|agent| agent.placement.as_ref().map(|placement| &placement.host) == here.as_ref())
        {
            found.push(summary.session);
        }
    }
    Ok(found)
}

/// Every agent of a session that has a pane, with the pane's state.
pub(super) async fn look_around(
    broker: &mut Broker,
    settings: &Settings,
    session: &Session,
) -> Result<Vec<ScanRow>, Failure> {
    let mut rows = Vec::new();
    for agent in broker.agents(session.id).await? {
        if agent.placement.is_none() {
            continue;
        }
        let seen = look_at(&agent, settings).await;
        let activity = broker.activity(agent.id).await?;
        let is_root = session.director == Some(agent.id);
        rows.push(ScanRow { agent, seen, activity, is_root });
    }
    Ok(rows)
}

/// The rows as a table.
pub(super) fn table(rows: &[ScanRow], now: Stamp) -> String {
    let head = ["agent", "name", "backend", "pane", "state", "unread", "held", "idle", "why"];
    let mut lines = vec![head.map(str::to_owned).to_vec()];
    for row in rows {
        let placement = row.agent.placement.as_ref();
        let name = shown(&row.agent.name);
        lines.push(vec![
            row.agent.id.short(),
            if row.is_root { format!("{name} *") } else { name },
            placement.map_or(String::new(), |placement| shown(&placement.coding_agent)),
            placement.and_then(|placement| placement.tmux_pane.clone()).unwrap_or_else(|| "-".to_owned()),
            row.seen.state.word().to_owned(),
            row.activity.unread.to_string(),
            row.activity.held.to_string(),
            idle(&row.activity, now).map_or_else(|| "-".to_owned(), duration),
            shown(&row.seen.why),
        ]);
    }
    columns(&lines)
}

fn row_json(row: &ScanRow, now: Stamp) -> Value {
    let placement = row.agent.placement.as_ref();
    json!({
        "time": now.to_string(),
        "session_id": row.agent.session.to_string(),
        "agent_id": row.agent.id.to_string(),
        "name": row.agent.name,
        "is_director": row.is_root,
        "backend": placement.map(|placement| placement.coding_agent.clone()),
        "pane_id": placement.and_then(|placement| placement.tmux_pane.clone()),
        "state": row.seen.state.word(),
        "why": Some(&row.seen.why).filter(|why| !why.is_empty()),
        "content_hash": row.seen.facts.as_ref().map(|facts| hash(&facts.screen)),
        "unread": row.activity.unread,
        "held": row.activity.held,
        "idle": idle(&row.activity, now),
    })
}

/// FNV-1a: sufficient to detect a change of the screen, and the same in every version.
fn hash(screen: &str) -> String {
    let value = screen.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{value:016x}")
}

/// The present session; `None` if it was deleted.
pub(super) async fn living(broker: &mut Broker, id: SessionId) -> Result<Option<Session>, Failure> {
    let session = broker.session(&IdPrefix::from(id)).await?;
    Ok(Some(session).filter(|session| session.deleted_at.is_none()))
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn a_hash_is_stable_and_changes_with_the_screen() {
        assert_eq!(hash(""), "cbf29ce484222325");
        assert_eq!(hash("a"), "af63dc4c8601ec8c");
        assert_ne!(hash("a"), hash("b"));
    }
}
