//! The product's own providers against the server: both sides were written apart, and must agree.

use caliban_core::message::{Block, Effort, Message, ResultPart, Role, StopReason, ToolSpec};
use caliban_core::usage::Usage;
use caliban_providers::{Config, Delta, ModelReply, ModelRequest, ProviderError, ProviderKind, build};
use serde_json::{Value, json};
use testkit::script::StepUsage;
use testkit::{ModelServer, Protocol, StepExt, script, text, think};
use tokio_util::sync::CancellationToken;

fn ask(
    server: &ModelServer,
    protocol: Protocol,
    messages: &[Message],
) -> (Result<ModelReply, ProviderError>, Vec<Delta>) {
    let key = server.envs(protocol).get(1).map(|(_, key)| key.clone());
    ask_with(server, protocol, key, messages)
}

fn ask_with(
    server: &ModelServer,
    protocol: Protocol,
    api_key: Option<String>,
    messages: &[Message],
) -> (Result<ModelReply, ProviderError>, Vec<Delta>) {
    let kind: ProviderKind = protocol.provider().parse().unwrap();
    let base_url = Some(server.envs(protocol)[0].1.clone());
    let config = Config { base_url, api_key, ..Config::new(kind) };
    let provider = build(config).unwrap();
    let tools = [ToolSpec {
        name: "Read".to_owned(),
        description: "Reads a file.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    }];
    let request = ModelRequest {
        model: "test-model",
        system: "Be good.",
        tools: &tools,
        calls: Default::default(),
        messages,
        max_output: None,
        effort: Effort::Default,
        session: "s",
    };
    let mut seen = Vec::new();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cancel = CancellationToken::new();
    let mut observe = |delta| seen.push(delta);
    let reply = runtime.block_on(provider.respond(request, &mut observe, &cancel));
    (reply, seen)
}

/// What is the same in every protocol: ids and the providers' own fields differ.
fn essence(message: &Message) -> Vec<Value> {
    let shown = |block: &Block| match block {
        Block::Text { text } => json!({"text": text}),
        Block::Thinking { text, .. } => json!({"thinking": text}),
        Block::ToolUse { name, input, .. } => json!({"call": name, "input": input}),
        Block::ToolResult { .. } | Block::Image { .. } => Value::Null,
    };
    message.blocks.iter().map(shown).collect()
}

#[test]
fn a_conversation_with_thinking_and_parallel_tools_holds_on_each_protocol() {
    for protocol in Protocol::ALL {
        let server = ModelServer::builder(script![
            think("Let me look.")
                .and_text("I read two files.")
                .in_chunks(3)
                .and_tool("Read", json!({"path": "a"}))
                .and_tool("Read", json!({"path": "ß"}))
                .costs_cached(StepUsage { input: 11, output: 22, cache_read: 33, cache_write: 0 }),
            text("Both are there.").on("content of ß").costs(5, 6),
        ])
        .frames_of(7)
        .start();
        let mut messages = vec![Message::user("what is in a and ß?")];
        let (first, deltas) = ask(&server, protocol, &messages);
        let first = first.unwrap();
        let usage = Usage { input: 11, output: 22, cache_read: 33, cache_write: 0 };
        assert_eq!(
            (essence(&first.message), first.usage, &first.stop),
            (
                vec![
                    json!({"thinking": "Let me look."}),
                    json!({"text": "I read two files."}),
                    json!({"call": "Read", "input": {"path": "a"}}),
                    json!({"call": "Read", "input": {"path": "ß"}}),
                ],
                usage,
                &StopReason::ToolUse
            ),
            "{protocol:?}"
        );
        let texts: Vec<&str> = deltas
            .iter()
            .filter_map(|delta| match delta {
                Delta::Text(text) => Some(text.as_str()),
                Delta::Thinking(_)
                | Delta::ToolUse { .. }
                | Delta::Usage(_)
                | Delta::Restart { .. }
                | Delta::Waiting { .. } => None,
            })
            .collect();
        assert_eq!(texts, ["I rea", "d two ", "files."], "{protocol:?}");

        let results = first.message.tool_uses().map(|(id, _, input)| Block::ToolResult {
            id: id.to_owned(),
            content: vec![ResultPart::Text {
                text: format!("content of {}", input["path"].as_str().unwrap()),
            }],
            is_error: false,
        });
        let results = Message { role: Role::User, blocks: results.collect() };
        messages.push(first.message);
        messages.push(results);
        let second = ask(&server, protocol, &messages).0.unwrap();
        assert_eq!(
            (essence(&second.message), second.usage, second.stop),
            (
                vec![json!({"text": "Both are there."})],
                Usage { input: 5, output: 6, ..Usage::default() },
                StopReason::EndTurn
            ),
            "{protocol:?}"
        );
        server.assert_drained();
    }
}

#[test]
fn a_cut_stream_is_tried_again_on_each_protocol() {
    for protocol in Protocol::ALL {
        let server = ModelServer::start(script![text("whole").in_chunks(2).cut(1)]);
        let (reply, _) = ask(&server, protocol, &[Message::user("hi")]);
        assert_eq!(essence(&reply.unwrap().message), [json!({"text": "whole"})], "{protocol:?}");
        assert_eq!(server.model_requests().len(), 2);
        server.assert_drained();
    }
}

#[test]
fn wrong_keys_and_unknown_models_are_final_on_each_protocol() {
    for protocol in [Protocol::Anthropic, Protocol::Responses, Protocol::Chat, Protocol::Gemini] {
        let server = ModelServer::builder(script![text("hi").forever()])
            .known_models(["other"])
            .require_key("good")
            .start();
        let prompt = [Message::user("hi")];
        let key = ask_with(&server, protocol, Some("bad".to_owned()), &prompt).0.unwrap_err().to_string();
        let model = ask(&server, protocol, &prompt).0.unwrap_err().to_string();
        println!("{protocol:?}: {key}\n{protocol:?}: {model}");
        assert!(key.contains("key") && model.contains("test-model"), "{protocol:?}: {key}; {model}");
        assert_eq!(server.model_requests().len(), 2, "{protocol:?}");
    }
}
