//! What may go wrong around a daemon: full disks, no descriptors, stopped agents, slow readers, other versions.

use std::fs;
use std::process::Command;
use std::time::Duration;

use caliban_contract::records::{self, STATUS_VERSION, WorkerState, WorkerStatus};
use caliban_contract::{PlaceSources, Places};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::protocol::{AgentRow, FleetEvent, KillRequest, ResumeRequest};
use caliban_fleet::{Client, ClientError};
use rustix::process::Signal;

use crate::fleet::{Fleet, caliband, is_alive, processes_of, quick, refused, signal};

#[tokio::test]
async fn r05_stopped_and_mute_agents_stall_nobody() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut ids: Vec<AgentId> = Vec::new();
    for n in 0..10 {
        let id = fleet.spawn(&mut client, if n % 2 == 0 { "hang" } else { "mute" }).await;
        fleet.until_row(&mut client, id, |row| row.pid.is_some()).await;
        ids.push(id);
    }
    for id in &ids[..6] {
        processes_of(&id.to_string()).into_iter().for_each(|pid| signal(pid, Signal::STOP));
    }
    // One puts a pipe where its status belongs.
    let status = fleet.places.agent_dir(ids[7]).join(records::STATUS);
    assert!(Command::new("mkfifo").arg(&status).status().unwrap().success());
    assert_eq!(client.list().await.unwrap().len(), 10);
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let states: Vec<State> = client.list().await.unwrap().into_iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Running; 10]);
    // A stopped tree can be killed.
    let row = client.kill(&ids[0].to_string(), &quick()).await.unwrap();
    assert_eq!(row.state, State::Killed);
    assert_eq!(processes_of(&ids[0].to_string()), Vec::<i32>::new());
}

/// The small disk of a fleet.
pub(crate) struct Small(testkit::SmallDisk);

impl Small {
    /// A fleet whose data is on a disk of two megabytes; none, and the test is skipped, when we may not mount one.
    pub(crate) fn fleet() -> Option<(Fleet, Self)> {
        let mut fleet = Fleet::new();
        let data = fleet.temp.path().join("small");
        let small = Self(testkit::SmallDisk::mount(&data, "2m")?);
        let sources = PlaceSources {
            daemon_runtime_dir: Some(fleet.places.runtime().to_owned()),
            data: data.join("caliban"),
            ..PlaceSources::default()
        };
        fleet.places = Places::of(fleet.places.repo().to_owned(), &sources).unwrap();
        Some((fleet, small))
    }
}

impl std::ops::Deref for Small {
    type Target = testkit::SmallDisk;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

#[tokio::test]
async fn r11_a_full_disk_refuses_new_work_in_words_and_loses_nothing() {
    let Some((fleet, small)) = Small::fleet() else { return };
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let running = fleet.spawn_up(&mut client, &format!("gate:{}", gate.display())).await;
    let exit_gate = fleet.temp.path().join("exit-gate");
    let ending = fleet.spawn_up(&mut client, &format!("gate-exit:{}", exit_gate.display())).await;
    small.fill();
    let (code, message, hint) = refused(client.spawn(fleet.request("done")).await);
    assert_eq!(code, "disk_full", "{message}");
    assert_eq!(hint, "make room and try again; running agents are not touched");
    let rows = client.list().await.unwrap();
    let states: Vec<_> = rows.iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(states, [(running, State::Running), (ending, State::Running)]);
    // The last word of one that ends now is not lost either.
    crate::fleet::write(&exit_gate, "");
    let row = fleet.until_state(&mut client, ending, State::Failed).await;
    let text = "the worker ended with code 3 and gave no reason; see its worker.log".to_owned();
    assert_eq!(row.ending, Some(caliban_core::lifecycle::Ending::Error { text }));
    // It goes on by itself when there is room.
    small.make_room();
    let after = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, after, State::Done).await;
    crate::fleet::write(&gate, "");
    fleet.until_state(&mut client, running, State::Done).await;
    fleet.kill_daemon();
    let states: Vec<_> =
        fleet.client().await.list().await.unwrap().into_iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(states, [(running, State::Done), (ending, State::Failed), (after, State::Done)]);
}

