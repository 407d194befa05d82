//! `cargo xtask soak`: the long version of the tests that kill the daemon under load.
//!
//! The same test as in the ordinary run, with a thousand kills; the seed is printed, and the same seed is the same run.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::run;

/// How often the daemon is killed when nobody says.
const KILLS: &str = "1000";

/// Runs the soak.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (mut kills, mut seed) = (KILLS.to_owned(), None);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--kills", Some(value)) => kills.clone_from(value),
            ("--seed", Some(value)) => seed = Some(value.clone()),
            (other, _) => bail!("expected --kills N or --seed N, found {other}"),
        }
    }
    run::must(run::command("cargo").args(["build", "--workspace", "--bins"]))?;
    let mut command = run::command("cargo");
    // Not nextest: this test takes as long as it takes.
    command.args(["test", "-p", "caliban-supervisor", "--test", "it", "r01_", "--", "--nocapture"]);
    command.env("CALIBAN_SOAK_KILLS", kills);
    if let Some(seed) = seed {
        command.env("CALIBAN_SOAK_SEED", seed);
    }
    Ok(run::code(run::status(&mut command)?))
}
