//! Servers that refuse a part of a request, or do not stream, still answer.

use caliban_core::message::{Block, Message, ResultPart, Role, StopReason};
use caliban_providers::{ModelRequest, ProviderKind, build};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::server::{Answer, Server, ask, config, request, shorts, tools};

const JSON: &str = "content-type: application/json\r\n";

fn refusal(words: &str) -> Answer {
    let body = json!({"error": {"type": "invalid_request_error", "message": words}});
    Answer::Status(400, JSON, body.to_string())
}

fn bodies(server: &Server) -> Vec<Value> {
    server.bodies().iter().map(|body| serde_json::from_str(body).unwrap()).collect()
}

#[tokio::test]
async fn what_is_refused_by_name_is_left_out_and_stays_out() {
    for (kind, wire, words, pointer) in [
        (ProviderKind::OpenAi, 1, "Unknown parameter: 'prompt_cache_key'.", "/prompt_cache_key"),
        (
            ProviderKind::OpenAi,
            1,
            "Your organization must be verified to generate reasoning summaries.",
            "/reasoning/summary",
        ),
        (ProviderKind::OpenAi, 1, "Encrypted content is not supported: encrypted_content", "/include"),
        (
            ProviderKind::OpenAiChat,
            2,
            "body.stream_options: Extra inputs are not permitted",
            "/stream_options",
        ),
        (ProviderKind::Anthropic, 0, "thinking.display: Extra inputs are not permitted", "/thinking/display"),
        (ProviderKind::Anthropic, 0, "adaptive thinking is not supported on this model", "/thinking"),
    ] {
        let model = if kind == ProviderKind::Anthropic { "claude-opus-5-5" } else { "gpt-5.5" };
        let server = Server::start(vec![refusal(words), Answer::Stream(shorts()[wire].whole.clone())]).await;
        let provider = build(config(kind, &server.url)).unwrap();
        let messages = [Message::user("hi")];
        for _ in 0..2 {
            let cancel = CancellationToken::new();
            let reply = provider.respond(request(model, &messages), &mut |_| {}, &cancel).await.unwrap();
            assert_eq!(reply.message.text(), "ok", "{words}");
        }
        let bodies = bodies(&server);
        let has: Vec<bool> = bodies.iter().map(|body| body.pointer(pointer).is_some()).collect();
        assert_eq!(has, [true, false, false], "{words}");
    }
}

#[tokio::test]
async fn a_refusal_that_names_nothing_optional_is_final() {
    let server = Server::start(vec![refusal("the moon is in the wrong house")]).await;
    let messages = [Message::user("hi")];
    let (answered, _) = ask(config(ProviderKind::OpenAi, &server.url), request("gpt-5.5", &messages)).await;
    assert!(answered.is_err());
    assert_eq!(server.bodies().len(), 1);
}

fn with_pictures() -> Vec<Message> {
    let picture = ResultPart::Image { media_type: "image/png".into(), data: "UkVTVUxU".into() };
    let call = Block::ToolUse { id: "c".into(), name: "Read".into(), input: json!({}), extra: None };
    vec![
        Message {
            role: Role::User,
            blocks: vec![
                Block::Text { text: "look".into() },
                Block::Image { media_type: "image/png".into(), data: "UFJPTVBU".into() },
            ],
        },
        Message { role: Role::Assistant, blocks: vec![call] },
        Message {
            role: Role::User,
            blocks: vec![Block::ToolResult { id: "c".into(), content: vec![picture], is_error: false }],
        },
    ]
}

