//! A server that records the length of requests and refuses them all.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};

/// The refusal: final for every client, so that none retries.
const REFUSAL: &str =
    r#"{"type":"error","error":{"type":"invalid_request_error","message":"only measured"}}"#;

/// Maximum size of a body that is read.
const MAX_BODY: u64 = 16 * 1024 * 1024;

/// A listening server. Its threads end with the program.
pub(super) struct Capture {
    /// Where it listens.
    pub(super) url: String,
    bodies: Arc<Mutex<Vec<usize>>>,
}

impl Capture {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let url = format!("http://{}", listener.local_addr().context("no address")?);
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&bodies);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || {
                    // A client that disconnects meanwhile is not recorded.
                    if let Ok(Some(length)) = answered(stream)
                        && let Ok(mut noted) = noted.lock()
                    {
                        noted.push(length);
                    }
                });
            }
        });
        Ok(Self { url, bodies })
    }

    /// The length of the first body since the last call. Later ones do not count: refused clients change what they
    /// send.
    pub(super) fn first(&self) -> Option<usize> {
        let mut bodies = self.bodies.lock().ok()?;
        bodies.drain(..).next()
    }
}

/// Reads a request and refuses it; returns the length of its body, if it has one.
fn answered(mut stream: TcpStream) -> std::io::Result<Option<usize>> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut body = Vec::new();
    reader.take(length.min(MAX_BODY)).read_to_end(&mut body)?;
    let size = REFUSAL.len();
    write!(
        stream,
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {size}\r\n\
         connection: close\r\n\r\n{REFUSAL}"
    )?;
    Ok((!body.is_empty()).then_some(body.len()))
}
