//! `cargo xtask soak`: the long version of the tests that kill the daemon: under load (r01), at every write (r02), and
//! with many agents that must survive it (r03); and of the generated command lines and of the adversary for the fence (a17).
//!
//! `cargo xtask soak ledger` is the long version of the callers that share one limit (r20). `cargo xtask soak members`
//! is the long version of the chaos test in panes (m08), `cargo xtask soak fence` that of the fence alone. With `--sequences N`
//! it is the adversary alone, from the number after `--seed` on; `--holes N` goes on until so many sequences had an effect.
//!
//! These are the tests of the ordinary run with larger numbers; the seed is printed and reproduces the same choices.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::run;

/// Default number of times that the daemon is killed.
const KILLS: &str = "1000";
/// Number of agents that must survive.
const AGENTS: &str = "1000";
/// Number of writes of a spawn at which the daemon is killed; a whole run has fewer.
const BOUNDARIES: &str = "80";

/// Number of generated command lines for the fence, in all modes together.
const LINES: &str = "100000";
/// Number of sequences of the adversary, in all modes together.
const SEQUENCES: &str = "20000";

/// Number of callers that spend from one limit, and number of times that one of their processes is killed.
const CALLERS: &str = "1000";
const LEDGER_KILLS: &str = "50";

/// Runs the soak.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    if let [what] = args
        && what == "members"
    {
        let mut command = run::command("cargo");
        command.args(["test", "-p", "cafleet", "--test", "it", "--"]);
        command.args(["m08_a_thousand_deliveries_in_chaos", "--ignored", "--nocapture"]);
        return Ok(run::code(run::status(&mut command)?));
    }
    if let [what] = args
        && what == "ledger"
    {
        run::must(run::command("cargo").args(["build", "--workspace", "--bins"]))?;
        let mut command = run::command("cargo");
        command.args(["test", "-p", "caliban", "--test", "it", "--", "callers::", "--nocapture"]);
        command.env("CALIBAN_SOAK_CALLERS", CALLERS).env("CALIBAN_SOAK_KILLS", LEDGER_KILLS);
        return Ok(run::code(run::status(&mut command)?));
    }
    let only_fence = args.first().is_some_and(|what| what == "fence");
    let (mut kills, mut agents, mut lines) = (KILLS.to_owned(), AGENTS.to_owned(), LINES.to_owned());
    let (mut seed, mut sequences, mut holes) = (None, None, "1".to_owned());
    let mut args = args.iter().skip(usize::from(only_fence));
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--kills", Some(value)) => kills.clone_from(value),
            ("--agents", Some(value)) => agents.clone_from(value),
            ("--lines", Some(value)) => lines.clone_from(value),
            ("--sequences", Some(value)) => sequences = Some(value.clone()),
            ("--holes", Some(value)) => holes.clone_from(value),
            ("--seed", Some(value)) => seed = Some(value.clone()),
            (other, _) => bail!(
                "expected fence, ledger or members, --kills N, --agents N, --lines N, --sequences N, --holes N or --seed N, \
                 found {other}"
            ),
        }
    }
    run::must(run::command("cargo").args(["build", "--workspace", "--bins"]))?;
    let mut command = run::command("cargo");
    // Not nextest, which has a time limit. Sequentially, so that each test has the whole machine.
    command.args(["test", "-p", "caliban-supervisor", "--test", "it", "--"]);
    command.args(["r01_", "r02_", "r03_", "--nocapture", "--test-threads=1"]);
    command.env("CALIBAN_SOAK_KILLS", kills).env("CALIBAN_SOAK_AGENTS", agents);
    command.env("CALIBAN_SOAK_BOUNDARIES", BOUNDARIES);
    let mut fence = run::command("cargo");
    fence.args(["test", "-p", "caliban", "--test", "it", "--"]);
    fence.args(["a17_no_generated_line_in_bulk", "--nocapture"]).env("CALIBAN_SOAK_LINES", lines);
    let mut adversary = run::command("cargo");
    adversary.args(["test", "-p", "caliban", "--test", "it", "--"]);
    adversary.args(["a18_no_sequence_of_an_adversary", "--nocapture", "--test-threads=2"]);
    adversary.env("CALIBAN_SOAK_SEQUENCES", sequences.as_deref().unwrap_or(SEQUENCES));
    adversary.env("CALIBAN_SOAK_HOLES", holes);
    if let Some(seed) = seed {
        command.env("CALIBAN_SOAK_SEED", &seed);
        fence.env("CALIBAN_SOAK_SEED", &seed);
        adversary.env("CALIBAN_SOAK_SEED", seed);
    }
    if !only_fence {
        run::must(&mut command)?;
    }
    if sequences.is_none() {
        run::must(&mut fence)?;
    }
    Ok(run::code(run::status(&mut adversary)?))
}
