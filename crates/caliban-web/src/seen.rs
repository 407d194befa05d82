//! The read marks: the last record of each agent that was on a screen. One file for all devices and servers of a user.
//!
//! A mark only moves forward, so a request that is repeated or late changes nothing.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::devices;

/// Maximum number of marks; the oldest one is removed.
const MARKS: usize = 2000;

/// The last record that was read, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct SeenMark {
    seq: u64,
    at: u64,
}

/// The marks by agent (`repo/id`).
#[derive(Debug)]
pub(crate) struct SeenMarks {
    file: PathBuf,
    marks: BTreeMap<String, SeenMark>,
}

impl SeenMarks {
    /// Reads the marks below `dir`. If they cannot be read there are none, and everything counts as new.
    pub(crate) fn open(dir: &Path) -> Self {
        let file = dir.join("seen.json");
        let marks = read(&file);
        Self { file, marks }
    }

    /// The last record that was read of an agent.
    pub(crate) fn of(&self, agent: &str) -> Option<u64> {
        self.marks.get(agent).map(|mark| mark.seq)
    }

    /// Moves a mark forward; returns where it is now.
    pub(crate) fn mark(&mut self, agent: &str, seq: u64, now: u64) -> io::Result<u64> {
        if let Some(known) = self.of(agent).filter(|known| *known >= seq) {
            return Ok(known);
        }
        // Another server may have written the file.
        for (agent, mark) in read(&self.file) {
            self.put(agent, mark);
        }
        self.put(agent.to_owned(), SeenMark { seq, at: now });
        while self.marks.len() > MARKS {
            let oldest = self.marks.iter().min_by_key(|(_, mark)| mark.at).map(|(agent, _)| agent.clone());
            let Some(oldest) = oldest else { break };
            self.marks.remove(&oldest);
        }
        self.write()?;
        Ok(self.of(agent).unwrap_or(seq))
    }

    fn put(&mut self, agent: String, mark: SeenMark) {
        let known = self.marks.entry(agent).or_insert(mark);
        if mark.seq > known.seq {
            *known = mark;
        }
    }

    fn write(&self) -> io::Result<()> {
        let json = serde_json::to_vec(&self.marks).map_err(io::Error::other)?;
        let new = self.file.with_extension(format!("new-{}", std::process::id()));
        devices::private(&new)?.write_all(&json)?;
        std::fs::rename(&new, &self.file)
    }
}

fn read(file: &Path) -> BTreeMap<String, SeenMark> {
    let text = devices::read(file).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_goes_forward_only_and_two_servers_share_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (SeenMarks::open(dir.path()), SeenMarks::open(dir.path()));
        assert_eq!(one.of("r/1"), None);
        assert_eq!(one.mark("r/1", 7, 1).unwrap(), 7);
        assert_eq!(one.mark("r/1", 7, 2).unwrap(), 7);
        assert_eq!(one.mark("r/1", 3, 3).unwrap(), 7);
        // The other server does not know of the mark, and still does not move it back.
        assert_eq!(other.mark("r/1", 5, 4).unwrap(), 7);
        assert_eq!(other.mark("r/2", 1, 5).unwrap(), 1);
        let again = SeenMarks::open(dir.path());
        assert_eq!((again.of("r/1"), again.of("r/2")), (Some(7), Some(1)));
    }

    #[test]
    fn the_agent_that_was_read_longest_ago_goes() {
        let dir = tempfile::tempdir().unwrap();
        let mut seen = SeenMarks::open(dir.path());
        seen.marks = (0..MARKS).map(|n| (format!("r/{n}"), SeenMark { seq: 1, at: 10 + n as u64 })).collect();
        seen.mark("r/new", 1, 99_999).unwrap();
        assert_eq!((seen.marks.len(), seen.of("r/0"), seen.of("r/1")), (MARKS, None, Some(1)));
    }
}
