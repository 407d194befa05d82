//! Anthropic Messages on the wire.

use serde_json::json;
use testkit::script::StepUsage;
use testkit::{ModelServer, Protocol, StepExt, script, text, think, tool};

use crate::raw::{post, prompt};

const USAGE: StepUsage = StepUsage { input: 3, output: 7, cache_read: 20, cache_write: 10 };

#[test]
fn a_stream_has_every_event_in_order() {
    let step = think("hm!").and_text("Hello you").in_chunks(2).and_tool("Read", json!({"path": "a"}));
    let server = ModelServer::start(script![step.costs_cached(USAGE)]);
    let answer = prompt(&server, Protocol::Anthropic, "hi");
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let expected = concat!(
        "event: message_start\n",
        r#"data: {"type":"message_start","message":{"id":"msg_0001","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":3,"cache_creation_input_tokens":10,"cache_read_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}}}"#,
        "\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
        "\n\nevent: ping\n",
        r#"data: {"type":"ping"}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"h"}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"m!"}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBCkYICxgCKkDseal0001=="}}"#,
        "\n\nevent: content_block_stop\n",
        r#"data: {"type":"content_block_stop","index":0}"#,
        "\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hell"}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"o you"}}"#,
        "\n\nevent: content_block_stop\n",
        r#"data: {"type":"content_block_stop","index":1}"#,
        "\n\nevent: content_block_start\n",
        r#"data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_0_0","name":"Read","input":{}}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"path"}}"#,
        "\n\nevent: content_block_delta\n",
        r#"data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\":\"a\"}"}}"#,
        "\n\nevent: content_block_stop\n",
        r#"data: {"type":"content_block_stop","index":2}"#,
        "\n\nevent: message_delta\n",
        r#"data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":3,"cache_creation_input_tokens":10,"cache_read_input_tokens":20,"output_tokens":7}}"#,
        "\n\nevent: message_stop\n",
        r#"data: {"type":"message_stop"}"#,
        "\n\n",
    );
    assert_eq!((answer.status, answer.complete, answer.body.as_str()), (200, true, expected));
    server.assert_drained();
}

#[test]
fn without_stream_the_answer_is_one_document() {
    let step = think("hm").and_text("Hello").and_tool("Read", json!({"path": "a"})).costs_cached(USAGE);
    let server = ModelServer::start(script![step]);
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    let answer = post(&server, "/v1/messages?beta=true", &body);
    assert_eq!(
        answer.json(),
        json!({"id": "msg_0001", "type": "message", "role": "assistant", "model": "m",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "EqQBCkYICxgCKkDseal0001=="},
                {"type": "text", "text": "Hello"},
                {"type": "tool_use", "id": "call_0_0", "name": "Read", "input": {"path": "a"}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 3, "cache_creation_input_tokens": 10, "cache_read_input_tokens": 20,
                "cache_creation": {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 7, "service_tier": "standard"}})
    );
}

#[test]
fn tokens_are_counted() {
    let server = ModelServer::start(script![]);
    let body = json!({"model": "m", "system": "1234", "messages": [{"role": "user", "content": "5678"}]});
    assert_eq!(post(&server, "/v1/messages/count_tokens", &body).json(), json!({"input_tokens": 2}));
}

#[test]
fn a_conversation_with_tool_results_goes_through_the_script() {
    let server = ModelServer::start(script![
        tool("Read", json!({"path": "a"})).call_id("toolu_1"),
        text("It says so.").on("content of a"),
    ]);
    let ask = json!({"role": "user", "content": [{"type": "text", "text": "read a"}]});
    let body = |messages| {
        json!({"model": "m", "max_tokens": 9, "system": [{"type": "text", "text": "s"}],
        "messages": messages})
    };
    let first = post(&server, "/v1/messages", &body(json!([ask]))).json();
    let result = json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "the content of a"}]}]});
    let said = json!({"role": "assistant", "content": first["content"]});
    let second = post(&server, "/v1/messages", &body(json!([ask, said, result]))).json();
    assert_eq!(
        first["content"],
        json!([{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "a"}}])
    );
    assert_eq!(second["content"], json!([{"type": "text", "text": "It says so."}]));
    server.assert_drained();
}

#[test]
fn what_the_real_service_refuses_is_refused() {
    let server = ModelServer::start(script![text("hi").forever()]);
    let refused = |body| {
        let answer = post(&server, "/v1/messages", &body);
        (answer.status, answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let call =
        json!({"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "A", "input": {}}]});
    let user = |content| json!({"role": "user", "content": content});
    let body = |messages| json!({"model": "m", "max_tokens": 9, "messages": messages});
    let mark = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    let got = [
        refused(json!({"model": "m", "messages": [user(json!("hi"))]})),
        refused(body(json!([]))),
        refused(body(json!([user(json!(""))]))),
        refused(body(json!([user(json!("hi")), call, user(json!("and?"))]))),
        refused(body(json!([user(json!([{"type": "tool_result", "tool_use_id": "t9", "content": "x"}]))]))),
        refused(body(json!([user(json!([mark, mark, mark, mark, mark]))]))),
        refused(body(json!([user(json!("fine"))]))),
    ];
    let words = |status: u16, words: &str| (status, words.to_owned());
    assert_eq!(
        got,
        [
            words(400, "max_tokens: Field required"),
            words(400, "messages: at least one message is required"),
            words(400, "messages: text content blocks must be non-empty"),
            words(
                400,
                "messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: t1. Each \
                 `tool_use` block must have a corresponding `tool_result` block in the next message."
            ),
            words(
                400,
                "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: t9. Each \
                 `tool_result` block must have a corresponding `tool_use` block in the previous message."
            ),
            words(400, "A maximum of 4 blocks with cache_control may be provided. Found 5."),
            words(200, ""),
        ]
    );
}
