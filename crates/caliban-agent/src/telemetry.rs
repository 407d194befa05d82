//! A conversation as spans, by OpenTelemetry's conventions for generative AI: a turn is `invoke_agent`, a model request
//! `chat`, a tool call `execute_tool`, and the wait for a person's answer `approve`.
//!
//! A fold over the records of a transcript, like everything that is known of a conversation. Ids are derived from the
//! session's id and the records' numbers, so that a resumed turn stays one span and a trace can be found from a session.
//! What was said, and what tools were called with, is in no span.

use std::collections::BTreeMap;

use caliban_core::usage::Usage;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::event::{Event, Header, Outcome, Record};

/// Takes each record of one conversation, in order; the flag says whether it is new or was on the disk before.
pub type Observer = Box<dyn FnMut(&Record, bool) + Send>;

/// Makes an observer for each conversation.
pub type Observers = std::sync::Arc<dyn Fn() -> Observer + Send + Sync>;

/// A piece of work that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The trace, in hex: that of the session, or of the session that started it.
    pub trace: String,
    /// The span, in hex.
    pub id: String,
    /// The span that it is part of.
    pub parent: Option<String>,
    /// What it is called.
    pub name: String,
    /// Whether it is a request to another service.
    pub is_client: bool,
    /// When it began.
    pub start: Timestamp,
    /// When it ended.
    pub end: Timestamp,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// What went wrong.
    pub error: Option<String>,
}

/// The fold.
#[derive(Debug, Default)]
pub struct Spans {
    session: String,
    trace: String,
    agent: Vec<(&'static str, Value)>,
    provider: String,
    turn: Option<SpanStart>,
    request: Option<RequestSpan>,
    /// Calls that run, by their ids, with the tool.
    calls: BTreeMap<String, (SpanStart, String)>,
    /// Questions that are open, by their ids, with the tool.
    asks: BTreeMap<String, (SpanStart, String)>,
}

#[derive(Debug, Clone, Copy)]
struct SpanStart {
    at: Timestamp,
    seq: u64,
}

#[derive(Debug)]
struct RequestSpan {
    begun: SpanStart,
    model: String,
    usage: Usage,
}

impl Spans {
    /// Takes the next record; the spans that end with it.
    pub fn take(&mut self, record: &Record) -> Vec<Span> {
        let now = SpanStart { at: record.at, seq: record.seq };
        match &record.event {
            Event::Started(header) => self.begin(header),
            Event::Resumed { provider, .. } => self.provider.clone_from(provider),
            Event::Prompt { .. } => {
                self.turn.get_or_insert(now);
            }
            Event::Asked { estimate, model } => {
                let model = model.clone().unwrap_or_default();
                self.request = Some(RequestSpan { begun: now, model, usage: *estimate });
            }
            Event::Counted { usage } => {
                if let Some(request) = &mut self.request {
                    request.usage = *usage;
                }
            }
            Event::Reply { usage, stop, model, ms, .. } => {
                let ms = i64::try_from(*ms).unwrap_or(i64::MAX);
                let start = record.at.saturating_sub(SignedDuration::from_millis(ms)).unwrap_or(record.at);
                let request = self.request.take();
                let asked = request.map_or_else(|| model.clone(), |request| request.model);
                let asked = if asked.is_empty() { model.clone() } else { asked };
                let mut span = self.chat(start, now, &asked, usage);
                span.attributes.push(("gen_ai.response.model", json!(model)));
                span.attributes.push(("gen_ai.response.finish_reasons", json!([stop])));
                return vec![span];
            }
            Event::Summarised { usage, .. } => {
                return self
                    .request
                    .take()
                    .map(|request| self.chat(request.begun.at, now, &request.model, usage))
                    .into_iter()
                    .collect();
            }
            Event::Unanswered { usage } => {
                return self.unanswered(now, *usage, "the request had no whole answer").into_iter().collect();
            }
            Event::CallStarted { id, name, .. } => {
                self.calls.insert(id.clone(), (now, name.clone()));
            }
            Event::CallEnded { id, is_error, exit_code, .. } => {
                let Some((begun, name)) = self.calls.remove(id) else { return Vec::new() };
                let mut span = self.tool(begun, now, id, &name);
                if let Some(code) = exit_code {
                    span.attributes.push(("process.exit.code", json!(code)));
                }
                if *is_error {
                    span = failed(span, "tool_error", "the tool failed");
                }
                return vec![span];
            }
            Event::CallRefused { id, name, .. } => {
                let span = self.tool(now, now, id, name);
                return vec![failed(span, "refused", "the call was not allowed")];
            }
            Event::AskOpened(ask) => {
                self.asks.insert(ask.id.clone(), (now, ask.name.clone()));
            }
            Event::AskAnswered { id, given } => {
                let Some((begun, name)) = self.asks.remove(id) else { return Vec::new() };
                let mut span = self.span("approve", &name, begun.at, now);
                span.attributes.push(("gen_ai.tool.name", json!(name)));
                span.attributes.push(("caliban.answer", json!(given.answer)));
                return vec![span];
            }
            Event::TurnEnded { outcome, usage, micro_usd, turns } => {
                return self.end(now, outcome, usage, *micro_usd, *turns);
            }
            Event::Queued { .. }
            | Event::ResultsCleared { .. }
            | Event::Note { .. }
            | Event::Background { .. } => {}
        }
        Vec::new()
    }

