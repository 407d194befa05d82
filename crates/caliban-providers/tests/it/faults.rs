//! What goes wrong, on each wire: retried where that helps, told in words where it does not.

use std::time::Duration;

use caliban_core::{
    message::{Block, Message, Role, StopReason},
    usage::Usage,
};
use caliban_providers::{
    Config, Delta, ModelReply, ProviderError, ProviderKind, RetryPolicy, WaitCause, build, ollama_models,
    ollama_running,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::server::{Answer, Server, Short, ask, config, quick, request, shorts};

fn ok() -> ModelReply {
    ModelReply {
        message: Message { role: Role::Assistant, blocks: vec![Block::Text { text: "ok".into() }] },
        usage: Usage { input: 3, output: 1, ..Usage::default() },
        stop: StopReason::EndTurn,
        model: "m".into(),
    }
}

/// Asks on each wire a server that gives these answers.
async fn on_each_wire(
    answers: impl Fn(&Short) -> Vec<Answer>,
    retry: RetryPolicy,
) -> Vec<(ProviderKind, Result<ModelReply, ProviderError>, Vec<Delta>, usize)> {
    let mut all = Vec::new();
    for short in shorts() {
        let server = Server::start(answers(&short)).await;
        let config = Config { retry: retry.clone(), ..config(short.kind, &server.url) };
        let (answered, seen) = ask(config, request("m", &[Message::user("hi")])).await;
        all.push((short.kind, answered, seen, server.bodies().len()));
    }
    all
}

/// The deltas without the lengths of waits, which are drawn by lot.
fn told(seen: &[Delta]) -> Vec<String> {
    let tell = |delta: &Delta| match delta {
        Delta::Text(text) => format!("text {text}"),
        Delta::Thinking(text) => format!("thinking {text}"),
        Delta::ToolUse { name, .. } => format!("tool {name}"),
        Delta::Usage(usage) => format!("usage {}", usage.total()),
        Delta::Restart { reason } => format!("restart: {reason}"),
        Delta::Waiting { reason, .. } => format!("waiting: {reason}"),
    };
    seen.iter().map(tell).collect()
}

#[tokio::test]
async fn a_cut_stream_is_tried_again_and_what_was_shown_is_void() {
    let clean =
        |short: &Short| vec![Answer::Stream(short.beginning.clone()), Answer::Stream(short.whole.clone())];
    let broken =
        |short: &Short| vec![Answer::Broken(short.beginning.clone()), Answer::Stream(short.whole.clone())];
    let mut runs = on_each_wire(clean, quick()).await;
    runs.extend(on_each_wire(broken, quick()).await);
    for (kind, answered, seen, asked) in runs {
        assert_eq!(answered, Ok(ok()), "{kind}");
        let cut = "the answer broke off";
        let expected = [
            "text ok".to_owned(),
            format!("restart: {cut}"),
            format!("waiting: {cut}"),
            "text ok".to_owned(),
        ];
        assert_eq!((told(&seen), asked), (expected.to_vec(), 2), "{kind}");
    }
}

#[tokio::test]
async fn half_an_event_is_a_cut_too() {
    let half = |short: &Short| {
        let cut = short.whole.len() - 5;
        vec![Answer::Stream(short.whole[..cut].to_owned()), Answer::Stream(short.whole.clone())]
    };
    for (kind, answered, _, asked) in on_each_wire(half, quick()).await {
        assert_eq!((answered, asked), (Ok(ok()), 2), "{kind}");
    }
}

#[tokio::test]
async fn a_stream_that_is_always_cut_is_an_error_and_never_a_short_answer() {
    for (kind, answered, seen, asked) in
        on_each_wire(|short| vec![Answer::Stream(short.beginning.clone())], quick()).await
    {
        assert_eq!((answered, asked), (Err(ProviderError::Cut { provider: kind, attempts: 3 }), 3));
        let restarts = seen.iter().filter(|delta| matches!(delta, Delta::Restart { .. })).count();
        assert_eq!(restarts, 2, "the last failure is not followed by another attempt");
    }
}

#[tokio::test]
async fn a_silent_stream_is_cut_by_the_watchdog_and_tried_again() {
    let after = Duration::from_millis(300);
    let retry = RetryPolicy { stall: after, ..quick() };
    let stalls =
        |short: &Short| vec![Answer::Stall(short.beginning.clone()), Answer::Stream(short.whole.clone())];
    for (kind, answered, seen, _) in on_each_wire(stalls, retry).await {
        assert_eq!(answered, Ok(ok()), "{kind}");
        assert!(seen.contains(&Delta::Restart { reason: "nothing came for 0.3 s".into() }), "{seen:?}");
    }
    let after = Duration::from_millis(20);
    let retry = RetryPolicy { stall: after, ..quick() };
    for (provider, answered, _, _) in
        on_each_wire(|short| vec![Answer::Stall(short.beginning.clone())], retry).await
    {
        assert_eq!(answered, Err(ProviderError::Stalled { provider, after, attempts: 3 }));
    }
}

#[tokio::test]
async fn a_rate_limit_is_waited_out_as_long_as_the_provider_asks() {
    let body = json!({"error": {"type": "rate_limit_error", "message": "slow down"}}).to_string();
    let limited = |short: &Short| {
        let limit = |headers| Answer::Status(429, headers, body.clone());
        let overload = Answer::Status(529, "retry-after-ms: 3\r\n", body.clone());
        // More refusals than attempts: patience counts, not attempts.
        vec![
            limit("retry-after: 0.02\r\n"),
            overload,
            limit("retry-after: 0\r\n"),
            limit("retry-after: Sun, 15 Nov 2020 12:00:00 GMT\r\n"),
            Answer::Stream(short.whole.clone()),
        ]
    };
    for (kind, answered, seen, asked) in on_each_wire(limited, quick()).await {
        assert_eq!((answered, asked), (Ok(ok()), 5), "{kind}");
        let waits: Vec<bool> = seen
            .iter()
            .filter_map(|delta| match delta {
                Delta::Waiting { wait, .. } => Some(*wait >= Duration::from_millis(20)),
                _ => None,
            })
            .collect();
        assert_eq!(waits, [true, false, false, false], "{seen:?}");
        assert_eq!(
            told(&seen)[..2],
            ["waiting: rate limit: slow down", "waiting: overloaded: slow down"].map(str::to_owned)
        );
    }
}

#[tokio::test]
async fn a_rate_limit_beyond_our_patience_is_an_error() {
    let body = json!({"error": {"message": "come back tomorrow"}}).to_string();
    let limited = |_: &Short| vec![Answer::Status(429, "retry-after: 86400\r\n", body.clone())];
    for (provider, answered, _, asked) in on_each_wire(limited, quick()).await {
        let reason = "come back tomorrow".to_owned();
        let error = ProviderError::RateLimited { provider, waited: Duration::ZERO, reason };
        assert_eq!((answered, asked), (Err(error), 1));
    }
}

#[tokio::test]
async fn a_server_error_and_a_closed_connection_are_tried_again() {
    let failing = |short: &Short| {
        vec![Answer::Close, Answer::Status(502, "", "<html>".into()), Answer::Stream(short.whole.clone())]
    };
    // Both count as an outage: none that the machine's load makes longer ends the request.
    let patient = RetryPolicy { outage: Duration::from_secs(60), ..quick() };
    for (kind, answered, seen, asked) in on_each_wire(failing, patient).await {
        assert_eq!((answered, asked), (Ok(ok()), 3), "{kind}");
        assert!(told(&seen)[0].ends_with("closed the connection without an answer"), "{seen:?}");
        assert_eq!(told(&seen)[1], "waiting: error 502: a web page came instead");
    }
    let always = |_: &Short| vec![Answer::Status(500, "", r#"{"error":{"message":"oops"}}"#.into())];
    for (provider, answered, _, asked) in on_each_wire(always, quick()).await {
        let error = ProviderError::Overloaded { provider, status: 500, attempts: 3, reason: "oops".into() };
        assert_eq!((answered, asked), (Err(error), 3));
    }
}

#[tokio::test]
async fn a_wrong_request_and_a_wrong_key_are_final_with_the_providers_reason() {
    let refuse = |status| {
        move |_: &Short| {
            let body =
                json!({"error": {"type": "x", "message": "tools.0: \u{1b}[1mname\nis bad"}}).to_string();
            vec![Answer::Status(status, "", body)]
        }
    };
    let reason = || "tools.0: [1mname is bad".to_owned();
    for (provider, answered, seen, asked) in on_each_wire(refuse(400), quick()).await {
        let error = ProviderError::BadRequest { provider, status: 400, reason: reason() };
        assert_eq!((answered, seen, asked), (Err(error), vec![], 1));
    }
    for status in [401, 403] {
        for (provider, answered, seen, asked) in on_each_wire(refuse(status), quick()).await {
            let error = ProviderError::Auth { provider, reason: reason() };
            assert_eq!((answered, seen, asked), (Err(error), vec![], 1));
        }
    }
}

#[tokio::test]
async fn an_unknown_model_is_told_what_there_is() {
    for short in shorts() {
        let body =
            json!({"error": {"code": "model_not_found", "message": "The model `model-on` does not exist"}});
        let server = Server::start(vec![Answer::Status(404, "", body.to_string())]).await;
        let (answered, _) =
            ask(config(short.kind, &server.url), request("model-on", &[Message::user("hi")])).await;
        let error = answered.unwrap_err();
        assert_eq!(error.to_string(), format!("{} has no model model-on", short.kind));
        assert_eq!(error.hint().as_deref(), Some("did you mean one of model-one, model-two?"));
    }
}

#[tokio::test]
async fn nothing_listening_is_said_soon_and_with_what_to_do() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    for kind in shorts().map(|short| short.kind).into_iter().chain([ProviderKind::Ollama]) {
        let (answered, seen) = ask(config(kind, &url), request("m", &[Message::user("hi")])).await;
        let error = answered.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot reach {kind} at {url}/v1")), "{text}");
        assert!(text.ends_with("connection refused"), "{text}");
        let is_wait = |delta: &Delta| matches!(delta, Delta::Waiting { cause: WaitCause::Outage, .. });
        assert!(seen.len() > 1 && seen.iter().all(is_wait), "{seen:?}");
        let hint = match kind {
            ProviderKind::Ollama => "is Ollama running? start it with `ollama serve`",
            _ => "check the network, the proxy and `base_url` in settings",
        };
        assert_eq!(error.hint().as_deref(), Some(hint));
    }
    assert!(!ollama_running(&url).await);
}

#[tokio::test]
async fn an_error_inside_the_stream_counts_like_the_http_error() {
    let overloaded = |short: &Short| {
        let error = match short.kind {
            ProviderKind::OpenAi => {
                let inner = json!({"code": "rate_limit_exceeded", "message": "busy, try again in 1ms."});
                json!({"type": "response.failed", "response": {"error": inner}})
            }
            _ => json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
        };
        let text = format!("{}event: error\ndata: {error}\n\n", short.beginning);
        vec![Answer::Stream(text), Answer::Stream(short.whole.clone())]
    };
    for (kind, answered, seen, asked) in on_each_wire(overloaded, quick()).await {
        assert_eq!((answered, asked), (Ok(ok()), 2), "{kind}");
        let reason = match kind {
            ProviderKind::OpenAi => "rate limit: busy, try again in 1ms.",
            _ => "overloaded: busy",
        };
        assert_eq!(told(&seen)[1..3], [format!("restart: {reason}"), format!("waiting: {reason}")], "{kind}");
    }
    let wrong = |short: &Short| {
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}});
        vec![Answer::Stream(format!("{}event: error\ndata: {error}\n\n", short.beginning))]
    };
    for (provider, answered, _, asked) in on_each_wire(wrong, quick()).await {
        let error = ProviderError::BadRequest { provider, status: 400, reason: "no".into() };
        assert_eq!((answered, asked), (Err(error), 1));
    }
}