#[tokio::test]
async fn r11_on_a_full_disk_agents_can_be_killed_and_the_health_says_so() {
    let Some((fleet, small)) = Small::fleet() else { return };
    let mut client = fleet.client().await;
    let (one, two) = (fleet.spawn_up(&mut client, "hang").await, fleet.spawn_up(&mut client, "hang").await);
    assert_eq!(client.status().await.unwrap().health, "ok");
    small.fill();
    let health = client.status().await.unwrap().health;
    assert!(health.starts_with("the disk is full"), "{health}");
    let row = client.kill(&one.to_string(), &quick()).await.unwrap();
    assert_eq!(row.state, State::Killed);
    assert_eq!(processes_of(&one.to_string()), Vec::<i32>::new());
    let row = client.kill(&two.to_string(), &quick()).await.unwrap();
    assert_eq!(row.state, State::Killed);
    // Once more: it has ended, and that is all there is to say.
    assert_eq!(client.kill(&two.to_string(), &quick()).await.unwrap().state, State::Killed);
    assert_eq!(processes_of(&two.to_string()), Vec::<i32>::new());
    // Recorded when there is room.
    small.make_room();
    let after = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, after, State::Done).await;
    assert_eq!(client.status().await.unwrap().health, "ok");
    client.shutdown().await.unwrap();
    let rows = fleet.client().await.list().await.unwrap();
    let states: Vec<_> = rows.into_iter().map(|row| (row.id, row.state)).collect();
    assert_eq!(states, [(one, State::Killed), (two, State::Killed), (after, State::Done)]);
}

#[tokio::test]
async fn r11_on_a_full_disk_a_resume_is_refused_and_the_agent_stays_as_it_was() {
    let Some((fleet, small)) = Small::fleet() else { return };
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    let before = fleet.until_state(&mut client, id, State::Done).await;
    small.fill();
    let name = id.to_string();
    let (code, message, _) = refused(client.resume(&name, &ResumeRequest::default()).await);
    assert_eq!(code, "disk_full", "{message}");
    let known = |row: &AgentRow| (row.state, row.runs, row.ending.clone(), row.note.clone());
    assert_eq!(known(&client.show(&name).await.unwrap()), known(&before));
    small.make_room();
    // What is said now is also what is saved.
    let other = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, other, State::Done).await;
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    assert_eq!(known(&client.show(&name).await.unwrap()), known(&before));
    client.resume(&name, &ResumeRequest::default()).await.unwrap();
    fleet.until_row(&mut client, id, |row| (row.state, row.runs) == (State::Done, 2)).await;
}

#[tokio::test]
async fn r11_on_a_full_disk_a_sleeper_sleeps_on_and_whoever_woke_it_is_told() {
    let Some((fleet, small)) = Small::fleet() else { return };
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "serve").await;
    fleet.tell(id, "sleep");
    fleet.until_row(&mut client, id, |row| row.hibernated).await;
    small.fill();
    let (code, message, hint) = refused(client.wake(&id.to_string()).await);
    assert_eq!(code, "disk_full", "{message}");
    assert_eq!(hint, "make room and try again; running agents are not touched");
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.hibernated, row.runs), (true, 1));
    small.make_room();
    assert_eq!(client.wake(&id.to_string()).await.unwrap().id, id);
    assert_eq!(client.show(&id.to_string()).await.unwrap().runs, 2);
}

#[tokio::test]
async fn r11_a_second_kill_that_cannot_be_saved_leaves_the_first_in_force() {
    let Some((fleet, small)) = Small::fleet() else { return };
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let script = format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display());
    let id = fleet.spawn_up(&mut client, &script).await;
    crate::fleet::wait_until("the shell ignores TERM", || up.exists());
    let name = id.to_string();
    let (mut one, mut two) = (fleet.client().await, fleet.client().await);
    let (patient, quick) = (KillRequest { grace_ms: Some(600_000) }, quick());
    let first = one.kill(&name, &patient);
    let rest = async {
        let order = fleet.places.agent_dir(id).join(records::STOP);
        crate::fleet::until("the first is under way", || async { order.exists() }).await;
        small.fill();
        let second = two.kill(&name, &quick);
        let third = async {
            loop {
                if client.status().await.unwrap().health != "ok" {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            small.make_room();
            client.kill(&name, &quick).await
        };
        tokio::join!(second, third)
    };
    let (first, (second, third)) = tokio::join!(first, rest);
    let states = [first, second, third].map(|row| row.unwrap().state);
    assert_eq!(states, [State::Killed; 3]);
}

#[tokio::test]
async fn r13_out_of_descriptors_the_daemon_waits_and_recovers() {
    let mut fleet = Fleet::new();
    fleet.start.programs =
        vec![("/usr/bin/prlimit".into(), vec!["--nofile=56:56".into(), caliband().into()])];
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let before = client.show(&id.to_string()).await.unwrap();
    let mut held: Vec<std::os::unix::net::UnixStream> = Vec::new();
    for _ in 0..120 {
        held.push(std::os::unix::net::UnixStream::connect(fleet.places.socket()).unwrap());
    }
    let failures = || fleet.log().lines().filter(|line| line.contains("Too many open files")).count();
    crate::fleet::wait_until("the daemon has no descriptors", || failures() > 0);
    // Somebody else who asks gets in, and the agent is as it was.
    let row = fleet.client().await.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid), (before.state, before.pid));
    // It does not spin: a loop without a pause would write thousands of these.
    assert!(failures() < 1000);
    drop(held);
    let id = fleet.spawn(&mut fleet.client().await, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    assert!(is_alive(before.pid.unwrap()));
}

