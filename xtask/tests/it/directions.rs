//! The direction of dependencies: an arrow points strictly down, and some never exist.
//!
//! The rules are a function over data, so that a graph with a wrong arrow shows that they bite.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Every crate and its level. A crate that is not here fails the test: it has to be given a place.
const LEVELS: &[(u8, &[&str])] = &[
    (0, &["caliban-core", "caliban-highlight", "caliban-process", "caliban-rooted"]),
    (1, &["caliban-contract", "caliban-fence", "caliban-http", "caliban-keeper"]),
    (
        2,
        &[
            "caliban-store",
            "caliban-worktrees",
            "caliban-providers",
            "caliban-tools",
            "caliban-permissions",
            "caliban-acp",
        ],
    ),
    (3, &["caliban-agent", "caliban-mcp", "caliban-settings"]),
    (4, &["caliban-acp-host", "caliban-fleet", "caliban-gateway"]),
    (5, &["caliban-supervisor", "caliban-tui"]),
    (6, &["caliban-web"]),
    (7, &["caliban", "cafleet"]),
    // For development: they know everybody, nobody knows them but in tests.
    (8, &["testkit", "xtask"]),
];

/// Arrows within a level that are meant to be there: from, to.
const WITHIN_A_LEVEL: &[(&str, &str)] = &[
    ("caliban-keeper", "caliban-contract"),
    ("caliban-keeper", "caliban-fence"),
    ("caliban-fence", "caliban-contract"),
];

/// Arrows that no crate but the listed ones may have, in tests neither: to, from.
const ONLY: &[(&str, &[&str])] = &[
    ("sqlx", &["caliban-store"]),
    ("libsqlite3-sys", &["caliban-store"]),
    ("rusqlite", &[]),
    ("axum", &["caliban-web"]),
];

/// Ways that must not be although all their arrows point down: from, to.
const NEVER: &[(&str, &str)] = &[
    ("caliban-supervisor", "caliban-agent"),
    ("caliban-supervisor", "caliban-acp-host"),
    ("caliban-fleet", "caliban-agent"),
    ("caliban-settings", "caliban-store"),
    ("caliban-tui", "caliban-acp-host"),
    ("caliban-tui", "caliban-agent"),
    ("caliban-tui", "caliban-supervisor"),
    ("caliban-web", "caliban-agent"),
    ("caliban-web", "caliban-supervisor"),
    ("caliban-web", "caliban-tui"),
    ("cafleet", "caliban-agent"),
    ("cafleet", "caliban-supervisor"),
    ("caliban-core", "tokio"),
];

struct Arrow {
    from: String,
    to: String,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Normal and build dependencies.
    Shipped,
    /// Of tests only.
    Dev,
}

/// What is wrong with a graph, in words.
fn wrongs(members: &[String], arrows: &[Arrow]) -> Vec<String> {
    let level = |name: &str| LEVELS.iter().find(|(_, names)| names.contains(&name)).map(|(level, _)| *level);
    let mut wrongs: Vec<String> = members
        .iter()
        .filter(|name| level(name).is_none())
        .map(|name| format!("{name} has no level: give it one in this test"))
        .collect();
    for Arrow { from, to, kind } in arrows {
        if ONLY.iter().any(|(what, who)| what == to && !who.contains(&from.as_str())) {
            wrongs.push(format!("{from} must not know {to}"));
        }
        if *kind == Kind::Dev {
            continue;
        }
        if let (Some(above), Some(below)) = (level(from), level(to))
            && below >= above
            && !(below == above && WITHIN_A_LEVEL.contains(&(from, to)))
        {
            wrongs.push(format!("{from} (level {above}) must not know {to} (level {below})"));
        }
    }
    for (from, to) in NEVER {
        match way(from, to, arrows) {
            Some(way) if way.len() > 2 => {
                wrongs.push(format!("{from} must not reach {to}: {}", way.join(" → ")))
            }
            Some(_) => wrongs.push(format!("{from} must not know {to}")),
            None => {}
        }
    }
    wrongs.sort();
    wrongs
}

