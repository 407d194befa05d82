//! The record that a squash leaves: which commit of the agent landed as which commit of the user's. A squash shares no
//! commit with the agent's branch, so nothing else can say later that the work is in.
//!
//! It lies in the repository's record of the worktree and goes with it. Who deletes a branch on its word must look
//! whether the branch is still at `tip` and `commit` is still on a ref that stays.

use std::{fs, io::Write as _, path::Path};

use serde::{Deserialize, Serialize};

/// The file's name, beside the worktree's marker.
const FILE: &str = "caliban-landed.json";
/// The largest record that is read.
const CAP: u64 = 64 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::fleet) struct Landing {
    /// What the agent had.
    pub(in crate::fleet) tip: String,
    /// The commit of the user's that has all of it.
    pub(in crate::fleet) commit: String,
}

impl Landing {
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
        (is_oid(&landing.tip) && is_oid(&landing.commit)).then_some(landing)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_nonsense_is_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Landing::read(dir.path()), None);
        let landing = Landing { tip: "a".repeat(40), commit: "b".repeat(40) };
        landing.write(dir.path()).unwrap();
        let again = Landing { tip: "c".repeat(64), ..landing };
        again.write(dir.path()).unwrap();
        assert_eq!(Landing::read(dir.path()), Some(again));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join(FILE), r#"{"tip":"--all","commit":"x"}"#).unwrap();
        assert_eq!(Landing::read(dir.path()), None);
    }
}
