//! r11: on a full disk agents can still be killed and removed, and stay so whatever becomes of the daemon.

use std::fs;
use std::path::PathBuf;

use caliban_contract::records;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::Client;
use caliban_fleet::protocol::RmRequest;
use caliban_store::fleet::Registry;
use caliban_store::{HostId, StoreUrl};

use crate::faults::Small;
use crate::fleet::{Fleet, processes_of, quick, until, wait_until};

/// A fleet on a small disk with an agent that sleeps, one that runs and one that waits for its place.
async fn three() -> Option<(Fleet, Small, Client, [AgentId; 3])> {
    // None when we may not mount one: that needs root.
    let (mut fleet, small) = Small::fleet()?;
    fleet.start.options.max_running = 1;
    let mut client = fleet.client().await;
    let asleep = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(asleep, "sleep");
    fleet.until_row(&mut client, asleep, |row| row.hibernated).await;
    let running = fleet.spawn_up(&mut client, "hang").await;
    let queued = fleet.spawn(&mut client, "hang").await;
    fleet.until_row(&mut client, queued, |row| row.queued_behind == Some(0)).await;
    Some((fleet, small, client, [asleep, running, queued]))
}

async fn states(client: &mut Client) -> Vec<(AgentId, State)> {
    client.list().await.unwrap().into_iter().map(|row| (row.id, row.state)).collect()
}

/// What the registry says.
pub(crate) async fn recorded(fleet: &Fleet) -> Vec<(AgentId, State)> {
    let mut registry =
        Registry::open(&StoreUrl::sqlite(fleet.places.database()), &HostId::of("")).await.unwrap();
    let rows = registry.page(0).await.unwrap();
    registry.close().await;
    rows.into_iter().map(|(record, _)| (record.id, record.status.state())).collect()
}

/// The file that says that an agent is to end.
fn order(fleet: &Fleet, id: AgentId) -> PathBuf {
    fleet.places.agent_dir(id).join(records::STOP)
}

#[tokio::test]
async fn r11_who_is_killed_on_a_full_disk_is_killed_and_no_later_daemon_starts_it() {
    let Some((fleet, small, mut client, agents)) = three().await else { return };
    let [asleep, running, queued] = agents;
    small.fill();
    for id in [queued, asleep, running] {
        let row = client.kill(&id.to_string(), &quick()).await.unwrap();
        assert_eq!((row.id, row.state), (id, State::Killed));
        assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
    }
    let killed = agents.map(|id| (id, State::Killed));
    assert_eq!(states(&mut client).await, killed);
    // The registry knows nothing of it, and its daemon is gone.
    fleet.kill_daemon();
    small.make_room();
    let known = recorded(&fleet).await;
    assert!(known.len() == 3 && known.iter().all(|(_, state)| !state.is_ending()), "{known:?}");
    let mut client = fleet.client().await;
    assert_eq!(states(&mut client).await, killed);
    assert_eq!(agents.map(|id| fleet.runs(id)), [1, 1, 0]);
    // Now the registry knows, too.
    until("the registry knows", || async { recorded(&fleet).await == killed }).await;
    fleet.kill_daemon();
    agents.iter().for_each(|id| fs::remove_file(order(&fleet, *id)).unwrap());
    assert_eq!(states(&mut fleet.client().await).await, killed);
}

#[tokio::test]
async fn r11_the_next_daemon_starts_nobody_who_was_killed_while_the_disk_stays_full() {
    let Some((fleet, small, mut client, agents)) = three().await else { return };
    small.fill();
    for id in agents {
        client.kill(&id.to_string(), &quick()).await.unwrap();
    }
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert_eq!(states(&mut client).await, agents.map(|id| (id, State::Killed)));
    assert_eq!(agents.map(|id| fleet.runs(id)), [1, 1, 0]);
}

#[tokio::test]
async fn r11_who_is_removed_on_a_full_disk_is_gone_and_stays_gone() {
    let Some((fleet, small, mut client, [asleep, running, queued])) = three().await else { return };
    small.fill();
    let force = RmRequest { force: true, ..RmRequest::default() };
    for id in [queued, running] {
        assert_eq!(client.rm(&id.to_string(), force).await.unwrap().id, id);
        assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
    }
    assert_eq!(states(&mut client).await, [(asleep, State::Idle)]);
    fleet.kill_daemon();
    small.make_room();
    assert_eq!(recorded(&fleet).await.len(), 3);
    let mut client = fleet.client().await;
    assert_eq!(states(&mut client).await, [(asleep, State::Idle)]);
    assert!(!fleet.places.agent_dir(running).exists());
    until("the registry knows", || async { recorded(&fleet).await == [(asleep, State::Idle)] }).await;
    until("their files are gone", || async { fs::read_dir(fleet.places.agents_dir()).unwrap().count() == 1 })
        .await;
    fleet.kill_daemon();
    assert_eq!(states(&mut fleet.client().await).await, [(asleep, State::Idle)]);
}

#[tokio::test]
async fn r11_a_removal_needs_no_room_for_another_name() {
    let Some((fleet, small, mut client, [asleep, running, queued])) = three().await else { return };
    // As on a file system whose directory `agents/` would need another block for the new name.
    let daemon = fleet.daemon_pid().unwrap();
    let rename = "inject=rename,renameat,renameat2:error=ENOSPC";
    let mut strace = std::process::Command::new("strace");
    strace.args(["-f", "-qq", "-p", &daemon.to_string(), "-o", "/dev/null", "-e", rename]);
    for id in [running, queued] {
        strace.arg("-P").arg(fleet.places.agents_dir().join(format!(".rm-{id}")));
    }
    let mut strace = strace.spawn().unwrap();
    wait_until("strace has the daemon", || {
        let status = fs::read_to_string(format!("/proc/{daemon}/status")).unwrap();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    });
    small.fill();
    let force = RmRequest { force: true, ..RmRequest::default() };
    for id in [queued, running] {
        assert_eq!(client.rm(&id.to_string(), force).await.unwrap().id, id);
    }
    assert_eq!(states(&mut client).await, [(asleep, State::Idle)]);
    fleet.kill_daemon();
    strace.wait().unwrap();
    // Neither the next daemon nor one with a new registry has them.
    assert_eq!(states(&mut fleet.client().await).await, [(asleep, State::Idle)]);
    small.make_room();
    let mut client = fleet.client().await;
    until("the registry knows", || async { recorded(&fleet).await == [(asleep, State::Idle)] }).await;
    until("their files are gone", || async { fs::read_dir(fleet.places.agents_dir()).unwrap().count() == 1 })
        .await;
    assert_eq!(states(&mut client).await, [(asleep, State::Idle)]);
}

#[tokio::test]
async fn r11_who_was_killed_on_a_full_disk_can_be_resumed_when_there_is_room() {
    let Some((fleet, small, mut client, [asleep, ..])) = three().await else { return };
    small.fill();
    client.kill(&asleep.to_string(), &quick()).await.unwrap();
    assert!(order(&fleet, asleep).exists());
    small.make_room();
    client.resume(&asleep.to_string(), &Default::default()).await.unwrap();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let row = client.show(&asleep.to_string()).await.unwrap();
    assert_eq!((row.state, row.runs), (State::Spawning, 2));
}
