//! m11: `cafleet server`. The original's routes and JSON, messages that are durable before they are answered, panes.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::members::Team;
use crate::world::{World, eventually};

/// A server of a world's database.
struct Server {
    child: Child,
    address: String,
    token: String,
}

impl Server {
    fn start(world: &World) -> Self {
        let mut child = world
            .command(&["--json", "server", "--port", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut line).expect("a line");
        let ready: Value = serde_json::from_str(&line).expect("JSON");
        let port = ready["origin"].as_str().expect("origin").rsplit(':').next().expect("port").to_owned();
        let token = std::fs::read_to_string(ready["token_file"].as_str().expect("file")).expect("token");
        Self { child, address: format!("127.0.0.1:{port}"), token: token.trim().to_owned() }
    }

    fn ask(&self, method: &str, path: &str, session: Option<&str>, body: Option<&Value>) -> (u16, Value) {
        ask(&self.address, &self.token, method, path, session, body).expect("an answer")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ask(
    address: &str,
    token: &str,
    method: &str,
    path: &str,
    session: Option<&str>,
    body: Option<&Value>,
) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let session = session.map_or(String::new(), |id| format!("X-Session-Id: {id}\r\n"));
    let body = body.map_or(String::new(), Value::to_string);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n{session}\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Ok((status, serde_json::from_str(body).unwrap_or_default()))
}

#[test]
fn m11_the_routes_of_the_original_have_their_json() {
    let world = World::with_session();
    world.agent("one");
    let server = Server::start(&world);
    let (session, admin, one) = (world.id("S"), world.id("ADMIN"), world.id("one"));
    let get = |path: &str| server.ask("GET", path, Some(&session), None);
    let (status, sessions) = server.ask("GET", "/ui/api/sessions", None, None);
    assert_eq!(
        (status, &sessions[0]["session_id"], &sessions[0]["agent_count"]),
        (200, &json!(session), &json!(3))
    );
    assert_eq!(server.ask("GET", "/ui/api/agents", None, None).0, 400);
    let nobody = "00000000-0000-4000-8000-000000000000";
    let (status, detail) = server.ask("GET", "/ui/api/agents", Some(nobody), None);
    assert_eq!((status, detail["detail"].is_string()), (404, true));
    let agents = get("/ui/api/agents").1;
    let kinds: Vec<&str> = agents["agents"]
        .as_array()
        .expect("agents")
        .iter()
        .map(|agent| agent["kind"].as_str().expect("kind"))
        .collect();
    assert_eq!(kinds, ["user", "builtin-administrator", "user"]);
    let send = |from: &str, to: &str| {
        let body = json!({"from_agent_id": from, "to_agent_id": to, "text": "hello"});
        server.ask("POST", "/ui/api/messages/send", Some(&session), Some(&body))
    };
    let (status, sent) = send(&admin, &one);
    assert_eq!((status, &sent["status"]), (200, &json!("input_required")), "{sent}");
    assert_eq!((send(nobody, &one).0, send(&admin, nobody).0), (400, 404));
    let (_, all) = send(&admin, "*");
    assert_eq!(all["status"], "completed");
    let inbox = get(&format!("/ui/api/agents/{one}/inbox")).1;
    let messages = inbox["messages"].as_array().expect("messages");
    assert_eq!(messages.len(), 2, "{inbox}");
    let names: Vec<&String> = messages[1].as_object().expect("message").keys().collect();
    assert_eq!(
        names,
        [
            "task_id",
            "from_agent_id",
            "from_agent_name",
            "to_agent_id",
            "to_agent_name",
            "type",
            "status",
            "created_at",
            "status_timestamp",
            "origin_task_id",
            "body"
        ]
    );
    assert_eq!(
        (&messages[1]["task_id"], &messages[0]["origin_task_id"]),
        (&sent["task_id"], &all["task_id"])
    );
    assert_eq!(get(&format!("/ui/api/agents/{admin}/sent")).1["messages"].as_array().expect("sent").len(), 3);
    assert_eq!(get("/ui/api/timeline").1["messages"].as_array().expect("timeline").len(), 3);
    // The command line has them, and its acknowledgement shows.
    world.json(&[
        "--session-id",
        "@S",
        "--json",
        "message",
        "ack",
        "--agent-id",
        "@one",
        "--task-id",
        sent["task_id"].as_str().expect("id"),
    ]);
    let page = server.ask("GET", &format!("/api/v1/broker/sessions/{session}"), None, None).1;
    let entries = page["entries"].as_array().expect("entries");
    assert_eq!(
        (entries[0]["kind"].as_str(), entries[0]["status"].as_str()),
        (Some("message"), Some("completed"))
    );
    assert!(entries[0]["acked_at"].is_string(), "{page}");
    assert_eq!(
        (entries[1]["kind"].as_str(), entries[1]["recipients"].as_array().map(Vec::len)),
        (Some("broadcast"), Some(2))
    );
}

#[test]
fn m11_nothing_that_was_acknowledged_is_lost_under_kill_9() {
    let world = World::with_session();
    world.agent("one");
    let mut server = Server::start(&world);
    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let clients: Vec<_> = (0..8)
        .map(|client| {
            let (address, token) = (server.address.clone(), server.token.clone());
            let (session, admin, one) = (world.id("S"), world.id("ADMIN"), world.id("one"));
            let acknowledged = Arc::clone(&acknowledged);
            std::thread::spawn(move || {
                for number in 0.. {
                    let body = json!({"from_agent_id": admin, "to_agent_id": one, "text": format!("{client} {number}")});
                    let sent = ask(&address, &token, "POST", "/ui/api/messages/send", Some(&session), Some(&body));
                    match sent {
                        Ok((200, sent)) => {
                            let id = sent["task_id"].as_str().expect("id").to_owned();
                            acknowledged.lock().expect("lock").insert(id);
                        }
                        _ => return,
                    }
                }
            })
        })
        .collect();
    eventually("some messages", || (acknowledged.lock().expect("lock").len() > 200).then_some(()));
    server.child.kill().expect("kill -9");
    for client in clients {
        client.join().expect("a client");
    }
    let acknowledged = acknowledged.lock().expect("lock").clone();
    let args = [
        "--session-id",
        "@S",
        "--json",
        "message",
        "poll",
        "--agent-id",
        "@one",
        "--page-size",
        "10000",
        "--full",
    ];
    let stored: BTreeSet<String> = world
        .json(&args)
        .as_array()
        .expect("messages")
        .iter()
        .map(|task| task["task_id"].as_str().expect("id").to_owned())
        .collect();
    assert!(
        acknowledged.len() > 200 && acknowledged.is_subset(&stored),
        "{} of {}",
        acknowledged.len(),
        stored.len()
    );
}

#[test]
fn m11_a_message_of_the_page_is_typed_into_the_members_pane_and_the_pane_is_seen() {
    let team = Team::start(true);
    team.create("worker", &[]);
    let world = &team.tmux.world;
    let server = Server::start(world);
    let (session, worker) = (world.id("S"), world.id("worker"));
    let send = format!("/api/v1/broker/sessions/{session}/send");
    let body = json!({"to": worker, "text": "hello from the page"});
    let (status, sent) = server.ask("POST", &send, None, Some(&body));
    assert_eq!((status, &sent["recipients"]), (200, &json!(1)), "{sent}");
    let pane = format!("/api/v1/broker/sessions/{session}/members/{worker}/pane?lines=60");
    eventually("the message in the pane", || {
        let (_, shown) = server.ask("GET", &pane, None, None);
        shown["lines"].to_string().contains("hello from the page").then_some(())
    });
    let page = server.ask("GET", &format!("/api/v1/broker/sessions/{session}"), None, None).1;
    let delivery = page["entries"][0]["delivery"].as_str().expect("delivery").to_owned();
    assert!(["typed", "confirmed"].contains(&delivery.as_str()), "{page}");
}
