//! The script format: what a scripted model answers, as a JSON document.
//!
//! Owns the types, the parsing and the one decision ("which step answers this request?"). It is used
//! by the `scripted` provider and by the test kit's HTTP model server, so it knows neither streams
//! nor sockets; it refuses unknown fields.
//!
//! ```json
//! {"steps": [
//!   {"when": {"first_prompt_contains": "review"}, "text": "Looks good."},
//!   {"tool_calls": [{"name": "Bash", "input": {"command": "ls"}}]},
//!   {"text": "Done.", "chunks": 3, "fault": {"kind": "status", "status": 429, "retry_after": "1"}}
//! ]}
//! ```
//!
//! How a step is chosen: the first step whose `when` holds (all its fields) and that this conversation
//! has not used yet; else the first unused step without `when`. `repeat: true` makes a step never used
//! up. A conversation is its system prompt and its first user text. A step with a `fault` fails the
//! first `times` requests that reach it (1 unless said) and then answers; a failed request does not
//! use the step up.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
};

use caliban_core::{
    message::{Block, Message, ResultPart, Role, StopReason},
    usage::Usage,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ModelRequest;

/// How many characters one token is taken for where a script gives no usage.
pub const CHARS_PER_TOKEN: u64 = 4;
/// How much of a prompt an error message quotes.
const QUOTED_CHARS: usize = 60;

/// A scripted model: its answers in order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The answers.
    pub steps: Vec<ScriptStep>,
}

/// One answer of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptStep {
    /// Which requests this step answers; without it: the next one in order.
    pub when: Option<StepCondition>,
    /// Whether the step can answer again and again.
    pub repeat: bool,
    /// Reasoning, before the text.
    pub thinking: Option<String>,
    /// The text.
    pub text: Option<String>,
    /// Tool calls, after the text.
    pub tool_calls: Vec<ToolCall>,
    /// What the answer costs; a quarter of the characters when not said.
    pub usage: Option<StepUsage>,
    /// Why the model stops; `tool_use` with tool calls and `end_turn` without them when not said.
    pub stop: Option<ScriptStop>,
    /// Milliseconds before anything is answered.
    pub delay_ms: Option<u64>,
    /// Milliseconds before each piece of the text.
    pub chunk_delay_ms: Option<u64>,
    /// In how many pieces the text is sent; 1 when not said.
    pub chunks: Option<usize>,
    /// What goes wrong first.
    pub fault: Option<Fault>,
}

/// Which requests a step answers. Every field that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepCondition {
    /// Part of the last user message: its text or its tool results.
    pub contains: Option<String>,
    /// Part of the last user message's tool results.
    pub tool_result_contains: Option<String>,
    /// Part of the conversation's first user text.
    pub first_prompt_contains: Option<String>,
    /// Part of the system prompt.
    pub system_contains: Option<String>,
    /// The model's name, whole.
    pub model: Option<String>,
    /// The number of assistant messages so far.
    pub turn: Option<usize>,
}

/// One tool call of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments.
    #[serde(default)]
    pub input: Value,
    /// The call's id; `call_<turn>_<number>` when not said.
    #[serde(default)]
    pub id: Option<String>,
    /// The arguments as text instead, for JSON that is not well-formed.
    #[serde(default)]
    pub raw_input: Option<String>,
}

/// Tokens of a step; the four counts are disjoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StepUsage {
    /// Fresh input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
}

/// Why the model stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptStop {
    /// It has said everything.
    EndTurn,
    /// It waits for tool results.
    ToolUse,
    /// The output limit.
    MaxTokens,
    /// It declines.
    Refusal,
    /// Anything else, in the provider's own word.
    #[serde(untagged)]
    Other(String),
}

/// What goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// How it fails.
    pub kind: FaultKind,
    /// The HTTP status of `status`.
    #[serde(default)]
    pub status: Option<u16>,
    /// The `Retry-After` header of `status`, as it is to be sent.
    #[serde(default)]
    pub retry_after: Option<String>,
    /// The body of `status`, or the message of `error_event`; the protocol's usual one when not said.
    #[serde(default)]
    pub body: Option<String>,
    /// How many pieces of the text are sent before `cut`, `stall` or `error_event`.
    #[serde(default)]
    pub after_chunks: usize,
    /// How many requests fail before the step answers.
    #[serde(default = "once")]
    pub times: u32,
}

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// The stream ends without its closing event.
    Cut,
    /// The stream stays open and says nothing more.
    Stall,
    /// An HTTP error.
    Status,
    /// An error event inside a stream that began with 200.
    ErrorEvent,
    /// The connection is closed before any answer.
    Refuse,
}

