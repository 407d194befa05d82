//! `cargo xtask bench`: what our commands cost, relative to a reference that is measured in the same run.
//!
//! Only ratios within one run are meaningful: the machine, its load and its caches are the same for both sides. One
//! file per benchmark; each says what it runs, what its ratios refer to and what it is allowed to cost. Numbers are
//! printed, never asserted; a benchmark fails only when a command does.

mod broker;
mod broker_http;
mod broker_load;
mod capture;
mod commit;
mod fence;
mod fleet;
mod fleet_memory;
mod fleet_model;
mod fleet_place;
mod fleet_rows;
mod fleet_thousand;
mod gateway;
mod help;
mod ledger;
pub(crate) mod measure;
mod pages;
mod pages_browser;
mod pages_pressure;
mod removal;
mod repo;
mod request;
mod rivals;
mod server;
mod table;
mod team;
mod tool_turn;
mod tui;
mod turn;
mod version;
mod worktree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use measure::Subject;
use table::Table;

use crate::run;

/// The hidden verb of the process that measures one subject.
pub(crate) const MEASURE: &str = "bench-measure";

/// Default number of runs of each subject.
const RUNS: usize = 40;

/// The programs that ship.
const PROGRAMS: [&str; 6] = ["-p", "caliban", "-p", "caliban-supervisor", "-p", "cafleet"];

/// The examples that benchmarks need.
const EXAMPLES: [(&str, &str); 6] = [
    ("testkit", "model-server"),
    ("testkit", "browser"),
    ("caliban-worktrees", "create"),
    ("caliban-store", "commit"),
    ("caliban-store", "ledger"),
    ("caliban-keeper", "start"),
];

/// A benchmark.
struct Bench {
    /// Its name on the command line.
    name: &'static str,
    /// What it runs, and what its ratios refer to.
    what: &'static str,
    /// Runs the measurement.
    run: fn(&Bed) -> Result<Table>,
}

const BENCHES: [Bench; 17] = [
    version::BENCH,
    help::BENCH,
    turn::BENCH,
    tool_turn::BENCH,
    fence::BENCH,
    request::BENCH,
    worktree::BENCH,
    removal::BENCH,
    broker::BENCH,
    broker_load::BENCH,
    broker_http::BENCH,
    team::BENCH,
    pages::BENCH,
    ledger::BENCH,
    gateway::BENCH,
    fleet::BENCH,
    tui::BENCH,
];

/// The environment of benchmarks.
struct Bed {
    /// The directory of the programs; their examples are in `examples` below.
    programs: PathBuf,
    /// A temporary directory, removed at the end.
    scratch: PathBuf,
    /// A permanent directory, for data that takes long to make.
    cache: PathBuf,
    /// Number of runs of each subject.
    runs: usize,
}

impl Bed {
    fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    fn example(&self, name: &str) -> Result<PathBuf> {
        let path = self.programs.join("examples").join(name);
        ensure!(path.is_file(), "there is no {}; build it, or leave --bin-dir away", path.display());
        Ok(path)
    }

    /// A new directory with this name.
    fn dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.scratch.join(name);
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(dir)
    }

    /// The bare process start that is the reference for others.
    fn bare(&self) -> Subject {
        Subject::new("true", &self.scratch)
    }
}

struct BenchOptions {
    names: Vec<String>,
    runs: usize,
    bin_dir: Option<PathBuf>,
}

/// Measures and prints tables.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let options = parse(args)?;
    let target = run::target_directory()?;
    let programs = match options.bin_dir {
        Some(dir) => dir.canonicalize().with_context(|| format!("no programs in {}", dir.display()))?,
        None => build(&target)?,
    };
    let cache = target.join("bench");
    let scratch = cache.join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
    let bed = Bed { programs, scratch, cache, runs: options.runs };
    let chosen = BENCHES
        .iter()
        .filter(|bench| options.names.is_empty() || options.names.iter().any(|name| name == bench.name));
    let measured = all(chosen, &bed);
    std::fs::remove_dir_all(&bed.scratch)
        .with_context(|| format!("cannot remove {}", bed.scratch.display()))?;
    measured?;
    Ok(ExitCode::SUCCESS)
}

/// Prints each table as soon as it is complete.
fn all<'a>(benches: impl Iterator<Item = &'a Bench>, bed: &Bed) -> Result<()> {
    run::print(&format!("medians of {} runs; ratios are to what was measured in the same run\n", bed.runs))?;
    for bench in benches {
        run::say(&format!("measuring {}", bench.name));
        let table = (bench.run)(bed).with_context(|| format!("benchmark {}", bench.name))?;
        run::print(&format!("\n{}", table.text(bench.name, bench.what)))?;
    }
    Ok(())
}

/// Builds the programs as they ship, then the examples that measure them; returns the directory.
fn build(target: &Path) -> Result<PathBuf> {
    run::must(run::command("cargo").args(["build", "--release", "--bins"]).args(PROGRAMS))?;
    // Built separately: the dependencies of an example must not change how a program is built.
    for (package, example) in EXAMPLES {
        run::must(run::command("cargo").args(["build", "--release", "-p", package, "--example", example]))?;
    }
    Ok(target.join("release"))
}

fn parse(args: &[String]) -> Result<BenchOptions> {
    let mut options = BenchOptions { names: Vec::new(), runs: RUNS, bin_dir: None };
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
