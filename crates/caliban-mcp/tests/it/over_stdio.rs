//! A server that is a child process.

use std::path::PathBuf;

use caliban_contract::tree_limits::TreeLimits;
use caliban_core::{access::Access, cap, message::ResultPart};
use caliban_mcp::{McpEndpoint, McpError};
use caliban_tools::ToolOutput;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::fake::{CHARS, Hub, LONG, config, connected, program, text, until};

#[tokio::test]
async fn tools_of_all_pages_are_listed_by_name() {
    let hub = Hub::new("").await;
    let names: Vec<&str> = hub.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
    assert_eq!(
        names,
        [
            "mcp__hub__big",
            "mcp__hub__die",
            "mcp__hub__echo",
            "mcp__hub__env",
            "mcp__hub__fail",
            "mcp__hub__last_words",
            "mcp__hub__odd_name__",
            "mcp__hub__orphan",
            "mcp__hub__picture",
            "mcp__hub__slow",
            "mcp__hub__spawn",
            "mcp__hub__structured",
        ]
    );
    assert_eq!(hub.server.left_out(), ["a tool without a name"]);
    let echo = hub.tool("echo");
    assert_eq!(echo.spec().description, "says it again");
    assert_eq!(
        echo.spec().input_schema,
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    );
    let access =
        |tool: &str, read_only| Access::Mcp { server: "hub".to_owned(), tool: tool.to_owned(), read_only };
    assert_eq!(echo.access(&json!({})), Ok(vec![access("echo", true)]));
    assert_eq!(hub.tool("odd_name__").access(&json!({})), Ok(vec![access("odd name/ä", false)]));
    assert_eq!(hub.tool("odd_name__").spec().description.chars().count(), 2_000);
    assert_eq!(
        echo.access(&json!("x")),
        Err("mcp__hub__echo: the arguments must be a JSON object".to_owned())
    );
    hub.trace("initialized").await;
    hub.trace("pong").await;
    hub.server.close().await;
}

#[tokio::test]
async fn answers_become_texts_and_pictures() {
    let hub = Hub::new("greets").await;
    let output =
        |content, summary: &str| ToolOutput { content, summary: summary.to_owned(), ..ToolOutput::default() };
    assert_eq!(hub.call("echo", json!({"text": "hi"})).await, output(vec![text("hi")], "1 line"));
    let picture = ResultPart::Image { media_type: "image/png".to_owned(), data: "AAAA".to_owned() };
    let rest = "[a picture of type image/tiff, 3 bytes, left out]\n[a part of type `audio`, left out]\n[file:///a]\ninside\n\
                [file:///b] b";
    // In the server's order: what is said about a picture stands beside it.
    let parts = vec![text("look:"), picture, text(rest)];
    assert_eq!(hub.call("picture", json!({})).await, output(parts, "1 pictures"));
    assert_eq!(hub.call("structured", json!({})).await, output(vec![text("{\n  \"a\": 1\n}")], "3 lines"));
    assert_eq!(
        hub.call("fail", json!({})).await,
        ToolOutput { is_error: true, ..output(vec![text("no such issue")], "no such issue") }
    );
    assert_eq!(hub.server.log(), "Welcome to the fake server!\n");
    hub.server.close().await;
}

#[tokio::test]
async fn the_model_is_told_when_the_tools_of_a_server_change() {
    let hub = Hub::new("learns").await;
    // The server says it behind its answer: with that, or with the next.
    let news = text("[the tools of hub have changed (new: skill; gone: learn); a new session has them]");
    let mut content = hub.call("learn", json!({})).await.content;
    assert_eq!(content[0], text("learned"));
    while content.len() < 2 {
        content = hub.call("echo", json!({"text": "hi"})).await.content;
    }
    assert_eq!(content[1], news);
    assert_eq!(hub.call("echo", json!({"text": "hi"})).await.content, vec![text("hi")]);
    hub.server.close().await;
}

