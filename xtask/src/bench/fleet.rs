//! The background fleet: the time until an agent is registered, working and listed, and its memory.
//!
//! Agents work in the caller's directory and wait for a model that never answers. Agents that were measured are removed
//! before the next one is started; at the end no process is left.

use std::process::Stdio;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::commit::Commits;
use super::fleet_memory::{HeldMemory, held};
use super::fleet_model::SilentModel;
use super::fleet_place::{AfterTurn, BenchFleet, Daemon};
use super::fleet_rows::{Memory, Time, mb, time};
use super::measure::{self, median};
use super::table::{Table, ms};
use super::{Bed, Bench, fleet_thousand as thousand};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "fleet",
    what: "background agents that wait for the model; × is to what the column \"to\" names",
    run,
};

/// The promised limits, in milliseconds.
const SPAWN_MS: f64 = 3.0;
const BACKGROUND_MS: f64 = 8.0;
const COLD_MS: f64 = 18.0;
const REQUEST_MS: f64 = 20.0;
const LIST_MS: f64 = 7.0;
/// The promised limits, in MB.
const DAEMON_MB: f64 = 8.0;
const AGENT_MB: f64 = 4.0;

/// Number of agents in a list.
const CROWD: usize = 100;
/// How many of them run at once by default.
const RUNNING: usize = 8;

fn run(bed: &Bed) -> Result<Table> {
    let model = SilentModel::start()?;
    let mut table = Table::new(&["median", "×", "to", "promised", ""]);
    let commits = Commits::before(bed, "fleet")?;
    let warm = warm(bed, &model)?;
    let cold = cold(bed, &model)?;
    let commit_us = commits.after(bed)?;
    let (bare, bare_cold) = (median(warm.bare_us), median(cold.bare_us));
    table.row("true", [ms(bare), String::new()]);
    table.row("SQLite, open and commit", [ms(commit_us), String::new()]);
    let sum = bare + commit_us;
    let rows = [
        Time {
            label: "spawn, acknowledged at the socket",
            us: median(warm.spawn_us),
            to: "commit",
            base_us: commit_us,
            at_most_ms: Some(SPAWN_MS),
        },
        Time {
            label: "caliban --bg",
            us: median(warm.background_us),
            to: "true + commit",
            base_us: sum,
            at_most_ms: Some(BACKGROUND_MS),
        },
        Time {
            label: "  until the model has its request",
            us: median(warm.request_us),
            to: "true + commit",
            base_us: sum,
            at_most_ms: Some(REQUEST_MS),
        },
        Time {
            label: "caliban --bg that starts the daemon",
            us: median(cold.background_us),
            to: "true + commit",
            base_us: bare_cold + commit_us,
            at_most_ms: Some(COLD_MS),
        },
        Time {
            label: "  until the model has its request",
            us: median(cold.request_us),
            to: "true + commit",
            base_us: bare_cold + commit_us,
            at_most_ms: None,
        },
    ];
    for row in rows {
        time(&mut table, &row);
    }
    let memory = Memory::base(&mut table)?;
    for running in [RUNNING, CROWD] {
        crowd(bed, &model, running, &memory, &mut table)?;
    }
    thousand::measure(bed, sum, &memory, &mut table)?;
    table.remark("the commit includes opening the database, which a running daemon has done already");
    table.remark(
        "unshared: memory that would be free if the process ended; agents are the median of those that run",
    );
    Ok(table)
}

/// Samples with a running daemon.
#[derive(Default)]
struct Warm {
    bare_us: Vec<f64>,
    spawn_us: Vec<f64>,
    background_us: Vec<f64>,
    request_us: Vec<f64>,
}

fn warm(bed: &Bed, model: &SilentModel) -> Result<Warm> {
    let place = BenchFleet::new(bed, "fleet-warm", &model.url, RUNNING)?;
    let daemon = place.daemon()?;
    let request = place.spawn_request(AfterTurn::End);
    let mut samples = Warm::default();
    // The first turn is not counted: it fills the file cache.
    for turn in 0..=bed.runs {
        let bare_us = bare(bed)?;
        let before = model.count()?;
        let start = Instant::now();
        let id = daemon.spawn(&request)?;
        let spawn_us = micros(start, Instant::now());
        // Wait for the agent's request, so that nothing is measured while another agent starts.
        model.request_after(before)?;
        daemon.remove(&id)?;
        let (background_us, request_us) = background(&place, &daemon, model)?;
        if turn > 0 {
            samples.bare_us.push(bare_us);
            samples.spawn_us.push(spawn_us);
            samples.background_us.push(background_us);
            samples.request_us.push(request_us);
        }
    }
    place.end()?;
    Ok(samples)
}

