//! What is sent, byte for byte, on each wire.

use caliban_core::message::{Block, Effort, Message, ResultPart, Role};
use caliban_providers::{ModelRequest, ProviderKind};
use serde_json::{Value, json};

use crate::server::{Answer, Server, ask, config, request, shorts, tools};

/// A conversation with everything in it.
fn conversation(provider: &str, raw: Value, extra: Option<Value>) -> Vec<Message> {
    let user = vec![
        Block::Text { text: "look".into() },
        Block::Image { media_type: "image/png".into(), data: "AAA".into() },
    ];
    let foreign =
        Block::Thinking { text: "x".into(), provider: "somebody".into(), raw: json!({"not": "sent"}) };
    let call = |id: &str, input, extra| Block::ToolUse { id: id.into(), name: "Read".into(), input, extra };
    let assistant = vec![
        foreign,
        Block::Thinking { text: "hm".into(), provider: provider.into(), raw },
        Block::Text { text: "I look.".into() },
        call("c1", json!({"z": 1, "a": 2}), extra),
        call("c2", json!("{oops"), None),
    ];
    let text = |text: &str| ResultPart::Text { text: text.into() };
    let picture = ResultPart::Image { media_type: "image/jpeg".into(), data: "BBB".into() };
    let results = vec![
        Block::ToolResult { id: "c1".into(), content: vec![text("fine"), picture], is_error: false },
        Block::ToolResult { id: "c2".into(), content: vec![text("not JSON")], is_error: true },
        Block::Text { text: "go on".into() },
    ];
    vec![
        Message { role: Role::User, blocks: user },
        Message { role: Role::Assistant, blocks: assistant },
        Message { role: Role::User, blocks: results },
    ]
}

/// The first line and the body of the request that a conversation makes.
async fn sent(kind: ProviderKind, model: &str, effort: Effort, messages: &[Message]) -> (String, String) {
    let wire = match kind {
        ProviderKind::Anthropic => 0,
        ProviderKind::OpenAi => 1,
        ProviderKind::Gemini => 3,
        _ => 2,
    };
    let server = Server::start(vec![Answer::Stream(shorts()[wire].whole.clone())]).await;
    let tools = tools();
    let request = ModelRequest { tools: &tools, effort, max_output: Some(9000), ..request(model, messages) };
    let (answered, _) = ask(config(kind, &server.url), request).await;
    answered.unwrap();
    let asked = server.asked().remove(0);
    (asked.head.lines().next().unwrap().to_owned(), asked.body)
}

fn schema() -> Value {
    tools()[0].input_schema.clone()
}

#[tokio::test]
async fn anthropic() {
    let raw = json!({"type": "thinking", "thinking": "hm", "signature": "sig"});
    let messages = conversation("anthropic", raw.clone(), None);
    let (line, body) = sent(ProviderKind::Anthropic, "claude-haiku-4-5", Effort::Low, &messages).await;
    let mark = json!({"type": "ephemeral"});
    let image = |media: &str, data: &str| json!({"type": "image", "source": {"type": "base64", "media_type": media, "data": data}});
    let mut picture = image("image/png", "AAA");
    picture["cache_control"] = mark.clone();
    let expected = json!({
        "model": "claude-haiku-4-5", "max_tokens": 13_000, "stream": true,
        "thinking": {"type": "enabled", "budget_tokens": 4000},
        "system": [{"type": "text", "text": "be brief", "cache_control": mark}],
        "tools": [
            {"name": "Read", "description": "does Read", "input_schema": schema()},
            {"name": "Bash", "description": "does Bash", "input_schema": schema(), "cache_control": mark},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
            {"role": "assistant", "content": [
                raw,
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "Read", "input": {"z": 1, "a": 2}},
                {"type": "tool_use", "id": "c2", "name": "Read", "input": {"not_json": "{oops"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1",
                    "content": [{"type": "text", "text": "fine"}, image("image/jpeg", "BBB")]},
                {"type": "tool_result", "tool_use_id": "c2",
                    "content": [{"type": "text", "text": "not JSON"}], "is_error": true},
                {"type": "text", "text": "go on", "cache_control": mark},
            ]},
        ],
    });
    assert_eq!((line.as_str(), body), ("POST /v1/messages HTTP/1.1", expected.to_string()));
}

