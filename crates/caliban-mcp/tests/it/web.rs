//! A small HTTP server: a thread for each connection, which is kept; answers by a function.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

use serde_json::Value;

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// An answer: status, headers and body; or the connection breaks, or nothing comes.
pub(crate) enum Reply {
    Answer(u16, Vec<(&'static str, String)>, String),
    Break,
    Hang,
    /// A stream of events that stays open: each text comes when the function has it.
    Events(std::sync::mpsc::Receiver<String>),
}

pub(crate) struct Web {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
}

impl Web {
    pub(crate) fn new(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (noted, answer) = (Arc::clone(&noted), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &noted, &*answer));
            }
        });
        Self { url, seen }
    }

    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Request>>, answer: &dyn Fn(&Request) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader) {
        seen.lock().unwrap().push(request.clone());
        match answer(&request) {
            Reply::Answer(status, headers, body) => {
                let headers: String =
                    headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
                // The client may have left.
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} X\r\n{headers}content-length: {}\r\n\r\n{body}",
                    body.len()
                );
            }
            Reply::Events(events) => {
                let head =
                    "HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
                let _ = stream.write_all(head.as_bytes());
                for event in events {
                    if write!(stream, "{:x}\r\n{event}\r\n", event.len()).is_err() {
                        return;
                    }
                }
                let _ = stream.write_all(b"0\r\n\r\n");
                return;
            }
            Reply::Break => return,
            Reply::Hang => {
                let _ = reader.read(&mut [0]);
                return;
            }
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = Vec::new();
    for line in reader.by_ref().lines().map_while(Result::ok) {
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let mut first = head.first()?.split(' ').map(str::to_owned);
    let (method, path) = (first.next()?, first.next()?);
    let headers: Vec<(String, String)> = head[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    Some(Request { method, path, headers, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}