/// Leaves the daemon with the descriptors that it has, and no other. Only for a daemon that has lent none yet: those that it has set
/// aside then come to lie below the first free number.
fn take_descriptors(fleet: &Fleet) {
    let daemon = fleet.daemon_pid().unwrap();
    let null = std::path::Path::new("/dev/null");
    let first_free = || {
        let fds = std::path::PathBuf::from(format!("/proc/{daemon}/fd"));
        let mut open = (0_u64..).map_while(|number| fs::read_link(fds.join(number.to_string())).ok());
        let (mut aside, mut free) = (0, 0);
        open.by_ref().for_each(|to| {
            aside += u64::from(free > 2 && to == null);
            free += 1;
        });
        (aside >= 16).then_some(free)
    };
    let mut free = None;
    crate::fleet::wait_until("what is set aside lies below the first free number", || {
        free = first_free();
        free.is_some()
    });
    let free = free.unwrap();
    let limit = format!("--nofile={free}:{free}");
    assert!(Command::new("prlimit").arg(format!("--pid={daemon}")).arg(limit).status().unwrap().success());
}

#[tokio::test]
async fn r13_without_a_descriptor_a_kill_works_and_other_requests_are_refused_in_words() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let (one, two) = (fleet.spawn_up(&mut client, "hang").await, fleet.spawn_up(&mut client, "hang").await);
    take_descriptors(&fleet);
    // A connection that was there before.
    let (code, message, hint) = refused(client.spawn(fleet.request("done")).await);
    assert_eq!((code.as_str(), message.as_str()), ("busy", "the daemon is out of file descriptors (EMFILE)"));
    assert!(hint.contains("ulimit -n"), "{hint}");
    assert_eq!(client.status().await.unwrap().health, message);
    // New ones.
    for id in [one, two] {
        let kill = async { fleet.client().await.kill(&id.to_string(), &quick()).await };
        let killed = tokio::time::timeout(Duration::from_secs(60), kill).await.expect("an answer");
        assert_eq!(killed.unwrap().state, State::Killed);
        assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
    }
}

#[tokio::test]
async fn r13_without_a_descriptor_nobody_waits_for_an_agent_to_wake() {
    let fleet = Fleet::new();
    let id = fleet.spawn_up(&mut fleet.client().await, "hang").await;
    take_descriptors(&fleet);
    let (code, message, _) = refused(fleet.client().await.wake(&id.to_string()).await);
    assert_eq!((code.as_str(), message.as_str()), ("busy", "the daemon is out of file descriptors (EMFILE)"));
}

#[tokio::test]
async fn r13_without_a_descriptor_a_person_can_replace_the_daemon() {
    let fleet = Fleet::new();
    fleet.client().await.status().await.unwrap();
    take_descriptors(&fleet);
    fleet.client().await.shutdown().await.unwrap();
}

#[tokio::test]
async fn r22_a_registry_of_a_later_version_is_refused_and_left_as_it_is() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    client.shutdown().await.unwrap();
    // The version is a number in the header of the file.
    let mut bytes = fs::read(fleet.places.database()).unwrap();
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(fleet.places.database(), &bytes).unwrap();
    let error = Client::connect_or_start(&fleet.places, fleet.start.clone()).await.unwrap_err();
    let ClientError::Start(text) = &error else { panic!("{error:?}") };
    assert!(text.contains("has schema 99, this build knows 4; refusing to downgrade"), "{text}");
    assert_eq!(fs::read(fleet.places.database()).unwrap(), bytes);
    assert!(is_alive(fleet.shim(id).pid));
}