/// What the choice of a step depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptView {
    /// The model asked for.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// The text of the first user message.
    pub first_prompt: String,
    /// The text blocks of the last user message.
    pub last_text: String,
    /// The text of the tool results in the last user message.
    pub last_tool_results: String,
    /// How many assistant messages there are.
    pub turn: usize,
    /// The size of the whole prompt in characters, for the usage estimate.
    pub prompt_chars: u64,
}

/// What has been used so far. One for all conversations of a script.
#[derive(Debug, Clone, Default)]
pub struct ScriptState {
    used: BTreeMap<u64, BTreeSet<usize>>,
    failed: BTreeMap<(u64, usize), u32>,
}

/// Why a script cannot be used.
#[expect(missing_docs, reason = "a field is what the message of its variant says")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Not the JSON that a script is.
    #[error("line {line}, column {column}: {reason}")]
    Syntax { line: usize, column: usize, reason: String },
    /// Well-formed, and makes no sense.
    #[error("step {step}: {reason}")]
    Step { step: usize, reason: &'static str },
    /// Nothing answers this request.
    #[error("script has no step left for \"{prompt}\" (turn {turn})")]
    NoStep { prompt: String, turn: usize },
}

impl Script {
    /// Reads a script. Errors carry the line, or the number of the step.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let script: Self = serde_json::from_str(text).map_err(|error| ScriptError::Syntax {
            line: error.line(),
            column: error.column(),
            reason: without_position(&error.to_string()),
        })?;
        for (index, step) in script.steps.iter().enumerate() {
            if let Err(reason) = step.check() {
                return Err(ScriptError::Step { step: index + 1, reason });
            }
        }
        Ok(script)
    }

    /// Chooses the step that answers a request, and notes in `state` that it was used. The returned
    /// step's `fault` is there only if this request is to fail.
    pub fn next(&self, state: &mut ScriptState, view: &ScriptView) -> Result<ScriptStep, ScriptError> {
        let conversation = view.conversation();
        let used = state.used.entry(conversation).or_default();
        let open = |index: usize, step: &ScriptStep| step.repeat || !used.contains(&index);
        let mut steps = self.steps.iter().enumerate();
        let matched = steps.find(|(index, step)| {
            open(*index, step) && step.when.as_ref().is_some_and(|when| when.holds(view))
        });
        let in_order =
            || self.steps.iter().enumerate().find(|(index, step)| step.when.is_none() && open(*index, step));
        let Some((index, step)) = matched.or_else(in_order) else {
            return Err(ScriptError::NoStep { prompt: view.quoted_prompt(), turn: view.turn });
        };
        if let Some(fault) = &step.fault {
            let failed = state.failed.entry((conversation, index)).or_default();
            if *failed < fault.times {
                *failed += 1;
                return Ok(step.clone());
            }
        }
        if !step.repeat {
            used.insert(index);
        }
        Ok(ScriptStep { fault: None, ..step.clone() })
    }
}

