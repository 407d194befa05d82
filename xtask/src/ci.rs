//! `cargo xtask ci`: what the server does, here. The steps are in `.ci/run` and nowhere else.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::run;

/// Runs `.ci/run`.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    ensure!(args.is_empty(), "ci takes no arguments");
    Ok(run::code(run::status(&mut run::command("./.ci/run"))?))
}
