//! What comes over the wire that should not, byte for byte.

use std::{sync::Arc, time::Duration};

use caliban_acp::connection::{ConnError, ConnectionLimits, MAX_IN_FLIGHT, MAX_LINE_BYTES};
use caliban_acp_host::{ServeOptions, Sessions, serve};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};

use crate::world::{World, pipe};

struct Raw {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    writer: WriteHalf<DuplexStream>,
}

impl Raw {
    async fn connect() -> (Self, Arc<World>) {
        let world = Arc::new(World::new(json!({"steps": [{"repeat": true, "text": "hi"}]})));
        let sessions = Arc::new(Sessions::made_by(world.clone()));
        let (reader, writer) = tokio::io::split(pipe(&sessions));
        (Self { lines: BufReader::new(reader).lines(), writer }, world)
    }

    async fn send(&mut self, line: &str) {
        self.writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> Option<Value> {
        let line = self.lines.next_line().await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap())
    }

    /// The next answer: its id and, of an error, the code.
    async fn answer(&mut self) -> (Value, Option<i64>) {
        loop {
            let message = self.read().await.expect("an answer");
            if message.get("method").is_none() {
                return (message["id"].clone(), message["error"]["code"].as_i64());
            }
        }
    }

    async fn initialize(&mut self) {
        self.send(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#).await;
        assert_eq!(self.answer().await, (json!(0), None));
    }
}

#[tokio::test]
async fn nothing_goes_before_initialize_and_it_comes_once() {
    let (mut raw, _world) = Raw::connect().await;
    raw.send(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#).await;
    assert_eq!(raw.answer().await, (json!(1), Some(-32600)));
    raw.send(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#).await;
    raw.send(r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{}}"#).await;
    assert_eq!(raw.answer().await, (json!(2), Some(-32602)));
    raw.initialize().await;
    raw.send(r#"{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":1}}"#).await;
    assert_eq!(raw.answer().await, (json!(3), Some(-32600)));
}

#[tokio::test]
async fn the_server_names_its_version_whatever_the_client_speaks() {
    for version in [0, 1, 7] {
        let (mut raw, _world) = Raw::connect().await;
        let request = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {"protocolVersion": version}});
        raw.send(&request.to_string()).await;
        let answer = raw.read().await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]["protocolVersion"]), (&json!("a"), &json!(1)));
        assert_eq!(
            answer["result"]["agentCapabilities"]["promptCapabilities"],
            json!({"image": true, "audio": false, "embeddedContext": true})
        );
    }
}

