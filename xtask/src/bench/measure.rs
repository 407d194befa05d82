//! Measuring one command: wall time, CPU time of its whole tree, peak memory.
//!
//! Each subject is measured from a process of its own, because the kernel keeps one peak for all children of a
//! process. What it reports can never be below the memory of that process itself, which the first row shows.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use super::MEASURE;
use crate::run;

/// Runs before counting: files get into the cache.
const WARM_UP: usize = 3;

/// A command to measure.
pub(crate) struct Subject {
    words: Vec<String>,
    home: String,
}

/// Medians (the peak: of all runs).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) peak_kb: f64,
}

impl Subject {
    /// A program that sees `home` as its home and nothing of the user's.
    pub(crate) fn new(program: impl Into<String>, home: &Path) -> Self {
        Self { words: vec![program.into()], home: home.to_string_lossy().into_owned() }
    }

    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.words.extend(args.iter().map(|arg| (*arg).to_owned()));
        self
    }
}

/// Measures a subject, from a process of its own.
pub(crate) fn cost(subject: &Subject, runs: usize) -> Result<Cost> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(own);
    child.arg(MEASURE).arg(runs.to_string()).arg(&subject.home).args(&subject.words);
    child.current_dir(&subject.home).stdin(Stdio::null()).stderr(Stdio::inherit());
    let report = run::output(&mut child)?;
    let mut samples = Vec::new();
    for line in report.lines() {
        let numbers: Vec<f64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
        let [wall_us, cpu_us, peak_kb] = numbers[..] else { bail!("'{line}' is not a measurement") };
        samples.push(Cost { wall_us, cpu_us, peak_kb });
    }
    ensure!(samples.len() == runs, "{} of {runs} measurements came back", samples.len());
    let median = |value: fn(&Cost) -> f64| median(samples.iter().map(value).collect());
    let peak_kb = samples.iter().map(|sample| sample.peak_kb).fold(0.0, f64::max);
    Ok(Cost { wall_us: median(|cost| cost.wall_us), cpu_us: median(|cost| cost.cpu_us), peak_kb })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// The process that measures: runs the command again and again, prints one line for each run.
pub(crate) fn child(args: &[String]) -> Result<ExitCode> {
    let [runs, home, program, rest @ ..] = args else { bail!("{MEASURE} is not for people") };
    let runs: usize = runs.parse().context("the number of runs")?;
    let mut report = String::new();
    for turn in 0..WARM_UP + runs {
        let mut command = Command::new(program);
        command
            .args(rest)
            .env_clear()
            .env("HOME", home)
            .env("TMPDIR", home)
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let before = cpu_us()?;
        let start = Instant::now();
        let output = command.output().with_context(|| format!("cannot run {program}"))?;
        let wall_us = start.elapsed().as_secs_f64() * 1e6;
        let cpu_us = cpu_us()? - before;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{program} {} ended with {}: {}", rest.join(" "), output.status, stderr.trim());
        }
        if turn >= WARM_UP {
            let peak_kb = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss();
            report += &format!("{wall_us} {cpu_us} {peak_kb}\n");
        }
    }
    run::print(&report)?;
    Ok(ExitCode::SUCCESS)
}

/// CPU time, user and system, of all children that were waited for.
fn cpu_us() -> Result<f64> {
    let micros = |time: TimeVal| time.tv_sec() as f64 * 1e6 + time.tv_usec() as f64;
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}
