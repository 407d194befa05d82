//! The record that a squash leaves: which commit of the agent landed as which commit of the user's. A squash shares no
//! commit with the agent's branch, so nothing else can say later that the work is in.
//!
//! It lies in the repository's record of the worktree and goes with it. Who deletes a branch on its word must look
//! whether the branch is still at `tip` and `commit` is still on a ref that stays.

use std::{fs, io::Write as _, path::Path};

use serde::{Deserialize, Serialize};

use super::super::git::{Git, failure, merging};
use crate::report::Failure;

/// The file's name, beside the worktree's marker.
const FILE: &str = "caliban-landed.json";
/// The largest record that is read.
const CAP: u64 = 64 * 1024;
/// How many earlier landings are remembered.
const EARLIER: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::fleet) struct Landing {
    /// What the agent had.
    pub(in crate::fleet) tip: String,
    /// The commit of the user's that has all of it.
    pub(in crate::fleet) commit: String,
    /// What had landed in the same place before it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<Go>,
}

/// One landing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Go {
    tip: String,
    commit: String,
}

/// What of a landing is still there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::fleet) struct Left {
    /// The last one that has all before it; none where git itself sees what is in.
    pub(in crate::fleet) landing: Option<Landing>,
    /// The first one after that, whose change was taken back.
    pub(in crate::fleet) undone: Option<String>,
}

impl Landing {
    /// One that comes after `before`.
    pub(super) fn after(before: Option<Self>, tip: String, commit: String) -> Self {
        let mut earlier = before.map(Self::goes).unwrap_or_default();
        earlier.drain(..earlier.len().saturating_sub(EARLIER));
        Self { tip, commit, earlier }
    }

    /// What of it is in the commit `into`. What somebody took back there (a revert, or by hand) is not, although the
    /// commit that brought it is in the history.
    pub(in crate::fleet) async fn left_in(self, common: &Path, into: &str) -> Result<Left, Failure> {
        let (last, mut left) = (self.commit.clone(), Vec::new());
        for go in self.goes() {
            if !has(common, into, &go.commit).await? || !exists(common, &go.tip).await? {
                break;
            }
            if has(common, into, &go.tip).await? {
                continue;
            }
            // What the agent itself took back later is as it should be.
            if is_undone(common, into, &go.commit).await? && !is_undone(common, &last, &go.commit).await? {
                return Ok(Left { landing: Self::of(left), undone: Some(go.commit) });
            }
            left.push(go);
        }
        Ok(Left { landing: Self::of(left), undone: None })
    }

    fn goes(mut self) -> Vec<Go> {
        self.earlier.push(Go { tip: self.tip, commit: self.commit });
        self.earlier
    }

    fn of(mut goes: Vec<Go>) -> Option<Self> {
        let Go { tip, commit } = goes.pop()?;
        Some(Self { tip, commit, earlier: goes })
    }

    /// The last one; none when there is none, or none that makes sense.
    pub(in crate::fleet) fn read(admin: &Path) -> Option<Self> {
        let path = admin.join(FILE);
        if !path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= CAP) {
            return None;
        }
        let landing: Self = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        let is_oid = |text: &str| {
            matches!(text.len(), 40 | 64)
                && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        let goes = landing.clone().goes();
        goes.iter().all(|go| is_oid(&go.tip) && is_oid(&go.commit)).then_some(landing)
    }

    /// Written whole or not at all, and on the disk when this returns.
    pub(super) fn write(&self, admin: &Path) -> std::io::Result<()> {
        let new = admin.join(format!("{FILE}.{}", std::process::id()));
        let written = fs::File::create_new(&new).and_then(|mut file| {
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&new, admin.join(FILE))?;
            fs::File::open(admin)?.sync_all()
        });
        if written.is_err() {
            // Best effort by name.
            let _gone = fs::remove_file(&new);
        }
        written
    }
}

/// Whether a merge that takes `commit` back would change nothing in `into`.
async fn is_undone(common: &Path, into: &str, commit: &str) -> Result<bool, Failure> {
    let before = format!("{commit}^1");
    if !exists(common, &before).await? {
        return Ok(false);
    }
    let base = format!("--merge-base={commit}");
    let args = ["merge-tree", "--write-tree", "--no-messages", base.as_str(), into, before.as_str()];
    let output = merging(common, into).await?.args(args).output().await?;
    match output.status.code() {
        Some(0) => {}
        // A conflict: something of it is there.
        Some(1) => return Ok(false),
        _ => return Err(failure("merge-tree", &output)),
    }
    let files = format!("{into}^{{tree}}");
    let tree = Git::hardened(common).args(["rev-parse", "--verify", files.as_str()]).bytes().await?;
    Ok(output.stdout.trim_ascii() == tree.trim_ascii())
}

async fn exists(common: &Path, commit: &str) -> Result<bool, Failure> {
    let commit = format!("{commit}^{{commit}}");
    Ok(Git::hardened(common).args(["cat-file", "-e", commit.as_str()]).output().await?.status.success())
}

/// Whether the one commit is the other or has it in its history.
async fn has(common: &Path, commit: &str, other: &str) -> Result<bool, Failure> {
    let args = ["merge-base", "--is-ancestor", other, commit];
    Ok(Git::hardened(common).args(args).output().await?.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_nonsense_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Landing::read(dir.path()), None);
        let landing = Landing::after(None, "a".repeat(40), "b".repeat(40));
        landing.write(dir.path()).unwrap();
        let again = Landing::after(Some(landing), "c".repeat(64), "d".repeat(64));
        again.write(dir.path()).unwrap();
        assert_eq!(Landing::read(dir.path()), Some(again));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join(FILE), r#"{"tip":"--all","commit":"x"}"#).unwrap();
        assert_eq!(Landing::read(dir.path()), None);
    }
}