/// The crates on a way from one to another that ships.
fn way<'a>(from: &'a str, to: &str, arrows: &'a [Arrow]) -> Option<Vec<&'a str>> {
    let (mut ways, mut seen) = (vec![vec![from]], BTreeSet::from([from]));
    while let Some(way) = ways.pop() {
        let last = *way.last()?;
        if last == to {
            return Some(way);
        }
        for arrow in arrows.iter().filter(|arrow| arrow.kind == Kind::Shipped && arrow.from == last) {
            if seen.insert(&arrow.to) {
                ways.push(way.iter().copied().chain([arrow.to.as_str()]).collect());
            }
        }
    }
    None
}

fn workspace() -> (Vec<String>, Vec<Arrow>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let (mut members, mut arrows) = (Vec::new(), Vec::new());
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name").to_owned();
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            arrows.push(Arrow {
                from: name.clone(),
                to: dependency["name"].as_str().expect("a name").to_owned(),
                kind: if dependency["kind"] == "dev" { Kind::Dev } else { Kind::Shipped },
            });
        }
        members.push(name);
    }
    (members, arrows)
}

fn graph(arrows: &[(&str, &str, Kind)]) -> Vec<String> {
    let arrows: Vec<Arrow> = arrows
        .iter()
        .map(|(from, to, kind)| Arrow { from: (*from).to_owned(), to: (*to).to_owned(), kind: *kind })
        .collect();
    wrongs(&[], &arrows)
}

#[test]
fn no_arrow_points_up() {
    let (members, arrows) = workspace();
    assert!(members.iter().any(|name| name == "caliban-core"), "{members:?}");
    assert!(arrows.iter().any(|arrow| arrow.from == "caliban-agent" && arrow.to == "caliban-core"));
    assert_eq!(wrongs(&members, &arrows), Vec::<String>::new());
}

#[test]
fn a_wrong_arrow_is_found() {
    use Kind::{Dev, Shipped};
    assert_eq!(
        graph(&[("caliban", "caliban-agent", Shipped), ("caliban-agent", "caliban-core", Shipped)]),
        [""; 0]
    );
    let wrong = [
        ("caliban-core", "caliban-store", "caliban-core (level 0) must not know caliban-store (level 2)"),
        (
            "caliban-tools",
            "caliban-providers",
            "caliban-tools (level 2) must not know caliban-providers (level 2)",
        ),
        ("caliban-agent", "caliban", "caliban-agent (level 3) must not know caliban (level 7)"),
        ("caliban-agent", "testkit", "caliban-agent (level 3) must not know testkit (level 8)"),
        (
            "caliban-agent",
            "caliban-supervisor",
            "caliban-agent (level 3) must not know caliban-supervisor (level 5)",
        ),
        ("caliban-supervisor", "caliban-agent", "caliban-supervisor must not know caliban-agent"),
        ("caliban-agent", "sqlx", "caliban-agent must not know sqlx"),
        ("caliban-core", "tokio", "caliban-core must not know tokio"),
    ];
    for (from, to, why) in wrong {
        assert_eq!(graph(&[(from, to, Shipped)]), [why]);
    }
    // On a way over others, too.
    let over = [("caliban-web", "caliban-x", Shipped), ("caliban-x", "caliban-supervisor", Shipped)];
    assert_eq!(
        graph(&over),
        ["caliban-web must not reach caliban-supervisor: caliban-web → caliban-x → caliban-supervisor"]
    );
    assert_eq!(graph(&[("caliban-web", "caliban-x", Dev), over[1]]), [""; 0]);
    // Tests may use what is above, but not SQL.
    assert_eq!(graph(&[("caliban-agent", "testkit", Dev)]), [""; 0]);
    assert_eq!(graph(&[("cafleet", "sqlx", Dev)]), ["cafleet must not know sqlx"]);
    assert_eq!(
        wrongs(&["caliban-new".to_owned()], &[]),
        ["caliban-new has no level: give it one in this test"]
    );
}
