//! A request body of any protocol as the neutral conversation that the script is matched against.
//!
//! Parses leniently: unknown parts are skipped, because other clients send more than ours.

use caliban_core::message::{Block, Message, ResultPart, Role};
use caliban_providers::script::ScriptView;
use serde_json::Value;

use crate::wire::Protocol;

/// What a script can match of a request. `model` comes from the path for Gemini, else from the body.
pub(crate) fn view(protocol: Protocol, model: &str, body: &Value) -> ScriptView {
    let (system, messages) = match protocol {
        Protocol::Anthropic => anthropic(body),
        Protocol::Responses => responses(body),
        Protocol::Chat | Protocol::Ollama => chat(body),
        Protocol::Gemini => gemini(body),
    };
    ScriptView::new(model, &system, &messages)
}

/// Adjacent messages of one role become one: protocols split a turn differently.
#[derive(Default)]
struct Conversation {
    messages: Vec<Message>,
}

impl Conversation {
    fn add(&mut self, role: Role, blocks: impl IntoIterator<Item = Block>) {
        if self.messages.last().is_none_or(|last| last.role != role) {
            self.messages.push(Message { role, blocks: Vec::new() });
        }
        if let Some(last) = self.messages.last_mut() {
            last.blocks.extend(blocks);
        }
    }
}

fn anthropic(body: &Value) -> (String, Vec<Message>) {
    let mut conversation = Conversation::default();
    for message in list(&body["messages"]) {
        let block = |block: &Value| match block["type"].as_str() {
            Some("tool_use") => Some(call(&block["id"], &block["name"], block["input"].clone())),
            Some("tool_result") => Some(result(&block["tool_use_id"], &block["content"])),
            _ => text_block(&block["text"]),
        };
        conversation.add(role(message), parts(&message["content"], block));
    }
    (all_text(&body["system"]), conversation.messages)
}

fn responses(body: &Value) -> (String, Vec<Message>) {
    let mut system = vec![all_text(&body["instructions"])];
    let mut conversation = Conversation::default();
    if let Some(text) = text_block(&body["input"]) {
        conversation.add(Role::User, [text]);
    }
    for item in list(&body["input"]) {
        match item["type"].as_str() {
            Some("function_call" | "custom_tool_call") => {
                let arguments = item["arguments"].as_str().or(item["input"].as_str()).unwrap_or_default();
                conversation.add(Role::Assistant, [call(&item["call_id"], &item["name"], arguments.into())]);
            }
            Some("function_call_output" | "custom_tool_call_output") => {
                conversation.add(Role::User, [result(&item["call_id"], &item["output"])]);
            }
            Some("reasoning") => conversation.add(Role::Assistant, []),
            _ if matches!(item["role"].as_str(), Some("system" | "developer")) => {
                system.push(all_text(&item["content"]));
            }
            _ => conversation.add(role(item), parts(&item["content"], |part| text_block(&part["text"]))),
        }
    }
    (joined(system), conversation.messages)
}

fn chat(body: &Value) -> (String, Vec<Message>) {
    let mut system = Vec::new();
    let mut conversation = Conversation::default();
    for message in list(&body["messages"]) {
        let texts = parts(&message["content"], |part| text_block(&part["text"]));
        match message["role"].as_str() {
            Some("system" | "developer") => system.push(all_text(&message["content"])),
            Some("tool") => {
                conversation.add(Role::User, [result(&message["tool_call_id"], &message["content"])]);
            }
            Some("assistant") => {
                let calls = list(&message["tool_calls"]).iter().map(|one| {
                    call(&one["id"], &one["function"]["name"], one["function"]["arguments"].clone())
                });
                conversation.add(Role::Assistant, texts.into_iter().chain(calls));
            }
            _ => conversation.add(Role::User, texts),
        }
    }
    (joined(system), conversation.messages)
}

fn gemini(body: &Value) -> (String, Vec<Message>) {
    let mut conversation = Conversation::default();
    for content in list(&body["contents"]) {
        let part = |part: &Value| {
            if part["thought"] == true {
                return None;
            }
            if let Some(one) = part.get("functionCall") {
                return Some(call(&one["id"], &one["name"], one["args"].clone()));
            }
            if let Some(one) = part.get("functionResponse") {
                return Some(result(&one["name"], &one["response"]));
            }
            text_block(&part["text"])
        };
        conversation.add(role(content), parts(&content["parts"], part));
    }
    let system = body.get("systemInstruction").or(body.get("system_instruction")).unwrap_or(&Value::Null);
    (all_text(&system["parts"]), conversation.messages)
}

fn role(message: &Value) -> Role {
    match message["role"].as_str() {
        Some("assistant" | "model") => Role::Assistant,
        _ => Role::User,
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The blocks of a content that is a string or a list of parts.
fn parts(content: &Value, block: impl Fn(&Value) -> Option<Block>) -> Vec<Block> {
    text_block(content).into_iter().chain(list(content).iter().filter_map(block)).collect()
}

fn text_block(text: &Value) -> Option<Block> {
    text.as_str().map(|text| Block::Text { text: text.to_owned() })
}

fn call(id: &Value, name: &Value, input: Value) -> Block {
    let owned = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Block::ToolUse { id: owned(id), name: owned(name), input, extra: None }
}

fn result(id: &Value, content: &Value) -> Block {
    // Gemini's results are objects: a script matches the texts inside them.
    let text = if content.is_object() { strings(content).join("\n") } else { all_text(content) };
    Block::ToolResult {
        id: id.as_str().unwrap_or_default().to_owned(),
        content: vec![ResultPart::Text { text }],
        is_error: false,
    }
}

/// A string, or the texts of a list of parts.
fn all_text(content: &Value) -> String {
    match content.as_str() {
        Some(text) => text.to_owned(),
        None => joined(list(content).iter().filter_map(|part| part["text"].as_str().map(str::to_owned))),
    }
}

fn joined(texts: impl IntoIterator<Item = String>) -> String {
    texts.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n")
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(values) => values.iter().flat_map(strings).collect(),
        Value::Object(fields) => fields.values().flat_map(strings).collect(),
        Value::Null => Vec::new(),
        other => vec![other.to_string()],
    }
}
