//! What `git status --porcelain=v2 -z` and `git ls-files -v -s -z` say, as data. Reading only; the words of
//! git's formats stay in this file.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::marker::Oid;
use crate::repo::split_nul;

/// The arguments that this reader understands.
pub(crate) const STATUS_ARGS: [&str; 9] = [
    "--porcelain=v2",
    "-z",
    "--branch",
    "--no-ahead-behind",
    "--untracked-files=all",
    "--ignored=matching",
    "--no-renames",
    "--ignore-submodules=all",
    "--column=never",
];
/// The arguments of the index listing.
pub(crate) const INDEX_ARGS: [&str; 3] = ["-z", "-v", "--stage"];

/// A tracked path that differs between HEAD, index and files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tracked {
    pub(crate) path: PathBuf,
    /// Index against HEAD: `.` is the same.
    pub(crate) staged: u8,
    /// Files against index.
    pub(crate) unstaged: u8,
    pub(crate) mode_index: String,
    pub(crate) mode_file: String,
    pub(crate) index: Option<Oid>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct GitStatus {
    pub(crate) head: Option<Oid>,
    /// The branch that HEAD names; `None` when detached.
    pub(crate) branch: Option<String>,
    pub(crate) tracked: Vec<Tracked>,
    pub(crate) unmerged: Vec<PathBuf>,
    /// Untracked files; a name with a trailing slash is a repository of its own.
    pub(crate) untracked: Vec<PathBuf>,
    pub(crate) nested: Vec<PathBuf>,
    pub(crate) ignored: Vec<PathBuf>,
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Reads the status; `None` for a line that no known git prints.
pub(crate) fn parse_status(answer: &[u8]) -> Option<GitStatus> {
    let mut status = GitStatus::default();
    for line in split_nul(answer) {
        let (kind, rest) = line.split_at_checked(2)?;
        match kind {
            b"# " => {
                if let Some(oid) = rest.strip_prefix(b"branch.oid ") {
                    status.head = Oid::parse(&text(oid));
                } else if let Some(branch) = rest.strip_prefix(b"branch.head ") {
                    status.branch = (branch != b"(detached)").then(|| text(branch));
                }
            }
            b"1 " => {
                let fields: Vec<&[u8]> = rest.splitn(8, |b| *b == b' ').collect();
                let [xy, _sub, _head_mode, mode_index, mode_file, _head, index, name] = fields.as_slice()
                else {
                    return None;
                };
                status.tracked.push(Tracked {
                    path: path(name),
                    staged: *xy.first()?,
                    unstaged: *xy.get(1)?,
                    mode_index: text(mode_index),
                    mode_file: text(mode_file),
                    index: Oid::parse(&text(index)).filter(|oid| !oid.is_zero()),
                });
            }
            b"u " => status.unmerged.push(path(rest.splitn(10, |b| *b == b' ').nth(9)?)),
            b"? " => match rest.strip_suffix(b"/") {
                Some(nested) => status.nested.push(path(nested)),
                None => status.untracked.push(path(rest)),
            },
            b"! " => status.ignored.push(path(rest.strip_suffix(b"/").unwrap_or(rest))),
            _ => return None,
        }
    }
    Some(status)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexEntry {
    pub(crate) path: PathBuf,
    pub(crate) mode: String,
    pub(crate) oid: Oid,
    pub(crate) stage: u8,
}

/// What the index says that `status` does not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct IndexFacts {
    /// Marked "assume unchanged": `status` does not look at them.
    pub(crate) assumed: Vec<IndexEntry>,
    /// Submodules and repositories that were added as such.
    pub(crate) gitlinks: Vec<PathBuf>,
    /// All stages of paths in conflict.
    pub(crate) unmerged: Vec<IndexEntry>,
}

/// Reads the index listing, keeping only what matters.
pub(crate) fn parse_index(answer: &[u8]) -> Option<IndexFacts> {
    let mut facts = IndexFacts::default();
    for line in split_nul(answer) {
        let tab = line.iter().position(|b| *b == b'\t')?;
        let (words, name) = (&line[..tab], &line[tab + 1..]);
        let tag = *words.first()?;
        let (submodule, unmerged) = (words.get(2..8)? == b"160000", !words.ends_with(b" 0"));
        // Most of fifty thousand entries end here.
        if !tag.is_ascii_lowercase() && !submodule && !unmerged {
            continue;
        }
        if submodule {
            facts.gitlinks.push(path(name));
            continue;
        }
        let words = text(words);
        let [_, mode, oid, stage] = words.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let stage = stage.parse().ok()?;
        let entry = IndexEntry { path: path(name), mode: mode.to_owned(), oid: Oid::parse(oid)?, stage };
        if stage > 0 { facts.unmerged.push(entry) } else { facts.assumed.push(entry) }
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "78981922613b2afb6025042ff6bd878ac1994e85";

    #[test]
    fn status_is_read() {
        let zero = "0".repeat(40);
        let answer = format!(
            "# branch.oid {A}\0# branch.head caliban/x\0\
             1 .M N... 100644 100644 100755 {A} {A} a b\0\
             1 A. N... 000000 100644 100644 {zero} {A} new\nline\0\
             u UU N... 100644 100644 100644 100644 {A} {A} {A} both\0? u\0? nest/\0! target/\0! x.log\0"
        );
        let oid = Oid::parse(A);
        let tracked = |path: &str, xy: &[u8; 2], mode_file: &str| Tracked {
            path: path.into(),
            staged: xy[0],
            unstaged: xy[1],
            mode_index: "100644".into(),
            mode_file: mode_file.into(),
            index: oid.clone(),
        };
        let expected = GitStatus {
            head: oid.clone(),
            branch: Some("caliban/x".into()),
            tracked: vec![tracked("a b", b".M", "100755"), tracked("new\nline", b"A.", "100644")],
            unmerged: vec!["both".into()],
            untracked: vec!["u".into()],
            nested: vec!["nest".into()],
            ignored: vec!["target".into(), "x.log".into()],
        };
        assert_eq!(parse_status(answer.as_bytes()), Some(expected));
        assert_eq!(parse_status(b"9 what\0"), None);
    }

    #[test]
    fn index_is_read() {
        let answer = format!(
            "H 100644 {A} 0\tplain\0h 100644 {A} 0\tassumed\0H 160000 {A} 0\tsub\0M 100755 {A} 2\tboth\0"
        );
        let entry = |path: &str, mode: &str, stage| IndexEntry {
            path: path.into(),
            mode: mode.into(),
            oid: Oid::parse(A).unwrap(),
            stage,
        };
        let expected = IndexFacts {
            assumed: vec![entry("assumed", "100644", 0)],
            gitlinks: vec!["sub".into()],
            unmerged: vec![entry("both", "100755", 2)],
        };
        assert_eq!(parse_index(answer.as_bytes()), Some(expected));
    }
}
