//! `caliban sessions audit`: every tool call with its decision, rule, duration and exit code.

use std::io::Write;

use caliban_agent::{
    conversation::Conversation,
    event::{CallVerdict, Decision, Event, Record},
};
use caliban_core::{fence::Profile, inert};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{fleet::json_line, report::Result, session_places::FoundSession};

/// One call; text and JSON come from it alike.
#[derive(Debug, Serialize)]
struct AuditRow {
    at: Timestamp,
    id: String,
    tool: String,
    input: Value,
    decision: Decision,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    result: &'static str,
}

pub(super) fn audit(found: &FoundSession, json: bool, out: &mut dyn Write) -> Result<()> {
    let records = super::records(found)?;
    let rows = rows(&records);
    if json {
        return json_line(&rows, out);
    }
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    let spent = super::spent_line(found, &conversation, &records);
    if rows.is_empty() {
        writeln!(out, "No tool calls.\n{spent}")?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<19}  {:<9}  {:<11}  {:>8}  {:>4}  {:<12}  CALL  (why)",
        "TIME", "DECISION", "RESULT", "MS", "EXIT", "TOOL"
    )?;
    for row in &rows {
        let at = row
            .at
            .to_zoned(caliban_contract::local_time::time_zone())
            .strftime("%Y-%m-%d %H:%M:%S")
            .to_string();
        let rule = match &row.decision.rule {
            Some(rule) => format!("rule {}", inert::line(rule)),
            None => inert::line(&row.decision.why).into_owned(),
        };
        writeln!(
            out,
            "{at:<19}  {:<9}  {:<11}  {:>8}  {:>4}  {:<12}  {}  ({rule})",
            word(row.decision.verdict),
            row.result,
            row.ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
            row.exit_code.map_or_else(|| "-".to_owned(), |code| code.to_string()),
            inert::line(&row.tool),
            caliban_agent::describe(&row.input),
        )?;
    }
    writeln!(out, "{spent}")?;
    Ok(())
}

fn rows(records: &[Record]) -> Vec<AuditRow> {
    let mut rows: Vec<AuditRow> = Vec::new();
    for record in records {
        // A command that its fence stopped, and that a person let run again outside.
        if let Event::CallStarted { id, decision, .. } = &record.event
            && decision.verdict == CallVerdict::Approved
            && let Some(before) = rows.last_mut().filter(|row| row.id == *id && row.result == "interrupted")
            && before.decision.fence != Profile::None
        {
            before.result = "failed";
        }
        match &record.event {
            Event::CallStarted { id, name, input, decision }
            | Event::CallRefused { id, name, input, decision, .. } => rows.push(AuditRow {
                at: record.at,
                id: id.clone(),
                tool: name.clone(),
                input: input.clone(),
                decision: decision.clone(),
                ms: None,
                exit_code: None,
                result: match record.event {
                    Event::CallRefused { .. } => "not run",
                    _ => "interrupted",
                },
            }),
            Event::CallEnded { id, is_error, ms, exit_code, .. } => {
                let open = rows.iter_mut().rev().find(|row| row.id == *id && row.ms.is_none());
                if let Some(row) = open {
                    row.ms = Some(*ms);
                    row.exit_code = *exit_code;
                    row.result = if *is_error { "failed" } else { "ok" };
                }
            }
            _ => {}
        }
    }
    rows
}

fn word(verdict: CallVerdict) -> &'static str {
    match verdict {
        CallVerdict::Allowed => "allowed",
        CallVerdict::Approved => "approved",
        CallVerdict::Denied => "denied",
        CallVerdict::Rejected => "rejected",
        CallVerdict::Unasked => "unasked",
        CallVerdict::Blocked => "blocked",
        CallVerdict::Invalid => "invalid",
        CallVerdict::Cancelled => "cancelled",
    }
}
