//! A daemon whose runtime directory is taken away, or that was started in another environment than its clients.

use std::fs;
use std::path::{Path, PathBuf};

use caliban_contract::{HandedOver, variables::ASKED_SETTINGS};
use caliban_contract::{PlaceSources, Places};
use caliban_core::lifecycle::State;
use caliban_fleet::protocol::{FleetEvent, WakeRequest};
use caliban_fleet::{Client, ClientError, SignalResult, end_by_signal};
use rustix::process::Signal;

use crate::fleet::{Fleet, is_alive, quick, refused, signal, wait_until};

/// The places of the same repo in another environment.
fn elsewhere(fleet: &Fleet, runtime: &str, data: &str) -> Places {
    let sources = PlaceSources {
        daemon_runtime_dir: Some(fleet.temp.path().join(runtime)),
        data: fleet.temp.path().join(data),
        ..PlaceSources::default()
    };
    Places::of(fleet.places.repo().to_owned(), &sources).unwrap()
}

/// Takes the runtime directory away, with all that is in it.
fn wipe(fleet: &Fleet) {
    // The daemon may bind its socket again in the middle of it.
    wait_until("it is gone", || fs::remove_dir_all(fleet.places.runtime()).is_ok());
}

fn below(path: &Path, dir: &str) -> bool {
    path.starts_with(PathBuf::from(dir))
}

#[tokio::test]
async fn a_daemon_whose_runtime_directory_is_wiped_listens_again() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let agent = fleet.spawn_up(&mut client, "hang").await;
    let pid = client.status().await.unwrap().pid;
    let mut events = client.events().await.unwrap();
    while events.next().await.unwrap() != Some(FleetEvent::Ready {}) {}
    drop(client);
    wipe(&fleet);
    let mut client = fleet.client().await;
    assert_eq!(client.status().await.unwrap().pid, pid, "{}", fleet.log());
    assert_eq!(client.list().await.unwrap().iter().map(|row| row.id).collect::<Vec<_>>(), [agent]);
    // Whoever was connected still is, and new agents get their sockets.
    let served = fleet.spawn_up(&mut client, "serve").await;
    let heard = loop {
        if let Some(FleetEvent::Agent(row)) = events.next().await.unwrap() {
            break row.id;
        }
    };
    assert_eq!(heard, served);
    assert_eq!(client.wake(&served.to_string()).await.unwrap().socket, fleet.places.agent_socket(served));
    // The same for those who start none, and for the end.
    drop(client);
    wipe(&fleet);
    let mut client = Client::connect(&fleet.places).await.unwrap();
    assert_eq!(client.status().await.unwrap().pid, pid);
    wipe(&fleet);
    Client::connect(&fleet.places).await.unwrap().shutdown().await.unwrap();
    assert!(matches!(Client::connect(&fleet.places).await, Err(ClientError::NotRunning(_))));
    assert!(!fleet.places.socket().exists());
}

#[tokio::test]
async fn where_the_runtime_directory_cannot_be_made_again_the_daemon_moves_and_is_found() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let pid = client.status().await.unwrap().pid;
    drop(client);
    wipe(&fleet);
    // As after a logout: nothing can be made there.
    fs::write(fleet.places.runtime(), "").unwrap();
    let refuge = format!("/tmp/caliban-{}", rustix::process::getuid().as_raw());
    let lock = fleet.places.daemon_lock();
    wait_until("it says where it is", || fs::read_to_string(&lock).unwrap().contains(&refuge));
    let mut client = fleet.client().await;
    let status = client.status().await.unwrap();
    assert_eq!(status.pid, pid);
    assert!(below(&status.socket, &refuge), "{status:?}");
    let agent = fleet.spawn_up(&mut client, "serve").await;
    let socket = client.wake(&agent.to_string()).await.unwrap().socket;
    assert!(below(&socket, &refuge) && socket.exists(), "{socket:?}");
    // The next daemon keeps to where the agents are.
    drop(client);
    Client::connect(&fleet.places).await.unwrap().shutdown().await.unwrap();
    fs::remove_file(fleet.places.runtime()).unwrap();
    let mut client = fleet.client().await;
    let row = client.show(&agent.to_string()).await.unwrap();
    assert_eq!((row.state, row.socket), (State::Idle, socket.clone()));
    assert_eq!(client.wake(&agent.to_string()).await.unwrap().socket, socket);
    client.kill(&agent.to_string(), &quick()).await.unwrap();
    client.shutdown().await.unwrap();
    fs::remove_dir_all(socket.parent().unwrap().parent().unwrap()).unwrap();
}

