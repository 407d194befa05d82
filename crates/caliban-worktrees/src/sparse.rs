//! Sparse paths: checked, handed to git on stdin in cone mode.

use crate::error::{Error, Result};
use crate::marker::Oid;
use crate::repo::Repo;

const PATHS_CAP: usize = 1000;
/// Stands in the cone of a worktree that asks for nothing, so that only the root's own files are there.
const SENTINEL: &str = ".caliban-fresh";

/// A directory (or file) of the repository, relative to its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SparsePath(String);

impl SparsePath {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refuse = |why| Err(Error::SparsePath { path: text.to_owned(), why });
        if text.chars().any(char::is_control) {
            return refuse("it has a control character");
        }
        let path = text.strip_prefix("./").unwrap_or(text);
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return refuse("it is empty");
        }
        if path.starts_with('/') {
            return refuse("it is not relative to the repository's root");
        }
        if path.trim() != path || path.contains('\\') {
            return refuse("it begins or ends with a space, or has a backslash");
        }
        for part in path.split('/') {
            match part {
                "" | "." | ".." => return refuse("'.', '..' and empty parts are not allowed"),
                _ if part.eq_ignore_ascii_case(".git") => return refuse("it names git's own directory"),
                _ => {}
            }
        }
        Ok(Self(path.to_owned()))
    }
}

/// What `git sparse-checkout set --stdin` reads: one quoted path a line.
pub(crate) fn stdin(paths: &[SparsePath]) -> Vec<u8> {
    let names = paths.iter().map(|p| p.0.as_str()).take(PATHS_CAP);
    let names: Vec<&str> = if paths.is_empty() { vec![SENTINEL] } else { names.collect() };
    // Control characters and backslashes were refused, so only the quote itself needs an escape.
    names.iter().map(|name| format!("\"{}\"\n", name.replace('"', "\\\""))).collect::<String>().into_bytes()
}

/// A note for each path that the base does not have: it may be meant to be made, or it is a slip.
pub(crate) async fn missing(repo: &Repo, base: &Oid, paths: &[SparsePath]) -> Result<Vec<String>> {
    if paths.len() > PATHS_CAP {
        let path = format!("{} paths", paths.len());
        return Err(Error::SparsePath { path, why: "more than 1000 at once" });
    }
    if paths.is_empty() {
        return Ok(Vec::new());
    }
    let asked: String = paths.iter().map(|p| format!("{base}:{}\n", p.0)).collect();
    let call = repo.git.hardened(repo.store(), "cat-file").arg("--batch-check=%(objecttype)");
    let answer = call.stdin(asked.into_bytes()).ok().await?;
    let answer = String::from_utf8_lossy(&answer.stdout).into_owned();
    Ok(answer
        .lines()
        .zip(paths)
        .filter(|(line, _)| line.ends_with(" missing"))
        .map(|(_, path)| format!("sparse path '{}' is not in {}", path.0, base.short()))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a04_sparse_paths_are_plain_paths() {
        let read = |text| SparsePath::parse(text).map(|p| p.0).map_err(|_| ());
        assert_eq!(read("crates/a/"), Ok("crates/a".to_owned()));
        assert_eq!(read("./src"), Ok("src".to_owned()));
        assert_eq!(read("-x"), Ok("-x".to_owned()));
        assert_eq!(read("a\nb"), Err(()));
        for bad in ["", "/", "/etc", "..", "a/../b", "a//b", ".git", "a/.GIT/b", "a\0b", " a", "a\\b", "."] {
            assert_eq!(read(bad), Err(()), "{bad:?}");
        }
        assert_eq!(stdin(&[SparsePath("a\"b".into()), SparsePath("-x".into())]), b"\"a\\\"b\"\n\"-x\"\n");
        assert_eq!(stdin(&[]), b"\".caliban-fresh\"\n");
    }
}
