//! `@path` in what a person says: which words are meant, and which files. Bringing them along is the agent's.

use std::path::{Path, PathBuf};

/// Files that one prompt brings along.
pub const FILES: usize = 16;

/// The names behind `@` in what a person says.
pub fn named(words: &str) -> impl Iterator<Item = &str> {
    words.split_whitespace().filter_map(|word| word.strip_prefix('@')).filter(|name| !name.is_empty())
}

/// The file that a name means from `cwd`. A sentence may end behind a name.
pub fn path_of(cwd: &Path, name: &str) -> PathBuf {
    let exact = cwd.join(name);
    if exact.exists() {
        return exact;
    }
    cwd.join(name.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', '"', '\'']))
}