/// Samples of commands that start a daemon.
#[derive(Default)]
struct Cold {
    bare_us: Vec<f64>,
    background_us: Vec<f64>,
    request_us: Vec<f64>,
}

fn cold(bed: &Bed, model: &SilentModel) -> Result<Cold> {
    let place = BenchFleet::new(bed, "fleet-cold", &model.url, RUNNING)?;
    let daemon = place.daemon()?;
    let mut samples = Cold::default();
    for turn in 0..=bed.runs {
        place.output(&["daemon", "stop"])?;
        let bare_us = bare(bed)?;
        // The next daemon uses the same socket.
        let (background_us, request_us) = background(&place, &daemon, model)?;
        if turn > 0 {
            samples.bare_us.push(bare_us);
            samples.background_us.push(background_us);
            samples.request_us.push(request_us);
        }
    }
    place.end()?;
    Ok(samples)
}

/// One `--bg`: the time until it returns, and until the model has the agent's request. The agent is removed afterwards.
fn background(place: &BenchFleet, daemon: &Daemon, model: &SilentModel) -> Result<(f64, f64)> {
    let before = model.count()?;
    let (id, start, returned) = place.background()?;
    let asked = model.request_after(before)?;
    daemon.remove(&id)?;
    Ok((micros(start, returned), micros(start, asked)))
}

/// A hundred agents of which some run, then all of them ended: the list, and the memory.
fn crowd(bed: &Bed, model: &SilentModel, running: usize, memory: &Memory, table: &mut Table) -> Result<()> {
    let place = BenchFleet::new(bed, &format!("fleet-{running}"), &model.url, running)?;
    let daemon = place.daemon()?;
    let (request, before) = (place.spawn_request(AfterTurn::End), model.count()?);
    for _ in 0..CROWD {
        daemon.spawn(&request)?;
    }
    model.request_after(before + running - 1)?;
    let list = place.subject(&["agents", "list"]);
    let [bare, listed] = measure::costs([&bed.bare(), &list], bed.runs)?;
    let label = format!("agents list, {CROWD} of which {running} run");
    let row = |label, cost: measure::Cost, bare: measure::Cost| Time {
        label,
        us: cost.wall_us,
        to: "true",
        base_us: bare.wall_us,
        at_most_ms: Some(LIST_MS),
    };
    time(table, &row(&label, listed, bare));
    let agents = agents(&daemon.rows()?)?;
    ensure!(agents.len() == running, "{} agents run, not {running}", agents.len());
    let of = |part: fn(&(HeldMemory, HeldMemory)) -> f64| median(agents.iter().map(part).collect());
    let of_daemon = held(daemon.pid)?;
    memory.row(table, "  daemon, resident", of_daemon.resident_kb, Some(DAEMON_MB));
    memory.row(table, "  daemon, unshared", of_daemon.private_kb, Some(DAEMON_MB));
    let both = of(|(shim, worker)| shim.private_kb + worker.private_kb);
    memory.row(table, "  shim + worker, unshared", both, Some(AGENT_MB));
    table.remark(format!(
        "{running} run: a shim holds {} unshared, a worker {} ({} resident)",
        mb(of(|(shim, _)| shim.private_kb)),
        mb(of(|(_, worker)| worker.private_kb)),
        mb(of(|(_, worker)| worker.resident_kb)),
    ));
    daemon.kill_all()?;
    if running == CROWD {
        let [bare, listed] = measure::costs([&bed.bare(), &list], bed.runs)?;
        time(table, &row(&format!("agents list, {CROWD} that have ended"), listed, bare));
    }
    place.end()
}

/// The memory of the shims and workers of running agents.
pub(super) fn agents(rows: &[Value]) -> Result<Vec<(HeldMemory, HeldMemory)>> {
    let of = |row: &Value, name: &str| match row[name].as_u64() {
        Some(pid) => held(pid).map(Some),
        None => Ok(None),
    };
    let mut agents = Vec::new();
    for row in rows {
        if let (Some(shim), Some(worker)) = (of(row, "shim_pid")?, of(row, "pid")?) {
            agents.push((shim, worker));
        }
    }
    Ok(agents)
}

/// The time of a bare process start.
fn bare(bed: &Bed) -> Result<f64> {
    let mut command = bed.bare().command()?;
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    run::output(&mut command)?;
    Ok(micros(start, Instant::now()))
}

pub(super) fn micros(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e6
}
