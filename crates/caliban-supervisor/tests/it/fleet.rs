//! A fleet of one's own for a test: temporary directories, the real daemon, the fake worker.

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use caliban_contract::records::{self, ShimRecord};
use caliban_contract::{DaemonOptions, PlaceSources, Places, Sweep};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::spec::SpawnSpec;
use caliban_fleet::protocol::{AgentRow, KillRequest, SpawnRequest};
use caliban_fleet::{Client, ClientError, StartOptions};
use rustix::process::{Pid, Signal};

/// How long a condition may take on a loaded machine before it counts as never.
const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Fleet {
    pub(crate) temp: tempfile::TempDir,
    pub(crate) places: Places,
    pub(crate) start: StartOptions,
}

impl Fleet {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut DaemonOptions)) -> Self {
        let temp = tempfile::Builder::new().prefix("fl").tempdir_in("/tmp").unwrap();
        let root = temp.path().to_owned();
        fs::create_dir(root.join("repo")).unwrap();
        let sources = PlaceSources {
            daemon_runtime_dir: Some(root.join("rt")),
            data: root.join("data"),
            ..PlaceSources::default()
        };
        let places = Places::find(&root.join("repo"), &sources).unwrap();
        let mut options =
            DaemonOptions { grace_ms: 300, sweep: Sweep::Off, max_running: 200, ..DaemonOptions::default() };
        change(&mut options);
        let start = StartOptions {
            programs: vec![(caliband(), Vec::new())],
            environment: [
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("HOME".into(), root.clone().into()),
            ]
            .into(),
            options,
        };
        Self { temp, places, start }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect_or_start(&self.places, self.start.clone()).await.unwrap()
    }

    pub(crate) fn spec(&self, plan: &str) -> SpawnSpec {
        let mut spec = SpawnSpec::new(format!("do {plan}\nand more"), self.places.repo());
        spec.env = BTreeMap::from([
            ("FAKE".to_owned(), plan.to_owned()),
            ("PATH".to_owned(), "/usr/local/bin:/usr/bin:/bin".to_owned()),
        ]);
        spec
    }

    pub(crate) fn request(&self, plan: &str) -> SpawnRequest {
        SpawnRequest {
            spec: self.spec(plan),
            secrets: caliban_fleet::protocol::HandedSecrets::default(),
            program: Some(fake_worker()),
            key: None,
        }
    }

    pub(crate) async fn spawn(&self, client: &mut Client, plan: &str) -> AgentId {
        match client.spawn(self.request(plan)).await {
            Ok(spawned) => spawned.id,
            Err(error) => panic!("{error}\n{}", self.log()),
        }
    }

    /// Spawns, and waits until its worker has said something.
    pub(crate) async fn spawn_up(&self, client: &mut Client, plan: &str) -> AgentId {
        let id = self.spawn(client, plan).await;
        self.until_row(client, id, |row| row.pid.is_some() && row.turns > 0).await;
        id
    }

    pub(crate) async fn until_row(
        &self,
        client: &mut Client,
        id: AgentId,
        fits: impl Fn(&AgentRow) -> bool,
    ) -> AgentRow {
        let started = Instant::now();
        loop {
            let row = client.show(&id.to_string()).await.unwrap();
            if fits(&row) {
                return row;
            }
            assert!(started.elapsed() < PATIENCE, "never came true: {row:#?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until_state(&self, client: &mut Client, id: AgentId, state: State) -> AgentRow {
        self.until_row(client, id, |row| row.state == state).await
    }

    /// The daemon's process, from its lock, if it lives: another may have its number by now.
    pub(crate) fn daemon_pid(&self) -> Option<i32> {
        let text = fs::read_to_string(self.places.base().join("daemon.lock")).ok()?;
        let mut words = text.split_whitespace();
        let (pid, start) = (words.nth(1)?.parse().ok()?, words.nth(1)?);
        (is_alive(pid) && start_time(pid).as_deref() == Some(start)).then_some(pid)
    }

    /// `kill -9` of the daemon, and waiting until the kernel has let go of it.
    pub(crate) fn kill_daemon(&self) {
        if let Some(pid) = self.daemon_pid() {
            signal(pid, Signal::KILL);
            wait_until("the daemon is gone", || !is_alive(pid));
        }
    }

    pub(crate) fn shim(&self, id: AgentId) -> ShimRecord {
        records::read(&self.places.agent_dir(id), records::SHIM).unwrap()
    }

    /// How often a worker was started for an agent.
    pub(crate) fn runs(&self, id: AgentId) -> usize {
        self.lines(id, "runs").len()
    }

    /// The lines of a file that an agent's worker writes.
    pub(crate) fn lines(&self, id: AgentId, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.places.agent_dir(id).join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.places.log()).unwrap_or_default()
    }

    /// Asks a worker; none when it is not there, or goes before it has answered.
    pub(crate) fn ask(&self, id: AgentId, line: &str) -> Option<String> {
        let mut stream = UnixStream::connect(self.places.agent_socket(id)).ok()?;
        writeln!(stream, "{line}").ok()?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).ok()?;
        answer.strip_suffix('\n').map(str::to_owned)
    }

    /// Says a line to a worker.
    pub(crate) fn tell(&self, id: AgentId, line: &str) {
        let mut stream = UnixStream::connect(self.places.agent_socket(id)).unwrap();
        writeln!(stream, "{line}").unwrap();
    }
}

