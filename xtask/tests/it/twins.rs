//! One fact has one type: structs of two crates that repeat each other's fields are listed here, with the reason.
//!
//! The search is a function over sources, so that made sources show that it finds what it is for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::house::{crates, sources, type_name};

/// The fewest fields that make two structs alike, and the part of the smaller one's, in percent.
const LEAST_FIELDS: usize = 5;
const LEAST_PERCENT: usize = 70;

/// Pairs that are meant to be: `crate::Type` twice in the order of the alphabet, and the reason.
const SHARED: &[(&str, &str, &str)] = &[
    ("cafleet::ServerArgs", "caliban::DashboardArgs", "arguments of two programs"),
    (
        "caliban-agent::RequestParts",
        "caliban-providers::ModelRequest",
        "lent for one request, against the record that a provider gets",
    ),
    (
        "caliban-agent::SessionFile",
        "caliban-core::Header",
        "a file that scripts read: the beginning of a conversation, and how it stands now",
    ),
    (
        "caliban-contract::QueuedRecord",
        "caliban-store::AgentRecord",
        "a file that replaces the row when the registry is lost",
    ),
    (
        "caliban-contract::WorkerStatus",
        "caliban-fleet::AgentRow",
        "the worker's file, and the row that the daemon makes of it, the registry and the spec",
    ),
    ("caliban-fleet::Diff", "caliban-worktrees::Changes", "the wire form"),
    ("caliban-fleet::MergeRequest", "caliban::MergeArgs", "arguments and the request they make"),
    ("caliban-fleet::Merged", "caliban-worktrees::Landed", "the wire form"),
    ("caliban-fleet::ScheduleRequest", "caliban-store::ScheduleRecord", "a request and what is kept of it"),
    ("caliban-fleet::ScheduleRow", "caliban-store::ScheduleRecord", "the wire form"),
    (
        "caliban-core::AgentSetup",
        "caliban::AgentFlags",
        "clap's flags, each with its help, and the values that they make",
    ),
    (
        "caliban-fence::FencedCommand",
        "caliban-keeper::Launch",
        "a command, and the same with its keeper's orders",
    ),
];

/// Public types that may share their name with one of another crate. Less is better: who takes one away lowers it.
const PUBLIC_NAMESAKES: usize = 6;

/// A struct: `crate::Type`, and the names of its fields.
struct Shape {
    name: String,
    fields: BTreeSet<String>,
}

/// The structs with named fields of a source file, as rustfmt writes it; those of its test module are left out.
fn shapes(owner: &str, source: &str) -> Vec<Shape> {
    let source = source.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let head = without_visibility(line.trim_start());
        let Some(head) = head.strip_prefix("struct ").filter(|head| !head.ends_with([';', '}'])) else {
            continue;
        };
        let name: String = head.chars().take_while(|c| c.is_alphanumeric()).collect();
        let (end, deeper) = (format!("{indent}}}"), format!("{indent}    "));
        let fields = lines.by_ref().take_while(|line| *line != end).filter_map(|line| {
            let field = without_visibility(line.strip_prefix(&deeper)?);
            let (name, _) = field.split_once(": ")?;
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || "_#".contains(c));
            is_name.then(|| name.to_owned())
        });
        found.push(Shape { name: format!("{owner}::{name}"), fields: fields.collect() });
    }
    found
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    rest.strip_prefix(' ').unwrap_or(line)
}

fn are_twins(a: &Shape, b: &Shape) -> bool {
    let crate_of = |shape: &Shape| shape.name.split("::").next().map(str::to_owned);
    let shared = a.fields.intersection(&b.fields).count();
    let smaller = a.fields.len().min(b.fields.len());
    crate_of(a) != crate_of(b) && shared >= LEAST_FIELDS && shared * 100 >= smaller * LEAST_PERCENT
}

