//! `caliban sessions show`

use std::io::Write;

use caliban_agent::{
    conversation::Conversation,
    event::{Event, Record},
};
use caliban_core::{inert, message::Message};
use serde_json::json;

use crate::{fleet::json_line, report::Result, session_places::FoundSession};

pub(super) fn show(found: &FoundSession, json: bool, out: &mut dyn Write) -> Result<()> {
    let records = super::records(found)?;
    let conversation = Conversation::replay(records.iter().map(|record| &record.event));
    let header = conversation.header();
    if json {
        let value = json!({
            "id": found.id.to_string(),
            "directory": found.directory,
            "state": super::ending(&records),
            "title": super::title(&records),
            "header": header,
            "created": records.first().map(|record| record.at),
            "changed": records.last().map(|record| record.at),
            "turns": conversation.replies(),
            "usage": super::usage(found, &conversation),
            "micro_usd": super::micro_usd(&records),
            "todos": conversation.todos(),
            "messages": conversation.messages(),
        });
        return json_line(&value, out);
    }
    writeln!(out, "session  {}", found.id)?;
    writeln!(out, "files    {}", found.directory.display())?;
    if let Some(header) = header {
        writeln!(out, "where    {}", inert::line(&header.cwd.display().to_string()))?;
        writeln!(out, "model    {} ({})", inert::line(&header.model), header.provider)?;
    }
    writeln!(out, "state    {}", super::ending(&records))?;
    writeln!(out, "{}", super::spent_line(found, &conversation, &records))?;
    for message in asked_and_answered(&records) {
        writeln!(out)?;
        writeln!(out, "{}", message)?;
    }
    Ok(())
}

/// Each prompt as it was typed, and the last text before the next one.
fn asked_and_answered(records: &[Record]) -> Vec<String> {
    let (mut lines, mut answer) = (Vec::new(), None);
    for record in records {
        match &record.event {
            event @ Event::Prompt { .. } => {
                let Some(text) = event.typed() else { continue };
                lines.extend(answer.take());
                lines.push(format!("> {}", inert::block(text.trim_end()).replace('\n', "\n> ")));
            }
            Event::Reply { message, .. } => answer = said(message).or(answer),
            _ => {}
        }
    }
    lines.extend(answer);
    lines
}

fn said(message: &Message) -> Option<String> {
    Some(message.text())
        .filter(|text| !text.is_empty())
        .map(|text| inert::block(text.trim_end()).into_owned())
}
