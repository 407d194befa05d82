//! However many connect and stay, whoever has something to ask gets in (r23, a14).

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use caliban_core::lifecycle::State;
use caliban_fleet::protocol::FleetEvent;
use rustix::process::Signal;

use crate::fleet::{Fleet, is_alive, quick, signal, wait_until};

/// More than twice the connections that a daemon has at once: more than it lets go of in the time that a client waits,
/// if it lets go of those only who were silent for long.
const CROWD: usize = 1100;
/// The connections that a daemon has at once.
const SEATS: usize = 512;

/// Opens connections which say `text`, and keeps them.
fn crowd(fleet: &Fleet, text: &str) -> Vec<UnixStream> {
    let connect = || {
        let mut stream = UnixStream::connect(fleet.places.socket()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    };
    std::iter::repeat_with(connect).take(CROWD).collect()
}

#[tokio::test]
async fn a_crowd_of_readers_keeps_nobody_out() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    drop(client);
    let readers = crowd(&fleet, "GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut client = fleet.client().await;
    assert_eq!(client.list().await.unwrap().len(), 1);
    // Also one more who reads.
    let mut events = client.events().await.unwrap();
    loop {
        match events.next().await.unwrap() {
            Some(FleetEvent::Agent(row)) => assert_eq!(row.id, id),
            Some(FleetEvent::Ready {}) => break,
            other => panic!("{other:?}"),
        }
    }
    // The first of the crowd was sent away, and sees that.
    let mut oldest = &readers[0];
    oldest.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut heard = String::new();
    oldest.read_to_string(&mut heard).unwrap();
    assert!(heard.starts_with("HTTP/1.1 200"), "{heard}");
}

#[tokio::test]
async fn a_crowd_that_says_nothing_keeps_nobody_out() {
    let fleet = Fleet::new();
    drop(fleet.client().await);
    let silent = crowd(&fleet, "GET /v1");
    let mut client = fleet.client().await;
    assert_eq!(client.list().await.unwrap(), []);
    assert_eq!(silent.len(), CROWD);
}

#[tokio::test]
async fn r23_a_crowd_that_waits_keeps_no_kill_out_and_nobody_when_it_got_its_answers() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    // Nobody listens there, so everybody who wants it to waits for an answer, until it is gone.
    let other = fleet.spawn_up(&mut client, "hang").await;
    let id = fleet.spawn(&mut client, "mute").await;
    let worker = fleet.until_row(&mut client, id, |row| row.pid.is_some()).await.pid.unwrap();
    drop(client);
    let daemon = fleet.daemon_pid().unwrap();
    let sockets = || std::fs::read_dir(format!("/proc/{daemon}/fd")).unwrap().count();
    let before = sockets();
    let wake = format!("POST /v1/agents/{id}/wake HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n");
    let mut asks = crowd(&fleet, &wake);
    wait_until("as many are connected as can be", || sockets() > before + SEATS);
    // The daemon looks for somebody to send away when the last has been there for a second, and finds nobody.
    let full = Instant::now();
    wait_until("it has looked", || full.elapsed() > Duration::from_secs(2));
    // All of them wait, and somebody else kills another agent all the same.
    let mut client = fleet.client().await;
    assert_eq!(client.kill(&other.to_string(), &quick()).await.unwrap().state, State::Killed);
    assert!(is_alive(worker));
    signal(worker, Signal::KILL);
    // Those who were let in hear of it, and read from then on.
    for stream in asks.iter_mut().take(SEATS + 1) {
        let mut answer = [0; 1];
        if matches!(stream.read(&mut answer), Ok(1)) {
            let _sent_away = stream.write_all(b"GET /v1/events HTTP/1.1\r\nhost: x\r\n\r\n");
        }
    }
    let mut client = fleet.client().await;
    assert_eq!(client.list().await.unwrap().len(), 2);
    assert_eq!(asks.len(), CROWD);
}
