//! What the fence adds to a command: `true` in the edit fence, relative to `true` without one. Both run under our
//! reaper, like a command of an agent. Also what it adds to the memory of a fleet agent that has run a command and is
//! idle.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::fleet::agents;
use super::fleet_place::BenchFleet;
use super::measure::{self, Subject};
use super::table::{Table, ms};
use super::{Bed, Bench, repo};

pub(super) const BENCH: Bench = Bench {
    name: "fence",
    what: "a command in the edit fence; × is to the same command without a fence, both under the reaper",
    run: measured,
};

/// The limit of the added time, in milliseconds.
const AT_MOST_MS: f64 = 6.0;
/// ... and of the added memory of an agent, in megabytes.
const AT_MOST_MB: f64 = 0.5;
/// Number of agents whose memory is measured.
const AGENTS: usize = 5;

fn measured(bed: &Bed) -> Result<Table> {
    let project = repo::small(bed)?;
    let start = || -> Result<Subject> { Ok(Subject::new(bed.example("start")?, &bed.scratch)) };
    let reaper = bed.program("caliban");
    let plain = start()?.args([reaper.to_string_lossy()]);
    let fenced = start()?.args([reaper.to_string_lossy(), project.to_string_lossy()]);
    let [plain, fenced] = measure::costs([&plain, &fenced], bed.runs)?;
    let mut table = Table::of_costs();
    table.cost("true", plain, None);
    table.cost("true in the edit fence", fenced, Some(plain));
    let added = fenced.wall_us - plain.wall_us;
    table.remark(format!("added: {}", ms(added)));
    table.promise("added by the fence", added / 1_000.0, AT_MOST_MS, " ms");
    let (without, within) = (agent_kb(bed, "off")?, agent_kb(bed, "required")?);
    table.remark(format!(
        "an idle agent, shim and worker, unshared: {without:.0} KB, with the fence {within:.0} KB"
    ));
    table.promise("added to an agent by the fence", (within - without) / 1024.0, AT_MOST_MB, " MB");
    Ok(table)
}

/// The private memory of an idle agent that has run a command, in KB.
fn agent_kb(bed: &Bed, sandbox: &str) -> Result<f64> {
    let script = bed.dir("fence-script")?.join("script.json");
    let call = json!({"name": "Bash", "input": {"command": "ls -la"}});
    let usage = json!({"input": 5, "output": 5});
    let steps = json!({"steps": [{"tool_calls": [call], "usage": usage}, {"text": "seen", "usage": usage}]});
    std::fs::write(&script, steps.to_string()).context("cannot write the script")?;
    let place = BenchFleet::new(bed, &format!("fence-{sandbox}"), "http://127.0.0.1:1", AGENTS)?;
    place.set(&format!("sandbox = \"{sandbox}\"\n"))?;
    let script = script.to_string_lossy();
    for _ in 0..AGENTS {
        let how = ["--provider", "scripted", "--script", &script, "--permission-mode", "accept-edits"];
        place.output(&[&["--bg", "--interactive"], how.as_slice(), &["look"]].concat())?;
    }
    let (daemon, start) = (place.daemon()?, Instant::now());
    let is_idle = |row: &serde_json::Value| row["state"] == "idle";
    while !daemon.rows()?.iter().all(is_idle) {
        ensure!(
            start.elapsed() < Duration::from_secs(60),
            "the agents do not come to rest: {:?}",
            daemon.rows()?
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let held = agents(&daemon.rows()?)?;
    place.end()?;
    Ok(measure::median(held.iter().map(|(shim, worker)| shim.private_kb + worker.private_kb).collect()))
}
