//! Texts to read in the agent view: what an agent changed, what landing it would do, the keys.

use std::time::Instant;

use super::{AgentKey, Forecast};
use crate::{
    asks::QUIET,
    composer::{Composer, Draft},
    sanitise,
    theme::TextRole,
};

/// The line before the content of a binary file, which nobody reads.
const BINARY: &str = "GIT binary patch";

/// The keys of the list, in words.
pub(super) const KEYS: [(&str, &str); 17] = [
    ("↑ ↓", "choose an agent; PgUp PgDn Home End"),
    ("Enter", "open its conversation; Ctrl+D there comes back"),
    ("p", "peek: its last lines, and a reply"),
    ("n", "the next agent that needs you"),
    ("y", "show what it asks, and answer it"),
    ("Tab", "write a task for a new agent; before it"),
    ("", "@type --model M --after ID --budget-tokens N"),
    ("d", "what it changed"),
    ("m", "what landing its work would do; land it"),
    ("x", "stop it with everything that it started"),
    ("r", "let one that has ended go on"),
    ("R", "start it anew; the old one goes"),
    ("Space", "mark several: y x r R act on all of them"),
    ("/", "show only those that match"),
    ("a", "the agents of all repos, or of this one"),
    ("Ctrl+L", "draw everything anew"),
    ("Esc q", "unmark, unfilter, leave"),
];

/// A text that is scrolled.
#[derive(Debug)]
pub(super) struct ScrolledText {
    pub(super) title: String,
    pub(super) lines: Vec<(TextRole, String)>,
    pub(super) scroll: usize,
    /// What lands with a `y`.
    pub(super) lands: Option<Landing>,
}

/// An agent's work that is about to land.
#[derive(Debug)]
pub(super) struct Landing {
    pub(super) key: AgentKey,
    /// From when on: what was typed before the page was read lands nothing.
    pub(super) from: Instant,
    /// The message, which begins as it was suggested.
    pub(super) message: Composer,
    suggested: String,
    /// Whether the message has the keys.
    pub(super) is_edited: bool,
}

impl Landing {
    fn new(forecast: Forecast, now: Instant) -> Self {
        let mut message = Composer::default();
        message.set(Draft::of(&forecast.message));
        Self { key: forecast.key, from: now + QUIET, message, suggested: forecast.message, is_edited: false }
    }

    /// The message, when it is not the suggested one any more.
    pub(super) fn own_message(&self) -> Option<String> {
        let message = self.message.text().trim();
        (!message.is_empty() && message != self.suggested.trim()).then(|| message.to_owned())
    }
}

impl ScrolledText {
    /// A patch in colours. Signs stay, so that nothing is said by colour alone.
    pub(super) fn diff(name: &str, patch: &str) -> Self {
        let mut lines = Vec::new();
        let mut in_binary = false;
        for line in patch.lines() {
            in_binary = (in_binary || line == BINARY) && !line.starts_with("diff --git ");
            if in_binary && line != BINARY {
                continue;
            }
            let role = match line.as_bytes() {
                [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => TextRole::Strong,
                [b'+', ..] => TextRole::Added,
                [b'-', ..] => TextRole::Removed,
                [b'@', b'@', ..] => TextRole::Accent,
                [b' ', ..] => TextRole::Text,
                [] => TextRole::Text,
                _ => TextRole::Strong,
            };
            lines.push((role, sanitise::block(line)));
        }
        if lines.is_empty() {
            lines.push((TextRole::Dim, "it has changed nothing".to_owned()));
        }
        Self { title: format!("changes of {name}"), lines, scroll: 0, lands: None }
    }

    pub(super) fn merge(name: &str, forecast: Forecast, now: Instant) -> Self {
        let lines = forecast.lines.iter().map(|line| (TextRole::Text, sanitise::line(line))).collect();
        let title = format!("landing the work of {name}");
        let lands = forecast.can_land.then(|| Landing::new(forecast, now));
        Self { title, lines, scroll: 0, lands }
    }

    pub(super) fn help() -> Self {
        let width = KEYS.iter().map(|(key, _)| crate::text::columns(key)).max().unwrap_or(0);
        let line = |(key, about): &(&str, &str)| {
            let blanks = " ".repeat(width - crate::text::columns(key) + 2);
            (TextRole::Text, format!("{key}{blanks}{about}"))
        };
        Self { title: "keys".to_owned(), lines: KEYS.iter().map(line).collect(), scroll: 0, lands: None }
    }

    /// Scrolls by so many lines on a screen of this many.
    pub(super) fn scroll(&mut self, by: isize, height: usize) {
        let last = self.lines.len().saturating_sub(height);
        self.scroll = self.scroll.saturating_add_signed(by).min(last);
    }
}
