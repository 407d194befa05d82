//! `cargo xtask test`: provides what the tests need, runs all tests, then lists those that were skipped.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::needs::{self, Consent};
use crate::run;

/// Names the file that skipped tests are appended to, for `testkit::skip`.
const LIST_VARIABLE: &str = "CALIBAN_SKIPPED_TESTS";

/// Runs the tests; all `args` except `--yes` go to the test runner.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (consent, args): (Vec<&String>, Vec<&String>) = args.iter().partition(|arg| *arg == "--yes");
    needs::provide(if consent.is_empty() { Consent::Ask } else { Consent::Given })?;
    // Tests run the programs as a user would, so all of them are built, not only the tested crate's.
    run::must(run::command("cargo").args(["build", "--workspace", "--bins"]))?;

    // Doc tests run first, so that the output ends with the other tests.
    let docs = match args[..] {
        [] => Some(run::status(run::command("cargo").args(["test", "--workspace", "--doc", "--quiet"]))?),
        _ => None,
    };
    let list = empty_list()?;
    let mut tests = run::command("cargo");
    if run::works("cargo", &["nextest", "--version"]) {
        tests.args(["nextest", "run", "--workspace"]);
    } else {
        run::say(
            "cargo-nextest is not here (cargo install cargo-nextest --locked); using cargo test, which is slower \
             and has no time limits",
        );
        tests.args(["test", "--workspace", "--no-fail-fast", "--all-targets"]);
    }
    let tests = run::status(tests.args(args).env(LIST_VARIABLE, &list))?;
    say_skipped(&list)?;
    match docs {
        Some(docs) if tests.success() && !docs.success() => {
            run::say("the examples in the documentation failed, see above");
            Ok(run::code(docs))
        }
        Some(_) | None => Ok(run::code(tests)),
    }
}

/// Creates the empty file that skipped tests are appended to.
fn empty_list() -> Result<PathBuf> {
    let path = run::target_directory()?.join(format!("skipped-tests-{}", std::process::id()));
    fs::write(&path, "").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Prints which tests were skipped, and removes the file.
fn say_skipped(list: &Path) -> Result<()> {
    let text = fs::read_to_string(list).with_context(|| format!("cannot read {}", list.display()))?;
    fs::remove_file(list).with_context(|| format!("cannot remove {}", list.display()))?;
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    if !lines.is_empty() {
        run::say(&format!("skipped, because this machine lacks something:\n  {}", lines.join("\n  ")));
    }
    Ok(())
}
