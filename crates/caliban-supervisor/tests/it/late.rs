//! A daemon that comes late to a request, and a registry that keeps a daemon waiting.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::Client;
use caliban_fleet::protocol::{ResumeRequest, RmRequest, SpawnRequest};
use rustix::process::Signal;

use crate::fleet::{Fleet, fake_worker, processes_of, quick, refused, signal, until, wait_until};

/// Callers that go before the daemon comes to them.
const GONE: usize = 5;
/// What the daemon's log says when something could not be recorded.
const NOT_WRITTEN: &str = "the registry cannot be written";

/// Somebody who holds a registry.
pub(crate) struct Held(Child);

impl Held {
    /// From now on nothing can be recorded.
    pub(crate) fn registry_of(fleet: &Fleet) -> Self {
        let mut sqlite = Command::new("sqlite3");
        sqlite.arg(fleet.places.database()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = sqlite.spawn().unwrap();
        let orders = b".timeout 60000\nBEGIN IMMEDIATE;\n.print held\n";
        holder.stdin.as_mut().unwrap().write_all(orders).unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "held\n");
        Self(holder)
    }

    pub(crate) fn let_go(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

/// Changes a registry.
fn sqlite(fleet: &Fleet, order: &str) {
    let mut sqlite = Command::new("sqlite3");
    let done = sqlite.args(["-cmd", ".timeout 60000"]).arg(fleet.places.database()).arg(order).status();
    assert!(done.unwrap().success(), "{order}");
}

/// An agent that has left memory.
async fn asleep(fleet: &Fleet, client: &mut Client) -> AgentId {
    let id = fleet.spawn_up(client, "serve").await;
    fleet.tell(id, "sleep");
    fleet.until_row(client, id, |row| row.hibernated).await;
    id
}

async fn states(client: &mut Client) -> Vec<(AgentId, State)> {
    client.list().await.unwrap().into_iter().map(|row| (row.id, row.state)).collect()
}

#[tokio::test]
async fn a_spawn_whose_caller_is_gone_before_it_is_looked_at_does_not_happen() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let body = fleet.temp.path().join("body");
    crate::fleet::write(&body, &serde_json::to_string(&fleet.request("hang")).unwrap());
    let daemon = fleet.daemon_pid().unwrap();
    signal(daemon, Signal::STOP);
    let ask = || {
        let mut curl = Command::new("curl");
        curl.args(["-s", "--max-time", "0.5", "--unix-socket"]).arg(fleet.places.socket());
        curl.args(["-H", "content-type: application/json", "http://x/v1/agents", "--data-binary"]);
        curl.arg(format!("@{}", body.display())).spawn().unwrap()
    };
    let callers: Vec<_> = (0..GONE).map(|_| ask()).collect();
    // They give up, and say that it has failed.
    callers.into_iter().for_each(|mut caller| assert!(!caller.wait().unwrap().success()));
    signal(daemon, Signal::CONT);
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let known: Vec<_> = client.list().await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(known, [id]);
}

#[tokio::test]
async fn a_kill_does_not_wait_for_a_registry_that_somebody_holds() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let asleep = asleep(&fleet, &mut client).await;
    let running = fleet.spawn_up(&mut client, "hang").await;
    let queued = fleet.spawn(&mut client, "hang").await;
    fleet.until_row(&mut client, queued, |row| row.queued_behind == Some(0)).await;
    let held = Held::registry_of(&fleet);
    for id in [queued, asleep, running] {
        let row = client.kill(&id.to_string(), &quick()).await.unwrap();
        assert_eq!((row.id, row.state), (id, State::Killed));
        assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
    }
    // They were answered while nothing could be recorded, before that was given up, and the next daemon knows.
    assert!(!fleet.log().contains(NOT_WRITTEN), "{}", fleet.log());
    fleet.kill_daemon();
    held.let_go();
    let states = states(&mut fleet.client().await).await;
    assert_eq!(states, [asleep, running, queued].map(|id| (id, State::Killed)));
    assert_eq!([asleep, running, queued].map(|id| fleet.runs(id)), [1, 1, 0]);
}

#[tokio::test]
async fn a_removal_does_not_wait_for_a_registry_that_somebody_holds() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let stays = asleep(&fleet, &mut client).await;
    let running = fleet.spawn_up(&mut client, "hang").await;
    let done = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, done, State::Done).await;
    let held = Held::registry_of(&fleet);
    for (id, force) in [(done, false), (running, true)] {
        let removed = client.rm(&id.to_string(), RmRequest { force, ..RmRequest::default() }).await.unwrap();
        assert_eq!(removed.id, id);
        assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
    }
    assert_eq!(states(&mut client).await, [(stays, State::Idle)]);
    assert!(!fleet.log().contains(NOT_WRITTEN), "{}", fleet.log());
    fleet.kill_daemon();
    held.let_go();
    assert_eq!(states(&mut fleet.client().await).await, [(stays, State::Idle)]);
}

