//! What a daemon finds that its predecessor had begun: runs that are on the disk and never began, files of agents
//! that are gone.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use caliban_contract::records;
use caliban_contract::variables::AGENT_ID as MARKER;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State, Status};
use caliban_fleet::Client;
use caliban_fleet::protocol::AgentRow;
use caliban_store::fleet::{AgentRecord, Registry, RegistryChange, WantedState};
use caliban_store::{HostId, StoreUrl};
use rustix::process::Signal;

use crate::fleet::{Fleet, caliband, is_alive, processes_of, signal, wait_until};

/// Changes what the registry says of an agent, while no daemon runs.
pub(crate) async fn rewrite(fleet: &Fleet, id: AgentId, change: impl FnOnce(&mut AgentRecord)) {
    let mut registry =
        Registry::open(&StoreUrl::sqlite(fleet.places.database()), &HostId::of("")).await.unwrap();
    let rows = registry.page(0).await.unwrap();
    let (mut record, _) = rows.into_iter().find(|(record, _)| record.id == id).unwrap();
    change(&mut record);
    registry.commit(&[RegistryChange::Update(Box::new(record))]).await.unwrap();
    registry.close().await;
}

/// A shim that holds its lock and says nothing.
struct Silent(Child);

impl Drop for Silent {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _taken_already = self.0.wait();
    }
}

/// That of the run `nonce`.
fn silent_shim(fleet: &Fleet, id: AgentId, nonce: &str) -> Silent {
    let mut child = Command::new("flock")
        .arg("--no-fork")
        .arg(fleet.places.agent_dir(id).join(records::SHIM_LOCK))
        .args(["sh", "-c", "echo holds; exec sleep 600"])
        .env(MARKER, format!("{id}:{nonce}"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut word = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut word).unwrap();
    assert_eq!(word, "holds\n");
    Silent(child)
}

#[tokio::test]
async fn a_wake_that_died_with_its_daemon_is_void_and_its_silent_shim_never_begins() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(id, "sleep");
    fleet.until_row(&mut client, id, |row| row.hibernated).await;
    fleet.kill_daemon();
    rewrite(&fleet, id, |record| {
        // As it is written by a wake, with how it stands then.
        record.nonce = "late".to_owned();
        record.runs = 2;
        record.status = Status::from_parts(State::Idle, None, None).unwrap();
    })
    .await;
    let mut silent = silent_shim(&fleet, id, "late");
    let mut client = fleet.client().await;
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.hibernated, row.pid), (State::Idle, true, None));
    wait_until("the silent shim is gone", || silent.0.try_wait().unwrap().is_some());
    // Nobody comes late, and whoever asks gets another run.
    assert_eq!(client.wake(&id.to_string()).await.unwrap().id, id);
    assert_eq!(client.show(&id.to_string()).await.unwrap().runs, 3);
    assert_eq!(fleet.ask(id, "say 1 hello").as_deref(), Some("has it"));
    assert_eq!((fleet.runs(id), fleet.lines(id, "doubled")), (2, Vec::new()));
}

#[tokio::test]
async fn a_kill_that_was_written_down_and_not_begun_is_carried_out_by_the_next_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    fleet.kill_daemon();
    rewrite(&fleet, id, |record| record.wanted = WantedState::Kill).await;
    let mut client = fleet.client().await;
    fleet.until_state(&mut client, id, State::Killed).await;
    assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
}

#[tokio::test]
async fn r03_what_the_registry_has_not_heard_yet_is_taken_from_the_living() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let idle = fleet.spawn_up(&mut client, "serve").await;
    let begun = fleet.spawn_up(&mut client, "hang").await;
    let states = |rows: Vec<AgentRow>| rows.into_iter().map(|row| (row.id, row.state)).collect::<Vec<_>>();
    let now = [(idle, State::Idle), (begun, State::Running)];
    assert_eq!(states(client.list().await.unwrap()), now);
    fleet.kill_daemon();
    // As it is when a daemon dies before what it saw last is on the disk.
    let before = |state| Status::from_parts(state, None, None).unwrap();
    rewrite(&fleet, idle, |record| record.status = before(State::Running)).await;
    rewrite(&fleet, begun, |record| record.status = before(State::Spawning)).await;
    let mut client = fleet.client().await;
    assert_eq!(states(client.list().await.unwrap()), now);
    assert_eq!((fleet.runs(idle), fleet.runs(begun)), (1, 1));
}

