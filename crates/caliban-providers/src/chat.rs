//! OpenAI Chat Completions, and everything that speaks the same: Ollama, llama.cpp, vLLM, LM Studio,
//! OpenRouter and others. Where they differ, what the simplest of them understands is sent.

use caliban_core::{
    message::{Block, Message, ResultPart, Role, StopReason, ToolSpec},
    models::{self, Thinking},
    sse,
    usage::Usage,
};
use serde_json::{Map, Value, json};

use crate::{
    Calls, Delta, ModelReply, ModelRequest,
    error::AttemptFailure,
    kind::ProviderKind,
    responses::{USUAL_EFFORT, effort_word},
    wire::{
        Assemble, CallIds, FAILED_MARK, Observe, StreamProgress, arguments, arguments_object, parse, reply,
        usage_of,
    },
};

/// Whose idea of the protocol it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// OpenAI's own servers, which know the newer fields.
    OpenAi,
    /// OpenRouter.
    OpenRouter,
    /// Anybody else; some refuse fields that they do not know.
    Plain,
}

/// The fields in which servers stream reasoning, as text.
const REASONING_FIELDS: [&str; 2] = ["reasoning_content", "reasoning"];

pub(crate) fn body(dialect: Dialect, provider: ProviderKind, request: &ModelRequest<'_>) -> Value {
    let mut body = json!({"model": request.model, "stream": true, "stream_options": {"include_usage": true}});
    if dialect == Dialect::OpenAi && !request.session.is_empty() {
        body["prompt_cache_key"] = json!(request.session);
    }
    if let Some(max_output) = request.max_output {
        let name = if dialect == Dialect::OpenAi { "max_completion_tokens" } else { "max_tokens" };
        body[name] = json!(max_output);
    }
    let family = models::family(request.model);
    let thinks = family.thinking != Thinking::None;
    match (dialect, effort_word(family, request.effort)) {
        // A router passes it on to models that reason only when they are told to.
        (Dialect::OpenRouter, word) if word.is_some() || thinks => {
            body["reasoning"] = json!({"effort": word.unwrap_or(USUAL_EFFORT)});
        }
        (Dialect::OpenAi, Some(word)) if thinks => body["reasoning_effort"] = json!(word),
        (Dialect::Plain, Some(word)) => body["reasoning_effort"] = json!(word),
        _ => {}
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| {
            json!({"type": "function", "function": {"name": tool.name, "description": tool.description,
                "parameters": tool.input_schema}})
        };
        body["tools"] = request.tools.iter().map(tool).collect();
        if request.calls == Calls::Forbidden {
            body["tool_choice"] = json!("none");
        }
    }
    let mut messages = Vec::new();
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    for message in request.messages {
        match message.role {
            Role::User => user(&mut messages, message),
            Role::Assistant => messages.extend(assistant(provider, message)),
        }
    }
    body["messages"] = Value::Array(messages);
    body
}

/// A user message: first the tool results, which must follow their calls at once, then the rest.
/// Pictures in results go along with the rest, since a tool message holds only text.
fn user(messages: &mut Vec<Value>, message: &Message) {
    let mut parts: Vec<Value> = Vec::new();
    for block in &message.blocks {
        match block {
            Block::ToolResult { id, content, is_error } => {
                let mut text = if *is_error { FAILED_MARK.to_owned() } else { String::new() };
                for part in content {
                    match part {
                        ResultPart::Text { text: more } => text.push_str(more),
                        ResultPart::Image { media_type, data } => {
                            parts.push(
                                json!({"type": "text", "text": format!("The picture that {id} returned:")}),
                            );
                            parts.push(image(media_type, data));
                        }
                    }
                }
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
            }
            Block::Text { text } => parts.push(json!({"type": "text", "text": text})),
            Block::Image { media_type, data } => parts.push(image(media_type, data)),
            Block::Thinking { .. } | Block::ToolUse { .. } => {}
        }
    }
    if parts.is_empty() {
        return;
    }
    // Plain text is what every server understands.
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
    let content = match texts {
        Some(texts) => Value::String(texts.join("\n\n")),
        None => Value::Array(parts),
    };
    messages.push(json!({"role": "user", "content": content}));
}