    fn begin(&mut self, header: &Header) {
        self.session.clone_from(&header.session);
        self.provider.clone_from(&header.provider);
        let first = header.parent.as_ref().unwrap_or(&header.session);
        self.trace = hex(&format!("trace {first}"), 16);
        self.agent = vec![
            ("gen_ai.agent.id", json!(header.session)),
            ("gen_ai.conversation.id", json!(header.session)),
        ];
        if let Some(label) = &header.label {
            self.agent.push(("gen_ai.agent.name", json!(label)));
        }
        if let Some(parent) = &header.parent {
            self.agent.push(("caliban.parent.session", json!(parent)));
        }
    }

    fn chat(&self, start: Timestamp, now: SpanStart, model: &str, usage: &Usage) -> Span {
        let mut span = self.span("chat", model, start, now);
        span.is_client = true;
        // The convention's input tokens are all of them; ours are those that no cache had.
        let input = usage.prompt();
        span.attributes.extend([
            ("gen_ai.provider.name", json!(self.provider)),
            ("gen_ai.request.model", json!(model)),
            ("gen_ai.usage.input_tokens", json!(input)),
            ("gen_ai.usage.output_tokens", json!(usage.output)),
            ("gen_ai.usage.cache_read.input_tokens", json!(usage.cache_read)),
            ("gen_ai.usage.cache_creation.input_tokens", json!(usage.cache_write)),
        ]);
        span
    }

    fn unanswered(&mut self, now: SpanStart, usage: Usage, why: &str) -> Option<Span> {
        let request = self.request.take()?;
        let span = self.chat(request.begun.at, now, &request.model, &usage);
        Some(failed(span, "unanswered", why))
    }

    fn tool(&self, begun: SpanStart, now: SpanStart, id: &str, name: &str) -> Span {
        let mut span = self.span("execute_tool", name, begun.at, now);
        span.attributes.extend([
            ("gen_ai.tool.name", json!(name)),
            ("gen_ai.tool.call.id", json!(id)),
            ("gen_ai.tool.type", json!("function")),
        ]);
        span
    }

    /// The turn is over, and everything in it that has no end of its own.
    fn end(
        &mut self,
        now: SpanStart,
        outcome: &Outcome,
        usage: &Usage,
        micro_usd: Option<u64>,
        turns: u32,
    ) -> Vec<Span> {
        let open = self.request.as_ref().map(|request| request.usage);
        let mut spans: Vec<Span> =
            open.and_then(|usage| self.unanswered(now, usage, "the turn ended first")).into_iter().collect();
        for (id, (begun, name)) in std::mem::take(&mut self.calls) {
            spans.push(failed(self.tool(begun, now, &id, &name), "interrupted", "the turn ended first"));
        }
        self.asks.clear();
        let Some(turn) = self.turn else { return spans };
        let name = self.agent.iter().find(|(key, _)| *key == "gen_ai.agent.name");
        let name = name.and_then(|(_, name)| name.as_str()).unwrap_or("caliban").to_owned();
        let mut span = self.span("invoke_agent", &name, turn.at, now);
        (span.id, span.parent) = (self.turn_id(turn), None);
        span.attributes.extend(self.agent.iter().cloned());
        span.attributes.extend([
            ("gen_ai.provider.name", json!(self.provider)),
            ("caliban.turn.requests", json!(turns)),
            ("caliban.session.tokens", json!(usage.total())),
        ]);
        if let Some(cost) = micro_usd {
            span.attributes.push(("caliban.session.micro_usd", json!(cost)));
        }
        span = match outcome {
            Outcome::Done => span,
            Outcome::Failed { error, .. } => failed(span, "failed", error),
            Outcome::TurnLimit { .. } => failed(span, "turn_limit", "the turn limit is reached"),
            Outcome::Budget { limit } => failed(span, "budget", limit),
            Outcome::Cancelled => failed(span, "cancelled", "somebody stopped it"),
        };
        self.turn = None;
        spans.push(span);
        spans
    }

    fn span(&self, operation: &'static str, object: &str, start: Timestamp, now: SpanStart) -> Span {
        Span {
            trace: self.trace.clone(),
            id: hex(&format!("{} {operation} {}", self.session, now.seq), 8),
            parent: self.turn.map(|turn| self.turn_id(turn)),
            name: format!("{operation} {object}").trim_end().to_owned(),
            is_client: false,
            start: start.min(now.at),
            end: now.at,
            attributes: vec![("gen_ai.operation.name", json!(operation))],
            error: None,
        }
    }

