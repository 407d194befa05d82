//! Which agent of a session wrote a file last. When another one writes it, both are told: each has read a file that is not
//! the same any more.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{event::Author, handle::Handle};

/// The agents of one session that work beside each other, and what they have written.
#[derive(Debug, Default)]
pub struct Writers(Mutex<WritersInner>);

#[derive(Debug, Default)]
struct WritersInner {
    /// By their sessions.
    members: BTreeMap<String, Member>,
    /// Who wrote a file last.
    last: BTreeMap<PathBuf, String>,
}

#[derive(Debug, Clone)]
struct Member {
    name: String,
    /// Absent when it has ended.
    handle: Option<Handle>,
}

impl Writers {
    pub(crate) fn join(&self, session: &str, label: Option<&str>, handle: Handle) {
        let name = label.map_or_else(|| "the main agent".to_owned(), str::to_owned);
        self.lock().members.insert(session.to_owned(), Member { name, handle: Some(handle) });
    }

    /// It hears nothing any more. What it wrote stays its own.
    pub(crate) fn leave(&self, session: &str) {
        if let Some(member) = self.lock().members.get_mut(session) {
            member.handle = None;
        }
    }

    /// An agent has written these files; what it is to be told. Those who wrote them before are told, too.
    pub(crate) async fn wrote(&self, session: &str, paths: &[PathBuf]) -> Vec<String> {
        let mut told = Vec::new();
        for path in paths {
            let Some((me, other)) = self.lock().take(session, path) else { continue };
            let (me, path) = (me.name, path.display());
            if let Some(handle) = &other.handle {
                let text = format!(
                    "[{me} has changed {path}, which you have changed, too. Read it again before you go on with it.]"
                );
                // It may be ending at this moment.
                if let Err(error) = handle.queue(text, Author::Caliban, None).await {
                    tracing::debug!(%error, "an agent that ends is not told of a write");
                }
            }
            let is_told = if other.handle.is_some() { "; it is told of this write" } else { "" };
            told.push(format!(
                "[{} has changed {path} before you{is_told}. Keep what it did, unless your task is to undo it.]",
                other.name
            ));
        }
        told
    }

    fn lock(&self) -> MutexGuard<'_, WritersInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WritersInner {
    /// The file is this one's from now on; who wrote it and who had it, when that was another agent.
    fn take(&mut self, session: &str, path: &Path) -> Option<(Member, Member)> {
        let real = crate::checkpoint::real(path);
        let before = self.last.insert(real, session.to_owned()).filter(|before| before != session)?;
        Some((self.members.get(session)?.clone(), self.members.get(&before)?.clone()))
    }
}
