//! The instruction files of people and projects: which are read, in what order, what they import, and those of a directory
//! whose files are touched for the first time.
//!
//! They are only text for the model. A project's files are read within the project alone, links followed; so are its
//! imports. The user's own files may import whatever the user can read.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::{
    context::ContextFiles,
    untrusted_file::{self, Real},
};

/// How deep imports are followed.
const IMPORT_DEPTH: u32 = 5;

/// A file of that name beside it is read in its place.
const OVERRIDES: [(&str, &str); 1] = [("AGENTS.md", "AGENTS.override.md")];

/// Whether a file must not be shown.
pub type IsOffLimits<'a> = &'a dyn Fn(&Path) -> bool;

/// What was read so far, for one agent.
#[derive(Debug)]
pub struct Instructions {
    files: ContextFiles,
    /// The top of the project.
    top: PathBuf,
    state: Mutex<InstructionsRead>,
}

#[derive(Debug)]
struct InstructionsRead {
    /// Directories that were looked into.
    directories: BTreeSet<PathBuf>,
    /// Texts that were read.
    texts: Vec<String>,
    /// Bytes that may still be read.
    left: usize,
}

impl Instructions {
    /// Nothing is read yet.
    pub fn new(files: ContextFiles, top: PathBuf) -> Self {
        let state =
            InstructionsRead { directories: BTreeSet::new(), texts: Vec::new(), left: files.max_bytes };
        Self { files, top, state: Mutex::new(state) }
    }

    /// The user's own files and those of the project from its top down to a directory, the outermost first.
    pub fn opening(&self, directory: &Path, is_off_limits: IsOffLimits<'_>) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut state = self.lock();
        let everywhere = Path::new("/");
        if let Some(user) = &self.files.user_directory {
            self.read_directory(&mut state, user, everywhere, is_off_limits, &mut blocks);
        }
        for path in &self.files.more_of_the_user {
            let path = replaced(path);
            read(&mut state, &path, everywhere, is_off_limits, 0, &mut blocks);
        }
        for directory in self.down_to(directory) {
            state.directories.insert(directory.clone());
            self.read_directory(&mut state, &directory, &self.top, is_off_limits, &mut blocks);
        }
        blocks
    }

    /// The files of the directories above a file that were not looked into before.
    pub fn first_touch(&self, path: &Path, is_off_limits: IsOffLimits<'_>) -> Vec<String> {
        let mut blocks = Vec::new();
        let Some(directory) = path.parent() else { return blocks };
        let mut state = self.lock();
        for directory in self.down_to(directory) {
            if state.directories.insert(directory.clone()) {
                self.read_directory(&mut state, &directory, &self.top, is_off_limits, &mut blocks);
            }
        }
        blocks
    }

    /// What was said in the middle of the conversation is not in it any more: it is said again when it matters.
    pub fn forget_touched(&self, directory: &Path) {
        let opening: BTreeSet<PathBuf> = self.down_to(directory).into_iter().collect();
        let mut state = self.lock();
        state.directories = opening;
        state.texts.clear();
        state.left = self.files.max_bytes;
    }

    /// The directories of the project from its top to this one; none when it is elsewhere.
    fn down_to(&self, directory: &Path) -> Vec<PathBuf> {
        let within = directory.ancestors().take_while(|directory| directory.starts_with(&self.top));
        let mut directories: Vec<PathBuf> = within.map(Path::to_owned).collect();
        directories.reverse();
        directories
    }

