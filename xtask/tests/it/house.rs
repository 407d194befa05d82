//! What holds for every crate: the workspace's lints, files that can be read at one sitting, documents that are here.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The most lines that a source file has.
const MAX_LINES: usize = 800;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root")
}

pub(crate) fn crates() -> Vec<PathBuf> {
    let mut crates: Vec<PathBuf> = fs::read_dir(root().join("crates"))
        .expect("crates")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    crates.push(root().join("xtask"));
    crates.retain(|path| path.join("Cargo.toml").is_file());
    assert!(crates.len() > 10, "{crates:?}");
    crates
}

pub(crate) fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_crate_has_the_workspaces_lints() {
    let without: Vec<PathBuf> = crates()
        .into_iter()
        .filter(|path| {
            let manifest = fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
            !manifest.contains("[lints]\nworkspace = true")
        })
        .collect();
    assert_eq!(without, Vec::<PathBuf>::new());
}

/// A crate's own clippy.toml replaces the root one, so it has to repeat what is forbidden there.
#[test]
fn a_clippy_file_of_a_crate_repeats_the_root_one() {
    let read = |path: &Path| fs::read_to_string(path).expect("clippy.toml");
    let forbidden = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        // `path = "…"` of each entry, and the plain settings whole.
        lines
            .filter_map(|line| match line.split_once("path = \"") {
                Some((_, rest)) => rest.split_once('"').map(|(path, _)| path.to_owned()),
                None => line.ends_with("= true").then(|| line.to_owned()),
            })
            .collect()
    };
    let wanted = forbidden(&read(&root().join("clippy.toml")));
    assert!(wanted.iter().any(|entry| entry == "std::env::var"), "{wanted:?}");
    for path in crates().iter().map(|path| path.join("clippy.toml")).filter(|path| path.is_file()) {
        let own = forbidden(&read(&path));
        let lacking: Vec<&String> = wanted.iter().filter(|entry| !own.contains(entry)).collect();
        assert_eq!(lacking, Vec::<&String>::new(), "{}", path.display());
    }
}

#[test]
fn no_source_file_is_too_long() {
    let mut files = Vec::new();
    for path in crates() {
        sources(&path, &mut files);
    }
    let long: Vec<String> = files
        .iter()
        .filter_map(|path| {
            let lines = fs::read_to_string(path).expect("a source file").lines().count();
            (lines > MAX_LINES).then(|| format!("{}: {lines} lines", path.display()))
        })
        .collect();
    assert_eq!(long, Vec::<String>::new());
}

/// Types that may share a name.
const NAMESAKES: usize = 3;

/// The name of the type that a line begins to define.
pub(crate) fn type_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        let rest =
            rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
        rest.trim_start()
    });
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|word| line.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

/// A name that stands for many things cannot be searched for.
#[test]
fn few_types_share_a_name() {
    assert_eq!(type_name("pub(in crate::daemon) struct Reply<T> {"), Some("Reply"));
    assert_eq!(type_name("    struct Local;"), None);
    let mut files = Vec::new();
    for path in crates() {
        sources(&path.join("src"), &mut files);
    }
    let mut places: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for path in files {
        for line in fs::read_to_string(&path).expect("a source file").lines() {
            if let Some(name) = type_name(line) {
                places.entry(name.to_owned()).or_default().push(path.clone());
            }
        }
    }
    assert!(places.len() > 1000, "{}", places.len());
    places.retain(|_, places| places.len() > NAMESAKES);
    assert_eq!(places, BTreeMap::new());
}

/// Documents in capitals that a user's repository has; the tests and guides speak of them.
const OF_USERS: [&str; 6] = ["AGENTS.md", "CHANGES.md", "CLAUDE.md", "NAME.md", "NOTES.md", "SKILL.md"];

/// The documents in capitals that a text names, such as `README.md`.
fn named_documents(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)));
    words.map(|word| word.trim_end_matches('.')).filter(|word| {
        let name = word.strip_suffix(".md").unwrap_or_default();
        name.len() > 2 && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
    })
}

