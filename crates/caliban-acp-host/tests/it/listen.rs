//! A session behind a socket.

use std::sync::Arc;

use caliban_acp::AcpClient;
use caliban_acp_host::{ServeOptions, Sessions, listen, listen::MAX_CLIENTS};
use serde_json::json;
use tokio::{
    io::AsyncReadExt,
    net::{UnixListener, UnixStream},
};
use tokio_util::sync::CancellationToken;

use crate::world::World;

#[tokio::test]
async fn clients_come_over_a_socket_up_to_a_number_and_all_go_at_the_stop() {
    let world = World::new(json!({"steps": []}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let path = world.directory.path().join("agent.sock");
    let stop = CancellationToken::new();
    let listener = UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(listen(listener, sessions, ServeOptions::socket("0"), stop.clone()));
    let mut clients = Vec::new();
    for _ in 0..MAX_CLIENTS {
        let (reader, writer) = UnixStream::connect(&path).await.unwrap().into_split();
        clients.push(AcpClient::connect(reader, writer, "0").await.unwrap());
    }
    let mut late = UnixStream::connect(&path).await.unwrap();
    assert_eq!(late.read(&mut [0; 1]).await.unwrap(), 0, "turned away");
    let (client, events) = clients.last_mut().unwrap();
    let listed = events.until(client.list_sessions()).await.unwrap().unwrap();
    assert_eq!(listed.sessions[0].session_id.to_string(), "s");
    // Who leaves makes room.
    clients.pop();
    loop {
        let (reader, writer) = UnixStream::connect(&path).await.unwrap().into_split();
        if let Ok(client) = AcpClient::connect(reader, writer, "0").await {
            clients.push(client);
            break;
        }
    }
    stop.cancel();
    server.await.unwrap();
    for (_, mut events) in clients {
        assert!(matches!(events.next().await, Ok(None)));
    }
    host.close().await;
}
