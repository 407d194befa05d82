//! Anthropic Messages.
//!
//! Cache marks: on the tools, on the system prompt and on the ends of the last two user messages.
//! The last one moves with the conversation; the one before it makes sure that the part that was
//! written last time is found again, however many blocks one turn adds.

use std::collections::BTreeMap;

use caliban_core::{
    message::{Block, Effort, Message, ResultPart, Role, StopReason},
    models::{self, Family},
    sse,
    usage::Usage,
};
use serde_json::{Value, json};

use crate::{
    Calls, Delta, ModelReply, ModelRequest,
    error::AttemptFailure,
    kind::ProviderKind,
    thinking::Plan,
    wire::{Assemble, Observe, StreamProgress, arguments, arguments_object, parse, reply},
};

/// The version of the API that this module speaks.
pub(crate) const VERSION: &str = "2023-06-01";
/// An answer is not longer than this unless the caller asks for more.
const USUAL_MAX_OUTPUT: u32 = 32_000;
/// Lets a model with a thinking budget think between its calls, too.
const INTERLEAVED: &str = "interleaved-thinking-2025-05-14";

/// The headers that only some requests have.
pub(crate) fn headers(request: &ModelRequest<'_>) -> Option<(&'static str, String)> {
    let family = models::family(request.model);
    let thinks = matches!(Plan::of(family, request.effort), Plan::Budget(_));
    (thinks && family.interleaved).then(|| ("anthropic-beta", INTERLEAVED.to_owned()))
}

pub(crate) fn body(provider: ProviderKind, request: &ModelRequest<'_>) -> Value {
    let family = models::family(request.model);
    let answer = request.max_output.unwrap_or(family.output.min(USUAL_MAX_OUTPUT));
    let (max_tokens, plan) = Plan::of(family, request.effort).with_room(family, answer);
    let mut body = json!({"model": request.model, "max_tokens": max_tokens, "stream": true});
    thinking(&mut body, family, plan);
    if !request.system.trim().is_empty() {
        body["system"] = json!([{"type": "text", "text": request.system, "cache_control": cache_mark()}]);
    }
    let mut tools: Vec<Value> = request
        .tools
        .iter()
        .map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.input_schema})
        })
        .collect();
    if let Some(last) = tools.last_mut() {
        last["cache_control"] = cache_mark();
        body["tools"] = Value::Array(tools);
        if request.calls == Calls::Forbidden {
            body["tool_choice"] = json!({"type": "none"});
        }
    }
    let mut messages: Vec<Value> =
        request.messages.iter().filter_map(|message| message_json(provider, message)).collect();
    mark_ends(&mut messages);
    body["messages"] = Value::Array(messages);
    body
}

fn thinking(body: &mut Value, family: &Family, plan: Plan) {
    let adaptive = || match family.summarized {
        true => json!({"type": "adaptive", "display": "summarized"}),
        false => json!({"type": "adaptive"}),
    };
    match plan {
        Plan::Silent => {}
        Plan::Budget(budget) => body["thinking"] = json!({"type": "enabled", "budget_tokens": budget}),
        Plan::Least => match family.off.as_deref() {
            None => {}
            Some("never") => {
                body["thinking"] = adaptive();
                body["output_config"] = json!({"effort": family.nearest(Effort::None).word()});
            }
            Some(kind) => body["thinking"] = json!({"type": kind}),
        },
        Plan::Word(word) => {
            body["thinking"] = adaptive();
            if let Some(word) = word {
                body["output_config"] = json!({"effort": word.word()});
            }
        }
    }
}

fn cache_mark() -> Value {
    json!({"type": "ephemeral"})
}

/// Marks the last block of each of the last two user messages.
fn mark_ends(messages: &mut [Value]) {
    let users = messages.iter_mut().rev().filter(|message| message["role"] == "user").take(2);
    for message in users {
        if let Some(last) = message["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            last["cache_control"] = cache_mark();
        }
    }
}

/// A message, or nothing if nothing of it can be sent.
fn message_json(provider: ProviderKind, message: &Message) -> Option<Value> {
    let blocks = match message.role {
        Role::User => message.blocks.as_slice(),
        Role::Assistant => without_open_end(&message.blocks),
    };
    let content: Vec<Value> = blocks.iter().filter_map(|block| block_json(provider, block)).collect();
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    (!content.is_empty()).then(|| json!({"role": role, "content": content}))
}

