//! `cargo xtask ci`: runs what the CI server runs. The steps are in `.ci/run` only.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::run;

/// Runs `.ci/run`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    ensure!(args.is_empty(), "ci takes no arguments");
    Ok(run::code(run::status(&mut run::command("./.ci/run"))?))
}
