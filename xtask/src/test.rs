//! `cargo xtask test`: everything that tests need, then all tests.

use std::process::ExitCode;

use anyhow::Result;

use crate::{needs, run};

/// Runs the tests; `args` go to the runner.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    needs::provide()?;
    // Tests run the programs as a user would, so all of them are built, not only the tested crate's.
    run::must(run::command("cargo").args(["build", "--workspace", "--bins"]))?;

    // Before the others, so that the runner's closing lines are the last ones.
    let docs = match args {
        [] => Some(run::status(run::command("cargo").args(["test", "--workspace", "--doc", "--quiet"]))?),
        _ => None,
    };
    let tests = if run::works("cargo", &["nextest", "--version"]) {
        run::status(run::command("cargo").args(["nextest", "run", "--workspace"]).args(args))?
    } else {
        run::say(
            "cargo-nextest is not here (cargo install cargo-nextest --locked); using cargo test, which is slower \
             and has no time limits",
        );
        run::status(
            run::command("cargo").args(["test", "--workspace", "--no-fail-fast", "--all-targets"]).args(args),
        )?
    };
    match docs {
        Some(docs) if tests.success() && !docs.success() => {
            run::say("the examples in the documentation failed, see above");
            Ok(run::code(docs))
        }
        Some(_) | None => Ok(run::code(tests)),
    }
}
