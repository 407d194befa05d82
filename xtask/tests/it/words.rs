//! Words that people did not understand, and that have been replaced: they do not come back.

use std::fs;
use std::path::{Path, PathBuf};

/// What was said, and what is said instead.
const REPLACED: [(&str, &str); 9] = [
    ("Nobody works.", "No agents working"),
    ("ask · Tab", "1 question (Tab)"),
    ("asks · Tab", "2 questions (Tab)"),
    ("what shall I do?", "Describe a task"),
    ("Lead the agents of all repos", "Manage all agents"),
    ("conflicts are foretold", "conflicts are reported before anything changes"),
    ("not so fast", "Hold on a second"),
    ("Trust a repo no more", "Stop trusting a repo"),
    ("the next weaker level", "falls back to the next lower level"),
];

/// What ends a text that shortens a word to one letter: `{} t"` for turns.
const SHORTENED: [&str; 3] = ["} t\"", "} t`", "} t,"];

fn read_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_below(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| ["rs", "js", "html", "md"].iter().any(|it| *it == extension))
        {
            found.push(path);
        }
    }
}

#[test]
fn words_that_were_replaced_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root");
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("crates") {
        let path = entry.expect("an entry").path();
        for part in ["src", "assets"].map(|part| path.join(part)).iter().filter(|part| part.is_dir()) {
            read_below(part, &mut files);
        }
    }
    read_below(&root.join("docs/guide"), &mut files);
    assert!(files.len() > 300, "{}", files.len());
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a file");
        for (old, new) in REPLACED {
            if text.contains(old) {
                found.push(format!("{}: \"{old}\" is called \"{new}\"", file.display()));
            }
        }
        for short in SHORTENED.into_iter().filter(|short| text.contains(short)) {
            found.push(format!("{}: \"{short}\" is written out: 2 turns", file.display()));
        }
    }
    assert_eq!(found, Vec::<String>::new());
}
