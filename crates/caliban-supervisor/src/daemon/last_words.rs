//! Who was killed or removed while the registry could not be written (a full disk, or somebody holds it): room for that is
//! taken when there is some.
//!
//! Owns the file `last-words`, which is written in full length long before it is needed. What cannot be committed to the
//! registry goes into it, one line for each agent, and from there into the registry when there is room again; when the
//! daemon dies before that, the next one reads it. A line carries the run that it is about: one of an earlier run says nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use caliban_core::ids::AgentId;
use caliban_store::fleet::{Change, Record, Wanted};

use super::agent::{About, Agent};
use super::store::Then;
use super::{Owner, rm};
use crate::records;

/// The file's name.
const FILE: &str = "last-words";
/// Bytes of room: for about a thousand agents.
const ROOM: usize = 64 * 1024;
/// What room is filled with.
const BLANK: u8 = b' ';

/// What was done to an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Killed,
    Removed,
}

/// What was done, and to which run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    deed: Deed,
    nonce: String,
}

/// What the registry does not know yet.
#[derive(Debug)]
pub(super) struct LastWords {
    path: PathBuf,
    /// None as long as no room could be had.
    file: Option<File>,
    words: BTreeMap<AgentId, Word>,
    /// Whether the file says the same.
    is_written: bool,
}

impl LastWords {
    /// Reads what the last daemon left, and takes room.
    pub(super) fn open(base: &Path) -> Self {
        let path = base.join(FILE);
        let text = records::read_capped(&path, ROOM as u64).unwrap_or_default();
        let words: BTreeMap<AgentId, Word> =
            String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
        let mut all = Self { path, file: None, words, is_written: true };
        all.take_room();
        all
    }

    /// Takes room if there is none yet. Best effort: tried again.
    fn take_room(&mut self) {
        if self.file.is_some() {
            return;
        }
        let open = || -> io::Result<File> {
            let mut options = OpenOptions::new();
            let file =
                options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
            let length = usize::try_from(file.metadata()?.len()).unwrap_or(ROOM);
            if length < ROOM {
                file.write_all_at(&vec![BLANK; ROOM - length], length as u64)?;
            }
            Ok(file)
        };
        self.file = open().ok();
    }

    fn has(&self, id: AgentId) -> bool {
        self.words.contains_key(&id)
    }

    /// Puts all words on the disk.
    fn write(&mut self) -> io::Result<()> {
        let mut text = String::new();
        for (id, word) in &self.words {
            let _never_fails = writeln!(text, "{} {id} {}", word.deed.word(), word.nonce);
        }
        let file = self.file.as_ref().ok_or_else(|| io::Error::other("no room was taken"))?;
        if text.len() > ROOM {
            return Err(io::Error::other("more words than there is room for"));
        }
        let mut bytes = text.into_bytes();
        bytes.resize(ROOM, BLANK);
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        self.is_written = true;
        Ok(())
    }
}

impl Deed {
    fn word(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Removed => "removed",
        }
    }
}

fn parse(line: &str) -> Option<(AgentId, Word)> {
    let mut parts = line.trim_start().splitn(3, ' ');
    let deed = match parts.next()? {
        "killed" => Deed::Killed,
        "removed" => Deed::Removed,
        _ => return None,
    };
    let id = parts.next()?.parse().ok()?;
    Some((id, Word { deed, nonce: parts.next()?.to_owned() }))
}

impl Owner {
    /// A batch is not committed: what of it must not be forgotten is written down before anybody is answered.
    pub(super) fn remember(&mut self, thens: &[Then]) {
        let killed = |agent: &Agent| agent.record.wanted == Wanted::Kill;
        let mut new = Vec::new();
        for then in thens {
            let (id, deed) = match then {
                Then::KillOrdered { id, .. } => (*id, Deed::Killed),
                Then::Row(id, _) if self.agents.get(id).is_some_and(killed) => (*id, Deed::Killed),
                Then::Removed { removed, .. } => (removed.id, Deed::Removed),
                _ => continue,
            };
            if let Some(agent) = self.agents.get(&id) {
                new.push((id, Word { deed, nonce: agent.record.nonce.clone() }));
            }
        }
        if new.iter().all(|(id, word)| self.last_words.words.get(id) == Some(word)) {
            return;
        }
        let before = self.last_words.words.clone();
        self.last_words.words.extend(new);
        if let Err(error) = self.last_words.write() {
            tracing::error!("{}: {error}", self.last_words.path.display());
            // Who was killed stays so as long as we live; nobody is removed whom the next daemon would find again.
            let words = &mut self.last_words.words;
            words.retain(|id, word| word.deed == Deed::Killed || before.get(id) == Some(word));
        }
    }

