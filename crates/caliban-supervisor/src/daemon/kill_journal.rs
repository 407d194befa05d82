//! Agents that were killed or removed while the registry could not be written (a full disk, or another process holds it).
//!
//! Owns the file `last-words`, which has its full length long before it is needed, so that it can be written on a full
//! disk. It has one line for each agent whose kill or removal is not in the registry yet. The next daemon reads it. A line
//! names the run that it is about, and every run that the registry may have in its place; a line of an earlier run
//! has no effect.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use caliban_core::ids::AgentId;
use caliban_store::fleet::{Change, Record, Wanted};

use super::agent::About;
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

/// What was done, and to which run: it has one of these names in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    deed: Deed,
    runs: BTreeSet<String>,
}

/// What the registry does not know yet.
#[derive(Debug)]
pub(super) struct KillJournal {
    path: PathBuf,
    /// None as long as no room could be had.
    file: Option<File>,
    words: BTreeMap<AgentId, Word>,
    /// What the file says for sure.
    on_file: BTreeMap<AgentId, Word>,
}

impl KillJournal {
    /// Reads what the last daemon left, and takes room.
    pub(super) fn open(base: &Path) -> Self {
        let path = base.join(FILE);
        let text = records::read_capped(&path, ROOM as u64).unwrap_or_default();
        let words: BTreeMap<AgentId, Word> =
            String::from_utf8_lossy(&text).lines().filter_map(parse).collect();
        let mut all = Self { path, file: None, on_file: words.clone(), words };
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
            let runs: Vec<&str> = word.runs.iter().map(String::as_str).collect();
            let _never_fails = writeln!(text, "{} {id} {}", word.deed.word(), runs.join(" "));
        }
        let file = self.file.as_ref().ok_or_else(|| io::Error::other("no room was taken"))?;
        if text.len() > ROOM {
            return Err(io::Error::other("more words than there is room for"));
        }
        let mut bytes = text.into_bytes();
        bytes.resize(ROOM, BLANK);
        self.on_file.clear();
        file.write_all_at(&bytes, 0)?;
        file.sync_data()?;
        self.on_file = self.words.clone();
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
    let mut parts = line.split_whitespace();
    let deed = match parts.next()? {
        "killed" => Deed::Killed,
        "removed" => Deed::Removed,
        _ => return None,
    };
    let id = parts.next()?.parse().ok()?;
    let runs: BTreeSet<String> = parts.map(str::to_owned).collect();
    (!runs.is_empty()).then_some((id, Word { deed, runs }))
}

impl Owner {
    /// A batch is not committed: what of it must not be forgotten is written down before anybody is answered.
    pub(super) fn remember(&mut self, thens: &[Then]) {
        let deed = |then: &Then| match then {
            Then::KillOrdered { id, .. } => Some((*id, Deed::Killed)),
            Then::Row { id, .. } if self.needs_word(*id) => Some((*id, Deed::Killed)),
            Then::Removed { id, .. } => Some((*id, Deed::Removed)),
            _ => None,
        };
        let deeds: Vec<(AgentId, Deed)> = thens.iter().filter_map(deed).collect();
        self.write_all_down(&deeds);
    }

    /// The registry takes its time: what was done to an agent is written down here meanwhile. Says whether it is.
    pub(super) fn write_down(&mut self, id: AgentId, deed: Deed) -> bool {
        self.write_all_down(&[(id, deed)]);
        let words = &self.kill_journal;
        let found = words.on_file.get(&id).filter(|word| word.deed == deed);
        found.is_some() && found == words.words.get(&id)
    }

    fn write_all_down(&mut self, deeds: &[(AgentId, Deed)]) {
        let before = self.kill_journal.words.clone();
        for (id, deed) in deeds {
            let Some(agent) = self.agents.get(id) else { continue };
            let mut runs = agent.runs();
            // What was said of an earlier run, and is not in the registry, must not be unsaid.
            runs.extend(before.get(id).iter().flat_map(|word| word.runs.iter().cloned()));
            self.kill_journal.words.insert(*id, Word { deed: *deed, runs });
        }
        if self.kill_journal.words == self.kill_journal.on_file {
            return;
        }
        if let Err(error) = self.kill_journal.write() {
            tracing::error!("{}: {error}", self.kill_journal.path.display());
            // Who was killed stays so as long as we live; nobody is removed whom the next daemon would find again.
            for (id, _) in deeds.iter().filter(|(_, deed)| *deed == Deed::Removed) {
                match before.get(id) {
                    Some(word) => self.kill_journal.words.insert(*id, word.clone()),
                    None => self.kill_journal.words.remove(id),
                };
            }
        }
    }