fn assistant(provider: ProviderKind, message: &Message) -> Option<Value> {
    let text = message.text();
    let mut reasoning = Map::new();
    let mut calls: Vec<Value> = Vec::new();
    for block in &message.blocks {
        match block {
            Block::Thinking { provider: made_by, raw: Value::Object(raw), .. }
                if made_by == provider.name() =>
            {
                reasoning.extend(raw.clone());
            }
            Block::ToolUse { id, name, input, .. } => calls.push(json!({"id": id, "type": "function",
                "function": {"name": name, "arguments": arguments_object(input).to_string()}})),
            Block::Text { .. } | Block::Thinking { .. } | Block::ToolResult { .. } | Block::Image { .. } => {}
        }
    }
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let content = if text.is_empty() { Value::Null } else { Value::String(text) };
    let mut message = json!({"role": "assistant", "content": content});
    for (key, value) in reasoning {
        message[key] = value;
    }
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    Some(message)
}

fn image(media_type: &str, data: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
}

/// Puts an answer together.
#[derive(Debug, Default)]
pub(crate) struct ChatAssembler {
    provider: &'static str,
    asked: String,
    ids: CallIds,
    model: Option<String>,
    text: String,
    refusal: String,
    /// The field that reasoning comes in, and what came.
    reasoning: Option<(&'static str, String)>,
    /// OpenRouter's structured reasoning, to be sent back as it came.
    details: Vec<Value>,
    details_size: usize,
    calls: Vec<StreamedCall>,
    usage: Usage,
    finish: Option<String>,
}

#[derive(Debug)]
struct StreamedCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl ChatAssembler {
    pub(crate) fn new(provider: ProviderKind, asked: &str, ids: CallIds) -> Self {
        Self { provider: provider.name(), asked: asked.to_owned(), ids, ..Self::default() }
    }

    fn delta(&mut self, delta: &Value, observe: &mut Observe<'_>) {
        for field in REASONING_FIELDS {
            if let Some(more) = delta[field].as_str().filter(|more| !more.is_empty()) {
                let (known, all) = self.reasoning.get_or_insert((field, String::new()));
                // Some servers send both fields with the same text.
                if *known == field {
                    all.push_str(more);
                    observe(Delta::Thinking(more.to_owned()));
                }
            }
        }
        if let Some(details) = delta["reasoning_details"].as_array() {
            self.details_size += delta["reasoning_details"].to_string().len();
            self.details.extend(details.iter().cloned());
        }
        if let Some(more) = delta["content"].as_str().filter(|more| !more.is_empty()) {
            self.text.push_str(more);
            observe(Delta::Text(more.to_owned()));
        }
        if let Some(more) = delta["refusal"].as_str().filter(|more| !more.is_empty()) {
            self.refusal.push_str(more);
            observe(Delta::Text(more.to_owned()));
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            self.call(call, observe);
        }
    }

    /// A piece of a call. Its index says which one, but some servers leave it out or give all calls
    /// the same; then a new id begins a new call.
    fn call(&mut self, piece: &Value, observe: &mut Observe<'_>) {
        let index = piece["index"].as_u64();
        let id = piece["id"].as_str().filter(|id| !id.is_empty());
        let name = piece["function"]["name"].as_str().unwrap_or_default();
        let known = match index {
            Some(_) => self.calls.iter_mut().rev().find(|call| call.index == index),
            None => self.calls.last_mut(),
        };
        let known = known.filter(|call| match (id, index) {
            (Some(id), _) => call.id == id || name.is_empty(),
            (None, Some(_)) => true,
            (None, None) => name.is_empty(),
        });
        let arguments = match &piece["function"]["arguments"] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            // Not by the protocol, but seen.
            object => object.to_string(),
        };
        match known {
            Some(call) => {
                if call.name != name {
                    call.name.push_str(name);
                }
                call.arguments.push_str(&arguments);
            }
            None => {
                let id = id.map_or_else(|| self.ids.make(), str::to_owned);
                observe(Delta::ToolUse { id: id.clone(), name: name.to_owned() });
                self.calls.push(StreamedCall { index, id, name: name.to_owned(), arguments });
            }
        }
    }
}

