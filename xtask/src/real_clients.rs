//! `cargo xtask real-clients`: the pane tests with the real Claude Code and Codex, without network access except for
//! npm.
//!
//! npm runs under node 22, which these packages require; the model is ours, on loopback. The last output is
//! `docs/real-clients.md`.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::run;

/// The npm packages, and the program of each that prints its version.
const CLIENTS: [(&str, &str); 2] = [("@anthropic-ai/claude-code", "claude"), ("@openai/codex", "codex")];

/// Installs the programs, runs the tests, writes the page.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    ensure!(args.is_empty(), "real-clients takes no arguments");
    let place = run::target_directory()?.join("real-clients");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let bin = place.join("node_modules/.bin");
    #[expect(clippy::disallowed_methods, reason = "npm is run under another node than the machine's")]
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    if !CLIENTS.iter().all(|(_, program)| bin.join(program).exists()) {
        let npm = |packages: &[&str]| {
            let mut command = run::command("npm");
            command.args(["install", "--no-audit", "--no-fund"]).args(packages);
            run::must(command.current_dir(&place).env("PATH", &path))
        };
        fs::write(place.join("package.json"), "{\"private\":true}\n").context("cannot write package.json")?;
        npm(&["node@22"])?;
        let packages: Vec<&str> = CLIENTS.iter().map(|(package, _)| *package).collect();
        npm(&packages)?;
    }
    let mut versions = Vec::new();
    for (package, program) in CLIENTS {
        let said = run::output(run::command(program).arg("--version").env("PATH", &path))?;
        versions.push(format!("| `{package}` | {} |", said.trim()));
    }
    let tmux = run::output(run::command("tmux").arg("-V"))?;
    versions.push(format!("| tmux | {} |", tmux.trim()));
    let mut tests = run::command("cargo");
    tests.args(["test", "-p", "cafleet", "--test", "it", "--", "real_agents::", "--test-threads=1"]);
    tests.env("PATH", &path);
    run::say("$ cargo test -p cafleet --test it -- real_agents::");
    let output = tests.output().context("cannot run cargo test")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    run::print(&said)?;
    if !output.status.success() {
        run::say(&String::from_utf8_lossy(&output.stderr));
        return Ok(ExitCode::FAILURE);
    }
    write_page(&run::root().join("docs/real-clients.md"), &versions, &said)?;
    Ok(ExitCode::SUCCESS)
}

/// The page: which programs, and which tests passed.
fn write_page(page: &Path, versions: &[String], said: &str) -> Result<()> {
    let results: Vec<&str> = said.lines().filter(|line| line.starts_with("test ")).collect();
    let text = format!(
        "# Real clients\n\nWritten by `cargo xtask real-clients`: the tests of `crates/cafleet/tests/it/real_agents.rs` with the \
         programs from npm, each\nin a tmux pane, with a model server of the test's own on loopback. A program goes through a held \
         start, a message, a draft,\na search field (Ctrl+R), a permission dialog, and then leads a member of its own kind: a \
         message, `member exec`,\n`member delete`. One Claude Code leads a mixed team: a claude, a codex and a caliban. Nothing may \
         be typed into draft,\nsearch or dialog, and every message must be confirmed by evidence.\n\n| program | version |\n|---|---|\n{}\n\n```\n{}\n```\n",
        versions.join("\n"),
        results.join("\n")
    );
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}
