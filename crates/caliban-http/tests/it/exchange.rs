//! One request and its response.

use std::time::Duration;

use caliban_http::{Body, ClientOptions, HttpClient, HttpError, Method};

use crate::peer::{accept, client, closed, get, listen, public_only, read_request, text, write};

#[tokio::test]
async fn a_request_is_sent_as_given_and_the_body_comes_in_pieces() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        let request = read_request(&mut stream).await;
        // Every part of the response is torn apart.
        for piece in
            ["HTTP/1.1 20", "1 Created\r\nX-A: 1\r\nTransfer-Enc", "oding: chunked\r\n\r\n5\r", "\nhel"]
        {
            write(&mut stream, piece).await;
        }
        write(&mut stream, "lo\r\n1\r\n!\r\n0\r\n\r\n").await;
        request
    };
    let target = format!("{url}/a%20b?q=1#gone");
    let client = client();
    let asked = async {
        let headers = [("content-type", "text/plain"), ("x-two", "b")];
        let mut response = client.send(Method::POST, &target, &headers, "body".into()).await.unwrap();
        let mut all = Vec::new();
        while let Some(chunk) = response.chunk().await.unwrap() {
            all.extend_from_slice(&chunk);
        }
        (response.status, response.header("x-a").map(str::to_owned), String::from_utf8(all).unwrap())
    };
    let (request, response) = tokio::join!(server, asked);
    assert_eq!(response, (201, Some("1".to_owned()), "hello!".to_owned()));
    let host = url.strip_prefix("http://").unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "POST /a%20b?q=1 HTTP/1.1\r\ncontent-type: text/plain\r\nx-two: b\r\nhost: {host}\r\n\
         user-agent: caliban/{version}\r\naccept-encoding: identity\r\ncontent-length: 4\r\n\r\nbody"
    );
    assert_eq!(request, expected);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    for head in ["Content-Length: 10", "Transfer-Encoding: chunked"] {
        let (listener, url) = listen().await;
        let server = async {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            write(&mut stream, &format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n3\r\nabc\r\n")).await;
        };
        let client = client();
        let asked = async { text(get(&client, &url).await?).await };
        let ((), answered) = tokio::join!(server, asked);
        let error = answered.unwrap_err();
        assert!(matches!(error, HttpError::ClosedMidBody { .. }), "{error:?}");
        let host = url.strip_prefix("http://").unwrap();
        assert_eq!(error.to_string(), format!("{host} closed the connection in the middle of its answer"));
    }
}

#[tokio::test]
async fn a_body_without_length_ends_with_the_connection() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 200 OK\r\n\r\nall").await;
    };
    let client = client();
    let asked = async { text(get(&client, &url).await?).await };
    let ((), answered) = tokio::join!(server, asked);
    assert_eq!(answered.unwrap(), "all");
}

#[tokio::test]
async fn a_large_body_is_read_up_to_the_limit_and_then_left() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n0123456789").await;
        closed(&mut stream).await;
    };
    let client = client();
    let asked = async {
        let mut response = get(&client, &url).await.unwrap();
        response.bytes_up_to(4).await.unwrap()
    };
    let ((), body) = tokio::join!(server, asked);
    assert_eq!(body, Body { bytes: "0123".into(), truncated: true });
}

#[tokio::test]
async fn dropping_a_response_closes_the_connection() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
        closed(&mut stream).await;
    };
    let client = client();
    let asked = async { drop(get(&client, &url).await.unwrap()) };
    tokio::join!(server, asked);
}

#[tokio::test]
async fn what_fails_is_said_in_words() {
    let (listener, url) = listen().await;
    drop(listener);
    let host = url.strip_prefix("http://").unwrap();
    let client = client();
    let error = get(&client, &url).await.unwrap_err();
    assert!(matches!(error, HttpError::Refused { .. }), "{error:?}");
    assert_eq!(error.to_string(), format!("nothing answers at {host}: connection refused"));

    let words = [
        ("ftp://a", "ftp://a is not a usable URL: only http and https are known here"),
        ("nonsense", "nonsense is not a usable URL: relative URL without a base"),
        ("http://u:secret@[bad", "http://[bad is not a usable URL: invalid IPv6 address"),
    ];
    for (url, expected) in words {
        let error = get(&client, url).await.unwrap_err();
        assert_eq!((matches!(error, HttpError::BadUrl { .. }), error.to_string().as_str()), (true, expected));
    }

    let error = client.send(Method::GET, &url, &[("x-key", "a\nb")], "".into()).await.unwrap_err();
    assert_eq!(error.to_string(), "the header x-key holds characters that HTTP cannot carry");
}

#[tokio::test]
async fn a_connection_that_takes_too_long_is_given_up() {
    // Accepts, but never speaks TLS.
    let (listener, url) = listen().await;
    let limit = Duration::from_millis(50);
    let client = HttpClient::new(ClientOptions { connect_timeout: limit, ..ClientOptions::default() });
    let error = get(&client, &url.replace("http:", "https:")).await.unwrap_err();
    drop(listener);
    assert!(matches!(error, HttpError::Timeout { .. }), "{error:?}");
    let host = url.strip_prefix("http://").unwrap();
    assert_eq!(error.to_string(), format!("connecting to {host} took longer than 50 ms"));
}

#[tokio::test]
async fn private_addresses_are_refused_where_only_public_ones_are_allowed() {
    let (listener, url) = listen().await;
    let port = listener.local_addr().unwrap().port();
    let client = public_only();
    let hosts =
        ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "169.254.169.254"];
    for host in hosts {
        let error = get(&client, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(matches!(error, HttpError::AddressNotAllowed { .. }), "{host}: {error:?}");
    }
    let error = get(&client, &url).await.unwrap_err();
    assert_eq!(error.to_string(), "127.0.0.1 is at 127.0.0.1, which is not a public address");
}
