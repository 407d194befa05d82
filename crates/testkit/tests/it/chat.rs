//! OpenAI Chat Completions on the wire.

use serde_json::{Value, json};
use testkit::script::StepUsage;
use testkit::{ModelServer, StepExt, script, text, think, tools};

use crate::raw::post;

const USAGE: StepUsage = StepUsage { input: 3, output: 7, cache_read: 20, cache_write: 10 };

fn chunk(choices: &str, usage: &str) -> String {
    format!(
        "data: {{\"id\":\"chatcmpl-0001\",\"object\":\"chat.completion.chunk\",\"created\":1790000000,\"model\":\"m\",\
         \"service_tier\":\"default\",\"system_fingerprint\":\"fp_testkit\",\"choices\":{choices}{usage}}}\n\n"
    )
}

fn delta(delta: &str, finish: &str, usage: &str) -> String {
    chunk(&format!(r#"[{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}]"#), usage)
}

#[test]
fn a_stream_has_every_chunk_in_order_and_the_usage_that_was_asked_for() {
    let step = think("hm").and_text("Hello").and_tool("A", json!({"x": 1})).and_tool("B", json!({}));
    let server = ModelServer::start(script![step.costs_cached(USAGE)]);
    let body = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&server, "/v1/chat/completions", &body);
    let none = ",\"usage\":null";
    let expected = [
        delta(r#"{"role":"assistant","content":"","refusal":null}"#, "null", none),
        delta(r#"{"reasoning_content":"h"}"#, "null", none),
        delta(r#"{"reasoning_content":"m"}"#, "null", none),
        delta(r#"{"content":"Hello"}"#, "null", none),
        delta(
            r#"{"tool_calls":[{"index":0,"id":"call_0_0","type":"function","function":{"name":"A","arguments":""}}]}"#,
            "null",
            none,
        ),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"x"}}]}"#, "null", none),
        delta(r#"{"tool_calls":[{"index":0,"function":{"arguments":"\":1}"}}]}"#, "null", none),
        delta(
            r#"{"tool_calls":[{"index":1,"id":"call_0_1","type":"function","function":{"name":"B","arguments":""}}]}"#,
            "null",
            none,
        ),
        delta(r#"{"tool_calls":[{"index":1,"function":{"arguments":"{"}}]}"#, "null", none),
        delta(r#"{"tool_calls":[{"index":1,"function":{"arguments":"}"}}]}"#, "null", none),
        delta("{}", "\"tool_calls\"", none),
        chunk(
            "[]",
            ",\"usage\":{\"prompt_tokens\":33,\"completion_tokens\":7,\"total_tokens\":40,\
             \"prompt_tokens_details\":{\"cached_tokens\":20,\"cache_write_tokens\":10},\
             \"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,\
             \"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}",
        ),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    assert_eq!((answer.status, answer.complete, answer.body), (200, true, expected));
    server.assert_drained();
}

#[test]
fn usage_is_sent_only_when_asked_for() {
    let server = ModelServer::start(script![text("Hi")]);
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let expected = [
        delta(r#"{"role":"assistant","content":"","refusal":null}"#, "null", ""),
        delta(r#"{"content":"Hi"}"#, "null", ""),
        delta("{}", "\"stop\"", ""),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat();
    assert_eq!(post(&server, "/v1/chat/completions", &body).body, expected);
}

#[test]
fn without_stream_the_answer_is_one_document() {
    let server = ModelServer::start(script![tools([("A", json!({"x": 1}))]).costs_cached(USAGE)]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(
        post(&server, "/v1/chat/completions", &body).json(),
        json!({"id": "chatcmpl-0001", "object": "chat.completion", "created": 1_790_000_000, "model": "m",
            "choices": [{"index": 0, "logprobs": null, "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": null, "refusal": null, "annotations": [],
                    "tool_calls": [{"id": "call_0_0", "type": "function",
                        "function": {"name": "A", "arguments": "{\"x\":1}"}}]}}],
            "usage": {"prompt_tokens": 33, "completion_tokens": 7, "total_tokens": 40,
                "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 10},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0,
                    "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}},
            "service_tier": "default", "system_fingerprint": "fp_testkit"})
    );
}

#[test]
fn tool_messages_are_the_last_user_message_and_must_be_complete() {
    let server = ModelServer::start(script![text("done").on("second result")]);
    let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "A", "arguments": "{}"}});
    let result = |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let ask = |more: &[Value]| {
        let mut messages = vec![
            json!({"role": "system", "content": "s"}),
            json!({"role": "user", "content": "hi"}),
            json!({"role": "assistant", "content": null, "tool_calls": [call("a"), call("b")]}),
        ];
        messages.extend_from_slice(more);
        post(&server, "/v1/chat/completions", &json!({"model": "m", "messages": messages})).json()
    };
    let incomplete = ask(&[result("a", "first result")]);
    let complete = ask(&[result("a", "first result"), result("b", "second result")]);
    assert_eq!(
        incomplete["error"]["message"],
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
         'tool_call_id'. The following tool_call_ids did not have response messages: b"
    );
    assert_eq!(complete["choices"][0]["message"]["content"], "done");
}
