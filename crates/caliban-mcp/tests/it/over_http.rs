//! A server at a URL.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use caliban_mcp::{McpEndpoint, ServerConfig};
use caliban_tools::ToolOutput;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    fake::{Hub, LONG, connected, text, until},
    web::{Reply, Request, Web},
};

fn config(web: &Web) -> ServerConfig {
    ServerConfig {
        name: "hub".to_owned(),
        endpoint: McpEndpoint::Http {
            url: web.url.clone(),
            headers: vec![("authorization".to_owned(), "Bearer x".to_owned())],
        },
        timeout: LONG,
        startup_timeout: LONG,
    }
}

fn json_reply(id: &Value, result: Value) -> Reply {
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    Reply::Answer(200, vec![("content-type", "application/json".to_owned())], body)
}

/// `initialize` in session `s1`, notifications taken, one tool `echo`; calls go to the function.
fn answer(request: &Request, call: impl Fn(&Value) -> Reply) -> Reply {
    let id = &request.body["id"];
    match request.body["method"].as_str() {
        Some("initialize") => {
            let result = json!({"protocolVersion": "2025-03-26", "capabilities": {"tools": {}}});
            let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
            let headers =
                vec![("content-type", "application/json".to_owned()), ("mcp-session-id", "s1".to_owned())];
            Reply::Answer(200, headers, body)
        }
        Some("tools/list") => {
            json_reply(id, json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}))
        }
        Some("tools/call") => call(id),
        _ => Reply::Answer(202, Vec::new(), String::new()),
    }
}

async fn hub(web: &Web) -> Hub {
    Hub::of(TempDir::new().unwrap(), connected(config(web)).await.unwrap())
}

fn said(words: &str) -> Value {
    json!({"content": [{"type": "text", "text": words}]})
}

#[tokio::test]
async fn a_call_goes_with_session_version_and_key() {
    let web = Web::new(|request| answer(request, |id| json_reply(id, said("hello"))));
    let hub = hub(&web).await;
    assert_eq!(hub.call("echo", json!({"text": "x"})).await.content, vec![text("hello")]);
    hub.server.close().await;
    let seen = web.seen();
    let told: Vec<(&str, &str, Option<&str>, Option<&str>)> = seen
        .iter()
        .map(|request| {
            let method = request.body["method"].as_str().unwrap_or("-");
            (
                request.method.as_str(),
                method,
                request.header("mcp-session-id"),
                request.header("mcp-protocol-version"),
            )
        })
        .collect();
    let (session, version) = (Some("s1"), Some("2025-03-26"));
    assert_eq!(
        told,
        [
            ("POST", "initialize", None, None),
            ("POST", "notifications/initialized", session, version),
            ("POST", "tools/list", session, version),
            ("POST", "tools/call", session, version),
            ("DELETE", "-", session, version),
        ]
    );
    assert!(seen.iter().all(|request| request.header("authorization") == Some("Bearer x")));
    let params =
        json!({"name": "echo", "arguments": {"text": "x"}, "_meta": {"progressToken": seen[3].body["id"]}});
    assert_eq!(seen[3].body["params"], params);
    assert_eq!(seen[0].header("accept"), Some("application/json, text/event-stream"));
}

#[tokio::test]
async fn an_answer_may_come_as_events_with_questions_before_it() {
    let web = Web::new(|request| {
        answer(request, |id| {
            let events = [
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}),
                json!({"jsonrpc": "2.0", "id": 77, "method": "ping"}),
                json!({"jsonrpc": "2.0", "id": 78, "method": "roots/list"}),
                json!({"jsonrpc": "2.0", "id": id, "result": said("streamed")}),
            ];
            let body: String =
                events.iter().map(|event| format!("event: message\r\ndata: {event}\r\n\r\n")).collect();
            Reply::Answer(200, vec![("content-type", "text/event-stream".to_owned())], body)
        })
    });
    let hub = hub(&web).await;
    assert_eq!(hub.call("echo", json!({})).await.content, vec![text("streamed")]);
    let replies: Vec<Value> = web
        .seen()
        .into_iter()
        .map(|request| request.body)
        .filter(|body| body.get("method").is_none())
        .collect();
    assert_eq!(
        replies,
        [
            json!({"jsonrpc": "2.0", "id": 77, "result": {}}),
            json!({"jsonrpc": "2.0", "id": 78, "error": {"code": -32601, "message": "this client offers nothing of the kind"}}),
        ]
    );
}

