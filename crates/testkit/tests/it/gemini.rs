//! Gemini on the wire.

use serde_json::{Value, json};
use testkit::script::StepUsage;
use testkit::{ModelServer, Protocol, StepExt, script, text, think};

use crate::raw::{post, prompt};

const USAGE: StepUsage = StepUsage { input: 3, output: 7, cache_read: 20, cache_write: 0 };

fn chunk(parts: Value, finish: Option<&str>) -> Value {
    let mut chunk = json!({"candidates": [{"content": {"parts": parts, "role": "model"}}],
        "usageMetadata": {"promptTokenCount": 23}, "modelVersion": "m", "responseId": "gemini-0001"});
    if let Some(finish) = finish {
        chunk["candidates"][0]["finishReason"] = finish.into();
        chunk["usageMetadata"]["candidatesTokenCount"] = 7.into();
    }
    chunk["candidates"][0]["index"] = 0.into();
    chunk["usageMetadata"]["totalTokenCount"] = if finish.is_some() { 30 } else { 23 }.into();
    chunk["usageMetadata"]["cachedContentTokenCount"] = 20.into();
    chunk["usageMetadata"]["promptTokensDetails"] = json!([{"modality": "TEXT", "tokenCount": 23}]);
    chunk
}

#[test]
fn a_stream_has_every_chunk_in_order() {
    let step =
        think("hm").and_text("Hello").and_tool("A", json!({"x": 1})).and_tool("B", json!({})).call_id("b");
    let server = ModelServer::start(script![step.costs_cached(USAGE)]);
    let answer = prompt(&server, Protocol::Gemini, "hi");
    let expected: String = [
        chunk(json!([{"text": "h", "thought": true}]), None),
        chunk(json!([{"text": "m", "thought": true}]), None),
        chunk(json!([{"text": "Hello"}]), None),
        chunk(
            json!([{"functionCall": {"name": "A", "args": {"x": 1}},
                "thoughtSignature": "EqQBCkYICxgCKkDseal0001=="}]),
            None,
        ),
        chunk(json!([{"functionCall": {"name": "B", "args": {}, "id": "b"}}]), None),
        chunk(json!([{"text": ""}]), Some("STOP")),
    ]
    .iter()
    .map(|chunk| format!("data: {chunk}\r\n\r\n"))
    .collect();
    assert_eq!((answer.status, answer.complete, answer.body), (200, true, expected));
    server.assert_drained();
}

#[test]
fn without_stream_the_answer_is_one_document_and_without_sse_a_list() {
    let server = ModelServer::start(script![text("Hello").costs_cached(USAGE).forever()]);
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    let whole = post(&server, "/v1beta/models/m:generateContent", &body).json();
    let list = post(&server, "/v1beta/models/m:streamGenerateContent", &body).json();
    let mut expected = chunk(json!([{"text": "Hello"}]), Some("STOP"));
    assert_eq!(whole, expected);
    expected["responseId"] = "gemini-0002".into();
    assert_eq!(list, json!([expected]));
}

#[test]
fn arguments_that_are_no_json_are_a_malformed_call() {
    let server = ModelServer::start(script![text("x").and_broken_tool("A", "{oops").costs_cached(USAGE)]);
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}]});
    assert_eq!(
        post(&server, "/v1beta/models/m:generateContent", &body).json(),
        chunk(json!([{"text": "x"}]), Some("MALFORMED_FUNCTION_CALL"))
    );
}

#[test]
fn function_responses_go_through_the_script_and_must_be_complete() {
    let server = ModelServer::start(script![text("done").on("the result")]);
    let mut body = json!({"systemInstruction": {"parts": [{"text": "s"}]}, "contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "A", "args": {}}}]},
        {"role": "user", "parts": [{"text": "and?"}]}]});
    let unanswered = post(&server, "/v1beta/models/m:generateContent", &body).json();
    body["contents"][2]["parts"] =
        json!([{"functionResponse": {"name": "A", "response": {"output": "the result"}}}]);
    let answered = post(&server, "/v1beta/models/m:generateContent", &body).json();
    assert_eq!(
        unanswered,
        json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "Please ensure that the number of \
            function response parts is equal to the number of function call parts of the function call turn."}})
    );
    assert_eq!(answered["candidates"][0]["content"]["parts"], json!([{"text": "done"}]));
}
