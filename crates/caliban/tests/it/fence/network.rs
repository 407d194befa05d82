//! The network of fenced commands: some hosts, through the proxy, and no others.

use std::{
    io::{Read, Write},
    net::TcpListener,
};

use serde_json::json;

use super::{go, results, script, settings};
use crate::place::Place;

/// A server that answers `hello` to anything, for ever.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _head = stream.read(&mut [0; 4096]);
            let _gone =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        }
    });
    port
}

#[test]
fn a17_listed_domains_are_reached_through_the_proxy_and_no_others() {
    let port = server();
    let curl = |more: &str| json!({"command": format!("curl -sS {more} 2>&1")});
    let place = Place::new(script(&[
        // `localhost` is never asked for by way of a proxy, so a name that leads there is used.
        curl(&format!("--noproxy '' http://localhost:{port}/")),
        curl(&format!("--noproxy '' -p http://localhost:{port}/")),
        curl(&format!("--noproxy '' http://127.0.0.1:{port}/; exit 1")),
        curl(&format!("--noproxy '*' http://localhost:{port}/")),
        json!({"command": "env | grep -ci _proxy="}),
    ]));
    settings(
        &place,
        "[web]\nallow_private = true\n[fence]\nnetwork = \"domains\"\ndomains = [\"localhost\"]\n",
    );
    go(&place, "accept-edits", &[]);
    let results = results(&place);
    assert_eq!(results[0].1, "hello");
    assert_eq!(results[1].1, "hello");
    assert!(results[2].1.contains("127.0.0.1 is not among the domains of [fence]"), "{}", results[2].1);
    assert!(results[2].1.contains("outside: true"), "{}", results[2].1);
    assert!(results[3].1.contains("onnect to localhost"), "{}", results[3].1);
    assert_eq!(results[4].1.trim(), "8");
}

/// A listed name that leads to this machine is refused, unless private addresses are allowed.
#[test]
fn a17_a_listed_name_that_leads_to_this_machine_is_refused() {
    let port = server();
    let place = Place::new(script(&[
        json!({"command": format!("curl -sS --noproxy '' http://localhost:{port}/; exit 1")}),
    ]));
    settings(&place, "[fence]\nnetwork = \"domains\"\ndomains = [\"localhost\"]\n");
    go(&place, "accept-edits", &[]);
    let (_, text, _) = super::result(&place);
    assert!(text.contains("which is not a public address"), "{text}");
}
