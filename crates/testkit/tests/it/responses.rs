//! OpenAI Responses on the wire.

use serde_json::{Value, json};
use testkit::script::{ScriptStop, StepUsage};
use testkit::{ModelServer, StepExt, script, text, think};

use crate::raw::post;

const USAGE: StepUsage = StepUsage { input: 3, output: 7, cache_read: 20, cache_write: 10 };

fn response(status: &str, incomplete: Value, output: Value, usage: Value) -> Value {
    json!({"id": "resp_0001", "object": "response", "created_at": 1_790_000_000, "status": status,
        "background": false, "error": null, "incomplete_details": incomplete, "instructions": "be good",
        "max_output_tokens": null, "model": "m", "output": output, "parallel_tool_calls": true,
        "previous_response_id": null, "prompt_cache_key": null, "reasoning": {"effort": null, "summary": null},
        "service_tier": "default", "store": false, "temperature": 1.0,
        "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto", "tools": [],
        "top_p": 1.0, "truncation": "disabled", "usage": usage, "user": null, "metadata": {}})
}

fn usage() -> Value {
    json!({"input_tokens": 33, "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 10}, "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 40})
}

fn request() -> Value {
    json!({"model": "m", "stream": true, "store": false, "instructions": "be good",
        "include": ["reasoning.encrypted_content"],
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]})
}

#[test]
fn a_stream_has_every_event_in_order() {
    let step = think("hm").and_text("Hello").in_chunks(2).and_tool("Read", json!({"path": "a"}));
    let server = ModelServer::start(script![step.costs_cached(USAGE)]);
    let answer = post(&server, "/v1/responses", &request());

    let part = |text: &str| json!({"type": "output_text", "annotations": [], "logprobs": [], "text": text});
    let reasoning = json!({"id": "rs_0001", "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "EqQBCkYICxgCKkDseal0001=="});
    let mut unthought = reasoning.clone();
    unthought["summary"] = json!([]);
    let message = json!({"id": "msg_0001", "type": "message", "status": "completed", "content": [part("Hello")],
        "role": "assistant"});
    let call = json!({"id": "fc_0001_0", "type": "function_call", "status": "completed",
        "arguments": "{\"path\":\"a\"}", "call_id": "call_0_0", "name": "Read"});
    let begun = response("in_progress", Value::Null, json!([]), Value::Null);
    let done = response("completed", Value::Null, json!([reasoning, message, call]), usage());
    let events = [
        ("response.created", json!({"response": begun})),
        ("response.in_progress", json!({"response": begun})),
        ("response.output_item.added", json!({"output_index": 0, "item": unthought})),
        (
            "response.reasoning_summary_part.added",
            json!({"item_id": "rs_0001", "output_index": 0, "summary_index": 0,
            "part": {"type": "summary_text", "text": ""}}),
        ),
        (
            "response.reasoning_summary_text.delta",
            json!({"item_id": "rs_0001", "output_index": 0,
            "summary_index": 0, "delta": "h"}),
        ),
        (
            "response.reasoning_summary_text.delta",
            json!({"item_id": "rs_0001", "output_index": 0,
            "summary_index": 0, "delta": "m"}),
        ),
        (
            "response.reasoning_summary_text.done",
            json!({"item_id": "rs_0001", "output_index": 0,
            "summary_index": 0, "text": "hm"}),
        ),
        (
            "response.reasoning_summary_part.done",
            json!({"item_id": "rs_0001", "output_index": 0, "summary_index": 0,
            "part": {"type": "summary_text", "text": "hm"}}),
        ),
        ("response.output_item.done", json!({"output_index": 0, "item": reasoning})),
        (
            "response.output_item.added",
            json!({"output_index": 1, "item": {"id": "msg_0001", "type": "message",
            "status": "in_progress", "content": [], "role": "assistant"}}),
        ),
        (
            "response.content_part.added",
            json!({"item_id": "msg_0001", "output_index": 1, "content_index": 0,
            "part": part("")}),
        ),
        (
            "response.output_text.delta",
            json!({"item_id": "msg_0001", "output_index": 1, "content_index": 0,
            "delta": "He", "logprobs": []}),
        ),
        (
            "response.output_text.delta",
            json!({"item_id": "msg_0001", "output_index": 1, "content_index": 0,
            "delta": "llo", "logprobs": []}),
        ),
        (
            "response.output_text.done",
            json!({"item_id": "msg_0001", "output_index": 1, "content_index": 0,
            "text": "Hello", "logprobs": []}),
        ),
        (
            "response.content_part.done",
            json!({"item_id": "msg_0001", "output_index": 1, "content_index": 0,
            "part": part("Hello")}),
        ),
        ("response.output_item.done", json!({"output_index": 1, "item": message})),
        (
            "response.output_item.added",
            json!({"output_index": 2, "item": {"id": "fc_0001_0", "type": "function_call",
            "status": "in_progress", "arguments": "", "call_id": "call_0_0", "name": "Read"}}),
        ),
        (
            "response.function_call_arguments.delta",
            json!({"item_id": "fc_0001_0", "output_index": 2,
            "delta": "{\"path"}),
        ),
        (
            "response.function_call_arguments.delta",
            json!({"item_id": "fc_0001_0", "output_index": 2,
            "delta": "\":\"a\"}"}),
        ),
        (
            "response.function_call_arguments.done",
            json!({"item_id": "fc_0001_0", "output_index": 2,
            "arguments": "{\"path\":\"a\"}"}),
        ),
        ("response.output_item.done", json!({"output_index": 2, "item": call})),
        ("response.completed", json!({"response": done})),
    ];
    let expected: String = events
        .into_iter()
        .enumerate()
        .map(|(number, (name, fields))| {
            let mut event = json!({"type": name, "sequence_number": number});
            event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            format!("event: {name}\ndata: {event}\n\n")
        })
        .collect();
    assert_eq!((answer.status, answer.complete, answer.body), (200, true, expected));
    server.assert_drained();
}

#[test]
fn the_output_limit_makes_the_response_incomplete() {
    let server =
        ModelServer::start(script![text("Hello").stopping(ScriptStop::MaxTokens).costs_cached(USAGE)]);
    let mut body = request();
    body["stream"] = false.into();
    let message = json!({"id": "msg_0001", "type": "message", "status": "completed", "role": "assistant",
        "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Hello"}]});
    let reason = json!({"reason": "max_output_tokens"});
    assert_eq!(
        post(&server, "/v1/responses", &body).json(),
        response("incomplete", reason, json!([message]), usage())
    );
}

#[test]
fn calls_and_their_outputs_go_through_the_script() {
    let server =
        ModelServer::start(script![text("done").on("the result").when(testkit::script::StepCondition {
            turn: Some(1),
            system_contains: Some("be good".into()),
            first_prompt_contains: Some("hi".into()),
            ..testkit::script::StepCondition::default()
        })]);
    let mut body = request();
    body["stream"] = false.into();
    let input = body["input"].as_array_mut().unwrap();
    input.push(json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}));
    input.push(json!({"type": "function_call", "call_id": "c1", "name": "A", "arguments": "{}"}));
    let unanswered = post(&server, "/v1/responses", &body).json();
    let output = json!({"type": "function_call_output", "call_id": "c1", "output": "the result"});
    body["input"].as_array_mut().unwrap().push(output);
    let answered = post(&server, "/v1/responses", &body).json();
    assert_eq!(unanswered["error"]["message"], "No tool output found for function call c1.");
    assert_eq!(answered["output"][0]["content"][0]["text"], "done");
}
