//! What one tool call adds to a run: the call, its records in the transcript, and one more request.
//!
//! The records of a call that only reads are handed to the kernel; a call that changes something begins only after its
//! record is synced. So only the row of Write pays for the disk, and only its ratio is to a synced append.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::measure::{self, Subject, median};
use super::server::BenchServer;
use super::table::{Table, ms, times};
use super::{Bed, Bench, repo, turn};
use crate::run;

pub(super) const BENCH: Bench = Bench {
    name: "tool-turn",
    what: "what a tool turn adds to a run; Read and Glob are not synced, Write is; × is to one synced append to a file",
    run: measured,
};

/// The limit of the time that a tool turn adds, in milliseconds.
const AT_MOST_MS: f64 = 5.0;

/// Number of tool turns of the long run.
const MANY: usize = repo::FILES;

fn measured(bed: &Bed) -> Result<Table> {
    let repo = repo::small(bed)?;
    let server = BenchServer::start(bed, &script())?;
    let home = bed.dir("caliban-home")?;
    let caliban = |prompt: &str| -> Result<_> {
        let caliban = turn::over_http(bed, &server, &home)?.dir(&repo);
        Ok(caliban.args(["--permission-mode", "accept-edits", "-p", prompt]))
    };
    for (prompt, calls) in [("read one", 1), ("glob one", 1), ("read many", MANY), ("write many", 2 * MANY)] {
        carried_out(&caliban(prompt)?, calls).with_context(|| format!("the run \"{prompt}\""))?;
    }
    let subjects = [
        &caliban("hello")?,
        &caliban("read one")?,
        &caliban("glob one")?,
        &caliban("read many")?,
        &caliban("write many")?,
    ];
    // Before and after, so that a change of the disk's load affects all.
    let mut synced = synced_appends(bed)?;
    let [plain, read, glob, reads, writes] = measure::costs(subjects, bed.runs)?;
    synced.extend(synced_appends(bed)?);
    let synced_us = median(synced);
    let mut table = Table::new(&["wall", "cpu"]);
    table.row("one synced append", [ms(synced_us), String::new()]);
    let mut worst: f64 = 0.0;
    for (label, cost, without, turns) in [
        ("Read, one in a run, not synced", read, plain, 1.0),
        ("Glob, one in a run, not synced", glob, plain, 1.0),
        ("Read, each of many, not synced", reads, plain, MANY as f64),
        ("Write, each of many, synced", writes, reads, MANY as f64),
    ] {
        let wall = (cost.wall_us - without.wall_us) / turns;
        let cpu = (cost.cpu_us - without.cpu_us) / turns;
        worst = worst.max(wall);
        table.row(label, [format!("{} {:>6}", ms(wall), times(wall / synced_us.max(1.0))), ms(cpu)]);
    }
    table.remark("differences of medians; on a busy machine one call is less than their noise, which may make it negative");
    table.promise("the most of these", worst / 1_000.0, AT_MOST_MS, " ms");
    Ok(table)
}

/// Checks that all calls succeed: a failed call has a different cost.
pub(super) fn carried_out(subject: &Subject, wanted: usize) -> Result<()> {
    let mut command = subject.clone().args(["--output-format", "stream-json"]).command()?;
    let events = run::output(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let fine = |line: &&str| line.contains("\"tool_result\"") && line.contains("\"is_error\":false");
    let done = events.lines().filter(fine).count();
    ensure!(done == wanted, "{done} of {wanted} calls succeeded");
    Ok(())
}

fn script() -> Value {
    let path = |n: usize| format!("src/part_{n}.rs");
    let read = |n: usize| json!([{"name": "Read", "input": {"file_path": path(n)}}]);
    // Writes the existing content, so that every run does the same; the file has to be read first.
    let write =
        |n: usize| json!([{"name": "Write", "input": {"file_path": path(n), "content": repo::text(n)}}]);
    let when = |prompt: &str, turn: usize| json!({"first_prompt_contains": prompt, "turn": turn});
    let step = |prompt: &str, turn: usize, calls: Value| json!({"repeat": true, "when": when(prompt, turn), "tool_calls": calls});
    let mut steps = vec![
        step("read one", 0, read(0)),
        step("glob one", 0, json!([{"name": "Glob", "input": {"pattern": "src/*.rs"}}])),
    ];
    for n in 0..MANY {
        steps.push(step("read many", n, read(n)));
        steps.push(step("write many", 2 * n, read(n)));
        steps.push(step("write many", 2 * n + 1, write(n)));
    }
    steps.push(json!({"repeat": true, "text": "Hello."}));
    json!({"steps": steps})
}

/// The time of each synced append to a file on the same file system, in microseconds.
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
