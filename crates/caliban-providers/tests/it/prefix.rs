//! The prefix of a conversation is byte-identical from turn to turn: that is what caches live on.

use caliban_core::message::{Block, Message, ResultPart, Role};
use caliban_providers::{ModelRequest, ProviderKind, build};
use tokio_util::sync::CancellationToken;

use crate::server::{Answer, Server, config, request, shorts, tools};

/// The mark moves with the conversation; the provider does not count it as part of the prompt.
const CACHE_MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;

#[tokio::test]
async fn each_request_begins_with_the_one_before() {
    for short in shorts() {
        let server = Server::start(vec![Answer::Stream(short.whole.clone())]).await;
        let provider = build(config(short.kind, &server.url)).unwrap();
        let tools = tools();
        let mut messages = vec![Message::user("first")];
        for turn in 0..4 {
            let request = ModelRequest { tools: &tools, ..request("claude-sonnet-4-6", &messages) };
            let reply = provider.respond(request, &mut |_| {}, &CancellationToken::new()).await.unwrap();
            messages.push(reply.message);
            if let Some(Message { blocks, .. }) = messages.last_mut() {
                let input = serde_json::json!({"z": turn, "a": "ä"});
                blocks.push(Block::ToolUse {
                    id: format!("c{turn}"),
                    name: "Read".into(),
                    input,
                    extra: None,
                });
            }
            let content = vec![ResultPart::Text { text: format!("result {turn}") }];
            let result = Block::ToolResult { id: format!("c{turn}"), content, is_error: turn == 2 };
            messages.push(Message { role: Role::User, blocks: vec![result] });
        }
        let bodies: Vec<String> = server.bodies().iter().map(|body| body.replace(CACHE_MARK, "")).collect();
        assert_eq!(bodies.len(), 4);
        for pair in bodies.windows(2) {
            let before = pair[0].strip_suffix("]}").expect("the messages come last");
            assert!(
                pair[1].starts_with(before),
                "{}: {} is not the beginning of {}",
                short.kind,
                before,
                pair[1]
            );
        }
        if short.kind == ProviderKind::Anthropic {
            let marks: Vec<usize> =
                server.bodies().iter().map(|body| body.matches(CACHE_MARK).count()).collect();
            assert_eq!(marks, [3, 4, 4, 4], "the API takes no more than four");
        }
    }
}
