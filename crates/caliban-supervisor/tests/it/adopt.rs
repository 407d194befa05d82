//! What a daemon finds that its predecessor had begun: runs that are on the disk and never began, files of agents
//! that are gone.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{State, Status};
use caliban_store::StoreUrl;
use caliban_store::fleet::{Change, Record, Registry};
use caliban_supervisor::MARKER;
use caliban_supervisor::records;

use crate::fleet::{Fleet, is_alive, wait_until};

/// Changes what the registry says of an agent, while no daemon runs.
async fn rewrite(fleet: &Fleet, id: AgentId, change: impl FnOnce(&mut Record)) {
    let mut registry = Registry::open(&StoreUrl::sqlite(fleet.places.database())).await.unwrap();
    let rows = registry.all().await.unwrap();
    let (mut record, _) = rows.into_iter().find(|(record, _)| record.id == id).unwrap();
    change(&mut record);
    registry.commit(&[Change::Update(Box::new(record))]).await.unwrap();
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
async fn files_of_agents_that_are_gone_leave_the_runtime_directory() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut request = fleet.request("serve");
    request.secrets.insert("CANARY".to_owned(), "hunter2".to_owned());
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    fleet.kill_daemon();
    // As a daemon leaves them that dies between the commit of a removal and its end.
    let gone: AgentId = "0badcafe".parse().unwrap();
    fs::write(fleet.places.agent_secrets(gone), "{}").unwrap();
    drop(UnixListener::bind(fleet.places.agent_socket(gone)).unwrap());
    let mut client = fleet.client().await;
    assert_eq!(client.list().await.unwrap().len(), 1);
    let names = |id: AgentId| [fleet.places.agent_secrets(id), fleet.places.agent_socket(id)];
    assert_eq!(names(gone).map(|path| path.exists()), [false; 2]);
    assert_eq!(names(id).map(|path| path.exists()), [true; 2]);
    assert_eq!(fleet.ask(id, "end").as_deref(), Some("ends"));
    let shim = fleet.shim(id);
    wait_until("it has ended", || !is_alive(shim.pid));
}
