//! Anthropic Messages.

use caliban_core::message::StopReason;
use serde_json::{Value, json};

use super::{StreamPart, WireAnswer, WireRefusal, halves, named_event, usual};

pub(super) fn error(refusal: &WireRefusal<'_>) -> Value {
    match refusal {
        WireRefusal::Status { status, message, .. } => body(kind(*status), message.unwrap_or(usual(*status))),
        WireRefusal::WrongKey("") => body("authentication_error", "x-api-key header is required"),
        WireRefusal::WrongKey(_) => body("authentication_error", "invalid x-api-key"),
        WireRefusal::UnknownModel(model) => body("not_found_error", &format!("model: {model}")),
    }
}

pub(super) fn error_event(message: &str) -> String {
    named_event("error", &json!({"type": "error", "error": {"type": "overloaded_error", "message": message}}))
}

pub(super) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamPart> {
    let start = json!({"type": "message_start", "message": message(answer, json!([]), Value::Null, 1)});
    let mut parts = vec![StreamPart::Frame(named_event("message_start", &start))];
    let mut index = 0;
    let mut open = |parts: &mut Vec<StreamPart>, block: Value| {
        let start = json!({"type": "content_block_start", "index": index, "content_block": block});
        parts.push(StreamPart::Frame(named_event("content_block_start", &start)));
        if index == 0 {
            parts.push(StreamPart::Frame(named_event("ping", &json!({"type": "ping"}))));
        }
        index += 1;
        index - 1
    };
    if let Some(thought) = answer.thinking() {
        let index = open(&mut parts, json!({"type": "thinking", "thinking": "", "signature": ""}));
        for half in halves(thought) {
            parts.push(StreamPart::Frame(delta(index, json!({"type": "thinking_delta", "thinking": half}))));
        }
        let seal = json!({"type": "signature_delta", "signature": answer.seal()});
        parts.push(StreamPart::Frame(delta(index, seal)));
        parts.push(stop_block(index));
    }
    if !answer.pieces.is_empty() {
        let index = open(&mut parts, json!({"type": "text", "text": ""}));
        for piece in &answer.pieces {
            parts.push(StreamPart::Text(delta(index, json!({"type": "text_delta", "text": piece}))));
        }
        parts.push(stop_block(index));
    }
    for (id, name, arguments) in &answer.calls {
        let index = open(&mut parts, json!({"type": "tool_use", "id": id, "name": name, "input": {}}));
        parts.push(StreamPart::Frame(delta(index, json!({"type": "input_json_delta", "partial_json": ""}))));
        for half in halves(arguments) {
            let json = json!({"type": "input_json_delta", "partial_json": half});
            parts.push(StreamPart::Arguments(delta(index, json)));
        }
        parts.push(stop_block(index));
    }
    let end = json!({"type": "message_delta", "delta": {"stop_reason": stop(&answer.stop), "stop_sequence": null},
        "usage": {"input_tokens": answer.usage.input, "cache_creation_input_tokens": answer.usage.cache_write,
            "cache_read_input_tokens": answer.usage.cache_read, "output_tokens": answer.usage.output}});
    parts.push(StreamPart::End(named_event("message_delta", &end)));
    parts.push(StreamPart::End(named_event("message_stop", &json!({"type": "message_stop"}))));
    parts
}

pub(super) fn whole(answer: &WireAnswer<'_>) -> Value {
    let mut content = Vec::new();
    if let Some(thought) = answer.thinking() {
        content.push(json!({"type": "thinking", "thinking": thought, "signature": answer.seal()}));
    }
    if !answer.text().is_empty() {
        content.push(json!({"type": "text", "text": answer.text()}));
    }
    for (id, name, arguments) in &answer.calls {
        // Without a stream the API parses the arguments itself; those that it cannot parse it returns as text.
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| arguments.as_str().into());
        content.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    message(answer, content.into(), stop(&answer.stop).into(), answer.usage.output)
}

fn message(answer: &WireAnswer<'_>, content: Value, stop_reason: Value, output: u64) -> Value {
    let usage = answer.usage;
    json!({"id": answer.id("msg_"), "type": "message", "role": "assistant", "model": answer.model,
        "content": content, "stop_reason": stop_reason, "stop_sequence": null,
        "usage": {"input_tokens": usage.input, "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation": {"ephemeral_5m_input_tokens": usage.cache_write, "ephemeral_1h_input_tokens": 0},
            "output_tokens": output, "service_tier": "standard"}})
}

fn delta(index: usize, delta: Value) -> String {
    let event = json!({"type": "content_block_delta", "index": index, "delta": delta});
    named_event("content_block_delta", &event)
}

fn stop_block(index: usize) -> StreamPart {
    let stop = json!({"type": "content_block_stop", "index": index});
    StreamPart::Frame(named_event("content_block_stop", &stop))
}

fn stop(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn => "end_turn",
        StopReason::ToolUse => "tool_use",
        StopReason::MaxTokens => "max_tokens",
        StopReason::Refusal(_) => "refusal",
        StopReason::Other(word) => word,
    }
}

fn body(kind: &str, message: &str) -> Value {
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_testkit"})
}

fn kind(status: u16) -> &'static str {
    match status {
        400 | 422 => "invalid_request_error",
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        _ => "api_error",
    }
}
