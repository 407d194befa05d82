//! A conversation as it was before one of its prompts, as a session of its own. The old session stays as it is.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use caliban_core::spec::Handover;

use crate::{
    checkpoint,
    choices::Choices,
    event::{Author, Event, Record},
    session_file,
    transcript::{self, TranscriptError, make_private_directory},
};

/// A prompt that began a turn: the conversation can be taken back to the moment before it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Point {
    /// The number of its turn, from 0.
    pub turn: u32,
    /// What was typed.
    pub text: String,
    /// The record of the prompt.
    #[serde(skip)]
    seq: u64,
}

/// Why a conversation was not forked.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The old or the new transcript.
    #[error(transparent)]
    Transcript(#[from] TranscriptError),
    /// The files of the new session.
    #[error("the new session cannot be written: {0}")]
    Io(#[from] std::io::Error),
    /// There is no such prompt.
    #[error("there is no prompt {0}")]
    NoPoint(u32),
}

/// The prompts of a conversation that began a turn, in order.
pub fn points(records: &[Record]) -> Vec<Point> {
    let (mut turn, mut is_open) = (0, false);
    let mut points = Vec::new();
    for record in records {
        match &record.event {
            Event::Prompt { author, message, .. } if !message.blocks.is_empty() => {
                let text = record.event.typed().filter(|text| *author == Author::User && !text.is_empty());
                if let Some(text) = text.filter(|_| !is_open) {
                    points.push(Point { turn, text, seq: record.seq });
                }
                is_open = true;
            }
            Event::Reply { .. } => is_open = true,
            Event::TurnEnded { .. } => {
                turn += 1;
                is_open = false;
            }
            _ => {}
        }
    }
    points
}

/// Makes the session `id` in the directory `to` of what happened in `from` before the turn `before`; without one, of every
/// turn that has ended. What the prompt said that is not in the fork any more, if there is one.
pub fn fork(from: &Path, to: &Path, id: &str, before: Option<u32>) -> Result<Option<String>, ForkError> {
    let records = transcript::read(from)?;
    let points = points(&records);
    let ended = records.iter().filter(|record| matches!(record.event, Event::TurnEnded { .. })).count();
    let ended = u32::try_from(ended).unwrap_or(u32::MAX);
    let point = match before {
        Some(turn) => Some(points.iter().find(|point| point.turn == turn).ok_or(ForkError::NoPoint(turn))?),
        None => points.iter().find(|point| point.turn == ended),
    };
    let end = match before {
        Some(_) => point.map(|point| point.seq),
        // A turn that is under way is left out, whatever began it: both sessions would go on with its calls.
        None => open_turn(&records),
    };
    let end = end.unwrap_or(u64::MAX);
    let kept: Vec<&Record> = records.iter().filter(|record| record.seq < end).collect();
    // Said, and heard only after the place where the fork ends: the fork would hear it by itself.
    let is_heard = |record: &&Record| match record.event {
        Event::Queued { number, .. } => is_heard(&kept, number),
        _ => true,
    };
    let taken = kept.iter().copied().filter(is_heard);
    write(to, id, taken, |old| vec![Event::Note { text: format!("forked from session {old}") }])?;
    checkpoint::copy(from, to, before.unwrap_or(ended))?;
    Choices::copy(from, to)?;
    session_file::write(to)?;
    Ok(point.map(|point| point.text.clone()))
}

/// Makes the session `id` in the directory `to` of a conversation that is handed over, whole: also of a turn that is under
/// way, and of what was said and not heard.
pub fn take_over(handover: &Handover, to: &Path, id: &str) -> Result<(), ForkError> {
    let records = transcript::read(&handover.session)?;
    let ended = |record: &&Record| matches!(record.event, Event::TurnEnded { .. });
    let kept = || records.iter().filter(|record| record.seq < handover.records);
    let turns = u32::try_from(kept().filter(ended).count()).unwrap_or(u32::MAX);
    let number = |record: &Record| match record.event {
        Event::Queued { number, .. } => Some(number + 1),
        _ => None,
    };
    let number = kept().filter_map(number).max().unwrap_or_default();
    // First, because the transcript is what makes it whole: without one, all of it is done again.
    checkpoint::copy(&handover.session, to, turns.saturating_add(1))?;
    write(to, id, kept(), |old| {
        let note = Event::Note { text: format!("taken over from session {old}") };
        let said = handover.go_on.clone();
        let said = said.map(|text| Event::Queued { number, text, sender: None, author: Author::Caliban });
        [note].into_iter().chain(said).collect()
    })?;
    session_file::write(to)?;
    Ok(())
}

/// Writes the transcript of the session `id`: these records, and what `more` says with the old session's id.
#[expect(clippy::disallowed_methods, reason = "in Caliban's own records")]
fn write<'r>(
    to: &Path,
    id: &str,
    records: impl Iterator<Item = &'r Record>,
    more: impl FnOnce(&str) -> Vec<Event>,
) -> Result<(), ForkError> {
    let mut old = String::new();
    let mut all: Vec<Record> = records.cloned().collect();
    for record in &mut all {
        if let Event::Started(header) = &mut record.event {
            old = std::mem::replace(&mut header.session, id.to_owned());
            header.parent = None;
        }
    }
    let at = jiff::Timestamp::now();
    all.extend(more(&old).into_iter().map(|event| Record {
        seq: 0,
        at,
        worked_ms: None,
        stands_in: None,
        event,
    }));
    let mut text = String::new();
    for (seq, record) in (0..).zip(all) {
        text.push_str(&serde_json::to_string(&Record { seq, ..record }).map_err(std::io::Error::from)?);
        text.push('\n');
    }
    make_private_directory(to)?;
    let (path, new) = (to.join(transcript::FILE_NAME), to.join("transcript.new"));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    // Not over one that is there.
    fs::hard_link(&new, path)?;
    fs::remove_file(new)?;
    Ok(())
}