#[tokio::test]
async fn a_client_with_another_runtime_directory_uses_the_same_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let agent = fleet.spawn_up(&mut client, "serve").await;
    let pid = client.status().await.unwrap().pid;
    drop(client);
    let cron = elsewhere(&fleet, "other", "data");
    let mut client = Client::connect_or_start(&cron, fleet.start.clone()).await.unwrap();
    assert_eq!(client.status().await.unwrap().pid, pid);
    assert_eq!(client.wake(&agent.to_string()).await.unwrap().socket, fleet.places.agent_socket(agent));
    Client::connect(&cron).await.unwrap().shutdown().await.unwrap();
    wait_until("it is gone", || !is_alive(i32::try_from(pid).unwrap()));
    // The next one is started there, listens where the agents are, and reaches them.
    let mut client = Client::connect_or_start(&cron, fleet.start.clone()).await.unwrap();
    assert_eq!(client.status().await.unwrap().socket, fleet.places.socket());
    assert_eq!(client.wake(&agent.to_string()).await.unwrap().socket, fleet.places.agent_socket(agent));
    drop(client);
    // When that directory is gone for good, a row still says where its agent was told to listen.
    fleet.kill_daemon();
    wipe(&fleet);
    let mut client = Client::connect_or_start(&cron, fleet.start.clone()).await.unwrap();
    assert_eq!(client.status().await.unwrap().socket, cron.socket());
    let row = client.show(&agent.to_string()).await.unwrap();
    assert_eq!((row.state, row.socket), (State::Idle, fleet.places.agent_socket(agent)));
}

#[tokio::test]
async fn a_client_with_other_data_is_told_so_and_changes_nothing() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let agent = fleet.spawn_up(&mut client, "hang").await;
    let other = elsewhere(&fleet, "rt", "other");
    let mut stranger = Client::connect_or_start(&other, fleet.start.clone()).await.unwrap();
    let (code, text, _) = refused(stranger.list().await);
    let expected = format!(
        "the daemon of this repo keeps its data in {}, this command in {}",
        fleet.places.base().display(),
        other.base().display()
    );
    assert_eq!((code.as_str(), text.as_str()), ("other_data", expected.as_str()));
    assert_eq!(refused(stranger.kill(&agent.to_string(), &quick()).await).0, "other_data");
    assert_eq!(refused(stranger.spawn(fleet.request("done")).await).0, "other_data");
    assert_eq!(stranger.status().await.unwrap().base, fleet.places.base());
    assert_eq!(
        client.list().await.unwrap().iter().map(|row| row.state).collect::<Vec<_>>(),
        [State::Running]
    );
    // Another name of the same directory is the same data.
    std::os::unix::fs::symlink(fleet.temp.path().join("data"), fleet.temp.path().join("linked")).unwrap();
    let linked = elsewhere(&fleet, "rt", "linked");
    assert_eq!(Client::connect(&linked).await.unwrap().list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_stop_waits_for_the_one_that_was_asked_and_not_for_the_next() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let pid = client.status().await.unwrap().pid;
    let stop = Client::connect(&fleet.places).await.unwrap().shutdown();
    let next = async {
        // Whoever is there when the lock is let go of has the next daemon before the other has looked.
        while fleet.client().await.status().await.unwrap().pid == pid {}
    };
    let (stopped, ()) = tokio::join!(stop, next);
    stopped.unwrap();
    assert_ne!(client.status().await.unwrap().pid, pid);
}