#[tokio::test]
async fn anthropic_thinks_as_the_model_can() {
    let messages = [Message::user("hi")];
    let adaptive = json!({"type": "adaptive"});
    let shown = json!({"type": "adaptive", "display": "summarized"});
    let effort = |word: &str| json!({"effort": word});
    let cases = [
        ("claude-opus-4-8", Effort::Default, shown.clone(), Value::Null, 41_000),
        ("claude-opus-4-8", Effort::Max, shown.clone(), effort("max"), 41_000),
        ("claude-opus-4-8", Effort::None, Value::Null, Value::Null, 9_000),
        ("claude-sonnet-4-6", Effort::Xhigh, adaptive, effort("high"), 41_000),
        ("claude-opus-5", Effort::None, json!({"type": "disabled"}), Value::Null, 9_000),
        ("claude-sonnet-5-5", Effort::None, json!({"type": "between_tools"}), Value::Null, 9_000),
        ("claude-opus-5-5", Effort::None, shown, effort("low"), 41_000),
        (
            "claude-haiku-4-5",
            Effort::Default,
            json!({"type": "enabled", "budget_tokens": 10_000}),
            Value::Null,
            19_000,
        ),
        ("claude-haiku-4-5", Effort::None, Value::Null, Value::Null, 9_000),
        ("somebodys-model", Effort::High, Value::Null, Value::Null, 9_000),
    ];
    for (model, asked, thinking, config, max_tokens) in cases {
        let (_, body) = sent(ProviderKind::Anthropic, model, asked, &messages).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        let expected = (&thinking, &config, &json!(max_tokens));
        assert_eq!(
            (&body["thinking"], &body["output_config"], &body["max_tokens"]),
            expected,
            "{model} {asked:?}"
        );
    }
}

#[tokio::test]
async fn a_model_with_a_budget_may_think_between_its_calls() {
    for (model, effort, expected) in [
        ("claude-haiku-4-5", Effort::Default, true),
        ("claude-haiku-4-5", Effort::None, false),
        ("claude-3-7-sonnet-latest", Effort::Default, false),
        ("claude-opus-4-8", Effort::Default, false),
    ] {
        let server = Server::start(vec![Answer::Stream(shorts()[0].whole.clone())]).await;
        let messages = [Message::user("hi")];
        let request = ModelRequest { effort, ..request(model, &messages) };
        ask(config(ProviderKind::Anthropic, &server.url), request).await.0.unwrap();
        let head = server.asked().remove(0).head;
        assert_eq!(head.contains("anthropic-beta: interleaved-thinking"), expected, "{model}: {head}");
    }
}

