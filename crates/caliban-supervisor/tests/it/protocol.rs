//! The wire: versions, limits, the document.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};

use caliban_fleet::Client;
use caliban_fleet::protocol::BODY_CAP;
use caliban_fleet::protocol::routes::ROUTES;

use crate::fleet::{Fleet, refused};

/// Sends bytes and reads what comes until the daemon closes.
fn raw(fleet: &Fleet, request: &str) -> String {
    let mut stream = UnixStream::connect(fleet.places.socket()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(fleet: &Fleet, path: &str, headers: &str) -> String {
    raw(fleet, &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n"))
}

#[tokio::test]
async fn the_document_is_what_the_router_does() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let document = client.openapi().await.unwrap();
    let mut documented = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            documented.push((method.to_uppercase(), path.clone()));
            assert!(operation["operationId"].is_string());
        }
    }
    let mut routes: Vec<_> = ROUTES.iter().map(|r| (r.method.to_owned(), r.path.to_owned())).collect();
    documented.sort();
    routes.sort();
    assert_eq!(documented, routes);
    // Each is really served: an unknown agent, an empty body, a document, but never "no such route".
    for route in ROUTES.iter().filter(|route| !matches!(route.path, "/v1/events" | "/v1/shutdown")) {
        let path = route.path.replace("{id}", "nobody");
        let answer = raw(
            &fleet,
            &format!(
                "{} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                route.method
            ),
        );
        assert!(
            answer.starts_with("HTTP/1.1 ") && !answer.contains("\"code\":\"no_route\""),
            "{} {path}: {answer}",
            route.method
        );
        assert!(answer.contains("\r\ncaliban-protocol: 1\r\n"), "{answer}");
    }
    let nothing = get(&fleet, "/v2/agents", "");
    assert!(
        nothing.starts_with("HTTP/1.1 404 ") && nothing.contains("there is no '/v2/agents'"),
        "{nothing}"
    );
    let method =
        raw(&fleet, "PUT /v1/agents HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    assert!(method.contains("'/v1/agents' takes GET, POST"), "{method}");
}

#[tokio::test]
async fn r22_a_client_of_another_protocol_is_told_so() {
    let fleet = Fleet::new();
    fleet.client().await;
    let answer = get(&fleet, "/v1/agents", "caliban-protocol: 99\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("this daemon speaks protocol 1, the client 99"), "{answer}");
    // It may still look and replace the daemon.
    assert!(get(&fleet, "/v1/status", "caliban-protocol: 99\r\n").starts_with("HTTP/1.1 200 "));
    // And without a word about it (curl) one is served.
    assert!(get(&fleet, "/v1/agents", "").contains("{\"agents\":[]}"));
}

#[tokio::test]
async fn r22_a_daemon_of_another_protocol_is_a_clear_error() {
    let fleet = Fleet::new();
    fleet.places.prepare().unwrap();
    let listener = UnixListener::bind(fleet.places.socket()).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut head = [0; 1024];
        let _read = stream.read(&mut head).unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncaliban-protocol: 2\r\ncontent-length: 2\r\n\r\n{}").unwrap();
    });
    let mut client = Client::connect(&fleet.places).await.unwrap();
    let error = client.list().await.unwrap_err();
    assert_eq!(error.to_string(), "the daemon speaks protocol 2, this program 1");
    assert_eq!(error.hint().unwrap(), "run `caliban daemon restart`: running agents live on and are adopted");
    server.join().unwrap();
}

#[tokio::test]
async fn a14_what_is_too_large_is_refused_and_the_daemon_goes_on() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut large = fleet.request("done");
    large.spec.prompt = "x".repeat(BODY_CAP);
    let (code, message, _) = refused(client.spawn(large).await);
    assert_eq!((code.as_str(), message.as_str()), ("too_large", "a request has at most 8388608 bytes"));
    let mut long = fleet.request("done");
    long.spec.prompt = "x".repeat(2 << 20);
    assert_eq!(refused(client.spawn(long).await).0, "bad_request");
    // A head without end.
    let mut stream = UnixStream::connect(fleet.places.socket()).unwrap();
    let mut sent = 0;
    while sent < 1 << 20 && stream.write_all(&[b'a'; 4096]).is_ok() {
        sent += 4096;
    }
    assert!(sent < 1 << 20);
    // Deep nesting.
    let deep = "[".repeat(100_000);
    let request = format!(
        "POST /v1/agents HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{deep}",
        deep.len()
    );
    assert!(raw(&fleet, &request).starts_with("HTTP/1.1 400 "));
    assert_eq!(client.list().await.unwrap(), []);
}

#[tokio::test]
async fn a14_a_slow_sender_keeps_nobody_waiting() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut slow: Vec<UnixStream> =
        (0..50).map(|_| UnixStream::connect(fleet.places.socket()).unwrap()).collect();
    for stream in &mut slow {
        stream.write_all(b"POST /v1/agents HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{").unwrap();
    }
    assert_eq!(client.list().await.unwrap(), []);
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, caliban_core::lifecycle::State::Done).await;
    drop(slow);
}
