//! `cargo xtask mutants resolver`: mutants that are made by hand, because `cargo-mutants` does not think of them: a flag that is left
//! out of a look-up, a path that is used again, a comparison that is skipped.
//!
//! Each is a row of `xtask/made-mutants.toml` and is made in a copy of the tree. The adversary of the fence (a17) is to notice it;
//! what it does not notice, because something else holds as well, the fence's tests or the crates' own have to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::run;

/// The rows.
const ROWS: &str = "xtask/made-mutants.toml";
/// Default time limit; no mutant is begun later.
const MINUTES: u64 = 60;
/// Who is asked: in words, the packages, the tests.
type MutantsJudge = (&'static str, &'static [&'static str], &'static str);
/// One after the other.
const JUDGES: [MutantsJudge; 3] = [
    ("the adversary", &["caliban"], "test(a18_no_sequence_of_an_adversary)"),
    (
        "the fence's tests",
        &["caliban"],
        "test(/^fence::(links|swapped|git_files|denials|special_projects)::/)",
    ),
    (
        "the crates' tests",
        &["caliban-rooted", "caliban-fence", "caliban-permissions", "caliban-tools", "caliban-worktrees"],
        "all()",
    ),
];

/// A change to one file.
struct MadeMutant {
    name: String,
    file: String,
    old: String,
    new: String,
}

impl MadeMutant {
    /// The file with the change.
    fn made(&self, text: &str) -> Result<String> {
        let found = text.matches(&self.old).count();
        ensure!(found == 1, "{ROWS}: \"{}\": its old text occurs {found} times in {}", self.name, self.file);
        Ok(text.replacen(&self.old, &self.new, 1))
    }
}

/// A copy of the tree, with a target directory of its own.
struct TreeCopy {
    tree: PathBuf,
    target: PathBuf,
}

/// Makes all mutants whose names contain the words that are given, one after the other.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (mut limit, mut wanted, mut judge) =
        (Duration::from_secs(MINUTES * 60), String::new(), String::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match (arg.as_str(), args.next()) {
            ("--minutes", Some(value)) => {
                limit = Duration::from_secs(value.parse::<u64>().context("--minutes")?.saturating_mul(60));
            }
            ("--only", Some(words)) => wanted.clone_from(words),
            ("--judge", Some(words)) => judge.clone_from(words),
            (other, _) => bail!("expected --minutes N, --only WORDS or --judge WORDS, found {other}"),
        }
    }
    let deadline = Instant::now() + limit;
    let rows = rows()?;
    let copy = TreeCopy::new()?;
    let judges: Vec<_> = JUDGES.into_iter().filter(|(who, ..)| who.contains(&judge)).collect();
    for (who, packages, tests) in &judges {
        ensure!(copy.passes(packages, tests)?, "{who} find something in the unchanged tree");
    }
    let (mut survivors, mut judged) = (0, 0);
    for mutant in rows.iter().filter(|mutant| mutant.name.contains(&wanted)) {
        if Instant::now() >= deadline {
            run::print(&format!("not made, for want of time: {}\n", mutant.name))?;
            survivors += 1;
            continue;
        }
        let killer = copy.judge(mutant, &judges)?;
        judged += 1;
        survivors += usize::from(killer.is_none());
        run::print(&format!(
            "{}: {}\n",
            mutant.name,
            killer.map_or("survived".to_owned(), |who| format!("killed by {who}"))
        ))?;
    }
    run::print(&format!("resolver: {judged} mutants, {survivors} not killed\n"))?;
    Ok(if survivors == 0 && judged > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn rows() -> Result<Vec<MadeMutant>> {
    let text = fs::read_to_string(run::root().join(ROWS)).context(ROWS)?;
    let table: toml::Table = text.parse().context(ROWS)?;
    let rows = table.get("mutant").and_then(|rows| rows.as_array()).context(ROWS)?;
    let read = |row: &toml::Value| {
        let text = |key: &str| Some(row.get(key)?.as_str()?.to_owned());
        Some(MadeMutant { name: text("name")?, file: text("file")?, old: text("old")?, new: text("new")? })
    };
    rows.iter()
        .map(|row| read(row).with_context(|| format!("{ROWS}: name, file, old or new is missing")))
        .collect()
}

impl TreeCopy {
    fn new() -> Result<Self> {
        let place = run::target_directory()?.join("mutants/made");
        let copy = Self { tree: place.join("tree"), target: place.join("target") };
        let mut listing = run::command("git");
        listing.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
        for name in run::output(&mut listing)?.lines() {
            // git also lists a deleted file whose deletion is not committed yet.
            if let Ok(content) = fs::read(run::root().join(name)) {
                write(&copy.tree.join(name), &content)?;
            }
        }
        Ok(copy)
    }

    /// Who notices it.
    fn judge(&self, mutant: &MadeMutant, judges: &[MutantsJudge]) -> Result<Option<&'static str>> {
        let path = self.tree.join(&mutant.file);
        let whole = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        write(&path, mutant.made(&whole)?.as_bytes())?;
        let mut killer = None;
        for (who, packages, tests) in judges {
            if !self.passes(packages, tests)? {
                killer = Some(*who);
                break;
            }
        }
        write(&path, whole.as_bytes())?;
        Ok(killer)
    }

    /// Whether the tests pass. What does not build is no mutant.
    fn passes(&self, packages: &[&str], tests: &str) -> Result<bool> {
        if packages.contains(&"caliban") {
            run::must(self.cargo().args(["build", "--quiet", "--workspace", "--bins"]))?;
        }
        let packages = packages.iter().flat_map(|package| ["--package", package]);
        let tests = |more: &str| {
            let mut command = self.cargo();
            command
                .args(["nextest", "run", "--profile", "mutants", more])
                .args(packages.clone())
                .args(["-E", tests]);
            command
        };
        run::must(&mut tests("--no-run"))?;
        Ok(run::status(&mut tests("--fail-fast"))?.success())
    }

    fn cargo(&self) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "19", "cargo"]).current_dir(&self.tree);
        command.env("CARGO_TARGET_DIR", &self.target);
        command
    }
}

/// Writes a file that is not there or is another one, so that cargo only builds what has changed.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    }
    fs::write(path, content).with_context(|| path.display().to_string())
}
