//! The project's own commands: `cargo xtask test | bench | soak | real-clients | promises | mutants | lines | vendor | ci`.
//!
//! Owns what a newcomer needs to see all tests pass. Nothing that ships depends on it.

mod bench;
mod ci;
mod lines;
mod made_mutants;
mod mutants;
mod needs;
mod promises;
mod real_clients;
mod run;
mod soak;
mod test;
mod vendor;

use std::process::ExitCode;

use anyhow::Result;

const USAGE: &str = "\
cargo xtask test [ARGS…]   builds the programs and runs all tests; ARGS go to the test runner (a filter: f05).
                           Installs the packages that the tests need (Debian, as root; asks on a terminal) or names them
    --yes                  does not ask
cargo xtask bench [NAME…]  measures the release programs beside something of the same run, and prints ratios:
                           version, help, turn, tool-turn, request, worktree, broker, broker-load, ledger,
                           gateway, fleet, tui
    --runs N               how often each is run (default 40)
    --bin-dir DIR          measures programs that are built already
cargo xtask soak           kills the daemon 1,000 times under load, at every write of a spawn, and with 1,000 agents
                           that live; checks that nothing is lost or doubled
    --kills N --agents N   other numbers
    --seed N               the seed that a run has printed
cargo xtask soak fence     100,000 command lines with effects and 20,000 sequences of an adversary: nothing outside changes
    --sequences N          the adversary alone, so many, from the number after --seed on
    --holes N              goes on until so many sequences had an effect (default 1)
cargo xtask soak ledger    1,000 callers and one limit, while 50 gateways, daemons and workers are killed: it holds, nothing is lost
cargo xtask soak members   1,000 messages into panes whose agents do what they like: none lost, doubled or executed
cargo xtask real-clients   runs the pane tests with the real Claude Code and Codex (npm), and writes docs/real-clients.md
cargo xtask promises       checks docs/promises.md and prints which tests hold each promise
    --write                writes the page's lists of test files
cargo xtask mutants [CRATE…]  changes the code in small ways and counts the changes that no test notices (cargo-mutants);
                           fails below 95 %: caliban-core, caliban-permissions, caliban-rooted, caliban-fence,
                           caliban-store, caliban-supervisor
    --shard K/N            only that part of the changes
    --file GLOB            only the changes of these files
    --minutes N            stops after so long (default 20)
cargo xtask mutants resolver  the mistakes of xtask/made-mutants.toml in the fence's look-ups: each has to be noticed
    --only WORDS           only those whose name has these words
    --judge WORDS          asks only the adversary, the fence or the crates
    --minutes N            begins none after so long (default 60)
cargo xtask lines [COMMIT]  lines of code by crate, without comments, blank lines and tests; beside those of a commit
cargo xtask vendor         checks the libraries of the pages against their hashes
    --from DIR             takes them anew out of the npm tarballs in DIR
cargo xtask ci             what the server does: .ci/run
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(code) => code,
        Err(error) => {
            run::say(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: &[String]) -> Result<ExitCode> {
    let Some((verb, rest)) = args.split_first() else {
        run::say(USAGE);
        return Ok(ExitCode::from(2));
    };
    match verb.as_str() {
        "test" => test::run(rest),
        "bench" => bench::run(rest),
        bench::MEASURE => bench::measure::child(rest),
        "soak" => soak::run(rest),
        "promises" => promises::run(rest),
        "real-clients" => real_clients::run(rest),
        "mutants" => mutants::run(rest),
        "lines" => lines::run(rest),
        "vendor" => vendor::run(rest),
        "ci" => ci::run(rest),
        "help" | "--help" | "-h" => {
            run::print(USAGE)?;
            Ok(ExitCode::SUCCESS)
        }
        other => anyhow::bail!("there is no '{other}'\n\n{USAGE}"),
    }
}
