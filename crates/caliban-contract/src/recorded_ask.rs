//! A question in the transcripts of an agent: what is asked, and what was answered.

use std::{io, path::Path};

use caliban_core::event::{Answer, EventKind};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    records::{SUB_AGENTS, TRANSCRIPT},
    tail::Tail,
};

/// The question of one id that was asked last.
#[derive(Debug)]
pub struct RecordedAsk {
    id: String,
    transcript: Tail,
    opened: Option<Value>,
    answer: Option<Answer>,
}

impl RecordedAsk {
    /// In the directory of an agent. A sub-agent's question is in its own transcript.
    pub fn new(agent: &Path, id: &str) -> Self {
        let sub = id.split_once(':').map(|(session, _)| agent.join(SUB_AGENTS).join(session));
        let place = sub.filter(|place| place.is_dir()).unwrap_or_else(|| agent.to_owned());
        let transcript = Tail::new(place.join(TRANSCRIPT));
        Self { id: id.to_owned(), transcript, opened: None, answer: None }
    }

    /// Looks a question up: its record, as far as the caller wants to know it.
    pub fn find<A: DeserializeOwned>(agent: &Path, id: &str) -> io::Result<Option<A>> {
        let mut recorded = Self::new(agent, id);
        recorded.read()?;
        Ok(recorded.opened.and_then(|opened| serde_json::from_value(opened).ok()))
    }

    /// Reads what has come since the last time. Transcripts are long.
    pub fn read(&mut self) -> io::Result<()> {
        let Self { id, transcript, opened, answer } = self;
        transcript.each(|line| {
            // Most lines are about something else, and long.
            let kind = EventKind::of_line(line.as_bytes());
            if !matches!(kind, EventKind::AskOpened | EventKind::AskAnswered) {
                return;
            }
            let Ok(mut record) = serde_json::from_str::<Value>(&line) else { return };
            if record["id"] != **id {
                return;
            }
            if kind == EventKind::AskOpened {
                (*opened, *answer) = (Some(record), None);
            } else {
                *answer = serde_json::from_value(record["answer"].take()).ok();
            }
        })
    }

    /// What was answered, as far as it is read.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_an_answer_to_the_question_that_was_asked_last_counts() {
        let dir = tempfile::tempdir().unwrap();
        let write = |at: &Path, lines: &[Value]| {
            std::fs::create_dir_all(at).unwrap();
            let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
            std::fs::write(at.join(TRANSCRIPT), lines.concat()).unwrap();
        };
        let opened = |id: &str| json!({"event": "ask_opened", "id": id, "name": "Bash"});
        let answered =
            |id: &str, answer: Answer| json!({"event": "ask_answered", "id": id, "answer": answer});
        let found = |id: &str| {
            let mut recorded = RecordedAsk::new(dir.path(), id);
            recorded.read().unwrap();
            recorded.answer().cloned()
        };
        assert_eq!(found("c1"), None);
        write(dir.path(), &[opened("c1"), answered("c1", Answer::Once), answered("c2", Answer::No(None))]);
        assert_eq!((found("c1"), found("c2")), (Some(Answer::Once), Some(Answer::No(None))));
        // The same id again, and nobody has answered.
        write(dir.path(), &[opened("c1"), answered("c1", Answer::Once), opened("c1")]);
        assert_eq!(found("c1"), None);
        // A sub-agent's is in its own transcript.
        write(&dir.path().join("sub/x-1"), &[opened("x-1:c1"), answered("x-1:c1", Answer::Always)]);
        assert_eq!(found("x-1:c1"), Some(Answer::Always));
        let record: Option<Value> = RecordedAsk::find(dir.path(), "x-1:c1").unwrap();
        assert_eq!(record.unwrap()["name"], "Bash");
    }
}