/// The API refuses a message that ends with thinking: what it led to was never said.
fn without_open_end(blocks: &[Block]) -> &[Block] {
    let end = blocks.iter().rposition(|block| match block {
        Block::Thinking { .. } => false,
        Block::Text { text } => !text.trim().is_empty(),
        Block::ToolUse { .. } | Block::ToolResult { .. } | Block::Image { .. } => true,
    });
    end.map_or(&[], |end| &blocks[..=end])
}

fn block_json(provider: ProviderKind, block: &Block) -> Option<Value> {
    match block {
        // The API refuses blank text.
        Block::Text { text } if text.trim().is_empty() => None,
        Block::Text { text } => Some(json!({"type": "text", "text": text})),
        Block::Thinking { provider: made_by, raw, .. } => (made_by == provider.name()).then(|| raw.clone()),
        Block::ToolUse { id, name, input, .. } => Some(json!({
            "type": "tool_use", "id": plain_id(id), "name": name, "input": arguments_object(input)
        })),
        Block::ToolResult { id, content, is_error } => {
            let mut result = json!({"type": "tool_result", "tool_use_id": plain_id(id)});
            let parts: Vec<Value> = content.iter().filter_map(part_json).collect();
            if !parts.is_empty() {
                result["content"] = Value::Array(parts);
            }
            if *is_error {
                result["is_error"] = json!(true);
            }
            Some(result)
        }
        Block::Image { media_type, data } => Some(image_json(media_type, data)),
    }
}

fn part_json(part: &ResultPart) -> Option<Value> {
    match part {
        ResultPart::Text { text } if text.trim().is_empty() => None,
        ResultPart::Text { text } => Some(json!({"type": "text", "text": text})),
        ResultPart::Image { media_type, data } => Some(image_json(media_type, data)),
    }
}

fn image_json(media_type: &str, data: &str) -> Value {
    json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
}

/// Ids that another provider's model made may hold characters that this API refuses.
fn plain_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }).collect()
}

/// Puts an answer together.
#[derive(Debug, Default)]
pub(crate) struct AnthropicAssembler {
    provider: &'static str,
    asked: String,
    model: Option<String>,
    blocks: BTreeMap<u64, OpenBlock>,
    usage: Usage,
    stop: Option<String>,
    closed: bool,
}

/// A block that is still coming.
#[derive(Debug)]
enum OpenBlock {
    Text(String),
    /// The block as it began, and what has come of its text and signature.
    Thinking {
        raw: Value,
        text: String,
        signature: String,
    },
    Redacted(Value),
    ToolUse {
        id: String,
        name: String,
        given: Value,
        json: String,
    },
    Unknown,
}

impl AnthropicAssembler {
    pub(crate) fn new(provider: ProviderKind, asked: &str) -> Self {
        Self { provider: provider.name(), asked: asked.to_owned(), ..Self::default() }
    }

    /// Later counts replace earlier ones: they are totals.
    fn count(&mut self, usage: &Value, observe: &mut Observe<'_>) {
        let set = |name: &str, count: &mut u64| {
            if let Some(number) = usage[name].as_u64() {
                *count = number;
            }
        };
        set("input_tokens", &mut self.usage.input);
        set("output_tokens", &mut self.usage.output);
        set("cache_read_input_tokens", &mut self.usage.cache_read);
        set("cache_creation_input_tokens", &mut self.usage.cache_write);
        observe(Delta::Usage(self.usage));
    }

    fn start(&mut self, value: &Value, observe: &mut Observe<'_>) {
        let index = value["index"].as_u64().unwrap_or(self.blocks.len() as u64);
        let block = &value["content_block"];
        let open = match block["type"].as_str().unwrap_or_default() {
            "text" => {
                let text = text_of(block, "text");
                if !text.is_empty() {
                    observe(Delta::Text(text.clone()));
                }
                OpenBlock::Text(text)
            }
            "thinking" => {
                let (text, signature) = (text_of(block, "thinking"), text_of(block, "signature"));
                OpenBlock::Thinking { raw: block.clone(), text, signature }
            }
            "redacted_thinking" => OpenBlock::Redacted(block.clone()),
            "tool_use" => {
                let (id, name) = (text_of(block, "id"), text_of(block, "name"));
                observe(Delta::ToolUse { id: id.clone(), name: name.clone() });
                OpenBlock::ToolUse { id, name, given: block["input"].clone(), json: String::new() }
            }
            _ => OpenBlock::Unknown,
        };
        self.blocks.insert(index, open);
    }

