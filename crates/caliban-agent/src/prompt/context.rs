//! What goes in front of the first prompt: facts about the place, and the project's own instructions.

use std::path::{Path, PathBuf};

use caliban_core::defaults::{CONTEXT_BYTES, CONTEXT_FILES};

use super::{
    git,
    instructions::{Instructions, IsOffLimits},
    untrusted_file,
};

/// More than this is no description of a system.
const MAX_RELEASE_BYTES: u64 = 16 * 1024;

/// Which instruction files are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFiles {
    /// Their names.
    pub names: Vec<String>,
    /// The most bytes of all of them together.
    pub max_bytes: usize,
    /// A directory of the user's own, read first.
    pub user_directory: Option<PathBuf>,
    /// Files of the user's own that other agents read, too.
    pub more_of_the_user: Vec<PathBuf>,
}

impl Default for ContextFiles {
    fn default() -> Self {
        Self {
            names: CONTEXT_FILES.map(str::to_owned).to_vec(),
            max_bytes: CONTEXT_BYTES,
            user_directory: None,
            more_of_the_user: Vec::new(),
        }
    }
}

/// What is known of the surroundings of an agent, beside its directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The shell that commands run in.
    pub shell: String,
    /// Variables that commands do not get, and why, in words.
    pub left_out: String,
}

/// Facts about the place.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkplaceFacts {
    /// Where the agent works.
    pub directory: PathBuf,
    /// The top of the repository, when it is in one.
    pub repo: Option<PathBuf>,
    /// Today, as `2026-11-15`.
    pub date: String,
    /// The model.
    pub model: String,
    /// What may be done without a question.
    pub mode: String,
    /// What else is known.
    pub surroundings: Surroundings,
}

/// The context blocks: the instructions, outermost directory first, and the facts last. A file that must not be shown is
/// not read.
pub fn opening(
    place: &WorkplaceFacts,
    instructions: &Instructions,
    is_off_limits: IsOffLimits<'_>,
) -> Vec<String> {
    let mut blocks = instructions.opening(&place.directory, is_off_limits);
    blocks.push(facts(place));
    blocks
}

fn facts(place: &WorkplaceFacts) -> String {
    let mut lines = vec![format!("directory: {}", place.directory.display())];
    let head =
        place.repo.as_deref().map(|repo| git::head(repo).unwrap_or_else(|| "a git repository".to_owned()));
    lines.push(format!("git: {}", head.as_deref().unwrap_or("not a git repository")));
    lines.push(format!("platform: {}", platform()));
    let said =
        [("shell", &place.surroundings.shell), ("model", &place.model), ("permission mode", &place.mode)];
    lines.extend(
        said.into_iter().filter(|(_, said)| !said.is_empty()).map(|(name, said)| format!("{name}: {said}")),
    );
    lines.push(format!("date: {}", place.date));
    if !place.surroundings.left_out.is_empty() {
        lines.push(format!("not passed on to commands: {}", place.surroundings.left_out));
    }
    format!("<environment>\n{}\n</environment>", lines.join("\n"))
}

/// `linux (Debian GNU/Linux 13 (trixie))`.
fn platform() -> String {
    let os = std::env::consts::OS;
    let release = untrusted_file::text(Path::new("/etc/os-release"), MAX_RELEASE_BYTES).unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    match name.map(|name| name.trim_matches('"')).filter(|name| !name.is_empty()) {
        Some(name) => format!("{os} ({name})"),
        None => os.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(place: &WorkplaceFacts, files: &ContextFiles) -> Vec<String> {
        let top = place.repo.as_ref().unwrap_or(&place.directory);
        opening(place, &Instructions::new(files.clone(), top.clone()), &|_| false)
    }

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
        let place = WorkplaceFacts {
            directory: repo.join("sub"),
            repo: Some(repo.clone()),
            date: "2026-11-15".into(),
            ..WorkplaceFacts::default()
        };
        let blocks = read(&place, &ContextFiles::default());
        let repo = repo.display();
        assert_eq!(
            blocks,
            [
                format!("<instructions file=\"{repo}/AGENTS.md\">\ntop\n</instructions>"),
                format!("<instructions file=\"{repo}/sub/CLAUDE.md\">\nbelow\n</instructions>"),
                format!(
                    "<environment>\ndirectory: {repo}/sub\ngit: a git repository\nplatform: {}\n\
                     date: 2026-11-15\n</environment>",
                    platform()
                ),
            ]
        );
    }

    #[test]
    fn the_cap_holds_over_all_files() {
        let temp = tempfile::tempdir().unwrap();
        write(&temp.path().join("AGENTS.md"), &"a".repeat(90));
        write(&temp.path().join("CLAUDE.md"), &"b".repeat(90));
        let place = WorkplaceFacts {
            directory: temp.path().to_owned(),
            repo: None,
            date: "2026-11-15".into(),
            ..WorkplaceFacts::default()
        };
        let files = ContextFiles { max_bytes: 100, ..ContextFiles::default() };
        let blocks = read(&place, &files);
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
        let place = WorkplaceFacts {
            directory: repo.join("sub"),
            repo: Some(repo.clone()),
            date: "2026-11-15".into(),
            ..WorkplaceFacts::default()
        };
        let files = ContextFiles { user_directory: Some(user.clone()), ..ContextFiles::default() };
        let mut blocks = read(&place, &files);
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
        let instructions = Instructions::new(files, repo.clone());
        let blocks = opening(&place, &instructions, &|path| path == real);
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
