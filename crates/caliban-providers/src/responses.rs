//! OpenAI Responses, without storage: reasoning items come back encrypted and are sent verbatim.

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
    wire::{
        Assemble, FAILED_MARK, Observe, StreamProgress, arguments, arguments_object, parse, reply, usage_of,
    },
};

pub(crate) fn body(provider: ProviderKind, request: &ModelRequest<'_>) -> Value {
    let mut body = json!({"model": request.model, "stream": true, "store": false});
    if !request.session.is_empty() {
        body["prompt_cache_key"] = json!(request.session);
    }
    let family = models::family(request.model);
    let plan = Plan::of(family, request.effort);
    if let Some(max_output) = request.max_output {
        body["max_output_tokens"] = json!(plan.with_room(family, max_output).0);
    }
    // Models that do not reason refuse to be asked about it.
    if plan != Plan::Silent {
        body["include"] = json!(["reasoning.encrypted_content"]);
        body["reasoning"] =
            json!({"effort": effort_word(family, request.effort).unwrap_or(USUAL_EFFORT), "summary": "auto"});
    }
    if !request.system.is_empty() {
        body["instructions"] = json!(request.system);
    }
    if !request.tools.is_empty() {
        let tool = |tool: &caliban_core::message::ToolSpec| {
            json!({"type": "function", "name": tool.name, "description": tool.description,
                "parameters": tool.input_schema, "strict": false})
        };
        body["tools"] = request.tools.iter().map(tool).collect();
        body["parallel_tool_calls"] = json!(true);
        if request.calls == Calls::Forbidden {
            body["tool_choice"] = json!("none");
        }
    }
    let messages = request.messages.iter().enumerate();
    body["input"] = messages.flat_map(|(at, message)| items(provider, at, message)).collect();
    body
}

/// What is asked of a model that reasons when nobody says how hard: many do not reason at all by themselves.
pub(crate) const USUAL_EFFORT: &str = "medium";

