//! A daemon that comes late to a request, and a registry that keeps a daemon waiting.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use caliban_core::lifecycle::State;
use caliban_supervisor::protocol::ResumeRequest;
use rustix::process::Signal;

use crate::fleet::{Fleet, processes_of, quick, signal, wait_until};

/// Callers that go before the daemon comes to them.
const GONE: usize = 5;

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
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let mut sqlite = Command::new("sqlite3");
    sqlite.arg(fleet.places.database()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut holder) = sqlite.spawn() else { return eprintln!("skipped: there is no sqlite3") };
    let mut orders = holder.stdin.take().unwrap();
    orders.write_all(b"BEGIN IMMEDIATE;\n.print held\n").unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "held\n");
    let name = id.to_string();
    let kill = tokio::spawn(async move { client.kill(&name, &quick()).await });
    let gone = id.to_string();
    tokio::task::spawn_blocking(move || wait_until("it is gone", || processes_of(&gone).is_empty()))
        .await
        .unwrap();
    // It was ended while nothing could be recorded; now it is.
    drop(orders);
    holder.wait().unwrap();
    assert_eq!(kill.await.unwrap().unwrap().state, State::Killed);
    fleet.kill_daemon();
    assert_eq!(fleet.client().await.show(&id.to_string()).await.unwrap().state, State::Killed);
}

#[tokio::test]
async fn r16_what_is_said_at_a_resume_is_on_the_disk_before_anybody_can_hear_it() {
    let mut fleet = Fleet::new();
    let trace = fleet.temp.path().join("trace");
    let strace = ["-f", "-qq", "-y", "-e", "trace=fsync", "-o"];
    let mut arguments: Vec<std::ffi::OsString> = strace.iter().map(Into::into).collect();
    arguments.extend([trace.clone().into(), crate::fleet::caliband().into()]);
    fleet.start.programs = vec![("/usr/bin/strace".into(), arguments)];
    let Ok(mut client) =
        caliban_supervisor::Client::connect_or_start(&fleet.places, fleet.start.clone()).await
    else {
        return eprintln!("skipped: no daemon under strace here");
    };
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let request = ResumeRequest { prompt: Some("go on".to_owned()), ..ResumeRequest::default() };
    client.resume(&id.to_string(), &request).await.unwrap();
    fleet.until_row(&mut client, id, |row| (row.state, row.runs) == (State::Done, 2)).await;
    let synced =
        |text: String| text.lines().any(|line| line.contains("fsync(") && line.contains(".resume.json.new>"));
    wait_until("it was synced", || synced(std::fs::read_to_string(&trace).unwrap()));
}
