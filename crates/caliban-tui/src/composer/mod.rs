//! The place where a person writes: several lines, a history, pastes as one piece.
//!
//! Owns the text and the cursor. What a line means (a message, a command, a file) is not its business.

mod edit;
mod history;
mod layout;

use std::rc::Rc;

pub(crate) use self::{edit::is_text, history::ComposerHistory};

/// A longer paste stands in the text as one placeholder.
const PASTE_CHARS: usize = 1_000;
/// Placeholders are characters from here on that the text does not use itself.
const FIRST_MARK: u32 = 0xF_0000;

/// A text with its pastes. It travels whole: into the history, the stash, the queue and back.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Draft {
    text: String,
    /// Each paste with the character that stands for it. Nothing else in the text is that character.
    pastes: Vec<(char, Rc<str>)>,
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
    pub(crate) history: ComposerHistory,
    stash: Option<Draft>,
}

impl Draft {
    /// A draft of this text.
    pub(crate) fn of(text: &str) -> Self {
        Self { text: text.to_owned(), pastes: Vec::new() }
    }

    pub(crate) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The text with its pastes in full: what is sent.
    pub(crate) fn whole(&self) -> String {
        let mut out = String::with_capacity(self.text.len());
        for c in self.text.chars() {
            match self.paste(c) {
                Some((_, paste)) => out.push_str(paste),
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

    /// The number of the paste that a character stands for, and the paste.
    fn paste(&self, c: char) -> Option<(usize, &str)> {
        let at = self.pastes.iter().position(|(mark, _)| *mark == c)?;
        self.pastes.get(at).map(|(_, paste)| (at + 1, paste.as_ref()))
    }

    fn label(&self, c: char) -> Option<String> {
        let (number, paste) = self.paste(c)?;
        let (chars, lines) = (paste.chars().count(), paste.lines().count());
        Some(format!("[paste {number}: {lines} lines, {chars} characters]"))
    }

    /// A character that neither the text nor a paste of it uses, nor `others`.
    fn free_mark(&self, others: &str) -> char {
        let is_free = |c: &char| self.paste(*c).is_none() && !self.text.contains(*c) && !others.contains(*c);
        // There are 131,000 of them.
        (FIRST_MARK..).filter_map(char::from_u32).find(is_free).unwrap_or(char::REPLACEMENT_CHARACTER)
    }

    /// The text and the marks of its pastes, which need not be in it.
    fn all_characters(&self) -> String {
        self.text.chars().chain(self.pastes.iter().map(|(mark, _)| *mark)).collect()
    }

    /// Gives other marks to the pastes whose marks are in `text`, which is about to come in.
    fn make_way(&mut self, text: &str, killed: &mut String) {
        for at in 0..self.pastes.len() {
            let mark = self.pastes[at].0;
            if text.contains(mark) {
                let other = self.free_mark(&format!("{text}{killed}"));
                self.pastes[at].0 = other;
                self.text = self.text.replace(mark, other.encode_utf8(&mut [0; 4]));
                *killed = killed.replace(mark, other.encode_utf8(&mut [0; 4]));
            }
        }
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
        let mut behind = std::mem::take(&mut self.draft);
        // No mark of one may be a character of the other.
        let mut none = String::new();
        merged.make_way(&behind.all_characters(), &mut none);
        behind.make_way(&merged.all_characters(), &mut none);
        merged.text.push('\n');
        merged.text.push_str(&behind.text);
        merged.pastes.append(&mut behind.pastes);
        self.set(merged);
    }

    /// Takes in what was pasted; a long one becomes a placeholder.
    pub(crate) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if text.chars().count() <= PASTE_CHARS {
            return self.insert(&text);
        }
        let mark = self.draft.free_mark(&self.killed);
        self.draft.pastes.push((mark, text.into()));
        self.insert_raw(mark.encode_utf8(&mut [0; 4]));
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
        self.history.older(&self.draft).map(|draft| self.set(draft)).is_some()
    }

    /// The newer entry of the history, or what was being written.
    pub(crate) fn newer(&mut self) -> bool {
        self.history.newer(&self.draft).map(|draft| self.set(draft)).is_some()
    }
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
    fn every_character_arrives_as_it_was_typed_also_beside_a_paste() {
        let strange = "a\u{F0000}b\u{10FFFD}";
        assert_eq!(Draft::of(strange).whole(), strange);
        let text = "x".repeat(2_000);
        let mut composer = Composer::default();
        composer.paste(&text);
        composer.insert(strange);
        composer.paste(&text);
        assert_eq!(composer.draft().whole(), format!("{text}{strange}{text}"));
        composer.put_before(Draft::of("\u{F0001}\u{F0002}"));
        assert_eq!(composer.draft().whole(), format!("\u{F0001}\u{F0002}\n{text}{strange}{text}"));
        composer.home();
        composer.kill_to_end();
        composer.insert(strange);
        composer.yank();
        assert!(composer.draft().whole().ends_with(&format!("{strange}{text}{strange}{text}")));
    }
}
