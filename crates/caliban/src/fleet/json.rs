//! What the verbs print for programs, where that is not what the daemon or git says. Owns one rule: an instant is RFC 3339
//! in UTC and is called `*_at`; a duration is a whole number of milliseconds and is called `*_ms`.

use std::path::Path;

use caliban_contract::records;
use caliban_control::protocol::AgentRow;
use caliban_core::{
    ids::AgentId,
    lifecycle::{Ending, State, WaitingFor},
    price::MicroUsd,
    usage::Usage,
};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// An instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(Option<Timestamp>);

impl At {
    /// Milliseconds since 1970.
    pub(crate) fn millis(since: u64) -> Self {
        Self(i64::try_from(since).ok().and_then(|since| Timestamp::from_millisecond(since).ok()))
    }

    /// Seconds since 1970.
    pub(crate) fn seconds(since: i64) -> Self {
        Self(Timestamp::from_second(since).ok())
    }
}

/// One that no calendar has is `null`.
impl Serialize for At {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(at) => to.collect_str(at),
            None => to.serialize_none(),
        }
    }
}

/// The same with every field `from`, in seconds since 1970, as the instant `to`, in its place.
pub(crate) fn with_instants(
    value: &impl Serialize,
    from: &str,
    to: &str,
) -> Result<Value, serde_json::Error> {
    fn changed(value: Value, from: &str, to: &str) -> Value {
        match value {
            Value::Array(all) => all.into_iter().map(|value| changed(value, from, to)).collect(),
            Value::Object(fields) => {
                let field = |(name, value): (String, Value)| match value.as_i64() {
                    Some(since) if name == from => (to.to_owned(), serde_json::json!(At::seconds(since))),
                    _ => (name, changed(value, from, to)),
                };
                Value::Object(fields.into_iter().map(field).collect::<Map<_, _>>())
            }
            other => other,
        }
    }
    Ok(changed(serde_json::to_value(value)?, from, to))
}

/// A call that waits for a person.
#[derive(Debug, Serialize)]
pub(super) struct Ask<'a> {
    id: &'a str,
    name: &'a str,
    what: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    call: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    digest: &'a str,
    why: Option<&'a str>,
    suggestions: &'a [String],
    opened_at: At,
}

impl<'a> From<&'a records::Ask> for Ask<'a> {
    fn from(ask: &'a records::Ask) -> Self {
        Self {
            id: &ask.id,
            name: &ask.name,
            what: &ask.what,
            call: &ask.call,
            digest: &ask.digest,
            why: ask.why.as_deref(),
            suggestions: &ask.suggestions,
            opened_at: At::millis(ask.opened_at),
        }
    }
}

/// For `serialize_with`.
pub(super) fn ask<S: Serializer>(ask: &records::Ask, to: S) -> Result<S::Ok, S::Error> {
    Ask::from(ask).serialize(to)
}

/// What an agent cannot go on without.
#[derive(Debug, Serialize)]
#[serde(tag = "for", rename_all = "snake_case")]
enum Waiting<'a> {
    Approval { call: &'a str },
    Input,
    RateLimit { until_at: At },
}

impl<'a> From<&'a WaitingFor> for Waiting<'a> {
    fn from(waiting: &'a WaitingFor) -> Self {
        match waiting {
            WaitingFor::Approval { call } => Self::Approval { call },
            WaitingFor::Input => Self::Input,
            WaitingFor::RateLimit { until_ms } => Self::RateLimit { until_at: At::millis(*until_ms) },
        }
    }
}

/// An agent. Field by field, because a list may have a thousand of them; a test holds that none is left out.
#[derive(Debug, Serialize)]
pub(super) struct Agent<'a> {
    id: AgentId,
    label: Option<&'a str>,
    state: State,
    waiting_for: Option<Waiting<'a>>,
    activity: Option<&'a str>,
    asks: Vec<Ask<'a>>,
    turns: u64,
    usage: Usage,
    micro_usd: Option<MicroUsd>,
    created_at: At,
    age_ms: u64,
    updated_at: At,
    branch: Option<&'a str>,
    worktree: Option<&'a Path>,
    base_commit: Option<&'a str>,
    cwd: &'a Path,
    prompt: &'a str,
    pid: Option<i32>,
    shim_pid: Option<i32>,
    socket: &'a Path,
    dir: &'a Path,
    ending: Option<&'a Ending>,
    note: Option<&'a str>,
    model: Option<&'a str>,
    last_text: Option<&'a str>,
    parent: Option<AgentId>,
    after: &'a [AgentId],
    queued_behind: Option<u64>,
    hibernated: bool,
    runs: u32,
}

impl<'a> From<&'a AgentRow> for Agent<'a> {
    fn from(row: &'a AgentRow) -> Self {
        Self {
            id: row.id,
            label: row.label.as_deref(),
            state: row.state,
            waiting_for: row.waiting_for.as_ref().map(Waiting::from),
            activity: row.activity.as_deref(),
            asks: row.asks.iter().map(Ask::from).collect(),
            turns: row.turns,
            usage: row.usage,
            micro_usd: row.micro_usd,
            created_at: At::millis(row.created_at),
            age_ms: row.age_ms,
            updated_at: At::millis(row.updated_at),
            branch: row.branch.as_deref(),
            worktree: row.worktree.as_deref(),
            base_commit: row.base_commit.as_deref(),
            cwd: &row.cwd,
            prompt: &row.prompt,
            pid: row.pid,
            shim_pid: row.shim_pid,
            socket: &row.socket,
            dir: &row.dir,
            ending: row.ending.as_ref(),
            note: row.note.as_deref(),
            model: row.model.as_deref(),
            last_text: row.last_text.as_deref(),
            parent: row.parent,
            after: &row.after,
            queued_behind: row.queued_behind,
            hibernated: row.hibernated,
            runs: row.runs,
        }
    }
}

/// For `serialize_with`.
pub(super) fn agent<S: Serializer>(row: &&AgentRow, to: S) -> Result<S::Ok, S::Error> {
    Agent::from(*row).serialize(to)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_agent_has_every_field_that_the_daemon_tells_and_instants_are_rfc_3339() {
        let told = records::Ask {
            call: "Bash make".into(),
            digest: "d".into(),
            opened_at: 1_794_800_076_635,
            ..records::Ask::default()
        };
        let row = AgentRow {
            created_at: 1_794_800_064_000,
            updated_at: 1_794_800_065_189,
            waiting_for: Some(WaitingFor::RateLimit { until_ms: 1_794_800_100_500 }),
            asks: vec![told],
            ..super::super::row::tests::row(State::Running)
        };
        let mut expected = serde_json::to_value(&row).unwrap();
        expected["created_at"] = json!("2026-11-16T03:34:24Z");
        expected["updated_at"] = json!("2026-11-16T03:34:25.189Z");
        expected["waiting_for"] = json!({"for": "rate_limit", "until_at": "2026-11-16T03:35:00.5Z"});
        expected["asks"][0]["opened_at"] = json!("2026-11-16T03:34:36.635Z");
        assert_eq!(serde_json::to_value(Agent::from(&row)).unwrap(), expected);
    }

    #[test]
    fn seconds_become_instants_wherever_they_are() {
        let value = json!({"a": [{"time": 1_794_800_065, "b": 1}], "time": "noon", "c": {"time": i64::MAX}});
        assert_eq!(
            with_instants(&value, "time", "made_at").unwrap().to_string(),
            r#"{"a":[{"made_at":"2026-11-16T03:34:25Z","b":1}],"time":"noon","c":{"made_at":null}}"#
        );
    }
}
