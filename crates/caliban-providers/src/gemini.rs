//! Google's Gemini API (`streamGenerateContent`).
//!
//! Thought signatures go back on the parts that they came with: on a call in its `extra`, on a text
//! as a part of its own (which is how the API itself streams them).

use std::collections::HashMap;

use caliban_core::{
    message::{Block, Effort, ResultPart, Role, StopReason, ToolSpec},
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
    wire::{Assemble, CallIds, Observe, StreamProgress, arguments_object, parse, reply, usage_of},
};

/// The largest budget that all models with one take.
const MAX_BUDGET: u32 = 24_576;
/// What the API accepts in place of a signature on calls that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(crate) fn url(base: &str, model: &str) -> String {
    let model = model.strip_prefix("models/").unwrap_or(model);
    format!("{base}/models/{model}:streamGenerateContent?alt=sse")
}

pub(crate) fn body(provider: ProviderKind, request: &ModelRequest<'_>) -> Value {
    let mut body = json!({});
    let mut config = json!({});
    let family = models::family(request.model);
    let plan = Plan::of(family, request.effort);
    if let Some(max_output) = request.max_output {
        config["maxOutputTokens"] = json!(plan.with_room(family, max_output).0);
    }
    if let Some(thinking) = thinking(family, plan, request.effort) {
        config["thinkingConfig"] = thinking;
    }
    if config != json!({}) {
        body["generationConfig"] = config;
    }
    if !request.system.is_empty() {
        body["systemInstruction"] = json!({"parts": [{"text": request.system}]});
    }
    if !request.tools.is_empty() {
        let tool = |tool: &ToolSpec| json!({"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.input_schema});
        let tools: Vec<Value> = request.tools.iter().map(tool).collect();
        body["tools"] = json!([{"functionDeclarations": tools}]);
        if request.calls == Calls::Forbidden {
            body["toolConfig"] = json!({"functionCallingConfig": {"mode": "NONE"}});
        }
    }
    // Results name their tool and repeat the API's own id, which only the calls know.
    let mut calls: HashMap<&str, (&str, Option<&Value>)> = HashMap::new();
    let mut contents = Vec::new();
    for message in request.messages {
        for block in &message.blocks {
            if let Block::ToolUse { id, name, extra, .. } = block {
                calls.insert(id, (name, extra.as_ref().and_then(|extra| extra.get("id"))));
            }
        }
        let mut parts = Vec::new();
        for block in &message.blocks {
            push_parts(&mut parts, provider, block, &calls);
        }
        if request.model.contains("gemini-3") {
            sign(&mut parts);
        }
        let role = match message.role {
            Role::User => "user",
            Role::Assistant => "model",
        };
        if !parts.is_empty() {
            contents.push(json!({"role": role, "parts": parts}));
        }
    }
    body["contents"] = Value::Array(contents);
    body
}

fn thinking(family: &Family, plan: Plan, effort: Effort) -> Option<Value> {
    let shown = |key: &str, value: Value| Some(json!({"includeThoughts": true, key: value}));
    match plan {
        Plan::Silent => None,
        // The model decides by itself.
        Plan::Word(None) => Some(json!({"includeThoughts": true})),
        Plan::Budget(_) if effort == Effort::Default => Some(json!({"includeThoughts": true})),
        Plan::Budget(budget) => shown("thinkingBudget", json!(budget.min(MAX_BUDGET))),
        Plan::Word(Some(word)) => shown("thinkingLevel", json!(word.word())),
        Plan::Least => {
            let least = family.off.as_deref().unwrap_or("low");
            match least.parse::<u32>() {
                Ok(tokens) => shown("thinkingBudget", json!(tokens)),
                Err(_) => shown("thinkingLevel", json!(least)),
            }
        }
    }
}

fn push_parts(
    parts: &mut Vec<Value>,
    provider: ProviderKind,
    block: &Block,
    calls: &HashMap<&str, (&str, Option<&Value>)>,
) {
    match block {
        Block::Text { text } if text.is_empty() => {}
        Block::Text { text } => parts.push(json!({"text": text})),
        Block::Image { media_type, data } => parts.push(inline(media_type, data)),
        Block::Thinking { provider: made_by, raw, .. } => {
            // Summaries of thoughts are for people; only signatures are for the model.
            if made_by == provider.name() && raw.get("thoughtSignature").is_some() {
                parts.push(raw.clone());
            }
        }
        Block::ToolUse { name, input, extra, .. } => {
            let mut call = json!({"name": name, "args": arguments_object(input)});
            let given = |key: &str| extra.as_ref().and_then(|extra| extra.get(key)).cloned();
            if let Some(id) = given("id") {
                call["id"] = id;
            }
            let mut part = json!({"functionCall": call});
            if let Some(signature) = given("thoughtSignature") {
                part["thoughtSignature"] = signature;
            }
            parts.push(part);
        }
        Block::ToolResult { id, content, is_error } => {
            let (name, own_id) = calls.get(id.as_str()).copied().unwrap_or(("unknown", None));
            let texts: Vec<&str> = content
                .iter()
                .filter_map(|part| match part {
                    ResultPart::Text { text } => Some(text.as_str()),
                    ResultPart::Image { .. } => None,
                })
                .collect();
            let key = if *is_error { "error" } else { "output" };
            let mut response = json!({"name": name, "response": {key: texts.join("\n")}});
            if let Some(own_id) = own_id {
                response["id"] = own_id.clone();
            }
            parts.push(json!({"functionResponse": response}));
            for part in content {
                if let ResultPart::Image { media_type, data } = part {
                    parts.push(inline(media_type, data));
                }
            }
        }
    }
}

fn inline(media_type: &str, data: &str) -> Value {
    json!({"inlineData": {"mimeType": media_type, "data": data}})
}

/// The third generation refuses calls of which none is signed, such as another model's.
fn sign(parts: &mut [Value]) {
    let mut calls = parts.iter_mut().filter(|part| part.get("functionCall").is_some());
    if let Some(first) = calls.next()
        && first.get("thoughtSignature").is_none()
    {
        first["thoughtSignature"] = json!(NO_SIGNATURE);
    }
}

/// Puts an answer together.
#[derive(Debug, Default)]
pub(crate) struct GeminiAssembler {
    provider: &'static str,
    asked: String,
    ids: CallIds,
    model: Option<String>,
    blocks: Vec<Block>,
    usage: Usage,
    finish: Option<String>,
    blocked: Option<String>,
    /// Bytes that have come.
    size: usize,
}

impl GeminiAssembler {
    pub(crate) fn new(provider: ProviderKind, asked: &str, ids: CallIds) -> Self {
        Self { provider: provider.name(), asked: asked.to_owned(), ids, ..Self::default() }
    }

    fn part(&mut self, part: &Value, observe: &mut Observe<'_>) {
        let signature = part.get("thoughtSignature");
        if let Some(call) = part.get("functionCall") {
            let name = call["name"].as_str().unwrap_or_default().to_owned();
            let own_id = call["id"].as_str().filter(|id| !id.is_empty());
            let id = own_id.map_or_else(|| self.ids.make(), str::to_owned);
            let mut extra = json!({});
            if let Some(own_id) = own_id {
                extra["id"] = json!(own_id);
            }
            if let Some(signature) = signature {
                extra["thoughtSignature"] = signature.clone();
            }
            observe(Delta::ToolUse { id: id.clone(), name: name.clone() });
            let input = if call["args"].is_object() { call["args"].clone() } else { json!({}) };
            let extra = (extra != json!({})).then_some(extra);
            self.blocks.push(Block::ToolUse { id, name, input, extra });
            return;
        }
        let text = part["text"].as_str().unwrap_or_default();
        let is_thought = part["thought"].as_bool().unwrap_or_default();
        if is_thought {
            observe(Delta::Thinking(text.to_owned()));
            match self.blocks.last_mut() {
                Some(Block::Thinking { text: all, raw, .. }) if raw["thought"] == true => {
                    all.push_str(text);
                    if let Value::String(raw) = &mut raw["text"] {
                        raw.push_str(text);
                    }
                }
                _ => self.push_thinking(text, json!({"text": text, "thought": true})),
            }
        } else if !text.is_empty() {
            observe(Delta::Text(text.to_owned()));
            match self.blocks.last_mut() {
                Some(Block::Text { text: all }) => all.push_str(text),
                _ => self.blocks.push(Block::Text { text: text.to_owned() }),
            }
        }
        if let Some(signature) = signature {
            self.push_thinking("", json!({"text": "", "thoughtSignature": signature}));
        }
    }

    fn push_thinking(&mut self, text: &str, raw: Value) {
        let provider = self.provider.to_owned();
        self.blocks.push(Block::Thinking { text: text.to_owned(), provider, raw });
    }
}

impl Assemble for GeminiAssembler {
    fn event(
        &mut self,
        event: &sse::SseEvent,
        observe: &mut Observe<'_>,
    ) -> Result<StreamProgress, AttemptFailure> {
        let value = parse(event)?;
        if value.get("error").is_some() {
            return Err(AttemptFailure::from_event(&value));
        }
        if let Some(model) = value["modelVersion"].as_str() {
            self.model = Some(model.to_owned());
        }
        if value["usageMetadata"].is_object() {
            self.usage = usage(&value["usageMetadata"]);
            observe(Delta::Usage(self.usage));
        }
        if let Some(reason) = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str) {
            self.blocked = Some(reason.to_owned());
        }
        let candidate = &value["candidates"][0];
        for part in candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten() {
            self.size += part["text"].as_str().map_or_else(|| part.to_string().len(), str::len);
            self.part(part, observe);
        }
        if let Some(finish) = candidate["finishReason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
        // The last counts may follow the finish: only the end of the stream closes it.
        Ok(StreamProgress::More)
    }

    fn size(&self) -> usize {
        self.size
    }

    fn finish(self: Box<Self>) -> Result<ModelReply, AttemptFailure> {
        let stop = match (self.finish.as_deref(), self.blocked) {
            (_, Some(blocked)) => StopReason::Refusal(blocked),
            (None, None) => return Err(AttemptFailure::Cut),
            (Some("STOP"), None) => StopReason::EndTurn,
            (Some("MAX_TOKENS"), None) => StopReason::MaxTokens,
            (Some(word @ ("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII")), None) => {
                StopReason::Refusal(word.to_owned())
            }
            (Some(other), None) => StopReason::Other(other.to_owned()),
        };
        Ok(reply(stop, self.blocks, self.usage, self.model, self.asked))
    }
}

fn usage(usage: &Value) -> Usage {
    let number = |key: &str| usage[key].as_u64().unwrap_or_default();
    let prompt = number("promptTokenCount") + number("toolUsePromptTokenCount");
    let output = number("candidatesTokenCount") + number("thoughtsTokenCount");
    usage_of(prompt, number("cachedContentTokenCount"), 0, output)
}
