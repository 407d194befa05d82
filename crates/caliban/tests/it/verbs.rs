//! The fleet's verbs over the daemon's socket, as a page or a terminal UI uses them.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
};

use serde_json::{Value, json};
use testkit::{StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash, write};

fn socket(fleet: &Fleet) -> String {
    let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    status["socket"].as_str().unwrap().to_owned()
}

/// Asks the daemon: the status code and what it says.
pub(crate) fn ask(fleet: &Fleet, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = UnixStream::connect(socket(fleet)).unwrap();
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

/// The one open question: its id and digest.
fn question(fleet: &Fleet) -> Value {
    let (status, list) = ask(fleet, "GET", "/v1/approvals", &Value::Null);
    assert_eq!((status, list["approvals"].as_array().unwrap().len()), (200, 1), "{list:#}");
    let asked = &list["approvals"][0]["ask"];
    json!({"ask": asked["id"], "digest": asked["digest"]})
}

#[test]
fn a10_a11_the_daemon_is_no_way_around_who_may_decide() {
    let fleet = Fleet::new(script![]);
    fleet.place.server.set_script(script![
        bash("touch asked-for").on_first("ask for it"),
        text("thank you").on_first("ask for it"),
    ]);
    let asking = fleet.bg("ask for it", []);
    fleet.wait_for_ask(&asking);
    let asked = question(&fleet);
    let curl = |verb: &str, body: &Value| {
        let socket = socket(&fleet);
        format!("curl -s --unix-socket {socket} -d '{body}' http://x/v1/agents/{asking}/{verb}; echo")
    };
    let commands = format!(
        "{}; setsid {}; {}",
        curl("approve", &asked),
        curl("deny", &asked),
        curl("merge", &json!({}))
    );
    fleet.place.server.set_script(script![
        text("thank you").on_first("ask for it"),
        bash(&commands).on_first("approve it"),
        text("I tried").on_first("approve it"),
    ]);
    let other = fleet.bg("approve it", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &other]).ok();
    let told = fleet.run(["logs", &other, "--json"]).ok().stdout;
    let words = format!("a process of agent {other} cannot decide what an agent may do: a person does");
    assert_eq!(told.matches(&words).count(), 2, "{told}");
    let words =
        format!("a process of agent {other} cannot have the daemon land an agent's work: a person does");
    assert_eq!(told.matches(&words).count(), 1, "{told}");
    fleet.wait_for_ask(&asking);
    assert!(!fleet.worktree(&asking).join("asked-for").exists());
    // The same request from a person.
    let (status, answer) = ask(&fleet, "POST", &format!("/v1/agents/{asking}/approve"), &asked);
    assert_eq!((status, answer), (200, json!({"id": asking, "ask": asked["ask"]})));
    fleet.run(["agents", "wait", &asking]).ok();
    assert!(fleet.worktree(&asking).join("asked-for").exists());
}

#[test]
fn a16_an_answer_over_the_socket_is_to_exactly_one_call() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("as you like")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    let asked = question(&fleet);
    for wrong in
        [json!({"ask": asked["ask"], "digest": "0"}), json!({"ask": "other", "digest": asked["digest"]})]
    {
        let (status, answer) = ask(&fleet, "POST", &format!("/v1/agents/{id}/approve"), &wrong);
        assert_eq!((status, &answer["error"]["code"]), (409, &json!("not_asked")), "{answer}");
    }
    let mut denied = asked.clone();
    denied["reason"] = json!("use make check instead");
    let (status, answer) = ask(&fleet, "POST", &format!("/v1/agents/{id}/deny"), &denied);
    assert_eq!(status, 200, "{answer}");
    fleet.run(["agents", "wait", &id]).ok();
    assert!(!fleet.worktree(&id).join("asked-for").exists());
    let heard = fleet.place.server.model_requests().pop().unwrap().body.to_string();
    assert!(heard.contains("use make check instead"), "{heard}");
    let (status, answer) = ask(&fleet, "POST", &format!("/v1/agents/{id}/approve"), &asked);
    assert_eq!((status, &answer["error"]["code"]), (409, &json!("ended")), "{answer}");
}

