//! The place where a person writes: several lines, a history, pastes as one piece.
//!
//! Owns the text and the cursor. What a line means (a message, a command, a file) is not its business.

mod edit;
mod history;
mod layout;

use std::rc::Rc;

pub(crate) use self::history::History;

/// A longer paste stands in the text as one placeholder.
const PASTE_CHARS: usize = 1_000;
/// The first character that stands for a paste: from a private plane that nobody types.
const PASTE_BASE: u32 = 0xF_0000;

/// A text with its pastes. It travels whole: into the history, the stash, the queue and back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    text: String,
    pastes: Vec<Rc<str>>,
}

/// The text that is being written.
#[derive(Debug, Default)]
pub(crate) struct Composer {
    draft: Draft,
    /// A byte in the text, between two graphemes.
    cursor: usize,
    /// The column that ↑ and ↓ aim at.
    column: Option<usize>,
    /// What was deleted last, for Ctrl+Y.
    killed: String,
    pub(crate) history: History,
    stash: Option<Draft>,
}

impl Draft {
    /// A draft of this text.
    pub(crate) fn of(text: &str) -> Self {
        Self { text: typed(text), pastes: Vec::new() }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The text with its pastes in full: what is sent.
    pub(crate) fn whole(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match self.paste(c) {
                Some(paste) => out.push_str(paste),
                None => out.push(c),
            }
        }
        out
    }

    /// The text with placeholders: what is shown.
    pub(crate) fn shown(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match self.label(c) {
                Some(label) => out.push_str(&label),
                None => out.push(c),
            }
        }
        out
    }

    /// The paste that a character stands for.
    fn paste(&self, c: char) -> Option<&str> {
        let number = u32::from(c).checked_sub(PASTE_BASE)?;
        self.pastes.get(usize::try_from(number).ok()?).map(AsRef::as_ref)
    }

    fn label(&self, c: char) -> Option<String> {
        let paste = self.paste(c)?;
        let number = u32::from(c) - PASTE_BASE + 1;
        let (chars, lines) = (paste.chars().count(), paste.lines().count());
        Some(format!("[paste {number}: {lines} lines, {chars} characters]"))
    }
}

impl Composer {
    pub(crate) fn draft(&self) -> &Draft {
        &self.draft
    }

    /// The text before the cursor, placeholders as single characters.
    pub(crate) fn before_cursor(&self) -> &str {
        &self.draft.text[..self.cursor]
    }

    pub(crate) fn text(&self) -> &str {
        &self.draft.text
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.draft.is_blank()
    }

    /// Takes the text out; the composer is empty then.
    pub(crate) fn take(&mut self) -> Draft {
        self.cursor = 0;
        self.column = None;
        std::mem::take(&mut self.draft)
    }

    /// Puts another text in, with the cursor at its end.
    pub(crate) fn set(&mut self, draft: Draft) {
        self.cursor = draft.text.len();
        self.column = None;
        self.draft = draft;
    }

    /// Puts a text before what is there.
    pub(crate) fn put_before(&mut self, first: Draft) {
        if self.draft.text.is_empty() {
            return self.set(first);
        }
        let mut merged = first;
        merged.text.push('\n');
        let base = merged.pastes.len();
        for c in self.draft.text.chars() {
            match self.draft.paste(c) {
                Some(_) => {
                    let number = u32::from(c) - PASTE_BASE + u32::try_from(base).unwrap_or(u32::MAX);
                    merged.text.extend(char::from_u32(PASTE_BASE + number));
                }
                None => merged.text.push(c),
            }
        }
        merged.pastes.append(&mut self.draft.pastes);
        self.set(merged);
    }

    /// Takes in what was pasted; a long one becomes a placeholder.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let number = u32::try_from(self.draft.pastes.len()).unwrap_or(u32::MAX);
        let mark = char::from_u32(PASTE_BASE.saturating_add(number));
        match mark.filter(|_| text.chars().count() > PASTE_CHARS) {
            Some(mark) => {
                self.draft.pastes.push(text.into());
                self.insert_raw(mark.encode_utf8(&mut [0; 4]));
            }
            None => self.insert(&text),
        }
    }

    /// Sends the text into the history and clears it.
    pub(crate) fn discard(&mut self) {
        let draft = self.take();
        if !draft.is_blank() {
            self.history.push(draft);
        }
    }

    /// Puts the text aside, or takes back what was put aside.
    pub(crate) fn stash(&mut self) -> bool {
        if self.is_blank() {
            if let Some(draft) = self.stash.take() {
                self.set(draft);
                return false;
            }
            return false;
        }
        // What was put aside before is not lost.
        if let Some(older) = self.stash.take() {
            self.history.push(older);
        }
        self.stash = Some(self.take());
        true
    }

    pub(crate) fn stashed(&self) -> Option<&Draft> {
        self.stash.as_ref()
    }

    pub(crate) fn has_stash(&self) -> bool {
        self.stash.is_some()
    }

    /// The older entry of the history.
    pub(crate) fn older(&mut self) -> bool {
        match self.history.older(&self.draft) {
            Some(draft) => {
                self.set(draft);
                true
            }
            None => false,
        }
    }

    /// The newer entry of the history, or what was being written.
    pub(crate) fn newer(&mut self) -> bool {
        match self.history.newer(&self.draft) {
            Some(draft) => {
                self.set(draft);
                true
            }
            None => false,
        }
    }
}

/// What was typed, without characters that stand for pastes.
fn typed(text: &str) -> String {
    text.chars().map(|c| if u32::from(c) >= PASTE_BASE { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t18_a_paste_of_a_megabyte_arrives_whole() {
        let text = "line of text\n".repeat(80_000);
        let mut composer = Composer::default();
        composer.insert("before ");
        composer.paste(&text);
        composer.insert(" after");
        assert_eq!(composer.draft().shown(), "before [paste 1: 80000 lines, 1040000 characters] after");
        assert_eq!(composer.take().whole(), format!("before {text} after"));
    }

    #[test]
    fn t19_a_placeholder_survives_history_and_stash() {
        let text = "x".repeat(2_000);
        let mut composer = Composer::default();
        composer.paste(&text);
        composer.insert("!");
        assert!(composer.stash());
        assert!(composer.is_blank());
        composer.stash();
        assert_eq!(composer.draft().whole(), format!("{text}!"));
        composer.discard();
        composer.insert("other");
        assert!(composer.older());
        assert_eq!(composer.draft().whole(), format!("{text}!"));
        assert!(composer.newer());
        assert_eq!(composer.draft().whole(), "other");
    }

    #[test]
    fn a_placeholder_is_one_piece() {
        let mut composer = Composer::default();
        composer.paste(&"y".repeat(1_500));
        composer.backspace();
        assert_eq!(composer.draft().whole(), "");
    }

    #[test]
    fn drafts_are_merged_with_their_pastes() {
        let (one, two) = ("1".repeat(1_001), "2".repeat(1_001));
        let mut composer = Composer::default();
        composer.paste(&two);
        let mut first = Composer::default();
        first.paste(&one);
        composer.put_before(first.take());
        assert_eq!(composer.draft().whole(), format!("{one}\n{two}"));
    }

    #[test]
    fn nobody_types_a_paste() {
        assert_eq!(Draft::of("a\u{F0000}b").whole(), "a\u{FFFD}b");
    }
}
