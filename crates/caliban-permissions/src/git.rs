//! Commands of git that show files without naming them: of which state, limited to which paths, and whether
//! git keeps a given file at all.
//!
//! It reads the index, and nothing of the objects: what earlier commits hold is not known here.

use std::path::{Path, PathBuf};

use caliban_rooted::tree;

use crate::{
    command_pattern::{Value, value},
    shell::{ParsedCommand, word::Word},
};

/// The largest `.git` file that is read: one path.
const GIT_FILE_BYTES: u64 = 16 * 1024;
/// The largest index that is read; git's for a million files is smaller.
const INDEX_BYTES: u64 = 256 << 20;

/// What a command shows the contents of.
#[derive(Debug)]
pub(crate) struct ShownContents {
    state: GitContents,
    /// Where it runs.
    directories: Option<Vec<PathBuf>>,
    /// The paths behind `--`; none when they cannot be known.
    limits: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GitContents {
    /// The files that git keeps now.
    Index,
    History,
}

impl ShownContents {
    /// Whether a file that a rule is `about` may be in it; `covers` tells of a directory whether it holds one.
    pub(crate) fn may_hold(&self, about: &dyn Fn(&Path) -> bool, covers: &dyn Fn(&Path) -> bool) -> bool {
        let Some(directories) = &self.directories else { return true };
        directories.iter().any(|directory| match &self.limits {
            Some(limits) if !limits.is_empty() => limits.iter().any(|limit| {
                let path = directory.join(limit);
                let plain = !limit.starts_with(':') && !limit.contains(['*', '?', '[', '\\']);
                let below = !limit.is_empty() && !limit.split('/').any(|part| part == "." || part == "..");
                // The words themselves are judged elsewhere. What a directory held earlier nobody knows here.
                let holds = match self.state {
                    GitContents::Index => path.is_dir() && covers(&path),
                    GitContents::History => !path.is_file(),
                };
                !plain || !below || holds
            }),
            Some(_) if self.state == GitContents::Index => keeps(directory, about),
            _ => true,
        })
    }
}

/// Nothing when the command shows no contents, or only of files that its words name.
pub(crate) fn shown(run: &ParsedCommand) -> Option<ShownContents> {
    let (name, words) = run.words.split_first()?;
    if name.literal()?.rsplit('/').next() != Some("git") {
        return None;
    }
    let mut words = words;
    let mut moved = false;
    let command = loop {
        let (first, rest) = words.split_first()?;
        match first.literal() {
            Some(option) if option.starts_with('-') => {
                // Another repository, or another place in it.
                moved |= option.contains('=')
                    || matches!(option, "-C" | "--git-dir" | "--work-tree" | "--namespace");
                let has_value = option == "--attr-source" || matches!(value("git", option), Value::Next);
                words = if has_value { rest.get(1..)? } else { rest };
            }
            // A computed word is a matter of the rules about commands.
            other => {
                words = rest;
                break other?;
            }
        }
    };
    let computed = words.iter().any(|word| word.literal().is_none());
    let literal: Vec<&str> = words.iter().filter_map(Word::literal).collect();
    let end = literal.iter().position(|word| *word == "--").unwrap_or(literal.len());
    let (front, back) = literal.split_at(end);
    let options: Vec<&str> = front.iter().copied().filter(|word| word.starts_with('-')).collect();
    let operands: Vec<&str> = front.iter().copied().filter(|word| !word.starts_with('-')).collect();
    // Options that are not known to show nothing may show contents: `--binary`, `--remerge-diff`, abbreviations.
    let quiet = !computed && options.iter().all(|option| shows_nothing(option));
    let summary = quiet && options.iter().any(|option| is_summary(option));
    let paths_only = !operands.is_empty()
        && operands.iter().all(|word| word.split_once(':').is_some_and(|(_, path)| !path.is_empty()));
    let mut state = GitContents::History;
    let shows = match command {
        "log" | "reflog" | "whatchanged" | "diff-tree" => !quiet,
        "stash" => !quiet && matches!(operands.first(), Some(&("show" | "list"))),
        "show" => !summary && (!paths_only || computed),
        "diff" | "diff-index" | "diff-files" | "difftool" => {
            // With `--cached` it also shows what the index has no longer.
            let is_cached = options.iter().any(|option| {
                option.len() > 3 && ["--cached", "--staged"].iter().any(|whole| whole.starts_with(option))
            });
            if command == "diff" && operands.is_empty() && !computed && !is_cached {
                state = GitContents::Index;
            }
            !summary
        }
        "cat-file" => {
            let about = options.iter().any(|option| matches!(*option, "-t" | "-s" | "-e"));
            !about && (!paths_only || computed)
        }
        "grep" | "archive" | "format-patch" | "fast-export" | "bundle" | "range-diff" => true,
        _ => false,
    };
    let limits = back.iter().skip(1).map(|&path| path.to_owned()).collect();
    shows.then_some(ShownContents {
        state,
        directories: if moved { None } else { run.directories.clone() },
        limits: if computed { None } else { Some(limits) },
    })
}

/// Options of git's commands about history that add no contents of files to what is shown.
const SHOWS_NOTHING: &[&str] = &[
    "--abbrev",
    "--abbrev-commit",
    "--after",
    "--all",
    "--ancestry-path",
    "--author",
    "--author-date-order",
    "--before",
    "--branches",
    "--cached",
    "--children",
    "--color",
    "--committer",
    "--count",
    "--date",
    "--date-order",
    "--decorate",
    "--decorate-refs",
    "--diff-filter",
    "--find-renames",
    "--first-parent",
    "--follow",
    "--format",
    "--full-history",
    "--full-index",
    "--graph",
    "--grep",
    "--ignore-all-space",
    "--invert-grep",
    "--left-right",
    "--max-count",
    "--merges",
    "--oneline",
    "--parents",
    "--pretty",
    "--regexp-ignore-case",
    "--relative-date",
    "--remotes",
    "--reverse",
    "--root",
    "--show-signature",
    "--simplify-by-decoration",
    "--since",
    "--skip",
    "--source",
    "--staged",
    "--tags",
    "--topo-order",
    "--until",
    "--walk-reflogs",
    "-g",
    "-i",
    "-m",
    "-n",
    "-r",
    "-t",
    "-w",
    "-z",
];

fn shows_nothing(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    let is_count = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    is_summary(option)
        // What turns something off.
        || name.starts_with("--no-")
        || SHOWS_NOTHING.contains(&name)
        || option.strip_prefix('-').is_some_and(|rest| is_count(rest.strip_prefix('n').unwrap_or(rest)))
}

fn is_summary(option: &str) -> bool {
    let long =
        ["--stat", "--name-only", "--name-status", "--numstat", "--shortstat", "--summary", "--dirstat"];
    matches!(option, "-s" | "--no-patch" | "--quiet" | "--raw")
        || long.iter().any(|long| option.split('=').next() == Some(long))
}

/// Whether the index names a file that a rule is about. What cannot be read may.
#[expect(
    clippy::disallowed_methods,
    reason = "where git looks for a repository, to ask rather than to open it"
)]
fn keeps(directory: &Path, about: &dyn Fn(&Path) -> bool) -> bool {
    let Some((top, place)) = directory.ancestors().find_map(|top| {
        let place = top.join(".git");
        place.symlink_metadata().is_ok().then_some((top, place))
    }) else {
        return true;
    };
    // An agent may have written them: a pipe does not make us wait, and nothing is read beyond its limit.
    let place = if place.is_file() {
        let text = tree::read_small(&place, GIT_FILE_BYTES).unwrap_or_default();
        match String::from_utf8_lossy(&text).trim_end().strip_prefix("gitdir: ") {
            Some(real) => top.join(real),
            None => return true,
        }
    } else {
        place
    };
    match tree::read_small(&place.join("index"), INDEX_BYTES) {
        Ok(bytes) => names(&bytes).is_none_or(|names| names.iter().any(|name| about(&top.join(name)))),
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

/// The names in an index of version 2 or 3.
fn names(bytes: &[u8]) -> Option<Vec<String>> {
    /// What stands before a name: times, numbers, the object's id, flags.
    const FIXED: usize = 62;
    const EXTENDED: u16 = 0x4000;
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let version = number(4)?;
    if bytes.get(..4)? != b"DIRC" || !matches!(version, 2 | 3) {
        return None;
    }
    let mut names = Vec::new();
    let mut at = 12;
    for _ in 0..number(8)? {
        let flags = u16::from_be_bytes(bytes.get(at + FIXED - 2..at + FIXED)?.try_into().ok()?);
        let start = at + FIXED + if flags & EXTENDED == 0 { 0 } else { 2 };
        let length = bytes.get(start..)?.iter().position(|&byte| byte == 0)?;
        names.push(String::from_utf8_lossy(&bytes[start..start + length]).into_owned());
        at += (start - at + length) / 8 * 8 + 8;
    }
    // A split index keeps names elsewhere; a sparse one names directories.
    let whole = bytes.get(at..at + 4) != Some(b"link") && names.iter().all(|name| !name.ends_with('/'));
    whole.then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index with these names; `extended` ones have two bytes more.
    fn index(version: u8, entries: &[(&str, bool)]) -> Vec<u8> {
        let mut bytes = vec![b'D', b'I', b'R', b'C', 0, 0, 0, version];
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        for (name, extended) in entries {
            let start = bytes.len();
            bytes.extend([7; 60]);
            bytes.extend(if *extended { [0x40, 9] } else { [0, 9] });
            bytes.extend(vec![7; if *extended { 2 } else { 0 }]);
            bytes.extend(name.as_bytes());
            // At least one zero, up to a multiple of eight.
            let length = bytes.len() - start;
            bytes.resize(start + (length / 8 + 1) * 8, 0);
        }
        bytes
    }

    #[test]
    fn a18_an_index_that_is_a_pipe_or_a_link_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let git = dir.path().join(".git");
        std::fs::create_dir(&git).unwrap();
        assert!(!keeps(dir.path(), &|_| true), "there is none");
        let made = std::process::Command::new("mkfifo").arg(git.join("index")).status();
        assert!(made.unwrap().success());
        assert!(keeps(dir.path(), &|_| false));
        std::fs::remove_file(git.join("index")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", git.join("index")).unwrap();
        assert!(keeps(dir.path(), &|_| false));
    }

    #[test]
    fn the_names_of_an_index_are_read() {
        let all: Vec<String> = (1..20).map(|length| "n".repeat(length)).collect();
        for (version, extended) in [(2, false), (3, false), (3, true)] {
            let entries: Vec<(&str, bool)> = all.iter().map(|name| (name.as_str(), extended)).collect();
            assert_eq!(names(&index(version, &entries)).as_ref(), Some(&all), "{version} {extended}");
        }
        let good = index(2, &[("a", false), ("b", false)]);
        let with = |more: &[u8]| [&good[..], more].concat();
        assert_eq!(names(&with(b"TREE\0\0\0\0")).map(|names| names.len()), Some(2));
        // A split index has names elsewhere, a sparse one directories.
        assert_eq!(names(&with(b"link\0\0\0\0")), None);
        assert_eq!(names(&index(2, &[("a", false), ("dir/", false)])), None);
        assert_eq!(names(&index(4, &[("a", false)])), None);
        assert_eq!(names(&[b"XXXX", &good[4..]].concat()), None);
        assert_eq!(names(&good[..good.len() - 20]), None);
    }

    #[test]
    fn a_limit_that_is_no_plain_path_below_may_hold_anything() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        let may_hold = |state: GitContents, limit: &str, covers: bool| {
            let shown = ShownContents {
                directories: Some(vec![dir.path().to_owned()]),
                limits: Some(vec![limit.to_owned()]),
                state,
            };
            shown.may_hold(&|_| false, &|_| covers)
        };
        for limit in [":/f", "f*", "f?", "[f]", "", ".", "./f", "../x", "d/../f"] {
            assert!(may_hold(GitContents::Index, limit, false), "{limit}");
            assert!(may_hold(GitContents::History, limit, false), "{limit}");
        }
        let index = |limit, covers| may_hold(GitContents::Index, limit, covers);
        assert_eq!(
            [index("f", true), index("d", true), index("d", false), index("gone", true)],
            [false, true, false, false]
        );
        let history = |limit| may_hold(GitContents::History, limit, false);
        assert_eq!([history("f"), history("d"), history("gone")], [false, true, true]);
    }
}
