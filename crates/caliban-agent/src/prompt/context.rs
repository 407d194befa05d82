//! What goes in front of the first prompt: facts about the place, and the project's own instructions.

use std::path::{Path, PathBuf};

use super::{
    file::{self, Real},
    git,
};

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

/// The context blocks, outermost directory first, the facts last. A file that must not be shown is not read.
pub fn opening(place: &Place, files: &ContextFiles, is_off_limits: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut left = files.max_bytes;
    let top = place.repo.as_deref().unwrap_or(&place.directory);
    let mut directories: Vec<&Path> =
        place.directory.ancestors().take_while(|directory| directory.starts_with(top)).collect();
    directories.reverse();
    // The user's own files may be kept wherever they like; a project's are the project's.
    let user = files.user_directory.iter().map(|directory| (directory.as_path(), Path::new("/")));
    for (directory, within) in user.chain(directories.into_iter().map(|directory| (directory, top))) {
        for name in &files.names {
            let path = directory.join(name);
            let text = match file::real(&path, within) {
                None => continue,
                Some(Real::Outside) => "[not read: it leads out of the project]".to_owned(),
                Some(Real::Inside(real)) if is_off_limits(&path) || is_off_limits(&real) => continue,
                Some(Real::Inside(real)) => match instructions(&real, left) {
                    Some(text) => text,
                    None => continue,
                },
            };
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
fn instructions(real: &Path, cap: usize) -> Option<String> {
    let file::Start { bytes, size } = file::start(real, cap as u64)?;
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
        let blocks = opening(&place, &ContextFiles::default(), &|_| false);
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
        let blocks = opening(&place, &files, &|_| false);
        assert!(blocks[0].contains(&"a".repeat(90)), "{}", blocks[0]);
        assert!(blocks[1].contains(&"b".repeat(10)), "{}", blocks[1]);
        assert!(!blocks[1].contains(&"b".repeat(11)), "{}", blocks[1]);
        assert!(blocks[1].contains("[cut: 90 bytes in all"), "{}", blocks[1]);
    }

    fn fifo(path: &Path) {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }

    fn block(path: &Path, text: &str) -> String {
        format!("<instructions file=\"{}\">\n{text}\n</instructions>", path.display())
    }

    #[test]
    fn a15_only_files_of_the_project_are_read_and_nothing_makes_us_wait() {
        let temp = tempfile::tempdir().unwrap();
        let (repo, user) = (temp.path().join("repo"), temp.path().join("user"));
        write(&temp.path().join("secret"), "outside");
        write(&repo.join("docs/agents.md"), "inside");
        write(&temp.path().join("dotfiles/AGENTS.md"), "the user's own");
        std::fs::create_dir_all(&user).unwrap();
        std::os::unix::fs::symlink("../dotfiles/AGENTS.md", user.join("AGENTS.md")).unwrap();
        std::os::unix::fs::symlink("docs/agents.md", repo.join("AGENTS.md")).unwrap();
        std::os::unix::fs::symlink("../secret", repo.join("CLAUDE.md")).unwrap();
        std::fs::create_dir_all(repo.join("sub/.git")).unwrap();
        fifo(&repo.join("sub/AGENTS.md"));
        std::os::unix::fs::symlink("AGENTS.md", repo.join("sub/CLAUDE.md")).unwrap();
        std::fs::create_dir_all(repo.join(".git")).unwrap();
        fifo(&repo.join(".git/HEAD"));
        let place =
            Place { directory: repo.join("sub"), repo: Some(repo.clone()), date: "2026-11-15".into() };
        let files = ContextFiles { user_directory: Some(user.clone()), ..ContextFiles::default() };
        let mut blocks = opening(&place, &files, &|_| false);
        let facts = blocks.pop().unwrap();
        assert!(facts.contains("\ngit: a git repository\n"), "{facts}");
        assert_eq!(
            blocks,
            [
                block(&user.join("AGENTS.md"), "the user's own"),
                block(&repo.join("AGENTS.md"), "inside"),
                block(&repo.join("CLAUDE.md"), "[not read: it leads out of the project]"),
            ]
        );
        // What a rule keeps from being read is not read here either, by whatever name.
        let real = repo.join("docs/agents.md").canonicalize().unwrap();
        let blocks = opening(&place, &files, &|path| path == real);
        assert!(!blocks.concat().contains("inside"), "{blocks:?}");
    }

    #[test]
    fn a_head_that_is_none_is_not_shown() {
        let temp = tempfile::tempdir().unwrap();
        for (head, expected) in [
            ("ref: refs/heads/main\n", Some("branch main without commits")),
            ("ref: refs/heads/.invalid\n", None),
            ("1a2b3c4d5e6f1a2b3c4d5e6f1a2b3c4d5e6f1a2b\n", Some("detached at 1a2b3c4d")),
            ("root:x:0:0\n", None),
            ("ref: refs/heads/a\nsecond line\n", None),
        ] {
            write(&temp.path().join(".git/HEAD"), head);
            assert_eq!(git::head(temp.path()).as_deref(), expected, "{head}");
        }
        write(&temp.path().join(".git/HEAD"), &"x".repeat(1 << 20));
        assert_eq!(git::head(temp.path()), None);
    }
}
