//! A registry that is lost, or was damaged and put aside.

use std::fs;

use caliban_contract::records;
use caliban_core::lifecycle::State;
use caliban_fleet::protocol::{KillRequest, ResumeRequest, RmRequest};
use caliban_store::fleet::Registry;
use caliban_store::{HostId, StoreUrl};
use rustix::process::Signal;

use crate::fleet::{Fleet, is_alive, signal, wait_until};

#[tokio::test]
async fn agents_get_their_rows_back_when_the_registry_is_lost() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let lives = fleet.spawn_up(&mut client, "serve").await;
    let sleeps = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(sleeps, "sleep");
    fleet.until_row(&mut client, sleeps, |row| row.hibernated).await;
    let done = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(done, "end");
    fleet.until_row(&mut client, done, |row| row.state.is_ending()).await;
    let killed = fleet.spawn_up(&mut client, "serve").await;
    client.kill(&killed.to_string(), &KillRequest::default()).await.unwrap();
    let rows = |mut rows: Vec<caliban_fleet::protocol::AgentRow>| {
        rows.sort_by_key(|row| row.id);
        rows.into_iter()
            .map(|row| (row.id, row.state, row.hibernated, row.waiting_for, row.pid, row.prompt))
            .collect::<Vec<_>>()
    };
    let asleep = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(asleep, "sleep");
    fleet.until_row(&mut client, asleep, |row| row.hibernated).await;
    client.kill(&asleep.to_string(), &KillRequest::default()).await.unwrap();
    let before = rows(client.list().await.unwrap());
    fleet.kill_daemon();
    lose_registry(&fleet);
    let mut client = fleet.client().await;
    assert_eq!(rows(client.list().await.unwrap()), before, "{}", fleet.log());
    let notes = client.status().await.unwrap().found.notes;
    for id in [lives, sleeps, done, killed, asleep] {
        assert!(notes.contains(&format!("agent {id} was in no registry and is back")), "{notes:?}");
    }
    // They are what they were: one is woken, one is killed, one removed, and all that is kept.
    assert_eq!(client.wake(&sleeps.to_string()).await.unwrap().id, sleeps);
    assert_eq!(fleet.ask(sleeps, "say 1 hello").as_deref(), Some("has it"));
    let shim = fleet.shim(lives);
    client.kill(&lives.to_string(), &KillRequest::default()).await.unwrap();
    assert!(!is_alive(shim.pid));
    client.rm(&done.to_string(), RmRequest::default()).await.unwrap();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let states: Vec<_> = client.list().await.unwrap().into_iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(states.len(), 4, "{states:?}");
    assert!(states.contains(&(lives, State::Killed)), "{states:?}");
}

#[tokio::test]
async fn a_run_that_never_said_a_word_comes_back_as_crashed_with_what_it_was_to_hear() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let shim = fleet.shim(id);
    signal(shim.pid, Signal::KILL);
    fleet.until_state(&mut client, id, State::Crashed).await;
    fleet.kill_daemon();
    // As it is after a resume whose shim died before its first word, of an agent whose program is being replaced.
    let dir = fleet.places.agent_dir(id);
    let void = records::ShimRecord {
        pid: 0,
        nonce: "void".to_owned(),
        worker_pid: None,
        worker_start_time: None,
        program: Some("/not/there/now".into()),
        ..shim
    };
    records::write(&dir, records::SHIM, &void).unwrap();
    let told = r#"{"nonce":"void","messages":[{"id":"m","text":"also the docs"}]}"#;
    fs::write(dir.join(records::RESUME), told).unwrap();
    lose_registry(&fleet);
    // The first daemon dies when it has made the registry, and before it has filled it.
    fs::write(fleet.places.base().join("recovering"), "").unwrap();
    let url = StoreUrl::sqlite(fleet.places.database());
    Registry::open(&url, &HostId::of("")).await.unwrap().close().await;
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Crashed, "{}", fleet.log());
    fleet.kill_daemon();
    let mut registry = Registry::open(&url, &HostId::of("")).await.unwrap();
    let (record, _) = registry.page(0).await.unwrap().remove(0);
    assert_eq!((record.id, record.resume_prompt.as_deref()), (id, Some("also the docs")));
    registry.close().await;
    assert!(!fleet.places.base().join("recovering").exists());
}

fn lose_registry(fleet: &Fleet) {
    for file in ["", "-wal", "-shm"] {
        let mut path = fleet.places.database().into_os_string();
        path.push(file);
        let _was_not_there = fs::remove_file(path);
    }
}

