//! Durable messages over HTTP: many clients post to `cafleet server` at once, which stores concurrent messages in one
//! transaction. The reference is bare SQLite, which commits as many rows at once.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::broker::Broker;
use super::table::{Table, times};
use super::{Bed, Bench};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "broker-http",
    what: "32 clients post messages to cafleet server, each answered when it is on the disk; × is to bare SQLite with as many rows to a commit",
    run,
};

/// Number of concurrent clients, each with one connection and one message in flight.
const CLIENTS: usize = 32;
/// How long they send.
const TIME: Duration = Duration::from_secs(4);
/// The target, in messages per second.
const AIM: f64 = 10_000.0;

fn run(bed: &Bed) -> Result<Table> {
    let dir = bed.dir("broker-http")?;
    let broker = Broker::create(bed, &dir.join("registry.db"))?;
    let (from, to) = (broker.register("from")?, broker.register("to")?);
    let server = BrokerServer::start(&broker)?;
    let started = Instant::now();
    let threads: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let (address, token) = (server.address.clone(), server.token.clone());
            let (session, from, to) = (broker.session.clone(), from.clone(), to.clone());
            std::thread::spawn(move || client(&address, &token, &session, &from, &to))
        })
        .collect();
    let mut sent = 0_u64;
    for thread in threads {
        sent += thread.join().map_err(|_| anyhow::anyhow!("a client broke"))??;
    }
    let seconds = started.elapsed().as_secs_f64();
    drop(server);
    let newest = broker.json(&["message", "poll", "--agent-id", &to, "--page-size", "1", "--full"])?;
    ensure!(newest[0]["text"].is_string(), "the messages are not there: {newest}");
    let bare = run::output(
        Command::new(bed.example("commit")?)
            .args([dir.join("bare.db").to_string_lossy().as_ref(), "--rows", &CLIENTS.to_string()])
            .stdin(Stdio::null()),
    )?;
    let bare: f64 = bare.trim().parse().with_context(|| format!("'{bare}' is no number"))?;
    let rate = sent as f64 / seconds;
    let mut table = Table::new(&["a second", "×"]);
    table.row("bare SQLite, 32 rows to a commit", [format!("{bare:.0}"), String::new()]);
    table.row(
        format!("{CLIENTS} clients of cafleet server"),
        [format!("{rate:.0}"), times(rate / bare.max(1.0))],
    );
    table.remark(format!("{sent} messages were acknowledged in {seconds:.1} s"));
    table.promise("acknowledged messages, of the aim", AIM / rate.max(1.0), 1.0, "×");
    Ok(table)
}

/// A server of this database.
pub(super) struct BrokerServer {
    child: Child,
    pub(super) address: String,
    pub(super) token: String,
}

impl BrokerServer {
    pub(super) fn start(broker: &Broker) -> Result<Self> {
        let mut child =
            broker.command(&["--json", "server", "--port", "0"])?.stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line)?;
        let ready: Value =
            serde_json::from_str(&line).with_context(|| format!("the server said '{line}'"))?;
        let file = ready["token_file"].as_str().context("no token file")?;
        let token = std::fs::read_to_string(file)?.trim().to_owned();
        let port =
            ready["origin"].as_str().and_then(|origin| origin.rsplit(':').next()).context("no port")?;
        Ok(Self { child, address: format!("127.0.0.1:{port}"), token })
    }
}

impl BrokerServer {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BrokerServer {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Posts messages one after the other for a while; returns how many were acknowledged.
fn client(address: &str, token: &str, session: &str, from: &str, to: &str) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let body = json!({"from_agent_id": from, "to_agent_id": to, "text": "x".repeat(200)}).to_string();
    let request = format!(
        "POST /ui/api/messages/send HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nX-Session-Id: {session}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (mut sent, until) = (0, Instant::now() + TIME);
    let mut buffer = vec![0; 8192];
    while Instant::now() < until {
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        loop {
            let read = stream.read(&mut buffer)?;
            ensure!(read > 0, "the server hung up");
            answer.extend_from_slice(buffer.get(..read).unwrap_or_default());
            if answer.ends_with(b"}") {
                break;
            }
        }
        ensure!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
        sent += 1;
    }
    Ok(sent)
}
