//! Members, as text and as JSON.

use caliban_core::inert;
use caliban_store::Stamp;
use caliban_store::broker::{Activity, Agent};
use serde_json::{Value, json};

use super::agent::placement_json;

/// Number of characters of an id in a table.
const ID_CHARS: usize = 12;

/// The output of `member create`.
pub(crate) fn created_text(member: &Agent, full: bool) -> String {
    let placement = member.placement.as_ref();
    let (backend, pane) = (backend(member), placement.and_then(|placement| placement.tmux_pane.as_deref()));
    let pane = pane.unwrap_or("(pending)");
    let name = inert::line(&member.name);
    if !full {
        return format!("{} {name} backend={backend} pane={pane}", member.id.short());
    }
    let place = placement.map_or_else(String::new, |placement| {
        format!("{}:{}:{pane}", inert::line(&placement.tmux_session), placement.tmux_window)
    });
    format!(
        "agent_id:      {}\nname:          {name}\ndescription:   {}\nbackend:       {backend}\npane:          {place}\n\
         registered_at: {}",
        member.id,
        inert::line(&member.description),
        member.registered_at
    )
}

pub(crate) fn created_json(member: &Agent) -> Value {
    json!({
        "agent_id": member.id.to_string(),
        "number": member.number,
        "name": member.name,
        "registered_at": member.registered_at.to_string(),
        "placement": member.placement.as_ref().map(placement_json),
    })
}

/// A table of members; with activities, their columns follow the status.
pub(crate) fn list_text(rows: &[(Agent, Option<Activity>)], now: Stamp) -> String {
    if rows.is_empty() {
        return "0 members.".to_owned();
    }
    let is_active = rows.iter().any(|(_, activity)| activity.is_some());
    let head: &[&str] = if is_active {
        &["agent_id", "name", "status", "last_sent", "last_recv", "last_ack", "idle"]
    } else {
        &["agent_id", "name", "status", "backend", "session", "window_id", "pane_id", "created_at"]
    };
    let mut table = vec![head.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()];
    for (member, activity) in rows {
        let id: String = member.id.to_string().chars().take(ID_CHARS).collect();
        let mut line =
            vec![format!("{id}…"), inert::line(&member.name).into_owned(), member.status.to_string()];
        match (activity, &member.placement) {
            (Some(activity), _) => {
                line.extend([activity.sent, activity.received, activity.acked].map(clock));
                line.push(idle(activity, now).map_or_else(|| "-".to_owned(), duration));
            }
            (None, Some(placement)) => line.extend([
                backend(member),
                inert::line(&placement.tmux_session).into_owned(),
                placement.tmux_window.clone(),
                placement.tmux_pane.clone().unwrap_or_else(|| "(pending)".to_owned()),
                placement.created_at.to_string(),
            ]),
            (None, None) => {}
        }
        table.push(line);
    }
    let plural = if rows.len() == 1 { "member" } else { "members" };
    format!("{} {plural}:\n{}", rows.len(), columns(&table))
}

pub(crate) fn list_json(rows: &[(Agent, Option<Activity>)], now: Stamp) -> Value {
    rows.iter()
        .map(|(member, activity)| {
            let mut value = json!({
                "agent_id": member.id.to_string(),
                "number": member.number,
                "name": member.name,
                "description": member.description,
                "status": member.status.as_str(),
                "registered_at": member.registered_at.to_string(),
                "placement": member.placement.as_ref().map(placement_json),
            });
            if let Some(activity) = activity {
                let stamp = |stamp: Option<Stamp>| json!(stamp.map(|stamp| stamp.to_string()));
                value["last_sent"] = stamp(activity.sent);
                value["last_recv"] = stamp(activity.received);
                value["last_ack"] = stamp(activity.acked);
                value["idle"] = json!(idle(activity, now));
            }
            value
        })
        .collect()
}

/// Lines with aligned columns, without trailing spaces.
pub(crate) fn columns(table: &[Vec<String>]) -> String {
    let count = table.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        table
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    let lines: Vec<String> = table
        .iter()
        .map(|line| {
            let cells: Vec<String> =
                line.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
            cells.join("  ").trim_end().to_owned()
        })
        .collect();
    lines.join("\n")
}

/// Seconds since the agent last sent or received something.
pub(crate) fn idle(activity: &Activity, now: Stamp) -> Option<i64> {
    let last = activity.sent.max(activity.received)?;
    Some(now.as_micros().saturating_sub(last.as_micros()).max(0) / 1_000_000)
}

/// `42s`, `7m`, `3h`.
pub(crate) fn duration(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3600),
    }
}

fn backend(member: &Agent) -> String {
    let name = member.placement.as_ref().map_or("-", |placement| placement.coding_agent.as_str());
    inert::line(name).into_owned()
}

/// The time of the day.
fn clock(stamp: Option<Stamp>) -> String {
    let text = stamp.map(|stamp| stamp.to_string());
    text.as_deref().and_then(|text| text.get(11..19)).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_one_unit() {
        let said = [0, 59, 60, 3599, 3600, 90_000].map(duration);
        assert_eq!(said, ["0s", "59s", "1m", "59m", "1h", "25h"].map(str::to_owned));
    }
}
