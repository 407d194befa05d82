//! Git directories that a person has accepted although they do not say whose they are (`caliban trust`). The record is in the repo's data
//! directory.

use std::io;
use std::path::Path;

use caliban_contract::records;
use caliban_rooted::{ByteText, Identity, Root};
use serde::{Deserialize, Serialize};

/// What was accepted.
#[derive(Debug, Clone, Default)]
pub struct AcceptedGit {
    record: AcceptedPlaces,
    is_same_boot: bool,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct AcceptedPlaces {
    /// The boot of the machine in which the identities hold: device numbers change.
    boot: String,
    places: Vec<(ByteText, Identity)>,
}

fn boot() -> String {
    caliban_process::boot_id().unwrap_or_default()
}

impl AcceptedGit {
    /// What a person accepted for this repo; `base` is its data directory.
    pub fn read(base: &Path) -> Self {
        let record: AcceptedPlaces = records::read(base, records::GIT_PLACES).unwrap_or_default();
        let is_same_boot = record.boot == boot();
        Self { record, is_same_boot }
    }

    /// A person has accepted these, and no others.
    pub fn write(base: &Path, places: &[Root]) -> io::Result<()> {
        let places = places.iter().map(|place| (place.path().into(), place.identity())).collect();
        records::write_durably(base, records::GIT_PLACES, &AcceptedPlaces { boot: boot(), places })
    }

    /// Whether this directory is one of them. `path` has no links in it. As with the roots of an agent: in the boot in which it was
    /// accepted it is that very directory; in another one it is what lies in that place.
    pub fn has(&self, path: &Path, identity: Identity) -> bool {
        let is_it = |(known, accepted): &(ByteText, Identity)| {
            known.path() == path && (*accepted == identity || !self.is_same_boot)
        };
        self.record.places.iter().any(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a18_an_accepted_git_directory_is_that_very_one_until_the_machine_boots_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        fs::create_dir(&store).unwrap();
        let has = || {
            let root = Root::pin(&store).unwrap();
            AcceptedGit::read(dir.path()).has(root.path(), root.identity())
        };
        assert!(!has());
        AcceptedGit::write(dir.path(), &[Root::pin(&store).unwrap()]).unwrap();
        assert!(has());
        fs::rename(&store, dir.path().join("moved")).unwrap();
        fs::create_dir(&store).unwrap();
        assert!(!has());
        let record = dir.path().join(records::GIT_PLACES);
        let text = fs::read_to_string(&record).unwrap().replace(&boot(), "another boot");
        fs::write(&record, text).unwrap();
        assert!(has());
        let moved = Root::pin(&dir.path().join("moved")).unwrap();
        assert!(!AcceptedGit::read(dir.path()).has(moved.path(), moved.identity()));
    }
}
