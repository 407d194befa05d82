//! `cargo xtask promises`: checks `docs/promises.md`, and prints which tests cover each promise.
//!
//! A test's name begins with the ids of the promises that it covers (`f05_hash_is_sixteen_hex`). The page lists every
//! promise with the files that have such tests; a promise without one says "not yet" and names the issue. The names of
//! the tests are not on the page: this command prints them. A test of this crate runs the command, so the page cannot
//! become stale.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::run;

const PAGE: &str = "docs/promises.md";
/// The text for a promise without a test.
const NOT_YET: &str = "not yet: issue ";
/// The families of promises.
const FAMILIES: &str = "fsbwmra";
/// Number of lines before a function that are searched for its attributes.
const ATTRIBUTES: usize = 6;

/// The names of the tests, by promise and by file.
type Tests = BTreeMap<String, BTreeMap<String, Vec<String>>>;

/// Checks the page; `--write` first updates its lists of files.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let is_writing = match args {
        [] => false,
        [flag] if flag == "--write" => true,
        _ => bail!("promises takes --write or nothing"),
    };
    let path = run::root().join(PAGE);
    let mut page = fs::read_to_string(&path).with_context(|| PAGE)?;
    let sources = sources()?;
    let tests = tests(&sources);
    if is_writing {
        page = written(&page, &tests);
        fs::write(&path, &page).with_context(|| PAGE)?;
    }
    let wrongs = wrongs(&page, &tests, &sources);
    if !wrongs.is_empty() {
        let help = "`cargo xtask promises --write` corrects the lists of files";
        run::say(&format!("{PAGE} is not true:\n  {}\n{help}", wrongs.join("\n  ")));
        return Ok(ExitCode::FAILURE);
    }
    for (id, files) in &tests {
        for (file, names) in files {
            run::print(&format!("{id} {file}: {}\n", names.join(" ")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Every source file of the workspace, with its text.
fn sources() -> Result<BTreeMap<String, String>> {
    let listed =
        run::output(run::command("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    let mut sources = BTreeMap::new();
    for path in listed.lines().filter(|path| path.ends_with(".rs")) {
        // git also lists a deleted file whose deletion is not committed yet.
        if let Ok(text) = fs::read_to_string(run::root().join(path)) {
            sources.insert(path.to_owned(), text);
        }
    }
    Ok(sources)
}

fn tests(sources: &BTreeMap<String, String>) -> Tests {
    let mut tests = Tests::new();
    for (path, text) in sources {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines.iter().enumerate() {
            let Some(name) = function(line).filter(|_| is_test(&lines[at.saturating_sub(ATTRIBUTES)..at]))
            else {
                continue;
            };
            for id in name.split('_').take_while(|part| is_id(part)) {
                tests
                    .entry(id.to_owned())
                    .or_default()
                    .entry(path.clone())
                    .or_default()
                    .push(name.to_owned());
            }
        }
    }
    tests
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
    rest.split_once('(').map(|(name, _)| name)
}

/// Whether the lines before a function make it a test.
fn is_test(before: &[&str]) -> bool {
    let attributes = before.iter().rev().take_while(|line| !line.is_empty() && **line != "}");
    attributes.into_iter().any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
}

fn is_id(part: &str) -> bool {
    let mut chars = part.chars();
    part.len() == 3
        && chars.next().is_some_and(|first| FAMILIES.contains(first))
        && chars.all(|c| c.is_ascii_digit())
}

/// A row of the page: `| id | promise | tests |`.
fn row(line: &str) -> Option<(&str, &str, &str)> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(2, " | ");
    let (id, rest) = (cells.next().filter(|id| is_id(id))?, cells.next()?);
    let (promise, held) = rest.rsplit_once(" | ")?;
    Some((id, promise, held))
}

/// The files with tests of a promise, in the page's format; `None` if there is no test.
fn held(files: Option<&BTreeMap<String, Vec<String>>>) -> Option<String> {
    let paths: BTreeSet<&str> = files?.keys().map(|path| path.trim_start_matches("crates/")).collect();
    Some(paths.into_iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(" "))
}

fn written(page: &str, tests: &Tests) -> String {
    let line = |line: &str| match row(line) {
        Some((id, promise, _)) if tests.contains_key(id) => {
            format!("| {id} | {promise} | {} |\n", held(tests.get(id)).unwrap_or_default())
        }
        _ => format!("{line}\n"),
    };
    page.lines().map(line).collect()
}

/// The errors of the page.
fn wrongs(page: &str, tests: &Tests, sources: &BTreeMap<String, String>) -> Vec<String> {
    let rows: Vec<(&str, &str, &str)> = page.lines().filter_map(row).collect();
    let mut wrongs = Vec::new();
    for (id, _, said) in &rows {
        match held(tests.get(*id)) {
            Some(true_list) if true_list != *said => {
                wrongs.push(format!("{id}: its tests are in {true_list}"))
            }
            Some(_) => {}
            None if said.strip_prefix(NOT_YET).is_some_and(|issue| issue.parse::<u32>().is_ok()) => {}
            None => wrongs.push(format!("{id}: no test holds it, so it says '{NOT_YET}N'")),
        }
    }
    let listed: Vec<&str> = rows.iter().map(|(id, ..)| *id).collect();
    for family in FAMILIES.chars() {
        let found: Vec<&str> = listed.iter().copied().filter(|id| id.starts_with(family)).collect();
        let whole: Vec<String> = (1..=found.len()).map(|number| format!("{family}{number:02}")).collect();
        if found != whole || found.is_empty() {
            wrongs.push(format!(
                "the promises {family} are not listed one after the other: {}",
                found.join(" ")
            ));
        }
    }
    let mut unknown: BTreeSet<String> =
        tests.keys().filter(|id| !listed.contains(&id.as_str())).cloned().collect();
    for text in sources.values() {
        unknown.extend(mentioned(text).filter(|id| !listed.contains(&id.as_str())));
    }
    wrongs.extend(unknown.into_iter().map(|id| format!("{id} stands in the code and is not listed")));
    wrongs
}

/// The ids that comments mention in parentheses, such as `(a11)` or `(r12, ADR 0040)`.
fn mentioned(text: &str) -> impl Iterator<Item = String> {
    let comments = text.lines().filter_map(|line| line.split_once("//").map(|(_, comment)| comment));
    let inside =
        comments.flat_map(|comment| comment.split('(').skip(1).filter_map(|rest| rest.split_once(')')));
    let words = inside.flat_map(|(inside, _)| inside.split(|c: char| !c.is_alphanumeric()));
    words.filter(|word| is_id(word)).map(str::to_owned)
}
