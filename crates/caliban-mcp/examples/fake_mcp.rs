//! An MCP server for the tests: `fake_mcp <directory> [mode]`. It leaves traces of what happened in the
//! directory.

use std::{
    fs,
    io::{self, BufRead, Write},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
};

use caliban_mcp::{DEFAULT_STARTUP_TIMEOUT, DEFAULT_TIMEOUT, McpEndpoint, ServerConfig, connect};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    // The keeper of servers, which `caliban` is in its hidden mode.
    if arguments.peek().is_some_and(|mode| mode == caliban_contract::modes::REAP) {
        return caliban_keeper::reaper_main();
    }
    if arguments.next_if(|mode| mode == "client").is_some() {
        return client(arguments.next().unwrap_or_default().into());
    }
    let directory = PathBuf::from(arguments.next().unwrap_or_default());
    let mode = arguments.next().unwrap_or_default();
    let mut stdout = io::stdout();
    match mode.as_str() {
        "fails" => {
            let _ = writeln!(io::stderr(), "no database here");
            return ExitCode::from(3);
        }
        "silent" => {
            let _ = io::stdin().lines().last();
            return ExitCode::SUCCESS;
        }
        "floods" => {
            let piece = vec![b'x'; 1 << 20];
            while stdout.write_all(&piece).is_ok() {}
            return ExitCode::SUCCESS;
        }
        "greets" => {
            let _ = writeln!(stdout, "Welcome to the fake server!");
        }
        _ => {}
    }
    let mut starts = fs::OpenOptions::new().create(true).append(true).open(directory.join("starts")).ok();
    if let Some(starts) = &mut starts {
        let _ = writeln!(starts, "{}", std::process::id());
    }
    let mut slow = Value::Null;
    let mut more = (mode == "learns").then_some("learn");
    for line in io::stdin().lock().lines() {
        let Ok(message) =
            line.map_err(drop).and_then(|line| serde_json::from_str::<Value>(&line).map_err(drop))
        else {
            continue;
        };
        let id = message["id"].clone();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                // The client has to answer this before anything else works.
                let _ = writeln!(stdout, "{}", json!({"jsonrpc": "2.0", "id": "p1", "method": "ping"}));
                let version = if mode == "future" { "2099-01-01" } else { "2025-06-18" };
                json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}})
            }
            "notifications/initialized" => {
                let _ = fs::write(directory.join("initialized"), "");
                continue;
            }
            "notifications/cancelled" => {
                if message["params"]["requestId"] == slow {
                    let _ = fs::write(
                        directory.join("cancelled"),
                        message["params"]["reason"].as_str().unwrap_or_default(),
                    );
                }
                continue;
            }
            "tools/list" => page(&message, more),
            "tools/call" => match message["params"]["name"].as_str().unwrap_or_default() {
                "slow" => {
                    slow = id;
                    let _ = fs::write(directory.join("slow"), "");
                    continue;
                }
                "die" => {
                    let _ = writeln!(io::stderr(), "out of cheese");
                    return ExitCode::from(7);
                }
                "learn" => {
                    more = Some("skill");
                    let mut result = text("learned");
                    result["list_changed"] = true.into();
                    result
                }
                "last_words" => {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": text("farewell")});
                    let _ = writeln!(stdout, "{answer}");
                    return ExitCode::SUCCESS;
                }
                name => call(name, &message["params"]["arguments"]),
            },
            _ if message.get("result").is_some() => {
                let _ = fs::write(directory.join("pong"), "");
                continue;
            }
            _ => {
                let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}});
                let _ = writeln!(stdout, "{error}");
                continue;
            }
        };
        let _ = writeln!(stdout, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result}));
        if result["list_changed"] == true {
            let _ = writeln!(
                stdout,
                "{}",
                json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            );
        }
    }
    let _ = fs::write(directory.join("closed"), "");
    if mode == "stays" {
        loop {
            std::thread::park();
        }
    }
    ExitCode::SUCCESS
}

/// Connects to a server that stays when its input ends, and stays itself.
fn client(directory: PathBuf) -> ExitCode {
    let Ok(helper) = std::env::current_exe() else { return ExitCode::FAILURE };
    let endpoint = McpEndpoint::Stdio {
        command: helper.clone().into(),
        helper,
        args: vec![directory.clone().into(), "stays".into()],
        env: Vec::new(),
        cwd: directory,
        fence: None,
        limits: caliban_contract::tree_limits::TreeLimits::default(),
    };
    let (timeout, startup_timeout) = (DEFAULT_TIMEOUT, DEFAULT_STARTUP_TIMEOUT);
    let config = ServerConfig { name: "hub".to_owned(), endpoint, timeout, startup_timeout };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        let http = Arc::new(caliban_http::HttpClient::new(caliban_http::ClientOptions::default()));
        let _connected = connect(&[config], &http, None, &CancellationToken::new()).await;
        std::future::pending().await
    })
}

fn page(message: &Value, more: Option<&str>) -> Value {
    let tool = |name: &str| json!({"name": name, "description": format!("does {name}"), "inputSchema": {"type": "object"}});
    match message["params"]["cursor"].as_str() {
        None => json!({"tools": [
            {"name": "echo", "description": "says it again",
             "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
             "annotations": {"readOnlyHint": true}},
            tool("big"), tool("die"), {"description": "nameless"},
        ], "nextCursor": "2"}),
        Some("2") => json!({"tools": [
            tool("picture"), tool("fail"), tool("slow"), tool("env"), tool("spawn"), tool("last_words"), tool("structured"),
            tool("orphan"),
            {"name": "odd name/ä", "description": "x".repeat(5_000)},
        ], "nextCursor": more.map(|_| "3")}),
        Some(_) => json!({"tools": more.map(tool).into_iter().collect::<Vec<_>>()}),
    }
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

#[expect(clippy::disallowed_methods, reason = "it shows its environment to the tests")]
fn call(name: &str, arguments: &Value) -> Value {
    match name {
        "echo" => text(arguments["text"].as_str().unwrap_or("nothing")),
        "big" => text(&"0123456789".repeat(10_000)),
        "picture" => json!({"content": [
            {"type": "text", "text": "look:"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "image", "mimeType": "image/tiff", "data": "AAAA"},
            {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]}),
        "fail" => json!({"content": [{"type": "text", "text": "no such issue"}], "isError": true}),
        "structured" => json!({"content": [], "structuredContent": {"a": 1}}),
        "env" => {
            let mut names: Vec<String> =
                std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
            names.sort();
            text(&names.join(" "))
        }
        "spawn" => {
            // One in the group, one that has left it.
            let start = |command: &mut Command| command.arg("1000").spawn().map_or(0, |child| child.id());
            let near = start(&mut Command::new("/bin/sleep"));
            let far = start(Command::new("/bin/sleep").process_group(0));
            text(&format!("{near} {far}"))
        }
        "orphan" => {
            let script = "/usr/bin/setsid /bin/sh -c 'echo $$; exec /bin/sleep 1000 >/dev/null 2>&1' &";
            let said = Command::new("/bin/sh").args(["-c", script]).stdin(Stdio::null()).output();
            text(String::from_utf8_lossy(&said.map(|it| it.stdout).unwrap_or_default()).trim())
        }
        _ => json!({"content": [{"type": "text", "text": "no such tool"}], "isError": true}),
    }
}
