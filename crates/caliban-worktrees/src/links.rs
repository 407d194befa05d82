//! `symlink_directories`: directories of the repository that a worktree shares by a link.
//!
//! Each is a real directory beneath the root, with no link on the way: a link could lead to the home
//! directory, and what an agent writes through it lands there.

use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};

use caliban_rooted::{Below, tree};
use rustix::fs::{Mode, OFlags};

use crate::error::{Error, Result};
use crate::repo::{Repo, asked_to_ignore, split_nul, told_ignored};

/// A directory to link, relative to the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkPath {
    relative: Below,
    text: String,
}

impl LinkPath {
    pub(crate) fn relative(&self) -> PathBuf {
        self.relative.under(Path::new(""))
    }

    pub(crate) fn shown(&self) -> &str {
        &self.text
    }

    /// The line that keeps exactly this path out of git.
    pub(crate) fn exclude_line(&self) -> String {
        exclude_line(&self.text)
    }
}

/// The same of a link that is recorded.
pub(crate) fn recorded_line(link: &Path) -> String {
    exclude_line(&link.to_string_lossy())
}

fn exclude_line(path: &str) -> String {
    let mut line = String::from("/");
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | ' ') {
            line.push('\\');
        }
        line.push(c);
    }
    line
}

/// Whether these directories of the working tree at `root` can be linked, as far as that is seen before a worktree is
/// made; the error names the first that cannot.
pub fn check_links(root: &Path, wanted: &[String]) -> Result<()> {
    check(Some(root), wanted).map(drop)
}

/// Checks every directory against the working tree that they are taken from.
pub(crate) fn check(source: Option<&Path>, wanted: &[String]) -> Result<Vec<LinkPath>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let refuse = |path: &str, why| Error::Link { path: path.to_owned(), why };
    let Some(source) = source else {
        return Err(refuse(&wanted[0], "the repository is bare: there is no directory to link"));
    };
    let root = open_root(source)?;
    let mut links: Vec<LinkPath> = Vec::new();
    for text in wanted {
        let link = parse(text).map_err(|why| refuse(text, why))?;
        tree::walk_to(&root, &link.relative).map_err(|e| {
            refuse(
                text,
                match rustix::io::Errno::from_io_error(&e) {
                    Some(rustix::io::Errno::NOENT) => "it does not exist",
                    Some(rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
                        "it is no directory, or there is a link on the way"
                    }
                    _ => "it cannot be opened",
                },
            )
        })?;
        let overlaps = |have: &LinkPath| {
            have.relative != link.relative
                && (have.relative.starts_with(&link.relative) || link.relative.starts_with(&have.relative))
        };
        if links.iter().any(overlaps) {
            return Err(refuse(text, "it lies in another linked directory, or holds one"));
        }
        if !links.contains(&link) {
            links.push(link);
        }
    }
    Ok(links)
}

/// What a path must look like before the disk is asked.
fn parse(text: &str) -> std::result::Result<LinkPath, &'static str> {
    if text.is_empty() {
        return Err("it is empty");
    }
    if text.chars().any(char::is_control) {
        return Err("it has a control character");
    }
    for component in Path::new(text).components() {
        match component {
            Component::Normal(part) if part.eq_ignore_ascii_case(".git") => {
                return Err("it names git's own directory");
            }
            Component::Normal(part) if part.eq_ignore_ascii_case(".caliban") => {
                return Err("it names the directory of the worktrees");
            }
            Component::Normal(_) | Component::CurDir => {}
            Component::ParentDir => return Err("'..' is not allowed"),
            Component::RootDir | Component::Prefix(_) => {
                return Err("it is not relative to the repository's root");
            }
        }
    }
    let relative = Below::new(text).map_err(|_| "it is not relative to the repository's root")?;
    let text = relative.to_string();
    if relative.is_here() { Err("it is the repository itself") } else { Ok(LinkPath { relative, text }) }
}

/// Makes the links in the new worktree.
pub(crate) fn make(source: &Path, worktree: BorrowedFd<'_>, links: &[LinkPath]) -> Result<()> {
    for link in links {
        let target = link.relative.under(source);
        tree::create_link(worktree, &link.relative, target.as_os_str()).map_err(|e| {
            if e.kind() == std::io::ErrorKind::AlreadyExists {
                Error::Link { path: link.text.clone(), why: "git tracks it, so the worktree has its own" }
            } else {
                Error::io(format!("linking {}", link.text), e)
            }
        })?;
    }
    Ok(())
}

/// Which of them git ignores in the working tree that they come from.
pub(crate) async fn ignored(repo: &Repo, links: &[LinkPath]) -> Result<Vec<LinkPath>> {
    let directories: Vec<String> = links.iter().map(|link| format!("{}/", link.text)).collect();
    let asked = asked_to_ignore(directories.iter().map(String::as_bytes));
    let call = repo.git.hardened(repo.opened(), "check-ignore").args(["-z", "--stdin"]);
    let answer = call.stdin(asked).run().await?;
    if !matches!(answer.status.code(), Some(0 | 1)) {
        return Err(answer.failure());
    }
    let found: Vec<&[u8]> = split_nul(&answer.stdout).map(told_ignored).collect();
    let is_in = |l: &LinkPath| found.iter().any(|f| f.strip_suffix(b"/").unwrap_or(f) == l.text.as_bytes());
    Ok(links.iter().filter(|l| is_in(l)).cloned().collect())
}

fn open_root(source: &Path) -> Result<std::os::fd::OwnedFd> {
    rustix::fs::open(source, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::at("opening", source, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a05_only_plain_relative_paths_are_looked_at() {
        assert_eq!(parse("a/b/").map(|l| l.text), Ok("a/b".to_owned()));
        assert_eq!(parse("./target").map(|l| l.text), Ok("target".to_owned()));
        for bad in
            ["", ".", "..", "a/../..", "/etc", ".git", "a/.GIT/hooks", ".caliban/worktrees", "a\nb", "a\0b"]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!(parse("my dir*").map(|l| l.exclude_line()), Ok("/my\\ dir\\*".to_owned()));
    }
}