    /// Whether the next daemon might start an ended agent again, or not know how it ended, if nothing is said of it here:
    /// unless it was killed or never ran, its worker has said itself how it ended.
    pub(super) fn needs_word(&self, id: AgentId) -> bool {
        self.agents.get(&id).is_some_and(|agent| {
            agent.record.wanted == Wanted::Kill
                || agent.own_report().is_none_or(|report| report.outcome().is_none())
        })
    }

    /// Whether the next daemon will know that an agent was removed.
    pub(super) fn is_removed_in_words(&self, id: AgentId) -> bool {
        self.kill_journal.words.get(&id).is_some_and(|word| word.deed == Deed::Removed)
    }

    /// Whether the next daemon will know that an agent was killed, or removed.
    pub(super) fn is_on_file(&self, id: AgentId) -> bool {
        let words = &self.kill_journal;
        let is_present =
            |word: &&Word| self.agents.get(&id).is_none_or(|agent| word.runs.contains(&agent.record.nonce));
        words.on_file.get(&id).filter(is_present).is_some()
    }

    /// Whether it is remembered that an agent was killed, or removed.
    pub(super) fn is_remembered(&self, id: AgentId) -> bool {
        self.kill_journal.has(id)
    }

    /// What the last daemon could not commit happens to those whom the registry still has.
    pub(super) fn apply_kill_journal(&mut self, known: &mut Vec<(Record, About)>) {
        let mut words = std::mem::take(&mut self.kill_journal.words);
        words.retain(|id, word| {
            known.iter().any(|(record, _)| record.id == *id && word.runs.contains(&record.nonce))
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
        self.kill_journal.words = words;
    }

    /// Tries again to commit what is written down, and to have room for more.
    pub(super) fn retry_kill_journal(&mut self) {
        self.kill_journal.take_room();
        for (id, word) in self.kill_journal.words.clone() {
            let change = match (word.deed, self.agents.get(&id)) {
                (Deed::Removed, _) => Change::Delete(id),
                (Deed::Killed, Some(agent)) if agent.busy.is_some() => continue,
                (Deed::Killed, Some(agent))
                    if word.runs.contains(&agent.record.nonce)
                        && (agent.record.wanted == Wanted::Kill || agent.state().is_ending()) =>
                {
                    Change::Update(Box::new(agent.record.clone()))
                }
                // It was resumed since, or is gone.
                (Deed::Killed, _) => {
                    self.kill_journal.words.remove(&id);
                    continue;
                }
            };
            self.batch.add(change, Then::Recorded(id, word));
        }
        if self.kill_journal.on_file != self.kill_journal.words {
            // Best effort: words that are no longer true say nothing.
            let _again = self.kill_journal.write();
        }
    }

    /// A word is in the registry.
    pub(super) fn recorded(&mut self, id: AgentId, word: &Word) {
        if self.kill_journal.words.get(&id) == Some(word) {
            self.kill_journal.words.remove(&id);
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
        let mut first = KillJournal::open(dir.path());
        let length = |dir: &Path| std::fs::metadata(dir.join(FILE)).unwrap().len();
        assert_eq!((first.words.len(), length(dir.path())), (0, ROOM as u64));
        let words: BTreeMap<AgentId, Word> = (0..3)
            .map(|number| {
                let deed = if number == 1 { Deed::Removed } else { Deed::Killed };
                (id(number), Word { deed, runs: (0..=number).map(|run| format!("run-{run}")).collect() })
            })
            .collect();
        first.words = words.clone();
        first.write().unwrap();
        assert_eq!(length(dir.path()), ROOM as u64);
        let mut second = KillJournal::open(dir.path());
        assert_eq!(second.words, words);
        second.words.clear();
        second.write().unwrap();
        assert_eq!(KillJournal::open(dir.path()).words, BTreeMap::new());
    }

    #[test]
    fn r11_more_than_there_is_room_for_is_refused_and_nonsense_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join(FILE),
            "killed\nkilled zzz n\nburied 00000001 n\nremoved 00000001 n\n  ",
        )
        .unwrap();
        let mut words = KillJournal::open(dir.path());
        let expected = Word { deed: Deed::Removed, runs: ["n".to_owned()].into() };
        assert_eq!(words.words, BTreeMap::from([(id(1), expected)]));
        let nonce = "n".repeat(32);
        let many =
            (0..2000).map(|number| (id(number), Word { deed: Deed::Killed, runs: [nonce.clone()].into() }));
        words.words.extend(many);
        assert!(words.write().is_err());
    }
}
