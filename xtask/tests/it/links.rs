//! Links between the pages of this repository lead somewhere: the file is there, and the heading in it.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the root")
}

/// All Markdown pages: those of the root, and everything below docs.
fn pages() -> Vec<PathBuf> {
    let mut directories = vec![root().join("docs")];
    let mut pages: Vec<PathBuf> = markdown(&root()).0;
    while let Some(directory) = directories.pop() {
        let (found, below) = markdown(&directory);
        pages.extend(found);
        directories.extend(below);
    }
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

fn markdown(directory: &Path) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let entries = fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("an entry").path());
    let (below, files): (Vec<PathBuf>, Vec<PathBuf>) = entries.partition(|path| path.is_dir());
    (files.into_iter().filter(|path| path.extension().is_some_and(|end| end == "md")).collect(), below)
}

/// The text without fenced blocks.
fn prose(text: &str) -> String {
    let mut inside = false;
    let mut kept = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            inside = !inside;
        } else if !inside {
            kept.push(line);
        }
    }
    kept.join("\n")
}

/// The targets of `[…](target)`.
fn targets(text: &str) -> Vec<&str> {
    text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target)).collect()
}

/// What a heading is called in a link, after GitHub's rule.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn every_relative_link_leads_to_a_file_and_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = prose(&fs::read_to_string(&page).expect("a page"));
        for target in targets(&text).into_iter().filter(|target| !target.contains("://")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let good = match fs::read_to_string(&path) {
                Ok(there) => heading.is_empty() || anchors(&prose(&there)).iter().any(|name| name == heading),
                // A directory, or a picture.
                Err(_) => heading.is_empty() && path.exists(),
            };
            if !good {
                broken.push(format!(
                    "{}: {target}",
                    page.strip_prefix(root()).expect("a page of ours").display()
                ));
            }
        }
    }
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn headings_are_named_as_github_names_them() {
    let text = "# A page: `x`, and more\n## The JSON\n";
    assert_eq!(anchors(text), ["a-page-x-and-more", "the-json"]);
    assert_eq!(targets("see [a](b.md#c) and\n[d\ne](f.md)"), ["b.md#c", "f.md"]);
}