#[test]
fn no_file_refers_to_a_document_that_is_not_here() {
    assert_eq!(
        named_documents("see README.md, c.md, A.md and (AGENTS.md).").collect::<Vec<_>>(),
        ["README.md", "AGENTS.md"]
    );
    let listed = Command::new("git").arg("ls-files").current_dir(root()).output().expect("git");
    assert!(listed.status.success());
    let listed = String::from_utf8(listed.stdout).expect("paths");
    // Put together here, so that this file does not name it.
    let outside = ["..", "shared/"].join("/");
    let wrong: Vec<String> = listed
        .lines()
        .filter_map(|path| Some((path, fs::read_to_string(root().join(path)).ok()?)))
        .flat_map(|(path, text)| {
            let is_here = |name: &&str| root().join(name).is_file() || OF_USERS.contains(name);
            let mut wrong: Vec<String> = named_documents(&text)
                .filter(|name| !is_here(name))
                .map(|name| format!("{path} names {name}"))
                .collect();
            if text.contains(&outside) {
                wrong.push(format!("{path} names {outside}"));
            }
            wrong
        })
        .collect();
    assert_eq!(wrong, Vec::<String>::new());
}

/// Which tests hold which promise is found out by the command itself.
#[test]
fn the_list_of_promises_is_true() {
    let checked = Command::new(env!("CARGO_BIN_EXE_xtask")).arg("promises").output().expect("xtask");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn tests_are_skipped_through_the_testkit_only() {
    let mut files = Vec::new();
    for path in crates() {
        sources(&path, &mut files);
    }
    // Put together here, so that this file does not have it.
    let printed = ["\"skipped", ": "].concat();
    let wrong: Vec<PathBuf> = files
        .into_iter()
        .filter(|path| !path.ends_with("testkit/src/skip.rs"))
        .filter(|path| fs::read_to_string(path).expect("a source file").contains(&printed))
        .collect();
    assert_eq!(wrong, Vec::<PathBuf>::new(), "say it with testkit::skip");
    // Both sides name the same file.
    let xtask = fs::read_to_string(root().join("xtask/src/test.rs")).expect("test.rs");
    assert!(xtask.contains(&format!("LIST_VARIABLE: &str = {:?}", testkit::LIST_VARIABLE)));
}

/// Where events have their names.
const EVENT_KINDS: &str = "crates/caliban-core/src/event/kind.rs";

/// An event is told by its kind: a renamed one does not compile. Names of one word have other meanings, too, and are
/// looked for only where a record's event is.
#[test]
fn nobody_matches_events_by_their_names() {
    let kinds = fs::read_to_string(root().join(EVENT_KINDS)).expect("the kinds");
    let (_, rest) = kinds.split_once("pub enum EventKind {").expect("the kinds");
    let variants = rest.split_once("\n}").expect("the end").0.lines();
    let variants = variants.filter_map(|line| line.trim().strip_suffix(',')).filter(|name| *name != "Other");
    let names: Vec<String> = variants.map(in_snake_case).collect();
    assert!(names.len() > 10 && names.contains(&"call_started".to_owned()), "{names:?}");
    let mut files = Vec::new();
    for path in crates() {
        sources(&path.join("src"), &mut files);
    }
    // Tests write records of other builds, too.
    files.retain(|path| !path.ends_with(EVENT_KINDS) && !path.ends_with("tests.rs"));
    files.retain(|path| !path.starts_with(root().join("xtask")));
    let mut wrong = Vec::new();
    for path in files {
        let text = fs::read_to_string(&path).expect("a source file");
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        wrong.extend(
            code.lines()
                .filter(|line| names_an_event(line, &names))
                .map(|line| format!("{}: {line}", path.display())),
        );
    }
    assert_eq!(wrong, Vec::<String>::new(), "use caliban_core::event::EventKind");
}

fn names_an_event(line: &str, names: &[String]) -> bool {
    let is_of_a_record = line.contains("[\"event\"]");
    names
        .iter()
        .filter(|name| is_of_a_record || name.contains('_'))
        .any(|name| line.contains(&format!("\"{name}\"")))
}

fn in_snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(c.to_lowercase());
    }
    snake
}

#[test]
fn a_name_of_an_event_is_found() {
    let names = ["CallStarted", "Note"].map(in_snake_case);
    let found = |line: &str| names_an_event(line, &names);
    assert!(found("\"call_started\" => {}") && found("if record[\"event\"] == \"note\" {"));
    assert!(!found("\"note\": text") && !found("EventKind::CallStarted => {}"));
}
