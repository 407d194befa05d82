//! WebFetch against a server played by hand.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    time::Duration,
};

use caliban_core::access::Access;
use caliban_core::address::AddressPolicy;
use caliban_tools::{SearchService, ToolOutput};
use serde_json::json;

use crate::bench::Bench;

/// Serves what `answer` makes of each path, one connection after the other; gives the base URL.
fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(first)) = lines.next() else { continue };
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
            // The client may have gone away.
            let _ = stream.write_all(&answer(&path));
        }
    });
    base
}

fn answer(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head =
        format!("HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn open_bench() -> Bench {
    Bench::with(|options| options.private_addresses = AddressPolicy::Any)
}

async fn fetch(bench: &Bench, url: &str) -> ToolOutput {
    bench.call("WebFetch", json!({"url": url})).await
}

#[test]
fn the_host_is_judged_without_port_case_or_brackets() {
    let bench = Bench::new();
    let access = |url: &str| bench.access("WebFetch", json!({"url": url}));
    let fetch = |url: &str, host: &str| Ok(vec![Access::Fetch { url: url.into(), host: host.into() }]);
    assert_eq!(access("https://Example.org:8443/A"), fetch("https://example.org:8443/A", "example.org"));
    assert_eq!(access("http://[::1]/"), fetch("http://[::1]/", "::1"));
    assert_eq!(access("http://example.org./"), fetch("http://example.org./", "example.org"));
    assert_eq!(
        access("ftp://example.org"),
        Err("WebFetch: only http and https can be fetched, not ftp".into())
    );
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let base = serve(|_| answer("200 OK", "content-type: text/plain\r\n", "inside"));
    let output = fetch(&Bench::new(), &base).await;
    assert!(output.is_error);
    assert_eq!(output.joined_text(), "WebFetch: 127.0.0.1 is at 127.0.0.1, which is not a public address");
    assert_eq!(fetch(&open_bench(), &base).await, ToolOutput::text("inside", "127.0.0.1: 6 bytes"));
}

#[tokio::test]
async fn pages_become_markdown_and_text_stays() {
    let base = serve(|path| match path {
        "/html" => answer(
            "200 OK",
            "content-type: text/html; charset=utf-8\r\n",
            "<html><body><h1>Títle</h1><p>Some <b>text</b>.</p></body></html>",
        ),
        "/latin" => answer("200 OK", "content-type: text/plain; charset=ISO-8859-1\r\n", b"caf\xe9"),
        "/json" => answer("200 OK", "content-type: application/json\r\n", "{\"a\": \"<b>\"}"),
        "/untyped" => answer("200 OK", "", "just text"),
        "/pdf" => answer("200 OK", "content-type: application/pdf\r\n", "%PDF"),
        "/gzip" => answer("200 OK", "content-type: text/plain\r\ncontent-encoding: gzip\r\n", "xx"),
        "/empty" => answer("200 OK", "content-type: text/html\r\n", ""),
        _ => answer("404 Not Found", "content-type: text/html\r\n", "<html><h1>No such page</h1></html>"),
    });
    let bench = open_bench();
    let text = async |path: &str| fetch(&bench, &format!("{base}{path}")).await.joined_text();
    assert_eq!(text("/html").await, "# Títle\n\nSome **text**.");
    assert_eq!(text("/latin").await, "café");
    assert_eq!(text("/json").await, "{\"a\": \"<b>\"}");
    assert_eq!(text("/untyped").await, "just text");
    assert_eq!(
        text("/pdf").await,
        format!(
            "{base}/pdf is application/pdf: only text can be fetched here; use Bash (curl) to download it"
        )
    );
    assert_eq!(
        text("/gzip").await,
        format!("{base}/gzip answered compressed (gzip) although that was not asked for")
    );
    assert_eq!(text("/empty").await, "[the page has no text]");
    assert_eq!(text("/nope").await, format!("{base}/nope answered with status 404\nNo such page"));
    assert!(fetch(&bench, &format!("{base}/nope")).await.is_error);
}

#[tokio::test]
async fn redirects_are_followed_on_the_same_host_only() {
    let base = serve(|path| match path {
        "/a" => answer("302 Found", "location: b\r\n", ""),
        "/b" => answer("200 OK", "content-type: text/plain\r\n", "here"),
        "/loop" => answer("302 Found", "location: /loop\r\n", ""),
        "/file" => answer("302 Found", "location: file:///etc/passwd\r\n", ""),
        "/away" => answer("301 Moved", "location: https://example.org/x\r\n", ""),
        _ => answer("301 Moved", "", ""),
    });
    let bench = open_bench();
    let text = async |path: &str| fetch(&bench, &format!("{base}{path}")).await.joined_text();
    assert_eq!(text("/a").await, "here");
    assert_eq!(text("/loop").await, format!("WebFetch: more than 5 redirects, the last to {base}/loop"));
    assert_eq!(
        text("/away").await,
        format!("{base}/away redirects to https://example.org/x: if that is what you want, fetch it")
    );
    assert_eq!(
        text("/file").await,
        format!("{base}/file redirects to file:///etc/passwd: if that is what you want, fetch it")
    );
    assert_eq!(text("/nowhere").await, format!("{base}/nowhere redirects, but does not say where to"));
}

#[tokio::test]
async fn a14_large_pages_and_silent_servers_are_bounded() {
    let base = serve(|path| match path {
        "/large" => answer("200 OK", "content-type: text/plain\r\n", "x".repeat(6 << 20)),
        _ => Vec::new(),
    });
    let bench = open_bench();
    let output = fetch(&bench, &format!("{base}/large")).await;
    let text = output.joined_text();
    assert_eq!(fs::metadata(output.whole.unwrap()).unwrap().len(), 5 << 20);
    assert!(text.contains("[only the first 5.0 MB of the page]"));
    assert!(text.chars().count() < 31_000);

    // Accepts and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let impatient = Bench::with(|options| {
        options.private_addresses = AddressPolicy::Any;
        options.limits.fetch_time = Duration::from_millis(50);
    });
    assert_eq!(fetch(&impatient, &url).await, ToolOutput::error("127.0.0.1 did not answer within 0.05 s"));
    let patient = open_bench();
    let call = fetch(&patient, &url);
    let cancel = async {
        let _held = silent.accept().await.unwrap();
        patient.cancel.cancel();
    };
    let (output, ()) = tokio::join!(call, cancel);
    assert_eq!(output, ToolOutput::error("interrupted before it was done"));
}

#[tokio::test]
async fn a_search_asks_the_service_that_the_user_named_and_shows_its_results() {
    let base = serve(|path| {
        assert_eq!(path, "/find?q=rust+%22pty%22+%26+more");
        let body =
            json!({"results": [{"title": "A pty", "url": "https://a.example", "content": "how\n to"}]});
        answer("200 OK", "content-type: application/json\r\n", body.to_string())
    });
    // The service may be on this machine although pages there may not be fetched.
    let bench = Bench::with(|options| {
        let headers = vec![("x-key".to_owned(), "secret".to_owned())];
        options.search = Some(SearchService { url: format!("{base}/find?q={{query}}"), headers });
    });
    let query = json!({"query": "rust \"pty\" & more"});
    assert_eq!(bench.ok("WebSearch", query.clone()).await, "A pty\nhttps://a.example\nhow to");
    let access = bench.access("WebSearch", query).unwrap();
    assert!(matches!(&access[..], [Access::Fetch { host, .. }] if host == "127.0.0.1"), "{access:?}");
    assert_eq!(bench.err("WebSearch", json!({"query": " "})).await, "WebSearch: the query is empty");
    assert!(Bench::new().tools().iter().all(|tool| tool.spec().name != "WebSearch"));
}
