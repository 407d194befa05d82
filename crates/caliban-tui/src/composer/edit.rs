//! Editing: by grapheme, by word, by line. A placeholder is one grapheme.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use unicode_segmentation::UnicodeSegmentation as _;

use super::Composer;

/// Whether a key types a character. AltGr is Ctrl and Alt at once.
pub(crate) fn is_text(key: KeyEvent) -> bool {
    key.modifiers.contains(KeyModifiers::CONTROL) == key.modifiers.contains(KeyModifiers::ALT)
}

impl Composer {
    /// A key that edits the text; whether it is one.
    pub(crate) fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match (key.code, control, alt) {
            (KeyCode::Char('j'), true, false) => self.insert("\n"),
            (KeyCode::Left, false, false) | (KeyCode::Char('b'), true, false) => self.left(),
            (KeyCode::Right, false, false) | (KeyCode::Char('f'), true, false) => self.right(),
            (KeyCode::Left, ..) | (KeyCode::Char('b'), false, true) => self.word_left(),
            (KeyCode::Right, ..) | (KeyCode::Char('f'), false, true) => self.word_right(),
            (KeyCode::Home, ..) | (KeyCode::Char('a'), true, false) => self.home(),
            (KeyCode::End, ..) | (KeyCode::Char('e'), true, false) => self.end(),
            (KeyCode::Backspace, false, false) | (KeyCode::Char('h'), true, false) => self.backspace(),
            (KeyCode::Backspace, ..) | (KeyCode::Char('w'), true, false) => self.kill_word(),
            (KeyCode::Delete, ..) | (KeyCode::Char('d'), true, false) => self.delete(),
            (KeyCode::Char('k'), true, false) => self.kill_to_end(),
            (KeyCode::Char('u'), true, false) => self.kill_to_start(),
            (KeyCode::Char('y'), true, false) => self.yank(),
            (KeyCode::Char(c), ..) if is_text(key) => self.insert(c.encode_utf8(&mut [0; 4])),
            _ => return false,
        }
        true
    }

    /// Types a text at the cursor.
    pub(crate) fn insert(&mut self, text: &str) {
        // A mark and its replacement are of the same length, so the cursor stays where it is.
        self.draft.make_way(text, &mut self.killed);
        self.insert_raw(text);
    }

    pub(super) fn insert_raw(&mut self, text: &str) {
        self.draft.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        // A combining character joins what stands before it.
        self.go(boundary(&self.draft.text, self.cursor));
    }

    pub(crate) fn left(&mut self) {
        self.go(self.before(self.cursor));
    }

    pub(crate) fn right(&mut self) {
        self.go(self.after(self.cursor));
    }

    pub(crate) fn word_left(&mut self) {
        self.go(self.word_before());
    }

    pub(crate) fn word_right(&mut self) {
        let rest = &self.draft.text[self.cursor..];
        let skipped = rest.len() - rest.trim_start_matches(|c: char| !c.is_alphanumeric()).len();
        let word = rest[skipped..].find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len() - skipped);
        self.go(boundary(&self.draft.text, self.cursor + skipped + word));
    }

    fn go(&mut self, to: usize) {
        self.cursor = to;
        self.column = None;
    }

    /// To the beginning of the line.
    pub(crate) fn home(&mut self) {
        self.go(self.line_start());
    }

    /// To the end of the line.
    pub(crate) fn end(&mut self) {
        self.go(self.line_end());
    }

    pub(crate) fn backspace(&mut self) {
        let from = self.before(self.cursor);
        self.remove(from, self.cursor);
    }

    pub(crate) fn delete(&mut self) {
        let to = self.after(self.cursor);
        self.remove(self.cursor, to);
    }

    /// Deletes the word before the cursor.
    pub(crate) fn kill_word(&mut self) {
        let from = self.word_before();
        self.kill(from, self.cursor);
    }

    /// Deletes to the end of the line, or its end.
    pub(crate) fn kill_to_end(&mut self) {
        let end = self.line_end();
        let to = if end == self.cursor { self.after(end) } else { end };
        self.kill(self.cursor, to);
    }

    /// Deletes to the beginning of the line.
    pub(crate) fn kill_to_start(&mut self) {
        let start = self.line_start();
        self.kill(start, self.cursor);
    }

    /// Puts back what was deleted last.
    pub(crate) fn yank(&mut self) {
        let killed = self.killed.clone();
        self.insert_raw(&killed);
    }

    /// Puts a text in the place of the last `bytes` before the cursor.
    pub(crate) fn replace_before(&mut self, bytes: usize, text: &str) {
        self.remove(self.cursor.saturating_sub(bytes), self.cursor);
        self.insert(text);
    }

    fn kill(&mut self, from: usize, to: usize) {
        if from < to {
            self.draft.text[from..to].clone_into(&mut self.killed);
            self.remove(from, to);
        }
    }

    fn remove(&mut self, from: usize, to: usize) {
        self.draft.text.replace_range(from..to, "");
        self.go(boundary(&self.draft.text, from));
    }

    fn before(&self, at: usize) -> usize {
        self.draft.text[..at].grapheme_indices(true).next_back().map_or(0, |(start, _)| start)
    }

    fn after(&self, at: usize) -> usize {
        self.draft.text[at..].graphemes(true).next().map_or(at, |grapheme| at + grapheme.len())
    }

    fn word_before(&self) -> usize {
        let text = &self.draft.text[..self.cursor];
        let text = text.trim_end_matches(|c: char| !c.is_alphanumeric());
        if text.is_empty() {
            // Nothing but signs: a word of their own.
            return 0;
        }
        text.trim_end_matches(char::is_alphanumeric).len()
    }

    fn line_start(&self) -> usize {
        self.draft.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.draft.text[self.cursor..].find('\n').map_or(self.draft.text.len(), |at| self.cursor + at)
    }
}

/// The end of the grapheme that `at` is in.
fn boundary(text: &str, at: usize) -> usize {
    let mut end = 0;
    for (start, grapheme) in text.grapheme_indices(true) {
        if start >= at {
            return start;
        }
        end = start + grapheme.len();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn composer(text: &str) -> Composer {
        let mut composer = Composer::default();
        composer.insert(text);
        composer
    }

    #[test]
    fn the_cursor_moves_by_what_people_see() {
        let mut family = composer("a👨‍👩‍👧é");
        family.backspace();
        assert_eq!(family.text(), "a👨‍👩‍👧");
        family.left();
        family.insert("b");
        assert_eq!(family.text(), "ab👨‍👩‍👧");
        family.delete();
        assert_eq!(family.text(), "ab");
    }

    #[test]
    fn words_and_lines_are_deleted_and_come_back() {
        let mut draft = composer("one two\nthree four");
        draft.kill_word();
        assert_eq!(draft.text(), "one two\nthree ");
        draft.kill_to_start();
        assert_eq!(draft.text(), "one two\n");
        draft.yank();
        assert_eq!(draft.text(), "one two\nthree ");
        draft.home();
        draft.left();
        draft.kill_to_end();
        assert_eq!(draft.text(), "one twothree ");
        draft.word_left();
        draft.insert("|");
        assert_eq!(draft.text(), "one |twothree ");
        draft.word_right();
        draft.insert("|");
        assert_eq!(draft.text(), "one |twothree| ");
    }
}
