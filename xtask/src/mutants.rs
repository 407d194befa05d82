//! `cargo xtask mutants`: small changes to the code (mutants) that no test notices.
//!
//! `cargo-mutants` makes the changes in a copy of the tree and runs the tests of the crate; this command judges the
//! result. At least [`ENOUGH`] percent of a crate's mutants must be killed, and each survivor must be listed in
//! `xtask/mutants.toml` with a reason. A run is bounded in time and can be split into shards; each shard is judged by
//! itself.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::{made_mutants, run};

/// The known survivors: by crate, by mutant, the reason.
const KNOWN: &str = "xtask/mutants.toml";
/// The percentage of mutants that the tests must kill.
const ENOUGH: usize = 95;
/// Default time limit of a run.
const MINUTES: u64 = 20;
/// Time limit of the tests for one mutant, in seconds. A mutant that makes them hang counts as killed.
const TIMEOUT: &str = "60";
/// Variables that speed up a mutant: it is built for a single run of the tests, and a property test needs few cases to
/// detect it.
const QUICK: [(&str, &str); 4] = [
    ("CARGO_INCREMENTAL", "1"),
    ("CARGO_PROFILE_DEV_DEBUG", "0"),
    ("CARGO_PROFILE_TEST_DEBUG", "0"),
    ("PROPTEST_CASES", "32"),
];
/// Grace period of an interrupted run.
const GRACE: Duration = Duration::from_secs(20);
/// The interval at which a run is checked for its end.
const LOOK: Duration = Duration::from_millis(200);

/// A crate whose mutants must be killed by its own tests.
struct MutantsTarget {
    package: &'static str,
    /// The only file that counts; all of the crate's files if none is named.
    file: Option<&'static str>,
    /// The tests to run; doc tests are slow and kill no mutants.
    tests: &'static [&'static str],
}

const TARGETS: [MutantsTarget; 6] = [
    MutantsTarget { package: "caliban-core", file: None, tests: &["--lib", "--tests"] },
    MutantsTarget { package: "caliban-permissions", file: None, tests: &["--lib", "--tests"] },
    MutantsTarget { package: "caliban-rooted", file: None, tests: &["--lib", "--tests"] },
    MutantsTarget {
        package: "caliban-fence",
        file: Some("crates/caliban-fence/src/mounts.rs"),
        tests: &["--lib", "--tests"],
    },
    MutantsTarget { package: "caliban-store", file: None, tests: &["--lib", "--tests"] },
    MutantsTarget {
        package: "caliban-fleet",
        file: Some("crates/caliban-fleet/src/decide.rs"),
        tests: &["--lib", "decide"],
    },
];

/// The command line.
struct MutantsRequest {
    targets: Vec<&'static MutantsTarget>,
    shard: Option<String>,
    files: Vec<String>,
    limit: Duration,
}

/// The result of a crate's mutants. One that does not compile is not counted.
#[derive(Debug, Default)]
struct MutantsOutcome {
    killed: usize,
    survivors: Vec<String>,
    is_whole: bool,
}

/// Runs the mutants of the crates, one crate after the other.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    if let [what, rest @ ..] = args
        && what == "resolver"
    {
        return made_mutants::run(rest);
    }
    let request = read(args)?;
    let tool = tool()?;
    let known = fs::read_to_string(run::root().join(KNOWN)).with_context(|| KNOWN)?;
    let known: toml::Table = known.parse().with_context(|| KNOWN)?;
    let deadline = Instant::now() + request.limit;
    let mut is_good = true;
    for target in &request.targets {
        let outcome = mutate(&tool, &request, target, deadline)?;
        let reasons = known.get(target.package).and_then(|crates| crates.as_table());
        let (said, good) = judge(target.package, &outcome, |mutant| {
            reasons.is_some_and(|reasons| reasons.contains_key(mutant))
        });
        run::print(&said)?;
        is_good &= good;
    }
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(args: &[String]) -> Result<MutantsRequest> {
    let mut request = MutantsRequest {
        targets: Vec::new(),
        shard: None,
        files: Vec::new(),
        limit: Duration::from_secs(MINUTES * 60),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if let Some(target) = TARGETS.iter().find(|target| target.package == arg) {
            request.targets.push(target);
            continue;
        }
        match (arg.as_str(), args.next()) {
            ("--shard", Some(value)) => request.shard = Some(value.clone()),
            ("--file", Some(value)) => request.files.push(value.clone()),
            ("--minutes", Some(value)) => {
                request.limit =
                    Duration::from_secs(value.parse::<u64>().context("--minutes")?.saturating_mul(60));
            }
            (other, _) => {
                let names: Vec<&str> = TARGETS.iter().map(|target| target.package).collect();
                bail!(
                    "expected resolver, {}, --shard K/N, --file GLOB or --minutes N, found {other}",
                    names.join(", ")
                );
            }
        }
    }
    if request.targets.is_empty() {
        request.targets = TARGETS.iter().collect();
    }
    Ok(request)
}

