//! What lists say of a session. A thousand transcripts take seconds to read, so what was read is kept beside them
//! (`sessions.index.json`), by the size and time of the files that it was read from.

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use caliban_agent::{
    conversation::Conversation,
    past_spending::SessionSpending,
    transcript::{self, TranscriptError},
};
use caliban_contract::records;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Ending;
use crate::session_places::{FoundSession, Sessions, Shelf};

/// Counts up when a summary is made in another way: what an earlier build kept is then read anew.
const VERSION: u32 = 1;

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Summary {
    /// How the last turn ended, in a word.
    pub state: String,
    pub model: String,
    /// Where it works; none in a transcript without a header.
    pub cwd: Option<PathBuf>,
    pub turns: u32,
    pub tokens: u64,
    pub title: String,
    /// When the last record was written.
    pub last_at: Option<Timestamp>,
}

/// The files of a session with its helpers: how many, how long together, and when the last of them changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    files: u64,
    bytes: u64,
    changed: (i64, i64),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Index {
    version: u32,
    sessions: BTreeMap<String, (Stamp, Summary)>,
}

/// The summaries of the sessions on one shelf of a repo.
pub(crate) struct Summaries {
    directory: PathBuf,
    name: String,
    index: Index,
    has_news: bool,
}

impl Summaries {
    pub(crate) fn open(sessions: &Sessions, shelf: Shelf) -> Self {
        let (directory, name) = (sessions.repo_dir().to_owned(), format!("{}.index.json", shelf.directory()));
        let index = records::read::<Index>(&directory, &name).filter(|index| index.version == VERSION);
        let index = index.unwrap_or_else(|| Index { version: VERSION, ..Index::default() });
        Self { directory, name, index, has_news: false }
    }

    /// What there is to say of this one, read anew where its files have changed.
    pub(crate) fn get(&mut self, found: &FoundSession) -> Result<Summary, TranscriptError> {
        let (id, stamp) = (found.id.to_string(), Stamp::of(&found.directory));
        match self.index.sessions.get(&id) {
            Some((known, summary)) if *known == stamp => Ok(summary.clone()),
            _ => {
                let summary = read(&found.directory)?;
                self.index.sessions.insert(id, (stamp, summary.clone()));
                self.has_news = true;
                Ok(summary)
            }
        }
    }

    /// Keeps what was read, of those that there still are. Best effort: the next list reads it again.
    pub(crate) fn keep(mut self, present: &[FoundSession]) {
        let before = self.index.sessions.len();
        let present: std::collections::BTreeSet<String> =
            present.iter().map(|found| found.id.to_string()).collect();
        self.index.sessions.retain(|id, _| present.contains(id));
        if (self.has_news || self.index.sessions.len() != before)
            && let Err(error) = records::write(&self.directory, &self.name, &self.index)
        {
            tracing::debug!(%error, "the index of sessions was not kept");
        }
    }
}

impl Stamp {
    fn of(directory: &Path) -> Self {
        let mut stamp = Self::default();
        stamp.add(directory);
        stamp
    }

    fn add(&mut self, directory: &Path) {
        if let Ok(file) = fs::metadata(directory.join(transcript::FILE_NAME)) {
            self.files += 1;
            self.bytes += file.len();
            self.changed = self.changed.max((file.mtime(), file.mtime_nsec()));
        }
        for helpers in [records::SUB_AGENTS, records::BACKGROUND] {
            let Ok(entries) = fs::read_dir(directory.join(helpers)) else { continue };
            for helper in entries.flatten() {
                self.add(&helper.path());
            }
        }
    }
}

fn read(directory: &Path) -> Result<Summary, TranscriptError> {
    let (mut conversation, mut ending, mut title) = (Conversation::default(), Ending::Empty, None);
    let mut last_at = None;
    transcript::each(directory, |record| {
        conversation.apply(&record.event);
        ending = ending.after(&record.event);
        title = title.take().or_else(|| record.event.typed().map(|text| caliban_core::event::title(&text)));
        last_at = Some(record.at);
        ControlFlow::Continue(())
    })?;
    let header = conversation.header();
    Ok(Summary {
        state: ending.word().to_owned(),
        model: header.map(|header| header.model.clone()).unwrap_or_default(),
        cwd: header.map(|header| header.cwd.clone()),
        turns: conversation.replies(),
        tokens: SessionSpending::of(directory, &conversation).usage().total(),
        title: title.unwrap_or_default(),
        last_at,
    })
}
