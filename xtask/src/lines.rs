//! `cargo xtask lines [COMMIT]`: lines of code by crate, without comments, blank lines and tests; and how many a commit had.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::run;

/// Lines of code by crate.
type LineCounts = BTreeMap<String, i64>;

/// Prints the lines of the tree that is checked out, beside those of a commit when one is named.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let now = counts(None)?;
    let before = match args {
        [] => None,
        [commit] => Some(counts(Some(commit))?),
        _ => bail!("lines takes a commit or nothing"),
    };
    let names: std::collections::BTreeSet<_> =
        now.keys().chain(before.iter().flat_map(BTreeMap::keys)).collect();
    let of = |counts: &LineCounts, name: &str| counts.get(name).copied().unwrap_or_default();
    let row = |name: &str, now: i64, before: Option<i64>| {
        let change = before.map_or(String::new(), |before| format!("  {:+}", now - before));
        run::print(&format!("{name:24} {now:>7}{change}\n"))
    };
    for name in names {
        row(name, of(&now, name), before.as_ref().map(|before| of(before, name)))?;
    }
    row("all", now.values().sum(), before.map(|before| before.values().sum()))?;
    Ok(ExitCode::SUCCESS)
}

fn counts(commit: Option<&str>) -> Result<LineCounts> {
    let mut listing = run::command("git");
    match commit {
        Some(commit) => listing.args(["ls-tree", "-r", "--name-only", commit]),
        None => listing.args(["ls-files", "--cached", "--others", "--exclude-standard"]),
    };
    let mut counts = LineCounts::new();
    for path in run::output(&mut listing)?.lines() {
        let Some((name, file)) = path.split_once("/src/") else { continue };
        let is_test = file.ends_with("tests.rs") || file.contains("tests/");
        if !file.ends_with(".rs") || is_test {
            continue;
        }
        let text = match commit {
            Some(commit) => run::output(run::command("git").args(["show", &format!("{commit}:{path}")]))?,
            // git also lists a deleted file whose deletion is not committed yet.
            None => std::fs::read_to_string(run::root().join(path)).unwrap_or_default(),
        };
        *counts.entry(name.trim_start_matches("crates/").to_owned()).or_default() += count(&text);
    }
    Ok(counts)
}

/// Lines of code. A module of tests ends with the brace that stands where it began.
fn count(text: &str) -> i64 {
    let (mut lines, mut is_test) = (0, false);
    let mut rest = text.lines();
    while let Some(line) = rest.next() {
        if line == "#[cfg(test)]" {
            is_test = rest.next().is_some_and(|item| item.ends_with('{'));
        } else if is_test {
            is_test = line != "}";
        } else {
            let line = line.trim_start();
            lines += i64::from(!line.is_empty() && !line.starts_with("//"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    #[test]
    fn comments_blank_lines_and_tests_are_no_code() {
        let text = "//! Doc.\n\nuse x;\n#[cfg(test)]\nmod more_tests;\nfn a() {\n    // Why.\n    b() // c\n}\n\n#[cfg(test)]\nmod tests {\n    fn t() {\n    }\n}\nfn z() {}\n";
        assert_eq!(super::count(text), 5);
    }
}