#[tokio::test]
async fn a_long_answer_is_cut_and_kept_whole() {
    let hub = Hub::new("").await;
    let whole = "0123456789".repeat(10_000);
    let path = hub.directory.path().join("outputs/mcp-1.txt");
    let shown = cap::middle(&whole, cap::Cap::Chars(CHARS));
    let expected = ToolOutput {
        content: vec![text(&format!("{shown}\n[whole output: {}]", path.display()))],
        summary: "1 line".to_owned(),
        whole: Some(path.clone()),
        ..ToolOutput::default()
    };
    assert_eq!(hub.call("big", json!({})).await, expected);
    assert_eq!(std::fs::read_to_string(path).unwrap(), whole);
    hub.server.close().await;
}

#[tokio::test]
async fn a12_a_server_gets_only_the_environment_it_is_given() {
    let hub = Hub::new("").await;
    assert_eq!(hub.call("env", json!({})).await.content, vec![text("ONLY")]);
    hub.server.close().await;
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_the_server_is_told() {
    let hub = Hub::new("").await;
    let cancel = CancellationToken::new();
    let (output, ()) = tokio::join!(hub.call_until("slow", json!({}), &cancel), async {
        hub.trace("slow").await;
        cancel.cancel();
    });
    assert_eq!(output, ToolOutput::error("cancelled"));
    until(|| hub.directory.path().join("cancelled").exists()).await;
    // The connection is as good as before.
    assert_eq!(hub.call("echo", json!({"text": "on"})).await.content, vec![text("on")]);
    hub.server.close().await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_fails_in_words() {
    let directory = TempDir::new().unwrap();
    let mut config = config(directory.path(), "");
    config.timeout = std::time::Duration::from_millis(50);
    let hub = Hub::of(directory, connected(config).await.unwrap());
    assert_eq!(
        hub.call("slow", json!({})).await,
        ToolOutput::error("slow of the MCP server hub failed: the call took longer than 0.05 s")
    );
    assert_eq!(hub.trace("cancelled").await, "it took too long");
    hub.server.close().await;
}

#[tokio::test]
async fn a_server_that_dies_is_told_of_and_started_anew() {
    let hub = Hub::new("").await;
    let expected = "die of the MCP server hub failed: the server is gone: it ended (exit status: 7); it said: out of cheese\n\
                    Whether the call had an effect is not known. A further call connects again.";
    assert_eq!(hub.call("die", json!({})).await, ToolOutput::error(expected));
    assert_eq!(hub.call("echo", json!({"text": "again"})).await.content, vec![text("again")]);
    assert_eq!(hub.trace("starts").await.lines().count(), 2);
    hub.server.close().await;
}

#[tokio::test]
async fn an_answer_just_before_the_end_is_not_lost() {
    let hub = Hub::new("").await;
    assert_eq!(hub.call("last_words", json!({})).await.content, vec![text("farewell")]);
    // A call that reaches it between its last word and the notice of its end is told so, and not made again.
    while hub.call("echo", json!({"text": "0"})).await.is_error {}
    let (one, two) =
        tokio::join!(hub.call("echo", json!({"text": "1"})), hub.call("echo", json!({"text": "2"})));
    assert_eq!((one.content, two.content), (vec![text("1")], vec![text("2")]));
    assert_eq!(hub.trace("starts").await.lines().count(), 2);
    hub.server.close().await;
}

#[tokio::test]
async fn nothing_of_a_server_is_left_when_it_is_closed() {
    let hub = Hub::new("").await;
    let pids: Vec<String> =
        hub.call("spawn", json!({})).await.joined_text().split_whitespace().map(str::to_owned).collect();
    assert_eq!(pids.iter().filter(|pid| alive(pid)).count(), 2);
    let server = hub.trace("starts").await;
    hub.server.close().await;
    until(|| !pids.iter().any(|pid| alive(pid)) && !alive(server.trim())).await;
    // It had the time to leave by itself.
    hub.trace("closed").await;
}

#[tokio::test]
async fn r06_a_server_whose_children_leave_every_group_and_parent_is_gone_with_them() {
    let hub = Hub::new("").await;
    // In a session of its own, and an orphan.
    let stray = hub.call("orphan", json!({})).await.joined_text();
    assert!(alive(&stray));
    hub.server.close().await;
    assert!(!alive(&stray));
}

#[tokio::test]
async fn r06_a_server_that_does_not_listen_is_ended_with_its_client_killed() {
    let directory = TempDir::new().unwrap();
    let client = std::process::Command::new(program())
        .args([std::ffi::OsStr::new("client"), directory.path().as_os_str()])
        .spawn()
        .unwrap();
    let starts = directory.path().join("starts");
    until(|| std::fs::read_to_string(&starts).is_ok_and(|text| text.ends_with('\n'))).await;
    let server = std::fs::read_to_string(starts).unwrap();
    assert!(alive(server.trim()));
    let mut client = client;
    client.kill().unwrap();
    client.wait().unwrap();
    until(|| !alive(server.trim())).await;
}

#[tokio::test]
async fn dropping_a_server_kills_it() {
    let hub = Hub::new("").await;
    let pids = hub.call("spawn", json!({})).await.joined_text();
    let server = hub.trace("starts").await;
    drop(hub);
    until(|| !pids.split_whitespace().any(alive) && !alive(server.trim())).await;
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let directory = TempDir::new().unwrap();
    let told = async |mode: &str| {
        connected(config(directory.path(), mode)).await.map(|_| ()).unwrap_err().to_string()
    };
    assert_eq!(
        told("fails").await,
        "the server is gone: it ended (exit status: 3); it said: no database here"
    );
    assert_eq!(
        told("future").await,
        "the server does not keep to the protocol: it speaks version `2099-01-01`, which is not known here"
    );
    let mut missing = config(directory.path(), "");
    missing.endpoint = McpEndpoint::Stdio {
        helper: program(),
        command: "/no/such/server".into(),
        args: Vec::new(),
        env: Vec::new(),
        cwd: PathBuf::from("/"),
        fence: None,
        limits: TreeLimits::default(),
    };
    let Err(McpError::Start { program, source }) = connected(missing).await.map(|_| ()) else {
        panic!("it has started");
    };
    let why = "No such file or directory (os error 2)".to_owned();
    assert_eq!((program, source.to_string()), ("/no/such/server".to_owned(), why));
    let mut silent = config(directory.path(), "silent");
    silent.startup_timeout = std::time::Duration::from_millis(50);
    let error = connected(silent).await.map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "starting the server took longer than 0.05 s");
}

#[tokio::test]
async fn a14_a_line_without_end_is_not_kept() {
    let directory = TempDir::new().unwrap();
    let error = connected(config(directory.path(), "floods")).await.map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "the server is gone: it sent a message of more than 32 MiB");
}

