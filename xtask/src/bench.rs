//! `cargo xtask bench`: how much more than a bare process start a command costs.
//!
//! Only ratios within one run mean anything: the machine, its load and its caches are the same for both sides.
//! One file per benchmark; each says what it runs and what it is allowed to cost.

mod help;
pub(crate) mod measure;
mod turn;
mod version;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use measure::{Cost, Subject};
use serde_json::Value;

use crate::run;

/// The hidden verb of the process that measures one subject.
pub(crate) const MEASURE: &str = "bench-measure";

/// How often each subject is run, when nobody says.
const RUNS: usize = 40;

/// A benchmark.
struct Bench {
    /// Its name on the command line.
    name: &'static str,
    /// What it runs, given the directory of the programs and a directory for its files.
    subject: fn(&Path, &Path) -> Subject,
    /// How many times the CPU time of a bare process start it may take; `None` where nothing is promised.
    at_most: Option<f64>,
}

const BENCHES: [Bench; 3] = [version::BENCH, help::BENCH, turn::BENCH];

struct Options {
    names: Vec<String>,
    runs: usize,
    bin_dir: Option<PathBuf>,
}

/// Measures and prints a table.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let options = parse(args)?;
    let chosen = BENCHES
        .iter()
        .filter(|bench| options.names.is_empty() || options.names.iter().any(|name| name == bench.name));
    let programs = match options.bin_dir {
        Some(dir) => dir.canonicalize().with_context(|| format!("no programs in {}", dir.display()))?,
        None => build()?,
    };
    let scratch = std::env::temp_dir().join(format!("caliban-bench-{}", std::process::id()));
    std::fs::create_dir(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let table = table(chosen, &programs, &scratch, options.runs);
    std::fs::remove_dir_all(&scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    run::print(&table?)?;
    Ok(ExitCode::SUCCESS)
}

fn table<'a>(
    benches: impl Iterator<Item = &'a Bench>,
    programs: &Path,
    scratch: &Path,
    runs: usize,
) -> Result<String> {
    let base = measure::cost(&Subject::new("true", scratch), runs)?;
    let mut text = format!("medians of {runs} runs; × is against the bare process start of this run\n\n");
    text += &format!("{:12} {:>18} {:>18} {:>18}  at most\n", "", "wall", "cpu", "peak memory");
    text += &row("bare start", base, base, "");
    for bench in benches {
        run::say(&format!("measuring {}", bench.name));
        let cost = measure::cost(&(bench.subject)(programs, scratch), runs)
            .with_context(|| format!("benchmark {}", bench.name))?;
        let verdict = match bench.at_most {
            Some(limit) if ratio(cost.cpu_us, base.cpu_us) > limit => format!("{limit}× cpu, OVER"),
            Some(limit) => format!("{limit}× cpu, held"),
            None => String::new(),
        };
        text += &row(bench.name, cost, base, &verdict);
    }
    Ok(text)
}

fn row(name: &str, cost: Cost, base: Cost, verdict: &str) -> String {
    let cell = |value: String, value_of: fn(&Cost) -> f64| {
        format!("{:>18}", format!("{value} {:5.1}×", value_of(&cost) / value_of(&base).max(1.0)))
    };
    let row = format!(
        "{name:12} {} {} {}  {verdict}",
        cell(format!("{:.2} ms", cost.wall_us / 1_000.0), |cost| cost.wall_us),
        cell(format!("{:.2} ms", cost.cpu_us / 1_000.0), |cost| cost.cpu_us),
        cell(format!("{:.1} MB", cost.peak_kb / 1_024.0), |cost| cost.peak_kb),
    );
    row.trim_end().to_owned() + "\n"
}

fn ratio(value: f64, base: f64) -> f64 {
    value / base.max(1.0)
}

/// Builds the programs as they ship; where they are.
fn build() -> Result<PathBuf> {
    run::must(run::command("cargo").args(["build", "--release", "--workspace", "--bins"]))?;
    let metadata =
        run::output(run::command("cargo").args(["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata is not JSON")?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(Path::new(target).join("release"))
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options { names: Vec::new(), runs: RUNS, bin_dir: None };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--runs" => {
                options.runs = args.next().and_then(|n| n.parse().ok()).context("--runs needs a number")?;
                ensure!(options.runs > 0, "--runs needs at least 1");
            }
            "--bin-dir" => {
                options.bin_dir =
                    Some(args.next().map(PathBuf::from).context("--bin-dir needs a directory")?);
            }
            name if BENCHES.iter().any(|bench| bench.name == name) => options.names.push(name.to_owned()),
            other => {
                let names: Vec<&str> = BENCHES.iter().map(|bench| bench.name).collect();
                bail!("there is no benchmark '{other}', only: {}", names.join(", "));
            }
        }
    }
    Ok(options)
}
