//! Requests that a daemon dies under: asked again, they happen once (r01).

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use caliban_contract::records;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::protocol::{REQUEST_HEADER, RUNNING_ALREADY, RespawnRequest, RmRequest};
use serde_json::Value;

use crate::fleet::{Fleet, processes_of, until};
use crate::late::Held;

/// Sends a request by this name to the daemon that runs; the status and the answer.
fn ask(fleet: &Fleet, request: &str, name: &str) -> (String, Value) {
    let mut stream = UnixStream::connect(fleet.places.socket()).unwrap();
    let head = format!("{request} HTTP/1.1\r\nhost: x\r\n{REQUEST_HEADER}: {name}\r\n");
    write!(stream, "{head}connection: close\r\ncontent-length: 0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

fn removal(id: AgentId) -> String {
    format!("DELETE /v1/agents/{id}")
}

#[tokio::test]
async fn r01_a_request_that_is_asked_again_by_its_name_happens_once_also_with_the_next_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut done = Vec::new();
    for _ in 0..3 {
        let id = fleet.spawn(&mut client, "done").await;
        fleet.until_state(&mut client, id, State::Done).await;
        done.push(id);
    }
    let requests = [
        (removal(done[0]), "one"),
        (format!("POST /v1/agents/{}/respawn", done[1]), "two"),
        (format!("POST /v1/agents/{}/resume", done[2]), "three"),
    ];
    let all = || requests.iter().map(|(request, name)| ask(&fleet, request, name)).collect::<Vec<_>>();
    let first = all();
    let statuses: Vec<&str> = first.iter().map(|(status, _)| status.as_str()).collect();
    assert_eq!(statuses, ["200", "201", "200"], "{first:?}");
    let new: AgentId = first[1].1["id"].as_str().unwrap().parse().unwrap();
    for id in [new, done[2]] {
        fleet.until_state(&mut client, id, State::Done).await;
    }
    for daemon in ["the same", "the next"] {
        if daemon == "the next" {
            fleet.kill_daemon();
            client = fleet.client().await;
        }
        let again = all();
        assert_eq!(again[..2], first[..2], "{daemon}");
        assert_eq!((&again[2].0, &again[2].1["id"]), (&first[2].0, &first[2].1["id"]), "{daemon}");
        let rows = client.list().await.unwrap();
        let rows: Vec<_> = rows.into_iter().map(|row| (row.id, row.state, row.runs)).collect();
        assert_eq!(rows, [(done[2], State::Done, 2), (new, State::Done, 1)], "{daemon}");
        assert_eq!([new, done[2]].map(|id| fleet.runs(id)), [1, 2], "{daemon}");
    }
    // By another name it is another request.
    assert_eq!(ask(&fleet, &requests[0].0, "four").0, "404");
    assert_eq!(ask(&fleet, &requests[2].0, &"n".repeat(200)).0, "400");
}

#[tokio::test]
async fn r01_a_removal_that_the_registry_never_heard_of_is_answered_by_the_next_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let held = Held::registry_of(&fleet);
    let first = ask(&fleet, &removal(id), "one");
    assert_eq!(first.0, "200", "{first:?}");
    fleet.kill_daemon();
    held.let_go();
    let mut client = fleet.client().await;
    assert_eq!(ask(&fleet, &removal(id), "one"), first);
    assert_eq!(client.list().await.unwrap(), []);
    // Also the one after that knows it.
    fleet.kill_daemon();
    drop(fleet.client().await);
    assert_eq!(ask(&fleet, &removal(id), "one"), first);
}

#[tokio::test]
async fn r01_a_removal_and_a_respawn_under_which_the_daemon_dies_are_carried_out_by_the_next() {
    // Its command does not heed TERM, so its end takes the whole grace.
    let stubborn = "sh:trap '' TERM; while :; do sleep 1; done";
    let fleet = Fleet::with(|options| options.grace_ms = 3000);
    let mut client = fleet.client().await;
    for verb in ["rm", "respawn"] {
        let id = fleet.spawn_up(&mut client, stubborn).await;
        let dir = fleet.places.agent_dir(id);
        let dies = async {
            until("its end is ordered", || async { dir.join(records::STOP).exists() }).await;
            fleet.kill_daemon();
        };
        let name = id.to_string();
        let left = if verb == "rm" {
            let force = RmRequest { force: true, ..RmRequest::default() };
            let (removed, ()) = tokio::join!(client.rm(&name, force), dies);
            assert_eq!(removed.unwrap().id, id);
            Vec::new()
        } else {
            let respawn = RespawnRequest::default();
            let (respawned, ()) = tokio::join!(client.respawn(&name, &respawn), dies);
            let respawned = respawned.unwrap();
            assert_eq!(respawned.old, id);
            vec![respawned.id]
        };
        let rows = client.list().await.unwrap();
        assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), left, "{verb}");
        assert_eq!(processes_of(&name), Vec::<i32>::new());
    }
}

/// From now on daemons are started by this script; `{daemon}` starts one, and `{file}` is a file of the script's own.
fn start_by(fleet: &mut Fleet, script: &str) {
    let (program, file) = (fleet.temp.path().join("script"), fleet.temp.path().join("file"));
    let (daemon, arguments) = fleet.start.programs[0].clone();
    let script = script.replace("{file}", &format!("'{}'", file.display()));
    let script = script.replace("{daemon}", &format!("exec '{}' \"$@\"", daemon.display()));
    std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    fleet.start.programs = vec![(program, arguments)];
}

#[tokio::test]
async fn r08_a_daemon_that_is_killed_while_it_starts_is_started_again() {
    let mut fleet = Fleet::new();
    // The first three are killed before they say a word.
    start_by(&mut fleet, "echo x >> {file}\n[ $(wc -l < {file}) -gt 3 ] || kill -9 $$\n{daemon}");
    assert_eq!(fleet.client().await.list().await.unwrap(), []);
    // One that never says a word is not started for ever.
    fleet.kill_daemon();
    fleet.start.programs = vec![("/bin/true".into(), Vec::new())];
    let refused = caliban_fleet::Client::connect_or_start(&fleet.places, fleet.start.clone()).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("it ended without a word")));
}

#[tokio::test]
async fn r08_a_daemon_that_has_found_the_lock_of_a_dead_one_is_started_again() {
    let mut fleet = Fleet::new();
    // A child of the one that was killed holds its lock for a moment, and nobody listens.
    start_by(
        &mut fleet,
        &format!("[ ! -e {{file}} ] || {{daemon}}\ntouch {{file}}\necho '{RUNNING_ALREADY}'"),
    );
    assert_eq!(fleet.client().await.list().await.unwrap(), []);
}