#[test]
fn a_person_decides_through_a_daemon_that_an_agents_command_had_to_start() {
    let program = std::env::current_exe().unwrap();
    let program = program.ancestors().nth(2).unwrap().join("caliban");
    let command =
        format!("{} agents list; while [ ! -e ../go ]; do sleep 0.01; done; echo over", program.display());
    let fleet = Fleet::new(script![
        bash(&command).on_first("first task"),
        text("first done").on_first("first task"),
        bash("touch asked-for").on_first("a person's task"),
        text("thank you").on_first("a person's task"),
    ]);
    let first = fleet.place.caliban().args(["-p", "first task", "--permission-mode", "unattended"]).spawn();
    wait_until("the command has started a daemon", || {
        fleet
            .place
            .env
            .processes()
            .iter()
            .any(|(_, line)| line.contains(" --runtime ") && line.contains(" --base "))
    });
    let id = fleet.bg("a person's task", ["--interactive"]);
    fleet.wait_for_ask(&id);
    fleet.run(["approve", &id]).ok();
    fleet.wait_for(&id, "idle");
    assert!(fleet.worktree(&id).join("asked-for").exists());
    // And speaks as the user.
    fleet.run(["agents", "send", &id, "more of it"]).ok();
    wait_until("it has heard that", || fleet.place.server.model_requests().len() > 3);
    let heard = fleet.place.server.model_requests().pop().unwrap().body.to_string();
    assert!(heard.contains(r#""more of it""#) && !heard.contains("What follows is from"), "{heard}");
    fleet.place.env.write(fleet.place.repo.parent().unwrap().join("go"), "");
    first.wait().ok();
}

#[test]
fn an_agent_is_told_something_over_the_socket_and_wakes() {
    let fleet = Fleet::new(script![text("here"), text("there")]);
    let id = fleet.bg("stay", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let message = json!({"text": "go on", "id": "the-same"});
    for _ in 0..2 {
        let (status, answer) = ask(&fleet, "POST", &format!("/v1/agents/{id}/send"), &message);
        assert_eq!((status, answer), (200, json!({"id": id, "veiled": false})));
    }
    wait_until("it has heard that once", || fleet.row(&id)["turns"] == 2 && fleet.state(&id) == "idle");
    let (status, answer) = ask(&fleet, "POST", &format!("/v1/agents/{id}/send"), &json!({"text": " "}));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("bad_request")), "{answer}");
}

#[test]
fn work_is_looked_at_tried_and_landed_over_the_socket() {
    let fleet = Fleet::new(script![write("new.txt", "one\ntwo\n"), text("done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let verb = |method: &str, verb: &str, body: &Value| {
        ask(&fleet, method, &format!("/v1/agents/{id}/{verb}"), body)
    };
    let (status, diff) = verb("GET", "diff?stat=true", &Value::Null);
    assert_eq!(status, 200, "{diff}");
    assert_eq!(diff["files"], json!([{"path": "new.txt", "status": "A", "added": 2, "deleted": 0}]));
    assert_eq!(
        (&diff["summary"], diff.get("patch")),
        (&json!("1 file changed, 2 insertions(+), 0 deletions(-)"), None)
    );
    let (_, diff) = verb("GET", "diff", &Value::Null);
    assert!(diff["patch"].as_str().unwrap().contains("+two\n"), "{diff}");
    assert_eq!(diff["patch_is_cut"], json!(false));
    let (_, forecast) = verb("POST", "merge", &json!({"preview": true}));
    assert_eq!(
        (&forecast["would_be"], &forecast["conflicts"], &forecast["into"], &forecast["message"]),
        (&json!("clean"), &json!([]), &json!("main"), &json!("the task\n\nnew.txt: +2 −0\n")),
        "{forecast}"
    );
    let (_, merged) = verb("POST", "merge", &json!({"commit": "what it left", "squash": true}));
    assert_eq!((&merged["how"], &merged["commits"]), (&json!("squash"), &json!(1)), "{merged}");
    assert_eq!(fleet.place.env.read(fleet.place.repo.join("new.txt")), "one\ntwo\n");
}

#[test]
fn a_merge_over_the_socket_is_taken_back_when_the_daemon_leaves() {
    let fleet = Fleet::new(script![write("new.txt", "new\n"), text("done")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let (env, repo) = (&fleet.place.env, &fleet.place.repo);
    let hook = repo.join(".git/hooks/pre-merge-commit");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\ntouch .git/began\nexec sleep 100000\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The daemon asks nobody: it runs hooks that were accepted.
    fleet.run(["trust"]).ok();
    let state = || (env.git(repo, &["status", "--porcelain"]), env.git(repo, &["rev-parse", "main"]));
    let before = state();
    let body = json!({"commit": "what it left"}).to_string();
    let head =
        format!("POST /v1/agents/{id}/merge HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    let mut stream = UnixStream::connect(socket(&fleet)).unwrap();
    stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    wait_until("the hook runs", || repo.join(".git/began").exists());
    assert!(!state().0.is_empty(), "the merge is half done");
    fleet.run(["daemon", "stop"]).ok();
    wait_until("the user's tree is as before", || state() == before);
    wait_until("the hook is gone", || !env.processes().iter().any(|(_, line)| line == "sleep 100000"));
}