#[tokio::test]
async fn a_page_instead_of_an_api_is_said_to_be_one() {
    let page = |_: &Short| vec![Answer::Status(200, "content-type: text/html\r\n", "<html>".into())];
    for (kind, answered, _, asked) in on_each_wire(page, quick()).await {
        let text = answered.unwrap_err().to_string();
        let expected =
            format!("is not the API of {kind}: it answers with text/html instead of a stream of events");
        assert!(text.ends_with(&expected), "{text}");
        assert_eq!(asked, 1);
    }
}

#[tokio::test]
async fn cancelling_ends_the_request_and_closes_the_connection() {
    for short in shorts() {
        let server = Server::start(vec![Answer::Stall(short.beginning.clone())]).await;
        let provider = build(config(short.kind, &server.url)).unwrap();
        let cancel = CancellationToken::new();
        let mut observe = |_| cancel.cancel();
        let messages = [Message::user("hi")];
        let answered = provider.respond(request("m", &messages), &mut observe, &cancel).await;
        assert_eq!(answered, Err(ProviderError::Cancelled));
        server.gone.notified().await;
    }
}

#[tokio::test]
async fn many_local_servers_leave_out_the_last_line() {
    let chat = &shorts()[2];
    let server = Server::start(vec![Answer::Stream(chat.whole.trim_end().to_owned())]).await;
    let (answered, _) =
        ask(config(ProviderKind::Vllm, &server.url), request("m", &[Message::user("hi")])).await;
    assert_eq!(answered, Ok(ok()));
}

