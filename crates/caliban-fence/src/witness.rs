//! What is in places that a command must leave empty, at the moment when nothing of the command is left.
//!
//! Whoever started the command looks there when it has ended. When that one was killed, the command's keeper ends the command and
//! writes down what it finds: so what the user makes there later is told from what the command made.

use std::{fs, io, path::Path};

use caliban_rooted::{Below, ByteText, Identity, Root, tree};
use serde::{Deserialize, Serialize};

/// The largest record that is read.
const CAP: u64 = 4 << 20;

/// Which places, and the file that the keeper writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Witness {
    /// The places.
    pub places: Vec<EmptyPlace>,
    /// The file.
    pub record: ByteText,
}

/// A place beneath a root that a command must leave empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmptyPlace {
    /// Where the root is.
    pub root: ByteText,
    /// Which directory it is.
    pub identity: Identity,
    /// The name of the place.
    pub name: Below,
}

/// What was in those places.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenPlaces(Vec<(EmptyPlace, Identity)>);

impl EmptyPlace {
    /// The root, if it is still where it was.
    pub fn root(&self) -> Option<Root> {
        Root::exactly(self.root.path(), self.identity).ok().flatten()
    }

    fn thing(&self) -> Option<Identity> {
        self.root()?.thing(&self.name).ok().flatten()
    }
}

impl Witness {
    /// Writes down what is there now.
    pub fn look(&self) -> io::Result<()> {
        let seen = self.places.iter().filter_map(|place| Some((place.clone(), place.thing()?)));
        fs::write(self.record.path(), serde_json::to_vec(&SeenPlaces(seen.collect()))?)
    }
}

impl SeenPlaces {
    /// What a keeper wrote down; none when it could not.
    pub fn read(record: &Path) -> Option<Self> {
        serde_json::from_slice(&tree::read_small(record, CAP).ok()?).ok()
    }

    /// Whether what is at this place now was there then.
    pub fn has(&self, place: &EmptyPlace) -> bool {
        place.thing().is_some_and(|thing| self.0.contains(&(place.clone(), thing)))
    }
}
