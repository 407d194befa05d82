//! What is in places that a command must leave empty, at the moment when nothing of the command is left.
//!
//! Whoever started the command looks there when it has ended. When that one was killed, the command's keeper ends the command and
//! writes down what it finds: so what the user makes there later is told from what the command made.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::byte_text::ByteText;

/// The largest record that is read.
const CAP: u64 = 4 << 20;

/// Which places, and the file that the keeper writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// The places.
    pub places: Vec<ByteText>,
    /// The file.
    pub record: ByteText,
}

/// What was in those places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPlaces(Vec<(ByteText, u64, u64)>);

impl Witness {
    /// Writes down what is there now.
    pub fn look(&self) -> io::Result<()> {
        let seen = self.places.iter().filter_map(|place| {
            let found = place.path().symlink_metadata().ok()?;
            Some((place.clone(), found.dev(), found.ino()))
        });
        fs::write(self.record.path(), serde_json::to_vec(&SeenPlaces(seen.collect()))?)
    }
}

impl SeenPlaces {
    /// What a keeper wrote down; none when it could not.
    pub fn read(record: &Path) -> Option<Self> {
        let small = fs::metadata(record).is_ok_and(|found| found.len() <= CAP);
        small.then(|| fs::read(record).ok()).flatten().and_then(|text| serde_json::from_slice(&text).ok())
    }

    /// Whether what is at this place now was there then.
    pub fn has(&self, place: &Path) -> bool {
        let Ok(found) = place.symlink_metadata() else { return false };
        let wanted = (ByteText::from(PathBuf::from(place)), found.dev(), found.ino());
        self.0.contains(&wanted)
    }
}
