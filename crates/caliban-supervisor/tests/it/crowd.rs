//! However many connect and stay, whoever has something to ask gets in (r23, a14).

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use caliban_supervisor::protocol::FleetEvent;

use crate::fleet::Fleet;

/// More than twice the connections that a daemon has at once: more than it lets go of in the time that a client waits,
/// if it lets go of those only who were silent for long.
const CROWD: usize = 1100;

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
