//! The dashboard's server: the time until a page's first byte, the time until ten tabs learn of a change, and its
//! memory; then the page itself in a browser (`pages_browser.rs`).

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::broker::Broker;
use super::broker_http::BrokerServer;
use super::measure::median;
use super::table::{Table, ms, times};
use super::{Bed, Bench};

pub(super) const BENCH: Bench = Bench {
    name: "pages",
    what: "the dashboard's server with 10 tabs, one of which reads nothing; × is to an answer without any work (/healthz); then in Chromium with 500 agents and 50,000 events",
    run,
};

/// Number of tabs that listen; one more reads nothing.
const TABS: usize = 9;
/// The limit of the server's memory, in megabytes.
const AT_MOST_MB: f64 = 40.0;

fn run(bed: &Bed) -> Result<Table> {
    let broker = Broker::create(bed, &bed.dir("pages")?.join("registry.db"))?;
    let to = broker.register("to")?;
    let server = BrokerServer::start(&broker)?;
    let first = |path: &str| -> Result<f64> {
        let mut samples = Vec::new();
        for _ in 0..bed.runs {
            let started = Instant::now();
            let mut stream = server.get(path)?;
            stream.read_exact(&mut [0])?;
            samples.push(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(samples))
    };
    let (bare, page, fleet) = (first("/healthz")?, first("/")?, first("/api/v1/fleet")?);
    let _stalled = server.get("/api/v1/events")?;
    let mut tabs = Vec::new();
    for _ in 0..TABS {
        let mut tab = BufReader::new(server.get("/api/v1/events")?);
        next(&mut tab, "snapshot")?;
        tabs.push(tab);
    }
    let body = json!({"to": to, "text": "hello"}).to_string();
    let path = format!("/api/v1/broker/sessions/{}/send", broker.session);
    let mut samples = Vec::new();
    for _ in 0..bed.runs {
        let started = Instant::now();
        let mut answer = String::new();
        server.post(&path, &body)?.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for tab in &mut tabs {
            next(tab, "message")?;
        }
        samples.push(started.elapsed().as_secs_f64() * 1e6);
    }
    let update = median(samples);
    let memory = memory_mb(server.pid())?;
    let mut table = Table::new(&["first byte", "×"]);
    table.row("/healthz", [ms(bare), String::new()]);
    for (label, us) in [("the page", page), ("the fleet", fleet), ("a message, in all tabs", update)] {
        table.row(label, [ms(us), times(us / bare.max(1.0))]);
    }
    table.promise("memory of the server", memory, AT_MOST_MB, " MB");
    drop(server);
    super::pages_browser::measure(bed, &mut table)?;
    Ok(table)
}

/// Reads until an event of this name.
fn next(tab: &mut BufReader<TcpStream>, name: &str) -> Result<()> {
    let wanted = format!("event: {name}");
    let mut line = String::new();
    loop {
        line.clear();
        ensure!(tab.read_line(&mut line)? > 0, "the stream has ended");
        if line.trim_end() == wanted {
            return Ok(());
        }
    }
}

pub(super) fn memory_mb(pid: u32) -> Result<f64> {
    status_mb(pid, "VmRSS:")
}

/// Memory without file pages, such as those of its program, which other processes may share.
pub(super) fn own_memory_mb(pid: u32) -> Result<f64> {
    status_mb(pid, "RssAnon:")
}

fn status_mb(pid: u32, field: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let line = line.with_context(|| format!("no {field}"))?;
    let kb: f64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kb / 1024.0)
}

impl BrokerServer {
    fn get(&self, path: &str) -> Result<TcpStream> {
        self.ask(&format!("GET {path} HTTP/1.1\r\n"), "")
    }

    fn post(&self, path: &str, body: &str) -> Result<TcpStream> {
        self.ask(
            &format!("POST {path} HTTP/1.1\r\nContent-Type: application/json\r\nConnection: close\r\n"),
            body,
        )
    }

    fn ask(&self, head: &str, body: &str) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (address, token) = (&self.address, &self.token);
        let rest = format!(
            "Host: {address}\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(format!("{head}{rest}").as_bytes())?;
        Ok(stream)
    }
}
