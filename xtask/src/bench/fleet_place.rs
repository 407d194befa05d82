//! A repo with a fleet of its own, for benchmarks: commands in it, requests on the daemon's socket, and a shutdown that
//! leaves no process.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::measure::Subject;
use super::{Bed, repo};

/// Maximum time to wait for an answer of the daemon.
const PATIENCE: Duration = Duration::from_secs(60);

/// The interval at which remaining processes are checked.
const PAUSE: Duration = Duration::from_millis(20);

/// The provider and model of the agents, as flags of a command and as fields of a request.
const PROVIDER: &str = "anthropic";
const MODEL: &str = "claude-sonnet-4-6";

/// How long an idle agent stays in memory: the shortest time that the settings allow.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// What an agent does after its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterTurn {
    End,
    Stay,
}

/// See the module documentation.
pub(super) struct BenchFleet {
    program: PathBuf,
    home: PathBuf,
    repo: PathBuf,
    url: String,
}

impl BenchFleet {
    /// A new home, and settings for a daemon that runs so many agents at once. They talk to the model at `url`.
    pub(super) fn new(bed: &Bed, name: &str, url: &str, max_running: usize) -> Result<Self> {
        let home = bed.dir(name)?;
        let config = home.join(".config/caliban");
        std::fs::create_dir_all(&config).context("cannot create the settings' directory")?;
        let settings = format!(
            "[fleet]\nmax_running = {max_running}\nisolation = \"none\"\nidle_minutes = {}\n",
            IDLE.as_secs() / 60
        );
        std::fs::write(config.join("settings.toml"), settings).context("cannot write settings")?;
        Ok(Self { program: bed.program("caliban"), home, repo: repo::small(bed)?, url: url.to_owned() })
    }

    /// The same fleet in another repo.
    pub(super) fn in_repo(mut self, repo: &Path) -> Self {
        repo.clone_into(&mut self.repo);
        self
    }

    /// Inserts settings before the existing ones.
    pub(super) fn set(&self, lines: &str) -> Result<()> {
        let file = self.home.join(".config/caliban/settings.toml");
        let known = std::fs::read_to_string(&file).context("cannot read settings")?;
        std::fs::write(&file, format!("{lines}{known}")).context("cannot write settings")
    }

    /// A command in the repo.
    pub(super) fn subject(&self, args: &[&str]) -> Subject {
        let mut subject = Subject::new(&self.program, &self.home).dir(&self.repo);
        for (name, value) in self.environment() {
            subject = subject.env(name, value);
        }
        subject.env("ANTHROPIC_API_KEY", "none").args(args)
    }