#[tokio::test]
async fn openai_responses() {
    let raw = json!({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "enc"});
    let messages = conversation("openai", raw.clone(), None);
    let (line, body) = sent(ProviderKind::OpenAi, "gpt-5.5", Effort::Medium, &messages).await;
    let tool = |name: &str| {
        json!({"type": "function", "name": name, "description": format!("does {name}"),
            "parameters": schema(), "strict": false})
    };
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "Read", "arguments": arguments});
    let expected = json!({
        "model": "gpt-5.5", "stream": true, "store": false, "prompt_cache_key": "s1", "max_output_tokens": 41_000,
        "include": ["reasoning.encrypted_content"], "reasoning": {"effort": "medium", "summary": "auto"},
        "instructions": "be brief",
        "tools": [tool("Read"), tool("Bash")], "parallel_tool_calls": true,
        "input": [
            {"type": "message", "role": "user", "content": [
                {"type": "input_text", "text": "look"},
                {"type": "input_image", "image_url": "data:image/png;base64,AAA"},
            ]},
            raw,
            {"type": "message", "id": "msg_0000000100000001", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            call("c1", r#"{"z":1,"a":2}"#),
            call("c2", r#"{"not_json":"{oops"}"#),
            {"type": "function_call_output", "call_id": "c1", "output": [
                {"type": "input_text", "text": "fine"},
                {"type": "input_image", "image_url": "data:image/jpeg;base64,BBB"},
            ]},
            {"type": "function_call_output", "call_id": "c2", "output": "[the tool failed] not JSON"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]},
        ],
    });
    assert_eq!((line.as_str(), body), ("POST /v1/responses HTTP/1.1", expected.to_string()));
}

#[tokio::test]
async fn a_model_that_does_not_reason_is_not_asked_about_it() {
    let (_, body) = sent(ProviderKind::OpenAi, "gpt-4.1", Effort::High, &[Message::user("hi")]).await;
    assert!(!body.contains("reasoning"), "{body}");
}

#[tokio::test]
async fn a_model_that_reasons_is_told_to_when_nobody_says_how_hard() {
    let messages = [Message::user("hi")];
    for (kind, model, effort, pointer, expected) in [
        (ProviderKind::OpenAi, "gpt-5.5", Effort::Default, "/reasoning/effort", json!("medium")),
        (ProviderKind::OpenAi, "gpt-6.1-sol", Effort::Max, "/reasoning/effort", json!("max")),
        (ProviderKind::OpenAi, "gpt-5.5", Effort::Max, "/reasoning/effort", json!("xhigh")),
        (
            ProviderKind::OpenRouter,
            "anthropic/claude-opus-5.5",
            Effort::Default,
            "/reasoning/effort",
            json!("medium"),
        ),
        (ProviderKind::OpenAiChat, "qwen3", Effort::Max, "/reasoning_effort", json!("high")),
        (ProviderKind::OpenAiChat, "qwen3", Effort::Default, "/reasoning_effort", Value::Null),
        (
            ProviderKind::Gemini,
            "gemini-3.8-flash",
            Effort::Default,
            "/generationConfig/thinkingConfig",
            json!({"includeThoughts": true}),
        ),
        (
            ProviderKind::Gemini,
            "gemini-3.8-flash",
            Effort::None,
            "/generationConfig/thinkingConfig/thinkingLevel",
            json!("low"),
        ),
        (
            ProviderKind::Gemini,
            "gemini-2.5-flash",
            Effort::None,
            "/generationConfig/thinkingConfig/thinkingBudget",
            json!(0),
        ),
        (
            ProviderKind::Gemini,
            "gemini-2.5-pro",
            Effort::None,
            "/generationConfig/thinkingConfig/thinkingBudget",
            json!(128),
        ),
    ] {
        let (_, body) = sent(kind, model, effort, &messages).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body.pointer(pointer).cloned().unwrap_or_default(), expected, "{model} {effort:?}");
    }
}

#[tokio::test]
async fn chat_completions() {
    let messages = conversation("openai-chat", json!({"reasoning_content": "hm"}), None);
    let (line, body) = sent(ProviderKind::OpenAiChat, "qwen3", Effort::Low, &messages).await;
    let tool = |name: &str| {
        json!({"type": "function", "function": {"name": name, "description": format!("does {name}"),
            "parameters": schema()}})
    };
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "Read", "arguments": arguments}});
    let expected = json!({
        "model": "qwen3", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 9000,
        "reasoning_effort": "low",
        "tools": [tool("Read"), tool("Bash")],
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAA"}},
            ]},
            {"role": "assistant", "content": "I look.", "reasoning_content": "hm",
                "tool_calls": [call("c1", r#"{"z":1,"a":2}"#), call("c2", r#"{"not_json":"{oops"}"#)]},
            {"role": "tool", "tool_call_id": "c1", "content": "fine"},
            {"role": "tool", "tool_call_id": "c2", "content": "[the tool failed] not JSON"},
            {"role": "user", "content": [
                {"type": "text", "text": "The picture that c1 returned:"},
                {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,BBB"}},
                {"type": "text", "text": "go on"},
            ]},
        ],
    });
    assert_eq!((line.as_str(), body), ("POST /v1/chat/completions HTTP/1.1", expected.to_string()));
}

