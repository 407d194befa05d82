//! A thousand interactive agents: they start, are adopted by one daemon after another (r03), hibernate, need no process
//! then, and some of them are woken by messages.
//!
//! The model holds all requests until the last agent has asked, so that all agents live at once and hibernate together.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::Bed;
use super::fleet::micros;
use super::fleet_memory::held;
use super::fleet_place::{AfterTurn, BenchFleet, Daemon, IDLE};
use super::fleet_rows::{Memory, Time, count, time};
use super::measure::{self, median};
use super::server::BenchServer;
use super::table::{Table, ms};
use crate::run;

const AGENTS: usize = 1_000;
/// The promised limit of their adoption, in milliseconds.
const ADOPTED_MS: f64 = 2_000.0;
/// Number of adoptions for each way in which a daemon ends.
const ROUNDS: usize = 3;
/// Number of runs of commands whose time grows with the number of agents: few, because the agents hibernate soon.
const RUNS_OF_LISTS: usize = 10;
/// Number of agents that are woken.
const WOKEN: usize = 10;
/// Time limit of each step, not counting the time until the agents hibernate.
const PATIENCE: Duration = Duration::from_secs(300);
/// The interval at which all agents are checked.
const PAUSE: Duration = Duration::from_millis(250);

/// `base_us`: a bare process start and a bare commit.
pub(super) fn measure(bed: &Bed, base_us: f64, memory: &Memory, table: &mut Table) -> Result<()> {
    raise_file_limit()?;
    let model = BenchServer::start(bed, &json!({"steps": [{"repeat": true, "text": "Hello."}]}))?;
    let place = BenchFleet::new(bed, "fleet-1000", &model.url, AGENTS)?;
    let daemon = place.daemon()?;
    model.pause()?;
    run::say(&format!("starting {AGENTS} agents"));
    let request = place.spawn_request(AfterTurn::Stay);
    for _ in 0..AGENTS {
        daemon.spawn(&request)?;
    }
    let all = |rows: &[Value], fits: fn(&Value) -> bool| rows.iter().all(fits);
    until(&daemon, "all run", |rows| all(rows, |row| row["state"] == "running" && row["pid"].is_u64()))?;
    model.go_on()?;
    let living = until(&daemon, "all are idle", |rows| {
        all(rows, |row| row["state"] == "idle" && row["pid"].is_u64())
    })?;
    let fall_asleep = Instant::now() + IDLE;

    let held_by_living = held(daemon.pid)?;
    let adopted = adoptions(bed, daemon, &living)?;
    let daemon = place.daemon()?;
    run::say("waiting until they fall asleep");
    while Instant::now() < fall_asleep {
        std::thread::sleep(PAUSE);
    }
    until(&daemon, "all sleep", |rows| all(rows, |row| row["hibernated"] == true))?;
    let processes = place.processes().into_iter().filter(|pid| u64::from(*pid) != daemon.pid).count();
    let held_by_sleeping = held(daemon.pid)?;
    let list = place.subject(&["agents", "list"]);
    let [bare, listed] = measure::costs([&bed.bare(), &list], bed.runs.min(RUNS_OF_LISTS))?;
    let woken = wake(&place, &daemon, &living)?;

    memory.row(table, &format!("daemon of {AGENTS} idle agents, unshared"), held_by_living.private_kb, None);
    let longest = adopted.iter().copied().fold(0.0, f64::max);
    time(
        table,
        &Time {
            label: &format!("daemon start until it has adopted {AGENTS}"),
            us: longest,
            to: "true + commit",
            base_us,
            at_most_ms: Some(ADOPTED_MS),
        },
    );
    count(table, &format!("processes of {AGENTS} that hibernate"), processes, 0);
    memory.row(table, "  daemon, unshared", held_by_sleeping.private_kb, None);
    let label = "  agents list";
    time(table, &Time { label, us: listed.wall_us, to: "true", base_us: bare.wall_us, at_most_ms: None });
    let label = "  agents send that wakes one";
    time(table, &Time { label, us: median(woken), to: "true + commit", base_us, at_most_ms: None });
    table.remark(format!(
        "adopted: the longest of {} starts after kill -9, stop and upgrade, each time all {AGENTS} with the same id, \
         pids and state; the median is {}",
        adopted.len(),
        ms(median(adopted.clone())),
    ));
    place.end()
}