/// `cargo-mutants`, installed below the target directory if it is missing.
fn tool() -> Result<PathBuf> {
    if run::works("cargo-mutants", &["mutants", "--version"]) {
        return Ok("cargo-mutants".into());
    }
    let root = run::target_directory()?.join("tools");
    let program = root.join("bin/cargo-mutants");
    if !program.is_file() {
        run::must(run::command("cargo").args(["install", "cargo-mutants", "--locked", "--root"]).arg(&root))?;
    }
    Ok(program)
}

fn mutate(
    tool: &Path,
    request: &MutantsRequest,
    target: &MutantsTarget,
    deadline: Instant,
) -> Result<MutantsOutcome> {
    let place = run::target_directory()?.join("mutants");
    let output = place.join(target.package);
    // Results of an earlier run must not be counted.
    if output.exists() {
        fs::remove_dir_all(&output).with_context(|| output.display().to_string())?;
    }
    fs::create_dir_all(&output).with_context(|| output.display().to_string())?;
    let mut command = run::command("nice");
    command.args(["-n", "19"]).arg(tool).args(["mutants", "--package", target.package, "--jobs", "1"]);
    command.args(["--cap-lints", "true", "--timeout", TIMEOUT, "--no-shuffle", "--output"]).arg(&output);
    let files = target.file.into_iter().chain(request.files.iter().map(String::as_str));
    command.args(files.flat_map(|file| ["--file", file]));
    // Every N-th mutant, so that a shard is representative of the whole crate.
    let shard = |shard| ["--sharding", "round-robin", "--shard", shard];
    command.args(request.shard.iter().flat_map(|name| shard(name.as_str())));
    command.arg("--").args(target.tests);
    // The copies share this target directory, so that the next run finds the dependencies.
    command.env("CARGO_TARGET_DIR", place.join("target")).envs(QUICK);
    let is_whole = run_until(&mut command, deadline)?;
    let lines = |name: &str| -> Vec<String> {
        let text = fs::read_to_string(output.join("mutants.out").join(name)).unwrap_or_default();
        text.lines().map(without_place).collect()
    };
    Ok(MutantsOutcome {
        killed: lines("caught.txt").len() + lines("timeout.txt").len(),
        survivors: lines("missed.txt"),
        is_whole: is_whole && request.shard.is_none() && request.files.is_empty(),
    })
}

/// Runs a command to its end or to the deadline; returns whether it reached its end.
fn run_until(command: &mut Command, deadline: Instant) -> Result<bool> {
    let mut child = command.process_group(0).spawn().context("cannot run cargo-mutants")?;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            // 2: some mutants survived. 3: some timed out. 4: the tests fail without any change.
            ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo-mutants ended with {status}");
            return Ok(true);
        }
        std::thread::sleep(LOOK);
    }
    end(&mut child)?;
    Ok(false)
}

/// Ends a run with all of its processes.
fn end(child: &mut Child) -> Result<()> {
    let group = Pid::from_raw(i32::try_from(child.id())?);
    let give_up = Instant::now() + GRACE;
    killpg(group, Signal::SIGINT)?;
    while child.try_wait()?.is_none() {
        if Instant::now() >= give_up {
            killpg(group, Signal::SIGKILL)?;
            child.wait()?;
            break;
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// `crates/x/src/y.rs:12:3: replace …` without line and column, which change with every edit.
fn without_place(line: &str) -> String {
    let mut parts = line.splitn(4, ':');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(file), Some(_), Some(_), Some(what)) => format!("{file}:{what}"),
        _ => line.to_owned(),
    }
}

/// The text printed about a crate, and whether it passes.
fn judge(package: &str, outcome: &MutantsOutcome, is_known: impl Fn(&str) -> bool) -> (String, bool) {
    let (killed, survived) = (outcome.killed, outcome.survivors.len());
    let all = killed + survived;
    let unknown: Vec<&String> = outcome.survivors.iter().filter(|mutant| !is_known(mutant)).collect();
    let is_enough = killed * 100 >= all * ENOUGH && all > 0;
    let percent = (killed * 1000).checked_div(all).unwrap_or(0);
    let mut said = format!(
        "{package}: {killed} of {all} killed ({}.{} %), {survived} survived, {} without a reason in {KNOWN}{}\n",
        percent / 10,
        percent % 10,
        unknown.len(),
        if outcome.is_whole { "" } else { "; a part of the crate only" }
    );
    for mutant in &unknown {
        said += &format!("  {mutant}\n");
    }
    (said, is_enough && unknown.is_empty())
}