/// The API's word for an effort; nothing for its default. Where a model cannot do without reasoning, its least is asked
/// for; of a model that nobody knows, no more than every server has a word for.
pub(crate) fn effort_word(family: &'static Family, effort: Effort) -> Option<&'static str> {
    match effort {
        Effort::Default => None,
        Effort::None => Some(family.off.as_deref().filter(|word| *word != "never").unwrap_or(
            match family.levels.first() {
                Some(least) => least.word(),
                None => "none",
            },
        )),
        effort if family.levels.is_empty() => Some(effort.min(Effort::High).word()),
        effort => Some(family.nearest(effort).word()),
    }
}

/// A message's items. Neighbouring texts and pictures make one item; calls, results and reasoning
/// are items of their own, in their order. Some servers take a model's own words only with an id and a status.
fn items(provider: ProviderKind, at: usize, message: &Message) -> Vec<Value> {
    let mut items = Vec::new();
    let mut content: Vec<Value> = Vec::new();
    let (role, text_type) = match message.role {
        Role::User => ("user", "input_text"),
        Role::Assistant => ("assistant", "output_text"),
    };
    let flush = |content: &mut Vec<Value>, items: &mut Vec<Value>| {
        if content.is_empty() {
            return;
        }
        let content = std::mem::take(content);
        items.push(match message.role {
            Role::User => json!({"type": "message", "role": role, "content": content}),
            Role::Assistant => json!({"type": "message", "id": format!("msg_{at:08x}{:08x}", items.len()),
                "role": role, "status": "completed", "content": content}),
        });
    };
    for block in &message.blocks {
        match block {
            Block::Text { text } if text.is_empty() => {}
            Block::Text { text } if message.role == Role::Assistant => {
                content.push(json!({"type": text_type, "text": text, "annotations": []}));
            }
            Block::Text { text } => content.push(json!({"type": text_type, "text": text})),
            Block::Image { media_type, data } => content.push(image(media_type, data)),
            Block::Thinking { provider: made_by, raw, .. } => {
                flush(&mut content, &mut items);
                if made_by == provider.name() {
                    items.push(raw.clone());
                }
            }
            Block::ToolUse { id, name, input, .. } => {
                flush(&mut content, &mut items);
                items.push(json!({"type": "function_call", "call_id": id, "name": name,
                    "arguments": arguments_object(input).to_string()}));
            }
            Block::ToolResult { id, content: parts, is_error } => {
                flush(&mut content, &mut items);
                items.push(json!({"type": "function_call_output", "call_id": id, "output": output(parts, *is_error)}));
            }
        }
    }
    flush(&mut content, &mut items);
    // Reasoning that the answer broke off after is refused: it must be followed by what it led to.
    while items.last().is_some_and(|item| item["type"] == "reasoning") {
        items.pop();
    }
    items
}

fn output(parts: &[ResultPart], is_error: bool) -> Value {
    let mark = if is_error { FAILED_MARK } else { "" };
    if let [ResultPart::Text { text }] = parts {
        return Value::String(format!("{mark}{text}"));
    }
    let mut output: Vec<Value> = parts
        .iter()
        .map(|part| match part {
            ResultPart::Text { text } => json!({"type": "input_text", "text": text}),
            ResultPart::Image { media_type, data } => image(media_type, data),
        })
        .collect();
    if is_error {
        output.insert(0, json!({"type": "input_text", "text": mark}));
    }
    if output.is_empty() { Value::String(String::new()) } else { Value::Array(output) }
}

fn image(media_type: &str, data: &str) -> Value {
    json!({"type": "input_image", "image_url": format!("data:{media_type};base64,{data}")})
}

/// Puts an answer together.
#[derive(Debug, Default)]
pub(crate) struct ResponsesAssembler {
    provider: &'static str,
    asked: String,
    items: BTreeMap<u64, OutputItem>,
    /// The response as the closing event has it.
    closing: Option<Value>,
    /// Bytes that have come.
    size: usize,
}

/// One output item: what has been streamed of it, and the whole once it is there.
#[derive(Debug, Default)]
struct OutputItem {
    begun: Value,
    text: String,
    arguments: String,
    whole: Option<Value>,
}

impl ResponsesAssembler {
    pub(crate) fn new(provider: ProviderKind, asked: &str) -> Self {
        Self { provider: provider.name(), asked: asked.to_owned(), ..Self::default() }
    }

    fn item(&mut self, value: &Value) -> &mut OutputItem {
        let index = value["output_index"].as_u64().unwrap_or_default();
        self.items.entry(index).or_default()
    }
}

impl Assemble for ResponsesAssembler {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        observe: &mut Observe<'_>,
    ) -> Result<StreamProgress, AttemptFailure> {
        // Some gateways end with this line, as Chat Completions do.
        if event.data.trim() == "[DONE]" {
            return Ok(StreamProgress::Closed);
        }
        let value = parse(event)?;
        let delta = || value["delta"].as_str().unwrap_or_default().to_owned();
        self.size += value["delta"].as_str().map_or(0, str::len);
        match value["type"].as_str().unwrap_or(&event.name) {
            "response.output_item.added" => {
                let item = &value["item"];
                if item["type"] == "function_call" {
                    let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
                    observe(Delta::ToolUse { id: text("call_id"), name: text("name") });
                }
                self.item(&value).begun = item.clone();
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                let delta = delta();
                self.item(&value).text.push_str(&delta);
                observe(Delta::Text(delta));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                observe(Delta::Thinking(delta()));
            }
            // Paragraphs of the summary come without a break between them.
            "response.reasoning_summary_part.added" if value["summary_index"].as_u64() > Some(0) => {
                observe(Delta::Thinking("\n\n".to_owned()));
            }
            "response.function_call_arguments.delta" => {
                let delta = delta();
                self.item(&value).arguments.push_str(&delta);
            }
            "response.output_item.done" => {
                let item = value["item"].clone();
                // An item that was not streamed comes whole, as encrypted reasoning does.
                if item["type"] == "reasoning" {
                    self.size += event.data.len();
                }
                self.item(&value).whole = Some(item);
            }
            "response.completed" | "response.incomplete" | "response.done" => {
                if value["response"]["status"] == "failed" {
                    return Err(AttemptFailure::from_event(&value));
                }
                observe(Delta::Usage(usage(&value["response"]["usage"])));
                self.closing = Some(value["response"].clone());
                return Ok(StreamProgress::Closed);
            }
            "response.failed" | "error" => return Err(AttemptFailure::from_event(&value)),
            _ => {}
        }
        Ok(StreamProgress::More)
    }

    fn size(&self) -> usize {
        self.size + self.items.len()
    }

    fn finish(self: Box<Self>) -> Result<ModelReply, AttemptFailure> {
        let Some(closing) = self.closing else { return Err(AttemptFailure::Cut) };
        let mut blocks = Vec::new();
        let mut refused = false;
        if self.items.is_empty() {
            for item in closing["output"].as_array().into_iter().flatten() {
                refused |= push_blocks(&mut blocks, self.provider, item);
            }
        }
        for item in self.items.into_values() {
            let whole = item.whole.unwrap_or_else(|| whole_of(item.begun, &item.text, &item.arguments));
            refused |= push_blocks(&mut blocks, self.provider, &whole);
        }
        let stop = match closing.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("max_output_tokens") => StopReason::MaxTokens,
            Some("content_filter") => StopReason::Refusal("content_filter".to_owned()),
            Some(other) => StopReason::Other(other.to_owned()),
            None if refused => StopReason::Refusal("refusal".to_owned()),
            None => match closing["status"].as_str() {
                Some(status @ ("incomplete" | "cancelled" | "queued" | "in_progress")) => {
                    StopReason::Other(status.to_owned())
                }
                _ => StopReason::EndTurn,
            },
        };
        let model = closing["model"].as_str().map(str::to_owned);
        Ok(reply(stop, blocks, usage(&closing["usage"]), model, self.asked))
    }
}