    fn delta(&mut self, value: &Value, observe: &mut Observe<'_>) {
        let Some(open) = value["index"].as_u64().and_then(|index| self.blocks.get_mut(&index)) else {
            return;
        };
        let delta = &value["delta"];
        match (open, delta["type"].as_str().unwrap_or_default()) {
            (OpenBlock::Text(text), "text_delta") => {
                let more = text_of(delta, "text");
                text.push_str(&more);
                observe(Delta::Text(more));
            }
            (OpenBlock::Thinking { text, .. }, "thinking_delta") => {
                let more = text_of(delta, "thinking");
                text.push_str(&more);
                observe(Delta::Thinking(more));
            }
            (OpenBlock::Thinking { signature, .. }, "signature_delta") => {
                signature.push_str(&text_of(delta, "signature"));
            }
            (OpenBlock::ToolUse { json, .. }, "input_json_delta") => {
                json.push_str(&text_of(delta, "partial_json"))
            }
            _ => {}
        }
    }
}

impl Assemble for AnthropicAssembler {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        observe: &mut Observe<'_>,
    ) -> Result<StreamProgress, AttemptFailure> {
        let value = parse(event)?;
        match value["type"].as_str().unwrap_or(&event.name) {
            "message_start" => {
                self.model = value.pointer("/message/model").and_then(Value::as_str).map(str::to_owned);
                self.count(&value["message"]["usage"], observe);
            }
            "content_block_start" => self.start(&value, observe),
            "content_block_delta" => self.delta(&value, observe),
            "message_delta" => {
                self.count(&value["usage"], observe);
                if let Some(stop) = value.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.stop = Some(stop.to_owned());
                }
            }
            "message_stop" => {
                self.closed = true;
                return Ok(StreamProgress::Closed);
            }
            "error" => return Err(AttemptFailure::from_event(&value)),
            // Pings, ends of blocks, and what is yet to be invented.
            _ => {}
        }
        Ok(StreamProgress::More)
    }

    fn size(&self) -> usize {
        let size = |open: &OpenBlock| match open {
            OpenBlock::Text(text) => text.len(),
            OpenBlock::Thinking { text, signature, .. } => text.len() + signature.len(),
            OpenBlock::ToolUse { json, .. } => json.len(),
            OpenBlock::Redacted(_) | OpenBlock::Unknown => 0,
        };
        // A block that has begun counts, too: a stream of empty ones is not endless.
        self.blocks.values().map(|open| 1 + size(open)).sum()
    }

    fn finish(self: Box<Self>) -> Result<ModelReply, AttemptFailure> {
        if !self.closed {
            return Err(AttemptFailure::Cut);
        }
        let provider = self.provider;
        let blocks: Vec<Block> =
            self.blocks.into_values().filter_map(|open| closed(provider, open)).collect();
        let stop = match self.stop.as_deref() {
            Some("end_turn" | "stop_sequence") | None => StopReason::EndTurn,
            Some("tool_use") => StopReason::ToolUse,
            Some("max_tokens") => StopReason::MaxTokens,
            Some("refusal") => StopReason::Refusal("refusal".to_owned()),
            Some(other) => StopReason::Other(other.to_owned()),
        };
        Ok(reply(stop, blocks, self.usage, self.model, self.asked))
    }
}

fn closed(provider: &str, open: OpenBlock) -> Option<Block> {
    match open {
        OpenBlock::Text(text) => (!text.is_empty()).then_some(Block::Text { text }),
        OpenBlock::Thinking { mut raw, text, signature } => {
            raw["thinking"] = Value::String(text.clone());
            if !signature.is_empty() {
                raw["signature"] = Value::String(signature);
            }
            Some(Block::Thinking { text, provider: provider.to_owned(), raw })
        }
        OpenBlock::Redacted(raw) => {
            Some(Block::Thinking { text: String::new(), provider: provider.to_owned(), raw })
        }
        OpenBlock::ToolUse { id, name, given, json } => {
            let input = match given {
                Value::Object(given) if json.is_empty() => Value::Object(given),
                _ => arguments(&json),
            };
            Some(Block::ToolUse { id, name, input, extra: None })
        }
        OpenBlock::Unknown => None,
    }
}

fn text_of(value: &Value, key: &str) -> String {
    value[key].as_str().unwrap_or_default().to_owned()
}