#[tokio::test]
async fn signs_of_life_are_no_events_and_garbage_is_tried_again() {
    let garbage = |short: &Short| {
        let garbled = format!(": hello\n\ndata:\n\n{}data: {{oops\n\n", short.beginning);
        vec![Answer::Stream(garbled), Answer::Stream(format!("data: \n\n{}", short.whole))]
    };
    for (kind, answered, seen, asked) in on_each_wire(garbage, quick()).await {
        assert_eq!((answered, asked), (Ok(ok()), 2), "{kind}");
        assert!(told(&seen)[1].starts_with("restart: an event of the stream is not JSON"), "{seen:?}");
    }
}

#[tokio::test]
async fn models_are_listed() {
    let server = Server::start(vec![]).await;
    let provider = build(config(ProviderKind::OpenAi, &server.url)).unwrap();
    let listed = provider.list_models(&CancellationToken::new()).await;
    assert_eq!(listed, Ok(vec!["model-one".to_owned(), "model-two".to_owned()]));
    assert_eq!(provider.context_window("model-one").await, None, "nobody asks OpenAI");
    let provider = build(config(ProviderKind::Vllm, &server.url)).unwrap();
    assert_eq!(provider.context_window("model-one").await, Some(4096));
    assert_eq!(provider.context_window("model-two").await, None);
    // This server knows no /api/tags: not an Ollama.
    assert_eq!(ollama_models(&server.url).await, None);
}

