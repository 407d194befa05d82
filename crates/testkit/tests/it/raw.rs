//! A raw HTTP/1.1 client: what is on the wire, nothing interpreted but chunks.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};
use testkit::{ModelServer, Protocol};

/// An answer and whether its body came to its end.
#[derive(Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) complete: bool,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

/// The path that asks a protocol's model for a stream.
pub(crate) fn path(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Anthropic => "/v1/messages",
        Protocol::Responses => "/v1/responses",
        Protocol::Chat | Protocol::Ollama => "/v1/chat/completions",
        Protocol::Gemini => "/v1beta/models/m:streamGenerateContent?alt=sse",
    }
}

/// A small streaming request of a protocol.
pub(crate) fn request(protocol: Protocol, prompt: &str) -> Value {
    match protocol {
        Protocol::Anthropic => json!({"model": "m", "max_tokens": 9, "stream": true,
            "messages": [{"role": "user", "content": prompt}]}),
        Protocol::Responses => json!({"model": "m", "stream": true, "input": prompt}),
        Protocol::Chat | Protocol::Ollama => {
            json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": prompt}]})
        }
        Protocol::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": prompt}]}]}),
    }
}

/// Sends the small request and reads the answer.
pub(crate) fn prompt(server: &ModelServer, protocol: Protocol, prompt: &str) -> Answer {
    post(server, path(protocol), &request(protocol, prompt))
}

/// Posts a body with the headers that every protocol accepts.
pub(crate) fn post(server: &ModelServer, path: &str, body: &Value) -> Answer {
    post_with(server, path, "test-key", body)
}

pub(crate) fn post_with(server: &ModelServer, path: &str, key: &str, body: &Value) -> Answer {
    read(send(server, path, key, body)).expect("the server answers")
}

/// Posts, and leaves the reading to the caller.
pub(crate) fn send(server: &ModelServer, path: &str, key: &str, body: &Value) -> TcpStream {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nanthropic-version: 2023-06-01\r\nx-api-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    socket.write_all((head + &body).as_bytes()).unwrap();
    socket
}

pub(crate) fn get(server: &ModelServer, path: &str, header: &str) -> Answer {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}connection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).unwrap();
    read(socket).expect("the server answers")
}

/// Reads to the end of the connection; `None` if it ends before any answer.
pub(crate) fn read(mut socket: TcpStream) -> Option<Answer> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    drop(socket.shutdown(Shutdown::Both));
    if bytes.is_empty() {
        return None;
    }
    let split = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = std::str::from_utf8(&bytes[..split]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let rest = &bytes[split + 4..];
    let chunked = headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let (body, complete) = if chunked {
        unchunked(rest)
    } else {
        let length =
            headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse::<usize>().unwrap();
        (rest.to_vec(), rest.len() == length)
    };
    Some(Answer { status, headers, body: String::from_utf8(body).unwrap(), complete })
}

/// The data of the chunks that are there, and whether the last one is.
fn unchunked(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut data = Vec::new();
    while let Some(line) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return (data, true);
        }
        data.extend_from_slice(&bytes[line + 2..line + 2 + size]);
        bytes = &bytes[line + 4 + size..];
    }
    (data, false)
}
