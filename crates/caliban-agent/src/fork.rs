//! A conversation as it was before one of its prompts, as a session of its own. The old session stays as it is.

use std::{fs, io::Write as _, os::unix::fs::OpenOptionsExt as _, path::Path};

use crate::{
    checkpoint,
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
        // A turn that is under way is left out.
        None => points.iter().find(|point| point.turn == ended),
    };
    let end = point.map_or(u64::MAX, |point| point.seq);
    let kept: Vec<&Record> = records.iter().filter(|record| record.seq < end).collect();
    make_private_directory(to)?;
    let path = to.join(transcript::FILE_NAME);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    let mut old = String::new();
    let mut text = String::new();
    let mut seq = 0;
    let mut write = |record: Record| {
        let line = serde_json::to_string(&Record { seq, ..record }).map_err(std::io::Error::from)?;
        seq += 1;
        text.push_str(&line);
        text.push('\n');
        Ok::<(), std::io::Error>(())
    };
    for record in &kept {
        let mut record = (*record).clone();
        match &mut record.event {
            Event::Started(header) => {
                old = std::mem::replace(&mut header.session, id.to_owned());
            }
            // Said, and heard only after the place where the fork ends: the fork would hear it by itself.
            Event::Queued { number, .. } if !is_heard(&kept, *number) => continue,
            _ => {}
        }
        write(record)?;
    }
    let note = Event::Note { text: format!("forked from session {old}") };
    write(Record { seq: 0, at: jiff::Timestamp::now(), worked_ms: None, stands_in: None, event: note })?;
    file.write_all(text.as_bytes())?;
    file.sync_data()?;
    checkpoint::copy(from, to, before.unwrap_or(ended))?;
    session_file::write(to)?;
    Ok(point.map(|point| point.text.clone()))
}

fn is_heard(records: &[&Record], number: u64) -> bool {
    records
        .iter()
        .any(|record| matches!(record.event, Event::Prompt { queued: Some(heard), .. } if heard == number))
}
