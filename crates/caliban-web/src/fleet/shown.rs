//! One agent as a page shows it: its row, and everything that a page would otherwise have to derive. Pure.

use caliban_core::inert;
use caliban_core::lifecycle::WaitingFor;
use caliban_core::status_word::{StatusGroup, StatusTone, StatusWord};
use caliban_fleet::protocol::AgentRow;
use caliban_fleet::{plain, words};
use serde::Serialize;
use serde_json::{Value, json};

use super::hub::Repo;
use crate::time;

/// The class of the style sheet.
const fn class(tone: StatusTone) -> &'static str {
    match tone {
        StatusTone::Attention => "attn",
        StatusTone::Active => "run",
        StatusTone::Waiting => "wait",
        StatusTone::Good => "ok",
        StatusTone::Bad => "bad",
        StatusTone::Quiet => "fg3",
    }
}

/// How a status looks on a page.
#[derive(Debug, Serialize)]
pub(crate) struct StatusLook {
    status: &'static str,
    glyph: &'static str,
    tone: &'static str,
    /// So that no page has a list of words of its own.
    is_in_turn: bool,
}

impl StatusLook {
    pub(crate) const fn of(status: StatusWord) -> Self {
        Self {
            status: status.word(),
            glyph: status.icon(),
            tone: class(status.tone()),
            is_in_turn: status.is_in_turn(),
        }
    }
}

/// The agent as JSON. `since` is the time of its last state change; `label` looks up the labels of the repo's agents.
pub(crate) fn agent(repo: &Repo, row: &AgentRow, since: u64, now: u64, label: &words::Labels<'_>) -> Value {
    let how = words::status(row);
    let look = StatusLook::of(how);
    let mut value = serde_json::to_value(words::ShownAgent::new(row, now)).unwrap_or_default();
    let Some(fields) = value.as_object_mut() else { return value };
    let until = match &row.waiting_for {
        Some(
            WaitingFor::RateLimit { until_ms }
            | WaitingFor::Model { until_ms }
            | WaitingFor::QuietHours { until_ms },
        ) => Some(time::text(*until_ms)),
        _ => None,
    };
    let line = |text: &Option<String>| text.as_deref().map(|text| inert::line(text).into_owned());
    let own = line(&row.label);
    let doing = match (how.group(), &row.last_text) {
        (StatusGroup::Finished, Some(text)) => format!("{}: {}", words::ended(row), plain(text)),
        // The page has a place of its own for how its work stands.
        _ => words::doing_among(row, now, label),
    };
    let extra = json!({
        "key": format!("{}/{}", repo.hash, row.id),
        "repo": repo.hash,
        "repo_name": repo.name,
        "name": words::title(row).unwrap_or_else(|| row.id.to_string()),
        "label": own,
        "group": how.group().name(),
        "status": look.status,
        "glyph": look.glyph,
        "tone": look.tone,
        "is_in_turn": look.is_in_turn,
        "has_ended": words::has_ended(row.state),
        "doing": doing,
        "since": time::text(since),
        "until": until,
        "near": words::near_limit(row),
        "cost": words::cost(row),
        "spent": words::spent(row),
        "review_words": words::review(row),
        "prompt": inert::line(&row.prompt),
        "activity": line(&row.activity),
        "note": line(&row.note),
        "last_text": row.last_text.as_deref().map(plain),
    });
    if let Value::Object(extra) = extra {
        fields.extend(extra);
    }
    // Questions have a route of their own with the whole call.
    fields.insert("asks".into(), json!(row.asks.iter().map(|ask| &ask.id).collect::<Vec<_>>()));
    fields.remove("age_ms");
    value
}

#[cfg(test)]
mod tests {
    use caliban_contract::records::AskRecord;

    use caliban_core::lifecycle::State;

    use super::*;

    #[test]
    fn a_page_and_the_command_line_agree_who_needs_a_person() {
        let id = "a3f8b2c1".parse().unwrap();
        let row = |state| AgentRow::new(id, state);
        let waits = |waiting_for| AgentRow { waiting_for: Some(waiting_for), ..row(State::Idle) };
        let cases = [
            (row(State::Running), "running"),
            (row(State::Spawning), "running"),
            (AgentRow { queued_behind: Some(2), ..row(State::Spawning) }, "queued"),
            (AgentRow { hibernated: true, ..row(State::Idle) }, "asleep"),
            (row(State::Idle), "idle"),
            (waits(WaitingFor::Input), "waits"),
            (AgentRow { hibernated: true, ..waits(WaitingFor::Input) }, "waits"),
            (waits(WaitingFor::RateLimit { until_ms: 5 }), "limited"),
            (AgentRow { asks: vec![AskRecord::default()], ..row(State::Running) }, "asks"),
            (row(State::Done), "done"),
            (row(State::Killed), "killed"),
            (row(State::Crashed), "crashed"),
            (row(State::Failed), "failed"),
        ];
        for (row, word) in cases {
            let status = words::status(&row);
            assert_eq!(status.word(), word, "{row:?}");
            let is_asking = words::needs_you(&row) && !words::has_ended(row.state);
            assert_eq!((status.group() == StatusGroup::NeedsYou), is_asking, "{row:?}");
            assert_eq!((status.group() == StatusGroup::Finished), words::has_ended(row.state), "{row:?}");
        }
    }

    #[test]
    fn a13_markup_and_control_characters_in_names_are_inert() {
        let mut row = AgentRow::new("a3f8b2c1".parse().unwrap(), State::Running);
        row.label = Some("\u{1b}[2Jx\u{202e}".into());
        row.activity = Some("Bash a\nb".into());
        let repo = Repo { hash: "h".into(), name: "api".into(), ..Repo::default() };
        let shown = agent(&repo, &row, 0, 0, &|_| None).to_string();
        assert!(
            !shown.contains('\u{1b}') && !shown.contains("\\u001b") && !shown.contains('\u{202e}'),
            "{shown}"
        );
        assert!(shown.contains("Bash a␊b"), "{shown}");
    }
}