    fn turn_id(&self, turn: SpanStart) -> String {
        hex(&format!("{} turn {}", self.session, turn.seq), 8)
    }
}

fn failed(mut span: Span, kind: &str, why: &str) -> Span {
    span.attributes.push(("error.type", json!(kind)));
    span.error = Some(why.to_owned());
    span
}

/// The first bytes of a hash, in hex.
fn hex(text: &str, bytes: usize) -> String {
    caliban_core::hex::encode(&Sha256::digest(text.as_bytes())[..bytes])
}

#[cfg(test)]
mod tests {
    use caliban_core::message::{Message, StopReason};

    use super::*;
    use crate::event::{Author, Decision};

    const USAGE: Usage = Usage { input: 10, output: 2, cache_read: 30, cache_write: 5 };

    fn records() -> Vec<Record> {
        let decision = Decision {
            verdict: crate::event::CallVerdict::Allowed,
            rule: None,
            why: "runs `secret words`".to_owned(),
            fence: Default::default(),
        };
        let prompt = || Event::Prompt {
            message: Message::user("secret words"),
            author: Author::User,
            context: 0,
            queued: None,
        };
        let asked = || Event::Asked { estimate: USAGE, model: Some("m-1".to_owned()) };
        let events = vec![
            Event::Started(Header {
                version: 1,
                session: "s1".to_owned(),
                cwd: "/w".into(),
                provider: "anthropic".to_owned(),
                model: "m-1".to_owned(),
                label: Some("auth".to_owned()),
                parent: None,
            }),
            prompt(),
            asked(),
            Event::Reply {
                message: Message::user("secret words"),
                usage: USAGE,
                stop: StopReason::ToolUse,
                model: "m-1-2026".to_owned(),
                ms: 1_000,
            },
            Event::CallStarted {
                id: "c1".to_owned(),
                name: "Bash".to_owned(),
                input: json!({"command": "secret words"}),
                decision: decision.clone(),
            },
            Event::CallEnded {
                id: "c1".to_owned(),
                content: Vec::new(),
                is_error: true,
                summary: "secret words".to_owned(),
                exit_code: Some(3),
                whole: None,
                ms: 5,
            },
            Event::CallRefused {
                id: "c2".to_owned(),
                name: "Write".to_owned(),
                input: json!({}),
                decision,
                message: "secret words".to_owned(),
                suggestions: Vec::new(),
            },
            asked(),
            Event::TurnEnded { outcome: Outcome::Cancelled, usage: USAGE, micro_usd: Some(7), turns: 2 },
        ];
        let start = Timestamp::from_second(1_000).unwrap();
        let record = |(seq, event): (usize, Event)| Record {
            seq: seq.try_into().unwrap(),
            at: start + SignedDuration::from_secs(seq.try_into().unwrap()),
            worked_ms: None,
            stands_in: None,
            event,
        };
        events.into_iter().enumerate().map(record).collect()
    }

    #[test]
    fn a_turn_is_a_span_with_its_requests_and_calls_below_it() {
        let mut fold = Spans::default();
        let spans: Vec<Span> = records().iter().flat_map(|record| fold.take(record)).collect();
        let shown: Vec<(&str, i64, i64, Option<&str>)> = spans
            .iter()
            .map(|span| {
                let second = |at: Timestamp| at.as_second() - 1_000;
                (span.name.as_str(), second(span.start), second(span.end), span.error.as_deref())
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("chat m-1", 2, 3, None),
                ("execute_tool Bash", 4, 5, Some("the tool failed")),
                ("execute_tool Write", 6, 6, Some("the call was not allowed")),
                ("chat m-1", 7, 8, Some("the turn ended first")),
                ("invoke_agent auth", 1, 8, Some("somebody stopped it")),
            ]
        );
        let (turn, parts) = spans.split_last().unwrap();
        assert!(parts.iter().all(|part| part.parent.as_ref() == Some(&turn.id) && part.trace == turn.trace));
        assert!(turn.parent.is_none() && turn.trace.len() == 32 && turn.id.len() == 16);
        let has = |span: &Span, key: &str, value: Value| {
            span.attributes.iter().any(|(name, found)| *name == key && *found == value)
        };
        assert!(has(&spans[0], "gen_ai.usage.input_tokens", json!(45)));
        assert!(has(&spans[0], "gen_ai.response.model", json!("m-1-2026")));
        assert!(has(&spans[1], "process.exit.code", json!(3)));
        assert!(has(turn, "caliban.session.micro_usd", json!(7)));
    }

    #[test]
    fn a12_a_span_has_nothing_of_what_was_said_or_called() {
        let mut fold = Spans::default();
        let spans: Vec<Span> = records().iter().flat_map(|record| fold.take(record)).collect();
        assert!(!spans.is_empty() && !format!("{spans:?}").contains("secret words"), "{spans:?}");
    }
}