#[tokio::test]
async fn a_running_ollama_is_found_with_its_models() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1/", listener.local_addr().unwrap());
    let body = json!({"models": [{"name": "llama3:8b"}, {"name": "qwen3:8b"}]}).to_string();
    let server = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 14];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(head, b"GET /api/tags ");
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _the_client_may_be_gone = stream.write_all(answer.as_bytes()).await;
            let _until_closed = stream.read_to_end(&mut head).await;
        }
    };
    let asked = async {
        // A loaded machine may miss the 300 ms; a broken client always does.
        loop {
            if let Some(models) = ollama_models(&url).await {
                break models;
            }
        }
    };
    let models = tokio::select! {
        () = server => Vec::new(),
        models = asked => models,
    };
    assert_eq!(models, ["llama3:8b", "qwen3:8b"]);
}

#[tokio::test]
async fn signs_of_life_without_an_answer_are_a_stall() {
    let retry = RetryPolicy { stall: Duration::from_millis(60), attempts: 1, ..quick() };
    let pings = |short: &Short| {
        let ping = match short.kind {
            ProviderKind::Anthropic => "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            _ => ": still here\n\n",
        };
        vec![Answer::Endless(short.beginning.clone(), ping.to_owned(), Duration::from_millis(5))]
    };
    for (provider, answered, _, _) in on_each_wire(pings, retry).await {
        let after = Duration::from_millis(300);
        assert_eq!(answered, Err(ProviderError::Stalled { provider, after, attempts: 1 }));
    }
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_at_a_size_that_no_model_writes() {
    let endless = |short: &Short| {
        let piece = "x".repeat(64 << 10);
        let more = match short.kind {
            ProviderKind::Anthropic => {
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}})
            }
            ProviderKind::OpenAi => {
                json!({"type": "response.output_text.delta", "output_index": 0, "delta": piece})
            }
            ProviderKind::Gemini => json!({"candidates": [{"content": {"parts": [{"text": piece}]}}]}),
            _ => json!({"choices": [{"delta": {"content": piece}}]}),
        };
        let beginning = match short.kind {
            // The closing event is in its beginning.
            ProviderKind::Anthropic => {
                short.beginning[..short.beginning.find("event: message_delta").unwrap()].to_owned()
            }
            _ => short.beginning.clone(),
        };
        vec![Answer::Endless(beginning, format!("data: {more}\n\n"), Duration::ZERO)]
    };
    for (provider, answered, seen, asked) in on_each_wire(endless, quick()).await {
        assert_eq!(answered, Err(ProviderError::TooLarge { provider, limit: 8 << 20 }));
        let text: usize =
            seen.iter().map(|delta| if let Delta::Text(text) = delta { text.len() } else { 0 }).sum();
        assert!(text < 9 << 20, "{provider}: {text} bytes were kept");
        assert_eq!(asked, 1, "{provider}");
    }
}