#[tokio::test]
async fn a_daemon_that_cannot_be_asked_is_ended_by_a_signal_and_a_stranger_is_not() {
    let fleet = Fleet::new();
    assert_eq!(end_by_signal(&fleet.places).await.unwrap(), SignalResult::None);
    drop(fleet.client().await);
    let pid = fleet.daemon_pid().unwrap();
    // Stopped, it neither answers nor leaves; the signal waits for it.
    signal(pid, Signal::STOP);
    let ended = async {
        let ended = end_by_signal(&fleet.places).await.unwrap();
        assert!(matches!(ended, SignalResult::Left | SignalResult::Killed), "{ended:?}");
    };
    let go_on = async { signal(pid, Signal::CONT) };
    tokio::join!(ended, go_on);
    wait_until("it is gone", || !is_alive(pid));
    // A lock that somebody else holds, and that names a process of another time.
    let own = std::process::id();
    fs::write(fleet.places.daemon_lock(), format!("pid {own} start 1")).unwrap();
    let lock = fs::File::open(fleet.places.daemon_lock()).unwrap();
    lock.lock().unwrap();
    assert_eq!(end_by_signal(&fleet.places).await.unwrap(), SignalResult::None);
}

#[tokio::test]
async fn an_empty_name_is_no_route_but_a_question() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let (code, text, hint) = refused(client.kill("", &quick()).await);
    assert_eq!(
        (code.as_str(), text.as_str(), hint.as_str()),
        ("bad_request", "which agent? its name is empty", "`caliban agents list` shows all agents")
    );
}

#[tokio::test]
async fn a_sleeper_whose_secrets_went_with_the_directory_is_woken_with_the_callers() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut request = fleet.request("serve");
    request.secrets = [("API_KEY".to_owned(), "first".to_owned())].into();
    let agent = client.spawn(request).await.unwrap().id;
    let name = agent.to_string();
    fleet.until_state(&mut client, agent, State::Idle).await;
    fleet.tell(agent, "sleep");
    fleet.until_row(&mut client, agent, |row| row.hibernated).await;
    drop(client);
    wipe(&fleet);
    let mut client = fleet.client().await;
    let (code, text, _) = refused(client.wake(&name).await);
    let expected = format!("the keys of agent {agent} are gone with the runtime directory");
    assert_eq!((code.as_str(), text), ("secrets_gone", expected));
    // It sleeps on, and takes those of whoever wakes it.
    let row = client.show(&name).await.unwrap();
    assert_eq!((row.state, row.hibernated), (State::Idle, true));
    let secrets = [("API_KEY".to_owned(), "second".to_owned())].into();
    client.wake_with(&name, &WakeRequest { secrets }).await.unwrap();
    let pid = fleet.until_row(&mut client, agent, |row| row.pid.is_some()).await.pid.unwrap();
    let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(environ.split(|byte| *byte == 0).any(|variable| variable == b"API_KEY=second"));
}

#[tokio::test]
async fn an_agent_can_do_without_the_copy_of_its_settings_that_went_with_the_directory() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut request = fleet.request("serve");
    request.secrets = [(ASKED_SETTINGS.to_owned(), "first".to_owned())].into();
    let agent = client.spawn(request).await.unwrap().id;
    let name = agent.to_string();
    fleet.until_state(&mut client, agent, State::Idle).await;
    let has_copy =
        || HandedOver::read(&fleet.places.agent_secrets(agent)).is_ok_and(|it| it.settings.is_some());
    let is_told = |pid: i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap();
        String::from_utf8_lossy(&environ).contains(ASKED_SETTINGS)
    };
    let pid = client.show(&name).await.unwrap().pid.unwrap();
    assert!(has_copy() && !is_told(pid), "it is in the record, not in the environment");
    fleet.tell(agent, "sleep");
    fleet.until_row(&mut client, agent, |row| row.hibernated).await;
    drop(client);
    wipe(&fleet);
    let mut client = fleet.client().await;
    client.wake(&name).await.unwrap();
    fleet.until_row(&mut client, agent, |row| row.pid.is_some()).await;
    assert!(!has_copy());
}
