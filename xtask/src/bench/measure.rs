//! Measuring commands: wall time, CPU time of the whole tree, peak memory.
//!
//! Each subject is measured from a process of its own, because the kernel keeps one peak for all children of a process.
//! The reported peak can never be below the memory of that process itself, which the bare start shows. Compared
//! subjects alternate, so that a change of the machine's load affects all of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use serde_json::{Value, json};

use super::MEASURE;
use crate::run;

/// Number of rounds in which compared subjects alternate.
const ROUNDS: usize = 5;

/// Uncounted runs in each round, which fill the file cache.
const WARM_UP: usize = 1;

/// `PATH` of every subject, after its own directories.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A command to measure, with its whole environment.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    words: Vec<String>,
    dir: PathBuf,
    env: BTreeMap<String, String>,
}

/// Medians (the peak: the highest of all runs).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall_us: f64,
    pub(crate) cpu_us: f64,
    pub(crate) peak_kb: f64,
}

impl Subject {
    /// A program with `home` as its home and working directory, and none of the user's settings.
    pub(crate) fn new(program: impl AsRef<Path>, home: &Path) -> Self {
        let home_text = home.to_string_lossy().into_owned();
        let env = [("HOME", home_text.clone()), ("TMPDIR", home_text), ("PATH", PATH.to_owned())];
        Self {
            words: vec![program.as_ref().to_string_lossy().into_owned()],
            dir: home.to_path_buf(),
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }

    pub(crate) fn args<S: AsRef<str>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.words.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.dir = dir.to_path_buf();
        self
    }

    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Puts a directory first in `PATH`.
    pub(crate) fn path(self, dir: &Path) -> Self {
        let path = format!("{}:{PATH}", dir.display());
        self.env("PATH", path)
    }

    /// The command, without input and output.
    pub(crate) fn command(&self) -> Result<Command> {
        let (program, args) = self.words.split_first().context("nothing to run")?;
        let mut command = Command::new(program);
        command.args(args).env_clear().envs(&self.env).current_dir(&self.dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    fn to_json(&self) -> String {
        json!({"words": self.words, "dir": self.dir, "env": self.env}).to_string()
    }

    fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        Some(Self {
            words: value["words"].as_array()?.iter().filter_map(text).collect(),
            dir: text(&value["dir"])?.into(),
            env: value["env"]
                .as_object()?
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
                .collect(),
        })
    }
}

/// Measures subjects alternately.
pub(crate) fn costs<const N: usize>(subjects: [&Subject; N], runs: usize) -> Result<[Cost; N]> {
    let mut samples: [Vec<Cost>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..ROUNDS.min(runs) {
        for (subject, samples) in subjects.iter().zip(&mut samples) {
            samples.extend(sampled(subject, runs.div_ceil(ROUNDS), WARM_UP)?);
        }
    }
    Ok(samples.map(|samples| summed_up(&samples)))
}

/// One run, without a warm-up.
pub(crate) fn once(subject: &Subject) -> Result<Cost> {
    Ok(summed_up(&sampled(subject, 1, 0)?))
}

/// The median of each kind, and the highest peak.
pub(crate) fn summed_up(samples: &[Cost]) -> Cost {
    let median = |value: fn(&Cost) -> f64| median(samples.iter().map(value).collect());
    let peak_kb = samples.iter().map(|sample| sample.peak_kb).fold(0.0, f64::max);
    Cost { wall_us: median(|cost| cost.wall_us), cpu_us: median(|cost| cost.cpu_us), peak_kb }
}

/// The median; 0 for an empty list.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 0 => (values[middle - 1] + values[middle]) / 2.0,
        _ => values[middle],
    }
}

/// Runs a subject from a process of its own.
fn sampled(subject: &Subject, runs: usize, warm_up: usize) -> Result<Vec<Cost>> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(own);
    child.args([MEASURE, &runs.to_string(), &warm_up.to_string(), &subject.to_json()]);
    child.stdin(Stdio::null()).stderr(Stdio::inherit());
    let report = run::output(&mut child)?;
    let mut samples = Vec::new();
    for line in report.lines() {
        let numbers: Vec<f64> = line.split(' ').map_while(|number| number.parse().ok()).collect();
        let [wall_us, cpu_us, peak_kb] = numbers[..] else { bail!("'{line}' is not a measurement") };
        samples.push(Cost { wall_us, cpu_us, peak_kb });
    }
    ensure!(samples.len() == runs, "{} of {runs} measurements came back", samples.len());
    Ok(samples)
}

/// The measuring process: runs the command repeatedly, and prints one line for each run.
pub(crate) fn child(args: &[String]) -> Result<ExitCode> {
    let [runs, warm_up, subject] = args else { bail!("{MEASURE} is not for people") };
    let runs: usize = runs.parse().context("the number of runs")?;
    let warm_up: usize = warm_up.parse().context("the number of warm-ups")?;
    let subject = Subject::from_json(subject).context("the subject")?;
    let mut report = String::new();
    for turn in 0..warm_up + runs {
        let mut command = subject.command()?;
        command.stderr(Stdio::piped());
        let before = cpu_us()?;
        let start = Instant::now();
        let output = command.output().with_context(|| format!("cannot run {}", subject.words[0]))?;
        let wall_us = start.elapsed().as_secs_f64() * 1e6;
        let cpu_us = cpu_us()? - before;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{} ended with {}: {}", subject.words.join(" "), output.status, stderr.trim());
        }
        if turn >= warm_up {
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
