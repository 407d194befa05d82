//! Files that say what operation is unfinished in a worktree: a merge, a rebase, a cherry-pick. Only these pass between an
//! agent and the user, and nothing in them that makes the user's git run a program.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::os::fd::BorrowedFd;

use caliban_rooted::{
    Below,
    tree::{self, FoundFile},
};

use super::names::RefNames;
use crate::error::{Error, Result};
use crate::marker::Oid;

/// Each file by its path in the worktree's record.
pub(super) type StateFiles = BTreeMap<Below, Vec<u8>>;

/// The largest of these files that is read.
const CAP: u64 = 16 * 1024 * 1024;
/// Files with one object id in each line.
const IDS: [&str; 6] =
    ["ORIG_HEAD", "AUTO_MERGE", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "REBASE_HEAD"];
const TEXTS: [&str; 11] = [
    "MERGE_MODE",
    "MERGE_MSG",
    "SQUASH_MSG",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_TERMS",
    "BISECT_NAMES",
    "BISECT_EXPECTED_REV",
    "BISECT_ANCESTORS_OK",
    "BISECT_FIRST_PARENT",
    "BISECT_HEAD",
];
/// Of these no operation depends.
const SOFT: [&str; 2] = ["ORIG_HEAD", "AUTO_MERGE"];
const DIRECTORIES: [&str; 3] = ["rebase-merge", "rebase-apply", "sequencer"];
/// Files in those directories, beside numbered patches. Not among them: options that name a program or a merge strategy.
const WITHIN: [&str; 55] = [
    "abort-safety",
    "allow_rerere_autoupdate",
    "amend",
    "applying",
    "author-script",
    "autostash",
    "current-fixups",
    "done",
    "drop_redundant_commits",
    "end",
    "final-commit",
    "git-rebase-todo",
    "git-rebase-todo.backup",
    "head",
    "head-name",
    "info",
    "interactive",
    "keep",
    "keep_redundant_commits",
    "last",
    "message",
    "message-fixup",
    "message-squash",
    "messageid",
    "msg",
    "msgnum",
    "next",
    "no-reschedule-failed-exec",
    "onto",
    "opts",
    "orig-head",
    "original-commit",
    "patch",
    "quiet",
    "rebasing",
    "refs-to-delete",
    "reschedule-failed-exec",
    "rewritten",
    "rewritten-list",
    "rewritten-pending",
    "root",
    "scissors",
    "sign",
    "signoff",
    "squash-onto",
    "stopped-sha",
    "threeway",
    "todo",
    "upstream",
    "utf8",
    "verbose",
    "cdate_is_adate",
    "ignore_date",
    "force-rebase",
    "fixups-squash",
];
/// Lists of what a rebase or a cherry-pick still does.
const TODO: [&str; 4] = ["git-rebase-todo", "git-rebase-todo.backup", "done", "todo"];
const HEAD_NAME: &str = "head-name";

/// Reads all of them beneath a record.
pub(super) fn read(record: BorrowedFd<'_>) -> Result<StateFiles> {
    let failed = |e| Error::io("reading the state of an unfinished operation", e);
    let mut paths: Vec<Below> = IDS.iter().chain(&TEXTS).map(|name| Below::fixed(name)).collect();
    for directory in DIRECTORIES {
        paths.extend(tree::files_beneath(record, &Below::fixed(directory)).map_err(failed)?);
    }
    let mut found = StateFiles::new();
    for path in paths.into_iter().filter(is_known) {
        if let FoundFile::File { file, size, .. } = tree::find(record, &path).map_err(failed)?
            && size <= CAP
        {
            let mut bytes = Vec::new();
            file.take(CAP).read_to_end(&mut bytes).map_err(failed)?;
            found.insert(path, bytes);
        }
    }
    Ok(found)
}

fn is_known(path: &Below) -> bool {
    let parts: Vec<&str> = path.parts().filter_map(|part| part.to_str()).collect();
    match parts.as_slice() {
        [name] => IDS.contains(name) || TEXTS.contains(name),
        [_, name] => WITHIN.contains(name) || name.bytes().all(|byte| byte.is_ascii_digit()),
        _ => false,
    }
}

