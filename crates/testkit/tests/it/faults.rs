//! What goes wrong on purpose, on each protocol.

use std::io::Read;

use serde_json::{Value, json};
use testkit::{ClosedPort, ModelServer, Protocol, RequestOutcome, StepExt, script, text, tool};

use crate::raw::{path, post, prompt, read, request, send};

/// What an answer looks like when nothing goes wrong.
fn unharmed(protocol: Protocol, step: testkit::script::ScriptStep) -> String {
    prompt(&ModelServer::start(script![step]), protocol, "hi").body
}

#[test]
fn a_cut_stream_has_its_pieces_and_no_end_and_the_next_one_is_whole() {
    for protocol in Protocol::ALL {
        let step = text("abcdef").in_chunks(3).costs(1, 2);
        let whole = unharmed(protocol, step.clone());
        let server = ModelServer::start(script![step.cut(2)]);
        let cut = prompt(&server, protocol, "hi");
        let again = prompt(&server, protocol, "hi");
        let (before, after) = (whole.find("\"cd\"").unwrap(), whole.find("\"ef\"").unwrap());
        assert_eq!((cut.status, cut.complete), (200, false), "{protocol:?}");
        assert!(cut.body.len() > before && cut.body.len() < after, "{protocol:?}: {}", cut.body);
        assert!(whole.starts_with(&cut.body), "{protocol:?}: {}", cut.body);
        assert_eq!(again.body, whole.replace("0001", "0002"), "{protocol:?}");
        assert!(again.complete);
        server.assert_drained();
    }
}

#[test]
fn a_cut_after_everything_lacks_only_the_end() {
    let ends = [
        (Protocol::Anthropic, "event: message_delta"),
        (Protocol::Responses, "event: response.completed"),
        (Protocol::Chat, "\"finish_reason\":\"tool_calls\""),
        (Protocol::Gemini, "\"finishReason\":\"STOP\""),
    ];
    for (protocol, end) in ends {
        let step = text("abc").and_tool("A", json!({"x": 1})).costs(1, 2);
        let whole = unharmed(protocol, step.clone());
        let server = ModelServer::start(script![step.cut(99)]);
        let cut = prompt(&server, protocol, "hi");
        assert!(!cut.complete);
        assert!(
            whole.starts_with(&cut.body) && whole.contains(end) && !cut.body.contains(end),
            "{protocol:?}"
        );
        assert!(whole[cut.body.len()..].lines().take(2).any(|line| line.contains(end)), "{protocol:?}");
    }
}

#[test]
fn a_cut_can_be_in_the_middle_of_a_calls_arguments() {
    let server = ModelServer::start(script![tool("Write", json!({"path": "a"})).cut(1)]);
    let cut = prompt(&server, Protocol::Anthropic, "hi");
    assert!(cut.body.ends_with("\"partial_json\":\"{\\\"path\"}}\n\n"), "{}", cut.body);
}

#[test]
fn a_stalled_stream_stays_open_until_the_client_goes_away() {
    for protocol in Protocol::ALL {
        let step = text("abcd").in_chunks(2).costs(1, 2);
        let whole = unharmed(protocol, step.clone());
        let server = ModelServer::start(script![step.stall(1)]);
        let mut socket = send(&server, path(protocol), "test-key", &request(protocol, "hi"));
        let mut got = Vec::new();
        let mut byte = [0];
        while !got.windows(4).any(|window| window == b"\"ab\"") {
            assert_eq!(socket.read(&mut byte).unwrap(), 1, "{protocol:?}: the stream ended");
            got.push(byte[0]);
        }
        assert!(whole.contains("\"cd\""));
        drop(socket);
        server.wait_for_hangups(1);
        assert_eq!(server.model_requests()[0].outcome, RequestOutcome::Failed);
    }
}

#[test]
fn statuses_come_in_the_protocols_own_form() {
    let told = |protocol, status| {
        let server = ModelServer::start(script![text("ok").status(status).retry_after("3")]);
        let answer = prompt(&server, protocol, "hi");
        assert_eq!((answer.status, answer.header("retry-after")), (status, Some("3")));
        assert_eq!(prompt(&server, protocol, "hi").status, 200);
        answer.json()
    };
    let anthropic = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_testkit"});
    let limit = "This request would exceed the rate limit. Please try again later.";
    assert_eq!(told(Protocol::Anthropic, 429), anthropic("rate_limit_error", limit));
    assert_eq!(told(Protocol::Anthropic, 529), anthropic("overloaded_error", "Overloaded"));
    assert_eq!(told(Protocol::Anthropic, 500), anthropic("api_error", "Internal server error"));
    let openai = json!({"error": {"message": limit, "type": "requests", "param": null,
        "code": "rate_limit_exceeded"}});
    assert_eq!(told(Protocol::Responses, 429), openai);
    assert_eq!(told(Protocol::Chat, 429), openai);
    assert_eq!(
        told(Protocol::Gemini, 429),
        json!({"error": {"code": 429, "message": limit, "status": "RESOURCE_EXHAUSTED", "details":
            [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}]}})
    );
}

