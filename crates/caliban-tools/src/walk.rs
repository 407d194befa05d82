//! Walking directories the way a developer means it: `.gitignore` respected, hidden files seen,
//! version control's own directories not, links not followed.

use std::{
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use globset::{GlobBuilder, GlobMatcher};
use ignore::WalkBuilder;
use tokio_util::sync::CancellationToken;

use crate::limits::SEARCH_TIME;

/// Directories that belong to version control.
const VERSION_CONTROL: [&str; 4] = [".git", ".hg", ".jj", ".svn"];

/// Directories of the kernel: endless, and no files.
const KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Ends a search: cancelled, or out of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds<'a> {
    cancel: &'a CancellationToken,
    deadline: Instant,
}

impl<'a> Bounds<'a> {
    pub(crate) fn new(cancel: &'a CancellationToken) -> Self {
        Self { cancel, deadline: Instant::now() + SEARCH_TIME }
    }

    /// With at most this much time from now on.
    pub(crate) fn within(self, time: Duration) -> Self {
        Self { deadline: self.deadline.min(Instant::now() + time), ..self }
    }

    pub(crate) fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(crate) fn out_of_time(&self) -> bool {
        Instant::now() > self.deadline
    }
}

/// What happens with files that `.gitignore` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ignored {
    Skip,
    Include,
}

/// A walk below `base`. The name of `base` itself does not matter: a call that names an ignored directory
/// wants to look into it.
pub(crate) fn walk(base: &Path, ignored: Ignored) -> WalkBuilder {
    let mut builder = WalkBuilder::new(base);
    let skip = ignored == Ignored::Skip;
    builder
        .hidden(false)
        .parents(skip)
        .ignore(skip)
        .git_ignore(skip)
        .git_exclude(skip)
        // It would read the environment; what is ignored shall depend on the repository only.
        .git_global(false)
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| {
            let skipped = VERSION_CONTROL.iter().any(|name| entry.file_name() == *name)
                || KERNEL.iter().any(|path| entry.path() == Path::new(path));
            entry.depth() == 0 || !skipped
        });
    builder
}

/// A glob on paths relative to the directory that is walked. Without a slash it matches the file's name
/// at any depth.
#[derive(Debug, Clone)]
pub(crate) struct PathGlob {
    matcher: GlobMatcher,
    wanted: bool,
}

impl PathGlob {
    pub(crate) fn new(pattern: &str) -> Result<Self, String> {
        let (pattern, wanted) = match pattern.strip_prefix('!') {
            Some(rest) => (rest, false),
            None => (pattern, true),
        };
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        let anywhere;
        let whole = match pattern.strip_prefix('/') {
            Some(rest) => rest,
            None if pattern.contains('/') => pattern,
            None => {
                anywhere = format!("**/{pattern}");
                &anywhere
            }
        };
        let glob = GlobBuilder::new(whole)
            .literal_separator(true)
            .build()
            .map_err(|error| format!("`{pattern}` is not a valid glob: {}", error.kind()))?;
        Ok(Self { matcher: glob.compile_matcher(), wanted })
    }

    pub(crate) fn matches(&self, relative: &Path) -> bool {
        self.matcher.is_match(relative) == self.wanted
    }
}

/// Splits a pattern into the directory that its first parts name and the glob that is left:
/// `/src/a/**/*.rs` into `/src/a` and `**/*.rs`.
pub(crate) fn split_literal(pattern: &str) -> (PathBuf, String) {
    let mut directory = PathBuf::new();
    let parts: Vec<Component<'_>> = Path::new(pattern).components().collect();
    let Some((last, parents)) = parts.split_last() else { return (directory, String::new()) };
    let mut rest = parents.iter().peekable();
    while let Some(part) = rest.next_if(|part| !has_meta(part)) {
        directory.push(part);
    }
    let glob: PathBuf = rest.chain([last]).collect();
    (directory, glob.to_string_lossy().into_owned())
}

fn has_meta(part: &Component<'_>) -> bool {
    part.as_os_str().to_string_lossy().contains(['*', '?', '[', '{', '\\', '!'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_without_a_slash_matches_anywhere() {
        let matches = |glob: &str, path: &str| PathGlob::new(glob).unwrap().matches(Path::new(path));
        assert!(matches("*.rs", "a/b/c.rs"));
        assert!(matches("*.rs", "c.rs"));
        assert!(!matches("a/*.rs", "a/b/c.rs"));
        assert!(matches("a/**/*.rs", "a/b/c.rs"));
        assert!(matches("a/**/*.rs", "a/c.rs"));
        assert!(matches("*.{ts,tsx}", "x/y.tsx"));
        assert!(!matches("/*.rs", "a/c.rs"));
        assert!(!matches("!*.rs", "a/c.rs"));
        assert!(matches("!*.rs", "a/c.py"));
        assert!(matches("./a/*", "a/x"));
        assert_eq!(
            PathGlob::new("a[").unwrap_err(),
            "`a[` is not a valid glob: unclosed character class; missing ']'"
        );
    }

    #[test]
    fn the_literal_start_of_a_pattern_is_a_directory() {
        let split = |pattern: &str| split_literal(pattern);
        assert_eq!(split("/src/a/**/*.rs"), ("/src/a".into(), "**/*.rs".into()));
        assert_eq!(split("*.rs"), ("".into(), "*.rs".into()));
        assert_eq!(split("../x/*"), ("../x".into(), "*".into()));
        assert_eq!(split("src/main.rs"), ("src".into(), "main.rs".into()));
        assert_eq!(split("{a,b}/x/*.rs"), ("".into(), "{a,b}/x/*.rs".into()));
        assert_eq!(split(""), ("".into(), "".into()));
    }
}
