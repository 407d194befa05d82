//! Whole answers from recorded-style streams: blocks, calls, thinking, usage and stop reasons.

use caliban_core::{
    message::{Block, Message, Role, StopReason},
    usage::Usage,
};
use caliban_providers::{Delta, ModelReply, ProviderKind};
use serde_json::{Value, json};

use crate::server::{Answer, Server, ask, config, named, plain, request};

async fn answer(kind: ProviderKind, stream: String) -> (ModelReply, Vec<Delta>) {
    let server = Server::start(vec![Answer::Stream(stream)]).await;
    let (answered, seen) = ask(config(kind, &server.url), request("asked", &[Message::user("hi")])).await;
    (answered.unwrap(), seen)
}

fn text(text: &str) -> Block {
    Block::Text { text: text.into() }
}

fn thinking(provider: &str, text: &str, raw: Value) -> Block {
    Block::Thinking { text: text.into(), provider: provider.into(), raw }
}

fn call(id: &str, name: &str, input: Value) -> Block {
    Block::ToolUse { id: id.into(), name: name.into(), input, extra: None }
}

fn reply(blocks: Vec<Block>, usage: Usage, stop: StopReason) -> ModelReply {
    ModelReply { message: Message { role: Role::Assistant, blocks }, usage, stop, model: "m-1".into() }
}

fn tool(id: &str, name: &str) -> Delta {
    Delta::ToolUse { id: id.into(), name: name.into() }
}

/// The ids of the calls to which the server gave none.
fn made_ids(reply: &ModelReply) -> Vec<String> {
    let ids = reply.message.tool_uses().map(|(id, ..)| id.to_owned());
    ids.filter(|id| id.starts_with("call_")).collect()
}