    /// The output of a command, which must succeed.
    pub(super) fn output(&self, args: &[&str]) -> Result<String> {
        let mut command = self.subject(args).command()?;
        crate::run::output(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// `caliban --bg`: the new agent's id, and when the command was started and had returned.
    pub(super) fn background(&self) -> Result<(String, Instant, Instant)> {
        let args = ["--provider", PROVIDER, "--model", MODEL, "--bg", "wait for the model"];
        let start = Instant::now();
        let id = self.output(&args)?;
        Ok((id.trim().to_owned(), start, Instant::now()))
    }

    /// The daemon, started if none runs.
    pub(super) fn daemon(&self) -> Result<Daemon> {
        self.output(&["agents", "list"])?;
        let status: Value = serde_json::from_str(&self.output(&["daemon", "status", "--json"])?)
            .context("the daemon's status is not JSON")?;
        let socket = status["socket"].as_str().context("the status names no socket")?;
        Ok(Daemon { socket: socket.into(), pid: status["pid"].as_u64().context("the status names no pid")? })
    }

    /// The body of a request for an agent, as `--bg` would send it.
    pub(super) fn spawn_request(&self, after_turn: AfterTurn) -> String {
        let after_turn = match after_turn {
            AfterTurn::End => "end",
            AfterTurn::Stay => "stay",
        };
        let mut environment: Vec<(&str, String)> = self.environment();
        environment.push(("HOME", self.home.display().to_string()));
        environment.push(("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()));
        let environment: serde_json::Map<String, Value> =
            environment.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        json!({
            "spec": {
                "version": 1, "prompt": "wait for the model", "provider": PROVIDER, "model": MODEL,
                "isolation": {"kind": "none"}, "cwd": self.repo, "env": environment, "after_turn": after_turn,
            },
            "secrets": {"ANTHROPIC_API_KEY": "none"},
            "program": self.program,
        })
        .to_string()
    }

    /// Ends all agents and the daemon, and checks that no process is left.
    pub(super) fn end(self) -> Result<()> {
        self.ended()?;
        let start = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() {
                return Ok(());
            }
            ensure!(start.elapsed() < PATIENCE, "processes of {} are left: {left:?}", self.home.display());
            std::thread::sleep(PAUSE);
        }
    }

    fn ended(&self) -> Result<()> {
        self.daemon()?.kill_all()?;
        self.output(&["daemon", "stop"])?;
        Ok(())
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let runtime = self.home.join("rt").display().to_string();
        vec![("CALIBAN_DAEMON_RUNTIME_DIR", runtime), ("ANTHROPIC_BASE_URL", self.url.clone())]
    }

    /// Processes that have a path of this home in their arguments: daemon, shims and workers.
    pub(super) fn processes(&self) -> Vec<u32> {
        let home = self.home.to_string_lossy();
        let ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(home.as_ref())
        };
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(ours).collect()
    }
}

impl Drop for BenchFleet {
    fn drop(&mut self) {
        // After an error there may still be processes. Best effort: the error matters more.
        if !self.processes().is_empty() {
            let _ = self.ended();
        }
    }
}

/// A running daemon.
pub(super) struct Daemon {
    pub(super) socket: PathBuf,
    pub(super) pid: u64,
}

impl Daemon {
    /// Sends one request on a connection of its own; the answer must be a success.
    pub(super) fn ask(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let answer = asked(&self.socket, method, path, body).with_context(|| format!("{method} {path}"))?;
        serde_json::from_str(&answer).with_context(|| format!("{method} {path}: '{answer}' is not JSON"))
    }

    /// Starts an agent and returns its id.
    pub(super) fn spawn(&self, request: &str) -> Result<String> {
        let answer = self.ask("POST", "/v1/agents", request)?;
        answer["id"].as_str().map(str::to_owned).context("a new agent has no id")
    }

    /// All agents.
    pub(super) fn rows(&self) -> Result<Vec<Value>> {
        let answer = self.ask("GET", "/v1/agents", "")?;
        answer["agents"].as_array().cloned().context("a list has no agents")
    }

    /// Ends an agent and removes it.
    pub(super) fn remove(&self, id: &str) -> Result<()> {
        self.ask("DELETE", &format!("/v1/agents/{id}?force=true&keep=false"), "").map(drop)
    }

    /// Ends all agents that run or are queued; returns when their processes are gone.
    pub(super) fn kill_all(&self) -> Result<()> {
        // The last first, so that no queued agent gets a free slot.
        for row in self.rows()?.iter().rev().filter(|row| row["hibernated"] != true) {
            let id = row["id"].as_str().context("an agent has no id")?;
            self.ask("POST", &format!("/v1/agents/{id}/kill"), "{}")?;
        }
        Ok(())
    }
}

fn asked(socket: &Path, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("nobody listens at {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE)).context("no time limit can be set")?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: caliband\r\ncaliban-protocol: 1\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).context("cannot ask")?;
    let (mut answer, mut chunk) = (Vec::new(), [0; 16 * 1024]);
    loop {
        if let Some(body) = whole(&answer)? {
            return Ok(body);
        }
        match stream.read(&mut chunk).context("no answer")? {
            0 => bail!("the answer ends too early: {}", String::from_utf8_lossy(&answer)),
            n => answer.extend_from_slice(&chunk[..n]),
        }
    }
}

/// The body of a complete answer; an error if it is a refusal.
fn whole(answer: &[u8]) -> Result<Option<String>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = String::from_utf8_lossy(&answer[..end]);
    let length: usize = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .context("the answer does not say how long it is")?;
    let Some(body) = answer.get(end + 4..end + 4 + length) else { return Ok(None) };
    let body = String::from_utf8_lossy(body).into_owned();
    let good = head.split(' ').nth(1).is_some_and(|code| code.starts_with('2'));
    ensure!(good, "refused: {body}");
    Ok(Some(body))
}
