//! Paths as the rules see them: made plain, followed through links, matched against patterns.
//!
//! Reading links is the only thing in this crate that looks at the file system; nothing is ever changed.

use std::{
    ffi::OsString,
    path::{Component, Path, PathBuf},
};

use globset::{GlobBuilder, GlobMatcher};

/// The same path without `.` and `..`, links not followed.
pub fn normalise(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// Where the path really leads: every link followed, also one whose end does not exist yet, and `..` taken
/// after the link before it. Nothing when the links go in a circle.
pub fn resolve(path: &Path) -> Option<PathBuf> {
    follow(path, |_| {})
}

/// The same, and every place on the way: the directories, the links and what they lead to.
#[expect(clippy::disallowed_methods, reason = "it follows links one by one, to judge each path")]
pub(crate) fn follow(path: &Path, mut visit: impl FnMut(&Path)) -> Option<PathBuf> {
    /// As many as the kernel follows.
    const MAX_LINKS: usize = 40;
    let parts = |path: &Path| {
        let parts = path.components().rev().map(|part| part.as_os_str().to_owned());
        parts.collect::<Vec<OsString>>()
    };
    let mut links = 0;
    let mut done = PathBuf::new();
    let mut todo = parts(path);
    while let Some(part) = todo.pop() {
        if part == ".." {
            done.pop();
        } else if part != "." {
            // The root takes the place of all before it.
            done.push(part);
            visit(&done);
            let Ok(target) = done.read_link() else { continue };
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            done.pop();
            todo.extend(parts(&target));
        }
    }
    Some(done)
}

/// A path as it is given, and where it leads.
pub(crate) fn as_given_and_real(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    [Some(normalise(path)), resolve(path)].into_iter().flatten()
}

/// A path pattern of a rule, as in `.gitignore`:
/// `src/**` from the project root, `.env` anywhere below it, `/etc/hosts` or `//etc/hosts` absolute, `~/x` from
/// the home directory. What names a directory covers all that is in it.
#[derive(Debug, Clone)]
pub(crate) struct PathPattern {
    from: From,
    inside: Vec<GlobMatcher>,
    /// The part before the first wildcard.
    pub(crate) literal: String,
    /// The longest fixed text in its last part, and whether that is the whole part.
    name: (String, bool),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum From {
    Project,
    Home,
    /// One slash: absolute; a rule that forbids takes it from the project root too, as Claude Code means it.
    OneSlash,
    TwoSlashes,
}

/// The directories that patterns start from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bases<'a> {
    pub(crate) project: &'a [PathBuf],
    pub(crate) home: &'a [PathBuf],
}

/// Whether a rule gives or takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    Narrow,
    Wide,
}

impl PathPattern {
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let (from, rest) = if let Some(rest) = text.strip_prefix("~/") {
            (From::Home, rest)
        } else if let Some(rest) = text.strip_prefix("//") {
            (From::TwoSlashes, rest)
        } else if let Some(rest) = text.strip_prefix('/') {
            (From::OneSlash, rest)
        } else {
            (From::Project, text)
        };
        if text == "~" || rest.split('/').any(|part| part == "..") || rest.starts_with('!') {
            return Err("a path pattern without `..`, `!` or a bare `~`".to_owned());
        }
        let rest = rest.strip_prefix("./").map_or(rest, |rest| rest);
        let anchored =
            from != From::Project || text.starts_with("./") || rest.trim_end_matches('/').contains('/');
        let rest = rest.trim_end_matches('/');
        let globs = match (rest, anchored) {
            ("", _) => vec!["**".to_owned()],
            (rest, true) => vec![rest.to_owned(), format!("{rest}/**")],
            (rest, false) => vec![format!("**/{rest}"), format!("**/{rest}/**")],
        };
        let inside = globs
            .iter()
            .map(|glob| {
                let built = GlobBuilder::new(glob).literal_separator(true).backslash_escape(true).build();
                built.map(|glob| glob.compile_matcher()).map_err(|error| error.kind().to_string())
            })
            .collect::<Result<_, _>>()?;
        let literal = text.split(['*', '?', '[', '{']).next().unwrap_or_default().to_owned();
        let last = rest.trim_end_matches("/**").rsplit('/').next().unwrap_or_default();
        let fixed = last.split(['*', '?', '[', ']', '{', '}']).max_by_key(|piece| piece.len());
        let fixed = fixed.unwrap_or_default().to_owned();
        let name = (fixed.clone(), fixed == last);
        Ok(Self { from, inside, literal, name })
    }

    /// Whether a text that the shell will change names such a file, as far as it is written out.
    pub(crate) fn stands_in(&self, text: &str) -> bool {
        let text: String = text.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
        let (name, whole) = &self.name;
        if name.len() < 2 {
            return false;
        }
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        let goes_on = |c: char| letter(c) || "-.".contains(c);
        text.match_indices(name.as_str()).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + name.len()..].chars().next();
            !whole || !(before.is_some_and(letter) || after.is_some_and(goes_on))
        })
    }

    pub(crate) fn matches(&self, path: &Path, bases: Bases<'_>, reading: Reading) -> bool {
        let root = [PathBuf::from("/")];
        let below = |bases: &[PathBuf]| {
            bases
                .iter()
                .filter_map(|base| path.strip_prefix(base).ok())
                .any(|below| self.inside.iter().any(|glob| glob.is_match(below)))
        };
        match self.from {
            From::Project => below(bases.project),
            From::Home => below(bases.home),
            From::TwoSlashes => below(&root),
            From::OneSlash => below(&root) || (reading == Reading::Wide && below(bases.project)),
        }
    }
}
