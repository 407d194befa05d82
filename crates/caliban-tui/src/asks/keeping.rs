//! "Always": the rules that a yes adds, as they will be written, and for how long. Both can be changed first. Pure.

use caliban_core::{
    ask::Answer,
    kept_rules::{KeepFor, KeptRules},
};
use caliban_permissions::Rule;
use crossterm::event::{KeyCode, KeyEvent};

use super::Pressed;
use crate::composer::is_text;

/// The line in which the rules are edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) keep: KeepFor,
    line: Vec<char>,
    /// Before which character the cursor is.
    at: usize,
}

impl Keeping {
    pub(super) fn new(rules: &[String]) -> Self {
        let line: Vec<char> = KeptRules::line(rules).chars().collect();
        Self { keep: KeepFor::Session, at: line.len(), line }
    }

    /// The text before the cursor, and behind it.
    pub(crate) fn parts(&self) -> [String; 2] {
        let (before, behind) = self.line.split_at(self.at.min(self.line.len()));
        [before, behind].map(|part| part.iter().collect())
    }

    /// Text that is not typed key by key.
    pub(crate) fn insert(&mut self, text: &str) {
        let chars: Vec<char> = text.chars().collect();
        let count = chars.len();
        self.line.splice(self.at..self.at, chars);
        self.at += count;
    }

    /// What a key does; none when it leaves the line.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Pressed> {
        match key.code {
            KeyCode::Esc => return None,
            KeyCode::Enter => return Some(self.reply()),
            KeyCode::Tab => self.turn(1),
            KeyCode::BackTab => self.turn(KeepFor::ALL.len() - 1),
            KeyCode::Left => self.at = self.at.saturating_sub(1),
            KeyCode::Right => self.at = (self.at + 1).min(self.line.len()),
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = self.line.len(),
            KeyCode::Backspace if self.at > 0 => {
                self.at -= 1;
                self.line.remove(self.at);
            }
            KeyCode::Delete if self.at < self.line.len() => {
                self.line.remove(self.at);
            }
            KeyCode::Char(c) if is_text(key) => self.insert(c.encode_utf8(&mut [0; 4])),
            _ => {}
        }
        Some(Pressed::Typed)
    }

    fn turn(&mut self, by: usize) {
        let now = KeepFor::ALL.iter().position(|keep| *keep == self.keep).unwrap_or_default();
        self.keep = KeepFor::ALL.into_iter().cycle().nth(now + by).unwrap_or_default();
    }

    fn reply(&self) -> Pressed {
        let text: String = self.line.iter().collect();
        let kept = KeptRules::written(self.keep, &text);
        match kept.rules.iter().find_map(|rule| rule.parse::<Rule>().err()) {
            Some(error) => Pressed::Refused(error.to_string(), false),
            None if kept.rules.is_empty() => {
                Pressed::Refused("there is no rule: Esc goes back, and y allows it once".to_owned(), false)
            }
            None => Pressed::Answer(Answer::Keep(kept)),
        }
    }
}