impl ScriptStep {
    /// A step that says something.
    pub fn say(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A step that calls one tool.
    pub fn call(name: impl Into<String>, input: Value) -> Self {
        Self {
            tool_calls: vec![ToolCall { name: name.into(), input, ..ToolCall::default() }],
            ..Self::default()
        }
    }

    /// The text in the pieces in which it is sent; together they are the text.
    pub fn pieces(&self) -> Vec<String> {
        let Some(text) = self.text.as_deref().filter(|text| !text.is_empty()) else { return Vec::new() };
        let chars: Vec<char> = text.chars().collect();
        let count = self.chunks.unwrap_or(1).clamp(1, chars.len());
        (0..count)
            .map(|n| chars[n * chars.len() / count..(n + 1) * chars.len() / count].iter().collect())
            .collect()
    }

    /// The tool calls as id, name and arguments in JSON text, just as a model would send them.
    pub fn calls(&self, turn: usize) -> Vec<(String, String, String)> {
        self.tool_calls
            .iter()
            .enumerate()
            .map(|(n, call)| {
                let id = call.id.clone().unwrap_or_else(|| format!("call_{turn}_{n}"));
                let arguments = match (&call.raw_input, &call.input) {
                    (Some(raw), _) => raw.clone(),
                    (None, Value::Null) => "{}".to_owned(),
                    (None, input) => input.to_string(),
                };
                (id, call.name.clone(), arguments)
            })
            .collect()
    }

    /// What the answer costs: as the script says, else a quarter of the characters.
    pub fn usage(&self, view: &ScriptView) -> Usage {
        match self.usage {
            Some(StepUsage { input, output, cache_read, cache_write }) => {
                Usage { input, output, cache_read, cache_write }
            }
            None => {
                let said =
                    [&self.text, &self.thinking].into_iter().flatten().map(|text| text.chars().count());
                let called =
                    self.calls(view.turn).into_iter().map(|(_, name, input)| name.len() + input.len());
                let chars = said.chain(called).sum::<usize>() as u64;
                Usage {
                    input: view.prompt_chars.div_ceil(CHARS_PER_TOKEN),
                    output: chars.div_ceil(CHARS_PER_TOKEN),
                    ..Usage::default()
                }
            }
        }
    }

    /// Why the model stops.
    pub fn stop_reason(&self) -> StopReason {
        match &self.stop {
            Some(ScriptStop::Other(word)) => StopReason::Other(word.clone()),
            Some(ScriptStop::EndTurn) => StopReason::EndTurn,
            Some(ScriptStop::ToolUse) => StopReason::ToolUse,
            Some(ScriptStop::MaxTokens) => StopReason::MaxTokens,
            Some(ScriptStop::Refusal) => StopReason::Refusal("refusal".to_owned()),
            None if self.tool_calls.is_empty() => StopReason::EndTurn,
            None => StopReason::ToolUse,
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let says_nothing = self.text.is_none() && self.thinking.is_none() && self.tool_calls.is_empty();
        if says_nothing && self.fault.is_none() {
            return Err("it has neither text, thinking, tool_calls nor fault");
        }
        if self.chunks == Some(0) {
            return Err("chunks must be at least 1");
        }
        if self.tool_calls.iter().any(|call| call.raw_input.is_some() && !call.input.is_null()) {
            return Err("a tool call has either input or raw_input");
        }
        if let Some(fault) = &self.fault {
            match (fault.kind, fault.status) {
                (FaultKind::Status, None) => return Err("a fault of kind status needs its status"),
                (FaultKind::Status, Some(400..=599)) => {}
                (FaultKind::Status, Some(_)) => return Err("a fault's status is from 400 to 599"),
                (_, Some(_)) => return Err("only a fault of kind status has a status"),
                (_, None) => {}
            }
        }
        Ok(())
    }
}

impl Fault {
    /// A fault of this kind that happens once.
    pub fn once(kind: FaultKind) -> Self {
        Self { kind, status: None, retry_after: None, body: None, after_chunks: 0, times: 1 }
    }
}

impl StepCondition {
    /// Whether every field that is given holds.
    pub fn holds(&self, view: &ScriptView) -> bool {
        let part = |wanted: &Option<String>, texts: &[&str]| {
            wanted.as_deref().is_none_or(|wanted| texts.iter().any(|text| text.contains(wanted)))
        };
        part(&self.contains, &[&view.last_text, &view.last_tool_results])
            && part(&self.tool_result_contains, &[&view.last_tool_results])
            && part(&self.first_prompt_contains, &[&view.first_prompt])
            && part(&self.system_contains, &[&view.system])
            && self.model.as_deref().is_none_or(|model| model == view.model)
            && self.turn.is_none_or(|turn| turn == view.turn)
    }
}

impl ScriptView {
    /// What a request shows of itself.
    pub fn of(request: &ModelRequest<'_>) -> Self {
        Self::new(request.model, request.system, request.messages)
    }

    /// The same from its parts, for a server that has parsed them out of a request body.
    pub fn new(model: &str, system: &str, messages: &[Message]) -> Self {
        let first = messages.iter().find(|message| message.role == Role::User);
        let last = messages.iter().rev().find(|message| message.role == Role::User);
        Self {
            model: model.to_owned(),
            system: system.to_owned(),
            first_prompt: first.map(Message::text).unwrap_or_default(),
            last_text: last.map(Message::text).unwrap_or_default(),
            last_tool_results: last.map(tool_results).unwrap_or_default(),
            turn: messages.iter().filter(|message| message.role == Role::Assistant).count(),
            prompt_chars: (system.chars().count() + messages.iter().map(chars).sum::<usize>()) as u64,
        }
    }

    fn conversation(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.system, &self.first_prompt).hash(&mut hasher);
        hasher.finish()
    }

    fn quoted_prompt(&self) -> String {
        let text = if self.last_text.is_empty() { &self.last_tool_results } else { &self.last_text };
        let line = text.lines().next().unwrap_or_default();
        let mut quoted: String = line.chars().filter(|c| !c.is_control()).take(QUOTED_CHARS).collect();
        if quoted.len() < text.len() {
            quoted.push('…');
        }
        quoted
    }
}

fn tool_results(message: &Message) -> String {
    let texts = message.blocks.iter().filter_map(|block| match block {
        Block::ToolResult { content, .. } => Some(result_text(content)),
        Block::Text { .. } | Block::Thinking { .. } | Block::ToolUse { .. } | Block::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

fn result_text(content: &[ResultPart]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        ResultPart::Text { text } => Some(text.as_str()),
        ResultPart::Image { .. } => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn chars(message: &Message) -> usize {
    let count = |block: &Block| match block {
        Block::Text { text } | Block::Thinking { text, .. } => text.chars().count(),
        Block::ToolUse { name, input, .. } => name.len() + input.to_string().len(),
        Block::ToolResult { content, .. } => result_text(content).chars().count(),
        Block::Image { data, .. } => data.len(),
    };
    message.blocks.iter().map(count).sum()
}

/// serde_json puts the position at the end of its messages; ours says it at the beginning.
fn without_position(message: &str) -> String {
    match message.rfind(" at line ") {
        Some(at) => message[..at].to_owned(),
        None => message.to_owned(),
    }
}

fn once() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(system: &str, first: &str, last: &str, turn: usize) -> ScriptView {
        ScriptView {
            model: "m".into(),
            system: system.into(),
            first_prompt: first.into(),
            last_text: last.into(),
            turn,
            ..ScriptView::default()
        }
    }

    fn texts(
        script: &Script,
        state: &mut ScriptState,
        views: &[ScriptView],
    ) -> Vec<Result<Option<String>, ScriptError>> {
        views.iter().map(|view| script.next(state, view).map(|step| step.text)).collect()
    }

    #[test]
    fn steps_without_a_matcher_are_taken_in_order_by_each_conversation() {
        let script = Script { steps: vec![ScriptStep::say("one"), ScriptStep::say("two")] };
        let (a, b) = (view("", "a", "a", 0), view("", "b", "b", 0));
        let got = texts(&script, &mut ScriptState::default(), &[a.clone(), b.clone(), a.clone(), b, a]);
        let none = ScriptError::NoStep { prompt: "a".into(), turn: 0 };
        let say = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(got, [say("one"), say("one"), say("two"), say("two"), Err(none)]);
    }

    #[test]
    fn a_matching_step_goes_first_and_is_used_up_unless_it_repeats() {
        let when =
            |text: &str| Some(StepCondition { contains: Some(text.into()), ..StepCondition::default() });
        let script = Script {
            steps: vec![
                ScriptStep::say("plain"),
                ScriptStep { when: when("x"), ..ScriptStep::say("once") },
                ScriptStep { when: when("y"), repeat: true, ..ScriptStep::say("always") },
            ],
        };
        let views = ["x", "x", "y", "y"].map(|last| view("", "a", last, 0));
        let got = texts(&script, &mut ScriptState::default(), &views);
        let say = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(got, [say("once"), say("plain"), say("always"), say("always")]);
    }

    #[test]
    fn a_fault_happens_as_often_as_it_says_and_does_not_use_the_step_up() {
        let fault = Fault { times: 2, ..Fault::once(FaultKind::Cut) };
        let script =
            Script { steps: vec![ScriptStep { fault: Some(fault.clone()), ..ScriptStep::say("ok") }] };
        let mut state = ScriptState::default();
        let v = view("", "a", "a", 0);
        let got: Vec<_> = (0..3).map(|_| script.next(&mut state, &v).map(|step| step.fault)).collect();
        assert_eq!(got, [Ok(Some(fault.clone())), Ok(Some(fault)), Ok(None)]);
        assert!(script.next(&mut state, &v).is_err());
    }

    #[test]
    fn every_field_of_a_matcher_must_hold() {
        let v = ScriptView {
            model: "m".into(),
            system: "you are".into(),
            first_prompt: "first".into(),
            last_text: "last".into(),
            last_tool_results: "result".into(),
            turn: 2,
            prompt_chars: 0,
        };
        let all = json!({"contains": "esul", "tool_result_contains": "result", "first_prompt_contains": "irs",
            "system_contains": "are", "model": "m", "turn": 2});
        let wrong = json!({"contains": "first", "tool_result_contains": "last", "first_prompt_contains": "last",
            "system_contains": "x", "model": "mm", "turn": 1});
        let when: StepCondition = serde_json::from_value(all.clone()).unwrap();
        assert!(when.holds(&v));
        for (key, value) in wrong.as_object().unwrap() {
            let mut one_wrong = all.clone();
            one_wrong[key] = value.clone();
            let when: StepCondition = serde_json::from_value(one_wrong).unwrap();
            assert!(!when.holds(&v), "{key}");
        }
    }

    #[test]
    fn errors_say_where() {
        let errors = [
            "{\"steps\": [\n  {\"txt\": \"hi\"}\n]}",
            "{\"steps\": [{\"text\": \"hi\"}, {}]}",
            "{\"steps\": [{\"fault\": {\"kind\": \"status\"}}]}",
            "{\"steps\": [{\"text\": \"\", \"chunks\": 0}]}",
        ]
        .map(|text| Script::parse(text).unwrap_err().to_string());
        assert_eq!(
            errors,
            [
                "line 2, column 8: unknown field `txt`, expected one of `when`, `repeat`, `thinking`, `text`, \
                 `tool_calls`, `usage`, `stop`, `delay_ms`, `chunk_delay_ms`, `chunks`, `fault`",
                "step 2: it has neither text, thinking, tool_calls nor fault",
                "step 1: a fault of kind status needs its status",
                "step 1: chunks must be at least 1",
            ]
        );
    }

    #[test]
    fn pieces_are_the_text() {
        let step = ScriptStep { chunks: Some(4), ..ScriptStep::say("aäöüßz") };
        assert_eq!(step.pieces(), ["a", "äö", "ü", "ßz"]);
        assert_eq!(ScriptStep { chunks: Some(9), ..ScriptStep::say("ab") }.pieces(), ["a", "b"]);
        assert_eq!(ScriptStep::say("").pieces(), Vec::<String>::new());
    }

    #[test]
    fn calls_have_ids_and_arguments_as_sent() {
        let step = ScriptStep {
            tool_calls: vec![
                ToolCall { name: "A".into(), ..ToolCall::default() },
                ToolCall { name: "B".into(), input: json!({"x": 1}), id: Some("i".into()), raw_input: None },
                ToolCall { name: "C".into(), raw_input: Some("{oops".into()), ..ToolCall::default() },
            ],
            ..ScriptStep::default()
        };
        let owned = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(
            step.calls(3),
            [owned("call_3_0", "A", "{}"), owned("i", "B", "{\"x\":1}"), owned("call_3_2", "C", "{oops")]
        );
    }

    #[test]
    fn a_script_survives_being_written_and_read() {
        let text = r#"{"steps":[{"when":{"turn":1},"repeat":true,"thinking":"t","text":"x",
            "tool_calls":[{"name":"A","input":{"b":1,"a":2},"id":"i"}],"usage":{"input":1,"output":2,"cache_read":3,
            "cache_write":4},"stop":"max_tokens","delay_ms":5,"chunk_delay_ms":6,"chunks":7,
            "fault":{"kind":"status","status":429,"retry_after":"1","body":"b","after_chunks":1,"times":2}}]}"#;
        let script = Script::parse(text).unwrap();
        let again = Script::parse(&serde_json::to_string(&script).unwrap()).unwrap();
        assert_eq!(script, again);
    }
}
