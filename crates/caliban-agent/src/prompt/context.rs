//! What goes in front of the first prompt: facts about the place, and the project's own instructions.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use super::git;

/// The names of instruction files, in the order in which they are read.
pub const DEFAULT_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];
/// The most bytes of all instruction files together.
pub const DEFAULT_CONTEXT_BYTES: usize = 32 * 1024;

/// Which instruction files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFiles {
    /// Their names.
    pub names: Vec<String>,
    /// The most bytes of all of them together.
    pub max_bytes: usize,
    /// A directory of the user's own, read first.
    pub user_directory: Option<PathBuf>,
}

impl Default for ContextFiles {
    fn default() -> Self {
        Self {
            names: DEFAULT_FILES.map(str::to_owned).to_vec(),
            max_bytes: DEFAULT_CONTEXT_BYTES,
            user_directory: None,
        }
    }
}

/// Facts about the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Where the agent works.
    pub directory: PathBuf,
    /// The top of the repository, when it is in one.
    pub repo: Option<PathBuf>,
    /// Today, as `2026-11-15`.
    pub date: String,
}

/// The context blocks, outermost directory first, the facts last.
pub fn opening(place: &Place, files: &ContextFiles) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut left = files.max_bytes;
    let top = place.repo.as_deref().unwrap_or(&place.directory);
    let mut directories: Vec<&Path> =
        place.directory.ancestors().take_while(|directory| directory.starts_with(top)).collect();
    directories.reverse();
    let user = files.user_directory.as_deref();
    for directory in user.into_iter().chain(directories) {
        for name in &files.names {
            let path = directory.join(name);
            let Some(text) = instructions(&path, left) else { continue };
            // CLAUDE.md is often a copy of AGENTS.md, or a link to it.
            if blocks.iter().any(|block: &String| block.contains(text.trim())) {
                continue;
            }
            left = left.saturating_sub(text.len());
            blocks.push(format!(
                "<instructions file=\"{}\">\n{}\n</instructions>",
                path.display(),
                text.trim_end()
            ));
        }
    }
    blocks.push(facts(place));
    blocks
}

fn facts(place: &Place) -> String {
    let git = match &place.repo {
        Some(repo) => git::head(repo).unwrap_or_else(|| "a git repository".to_owned()),
        None => "not a git repository".to_owned(),
    };
    format!(
        "<environment>\ndirectory: {}\ngit: {git}\nplatform: {}\ndate: {}\n</environment>",
        place.directory.display(),
        std::env::consts::OS,
        place.date
    )
}

/// The file's text, cut to the cap with a word on it; `None` when there is nothing to say.
fn instructions(path: &Path, cap: usize) -> Option<String> {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))?;
    let size = file.metadata().map(|meta| meta.len()).unwrap_or_default();
    let mut bytes = Vec::new();
    file.take(cap as u64).read_to_end(&mut bytes).ok()?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if size > cap as u64 {
        text.push_str(&format!("\n[cut: {size} bytes in all; read the file for the rest]"));
    }
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn instructions_come_from_the_top_down_and_only_once() {
        let temp = tempfile::tempdir().unwrap();
        let repo = temp.path().join("repo");
        write(&temp.path().join("AGENTS.md"), "outside the repo: not read");
        write(&repo.join("AGENTS.md"), "top");
        write(&repo.join("CLAUDE.md"), "top");
        write(&repo.join("sub/CLAUDE.md"), "below");
        let place =
            Place { directory: repo.join("sub"), repo: Some(repo.clone()), date: "2026-11-15".into() };
        let blocks = opening(&place, &ContextFiles::default());
        let repo = repo.display();
        assert_eq!(
            blocks,
            [
                format!("<instructions file=\"{repo}/AGENTS.md\">\ntop\n</instructions>"),
                format!("<instructions file=\"{repo}/sub/CLAUDE.md\">\nbelow\n</instructions>"),
                format!(
                    "<environment>\ndirectory: {repo}/sub\ngit: a git repository\nplatform: {}\n\
                     date: 2026-11-15\n</environment>",
                    std::env::consts::OS
                ),
            ]
        );
    }

    #[test]
    fn the_cap_holds_over_all_files() {
        let temp = tempfile::tempdir().unwrap();
        write(&temp.path().join("AGENTS.md"), &"a".repeat(90));
        write(&temp.path().join("CLAUDE.md"), &"b".repeat(90));
        let place = Place { directory: temp.path().to_owned(), repo: None, date: "2026-11-15".into() };
        let files = ContextFiles { max_bytes: 100, ..ContextFiles::default() };
        let blocks = opening(&place, &files);
        assert!(blocks[0].contains(&"a".repeat(90)), "{}", blocks[0]);
        assert!(blocks[1].contains(&"b".repeat(10)), "{}", blocks[1]);
        assert!(!blocks[1].contains(&"b".repeat(11)), "{}", blocks[1]);
        assert!(blocks[1].contains("[cut: 90 bytes in all"), "{}", blocks[1]);
    }
}