/// The record that began the turn that has not ended, if there is one.
fn open_turn(records: &[Record]) -> Option<u64> {
    let ended = records.iter().rposition(|record| matches!(record.event, Event::TurnEnded { .. }));
    let behind = records.iter().skip(ended.map_or(0, |ended| ended + 1));
    let mut begun = behind.filter(|record| is_in_a_turn(&record.event));
    begun.next().map(|record| record.seq)
}

/// Whether a turn is under way behind this record.
fn is_in_a_turn(event: &Event) -> bool {
    match event {
        Event::Prompt { message, .. } => !message.blocks.is_empty(),
        Event::Reply { .. } => true,
        _ => false,
    }
}

fn is_heard(records: &[&Record], number: u64) -> bool {
    records
        .iter()
        .any(|record| matches!(record.event, Event::Prompt { queued: Some(heard), .. } if heard == number))
}

#[cfg(test)]
mod tests {
    use caliban_core::{message::Message, usage::Usage};

    use super::*;
    use crate::event::Outcome;

    #[test]
    fn r17_a_fork_has_no_turn_that_is_under_way_whoever_began_it() {
        let prompt = |author: Author| {
            let event = Event::Prompt { message: Message::user("go"), author, context: 0, queued: None };
            serde_json::to_value(event).unwrap()
        };
        let (outcome, usage) = (Outcome::Done, Usage::default());
        let ended = Event::TurnEnded { outcome, usage, micro_usd: None, turns: 1 };
        let ended = serde_json::to_value(ended).unwrap();
        let note = serde_json::json!({"event": "note", "text": "n"});
        let records = |events: &[&serde_json::Value]| -> Vec<Record> {
            let record = |(seq, event): (usize, &&serde_json::Value)| {
                let mut record = (*event).clone();
                record["seq"] = seq.into();
                record["at"] = "2026-01-01T00:00:00Z".into();
                serde_json::from_value(record).unwrap()
            };
            events.iter().enumerate().map(record).collect()
        };
        let user = prompt(Author::User);
        for author in [Author::User, Author::Parent, Author::Hook("Stop".to_owned()), Author::Caliban] {
            let open = prompt(author);
            assert_eq!(open_turn(&records(&[&user, &ended, &note, &open, &note])), Some(3));
            assert_eq!(open_turn(&records(&[&open])), Some(0));
        }
        assert_eq!(open_turn(&records(&[&user, &ended, &note])), None);
        assert_eq!(open_turn(&[]), None);
    }
}
