//! OpenAI Responses.

use caliban_core::message::StopReason;
use serde_json::{Value, json};

use super::{CREATED, StreamPart, WireAnswer, WireRefusal, cached, chat, halves, named_event, usual};

pub(super) fn error(refusal: &WireRefusal<'_>) -> Value {
    match refusal {
        WireRefusal::UnknownModel(model) => chat::body(
            &format!("The requested model '{model}' does not exist."),
            "invalid_request_error",
            Some("model_not_found"),
        ),
        WireRefusal::WrongKey(_) => chat::error(refusal),
        WireRefusal::Status { status, message, .. } => {
            let (kind, code) = chat::kind(*status);
            chat::body(message.unwrap_or(usual(*status)), kind, code)
        }
    }
}

/// The error and the end of the response; the API sends both.
pub(super) fn error_event(answer: &WireAnswer<'_>, message: &str) -> String {
    let fault = json!({"type": "server_error", "code": "server_error", "message": message, "param": null});
    let error = json!({"type": "error", "sequence_number": 0, "error": fault});
    let mut response = response(answer, "failed", json!([]), Value::Null);
    response["error"] = json!({"code": "server_error", "message": message});
    let failed = json!({"type": "response.failed", "sequence_number": 0, "response": response});
    named_event("error", &error) + &named_event("response.failed", &failed)
}

pub(super) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamPart> {
    let mut events = ResponsesEvents { sequence: 0, parts: Vec::new() };
    let begun = response(answer, "in_progress", json!([]), Value::Null);
    events.frame("response.created", json!({"response": begun}));
    events.frame("response.in_progress", json!({"response": begun}));
    let items = items(answer);
    for (index, item) in items.iter().enumerate() {
        let id = &item["id"];
        match item["type"].as_str() {
            Some("reasoning") => {
                let mut empty = item.clone();
                empty["summary"] = json!([]);
                events.frame("response.output_item.added", json!({"output_index": index, "item": empty}));
                summary(&mut events, id, index, answer.thinking().unwrap_or_default());
            }
            Some("message") => {
                let empty = json!({"id": id, "type": "message", "status": "in_progress", "content": [],
                    "role": "assistant"});
                events.frame("response.output_item.added", json!({"output_index": index, "item": empty}));
                text(&mut events, id, index, answer);
            }
            _ => {
                let mut empty = item.clone();
                empty["status"] = "in_progress".into();
                empty["arguments"] = "".into();
                events.frame("response.output_item.added", json!({"output_index": index, "item": empty}));
                arguments(&mut events, id, index, item["arguments"].as_str().unwrap_or_default());
            }
        }
        events.frame("response.output_item.done", json!({"output_index": index, "item": item}));
    }
    let (name, status) = ending(&answer.stop);
    let done = response(answer, status, items.into(), usage(answer));
    let end = events.event(name, json!({"response": done}));
    events.parts.push(StreamPart::End(end));
    events.parts
}

pub(super) fn whole(answer: &WireAnswer<'_>) -> Value {
    response(answer, ending(&answer.stop).1, items(answer).into(), usage(answer))
}

struct ResponsesEvents {
    sequence: u64,
    parts: Vec<StreamPart>,
}

impl ResponsesEvents {
    fn event(&mut self, name: &str, fields: Value) -> String {
        let mut event = json!({"type": name, "sequence_number": self.sequence});
        self.sequence += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        named_event(name, &event)
    }

    fn frame(&mut self, name: &str, fields: Value) {
        let event = self.event(name, fields);
        self.parts.push(StreamPart::Frame(event));
    }
}

fn summary(events: &mut ResponsesEvents, id: &Value, index: usize, thought: &str) {
    let at = |fields: Value| {
        let mut all = json!({"item_id": id, "output_index": index, "summary_index": 0});
        if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
            all.extend(fields);
        }
        all
    };
    let part = |text: &str| json!({"part": {"type": "summary_text", "text": text}});
    events.frame("response.reasoning_summary_part.added", at(part("")));
    for half in halves(thought) {
        events.frame("response.reasoning_summary_text.delta", at(json!({"delta": half})));
    }
    events.frame("response.reasoning_summary_text.done", at(json!({"text": thought})));
    events.frame("response.reasoning_summary_part.done", at(part(thought)));
}