#[tokio::test]
async fn r01_acknowledged_agents_that_were_queued_are_queued_again_when_the_registry_is_lost() {
    for loss in ["removed", "emptied"] {
        let fleet = Fleet::with(|options| options.max_running = 1);
        let mut client = fleet.client().await;
        let gate = fleet.temp.path().join("gate");
        let ended = fleet.spawn(&mut client, "done").await;
        fleet.until_state(&mut client, ended, State::Done).await;
        let running = fleet.spawn_up(&mut client, &format!("gate:{}", gate.display())).await;
        let mut keyed = fleet.request("done");
        keyed.key = Some("the key".to_owned());
        let first = client.spawn(keyed.clone()).await.unwrap().id;
        let killed = fleet.spawn(&mut client, "done").await;
        client.kill(&killed.to_string(), &KillRequest::default()).await.unwrap();
        let mut last = fleet.request("done");
        last.spec.after = vec![first];
        let last = client.spawn(last).await.unwrap().id;
        // One that has ended goes on: it waits for its second run.
        let resume = ResumeRequest { prompt: Some("also the docs".to_owned()), ..ResumeRequest::default() };
        client.resume(&ended.to_string(), &resume).await.unwrap();
        // One whose daemon died before it was acknowledged.
        let unknown = fleet.places.agents_dir().join("0badcafe");
        fs::create_dir(&unknown).unwrap();
        fs::copy(fleet.places.agent_dir(first).join(records::SPEC), unknown.join(records::SPEC)).unwrap();
        let rows = |rows: Vec<caliban_fleet::protocol::AgentRow>| {
            rows.into_iter()
                .map(|row| (row.id, row.state, row.queued_behind, row.after, row.runs))
                .collect::<Vec<_>>()
        };
        let before = rows(client.list().await.unwrap());
        assert_eq!(before.len(), 5);
        fleet.kill_daemon();
        lose_registry(&fleet);
        if loss == "emptied" {
            fs::write(fleet.places.database(), "").unwrap();
        }
        let mut client = fleet.client().await;
        assert_eq!(rows(client.list().await.unwrap()), before, "{loss}: {}", fleet.log());
        assert_eq!(client.spawn(keyed).await.unwrap().id, first, "the same request again");
        crate::fleet::write(&gate, "");
        for id in [running, first, last, ended] {
            fleet.until_state(&mut client, id, State::Done).await;
        }
        assert_eq!([running, first, last, killed, ended].map(|id| fleet.runs(id)), [1, 1, 1, 0, 2]);
        assert_eq!(client.list().await.unwrap().len(), 5);
    }
}

#[tokio::test]
async fn who_was_removed_does_not_come_back() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    let other = fleet.spawn_up(&mut client, "serve").await;
    let shim = fleet.shim(id);
    signal(shim.pid, Signal::KILL);
    fleet.until_state(&mut client, id, State::Crashed).await;
    // As a daemon leaves it that dies between the commit of a removal and the end of its files.
    let (dir, aside) = (fleet.places.agent_dir(id), fleet.temp.path().join("aside"));
    assert!(std::process::Command::new("cp").arg("-a").args([&dir, &aside]).status().unwrap().success());
    client.rm(&id.to_string(), RmRequest::default()).await.unwrap();
    fleet.kill_daemon();
    wait_until("its files are gone", || !dir.exists());
    fs::rename(&aside, &dir).unwrap();
    let mut client = fleet.client().await;
    assert_eq!(client.list().await.unwrap().iter().map(|row| row.id).collect::<Vec<_>>(), [other]);
}

/// The daemon goes on with a registry that nobody else will read: whoever asks it is answered by the next one.
#[tokio::test]
async fn r25_a_registry_that_is_lost_under_its_daemon_loses_nobody() {
    for loss in ["deleted", "cut", "replaced", "restored"] {
        let fleet = Fleet::new();
        let mut client = fleet.client().await;
        let lives = fleet.spawn_up(&mut client, "serve").await;
        let daemon = fleet.daemon_pid().unwrap();
        let database = fleet.places.database();
        let copy = fleet.temp.path().join("copy.db");
        fs::copy(&database, &copy).unwrap();
        let acknowledged = fleet.spawn_up(&mut client, "serve").await;
        match loss {
            "deleted" => lose_registry(&fleet),
            "cut" => fs::File::options().write(true).open(&database).unwrap().set_len(0).unwrap(),
            "replaced" => {
                lose_registry(&fleet);
                fs::write(&database, "").unwrap();
            }
            _ => {
                lose_registry(&fleet);
                fs::copy(&copy, &database).unwrap();
            }
        }
        let next = fleet.spawn_up(&mut client, "serve").await;
        assert!(!is_alive(daemon), "{loss}: it wrote into a file that is gone\n{}", fleet.log());
        let rows = client.list().await.unwrap();
        let mut ids: Vec<_> = rows.iter().filter(|row| !row.state.is_ending()).map(|row| row.id).collect();
        ids.sort();
        let mut expected = [lives, acknowledged, next];
        expected.sort();
        assert_eq!(ids, expected, "{loss}: {}", fleet.log());
        // Also for the daemon after that.
        fleet.kill_daemon();
        let mut client = fleet.client().await;
        assert_eq!(client.list().await.unwrap().len(), 3, "{loss}: {}", fleet.log());
    }
}