#[tokio::test]
async fn anthropic() {
    let start = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta =
        |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let json_delta =
        |index: u64, part: &str| delta(index, json!({"type": "input_json_delta", "partial_json": part}));
    let redacted = json!({"type": "redacted_thinking", "data": "EmwK"});
    let usage = json!({"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30,
        "output_tokens": 1});
    let stream = named(&[
        json!({"type": "message_start", "message": {"id": "msg", "model": "m-1", "usage": usage}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, json!({"type": "thinking_delta", "thinking": "Hm, "})),
        delta(0, json!({"type": "thinking_delta", "thinking": "ähm"})),
        delta(0, json!({"type": "signature_delta", "signature": "Eq=="})),
        stop(0),
        start(1, redacted.clone()),
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        delta(2, json!({"type": "text_delta", "text": "I "})),
        delta(2, json!({"type": "text_delta", "text": "look"})),
        stop(2),
        start(3, json!({"type": "tool_use", "id": "t1", "name": "Read", "input": {}})),
        json_delta(3, ""),
        json_delta(3, "{\"path\": \"a"),
        json_delta(3, "/b\"}"),
        stop(3),
        start(4, json!({"type": "tool_use", "id": "t2", "name": "List", "input": {}})),
        stop(4),
        start(5, json!({"type": "tool_use", "id": "t3", "name": "Bash", "input": {}})),
        json_delta(5, "{\"command\": "),
        stop(5),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 77}}),
        json!({"type": "message_stop"}),
    ]);
    let (got, seen) = answer(ProviderKind::Anthropic, stream).await;
    let blocks = vec![
        thinking(
            "anthropic",
            "Hm, ähm",
            json!({"type": "thinking", "thinking": "Hm, ähm", "signature": "Eq=="}),
        ),
        thinking("anthropic", "", redacted),
        text("I look"),
        call("t1", "Read", json!({"path": "a/b"})),
        call("t2", "List", json!({})),
        call("t3", "Bash", json!("{\"command\": ")),
    ];
    let usage = Usage { input: 10, output: 77, cache_read: 30, cache_write: 20 };
    assert_eq!(got, reply(blocks, usage, StopReason::ToolUse));
    let expected = [
        Delta::Thinking("Hm, ".into()),
        Delta::Thinking("ähm".into()),
        Delta::Text("I ".into()),
        Delta::Text("look".into()),
        tool("t1", "Read"),
        tool("t2", "List"),
        tool("t3", "Bash"),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn anthropic_stop_reasons() {
    for (word, expected) in [
        ("end_turn", StopReason::EndTurn),
        ("stop_sequence", StopReason::EndTurn),
        ("max_tokens", StopReason::MaxTokens),
        ("refusal", StopReason::Refusal("refusal".into())),
        ("pause_turn", StopReason::Other("pause_turn".into())),
    ] {
        let stream = named(&[
            json!({"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 1}}}),
            json!({"type": "message_delta", "delta": {"stop_reason": word}, "usage": {}}),
            json!({"type": "message_stop"}),
        ]);
        assert_eq!(answer(ProviderKind::Anthropic, stream).await.0.stop, expected);
    }
}

#[tokio::test]
async fn openai_responses() {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAA",
        "summary": [{"type": "summary_text", "text": "**A**"}, {"type": "summary_text", "text": "B"}]});
    let message = json!({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "I look", "annotations": []}]});
    let function = |id: &str, call: &str, name: &str, arguments: &str| json!({"id": id, "type": "function_call", "call_id": call, "name": name, "arguments": arguments});
    let added = |index: u64, item: Value| json!({"type": "response.output_item.added", "output_index": index, "item": item});
    let done = |index: u64, item: &Value| json!({"type": "response.output_item.done", "output_index": index, "item": item});
    let delta = |kind: &str, index: u64, delta: &str| json!({"type": format!("response.{kind}.delta"), "output_index": index, "delta": delta});
    let usage = json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60}, "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 109});
    let stream = named(&[
        json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
        added(0, json!({"id": "rs_1", "type": "reasoning", "summary": []})),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 0}),
        delta("reasoning_summary_text", 0, "**A**"),
        json!({"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1}),
        delta("reasoning_summary_text", 0, "B"),
        done(0, &reasoning),
        added(1, json!({"id": "msg_1", "type": "message", "content": []})),
        delta("output_text", 1, "I "),
        delta("output_text", 1, "look"),
        done(1, &message),
        added(2, function("fc_1", "call_a", "Read", "")),
        added(3, function("fc_2", "call_b", "Bash", "")),
        delta("function_call_arguments", 2, "{\"path\":"),
        delta("function_call_arguments", 3, "{oops"),
        delta("function_call_arguments", 2, "\"x\"}"),
        done(2, &function("fc_1", "call_a", "Read", "{\"path\":\"x\"}")),
        // The second call is never repeated whole: its pieces count.
        json!({"type": "response.completed", "response": {"model": "m-1", "status": "completed", "usage": usage}}),
    ]);
    let (got, seen) = answer(ProviderKind::OpenAi, stream).await;
    let blocks = vec![
        thinking("openai", "**A**\n\nB", reasoning),
        text("I look"),
        call("call_a", "Read", json!({"path": "x"})),
        call("call_b", "Bash", json!("{oops")),
    ];
    let usage = Usage { input: 40, output: 9, cache_read: 60, cache_write: 0 };
    assert_eq!(got, reply(blocks, usage, StopReason::ToolUse));
    let expected = [
        Delta::Thinking("**A**".into()),
        Delta::Thinking("\n\n".into()),
        Delta::Thinking("B".into()),
        Delta::Text("I ".into()),
        Delta::Text("look".into()),
        tool("call_a", "Read"),
        tool("call_b", "Bash"),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn openai_responses_that_end_early() {
    let incomplete = |reason: &str| {
        named(&[
            json!({"type": "response.output_text.delta", "output_index": 0, "delta": "par"}),
            json!({"type": "response.incomplete", "response": {"model": "m-1", "incomplete_details": {"reason": reason},
                "usage": {"input_tokens": 1, "output_tokens": 2}}}),
        ])
    };
    let usage = Usage { input: 1, output: 2, ..Usage::default() };
    let (got, _) = answer(ProviderKind::OpenAi, incomplete("max_output_tokens")).await;
    assert_eq!(got, reply(vec![text("par")], usage, StopReason::MaxTokens));
    let (got, _) = answer(ProviderKind::OpenAi, incomplete("content_filter")).await;
    assert_eq!(got.stop, StopReason::Refusal("content_filter".into()));
    // A gateway that sends no pieces, only the whole at the end.
    let output = json!([{"type": "message", "content": [{"type": "output_text", "text": "all"}]}]);
    let whole = json!({"type": "response.completed", "response": {"model": "m-1", "output": output,
        "usage": {"input_tokens": 1, "output_tokens": 2}}});
    let (got, _) = answer(ProviderKind::OpenAi, named(&[whole])).await;
    assert_eq!(got, reply(vec![text("all")], usage, StopReason::EndTurn));
}

fn chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "x", "model": "m-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

#[tokio::test]
async fn chat_completions() {
    let tool_call = |index: u64, id: Value, name: Value, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        json!({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
    };
    let usage =
        json!({"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 20}});
    let stream = plain(&[
        chunk(json!({"role": "assistant", "content": ""}), Value::Null),
        chunk(json!({"reasoning_content": "H"}), Value::Null),
        chunk(json!({"reasoning_content": "m"}), Value::Null),
        chunk(json!({"content": "I "}), Value::Null),
        chunk(json!({"content": "look"}), Value::Null),
        chunk(tool_call(0, json!("c1"), json!("Read"), ""), Value::Null),
        chunk(tool_call(0, Value::Null, Value::Null, "{\"path\":"), Value::Null),
        chunk(tool_call(1, json!("c2"), json!("Bash"), "{oops"), Value::Null),
        chunk(tool_call(0, Value::Null, Value::Null, "\"x\"}"), Value::Null),
        chunk(json!({}), json!("tool_calls")),
        json!({"id": "x", "model": "m-1", "choices": [], "usage": usage}),
    ]) + "data: [DONE]\n\n";
    let (got, seen) = answer(ProviderKind::OpenAiChat, stream).await;
    let blocks = vec![
        thinking("openai-chat", "Hm", json!({"reasoning_content": "Hm"})),
        text("I look"),
        call("c1", "Read", json!({"path": "x"})),
        call("c2", "Bash", json!("{oops")),
    ];
    let usage = Usage { input: 30, output: 7, cache_read: 20, cache_write: 0 };
    assert_eq!(got, reply(blocks, usage, StopReason::ToolUse));
    let expected = [
        Delta::Thinking("H".into()),
        Delta::Thinking("m".into()),
        Delta::Text("I ".into()),
        Delta::Text("look".into()),
        tool("c1", "Read"),
        tool("c2", "Bash"),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn chat_servers_that_are_loose_with_indices_ids_and_words() {
    // Whole calls, all with index 0, one without an id; "stop" although tools were called; no usage.
    let whole = |id: Value, name: &str| json!({"tool_calls": [{"index": 0, "id": id, "function": {"name": name, "arguments": "{\"a\":1}"}}]});
    let no_index = |id: Value, name: &str| json!({"tool_calls": [{"id": id, "function": {"name": name, "arguments": {"b": 2}}}]});
    let stream = plain(&[
        chunk(whole(json!("x"), "A"), Value::Null),
        chunk(whole(json!("y"), "B"), Value::Null),
        chunk(no_index(Value::Null, "C"), Value::Null),
        chunk(no_index(Value::Null, "D"), json!("stop")),
    ]);
    let (got, _) = answer(ProviderKind::Ollama, stream.clone()).await;
    let made = made_ids(&got);
    let [c, d] = &made[..] else { panic!("{made:?}") };
    let blocks = vec![
        call("x", "A", json!({"a": 1})),
        call("y", "B", json!({"a": 1})),
        call(c, "C", json!({"b": 2})),
        call(d, "D", json!({"b": 2})),
    ];
    // The same request once more, as it may be after a compaction: other ids.
    let (again, _) = answer(ProviderKind::Ollama, stream).await;
    let all: std::collections::BTreeSet<String> = made.iter().cloned().chain(made_ids(&again)).collect();
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!((&got.message.blocks, &got.stop), (&blocks, &StopReason::ToolUse));
    assert!(got.usage.input > 0 && got.usage.output > 0, "an estimate: {:?}", got.usage);
}

#[tokio::test]
async fn openrouter_reasoning_goes_back_as_it_came() {
    let detail = |text: &str| json!({"type": "reasoning.text", "text": text, "format": "f", "index": 0});
    let signed = json!({"type": "reasoning.text", "signature": "sig", "index": 0});
    let stream = plain(&[
        chunk(json!({"reasoning": "H", "reasoning_details": [detail("H")]}), Value::Null),
        chunk(json!({"reasoning": "m", "reasoning_details": [detail("m")]}), Value::Null),
        chunk(json!({"reasoning_details": [signed]}), Value::Null),
        chunk(json!({"content": "ok"}), json!("stop")),
        json!({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3}}}),
    ]);
    let (got, _) = answer(ProviderKind::OpenRouter, stream).await;
    let raw = json!({"reasoning_details": [
        {"type": "reasoning.text", "text": "Hm", "format": "f", "index": 0, "signature": "sig"}]});
    let usage = Usage { input: 2, output: 1, cache_read: 4, cache_write: 3 };
    assert_eq!(got, reply(vec![thinking("openrouter", "Hm", raw), text("ok")], usage, StopReason::EndTurn));
}

#[tokio::test]
async fn gemini() {
    let parts = |parts: Value| json!({"candidates": [{"content": {"parts": parts, "role": "model"}}], "modelVersion": "m-1"});
    let stream = plain(&[
        parts(json!([{"text": "H", "thought": true}])),
        parts(json!([{"text": "m", "thought": true}])),
        parts(json!([{"text": "I "}])),
        parts(json!([{"text": "look", "thoughtSignature": "s0"}])),
        parts(json!([
            {"functionCall": {"name": "Read", "args": {"path": "x"}, "id": "own"}, "thoughtSignature": "s1"},
            {"functionCall": {"name": "List"}}
        ])),
        json!({"candidates": [{"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 50, "cachedContentTokenCount": 20, "candidatesTokenCount": 7,
                "thoughtsTokenCount": 3, "totalTokenCount": 60}}),
    ]);
    let (got, seen) = answer(ProviderKind::Gemini, stream).await;
    let made = made_ids(&got);
    let [made] = &made[..] else { panic!("{made:?}") };
    let signed = Block::ToolUse {
        id: "own".into(),
        name: "Read".into(),
        input: json!({"path": "x"}),
        extra: Some(json!({"id": "own", "thoughtSignature": "s1"})),
    };
    let blocks = vec![
        thinking("gemini", "Hm", json!({"text": "Hm", "thought": true})),
        text("I look"),
        thinking("gemini", "", json!({"text": "", "thoughtSignature": "s0"})),
        signed,
        call(made, "List", json!({})),
    ];
    let usage = Usage { input: 30, output: 10, cache_read: 20, cache_write: 0 };
    assert_eq!(got, reply(blocks, usage, StopReason::ToolUse));
    let expected = [
        Delta::Thinking("H".into()),
        Delta::Thinking("m".into()),
        Delta::Text("I ".into()),
        Delta::Text("look".into()),
        tool("own", "Read"),
        tool(made, "List"),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn gemini_that_is_blocked_refuses() {
    let stream = plain(&[json!({"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m-1",
        "usageMetadata": {"promptTokenCount": 5}})]);
    let (got, _) = answer(ProviderKind::Gemini, stream).await;
    let usage = Usage { input: 5, ..Usage::default() };
    assert_eq!(got, reply(vec![], usage, StopReason::Refusal("SAFETY".into())));
}
