//! What the gateway adds to a model request: the same request directly to the model server and through `caliban
//! gateway`, alternating, each on a kept-alive connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::server::BenchServer;
use super::table::{Table, ms, times};
use super::{Bed, Bench, measure};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "gateway",
    what: "a streamed answer to a request of 48 KB through caliban gateway, reserved and settled; × is to the request without it",
    run,
};

/// The limit of the added time, in milliseconds.
const AT_MOST_MS: f64 = 1.0;
/// Length of the prompt: that of claude's first request.
const PROMPT: usize = 48_000;
/// Number of requests before the measurement, to set up connections and the account.
const WARM_UP: usize = 5;

fn run(bed: &Bed) -> Result<Table> {
    let server =
        BenchServer::start(bed, &json!({"steps": [{"repeat": true, "text": "Hello you.", "chunks": 8}]}))?;
    let gateway = Gateway::start(bed, &server.url)?;
    let direct = server.url.strip_prefix("http://").context("the server has no address")?;
    let mut straight = GatewayClient::new(direct, "none")?;
    let mut through = GatewayClient::new(&gateway.address, &gateway.token)?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + bed.runs * 10 {
        let (one, other) = (straight.ask()?, through.ask()?);
        if round >= WARM_UP {
            without.push(one);
            with.push(other);
        }
    }
    let (without, with) = (measure::median(without), measure::median(with));
    let mut table = Table::new(&["wall"]);
    table.row("straight to the model server", [ms(without)]);
    table.row("through the gateway", [format!("{} {:>6}", ms(with), times(with / without.max(1.0)))]);
    table.promise("what the gateway adds", (with - without) / 1000.0, AT_MOST_MS, " ms");
    Ok(table)
}

/// A running gateway, killed when this is dropped.
struct Gateway {
    child: Child,
    address: String,
    token: String,
}

impl Gateway {
    fn start(bed: &Bed, url: &str) -> Result<Self> {
        let home = bed.dir("gateway-home")?;
        let caliban = |args: &[&str]| {
            let mut command = Command::new(bed.program("caliban"));
            command.args(args).current_dir(&home).env_clear().env("HOME", &home).stdin(Stdio::null());
            command.env("ANTHROPIC_BASE_URL", url).env("ANTHROPIC_API_KEY", "none");
            command
        };
        let made = run::output(&mut caliban(&["gateway", "token", "create", "--label", "bench", "--json"]))?;
        let made: Value = serde_json::from_str(&made).context("no token")?;
        let token = made["token"].as_str().context("no token")?.to_owned();
        let mut child = caliban(&["gateway", "--port", "0", "--json"]).stdout(Stdio::piped()).spawn()?;
        let out = child.stdout.take().context("the gateway has no output")?;
        let mut gateway = Self { child, address: String::new(), token };
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).context("the gateway says nothing")?;
        let ready: Value = serde_json::from_str(&line).context("the gateway did not start")?;
        gateway.address = ready["address"].as_str().context("the gateway has no address")?.to_owned();
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // Best effort: it may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client with one connection.
struct GatewayClient {
    stream: TcpStream,
    request: Vec<u8>,
}

impl GatewayClient {
    fn new(address: &str, key: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("nobody answers at {address}"))?;
        stream.set_nodelay(true)?;
        let body = json!({"model": "claude-sonnet-4-6", "max_tokens": 1000, "stream": true,
            "messages": [{"role": "user", "content": "x".repeat(PROMPT)}]})
        .to_string();
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        Ok(Self { stream, request: request.into_bytes() })
    }

    /// Sends one request; returns the time until the end of the answer, in microseconds.
    fn ask(&mut self) -> Result<f64> {
        let start = Instant::now();
        self.stream.write_all(&self.request)?;
        let (mut all, mut piece) = (Vec::new(), [0; 16 * 1024]);
        while !all.ends_with(b"0\r\n\r\n") {
            let read = self.stream.read(&mut piece)?;
            ensure!(read > 0, "cut: {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&piece[..read]);
        }
        ensure!(all.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&all));
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}