#[test]
fn a_status_can_have_any_body_and_happen_forever() {
    for protocol in Protocol::ALL {
        let body = protocol.error_body(400, "tools.0: no such thing");
        let server = ModelServer::start(script![testkit::status(400).body(body.clone())]);
        for _ in 0..3 {
            let answer = prompt(&server, protocol, "hi");
            assert_eq!((answer.status, answer.body.as_str()), (400, body.as_str()));
        }
        assert!(body.contains("tools.0: no such thing"));
        server.set_script(script![testkit::status(502).body("<html>bad gateway</html>")]);
        let answer = prompt(&server, protocol, "hi");
        assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

#[test]
fn an_error_event_comes_inside_a_good_stream() {
    let told = |protocol| {
        let server = ModelServer::start(script![text("abcd").in_chunks(2).error_event(1, "Overloaded now")]);
        let answer = prompt(&server, protocol, "hi");
        assert_eq!((answer.status, answer.complete), (200, true));
        assert!(answer.body.contains("\"ab\"") && !answer.body.contains("\"cd\""));
        let separator = if protocol == Protocol::Gemini { "\r\n\r\n" } else { "\n\n" };
        let last = answer.body.trim_end().rsplit(separator).next().unwrap().to_owned();
        let data = last.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        serde_json::from_str::<Value>(data).unwrap()
    };
    assert_eq!(
        told(Protocol::Anthropic),
        json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded now"}})
    );
    let failed = told(Protocol::Responses);
    assert_eq!(
        (&failed["type"], &failed["response"]["status"], &failed["response"]["error"]),
        (
            &json!("response.failed"),
            &json!("failed"),
            &json!({"code": "server_error", "message": "Overloaded now"})
        )
    );
    assert_eq!(
        told(Protocol::Chat),
        json!({"error": {"message": "Overloaded now", "type": "server_error", "param": null, "code": null}})
    );
    assert_eq!(
        told(Protocol::Gemini),
        json!({"error": {"code": 503, "message": "Overloaded now", "status": "UNAVAILABLE"}})
    );
}

#[test]
fn a_refused_request_gets_nothing_at_all() {
    let server = ModelServer::start(script![text("ok").refuse()]);
    let socket = send(&server, "/v1/messages", "k", &request(Protocol::Anthropic, "hi"));
    assert_eq!(read(socket), None);
    assert_eq!(prompt(&server, Protocol::Anthropic, "hi").status, 200);
    server.assert_drained();
}

#[test]
fn nobody_listens_on_a_closed_port() {
    let port = ClosedPort::new();
    let refused = std::net::TcpStream::connect(("127.0.0.1", port.port())).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_document_can_be_cut_in_half() {
    let server = ModelServer::start(script![text("ok").cut(0)]);
    let mut body = request(Protocol::Chat, "hi");
    body["stream"] = false.into();
    let cut = post(&server, "/v1/chat/completions", &body);
    let whole = post(&server, "/v1/chat/completions", &body);
    assert_eq!((cut.status, cut.complete, whole.complete), (200, false, true));
    assert_eq!(cut.body.len(), whole.body.len() / 2);
}

#[test]
fn torn_frames_carry_the_same_bytes() {
    for protocol in Protocol::ALL {
        let step = text("aäöüßz").in_chunks(3).and_tool("A", json!({"x": "ß"}));
        let whole = unharmed(protocol, step.clone());
        let server = ModelServer::builder(script![step]).frames_of(1).start();
        assert_eq!(prompt(&server, protocol, "hi").body, whole);
    }
}

#[test]
fn delays_keep_the_answer_as_it_is() {
    let step = text("abc").in_chunks(3);
    let whole = unharmed(Protocol::Chat, step.clone());
    let server = ModelServer::start(script![step.delay(1).chunk_delay(1)]);
    assert_eq!(prompt(&server, Protocol::Chat, "hi").body, whole);
}
