//! What was written before, newest last.

use super::Draft;

/// Older entries are forgotten.
const ENTRIES: usize = 1_000;

/// The entries, and which one is shown.
#[derive(Debug, Default)]
pub(crate) struct ComposerHistory {
    entries: Vec<Draft>,
    /// The entry that is shown, and what was being written before.
    shown: Option<(usize, Draft)>,
}

impl ComposerHistory {
    /// Adds an entry; the same twice in a row is one. What was being written before an entry was shown is kept, too.
    pub(crate) fn push(&mut self, draft: Draft) {
        self.keep_written();
        self.add(draft);
    }

    fn add(&mut self, draft: Draft) {
        if self.entries.last() != Some(&draft) {
            self.entries.push(draft);
        }
        let old = self.entries.len().saturating_sub(ENTRIES);
        self.entries.drain(..old);
    }

    /// No entry is shown any more; what was being written before becomes one.
    fn keep_written(&mut self) {
        if let Some((_, written)) = self.shown.take().filter(|(_, written)| !written.is_blank()) {
            self.add(written);
        }
    }

    /// All entries, newest first.
    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Draft> {
        self.entries.iter().rev()
    }

    /// The entry before the one that is shown. One that was changed since is written anew, and kept.
    pub(super) fn older(&mut self, current: &Draft) -> Option<Draft> {
        if self.is_changed(current) {
            self.keep_written();
        }
        let at = match &self.shown {
            Some((at, _)) => at.checked_sub(1)?,
            None => self.entries.len().checked_sub(1)?,
        };
        match &mut self.shown {
            Some((shown, _)) => *shown = at,
            None => self.shown = Some((at, current.clone())),
        }
        self.entries.get(at).cloned()
    }

    /// The entry after the one that is shown, at last what was being written.
    pub(super) fn newer(&mut self, current: &Draft) -> Option<Draft> {
        if self.is_changed(current) {
            self.keep_written();
        }
        let (at, written) = self.shown.take()?;
        match self.entries.get(at + 1) {
            Some(entry) => {
                self.shown = Some((at + 1, written));
                Some(entry.clone())
            }
            None => Some(written),
        }
    }

    fn is_changed(&self, current: &Draft) -> bool {
        self.shown.as_ref().is_some_and(|(at, _)| self.entries.get(*at) != Some(current))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_was_written_is_lost_on_the_way_through_the_history() {
        let mut history = ComposerHistory::default();
        history.push(Draft::of("one"));
        history.push(Draft::of("two"));
        let draft = Draft::of("draft");
        assert_eq!(history.older(&draft), Some(Draft::of("two")));
        // Changed, then away from it: both are kept.
        assert_eq!(history.older(&Draft::of("two, changed")), Some(draft.clone()));
        assert_eq!(history.newer(&draft), Some(Draft::of("two, changed")));
        assert_eq!(history.newer(&Draft::of("two, changed")), None);
        // A draft behind an entry that is sent.
        history.older(&Draft::of("another draft"));
        history.push(Draft::of("sent"));
        let all: Vec<Draft> = history.newest_first().cloned().collect();
        assert!(all.contains(&Draft::of("another draft")) && all[0] == Draft::of("sent"), "{all:?}");
    }
}