impl Drop for Fleet {
    /// Ends whatever was started in our directories, also when the test failed half way.
    fn drop(&mut self) {
        let ours = self.temp.path().to_path_buf();
        while processes_in(&ours).into_iter().map(|pid| signal(pid, Signal::KILL)).count() > 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Shims that were killed could not remove the groups of their runs.
        for dir in fs::read_dir(self.places.agents_dir()).into_iter().flatten().flatten() {
            let shim: Option<ShimRecord> = records::read(&dir.path(), records::SHIM);
            if let Some(group) = shim.and_then(|shim| shim.group) {
                let _gone_already = fs::remove_dir(group);
            }
        }
    }
}

/// Living processes that have a directory in their command line, or work in it.
fn processes_in(dir: &Path) -> Vec<i32> {
    let text = dir.to_str().unwrap_or("/nowhere");
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != own && is_alive(*pid))
        .filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let place = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text) || place.starts_with(dir)
        })
        .collect()
}

/// The daemon's program.
pub(crate) fn caliband() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_caliband"))
}

/// The fake worker, which is an example of this crate.
pub(crate) fn fake_worker() -> PathBuf {
    let path = caliband().with_file_name("examples").join("fake-worker");
    assert!(path.exists(), "{} is missing: cargo build -p caliban-supervisor --examples", path.display());
    path
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    let _gone = rustix::process::kill_process(Pid::from_raw(pid).unwrap(), signal);
}

/// Whether a process is there and has not ended. Its first thread may have ended before the others.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> =
        stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    match fields.first() {
        None => false,
        Some(&("Z" | "X")) => fields.get(17).is_some_and(|threads| *threads != "0" && *threads != "1"),
        Some(_) => true,
    }
}

/// When the kernel started a process, in its words.
pub(crate) fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split(' ').nth(19).map(str::to_owned)
}

/// Living processes that carry the marker of an agent, the shim included.
pub(crate) fn processes_of(agent: &str) -> Vec<i32> {
    let marker = format!("{}={agent}:", caliban_contract::variables::AGENT_ID);
    let pids = fs::read_dir("/proc").unwrap().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|variable| variable.starts_with(marker.as_bytes()))
            && is_alive(*pid)
    })
    .collect()
}

/// Waits for a condition.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for a condition of an asynchronous question.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The daemon's refusal, as code, message and hint.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(outcome: Result<T, ClientError>) -> (String, String, String) {
    match outcome {
        Err(ClientError::Refused(error)) => {
            let code = serde_json::to_value(error.code).unwrap().as_str().unwrap().to_owned();
            (code, error.message, error.hint.unwrap_or_default())
        }
        other => panic!("not refused: {other:?}"),
    }
}

pub(crate) fn quick() -> KillRequest {
    KillRequest { grace_ms: Some(200) }
}

pub(crate) fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}