#[tokio::test]
async fn who_waits_for_one_that_ended_while_no_daemon_looked_starts_or_fails() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let done = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, done, State::Done).await;
    let first = fleet.spawn_up(&mut client, &format!("gate:{}", gate.display())).await;
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut request = fleet.request("done");
        request.spec.after = vec![first];
        waiting.push(client.spawn(request).await.unwrap().id);
    }
    fleet.kill_daemon();
    // One is done and the release is not on the disk; one was removed, and that those who wait fail is not.
    rewrite(&fleet, waiting[0], |record| record.after = vec![done]).await;
    rewrite(&fleet, waiting[1], |record| record.after = vec!["0badcafe".parse().unwrap()]).await;
    let mut client = fleet.client().await;
    fleet.until_state(&mut client, waiting[0], State::Done).await;
    let row = fleet.until_state(&mut client, waiting[1], State::Failed).await;
    let text = "it was to start after 0badcafe, which was removed".to_owned();
    assert_eq!(row.ending, Some(Ending::Error { text }));
    assert_eq!((fleet.runs(waiting[0]), fleet.runs(waiting[1])), (1, 0));
}

#[tokio::test]
async fn the_last_word_of_an_earlier_run_says_nothing_of_this_one() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(id, "sleep");
    fleet.until_row(&mut client, id, |row| row.hibernated).await;
    client.wake(&id.to_string()).await.unwrap();
    fleet.kill_daemon();
    for pid in processes_of(&id.to_string()) {
        signal(pid, Signal::KILL);
    }
    wait_until("it is gone", || processes_of(&id.to_string()).is_empty());
    assert!(fleet.places.agent_dir(id).join(records::EXIT).exists());
    let row = fleet.client().await.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.ending, row.runs), (State::Crashed, Some(Ending::Unknown), 2));
}

#[tokio::test]
async fn r13_an_agent_that_cannot_be_watched_at_first_is_adopted_all_the_same() {
    let mut fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let before = client.show(&id.to_string()).await.unwrap();
    fleet.kill_daemon();
    let strace = ["-qq", "-o", "/dev/null", "-e", "trace=pidfd_open", "-e"];
    let mut arguments: Vec<std::ffi::OsString> = strace.iter().map(Into::into).collect();
    // The first try to watch it finds no descriptor.
    arguments.extend(["inject=pidfd_open:error=EMFILE:when=1".into(), caliband().into()]);
    fleet.start.programs = vec![("/usr/bin/strace".into(), arguments)];
    let mut client = Client::connect_or_start(&fleet.places, fleet.start.clone()).await.unwrap();
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid, row.shim_pid), (State::Running, before.pid, before.shim_pid));
    assert!(fleet.log().contains("its shim cannot be watched now"), "{}", fleet.log());
    // It is watched before long: its end is seen.
    let shim = fleet.shim(id);
    signal(shim.pid, Signal::KILL);
    fleet.until_state(&mut client, id, State::Crashed).await;
    assert!(!is_alive(shim.worker_pid.unwrap()));
}

#[tokio::test]
async fn files_of_agents_that_are_gone_leave_the_runtime_directory() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut request = fleet.request("serve");
    request.secrets.secrets.insert("CANARY".to_owned(), "hunter2".to_owned());
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    fleet.kill_daemon();
    // As a daemon leaves them that dies between the commit of a removal and its end.
    let gone: AgentId = "0badcafe".parse().unwrap();
    fs::write(fleet.places.agent_secrets(gone), "{}").unwrap();
    drop(UnixListener::bind(fleet.places.agent_socket(gone)).unwrap());
    // One that lives and is in no registry keeps its socket; nobody starts it again.
    let stranger: AgentId = "0badbeef".parse().unwrap();
    fs::create_dir(fleet.places.agent_dir(stranger)).unwrap();
    fs::write(fleet.places.agent_secrets(stranger), "{}").unwrap();
    drop(UnixListener::bind(fleet.places.agent_socket(stranger)).unwrap());
    let _lives = silent_shim(&fleet, stranger, "unknown");
    let mut client = fleet.client().await;
    assert_eq!(client.list().await.unwrap().len(), 1);
    let names = |id: AgentId| [fleet.places.agent_secrets(id), fleet.places.agent_socket(id)];
    assert_eq!(names(gone).map(|path| path.exists()), [false; 2]);
    assert_eq!(names(stranger).map(|path| path.exists()), [false, true]);
    assert_eq!(names(id).map(|path| path.exists()), [true; 2]);
    assert_eq!(fleet.ask(id, "end").as_deref(), Some("ends"));
    let shim = fleet.shim(id);
    wait_until("it has ended", || !is_alive(shim.pid));
}