    fn read_directory(
        &self,
        state: &mut InstructionsRead,
        directory: &Path,
        within: &Path,
        is_off_limits: IsOffLimits<'_>,
        blocks: &mut Vec<String>,
    ) {
        for name in &self.files.names {
            let path = replaced(&directory.join(name));
            read(state, &path, within, is_off_limits, 0, blocks);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InstructionsRead> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file that is read in the place of this one.
fn replaced(path: &Path) -> PathBuf {
    let own = OVERRIDES.iter().find(|(name, _)| path.file_name().is_some_and(|file| file == *name));
    let other = own.map(|(_, other)| path.with_file_name(other)).filter(|other| other.exists());
    other.unwrap_or_else(|| path.to_owned())
}

fn read(
    state: &mut InstructionsRead,
    path: &Path,
    within: &Path,
    is_off_limits: IsOffLimits<'_>,
    depth: u32,
    blocks: &mut Vec<String>,
) {
    let (text, real) = match untrusted_file::real(path, within) {
        None => return,
        Some(Real::Outside) => ("[not read: it leads out of the project]".to_owned(), None),
        Some(Real::Inside(real)) if is_off_limits(path) || is_off_limits(&real) => return,
        Some(Real::Inside(real)) => match whole(&real, state.left) {
            Some(text) => (text, Some(real)),
            None => return,
        },
    };
    // CLAUDE.md is often a copy of AGENTS.md, or a link to it; and imports may go round in circles.
    if real.is_some() && state.texts.iter().any(|known| known.contains(text.trim())) {
        return;
    }
    state.left = state.left.saturating_sub(text.len());
    blocks.push(format!("<instructions file=\"{}\">\n{}\n</instructions>", path.display(), text.trim_end()));
    let imports = if real.is_some() && depth < IMPORT_DEPTH { imports(&text) } else { Vec::new() };
    state.texts.push(text);
    let Some(directory) = real.as_deref().and_then(Path::parent) else { return };
    for import in imports {
        read(state, &directory.join(import), within, is_off_limits, depth + 1, blocks);
    }
}

/// The file's text, cut to the cap with a word on it; `None` when there is nothing to say.
fn whole(real: &Path, cap: usize) -> Option<String> {
    let untrusted_file::Start { bytes, size } = untrusted_file::start(real, cap as u64)?;
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if size > cap as u64 {
        text.push_str(&format!("\n[cut: {size} bytes in all; read the file for the rest]"));
    }
    (!text.trim().is_empty()).then_some(text)
}

/// The paths that a text imports with `@path`, outside of code. A name without a dot or a slash is somebody's handle.
fn imports(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if is_code {
            continue;
        }
        // Every other part between backticks is code.
        for part in line.split('`').step_by(2) {
            let words = part.split_whitespace().filter_map(|word| word.strip_prefix('@'));
            let paths = words.map(|word| word.trim_end_matches(['.', ',', ';', ':', ')', '!', '?']));
            found.extend(paths.filter(|path| path.contains(['.', '/'])).map(str::to_owned));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn names(blocks: &[String], below: &Path) -> Vec<String> {
        let name = |block: &String| {
            let path = block.split('"').nth(1).unwrap();
            Path::new(path).strip_prefix(below).unwrap_or(Path::new(path)).display().to_string()
        };
        blocks.iter().map(name).collect()
    }

    #[test]
    fn imports_are_paths_outside_of_code() {
        let text =
            "see @docs/style.md, and @README.md.\n`@not/this`\n```\n@nor/this.md\n```\nask @alice or a@b.c";
        assert_eq!(imports(text), ["docs/style.md", "README.md"]);
    }

    #[test]
    fn all_kinds_of_files_are_read_in_order_and_imports_stay_in_the_project() {
        let temp = tempfile::tempdir().unwrap();
        let (home, repo) = (temp.path().join("home"), temp.path().join("home/repo"));
        write(&home.join("secret.md"), "not the project's");
        write(&home.join(".claude/CLAUDE.md"), "mine, see @more.md");
        write(&home.join(".claude/more.md"), "more of mine");
        write(&home.join(".codex/AGENTS.md"), "for codex");
        write(&repo.join("AGENTS.md"), "replaced");
        write(&repo.join("AGENTS.override.md"), "in its place");
        write(&repo.join("CLAUDE.md"), "the project: @docs/a.md @../secret.md @docs/a.md");
        write(&repo.join("docs/a.md"), "imported, and @b.md");
        write(&repo.join("docs/b.md"), "imported by that; back to @../CLAUDE.md");
        write(&repo.join(".claude/CLAUDE.md"), "hidden");
        write(&repo.join("CLAUDE.local.md"), "local");
        let files = ContextFiles {
            more_of_the_user: vec![home.join(".claude/CLAUDE.md"), home.join(".codex/AGENTS.md")],
            ..ContextFiles::default()
        };
        let instructions = Instructions::new(files, repo.clone());
        let blocks = instructions.opening(&repo, &|_| false);
        assert_eq!(
            names(&blocks, &home),
            [
                ".claude/CLAUDE.md",
                ".claude/more.md",
                ".codex/AGENTS.md",
                "repo/AGENTS.override.md",
                "repo/CLAUDE.md",
                "repo/docs/a.md",
                "repo/docs/b.md",
                "repo/docs/../../secret.md",
                "repo/.claude/CLAUDE.md",
                "repo/CLAUDE.local.md",
            ]
            .map(|name| name.replace("docs/../../", "../"))
        );
        let all = blocks.concat();
        assert!(!all.contains("not the project's") && !all.contains("replaced\n"), "{all}");
        assert!(all.contains("[not read: it leads out of the project]"), "{all}");
    }

    #[test]
    fn a_directory_says_its_part_when_a_file_of_it_is_first_touched() {
        let temp = tempfile::tempdir().unwrap();
        let repo = temp.path();
        write(&repo.join("AGENTS.md"), "top");
        write(&repo.join("a/AGENTS.md"), "a");
        write(&repo.join("a/b/CLAUDE.md"), "b");
        let instructions = Instructions::new(ContextFiles::default(), repo.to_owned());
        assert_eq!(names(&instructions.opening(repo, &|_| false), repo), ["AGENTS.md"]);
        let touched = |path: &str| names(&instructions.first_touch(&repo.join(path), &|_| false), repo);
        assert_eq!(touched("x.rs"), Vec::<String>::new());
        assert_eq!(touched("a/b/c/x.rs"), ["a/AGENTS.md", "a/b/CLAUDE.md"]);
        assert_eq!(touched("a/b/y.rs"), Vec::<String>::new());
        instructions.forget_touched(repo);
        assert_eq!(touched("a/y.rs"), ["a/AGENTS.md"]);
        assert_eq!(touched("/elsewhere/x.rs"), Vec::<String>::new());
    }
}