#[tokio::test]
async fn an_ended_session_is_begun_anew_once() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let web = Web::new(move |request| {
        let calls = Arc::clone(&counted);
        answer(request, move |id| match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Reply::Answer(404, Vec::new(), String::new()),
            _ => json_reply(id, said("back")),
        })
    });
    let hub = hub(&web).await;
    assert_eq!(hub.call("echo", json!({})).await.content, vec![text("back")]);
    let starts = web.seen().iter().filter(|request| request.body["method"] == "initialize").count();
    assert_eq!((starts, calls.load(Ordering::SeqCst)), (2, 2));
}

#[tokio::test]
async fn what_goes_wrong_is_told() {
    let reply = |status: u16, kind: &'static str, body: &'static str| {
        move |_: &Value| Reply::Answer(status, vec![("content-type", kind.to_owned())], body.to_owned())
    };
    let check = async |call: Box<dyn Fn(&Value) -> Reply + Send + Sync>, expected: &str| {
        let web = Web::new(move |request| answer(request, &call));
        let output = hub(&web).await.call("echo", json!({})).await;
        assert_eq!(output, ToolOutput::error(format!("echo of the MCP server hub failed: {expected}")));
    };
    check(
        Box::new(reply(500, "text/plain", "out of\x07 cheese")),
        "the server answered with HTTP status 500: out of  cheese",
    )
    .await;
    check(
        Box::new(reply(401, "text/plain", "")),
        "the server answered with HTTP status 401: the key or token is missing or not accepted",
    )
    .await;
    check(
        Box::new(reply(200, "text/html", "<p>")),
        "the server does not keep to the protocol: its answer is of type `text/html`",
    )
    .await;
    check(
        Box::new(reply(200, "application/json", "{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}")),
        "the server does not keep to the protocol: its answer is to something else",
    )
    .await;
    check(
        Box::new(reply(200, "text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"method\":\"x\"}\n\n")),
        "the server is gone: it ended the stream without an answer\nWhether the call had an effect is not known. A further call connects again.",
    )
    .await;
    check(
        Box::new(|id: &Value| {
            let body = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no text"}})
                .to_string();
            Reply::Answer(200, vec![("content-type", "application/json".to_owned())], body)
        }),
        "the server answered with error -32602: no text",
    )
    .await;
}