/// What is wrong with the list of pairs, in words.
fn wrongs(shapes: &[Shape], listed: &[(&str, &str, &str)]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for (at, a) in shapes.iter().enumerate() {
        for b in shapes[at + 1..].iter().filter(|b| are_twins(a, b)) {
            let (a, b) = (a.name.as_str(), b.name.as_str());
            found.insert((a.min(b), a.max(b)));
        }
    }
    let known: BTreeSet<(&str, &str)> = listed.iter().map(|(a, b, _)| (*a, *b)).collect();
    let new = found
        .difference(&known)
        .map(|(a, b)| format!("{a} and {b} are alike: make them one, or say in SHARED why they are two"));
    let stale =
        known.difference(&found).map(|(a, b)| format!("{a} and {b} are not alike: take them off SHARED"));
    let bare = listed.iter().filter(|row| row.2.is_empty()).map(|(a, b, _)| format!("{a} and {b}: why?"));
    new.chain(stale).chain(bare).collect()
}

/// The sources of every crate, with its name.
fn all_sources() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for path in crates() {
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let mut files = Vec::new();
        sources(&path.join("src"), &mut files);
        let read = |file: &std::path::PathBuf| fs::read_to_string(file).expect("a source file");
        all.extend(files.iter().map(|file| (name.clone(), read(file))));
    }
    all
}

#[test]
fn no_struct_repeats_one_of_another_crate_without_a_reason() {
    let shapes: Vec<Shape> = all_sources().iter().flat_map(|(owner, source)| shapes(owner, source)).collect();
    assert!(shapes.len() > 500, "{}", shapes.len());
    assert_eq!(wrongs(&shapes, SHARED), Vec::<String>::new());
}

#[test]
fn a_struct_that_repeats_another_is_found() {
    let row = "
/// A row.
pub struct Row<'a> {
    /// Its id.
    pub id: u32,
    #[serde(default)]
    pub(crate) label: &'a str,
    state: Option<
        State,
    >,
    r#type: Kind,
    at: u64,
    more: u64,
}
pub struct Unit;
struct Pair(u8, u8);
";
    let of = |owner: &str, source: &str| shapes(owner, source);
    let names: Vec<String> = of("a", row)[0].fields.iter().cloned().collect();
    assert_eq!(
        (of("a", row).len(), names),
        (1, ["at", "id", "label", "more", "r#type", "state"].map(str::to_owned).to_vec())
    );
    let pair = |other: &str, source: &str| {
        let mut all = of("a", row);
        all.extend(of(other, source));
        all
    };
    let twin =
        row.replace("Row", "Shown").replace("    more:", "    other:").replace("    at:", "    since:");
    assert_eq!(wrongs(&pair("a", &twin), &[]), [""; 0], "within a crate");
    let four = pair("b", &twin);
    assert_eq!(wrongs(&four, &[]), [""; 0], "four fields are not enough");
    let alike = pair("b", &row.replace("Row", "Shown"));
    assert_eq!(
        wrongs(&alike, &[]),
        ["a::Row and b::Shown are alike: make them one, or say in SHARED why they are two"]
    );
    assert_eq!(wrongs(&alike, &[("a::Row", "b::Shown", "they differ in time")]), [""; 0]);
    assert_eq!(wrongs(&alike, &[("a::Row", "b::Shown", "")]), ["a::Row and b::Shown: why?"]);
    assert_eq!(
        wrongs(&[], &[("a::Row", "b::Shown", "they were")]),
        ["a::Row and b::Shown are not alike: take them off SHARED"]
    );
    let tests = format!("\n#[cfg(test)]\nmod tests {{{row}}}");
    assert!(of("b", &tests).is_empty());
}

/// The testkit is for tests alone.
#[test]
fn few_public_names_stand_in_two_crates() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (owner, source) in all_sources().into_iter().filter(|(owner, _)| owner != "testkit") {
        for name in source.lines().filter(|line| line.starts_with("pub ")).filter_map(type_name) {
            places.entry(name.to_owned()).or_default().insert(owner.clone());
        }
    }
    assert!(places.len() > 500, "{}", places.len());
    places.retain(|_, crates| crates.len() > 1);
    assert_eq!(places.len(), PUBLIC_NAMESAKES, "{places:#?}");
}
