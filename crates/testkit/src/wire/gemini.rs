//! Gemini. Its events end with CRLF, its calls arrive whole, and its ids are optional: a call has one only if the
//! script gives it.

use caliban_core::message::StopReason;
use serde_json::{Value, json};

use super::{StreamPart, WireAnswer, WireRefusal, halves, usual};

pub(super) fn error(refusal: &WireRefusal<'_>) -> Value {
    match refusal {
        WireRefusal::Status { status, message, retry_after } => {
            let mut error = body(*status, message.unwrap_or(usual(*status)), kind(*status));
            if let Some(seconds) = retry_after.filter(|value| value.bytes().all(|b| b.is_ascii_digit())) {
                error["error"]["details"] = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{seconds}s")}]);
            }
            error
        }
        WireRefusal::WrongKey(_) => {
            let message = "API key not valid. Please pass a valid API key.";
            let mut error = body(400, message, "INVALID_ARGUMENT");
            error["error"]["details"] = json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "API_KEY_INVALID", "domain": "googleapis.com",
                "metadata": {"service": "generativelanguage.googleapis.com"}}]);
            error
        }
        WireRefusal::UnknownModel(model) => body(
            404,
            &format!(
                "models/{model} is not found for API version v1beta, or is not supported for generateContent. \
                 Call ListModels to see the list of available models and their supported methods."
            ),
            "NOT_FOUND",
        ),
    }
}

pub(super) fn error_event(message: &str) -> String {
    event(&body(503, message, "UNAVAILABLE"))
}

pub(super) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamPart> {
    let mut parts = Vec::new();
    for half in answer.thinking().map(halves).unwrap_or_default() {
        parts.push(StreamPart::Frame(event(&chunk(answer, json!([{"text": half, "thought": true}]), None))));
    }
    for piece in &answer.pieces {
        parts.push(StreamPart::Text(event(&chunk(answer, json!([{"text": piece}]), None))));
    }
    for call in calls(answer) {
        parts.push(StreamPart::Arguments(event(&chunk(answer, json!([call]), None))));
    }
    parts.push(StreamPart::End(event(&chunk(answer, json!([{"text": ""}]), Some(finish(answer))))));
    parts
}

pub(super) fn whole(answer: &WireAnswer<'_>) -> Value {
    let mut parts = Vec::new();
    if let Some(thought) = answer.thinking() {
        parts.push(json!({"text": thought, "thought": true}));
    }
    if !answer.text().is_empty() {
        parts.push(json!({"text": answer.text()}));
    }
    parts.extend(calls(answer));
    chunk(answer, parts.into(), Some(finish(answer)))
}

/// The calls that Gemini can express: it never sends arguments that are not a JSON object.
fn calls(answer: &WireAnswer<'_>) -> Vec<Value> {
    let mut signed = false;
    let sayable = answer.calls.iter().zip(&answer.step.tool_calls).filter_map(|(call, scripted)| {
        let (_, name, arguments) = call;
        let args: Value = serde_json::from_str(arguments).ok().filter(Value::is_object)?;
        let mut part = json!({"functionCall": {"name": name, "args": args}});
        if let Some(id) = &scripted.id {
            part["functionCall"]["id"] = id.as_str().into();
        }
        // The first call of a turn carries the signature of the thinking before it.
        if !std::mem::replace(&mut signed, true) {
            part["thoughtSignature"] = answer.seal().into();
        }
        Some(part)
    });
    sayable.collect()
}

fn chunk(answer: &WireAnswer<'_>, parts: Value, finish: Option<&str>) -> Value {
    let usage = answer.usage;
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}});
    let mut counts = json!({"promptTokenCount": usage.prompt()});
    if let Some(finish) = finish {
        candidate["finishReason"] = finish.into();
        counts["candidatesTokenCount"] = usage.output.into();
    }
    candidate["index"] = 0.into();
    let said = if finish.is_some() { usage.total() } else { usage.prompt() };
    counts["totalTokenCount"] = said.into();
    if usage.cache_read > 0 {
        counts["cachedContentTokenCount"] = usage.cache_read.into();
    }
    counts["promptTokensDetails"] = json!([{"modality": "TEXT", "tokenCount": usage.prompt()}]);
    json!({"candidates": [candidate], "usageMetadata": counts, "modelVersion": answer.model,
        "responseId": answer.id("gemini-")})
}

fn finish<'a>(answer: &'a WireAnswer<'_>) -> &'a str {
    if calls(answer).len() < answer.calls.len() {
        return "MALFORMED_FUNCTION_CALL";
    }
    match &answer.stop {
        StopReason::EndTurn | StopReason::ToolUse => "STOP",
        StopReason::MaxTokens => "MAX_TOKENS",
        StopReason::Refusal(_) => "SAFETY",
        StopReason::Other(word) => word,
    }
}

fn event(data: &Value) -> String {
    format!("data: {data}\r\n\r\n")
}

fn body(status: u16, message: &str, kind: &str) -> Value {
    json!({"error": {"code": status, "message": message, "status": kind}})
}

fn kind(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}