/// Waits until the rows of all agents satisfy a condition, and returns them.
fn until(daemon: &Daemon, what: &str, fits: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    let start = Instant::now();
    loop {
        let rows = daemon.rows()?;
        ensure!(rows.len() == AGENTS, "{} agents are registered, not {AGENTS}", rows.len());
        if fits(&rows) {
            return Ok(rows);
        }
        ensure!(start.elapsed() < PATIENCE, "it never came true that {what}; one of them: {}", rows[0]);
        std::thread::sleep(PAUSE);
    }
}

/// How a daemon ends before the next one is started.
#[derive(Debug, Clone, Copy)]
enum Leaves {
    Killed,
    Stopped,
    /// Stopped, and the next daemon is a different program file.
    Upgraded,
}

/// Replaces the daemon repeatedly; returns the time until each was ready, in microseconds.
fn adoptions(bed: &Bed, first: Daemon, living: &[Value]) -> Result<Vec<f64>> {
    let words = command_line(first.pid)?;
    let upgrade = bed.dir("fleet-upgrade")?.join("caliband");
    std::fs::copy(&words[0], &upgrade).context("cannot copy the daemon's program")?;
    let (mut daemon, mut child) = (first, None);
    let mut samples = Vec::new();
    for round in 0..ROUNDS * 3 {
        let leaves = [Leaves::Killed, Leaves::Stopped, Leaves::Upgraded][round % 3];
        leave(&daemon, child.take(), leaves)?;
        let program = if matches!(leaves, Leaves::Upgraded) { &upgrade } else { &words[0] };
        let start = Instant::now();
        let next = start_daemon(program, &words[1..], &bed.scratch)?;
        samples.push(micros(start, Instant::now()));
        daemon = Daemon { pid: u64::from(next.id()), ..daemon };
        child = Some(next);
        let rows = daemon.rows()?;
        ensure!(known(&rows) == known(living), "after a daemon was {leaves:?} agents are not as they were");
    }
    // The last daemon stays and is ended like any other; as our child it is reaped when we end.
    Ok(samples)
}

/// The identity and state of each agent.
fn known(rows: &[Value]) -> Vec<[&Value; 4]> {
    rows.iter().map(|row| [&row["id"], &row["pid"], &row["shim_pid"], &row["state"]]).collect()
}

/// Ends a daemon; returns when it is gone.
fn leave(daemon: &Daemon, child: Option<Child>, leaves: Leaves) -> Result<()> {
    let pid = Pid::from_raw(i32::try_from(daemon.pid).context("a process id")?);
    let signal = match leaves {
        Leaves::Killed => Signal::SIGKILL,
        Leaves::Stopped | Leaves::Upgraded => Signal::SIGTERM,
    };
    kill(pid, signal).context("the daemon is gone")?;
    if let Some(mut child) = child {
        child.wait().context("cannot wait for the daemon")?;
    }
    let start = Instant::now();
    while kill(pid, None).is_ok() {
        ensure!(start.elapsed() < PATIENCE, "the daemon does not leave");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Starts a daemon, and waits until it reports that it is ready.
fn start_daemon(program: &Path, args: &[PathBuf], home: &Path) -> Result<Child> {
    let mut child = Command::new(program)
        .args(args)
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the daemon")?;
    let stdout = child.stdout.take().context("the daemon has no output")?;
    let mut word = String::new();
    BufReader::new(stdout).read_line(&mut word).context("the daemon says nothing")?;
    ensure!(word.trim() == "ready", "the daemon said '{}'", word.trim());
    Ok(child)
}

/// The command line of a process.
fn command_line(pid: u64) -> Result<Vec<PathBuf>> {
    let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).context("the daemon is gone")?;
    Ok(line.split_terminator('\0').map(PathBuf::from).collect())
}

/// Sends messages to some hibernating agents; returns the time of each, in microseconds.
fn wake(place: &BenchFleet, daemon: &Daemon, agents: &[Value]) -> Result<Vec<f64>> {
    let mut samples = Vec::new();
    for agent in agents.iter().take(WOKEN) {
        let id = agent["id"].as_str().context("an agent has no id")?;
        let start = Instant::now();
        let said = place.output(&["agents", "send", id, "are you there?"])?;
        samples.push(micros(start, Instant::now()));
        ensure!(
            said.trim() == format!("{id} has it"),
            "{id} was to be woken, and '{}' was said",
            said.trim()
        );
        let row = daemon.ask("GET", &format!("/v1/agents/{id}"), "")?;
        ensure!(row["runs"] == 2 && row["pid"].is_u64(), "{id} is not awake: {row}");
    }
    Ok(samples)
}

/// The model has a connection to each agent, so the file limit is raised.
fn raise_file_limit() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files")?;
    let wanted = (AGENTS as u64 * 4).min(hard).max(soft);
    setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).context("the limit of open files")
}
