//! Which branch and commit a repository is at, read from its files: no process, and nothing in it is run.

use std::path::{Path, PathBuf};

use super::untrusted_file;

/// More than this is not a ref.
const MAX_REF_BYTES: u64 = 4 * 1024;
/// A larger list of refs is not looked through.
const MAX_PACKED_BYTES: u64 = 64 << 20;
/// The shortest and the longest name of a commit.
const COMMIT_CHARS: std::ops::RangeInclusive<usize> = 40..=64;

/// `branch main at 1a2b3c4d`, `detached at 1a2b3c4d` or `branch main without commits`.
pub(super) fn head(repo: &Path) -> Option<String> {
    let git = directory(repo)?;
    let head = small(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref: ") else {
        return is_commit(&head).then(|| format!("detached at {}", short(&head)));
    };
    // In a repository that keeps its refs in tables, this file says nothing.
    if name == "refs/heads/.invalid" {
        return None;
    }
    let branch = name.strip_prefix("refs/heads/").unwrap_or(name);
    Some(match commit(&git, name) {
        Some(commit) => format!("branch {branch} at {}", short(&commit)),
        None => format!("branch {branch} without commits"),
    })
}

fn directory(repo: &Path) -> Option<PathBuf> {
    let dot_git = repo.join(".git");
    if dot_git.is_dir() {
        return Some(dot_git);
    }
    let pointer = small(&dot_git)?;
    Some(repo.join(pointer.strip_prefix("gitdir: ")?))
}

fn commit(git: &Path, name: &str) -> Option<String> {
    let common = small(&git.join("commondir")).map_or_else(|| git.to_owned(), |path| git.join(path));
    small(&common.join(name)).filter(|commit| is_commit(commit)).or_else(|| {
        let packed = untrusted_file::text(&common.join("packed-refs"), MAX_PACKED_BYTES)?;
        let line =
            packed.lines().find(|line| line.split_once(' ').is_some_and(|(_, packed)| packed == name))?;
        line.split_once(' ').map(|(commit, _)| commit.to_owned())
    })
}

/// What may be a ref: one line.
fn small(path: &Path) -> Option<String> {
    let text = untrusted_file::text(path, MAX_REF_BYTES)?;
    let line = text.trim();
    (!line.contains(char::is_control)).then(|| line.to_owned())
}

fn is_commit(text: &str) -> bool {
    COMMIT_CHARS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}