    /// The registry takes its time: that an agent is to be killed is written down here meanwhile.
    pub(super) fn remember_kill(&mut self, id: AgentId, grace: u64) {
        self.remember(&[Then::KillOrdered { id, grace }]);
    }

    /// Whether the next daemon will know that an agent was removed.
    pub(super) fn is_removed_in_words(&self, id: AgentId) -> bool {
        self.last_words.words.get(&id).is_some_and(|word| word.deed == Deed::Removed)
    }

    /// Whether it is remembered that an agent was killed, or removed.
    pub(super) fn is_remembered(&self, id: AgentId) -> bool {
        self.last_words.has(id)
    }

    /// What the last daemon could not commit happens to those whom the registry still has.
    pub(super) fn hear_last_words(&mut self, known: &mut Vec<(Record, About)>) {
        let mut words = std::mem::take(&mut self.last_words.words);
        words.retain(|id, word| {
            known.iter().any(|(record, _)| record.id == *id && record.nonce == word.nonce)
        });
        if !words.is_empty() {
            tracing::warn!(
                "{} agents were killed or removed while the registry could not be written",
                words.len()
            );
        }
        for (record, _) in known.iter_mut() {
            let is_over = record.status.state().is_ending();
            if words.get(&record.id).is_some_and(|word| word.deed == Deed::Killed) && !is_over {
                record.wanted = Wanted::Kill;
            }
        }
        let is_gone = |id: &AgentId| words.get(id).is_some_and(|word| word.deed == Deed::Removed);
        known.retain(|(record, _)| !is_gone(&record.id));
        for id in words.keys().filter(|id| is_gone(id)) {
            // It may have been on its way out already.
            let _gone = std::fs::rename(self.places.agent_dir(*id), rm::leaving(&self.places, *id));
        }
        self.last_words.words = words;
    }

    /// Tries again to commit what is written down, and to have room for more.
    pub(super) fn repeat_last_words(&mut self) {
        self.last_words.take_room();
        for (id, word) in self.last_words.words.clone() {
            let change = match (word.deed, self.agents.get(&id)) {
                (Deed::Removed, _) => Change::Delete(id),
                (Deed::Killed, Some(agent)) if agent.busy.is_some() => continue,
                (Deed::Killed, Some(agent))
                    if agent.record.nonce == word.nonce && agent.record.wanted == Wanted::Kill =>
                {
                    Change::Update(Box::new(agent.record.clone()))
                }
                // It was resumed since, or is gone.
                (Deed::Killed, _) => {
                    self.last_words.words.remove(&id);
                    self.last_words.is_written = false;
                    continue;
                }
            };
            self.batch.add(change, Then::Recorded(id, word));
        }
        if !self.last_words.is_written {
            // Best effort: words that are no longer true say nothing.
            let _again = self.last_words.write();
        }
    }

    /// A word is in the registry.
    pub(super) fn recorded(&mut self, id: AgentId, word: &Word) {
        if self.last_words.words.get(&id) == Some(word) {
            self.last_words.words.remove(&id);
            self.last_words.is_written = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> AgentId {
        AgentId::from_random(number.to_be_bytes())
    }

    #[test]
    fn r11_what_is_written_is_read_by_the_next_and_room_is_taken_before_it_is_needed() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = LastWords::open(dir.path());
        let length = |dir: &Path| std::fs::metadata(dir.join(FILE)).unwrap().len();
        assert_eq!((first.words.len(), length(dir.path())), (0, ROOM as u64));
        let words: BTreeMap<AgentId, Word> = (0..3)
            .map(|number| {
                let deed = if number == 1 { Deed::Removed } else { Deed::Killed };
                (id(number), Word { deed, nonce: format!("nonce {number}") })
            })
            .collect();
        first.words = words.clone();
        first.write().unwrap();
        assert_eq!(length(dir.path()), ROOM as u64);
        let mut second = LastWords::open(dir.path());
        assert_eq!(second.words, words);
        second.words.clear();
        second.write().unwrap();
        assert_eq!(LastWords::open(dir.path()).words, BTreeMap::new());
    }

    #[test]
    fn r11_more_than_there_is_room_for_is_refused_and_nonsense_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join(FILE),
            "killed\nkilled zzz n\nburied 00000001 n\nremoved 00000001 n\n  ",
        )
        .unwrap();
        let mut words = LastWords::open(dir.path());
        let expected = Word { deed: Deed::Removed, nonce: "n".to_owned() };
        assert_eq!(words.words, BTreeMap::from([(id(1), expected)]));
        let nonce = "n".repeat(32);
        let many = (0..2000).map(|number| (id(number), Word { deed: Deed::Killed, nonce: nonce.clone() }));
        words.words.extend(many);
        assert!(words.write().is_err());
    }
}
