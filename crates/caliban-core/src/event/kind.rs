//! Which event a record is of, for who needs no more.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Event;

/// The kinds of [`Event`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The first record.
    Started,
    /// A process took the conversation up again.
    Resumed,
    /// Somebody said something to the agent.
    Prompt,
    /// Somebody said something while the agent was at work; it waits for the agent's next model request.
    Queued,
    /// A model request is about to be sent. It counts as its estimate until another event corrects it.
    Asked,
    /// The stream of the open request says that it takes more than its estimate.
    Counted,
    /// The open request has ended without a whole answer.
    Unanswered,
    /// The model answered.
    Reply,
    /// A tool call is about to be carried out.
    CallStarted,
    /// A tool call has ended.
    CallEnded,
    /// A tool call was not carried out.
    CallRefused,
    /// A call waits for a person.
    AskOpened,
    /// A person has decided.
    AskAnswered,
    /// Old tool results no longer go to the model.
    ResultsCleared,
    /// A summary stands for the older part of the conversation.
    Summarised,
    /// Something people should know; the model does not see it.
    Note,
    /// A background agent of the session has started or ended. The model is told of an end in a message of its own.
    Background,
    /// The turn is over.
    TurnEnded,
    /// What no build before this one writes.
    #[serde(other)]
    Other,
}

/// A record, as far as its kind goes: nothing else of it is kept.
#[derive(Deserialize)]
struct Named {
    event: EventKind,
}

impl EventKind {
    /// Of a record that is read whole.
    #[must_use]
    pub fn of(record: &Value) -> Self {
        Self::deserialize(&record["event"]).unwrap_or(Self::Other)
    }

    /// Of a line of a transcript; what is no record is [`EventKind::Other`].
    #[must_use]
    pub fn of_line(line: &[u8]) -> Self {
        serde_json::from_slice(line).map_or(Self::Other, |Named { event }| event)
    }
}

impl Event {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Started(_) => EventKind::Started,
            Self::Resumed { .. } => EventKind::Resumed,
            Self::Prompt { .. } => EventKind::Prompt,
            Self::Queued { .. } => EventKind::Queued,
            Self::Asked { .. } => EventKind::Asked,
            Self::Counted { .. } => EventKind::Counted,
            Self::Unanswered { .. } => EventKind::Unanswered,
            Self::Reply { .. } => EventKind::Reply,
            Self::CallStarted { .. } => EventKind::CallStarted,
            Self::CallEnded { .. } => EventKind::CallEnded,
            Self::CallRefused { .. } => EventKind::CallRefused,
            Self::AskOpened(_) => EventKind::AskOpened,
            Self::AskAnswered { .. } => EventKind::AskAnswered,
            Self::ResultsCleared { .. } => EventKind::ResultsCleared,
            Self::Summarised { .. } => EventKind::Summarised,
            Self::Note { .. } => EventKind::Note,
            Self::Background { .. } => EventKind::Background,
            Self::TurnEnded { .. } => EventKind::TurnEnded,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The names are in every transcript on disk: they never change.
    #[test]
    fn every_event_has_its_kind_by_the_name_that_it_is_written_with() {
        let message = json!({"role": "user", "blocks": []});
        let usage = json!(crate::usage::Usage::default());
        let decision = json!({"verdict": "allowed", "why": "w"});
        let all = [
            json!({"event": "started", "version": 1, "session": "s", "cwd": "/", "provider": "p", "model": "m"}),
            json!({"event": "resumed", "provider": "p", "model": "m", "cwd": "/"}),
            json!({"event": "prompt", "message": message, "author": "user"}),
            json!({"event": "queued", "number": 1, "text": "t"}),
            json!({"event": "asked", "estimate": usage}),
            json!({"event": "counted", "usage": usage}),
            json!({"event": "unanswered", "usage": usage}),
            json!({"event": "reply", "message": message, "usage": usage, "stop": "end_turn", "model": "m", "ms": 1}),
            json!({"event": "call_started", "id": "c", "name": "n", "input": {}, "decision": decision}),
            json!({"event": "call_ended", "id": "c", "content": [], "is_error": false, "summary": "s", "ms": 1}),
            json!({"event": "call_refused", "id": "c", "name": "n", "input": {}, "decision": decision, "message": "m"}),
            json!({"event": "ask_opened", "id": "a", "name": "n", "input": {}, "why": "w", "suggestions": []}),
            json!({"event": "ask_answered", "id": "a", "answer": "once"}),
            json!({"event": "results_cleared", "ids": []}),
            json!({"event": "summarised", "summary": "s", "keep_tail": 1, "usage": usage}),
            json!({"event": "note", "text": "t"}),
            json!({"event": "background", "id": 1, "status": "running", "text": "t"}),
            json!({"event": "turn_ended", "outcome": {"kind": "done"}, "usage": usage, "turns": 1}),
        ];
        let mut kinds = Vec::new();
        for record in &all {
            let event: Event = serde_json::from_value(record.clone()).expect("an event");
            let kind = event.kind();
            assert_eq!((json!(kind), EventKind::of(record)), (record["event"].clone(), kind), "{record}");
            assert_eq!(serde_json::to_value(&event).expect("JSON")["event"], record["event"]);
            assert_eq!(EventKind::of_line(record.to_string().as_bytes()), kind);
            assert!(!kinds.contains(&kind), "{kind:?}");
            kinds.push(kind);
        }
        assert_eq!(kinds.len(), EventKind::Other as usize, "every kind but the last");
        for unknown in [json!({"event": "of_tomorrow"}), json!({"event": 7}), json!({}), json!(null)] {
            assert_eq!(EventKind::of(&unknown), EventKind::Other, "{unknown}");
            assert_eq!(EventKind::of_line(unknown.to_string().as_bytes()), EventKind::Other);
        }
        assert_eq!(EventKind::of_line(b"no JSON"), EventKind::Other);
    }
}
