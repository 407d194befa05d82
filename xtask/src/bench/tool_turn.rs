//! What one tool call adds to a run: the call, its two synced records in the transcript, and a second request.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Instant;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::measure::{self, median};
use super::server::Server;
use super::table::{Table, ms, times};
use super::{Bed, Bench, repo, turn};

pub(super) const BENCH: Bench = Bench {
    name: "tool-turn",
    what: "what a tool turn adds to a run, the transcript synced; × is to one synced append to a file",
    run,
};

/// What a tool turn may add, in milliseconds.
const AT_MOST_MS: f64 = 5.0;

/// The tool turns of the long run.
const MANY: usize = repo::FILES;

fn run(bed: &Bed) -> Result<Table> {
    let repo = repo::small(bed)?;
    let server = Server::start(bed, &script())?;
    let home = bed.dir("caliban-home")?;
    let caliban = |prompt: &str| -> Result<_> {
        Ok(turn::over_http(bed, &server, &home)?.dir(&repo).args(["-p", prompt]))
    };
    let subjects = [&caliban("hello")?, &caliban("read one")?, &caliban("glob one")?, &caliban("read many")?];
    // On both sides, so that a change of the disk's load meets all.
    let mut synced = synced_appends(bed)?;
    let [plain, read, glob, many] = measure::costs(subjects, bed.runs)?;
    synced.extend(synced_appends(bed)?);
    let synced_us = median(synced);
    let mut table = Table::new(&["wall", "cpu"]);
    table.row("one synced append", [ms(synced_us), String::new()]);
    let mut worst: f64 = 0.0;
    for (label, cost, turns) in [
        ("Read, one in a run", read, 1.0),
        ("Glob, one in a run", glob, 1.0),
        ("Read, each of many in a run", many, MANY as f64),
    ] {
        let wall = ((cost.wall_us - plain.wall_us) / turns).max(0.0);
        let cpu = ((cost.cpu_us - plain.cpu_us) / turns).max(0.0);
        worst = worst.max(wall);
        table.row(label, [format!("{} {:>6}", ms(wall), times(wall / synced_us.max(1.0))), ms(cpu)]);
    }
    table.promise("the most of these", worst / 1_000.0, AT_MOST_MS, " ms");
    Ok(table)
}

fn script() -> Value {
    let read = |n: usize| json!([{"name": "Read", "input": {"file_path": format!("src/part_{n}.rs")}}]);
    let when = |prompt: &str, turn: usize| json!({"first_prompt_contains": prompt, "turn": turn});
    let mut steps = vec![
        json!({"repeat": true, "when": when("read one", 0), "tool_calls": read(0)}),
        json!({"repeat": true, "when": when("glob one", 0),
               "tool_calls": [{"name": "Glob", "input": {"pattern": "src/*.rs"}}]}),
    ];
    steps.extend(
        (0..MANY).map(|n| json!({"repeat": true, "when": when("read many", n), "tool_calls": read(n)})),
    );
    steps.push(json!({"repeat": true, "text": "Hello."}));
    json!({"steps": steps})
}

/// Lines appended to a file and on the disk, on the same file system: microseconds for each.
fn synced_appends(bed: &Bed) -> Result<Vec<f64>> {
    let path = bed.scratch.join("appended");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).context("cannot append")?;
    let line = [b'x'; 400];
    let mut samples = Vec::new();
    for _ in 0..bed.runs {
        let start = Instant::now();
        file.write_all(&line).and_then(|()| file.sync_data()).context("cannot append")?;
        samples.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(samples)
}
