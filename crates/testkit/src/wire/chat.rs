//! OpenAI Chat Completions, as OpenAI and the many compatible servers implement it.
//!
//! Reasoning goes in `reasoning_content`, as in the compatible servers; OpenAI itself sends none.

use caliban_core::message::StopReason;
use serde_json::{Value, json};

use super::{CREATED, StreamPart, WireAnswer, WireRefusal, cached, data_event, halves, usual};

/// Number of characters of a long key that the service repeats, at each end.
const SHOWN_OF_KEY: usize = 4;

pub(super) fn error(refusal: &WireRefusal<'_>) -> Value {
    match refusal {
        WireRefusal::Status { status, message, .. } => {
            let (kind, code) = kind(*status);
            body(message.unwrap_or(usual(*status)), kind, code)
        }
        WireRefusal::WrongKey(key) => body(&wrong_key(key), "invalid_request_error", Some("invalid_api_key")),
        WireRefusal::UnknownModel(model) => body(
            &format!("The model `{model}` does not exist or you do not have access to it."),
            "invalid_request_error",
            Some("model_not_found"),
        ),
    }
}

pub(super) fn error_event(message: &str) -> String {
    data_event(&body(message, "server_error", None))
}

pub(super) fn stream(answer: &WireAnswer<'_>) -> Vec<StreamPart> {
    let with_usage = answer.asked["stream_options"]["include_usage"] == true;
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({"id": answer.id("chatcmpl-"), "object": "chat.completion.chunk", "created": CREATED,
            "model": answer.model, "service_tier": "default", "system_fingerprint": "fp_testkit",
            "choices": choices});
        if with_usage {
            chunk["usage"] = usage;
        }
        data_event(&chunk)
    };
    let delta = |delta: Value, finish: Value| {
        let choice = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        chunk(choice, Value::Null)
    };
    let begin = json!({"role": "assistant", "content": "", "refusal": null});
    let mut parts = vec![StreamPart::Frame(delta(begin, Value::Null))];
    for half in answer.thinking().map(halves).unwrap_or_default() {
        parts.push(StreamPart::Frame(delta(json!({"reasoning_content": half}), Value::Null)));
    }
    for piece in &answer.pieces {
        parts.push(StreamPart::Text(delta(json!({"content": piece}), Value::Null)));
    }
    for (index, (id, name, arguments)) in answer.calls.iter().enumerate() {
        let call = json!({"tool_calls": [{"index": index, "id": id, "type": "function",
            "function": {"name": name, "arguments": ""}}]});
        parts.push(StreamPart::Frame(delta(call, Value::Null)));
        for half in halves(arguments) {
            let more = json!({"tool_calls": [{"index": index, "function": {"arguments": half}}]});
            parts.push(StreamPart::Arguments(delta(more, Value::Null)));
        }
    }
    parts.push(StreamPart::End(delta(json!({}), finish(&answer.stop).into())));
    if with_usage {
        parts.push(StreamPart::End(chunk(json!([]), usage(answer))));
    }
    parts.push(StreamPart::End("data: [DONE]\n\n".to_owned()));
    parts
}

pub(super) fn whole(answer: &WireAnswer<'_>) -> Value {
    let content = if answer.text().is_empty() { Value::Null } else { answer.text().into() };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null, "annotations": []});
    if let Some(thought) = answer.thinking() {
        message["reasoning_content"] = thought.into();
    }
    if !answer.calls.is_empty() {
        let call = |(id, name, arguments): &(String, String, String)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        message["tool_calls"] = answer.calls.iter().map(call).collect();
    }
    json!({"id": answer.id("chatcmpl-"), "object": "chat.completion", "created": CREATED, "model": answer.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(&answer.stop)}],
        "usage": usage(answer), "service_tier": "default", "system_fingerprint": "fp_testkit"})
}

fn usage(answer: &WireAnswer<'_>) -> Value {
    let usage = answer.usage;
    json!({"prompt_tokens": usage.prompt(), "completion_tokens": usage.output, "total_tokens": usage.total(),
        "prompt_tokens_details": cached(usage),
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}})
}

fn finish(stop: &StopReason) -> &str {
    match stop {
        StopReason::EndTurn => "stop",
        StopReason::ToolUse => "tool_calls",
        StopReason::MaxTokens => "length",
        StopReason::Refusal(_) => "content_filter",
        StopReason::Other(word) => word,
    }
}

pub(super) fn body(message: &str, kind: &str, code: Option<&str>) -> Value {
    let param = if code == Some("model_not_found") { json!("model") } else { Value::Null };
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

pub(super) fn wrong_key(key: &str) -> String {
    if key.is_empty() {
        return "You didn't provide an API key. You need to provide your API key in an Authorization header \
            using Bearer auth (i.e. Authorization: Bearer YOUR_KEY)."
            .to_owned();
    }
    let chars: Vec<char> = key.chars().collect();
    let shown: String = match chars.len().checked_sub(2 * SHOWN_OF_KEY) {
        None | Some(0) => key.to_owned(),
        Some(hidden) => chars
            .iter()
            .enumerate()
            .map(|(n, c)| if (SHOWN_OF_KEY..SHOWN_OF_KEY + hidden).contains(&n) { '*' } else { *c })
            .collect(),
    };
    format!(
        "Incorrect API key provided: {shown}. You can find your API key at \
         https://platform.openai.com/account/api-keys."
    )
}

/// The type and code of a status.
pub(super) fn kind(status: u16) -> (&'static str, Option<&'static str>) {
    match status {
        401 => ("invalid_request_error", Some("invalid_api_key")),
        429 => ("requests", Some("rate_limit_exceeded")),
        400..=499 => ("invalid_request_error", None),
        _ => ("server_error", None),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn long_keys_are_masked() {
        let shown = |key: &str| super::wrong_key(key).split(['.', ':']).nth(1).unwrap().trim().to_owned();
        assert_eq!(
            [shown("bad"), shown("12345678"), shown("sk-abcdef1234")],
            ["bad", "12345678", "sk-a*****1234"]
        );
    }
}