#[tokio::test]
async fn a_call_that_broke_on_a_kept_connection_is_carried_out_once() {
    let web = Web::new(|request| answer(request, |_| Reply::Break));
    let output = hub(&web).await.call("echo", json!({})).await;
    let host = web.url.trim_start_matches("http://").trim_end_matches("/mcp");
    assert_eq!(
        output,
        ToolOutput::error(format!(
            "echo of the MCP server hub failed: {host} closed the connection without an answer\n\
             Whether the call had an effect is not known."
        ))
    );
    let calls = web.seen().iter().filter(|request| request.body["method"] == "tools/call").count();
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn a_cancelled_call_leaves_a_hanging_server() {
    let web = Web::new(|request| answer(request, |_| Reply::Hang));
    let hub = hub(&web).await;
    let cancel = CancellationToken::new();
    let asked = |method: &str| web.seen().iter().any(|request| request.body["method"] == method);
    let (output, ()) = tokio::join!(hub.call_until("echo", json!({}), &cancel), async {
        until(|| asked("tools/call")).await;
        cancel.cancel();
    });
    assert_eq!(output, ToolOutput::error("cancelled"));
}

#[tokio::test]
async fn nobody_there_is_told_at_the_start() {
    let mut config = config(&Web::new(|_| Reply::Hang));
    config.endpoint = McpEndpoint::Http { url: "http://127.0.0.1:1/mcp".to_owned(), headers: Vec::new() };
    let error = connected(config).await.map(|_| ()).unwrap_err();
    assert_eq!(error.to_string(), "nothing answers at 127.0.0.1:1: connection refused");
}

#[tokio::test]
async fn a_restarted_server_that_knows_no_session_gets_a_new_one() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let web = Web::new(move |request| {
        let calls = Arc::clone(&counted);
        answer(request, move |id| match calls.fetch_add(1, Ordering::SeqCst) {
            // What the official servers say, which is not what the protocol says.
            0 => {
                let body = json!({"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}, "id": null});
                Reply::Answer(400, vec![("content-type", "application/json".to_owned())], body.to_string())
            }
            _ => json_reply(id, said("back")),
        })
    });
    let hub = hub(&web).await;
    assert_eq!(hub.call("echo", json!({})).await.content, vec![text("back")]);
    let starts = web.seen().iter().filter(|request| request.body["method"] == "initialize").count();
    assert_eq!((starts, calls.load(Ordering::SeqCst)), (2, 2));
}

#[tokio::test]
async fn progress_extends_the_time_limit_and_is_shown() {
    /// No sign stays away for so long, on a loaded machine either.
    const LIMIT: std::time::Duration = std::time::Duration::from_secs(4);
    let (send, events) = std::sync::mpsc::channel();
    let events = std::sync::Mutex::new(Some(events));
    let web =
        Web::new(move |request| answer(request, |_| Reply::Events(events.lock().unwrap().take().unwrap())));
    let mut config = config(&web);
    config.timeout = LIMIT;
    let hub = Hub::of(TempDir::new().unwrap(), connected(config).await.unwrap());
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let (noted, cancel) = (Arc::clone(&seen), CancellationToken::new());
    let progress = move |text: &str| noted.lock().unwrap().push_str(text);
    let call = caliban_tools::CallContext { id: "c1", cancel: &cancel, progress: &progress, fence: None };
    let (output, ()) = tokio::join!(hub.tool("echo").call(json!({}), call), async {
        until(|| web.seen().iter().any(|request| request.body["method"] == "tools/call")).await;
        let call =
            web.seen().into_iter().find(|request| request.body["method"] == "tools/call").unwrap().body;
        let token = &call["params"]["_meta"]["progressToken"];
        // Longer than the limit in all, never so long without a sign.
        let begun = std::time::Instant::now();
        for step in 1.. {
            let params = json!({"progressToken": token, "progress": step, "total": 9, "message": "at it"});
            let event = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
            send.send(format!("data: {event}\n\n")).unwrap();
            until(|| seen.lock().unwrap().contains(&format!("{step}/9 at it\n"))).await;
            if begun.elapsed() > 2 * LIMIT {
                break;
            }
        }
        let event = json!({"jsonrpc": "2.0", "id": call["id"], "result": said("done")});
        send.send(format!("data: {event}\n\n")).unwrap();
    });
    assert_eq!(output.content, vec![text("done")]);
}

#[tokio::test]
async fn a_server_may_speak_the_older_way() {
    let (send, events) = std::sync::mpsc::channel();
    let events = std::sync::Mutex::new(Some(events));
    let sender = std::sync::Mutex::new(send);
    let web = Web::new(move |request| {
        if request.method == "GET" {
            let sender = sender.lock().unwrap();
            sender.send("event: endpoint\ndata: /messages?session=7\n\n".to_owned()).unwrap();
            return Reply::Events(events.lock().unwrap().take().unwrap());
        }
        assert_eq!(request.path, "/messages?session=7");
        // The answer goes into the stream.
        if let Reply::Answer(200, _, body) = answer(request, |id| json_reply(id, said("streamed"))) {
            sender.lock().unwrap().send(format!("event: message\ndata: {body}\n\n")).unwrap();
        }
        Reply::Answer(202, Vec::new(), String::new())
    });
    let mut config = config(&web);
    config.endpoint =
        McpEndpoint::Sse { url: web.url.clone(), headers: vec![("x-key".to_owned(), "k".to_owned())] };
    let hub = Hub::of(TempDir::new().unwrap(), connected(config).await.unwrap());
    assert_eq!(hub.call("echo", json!({})).await.content, vec![text("streamed")]);
    assert!(web.seen().iter().all(|request| request.header("x-key") == Some("k")));
}

#[tokio::test]
async fn resources_are_listed_read_and_put_into_prompts() {
    let web = Web::new(|request| {
        let id = &request.body["id"];
        match request.body["method"].as_str() {
            Some("initialize") => {
                json_reply(id, json!({"protocolVersion": "2025-06-18", "capabilities": {"resources": {}}}))
            }
            Some("resources/list") => json_reply(
                id,
                json!({"resources": [{"uri": "db://users", "name": "users", "description": "all of them"}]}),
            ),
            Some("resources/read") if request.body["params"]["uri"] == "db://users" => {
                json_reply(id, json!({"contents": [{"uri": "db://users", "text": "ada, bob"}]}))
            }
            Some("resources/read") => {
                let body =
                    json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32002, "message": "not found"}});
                Reply::Answer(200, vec![("content-type", "application/json".to_owned())], body.to_string())
            }
            _ => Reply::Answer(202, Vec::new(), String::new()),
        }
    });
    let server = connected(config(&web)).await.unwrap();
    let directory = TempDir::new().unwrap();
    let outputs = Arc::new(caliban_mcp::Outputs::new(directory.path().join("outputs"), 1_000, None));
    let servers = [server];
    let tool = caliban_mcp::resource_tool(&servers, &outputs).unwrap();
    let cancel = CancellationToken::new();
    let call = async |input: Value| {
        let call = caliban_tools::CallContext { id: "c1", cancel: &cancel, progress: &|_| {}, fence: None };
        tool.call(input, call).await.content
    };
    assert_eq!(call(json!({"server": "hub"})).await, vec![text("db://users users all of them")]);
    assert_eq!(call(json!({"server": "hub", "uri": "db://users"})).await, vec![text("ada, bob")]);
    let prompt = "compare @hub:db://users, with @hub:db://none and @other:x and a@hub:b";
    assert_eq!(
        caliban_mcp::expanded(&servers, prompt, &cancel).await,
        [
            "[@hub:db://users]\nada, bob",
            "[@hub:db://none]\ncannot be read: the server answered with error -32002: not found"
        ]
    );
}

