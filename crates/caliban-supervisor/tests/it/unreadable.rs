//! What a daemon cannot read, or reads too early, of one agent concerns that agent only, and passes.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use caliban_contract::records;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_fleet::Client;
use caliban_store::fleet::{Registry, WantedState};
use caliban_store::{HostId, StoreUrl};

use crate::adopt::rewrite;
use crate::fleet::{Fleet, is_alive, processes_of, quick, signal, wait_until};
use rustix::process::Signal;

async fn states(client: &mut Client) -> Vec<(AgentId, State, Option<i32>)> {
    client.list().await.unwrap().into_iter().map(|row| (row.id, row.state, row.pid)).collect()
}

/// A name that leads nowhere, not even to an absence.
fn unreadable(path: &Path) {
    let _moved = fs::remove_file(path);
    symlink(path, path).unwrap();
}

#[tokio::test]
async fn r03_a_shim_that_has_not_named_its_worker_yet_is_asked_again() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    // The one says nothing itself; the other does, so that it is known to run before its process is.
    let (mute, talks) = (fleet.spawn(&mut client, "mute").await, fleet.spawn_up(&mut client, "hang").await);
    let pids = [mute, talks].map(|id| {
        wait_until("its worker is named", || fleet.shim(id).worker_pid.is_some());
        fleet.shim(id).worker_pid
    });
    fleet.until_row(&mut client, mute, |row| row.pid.is_some()).await;
    fleet.kill_daemon();
    // As it is between the two writes of a shim.
    let whole = [mute, talks].map(|id| fleet.shim(id));
    for (id, whole) in [mute, talks].into_iter().zip(&whole) {
        let mut half = whole.clone();
        (half.worker_pid, half.worker_start_time) = (None, None);
        records::write(&fleet.places.agent_dir(id), records::SHIM, &half).unwrap();
        rewrite(&fleet, id, |record| {
            record.status = Status::from_parts(State::Spawning, None, None).unwrap()
        })
        .await;
    }
    let mut client = fleet.client().await;
    assert_eq!(states(&mut client).await, [(mute, State::Spawning, None), (talks, State::Running, None)]);
    for (id, whole) in [mute, talks].into_iter().zip(&whole) {
        records::write(&fleet.places.agent_dir(id), records::SHIM, whole).unwrap();
    }
    for (id, pid) in [mute, talks].into_iter().zip(pids) {
        fleet.until_row(&mut client, id, |row| (row.state, row.pid) == (State::Running, pid)).await;
    }
}

#[tokio::test]
async fn r03_one_agent_that_cannot_be_read_keeps_nobody_from_being_adopted() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(fleet.spawn_up(&mut client, "hang").await);
    }
    let before = states(&mut client).await;
    // That an agent runs is shown before it is on the disk, and a daemon that cannot read the agent has only that.
    let mut registry =
        Registry::open(&StoreUrl::sqlite(fleet.places.database()), &HostId::of("")).await.unwrap();
    loop {
        let rows = registry.page(0).await.unwrap();
        if rows.iter().filter(|(record, _)| record.status.state() == State::Running).count() == ids.len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    registry.close().await;
    fleet.kill_daemon();
    let [shim, dir, killed] = [ids[0], ids[1], ids[3]];
    let file = |id: AgentId| fleet.places.agent_dir(id).join(records::SHIM);
    let (aside, elsewhere) = (fleet.temp.path().join("shim.json"), fleet.temp.path().join("dir"));
    fs::copy(file(shim), &aside).unwrap();
    unreadable(&file(shim));
    unreadable(&file(killed));
    fs::rename(fleet.places.agent_dir(dir), &elsewhere).unwrap();
    fs::write(fleet.places.agent_dir(dir), "no directory").unwrap();

    let mut client = fleet.client().await;
    let rows = client.list().await.unwrap();
    for row in &rows {
        let (_, _, pid) = before.iter().find(|(id, ..)| *id == row.id).unwrap();
        if row.id == ids[2] {
            assert_eq!((row.state, row.pid, &row.note), (State::Running, *pid, &None));
        } else {
            assert_eq!((row.state, row.pid), (State::Running, None));
            let note = row.note.as_deref().unwrap_or_default();
            assert!(note.starts_with("nobody can tell whether it runs: "), "{note:?}");
        }
        assert!(is_alive(pid.unwrap()));
    }
    // Killed is killed, readable or not.
    assert_eq!(client.kill(&killed.to_string(), &quick()).await.unwrap().state, State::Killed);
    assert_eq!(processes_of(&killed.to_string()), Vec::<i32>::new());
    // What can be read again is what it was.
    fs::rename(&aside, file(shim)).unwrap();
    fs::remove_file(fleet.places.agent_dir(dir)).unwrap();
    fs::rename(&elsewhere, fleet.places.agent_dir(dir)).unwrap();
    for (id, _, pid) in before.iter().take(3) {
        fleet.until_row(&mut client, *id, |row| (row.pid, &row.note) == (*pid, &None)).await;
    }
    assert_eq!(ids.iter().map(|id| fleet.runs(*id)).collect::<Vec<_>>(), [1; 4]);
}

#[tokio::test]
async fn r03_one_whose_last_word_cannot_be_read_keeps_nobody_from_being_adopted() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let (mute, lives) = (fleet.spawn(&mut client, "mute").await, fleet.spawn_up(&mut client, "hang").await);
    let pid = fleet.until_row(&mut client, mute, |row| row.pid.is_some()).await.pid.unwrap();
    let before = states(&mut client).await;
    fleet.kill_daemon();
    signal(pid, Signal::KILL);
    wait_until("it is gone", || processes_of(&mute.to_string()).is_empty());
    let exit = fleet.places.agent_dir(mute).join(records::EXIT);
    let aside = fleet.temp.path().join("exit.json");
    fs::copy(&exit, &aside).unwrap();
    unreadable(&exit);
    let mut client = fleet.client().await;
    let row = client.show(&lives.to_string()).await.unwrap();
    assert_eq!((row.id, row.state, row.pid), before[1]);
    fs::rename(&aside, &exit).unwrap();
    let row = fleet.until_state(&mut client, mute, State::Crashed).await;
    assert_eq!(row.ending, Some(caliban_core::lifecycle::Ending::Signal { number: 9 }));
}

#[tokio::test]
async fn r03_a_run_that_may_have_been_launched_and_cannot_be_looked_at_is_not_launched_twice() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let lives = fleet.spawn_up(&mut client, "hang").await;
    let pid = client.show(&id.to_string()).await.unwrap().pid;
    fleet.kill_daemon();
    rewrite(&fleet, id, |record| {
        record.status = Status::from_parts(State::Spawning, None, None).unwrap();
        record.wanted = WantedState::Run;
    })
    .await;
    let elsewhere = fleet.temp.path().join("dir");
    fs::rename(fleet.places.agent_dir(id), &elsewhere).unwrap();
    unreadable(&fleet.places.agent_dir(id));
    let mut client = fleet.client().await;
    assert!(client.show(&lives.to_string()).await.unwrap().pid.is_some());
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid, row.note.is_some()), (State::Spawning, None, true));
    fs::remove_file(fleet.places.agent_dir(id)).unwrap();
    fs::rename(&elsewhere, fleet.places.agent_dir(id)).unwrap();
    fleet.until_row(&mut client, id, |row| (row.state, row.pid) == (State::Running, pid)).await;
    assert_eq!(fleet.runs(id), 1);
}
