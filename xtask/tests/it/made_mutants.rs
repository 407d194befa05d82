//! The mutants that are made by hand (`xtask/made-mutants.toml`) are about code that is there.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Otherwise a row about code that is gone is noticed only by whoever runs all of them.
#[test]
fn each_made_mutant_can_be_made() {
    let rows: toml::Table =
        fs::read_to_string(root().join("xtask/made-mutants.toml")).unwrap().parse().unwrap();
    let rows = rows["mutant"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let text = |key: &str| row[key].as_str().unwrap();
        let file = fs::read_to_string(root().join(text("file"))).unwrap();
        assert_eq!(
            file.matches(text("old")).count(),
            1,
            "{}: its old text in {}",
            text("name"),
            text("file")
        );
        assert_ne!(text("old"), text("new"), "{}", text("name"));
    }
}