#[tokio::test]
async fn a14_garbage_is_answered_and_the_connection_goes_on() {
    let (mut raw, world) = Raw::connect().await;
    raw.initialize().await;
    for (line, id, code) in [
        ("garbage", Value::Null, -32700),
        ("\u{0}\u{1}\u{2}", Value::Null, -32700),
        ("[]", Value::Null, -32600),
        (r#"{"jsonrpc":"1.0","id":5,"method":"x"}"#, json!(5), -32600),
        (r#"{"jsonrpc":"2.0","id":6,"method":"no/such"}"#, json!(6), -32601),
        (r#"{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":[1]}"#, json!(7), -32602),
        (r#"{"jsonrpc":"2.0","id":8,"method":"session/new"}"#, json!(8), -32602),
    ] {
        raw.send(line).await;
        assert_eq!(raw.answer().await, (id, Some(code)), "{line}");
    }
    raw.writer.write_all(b"\xff\xfe\n\n  \n").await.unwrap();
    assert_eq!(raw.answer().await, (Value::Null, Some(-32700)));
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":9,"method":"session/new","params":{}{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    raw.send(&deep).await;
    assert_eq!(raw.answer().await, (json!(9), Some(-32602)));
    // Answers to nothing, and cancels of nothing, are nothing.
    raw.send(r#"{"jsonrpc":"2.0","id":99,"result":{}}"#).await;
    raw.send(r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":99}}"#).await;
    raw.send(r#"{"jsonrpc":"2.0","method":"_unknown/thing","params":{}}"#).await;
    let new = json!({"jsonrpc": "2.0", "id": 10, "method": "session/new", "params": {"cwd": world.root(), "mcpServers": []}});
    raw.send(&new.to_string()).await;
    assert_eq!(raw.answer().await, (json!(10), None));
}

#[tokio::test]
async fn a14_a_line_without_an_end_closes_the_connection() {
    for is_initialized in [false, true] {
        let (mut raw, _world) = Raw::connect().await;
        if is_initialized {
            raw.initialize().await;
        }
        let Raw { mut lines, mut writer } = raw;
        let flood = tokio::spawn(async move {
            let piece = vec![b'x'; 64 * 1024];
            let mut sent = 0_usize;
            while writer.write_all(&piece).await.is_ok() {
                sent += piece.len();
            }
            sent
        });
        let line = lines.next_line().await.unwrap().unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(answer["error"]["code"], -32600);
        assert_eq!(lines.next_line().await.unwrap(), None, "closed");
        drop(lines);
        let sent = flood.await.unwrap();
        let limit = if is_initialized { MAX_LINE_BYTES } else { 64 * 1024 };
        assert!(sent <= limit + 1024 * 1024, "{sent} bytes were taken");
    }
}

#[tokio::test]
async fn an_id_in_use_is_refused() {
    let (mut raw, world) = Raw::connect().await;
    raw.initialize().await;
    let new = json!({"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": world.root(), "mcpServers": []}});
    raw.send(&format!("{new}\n{new}")).await;
    let mut answers = [raw.answer().await, raw.answer().await];
    answers.sort_by_key(|(_, code)| *code);
    assert_eq!(answers, [(json!(1), None), (json!(1), Some(-32600))]);
}

#[tokio::test]
async fn a_hung_up_client_leaves_nothing_behind() {
    let (mut raw, _world) = Raw::connect().await;
    raw.initialize().await;
    let Raw { lines, mut writer } = raw;
    writer.shutdown().await.unwrap();
    let mut rest = Vec::new();
    lines.into_inner().read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"");
}

#[tokio::test]
async fn a14_too_many_requests_at_once_are_refused() {
    let (world, _gate) = World::gated(json!({"steps": []}));
    let host = world.host("s").await;
    let (reader, writer) = tokio::io::split(pipe(&Arc::new(Sessions::only(host.clone()))));
    let mut raw = Raw { lines: BufReader::new(reader).lines(), writer };
    raw.initialize().await;
    let load = json!({"jsonrpc": "2.0", "id": "l", "method": "session/load",
        "params": {"sessionId": "s", "cwd": world.root(), "mcpServers": []}});
    raw.send(&load.to_string()).await;
    assert_eq!(raw.answer().await, (json!("l"), None));
    for id in 0..MAX_IN_FLIGHT + 3 {
        let prompt = json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt",
            "params": {"sessionId": "s", "prompt": [{"type": "text", "text": "go"}]}});
        raw.send(&prompt.to_string()).await;
    }
    for id in MAX_IN_FLIGHT..MAX_IN_FLIGHT + 3 {
        assert_eq!(raw.answer().await, (json!(id), Some(-32600)));
    }
    // What goes on can still be cancelled.
    raw.send(r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#).await;
    for _ in 0..MAX_IN_FLIGHT {
        assert_eq!(raw.answer().await.1, None);
    }
    host.close().await;
}

#[tokio::test]
async fn a_cancel_is_for_all_prompts_that_came_before_it_and_none_that_came_after() {
    let (world, gate) = World::gated(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    let host = world.host("s").await;
    let (reader, writer) = tokio::io::split(pipe(&Arc::new(Sessions::only(host.clone()))));
    let mut raw = Raw { lines: BufReader::new(reader).lines(), writer };
    raw.initialize().await;
    let load = json!({"jsonrpc": "2.0", "id": "l", "method": "session/load",
        "params": {"sessionId": "s", "cwd": world.root(), "mcpServers": []}});
    raw.send(&load.to_string()).await;
    assert_eq!(raw.answer().await, (json!("l"), None));
    let prompt = |id: u32, content: Value| {
        json!({"jsonrpc": "2.0", "id": id, "method": "session/prompt", "params": {"sessionId": "s", "prompt": content}})
            .to_string()
    };
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    let picture = json!([{"type": "image", "mimeType": "image/png", "data": "aGk="}]);
    let cancel = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}"#;
    // In one piece: nothing of it has begun when the next line is read.
    let lines = [
        prompt(1, text("a")),
        prompt(2, text("b")),
        prompt(3, picture),
        cancel.to_owned(),
        prompt(4, text("c")),
    ];
    raw.send(&lines.join("\n")).await;
    let mut stopped = Vec::new();
    while stopped.len() < 3 {
        let message = raw.read().await.unwrap();
        if message.get("method").is_none() {
            stopped.push((message["id"].as_u64().unwrap(), message["result"]["stopReason"].clone()));
        }
    }
    stopped.sort_by_key(|(id, _)| *id);
    assert_eq!(stopped, [(1, json!("cancelled")), (2, json!("cancelled")), (3, json!("cancelled"))]);
    gate.add_permits(1);
    assert_eq!(raw.answer().await, (json!(4), None));
    let mut cursor = caliban_agent::feed::Cursor::default();
    let mut heard = Vec::new();
    while let Some(entry) = host.handle().feed().next(&mut cursor) {
        if let caliban_agent::feed::FeedEntry::Record(record) = entry
            && let Some(text) = record.event.typed()
        {
            heard.push(text);
        }
    }
    // Nothing is lost, and the picture has no text.
    assert_eq!(heard, ["a", "b", "", "c"]);
    host.close().await;
}

#[tokio::test]
async fn r23_a_client_that_takes_nothing_for_too_long_is_dropped() {
    let world = World::new(json!({"steps": []}));
    let host = world.host("s").await;
    let (mut ours, theirs) = tokio::io::duplex(1024);
    let (reader, writer) = tokio::io::split(theirs);
    let limits =
        ConnectionLimits { write_timeout: Some(Duration::from_millis(20)), ..ConnectionLimits::default() };
    let options = ServeOptions { limits, ..ServeOptions::socket("0") };
    let sessions = Arc::new(Sessions::only(host.clone()));
    let server = tokio::spawn(serve(reader, writer, sessions, options));
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}});
    let load = json!({"jsonrpc": "2.0", "id": 2, "method": "session/load",
        "params": {"sessionId": "s", "cwd": world.root(), "mcpServers": []}});
    ours.write_all(format!("{hello}\n{load}\n").as_bytes()).await.unwrap();
    let ended = server.await.unwrap();
    assert!(matches!(ended, Err(ConnError::Closed(_))), "{ended:?}");
    host.close().await;
}