#[tokio::test]
async fn a_question_of_a_server_is_put_to_a_person_and_the_time_limit_does_not_run_meanwhile() {
    let (send, events) = std::sync::mpsc::channel();
    let events = std::sync::Mutex::new(Some(events));
    let sender = std::sync::Mutex::new(send);
    let web = Web::new(move |request| {
        // The person's answer is the server's result.
        if request.body.get("result").is_some() {
            let result = said(&request.body["result"].to_string());
            let event = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result});
            sender.lock().unwrap().send(format!("data: {event}\n\n")).unwrap();
        }
        answer(request, |id| {
            let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}});
            let params = json!({"message": "Delete it?", "requestedSchema": schema});
            let event = json!({"jsonrpc": "2.0", "id": id, "method": "elicitation/create", "params": params});
            sender.lock().unwrap().send(format!("data: {event}\n\n")).unwrap();
            Reply::Events(events.lock().unwrap().take().unwrap())
        })
    });
    let limit = std::time::Duration::from_secs(6);
    let config = ServerConfig { timeout: limit, ..config(&web) };
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked);
    let elicit: caliban_mcp::Elicit = Arc::new(move |question| {
        noted.lock().unwrap().push((question.server, question.message));
        Box::pin(async move {
            // Longer than the limit of the call, which the rest of it must keep on a busy machine, too.
            tokio::time::sleep(limit + std::time::Duration::from_secs(1)).await;
            caliban_mcp::ElicitationReply::Yes
        })
    });
    let http = Arc::new(caliban_http::HttpClient::new(caliban_http::ClientOptions::default()));
    let mut all = caliban_mcp::connect(&[config], &http, Some(&elicit), &CancellationToken::new()).await;
    let hub = Hub::of(TempDir::new().unwrap(), all.remove(0).1.unwrap());
    let output = hub.call("echo", json!({})).await;
    assert_eq!(output.content, vec![text(r#"{"action":"accept","content":{"ok":true}}"#)]);
    assert_eq!(*asked.lock().unwrap(), [("hub".to_owned(), "Delete it?".to_owned())]);
    assert_eq!(web.seen()[0].body["params"]["capabilities"], json!({"elicitation": {}}));
}