impl Assemble for ChatAssembler {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        observe: &mut Observe<'_>,
    ) -> Result<StreamProgress, AttemptFailure> {
        if event.data.trim() == "[DONE]" {
            self.finish.get_or_insert_with(|| "stop".to_owned());
            return Ok(StreamProgress::Closed);
        }
        let value = parse(event)?;
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(AttemptFailure::from_event(&value));
        }
        if let Some(model) = value["model"].as_str() {
            self.model = Some(model.to_owned());
        }
        if value["usage"].is_object() {
            self.usage = usage(&value["usage"]);
            observe(Delta::Usage(self.usage));
        }
        if let Some(choice) = value["choices"].get(0) {
            self.delta(&choice["delta"], observe);
            if let Some(finish) = choice["finish_reason"].as_str() {
                self.finish = Some(finish.to_owned());
            }
        }
        Ok(StreamProgress::More)
    }

    fn size(&self) -> usize {
        let reasoning = self.reasoning.as_ref().map_or(0, |(_, text)| text.len());
        let calls: usize = self.calls.iter().map(|call| 1 + call.arguments.len()).sum();
        self.text.len() + self.refusal.len() + reasoning + self.details_size + calls
    }

    fn finish(self: Box<Self>) -> Result<ModelReply, AttemptFailure> {
        let Some(finish) = self.finish else { return Err(AttemptFailure::Cut) };
        let provider = self.provider.to_owned();
        let mut blocks = Vec::new();
        let shown = self.reasoning.as_ref().map(|(_, text)| text.clone()).unwrap_or_default();
        if !self.details.is_empty() {
            let raw = json!({"reasoning_details": merged(self.details)});
            blocks.push(Block::Thinking { text: shown, provider, raw });
        } else if let Some((field, text)) = self.reasoning {
            blocks.push(Block::Thinking { text: shown, provider, raw: json!({field: text}) });
        }
        for text in [self.text, self.refusal.clone()] {
            if !text.is_empty() {
                blocks.push(Block::Text { text });
            }
        }
        blocks.extend(self.calls.into_iter().map(|call| Block::ToolUse {
            id: call.id,
            name: call.name,
            input: arguments(&call.arguments),
            extra: None,
        }));
        let stop = match finish.as_str() {
            // Some servers use the words of other protocols.
            "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" if self.refusal.is_empty() => {
                StopReason::EndTurn
            }
            "stop" => StopReason::Refusal("refusal".to_owned()),
            "tool_calls" | "function_call" => StopReason::ToolUse,
            "length" | "max_tokens" | "model_length" => StopReason::MaxTokens,
            "content_filter" => StopReason::Refusal("content_filter".to_owned()),
            other => StopReason::Other(other.to_owned()),
        };
        Ok(reply(stop, blocks, self.usage, self.model, self.asked))
    }
}

/// Joins neighbouring pieces of the same detail; a piece with a signature or data ends it.
fn merged(details: Vec<Value>) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::new();
    for piece in details {
        let same = |last: &Value| {
            last["type"] == piece["type"] && last["index"] == piece["index"] && piece["data"].is_null()
        };
        match out.last_mut().filter(|last| same(last)) {
            Some(last) => {
                for key in ["text", "summary"] {
                    if let Some(more) = piece[key].as_str() {
                        last[key] = json!(format!("{}{more}", last[key].as_str().unwrap_or_default()));
                    }
                }
                if !piece["signature"].is_null() {
                    last["signature"] = piece["signature"].clone();
                }
            }
            None => out.push(piece),
        }
    }
    out
}

fn usage(usage: &Value) -> Usage {
    let maybe = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64);
    let number = |pointer: &str| maybe(pointer).unwrap_or_default();
    let cached = maybe("/prompt_tokens_details/cached_tokens");
    let cache_read = cached.unwrap_or_else(|| number("/prompt_cache_hit_tokens"));
    let cache_write = number("/prompt_tokens_details/cache_write_tokens");
    usage_of(number("/prompt_tokens"), cache_read, cache_write, number("/completion_tokens"))
}
