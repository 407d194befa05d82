//! What the fence adds to a command: `true` in the edit fence, relative to `true` without one. Both run under our
//! reaper, like a command of an agent. Also what it adds to the memory of a fleet agent that has run a command and is
//! idle; and both in large trees, where the whole agent is measured.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::fleet::agents;
use super::fleet_place::BenchFleet;
use super::measure::{self, Subject};
use super::server::BenchServer;
use super::table::{Table, ms};
use super::{Bed, Bench, repo, tool_turn, turn};

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
/// A command for the edit fence; no directory changes by it once the file is there.
const CHANGES: &str = "touch ready";
/// Numbers of files in large trees, and of repositories in each.
const LARGE: [usize; 2] = [50_000, 200_000];
const NESTED: usize = 20;
/// Commands of a run in a large tree, how long the model takes to answer, and how often each is run at most.
const COMMANDS: usize = 11;
const MODEL_MS: u64 = 150;
const RUNS: usize = 5;

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
    memory(bed, &mut table, "a small repo", &project)?;
    for files in LARGE {
        let tree = repo::large(bed, files, NESTED)?;
        let what = format!("{files} files, {NESTED} nested repos");
        let added = added_in(bed, &tree)?;
        table.row(format!("a command in {what}: added"), [ms(added)]);
        table.promise(&format!("added by the fence in {what}"), added / 1_000.0, AT_MOST_MS, " ms");
        memory(bed, &mut table, &what, &tree)?;
    }
    Ok(table)
}

/// What the fence adds to one of many commands of a run, in microseconds: what the agent judges and looks up before the answer
/// included. The model takes its time, as models do, and nothing in the tree changes.
fn added_in(bed: &Bed, tree: &Path) -> Result<f64> {
    let command = json!([{"name": "Bash", "input": {"command": CHANGES}}]);
    let step = |prompt: &str, turn: usize| {
        let when = json!({"first_prompt_contains": prompt, "turn": turn});
        json!({"repeat": true, "when": when, "tool_calls": command, "delay_ms": MODEL_MS})
    };
    let mut steps = vec![step("one command", 0)];
    steps.extend((0..COMMANDS).map(|turn| step("many commands", turn)));
    steps.push(json!({"repeat": true, "text": "Done.", "delay_ms": MODEL_MS}));
    let server = BenchServer::start(bed, &json!({"steps": steps}))?;
    let run = |sandbox: &str, prompt: &str| -> Result<Subject> {
        let home = bed.dir(&format!("fence-home-{sandbox}"))?;
        let config = home.join(".config/caliban");
        std::fs::create_dir_all(&config).context("cannot create the settings' directory")?;
        std::fs::write(config.join("settings.toml"), format!("sandbox = \"{sandbox}\"\n"))
            .context("cannot write settings")?;
        let caliban = turn::over_http(bed, &server, &home)?.dir(tree);
        Ok(caliban.args(["--permission-mode", "accept-edits", "--allow", "Bash", "-p", prompt]))
    };
    let subjects = [
        &run("off", "one command")?,
        &run("off", "many commands")?,
        &run("required", "one command")?,
        &run("required", "many commands")?,
    ];
    for (subject, wanted) in subjects.iter().zip([1, COMMANDS, 1, COMMANDS]) {
        tool_turn::carried_out(subject, wanted)?;
    }
    let [one, many, fenced_one, fenced_many] = measure::costs(subjects, bed.runs.min(RUNS))?;
    let further = (COMMANDS - 1) as f64;
    Ok((fenced_many.wall_us - fenced_one.wall_us - (many.wall_us - one.wall_us)) / further)
}

fn memory(bed: &Bed, table: &mut Table, what: &str, tree: &Path) -> Result<()> {
    let (without, within) = (agent_kb(bed, tree, "off")?, agent_kb(bed, tree, "required")?);
    table.remark(format!(
        "an idle agent in {what}, shim and worker, unshared: {without:.0} KB, with the fence {within:.0} KB"
    ));
    let added = (within - without) / 1024.0;
    table.promise(&format!("added to an agent by the fence in {what}"), added, AT_MOST_MB, " MB");
    Ok(())
}

/// The private memory of an idle agent that has run a command, in KB.
fn agent_kb(bed: &Bed, tree: &Path, sandbox: &str) -> Result<f64> {
    let script = bed.dir("fence-script")?.join("script.json");
    let call = json!({"name": "Bash", "input": {"command": CHANGES}});
    let usage = json!({"input": 5, "output": 5});
    let steps = json!({"steps": [{"tool_calls": [call], "usage": usage}, {"text": "seen", "usage": usage}]});
    std::fs::write(&script, steps.to_string()).context("cannot write the script")?;
    let name = tree.file_name().unwrap_or_default().to_string_lossy();
    let place = BenchFleet::new(bed, &format!("fence-{sandbox}-{name}"), "http://127.0.0.1:1", AGENTS)?;
    let place = place.in_repo(tree);
    place.set(&format!("sandbox = \"{sandbox}\"\n"))?;
    let script = script.to_string_lossy();
    for _ in 0..AGENTS {
        let how = [
            "--provider",
            "scripted",
            "--script",
            &script,
            "--permission-mode",
            "accept-edits",
            "--allow",
            "Bash(touch ready)",
        ];
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