#[tokio::test]
async fn gemini() {
    let raw = json!({"text": "", "thoughtSignature": "sig0"});
    let extra = json!({"id": "own", "thoughtSignature": "sig1"});
    let messages = conversation("gemini", raw.clone(), Some(extra));
    let (line, body) = sent(ProviderKind::Gemini, "gemini-3-flash-preview", Effort::Low, &messages).await;
    let tool = |name: &str| json!({"name": name, "description": format!("does {name}"), "parametersJsonSchema": schema()});
    let expected = json!({
        "generationConfig": {"maxOutputTokens": 41_000,
            "thinkingConfig": {"includeThoughts": true, "thinkingLevel": "low"}},
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "tools": [{"functionDeclarations": [tool("Read"), tool("Bash")]}],
        "contents": [
            {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AAA"}}]},
            {"role": "model", "parts": [
                raw,
                {"text": "I look."},
                {"functionCall": {"name": "Read", "args": {"z": 1, "a": 2}, "id": "own"}, "thoughtSignature": "sig1"},
                {"functionCall": {"name": "Read", "args": {"not_json": "{oops"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "Read", "response": {"output": "fine"}, "id": "own"}},
                {"inlineData": {"mimeType": "image/jpeg", "data": "BBB"}},
                {"functionResponse": {"name": "Read", "response": {"error": "not JSON"}}},
                {"text": "go on"},
            ]},
        ],
    });
    let expected_line =
        "POST /v1beta/models/gemini-3-flash-preview:streamGenerateContent?alt=sse HTTP/1.1".to_owned();
    assert_eq!((line, body), (expected_line, expected.to_string()));
}

#[tokio::test]
async fn keys_go_where_each_api_wants_them() {
    for short in shorts() {
        let server = Server::start(vec![Answer::Stream(short.whole.clone())]).await;
        ask(config(short.kind, &server.url), request("m", &[Message::user("hi")])).await.0.unwrap();
        let head = server.asked().remove(0).head;
        let expected = match short.kind {
            ProviderKind::Anthropic => "\r\nanthropic-version: 2023-06-01\r\nx-api-key: k\r\n",
            ProviderKind::Gemini => "\r\nx-goog-api-key: k\r\n",
            _ => "\r\nauthorization: Bearer k\r\n",
        };
        assert!(head.contains(expected), "{head}");
    }
}

#[tokio::test]
async fn thinking_that_led_to_nothing_is_not_sent_back() {
    for (kind, raw) in [
        (ProviderKind::Anthropic, json!({"type": "thinking", "thinking": "SECRET", "signature": "s"})),
        (ProviderKind::OpenAi, json!({"type": "reasoning", "id": "SECRET", "summary": []})),
        (ProviderKind::OpenAiChat, json!({"reasoning_content": "SECRET"})),
    ] {
        let thinking = Block::Thinking { text: String::new(), provider: kind.name().into(), raw };
        let cut = Message { role: Role::Assistant, blocks: vec![thinking] };
        let messages = [Message::user("hi"), cut, Message::user("go on")];
        let (_, body) = sent(kind, "gpt-5.5", Effort::Default, &messages).await;
        assert!(!body.contains("SECRET") && body.contains("go on"), "{body}");
    }
}

#[tokio::test]
async fn no_effort_is_the_least_that_a_model_can_do() {
    for (model, expected) in
        [("gpt-5.5", "none"), ("gpt-5-mini", "minimal"), ("o3", "low"), ("gpt-5.3-codex", "low")]
    {
        let (_, body) = sent(ProviderKind::OpenAi, model, Effort::None, &[Message::user("hi")]).await;
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["reasoning"]["effort"], expected, "{model}");
    }
}