/// Adds an item's blocks; says whether it was a refusal.
fn push_blocks(blocks: &mut Vec<Block>, provider: &str, item: &Value) -> bool {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let mut refused = false;
    match item["type"].as_str().unwrap_or_default() {
        "message" => {
            for part in item["content"].as_array().into_iter().flatten() {
                let is_refusal = part["type"] == "refusal";
                refused |= is_refusal;
                let text = text(part, if is_refusal { "refusal" } else { "text" });
                if !text.is_empty() {
                    blocks.push(Block::Text { text });
                }
            }
        }
        "reasoning" => {
            let parts = item["summary"].as_array().into_iter().flatten();
            let shown: Vec<String> = parts.map(|part| text(part, "text")).collect();
            blocks.push(Block::Thinking {
                text: shown.join("\n\n"),
                provider: provider.to_owned(),
                raw: item.clone(),
            });
        }
        "function_call" => blocks.push(Block::ToolUse {
            id: text(item, "call_id"),
            name: text(item, "name"),
            input: arguments(item["arguments"].as_str().unwrap_or_default()),
            extra: None,
        }),
        _ => {}
    }
    refused
}

/// An item from its pieces, for servers that do not repeat it whole.
fn whole_of(begun: Value, text: &str, arguments: &str) -> Value {
    match begun["type"].as_str() {
        Some("function_call") => {
            let mut whole = begun;
            whole["arguments"] = json!(arguments);
            whole
        }
        Some("reasoning") => begun,
        _ => json!({"type": "message", "content": [{"type": "output_text", "text": text}]}),
    }
}

fn usage(usage: &Value) -> Usage {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let detail = |key: &str| number(&usage["input_tokens_details"][key]);
    let (prompt, output) = (number(&usage["input_tokens"]), number(&usage["output_tokens"]));
    usage_of(prompt, detail("cached_tokens"), detail("cache_write_tokens"), output)
}