fn text(events: &mut ResponsesEvents, id: &Value, index: usize, answer: &WireAnswer<'_>) {
    let at = |key: &str, value: Value| {
        let mut fields = json!({"item_id": id, "output_index": index, "content_index": 0});
        fields[key] = value;
        fields
    };
    events.frame("response.content_part.added", at("part", output_text("")));
    for piece in &answer.pieces {
        let mut fields = at("delta", piece.as_str().into());
        fields["logprobs"] = json!([]);
        let event = events.event("response.output_text.delta", fields);
        events.parts.push(StreamPart::Text(event));
    }
    let mut done = at("text", answer.text().into());
    done["logprobs"] = json!([]);
    events.frame("response.output_text.done", done);
    events.frame("response.content_part.done", at("part", output_text(answer.text())));
}

fn arguments(events: &mut ResponsesEvents, id: &Value, index: usize, arguments: &str) {
    for half in halves(arguments) {
        let fields = json!({"item_id": id, "output_index": index, "delta": half});
        let event = events.event("response.function_call_arguments.delta", fields);
        events.parts.push(StreamPart::Arguments(event));
    }
    let fields = json!({"item_id": id, "output_index": index, "arguments": arguments});
    events.frame("response.function_call_arguments.done", fields);
}

/// The finished items of the answer.
fn items(answer: &WireAnswer<'_>) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thought) = answer.thinking() {
        let mut item = json!({"id": answer.id("rs_"), "type": "reasoning",
            "summary": [{"type": "summary_text", "text": thought}]});
        let include = answer.asked["include"].as_array();
        if include.is_some_and(|include| include.contains(&json!("reasoning.encrypted_content"))) {
            item["encrypted_content"] = answer.seal().into();
        }
        items.push(item);
    }
    if !answer.pieces.is_empty() {
        items.push(json!({"id": answer.id("msg_"), "type": "message", "status": "completed",
            "content": [output_text(answer.text())], "role": "assistant"}));
    }
    for (number, (id, name, arguments)) in answer.calls.iter().enumerate() {
        items.push(json!({"id": format!("{}_{number}", answer.id("fc_")), "type": "function_call",
            "status": "completed", "arguments": arguments, "call_id": id, "name": name}));
    }
    items
}

fn output_text(text: &str) -> Value {
    json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text})
}

fn response(answer: &WireAnswer<'_>, status: &str, output: Value, usage: Value) -> Value {
    let asked = answer.asked;
    let or = |key: &str, default: Value| asked.get(key).cloned().unwrap_or(default);
    let incomplete = match (&answer.stop, status) {
        (StopReason::MaxTokens, "incomplete") => json!({"reason": "max_output_tokens"}),
        (_, "incomplete") => json!({"reason": "content_filter"}),
        _ => Value::Null,
    };
    json!({"id": answer.id("resp_"), "object": "response", "created_at": CREATED, "status": status,
        "background": false, "error": null, "incomplete_details": incomplete,
        "instructions": or("instructions", Value::Null), "max_output_tokens": or("max_output_tokens", Value::Null),
        "model": answer.model, "output": output, "parallel_tool_calls": or("parallel_tool_calls", true.into()),
        "previous_response_id": null, "prompt_cache_key": or("prompt_cache_key", Value::Null),
        "reasoning": or("reasoning", json!({"effort": null, "summary": null})), "service_tier": "default",
        "store": or("store", true.into()), "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": or("tool_choice", "auto".into()),
        "tools": or("tools", json!([])), "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null,
        "metadata": {}})
}

fn usage(answer: &WireAnswer<'_>) -> Value {
    let usage = answer.usage;
    json!({"input_tokens": usage.prompt(), "input_tokens_details": cached(usage),
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total()})
}

/// The closing event and the status: tool calls are "completed" here.
fn ending(stop: &StopReason) -> (&'static str, &'static str) {
    match stop {
        StopReason::EndTurn | StopReason::ToolUse | StopReason::Other(_) => {
            ("response.completed", "completed")
        }
        StopReason::MaxTokens | StopReason::Refusal(_) => ("response.incomplete", "incomplete"),
    }
}
