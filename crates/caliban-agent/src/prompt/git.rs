//! Which branch and commit a repository is at, read from its files: no process, and nothing in it is run.

use std::path::{Path, PathBuf};

/// More than this is not a ref.
const MAX_REF_BYTES: usize = 4 * 1024;

/// `branch main at 1a2b3c4d`, `detached at 1a2b3c4d` or `branch main without commits`.
pub(super) fn head(repo: &Path) -> Option<String> {
    let git = directory(repo)?;
    let head = small(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref: ") else {
        return Some(format!("detached at {}", short(&head)));
    };
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
    small(&common.join(name)).or_else(|| {
        let packed = std::fs::read_to_string(common.join("packed-refs")).ok()?;
        let line =
            packed.lines().find(|line| line.split_once(' ').is_some_and(|(_, packed)| packed == name))?;
        line.split_once(' ').map(|(commit, _)| commit.to_owned())
    })
}

fn small(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    (text.len() <= MAX_REF_BYTES).then(|| text.trim().to_owned())
}

fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}
