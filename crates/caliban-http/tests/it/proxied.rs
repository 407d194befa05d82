//! Requests through a proxy.

use caliban_http::{AddressPolicy, ClientOptions, HttpClient, HttpError, ProxySettings};

use crate::{
    peer::{accept, get, listen, read_request, text, write},
    secure::{ROOT, answer_securely},
};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn through(proxy: &str) -> HttpClient {
    let proxy = proxy.replace("http://", "http://user:pass@");
    let proxy = ProxySettings { https: Some(proxy.clone()), http: Some(proxy), no_proxy: None };
    HttpClient::new(ClientOptions { proxy, extra_roots_pem: Some(ROOT.to_vec()), ..ClientOptions::default() })
}

#[tokio::test]
async fn http_is_asked_of_the_proxy_with_the_whole_url() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        let request = read_request(&mut stream).await;
        write(&mut stream, OK).await;
        request
    };
    let client = through(&url);
    let asked = async { text(get(&client, "http://far.example/x?y").await.unwrap()).await.unwrap() };
    let (request, answered) = tokio::join!(server, asked);
    assert_eq!(answered, "ok");
    assert!(request.starts_with("GET http://far.example/x?y HTTP/1.1\r\nhost: far.example\r\n"), "{request}");
    assert!(request.contains("proxy-authorization: Basic dXNlcjpwYXNz\r\n"), "{request}");
}

#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let (listener, url) = listen().await;
    let server = async {
        let mut stream = accept(&listener).await;
        let asked = read_request(&mut stream).await;
        write(&mut stream, "HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n").await;
        let inner = answer_securely(stream, OK).await;
        (asked, inner)
    };
    let client = through(&url);
    let asked = async { text(get(&client, "https://far.example/x").await.unwrap()).await.unwrap() };
    let ((outer, inner), answered) = tokio::join!(server, asked);
    assert_eq!(answered, "ok");
    let expected = "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\
                    Proxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n";
    assert_eq!(outer, expected);
    assert!(inner.starts_with("GET /x HTTP/1.1\r\nhost: far.example\r\n"), "{inner}");
    assert!(!inner.contains("proxy-authorization"), "the login is for the proxy alone: {inner}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_with_its_reason() {
    let cases = [
        ("HTTP/1.1 407 Auth\r\n\r\n", "it wants a login (http://user:password@host:port)"),
        ("HTTP/1.1 403 Not here\r\n\r\n", "HTTP/1.1 403 Not here"),
        ("HTTP/1.1 200", "it closed the connection"),
    ];
    for (answer, reason) in cases {
        let (listener, url) = listen().await;
        let server = async {
            let mut stream = accept(&listener).await;
            read_request(&mut stream).await;
            write(&mut stream, answer).await;
        };
        let client = through(&url);
        let ((), answered) = tokio::join!(server, get(&client, "https://far.example/"));
        let host = url.strip_prefix("http://").unwrap();
        assert_eq!(answered.unwrap_err().to_string(), format!("the proxy {host} refused: {reason}"));
    }
}

#[tokio::test]
async fn a_proxy_does_not_get_around_the_address_policy() {
    let (_listener, url) = listen().await;
    let proxy = ProxySettings { https: Some(url.clone()), http: Some(url), no_proxy: None };
    let options =
        ClientOptions { proxy, address_policy: AddressPolicy::PublicOnly, ..ClientOptions::default() };
    let client = HttpClient::new(options);
    for target in ["http://10.0.0.1/", "https://192.168.1.1/", "http://localhost/", "http://[fd00::1]/"] {
        let error = get(&client, target).await.unwrap_err();
        assert!(matches!(error, HttpError::AddressNotAllowed { .. }), "{target}: {error:?}");
    }
}