#[tokio::test]
async fn a_picture_that_is_refused_becomes_words_and_one_that_was_taken_stays() {
    for (wire, short) in shorts().into_iter().enumerate() {
        let good = Answer::Stream(short.whole.clone());
        let bad = refusal("messages.2.content.0.image.source: image exceeds 5 MB maximum");
        let server = Server::start(vec![good.clone(), bad, good]).await;
        let provider = build(config(short.kind, &server.url)).unwrap();
        let (messages, tools, cancel) = (with_pictures(), tools(), CancellationToken::new());
        for end in [1, 3, 3] {
            let request = ModelRequest { tools: &tools, ..request("m", &messages[..end]) };
            provider.respond(request, &mut |_| {}, &cancel).await.unwrap();
        }
        let bodies = server.bodies();
        let has = |data: &str| bodies.iter().map(|body| body.contains(data)).collect::<Vec<_>>();
        assert_eq!(has("UFJPTVBU"), [true, true, true, true], "{wire}: the first was taken before");
        assert_eq!(has("UkVTVUxU"), [false, true, false, false], "{wire}");
        assert_eq!(has("a picture was here"), [false, false, true, true], "{wire}");
    }
}

#[tokio::test]
async fn an_answer_without_a_stream_is_an_answer() {
    let call = |arguments: Value| json!({"name": "Read", "arguments": arguments});
    let responses = json!({"object": "response", "status": "completed", "model": "m", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": "{\"a\":1}"}],
        "usage": {"input_tokens": 3, "output_tokens": 1}});
    let chat = json!({"model": "m", "choices": [{"finish_reason": "tool_calls", "message": {"role": "assistant",
        "content": "I look.", "tool_calls": [{"id": "c1", "type": "function", "function": call(json!("{\"a\":1}"))}]}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1}});
    let anthropic = json!({"type": "message", "model": "m", "content": [{"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "Read", "input": {"a": 1}}],
        "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 1}});
    let gemini = json!({"modelVersion": "m", "candidates": [{"finishReason": "STOP", "content": {"parts": [
        {"text": "I look."}, {"functionCall": {"name": "Read", "args": {"a": 1}}}]}}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 1}});
    for (kind, answer) in [
        (ProviderKind::OpenAi, responses),
        (ProviderKind::OpenAiChat, chat),
        (ProviderKind::Anthropic, anthropic),
        (ProviderKind::Gemini, gemini),
    ] {
        let server = Server::start(vec![Answer::Status(200, JSON, answer.to_string())]).await;
        let messages = [Message::user("hi")];
        let (answered, _) = ask(config(kind, &server.url), request("m", &messages)).await;
        let reply = answered.unwrap();
        assert_eq!((reply.message.text().as_str(), reply.usage.input), ("I look.", 3), "{kind}");
        assert_eq!(reply.stop, StopReason::ToolUse, "{kind}");
        let inputs: Vec<&Value> = reply.message.tool_uses().map(|(_, _, input)| input).collect();
        assert_eq!(inputs, [&json!({"a": 1})], "{kind}");
    }
}

#[tokio::test]
async fn a_server_that_refuses_to_stream_is_asked_without() {
    let whole = json!({"choices": [{"finish_reason": "stop", "message": {"content": "ok"}}]});
    let server = Server::start(vec![
        refusal("Unsupported value: 'stream' does not support true with this model."),
        Answer::Status(200, JSON, whole.to_string()),
    ])
    .await;
    let messages = [Message::user("hi")];
    let (answered, _) = ask(config(ProviderKind::OpenAiChat, &server.url), request("m", &messages)).await;
    assert_eq!(answered.unwrap().message.text(), "ok");
    let bodies = bodies(&server);
    assert_eq!((&bodies[0]["stream"], &bodies[1]["stream"]), (&json!(true), &json!(false)));
    assert_eq!(bodies[1].get("stream_options"), None);
}

#[tokio::test]
async fn a_response_that_is_not_complete_is_not_a_whole_answer() {
    let event = json!({"type": "response.incomplete", "response": {"status": "incomplete", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "half"}]}]}});
    let server = Server::start(vec![Answer::Stream(crate::server::named(&[event]))]).await;
    let messages = [Message::user("hi")];
    let (answered, _) = ask(config(ProviderKind::OpenAi, &server.url), request("m", &messages)).await;
    assert_eq!(answered.unwrap().stop, StopReason::Other("incomplete".into()));
}
