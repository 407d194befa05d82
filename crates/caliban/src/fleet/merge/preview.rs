//! The merge, tried in the store alone: what it would make, and where it would conflict.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
};

use super::{
    super::git::{Git, failure, fields, merging},
    landing::Landing,
    target::Target,
};
use crate::report::Failure;

/// What a merge would do.
pub(super) struct Preview {
    /// What is merged into.
    pub(super) into: String,
    /// What is merged.
    pub(super) head: String,
    /// What of it landed before as a commit that shares no history with it: where this merge begins.
    pub(super) landed: Option<Landing>,
    /// How many commits that brings.
    pub(super) commits: u64,
    pub(super) outcome: Outcome,
}

pub(super) enum Outcome {
    /// There is nothing to bring.
    UpToDate,
    /// This tree.
    Clean(String),
    /// These files.
    Conflicts(Vec<String>),
}

impl Preview {
    /// Tries it. `before` is an earlier landing that is still in `into`.
    pub(super) async fn new(
        target: &Target,
        into: String,
        head: String,
        before: Option<Landing>,
    ) -> Result<Self, Failure> {
        let landed = match before {
            // An agent that took the landed commit over shares it: then git sees by itself what is in.
            Some(landing) if !has(target.tree(), &head, &landing.commit).await? => Some(landing),
            _ => None,
        };
        let mut args = vec!["rev-list".to_owned(), "--count".to_owned(), head.clone(), format!("^{into}")];
        args.extend(landed.iter().map(|landing| format!("^{}", landing.tip)));
        args.push("--".to_owned());
        let count = Git::plain(target.tree()).args(args).text().await?;
        let commits = count
            .parse()
            .map_err(|_| Failure::new(format!("git rev-list answered {}", count.escape_debug())))?;
        if commits == 0 {
            return Ok(Self { into, head, landed, commits, outcome: Outcome::UpToDate });
        }
        let ours = match &landed {
            Some(landing) => joined(target.tree(), &into, &landing.tip).await?,
            None => into.clone(),
        };
        let git = match target {
            // As `git merge` will do it there, with the user's attributes and drivers.
            Target::Here { tree, .. } => Git::plain(tree),
            Target::Branch { common, .. } => merging(common, &into).await?,
        };
        let args = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", &ours, &head];
        let output = git.args(args).output().await?;
        let mut found = fields(&output.stdout).into_iter().map(|field| field.to_string_lossy().into_owned());
        let outcome = match (output.status.code(), found.next()) {
            (Some(0), Some(tree)) => Outcome::Clean(tree),
            (Some(1), Some(_)) => Outcome::Conflicts(found.collect()),
            _ => return Err(failure("merge-tree", &output)),
        };
        Ok(Self { into, head, landed, commits, outcome })
    }
}

/// Whether the one commit is the other or has it in its history.
async fn has(tree: &Path, commit: &str, other: &str) -> Result<bool, Failure> {
    let args = ["merge-base", "--is-ancestor", other, commit];
    Ok(Git::plain(tree).args(args).output().await?.status.success())
}

/// The commit, with a history that has what landed. On no ref: git finds by it where a merge begins, as it would if the
/// squash had been a merge.
async fn joined(tree: &Path, into: &str, tip: &str) -> Result<String, Failure> {
    let files = format!("{into}^{{tree}}");
    let args = ["commit-tree", "-m", "landed before", "-p", into, "-p", tip, files.as_str()];
    Git::plain(tree).args(args).text().await
}

/// The mode of what is not there.
const ABSENT: &str = "000000";

/// How a path changes from one tree to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) path: PathBuf,
    /// What the first tree has there, if anything.
    pub(super) was: Option<String>,
    /// What the second one has there, if anything.
    pub(super) will_be: Option<String>,
}

/// Every path that differs between two trees or commits.
pub(super) async fn touched(tree: &Path, from: &str, to: &str) -> Result<Vec<Touched>, Failure> {
    let args = ["diff-tree", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", from, to, "--"];
    let found = Git::plain(tree).args(args).fields().await?;
    let read = |pair: &[OsString]| {
        let words = pair[0].to_str()?.strip_prefix(':')?;
        let [was, will_be, before, after, _] = words.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let there = |mode: &str, oid: &str| (mode != ABSENT).then(|| oid.to_owned());
        Some(Touched {
            path: PathBuf::from(&pair[1]),
            was: there(was, before),
            will_be: there(will_be, after),
        })
    };
    Ok(found.chunks_exact(2).filter_map(read).collect())
}

/// `3 files changed, 10 insertions(+), 2 deletions(-)`.
pub(super) async fn summary(tree: &Path, from: &str, to: &str) -> Result<String, Failure> {
    let args = ["diff-tree", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"];
    let found = Git::plain(tree).args(args).args([from, to, "--"]).fields().await?;
    let (mut added, mut deleted) = (0, 0);
    for line in &found {
        let line = String::from_utf8_lossy(line.as_bytes()).into_owned();
        let mut numbers = line.split('\t').map(|number| number.parse::<u64>().unwrap_or(0));
        added += numbers.next().unwrap_or(0);
        deleted += numbers.next().unwrap_or(0);
    }
    let plural = |n: u64, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    Ok(format!(
        "{} changed, {}(+), {}(-)",
        plural(found.len() as u64, "file"),
        plural(added, "insertion"),
        plural(deleted, "deletion")
    ))
}

/// A name of bytes, as git takes it in a list of paths: itself and nothing else.
pub(super) fn literal(path: &Path) -> OsString {
    let mut spec = b":(top,literal)".to_vec();
    spec.extend_from_slice(path.as_os_str().as_bytes());
    OsString::from_vec(spec)
}