#[tokio::test]
async fn starting_can_be_cancelled() {
    let directory = TempDir::new().unwrap();
    let http = std::sync::Arc::new(caliban_http::HttpClient::new(caliban_http::ClientOptions::default()));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let mut all = caliban_mcp::connect(&[config(directory.path(), "silent")], &http, None, &cancel).await;
    assert!(matches!(all.remove(0).1.map(|_| ()), Err(McpError::Cancelled)));
    assert_eq!(LONG, config(directory.path(), "").timeout);
}

fn alive(pid: &str) -> bool {
    // A zombie is nobody's process any more.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

#[tokio::test]
async fn a20_a_server_that_takes_too_much_is_ended_in_words() {
    let directory = tempfile::tempdir().unwrap();
    let mut greedy = config(directory.path(), "");
    greedy.endpoint = McpEndpoint::Stdio {
        helper: program(),
        command: "/bin/sh".into(),
        args: vec!["-c".into(), "for n in $(seq 100); do sleep 600 & done; wait".into()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: directory.path().to_owned(),
        fence: None,
        limits: TreeLimits { pids: Some(50), ..TreeLimits::default() },
    };
    let Err(error) = connected(greedy).await.map(|_| ()) else { panic!("it has started") };
    let said = error.to_string();
    assert!(said.contains("[killed: had more than 50 processes (fleet.pids_max)]"), "{said}");
}
