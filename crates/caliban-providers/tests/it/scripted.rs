//! The scripted provider.

use std::time::Duration;

use caliban_core::{
    message::{Block, Message, Role, StopReason},
    usage::Usage,
};
use caliban_providers::{
    Config, Delta, ModelReply, ProviderError, ProviderKind, RetryPolicy, ScriptSource, build,
    script::{Fault, FaultKind, Script, ScriptError, ScriptStep, StepUsage},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::{ask, quick, request};

fn config(steps: Vec<ScriptStep>) -> Config {
    let script = ScriptSource::Given(Script { steps });
    Config { script, retry: quick(), ..Config::new(ProviderKind::Scripted) }
}

#[tokio::test]
async fn a_step_is_answered_whole() {
    let step = ScriptStep {
        thinking: Some("hm".into()),
        chunks: Some(2),
        tool_calls: serde_json::from_value(json!([
            {"name": "Read", "input": {"path": "x"}}, {"name": "Bash", "raw_input": "{oops", "id": "i"}
        ]))
        .unwrap(),
        usage: Some(StepUsage { input: 1, output: 2, cache_read: 3, cache_write: 4 }),
        ..ScriptStep::say("abcd")
    };
    let (answered, seen) = ask(config(vec![step]), request("any", &[Message::user("hi")])).await;
    let tool =
        |id: &str, name: &str, input| Block::ToolUse { id: id.into(), name: name.into(), input, extra: None };
    let thinking =
        Block::Thinking { text: "hm".into(), provider: "scripted".into(), raw: json!({"thinking": "hm"}) };
    let blocks = vec![
        thinking,
        Block::Text { text: "abcd".into() },
        tool("call_0_0", "Read", json!({"path": "x"})),
        tool("i", "Bash", json!("{oops")),
    ];
    let reply = ModelReply {
        message: Message { role: Role::Assistant, blocks },
        usage: Usage { input: 1, output: 2, cache_read: 3, cache_write: 4 },
        stop: StopReason::ToolUse,
        model: "any".into(),
    };
    assert_eq!(answered, Ok(reply));
    let expected = [
        Delta::Thinking("hm".into()),
        Delta::Text("ab".into()),
        Delta::Text("cd".into()),
        Delta::ToolUse { id: "call_0_0".into(), name: "Read".into() },
        Delta::ToolUse { id: "i".into(), name: "Bash".into() },
    ];
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn faults_are_the_failures_of_a_network_and_are_tried_again() {
    let fault = |kind| Fault { times: 1, after_chunks: 1, ..Fault::once(kind) };
    let kinds = [FaultKind::Cut, FaultKind::Stall, FaultKind::ErrorEvent, FaultKind::Refuse];
    for kind in kinds {
        let step = ScriptStep { fault: Some(fault(kind)), chunks: Some(2), ..ScriptStep::say("ok") };
        let retry = RetryPolicy { stall: Duration::from_millis(1), ..quick() };
        let (answered, seen) =
            ask(Config { retry, ..config(vec![step]) }, request("m", &[Message::user("hi")])).await;
        assert_eq!(answered.map(|reply| reply.message.text()), Ok("ok".to_owned()), "{kind:?}");
        let restarted = seen.iter().any(|delta| matches!(delta, Delta::Restart { .. }));
        assert_eq!(restarted, kind != FaultKind::Refuse, "{seen:?}");
    }
    let unauthorised = Fault { status: Some(401), ..Fault::once(FaultKind::Status) };
    let step = ScriptStep { fault: Some(unauthorised), ..ScriptStep::say("ok") };
    let (answered, _) = ask(config(vec![step]), request("m", &[Message::user("hi")])).await;
    let provider = ProviderKind::Scripted;
    assert_eq!(answered, Err(ProviderError::Auth { provider, reason: "the script says so".into() }));
}

#[tokio::test]
async fn a_script_without_an_answer_says_so() {
    let provider = build(config(vec![ScriptStep::say("one")])).unwrap();
    let messages = [Message::user("hi there")];
    let mut answers = Vec::new();
    for _ in 0..2 {
        let answered =
            provider.respond(request("m", &messages), &mut |_| {}, &CancellationToken::new()).await;
        answers.push(answered.map(|reply| reply.message.text()));
    }
    let none = ScriptError::NoStep { prompt: "hi there".into(), turn: 0 };
    assert_eq!(none.to_string(), "script has no step left for \"hi there\" (turn 0)");
    assert_eq!(answers, [Ok("one".to_owned()), Err(ProviderError::Script(none))]);
}

#[tokio::test]
async fn waiting_ends_when_the_caller_cancels() {
    let slow = ScriptStep { chunks: Some(2), chunk_delay_ms: Some(1), ..ScriptStep::say("ab") };
    let never = Fault { after_chunks: 1, ..Fault::once(FaultKind::Stall) };
    let provider = build(config(vec![ScriptStep { fault: Some(never), ..slow }])).unwrap();
    let cancel = CancellationToken::new();
    let messages = [Message::user("hi")];
    let answered = provider.respond(request("m", &messages), &mut |_| cancel.cancel(), &cancel).await;
    assert_eq!(answered, Err(ProviderError::Cancelled));
}

#[tokio::test]
async fn the_demo_answers_everything_and_says_how_to_go_on() {
    let demo = Config::new(ProviderKind::Scripted);
    let provider = build(demo).unwrap();
    for prompt in ["hello", "hello", "what now?"] {
        let messages = [Message::user(prompt)];
        let reply =
            provider.respond(request("demo", &messages), &mut |_| {}, &CancellationToken::new()).await;
        let text = reply.unwrap().message.text();
        assert!(text.contains("scripted demo model") && text.contains("ANTHROPIC_API_KEY"), "{text}");
    }
}

#[test]
fn a_wrong_file_is_named_with_its_line() {
    let dir = std::env::temp_dir().join(format!("caliban-script-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("bad.json");
    std::fs::write(&path, "{\n\"steps\": 1}").unwrap();
    let load = |path: &std::path::Path| {
        let script = ScriptSource::File(path.to_owned());
        build(Config { script, ..Config::new(ProviderKind::Scripted) }).err().unwrap().to_string()
    };
    let bad = load(&path);
    let missing = load(&dir.join("none.json"));
    std::fs::remove_dir_all(&dir).unwrap();
    let shown = path.display();
    let expected = format!(
        "cannot use the script {shown}: line 2, column 10: invalid type: integer `1`, expected a sequence"
    );
    assert_eq!(bad, expected);
    assert!(missing.contains("none.json: No such file"), "{missing}");
}