/// Those that an operation depends on.
pub(super) fn hard(files: &StateFiles) -> StateFiles {
    let is_soft = |path: &Below| SOFT.iter().any(|soft| *path == Below::fixed(soft));
    files
        .iter()
        .filter(|(path, _)| !is_soft(path))
        .map(|(path, bytes)| (path.clone(), bytes.clone()))
        .collect()
}

/// As the user's git may read them.
pub(super) fn outside(files: &StateFiles, names: &RefNames) -> StateFiles {
    let shown = |(path, bytes): (&Below, &Vec<u8>)| {
        let name = path.parts().last()?.to_str()?;
        let bytes = match name {
            _ if path.parts().count() == 1 && IDS.contains(&name) => ids(bytes)?,
            _ if TODO.contains(&name) => harmless(bytes),
            "opts" => options(bytes)?,
            HEAD_NAME => renamed(bytes, |branch| names.outside(branch)),
            _ => bytes.clone(),
        };
        Some((path.clone(), bytes))
    };
    files.iter().filter_map(shown).collect()
}

/// As the agent finds them.
pub(super) fn inside(files: &StateFiles, names: &RefNames) -> StateFiles {
    let taken = |(path, bytes): (&Below, &Vec<u8>)| {
        let is_name = path.parts().last().is_some_and(|name| name == HEAD_NAME);
        let bytes = if is_name { renamed(bytes, |branch| names.inside(branch)) } else { bytes.clone() };
        (path.clone(), bytes)
    };
    files.iter().map(taken).collect()
}

fn ids(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.lines().all(|line| Oid::parse(line).is_some()).then(|| bytes.to_vec())
}

/// A list without what runs a command or moves other branches: the user's git stops there instead.
fn harmless(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        match text.split_whitespace().next() {
            Some("exec" | "x" | "update-ref" | "u") => out.extend(b"break\n"),
            _ => out.extend(line),
        }
    }
    out
}

/// Options of a cherry-pick, if all of them are ones that choose no program.
fn options(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let is_fine = |line: &str| {
        let key = line.trim().split(['=', ' ', '\t']).next().unwrap_or_default();
        line.trim() == "[options]"
            || ["no-commit", "edit", "signoff", "record-origin", "allow-ff", "mainline", "allow-empty", ""]
                .contains(&key)
    };
    text.lines().all(is_fine).then(|| bytes.to_vec())
}

fn renamed(bytes: &[u8], name: impl Fn(&str) -> Option<String>) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    match name(text.trim_end()) {
        Some(name) if text.starts_with("refs/") => format!("{name}\n").into_bytes(),
        _ => bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_runs_that_an_agent_wrote() {
        let files: StateFiles = [
            (
                "rebase-merge/git-rebase-todo",
                "pick 1\nexec touch /tmp/x\n x y\nupdate-ref refs/heads/main\n# exec\n",
            ),
            ("rebase-merge/head-name", "refs/heads/feature\n"),
            ("sequencer/opts", "[options]\n\tgpg-sign = evil\n"),
            ("MERGE_HEAD", "--upload-pack=evil\n"),
            ("MERGE_MSG", "merge\n"),
        ]
        .map(|(path, text)| (Below::fixed(path), text.as_bytes().to_vec()))
        .into();
        let shown = outside(&files, &RefNames::new("n"));
        let text =
            |path| shown.get(&Below::fixed(path)).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        assert_eq!(
            text("rebase-merge/git-rebase-todo").as_deref(),
            Some("pick 1\nbreak\nbreak\nbreak\n# exec\n")
        );
        assert_eq!(text("rebase-merge/head-name").as_deref(), Some("refs/heads/caliban/n+feature\n"));
        assert_eq!((text("sequencer/opts"), text("MERGE_HEAD")), (None, None));
        assert_eq!(text("MERGE_MSG").as_deref(), Some("merge\n"));
        let again = inside(&shown, &RefNames::new("n"));
        assert_eq!(again[&Below::fixed("rebase-merge/head-name")], b"refs/heads/feature\n");
        for path in [
            "rebase-merge/strategy",
            "rebase-merge/gpg_sign_opt",
            "hooks/x",
            "COMMIT_EDITMSG",
            "config.worktree",
        ] {
            assert!(!is_known(&Below::fixed(path)), "{path}");
        }
        assert!(is_known(&Below::fixed("rebase-apply/0001")));
    }
}
