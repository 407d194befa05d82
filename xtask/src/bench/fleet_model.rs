//! A model that never answers: it records when each request arrived, and lets the agent wait.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};

/// Maximum time to wait for a request.
const PATIENCE: Duration = Duration::from_secs(60);

/// A listening server. Its threads end with their clients, or with the program.
pub(super) struct SilentModel {
    /// Where it listens.
    pub(super) url: String,
    noted: Arc<Noted>,
}

#[derive(Default)]
struct Noted {
    at: Mutex<Vec<Instant>>,
    more: Condvar,
}

impl SilentModel {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
        let url = format!("http://{}", listener.local_addr().context("no address")?);
        let noted = Arc::new(Noted::default());
        let model = Self { url, noted: Arc::clone(&noted) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || {
                    // A client that disconnects meanwhile is not recorded.
                    let _ = hold(stream, &noted);
                });
            }
        });
        Ok(model)
    }

    /// The number of requests so far.
    pub(super) fn count(&self) -> Result<usize> {
        let at = self.noted.at.lock().map_err(|_| anyhow!("a thread of the model panicked"))?;
        Ok(at.len())
    }

    /// Waits for the first request after `before` others; returns when it arrived.
    pub(super) fn request_after(&self, before: usize) -> Result<Instant> {
        let poisoned = |_| anyhow!("a thread of the model panicked");
        let at = self.noted.at.lock().map_err(poisoned)?;
        let (at, waited) = self
            .noted
            .more
            .wait_timeout_while(at, PATIENCE, |at| at.len() <= before)
            .map_err(|_| anyhow!("a thread of the model panicked"))?;
        ensure!(!waited.timed_out(), "no agent asked the model within {PATIENCE:?}");
        at.get(before).copied().context("a request was forgotten")
    }
}

/// Reads one request with its body, records it, and waits until the client disconnects.
fn hold(stream: TcpStream, noted: &Noted) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0_u64, String::new());
    while reader.read_line(&mut line)? > 2 {
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink())?;
    if length > 0
        && let Ok(mut at) = noted.at.lock()
    {
        at.push(Instant::now());
        noted.more.notify_all();
    }
    std::io::copy(&mut reader, &mut std::io::sink())?;
    Ok(())
}