#[tokio::test]
async fn who_is_killed_while_it_is_woken_and_nothing_can_be_recorded_stays_killed() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = asleep(&fleet, &mut client).await;
    let name = id.to_string();
    let held = Held::registry_of(&fleet);
    let (mut other, woken) = (fleet.client().await, name.clone());
    let wake = tokio::spawn(async move { other.wake(&woken).await });
    until("it is being woken", || async { fleet.log().contains("woken") }).await;
    assert_eq!(client.kill(&name, &quick()).await.unwrap().state, State::Killed);
    assert_eq!(refused(wake.await.unwrap()).0, "ended");
    fleet.kill_daemon();
    held.let_go();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&name).await.unwrap().state, State::Killed);
    assert_eq!(fleet.runs(id), 1);
}

#[tokio::test]
async fn who_is_killed_when_its_next_run_could_not_be_recorded_is_not_started_by_the_next_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let program = fleet.temp.path().join("worker");
    std::fs::write(&program, [0x7f; 64]).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    let request = SpawnRequest { program: Some(program.clone()), ..fleet.request("hang") };
    let id = client.spawn(request).await.unwrap().id;
    let name = id.to_string();
    fleet.until_row(&mut client, id, |row| row.note.is_some()).await;
    // Whatever is to be recorded of it fails, at once.
    let fail = "CREATE TRIGGER no BEFORE UPDATE ON agents BEGIN SELECT RAISE(ABORT, 'not now'); END";
    sqlite(&fleet, fail);
    until("its next run is not recorded", || async { fleet.log().contains(NOT_WRITTEN) }).await;
    assert_eq!(client.kill(&name, &quick()).await.unwrap().state, State::Killed);
    fleet.kill_daemon();
    sqlite(&fleet, "DROP TRIGGER no");
    std::fs::remove_file(&program).unwrap();
    std::fs::copy(fake_worker(), &program).unwrap();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&name).await.unwrap().state, State::Killed);
    assert_eq!(fleet.runs(id), 0);
}

/// A daemon whose system calls are traced, and the trace.
async fn traced(fleet: &mut Fleet, calls: &str) -> (Client, PathBuf) {
    let trace = fleet.temp.path().join("trace");
    let strace = ["-f", "-qq", "-y", "-e", calls, "-o"];
    let mut arguments: Vec<std::ffi::OsString> = strace.iter().map(Into::into).collect();
    arguments.extend([trace.clone().into(), crate::fleet::caliband().into()]);
    fleet.start.programs = vec![("/usr/bin/strace".into(), arguments)];
    (Client::connect_or_start(&fleet.places, fleet.start.clone()).await.unwrap(), trace)
}

#[tokio::test]
async fn f12_the_order_to_end_is_on_the_disk_before_the_first_signal() {
    let mut fleet = Fleet::new();
    let (mut client, trace) = traced(&mut fleet, "trace=fsync,pidfd_send_signal").await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    assert_eq!(client.kill(&id.to_string(), &quick()).await.unwrap().state, State::Killed);
    let (synced, sent) = (["fsync(", ".stop.json.new>"], ["pidfd_send_signal", "SIGTERM"]);
    let positions = || {
        let text = std::fs::read_to_string(&trace).unwrap();
        let first =
            |what: [&str; 2]| text.lines().position(|line| what.iter().all(|what| line.contains(what)));
        Some((first(synced)?, first(sent)?))
    };
    wait_until("both are in the trace", || positions().is_some());
    let (synced, sent) = positions().unwrap();
    assert!(synced < sent, "{}", std::fs::read_to_string(&trace).unwrap());
}

#[tokio::test]
async fn r16_what_is_said_at_a_resume_is_on_the_disk_before_anybody_can_hear_it() {
    let mut fleet = Fleet::new();
    let (mut client, trace) = traced(&mut fleet, "trace=fsync").await;
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let request = ResumeRequest { prompt: Some("go on".to_owned()), ..ResumeRequest::default() };
    client.resume(&id.to_string(), &request).await.unwrap();
    fleet.until_row(&mut client, id, |row| (row.state, row.runs) == (State::Done, 2)).await;
    let synced =
        |text: String| text.lines().any(|line| line.contains("fsync(") && line.contains(".resume.json.new>"));
    wait_until("it was synced", || synced(std::fs::read_to_string(&trace).unwrap()));
}