#[tokio::test]
async fn r22_a_status_of_a_later_version_is_not_guessed_at() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let nonce = fleet.shim(id).nonce;
    let status =
        WorkerStatus { version: 99, nonce, state: WorkerState::Idle, turns: 7, ..WorkerStatus::default() };
    records::write(&fleet.places.agent_dir(id), records::STATUS, &status).unwrap();
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.turns), (State::Running, 1));
}

#[tokio::test]
async fn r23_a_reader_that_does_not_read_is_told_of_a_gap_and_slows_nobody() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let mut events = client.events().await.unwrap();
    let nonce = fleet.shim(id).nonce;
    let mut last = String::new();
    for n in 0..800 {
        last = format!("{n} {}", "x".repeat(8000));
        let status = WorkerStatus {
            version: STATUS_VERSION,
            nonce: nonce.clone(),
            turns: 1,
            activity: Some(last.clone()),
            ..WorkerStatus::default()
        };
        records::write(&fleet.places.agent_dir(id), records::STATUS, &status).unwrap();
        assert_eq!(client.show(&id.to_string()).await.unwrap().activity.as_ref(), Some(&last));
    }
    let (mut gaps, mut missed) = (0, 0);
    loop {
        match events.next().await.unwrap() {
            Some(FleetEvent::Gap { missed: n }) => {
                gaps += 1;
                missed += n;
            }
            Some(FleetEvent::Agent(row)) if row.activity.as_ref() == Some(&last) => break,
            Some(_) => {}
            None => panic!("the daemon left"),
        }
    }
    assert!(gaps > 0 && missed > 0, "{gaps} {missed}");
}

#[tokio::test]
async fn a_repo_that_is_gone_leaves_its_agents_and_who_is_queued_waits_for_it() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let moved = fleet.temp.path().join("moved");
    fs::rename(fleet.places.repo(), &moved).unwrap();
    let late = fleet.spawn(&mut client, "done").await;
    let row = fleet.until_row(&mut client, late, |row| row.note.is_some()).await;
    let repo = fleet.places.repo().display();
    let why = format!("the repo {repo} is not there; it starts when the repo is back");
    assert_eq!((row.state, row.note.as_deref()), (State::Spawning, Some(why.as_str())));
    assert_eq!(caliban_fleet::words::doing(&row, 0), format!("queued: {why}"));
    assert_eq!(client.kill(&id.to_string(), &quick()).await.unwrap().state, State::Killed);
    // Also the next daemon waits.
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    fleet.until_row(&mut client, late, |row| row.note.is_some()).await;
    fs::rename(moved, fleet.places.repo()).unwrap();
    let row = fleet.until_state(&mut client, late, State::Done).await;
    assert_eq!(row.note, None);
}

#[tokio::test]
async fn r12_a_failed_sync_is_not_acknowledged_and_the_next_daemon_reads_what_is_there() {
    let mut fleet = Fleet::new();
    let mut client = fleet.client().await;
    let first = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, first, State::Done).await;
    client.shutdown().await.unwrap();
    // Every sync of the registry's log fails from now on.
    let sound = fleet.start.programs.clone();
    let trace = fleet.temp.path().join("trace");
    let strace = ["-f", "-qq", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO", "-o"];
    let mut arguments: Vec<std::ffi::OsString> = strace.iter().map(Into::into).collect();
    arguments.extend([trace.into(), caliband().into()]);
    fleet.start.programs = vec![("/usr/bin/strace".into(), arguments)];
    let mut client = Client::connect_or_start(&fleet.places, fleet.start.clone()).await.unwrap();
    let daemon = fleet.daemon_pid().unwrap();
    let (code, message, _) = refused(client.spawn(fleet.request("done")).await);
    assert_eq!(code, "store", "{message}");
    assert!(message.ends_with("the write is not confirmed"), "{message}");
    crate::fleet::wait_until("the daemon has left", || !is_alive(daemon));
    fleet.start.programs = sound;
    let mut client = fleet.client().await;
    assert_eq!(client.show(&first.to_string()).await.unwrap().state, State::Done);
    let next = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, next, State::Done).await;
}
