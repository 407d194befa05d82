//! Lists above the composer: commands, files, the history, sessions, and texts to read.

use std::time::Instant;

use caliban_acp::v1::SessionInfo;

use super::{Destination, ScreenState};
use crate::{events::ScreenEffect, sanitise};

/// Entries that are offered.
const OFFERED: usize = 200;

/// What a list is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PopupKind {
    /// Commands; so many bytes before the cursor are their beginning.
    Commands(usize),
    /// The same for files.
    Files(usize),
    /// What was written before, searched for this.
    History(String),
    /// Sessions, by id.
    Sessions,
    /// Prompts that one can go back to, by number.
    Prompts,
    /// What becomes of background agents when one goes there.
    Leave(Destination),
    /// Something to read.
    Text,
}

/// A list above the composer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Popup {
    pub(crate) kind: PopupKind,
    pub(crate) title: String,
    /// What is chosen, and what is shown of it.
    pub(crate) items: Vec<(String, String)>,
    pub(crate) chosen: usize,
}

impl Popup {
    /// Something to read.
    pub(super) fn text(title: &str, lines: Vec<String>) -> Self {
        let items = lines.into_iter().map(|line| (String::new(), line)).collect();
        Self { kind: PopupKind::Text, title: format!("{title}, Esc closes"), items, chosen: 0 }
    }

    pub(super) fn help(commands: &[(String, String, String)]) -> Self {
        let keys = [
            ("Enter", "send; while the agent works: steer it at its next step"),
            ("Tab", "while it works: queue for the next turn. With a question open: go to it"),
            ("Shift+Enter, Alt+Enter, Ctrl+J, \\ Enter", "a new line"),
            ("Esc", "close a list, then interrupt; twice: clear the draft, or go back to an earlier prompt"),
            ("Ctrl+C", "interrupt; clear the draft into the history; twice: leave"),
            ("Ctrl+D", "on an empty line: leave"),
            ("↑ ↓", "history; Alt+↑ takes a queued message back"),
            ("Ctrl+R", "search the history"),
            ("PgUp PgDn, wheel", "scroll; Ctrl+Home and Ctrl+End: to the ends"),
            ("Ctrl+O", "expand the last call, again: all, again: none"),
            ("Ctrl+T", "todo list"),
            ("Shift+Tab", "permission mode"),
            ("Ctrl+S", "put the draft aside, or take it back"),
            ("Ctrl+G, Ctrl+X v", "write in your editor, read the conversation there"),
            ("Ctrl+V", "paste the clipboard, a picture as a file"),
            ("Ctrl+L, Ctrl+Z", "repaint, suspend"),
            ("Alt+A, Ctrl+X a", "the agents of the fleet; Esc comes back"),
            ("@ / !", "a file, a command, a shell command"),
        ];
        let mut lines: Vec<String> = keys.iter().map(|(key, does)| format!("{key}: {does}")).collect();
        lines.push(String::new());
        lines.extend(commands.iter().map(|(name, input, about)| {
            let input = if input.is_empty() { String::new() } else { format!(" {input}") };
            format!("/{name}{input}: {about}")
        }));
        Self::text("Help: ↑ ↓ PgUp PgDn scroll", lines)
    }

    /// Scrolls a text by so many lines.
    pub(super) fn scroll(&mut self, rows: usize, down: bool) {
        let last = self.items.len().saturating_sub(rows);
        self.chosen = match down {
            true => (self.chosen + rows).min(last),
            false => self.chosen.saturating_sub(rows),
        };
    }

    fn step(&mut self, down: bool) {
        let last = self.items.len().saturating_sub(1);
        self.chosen = match (down, self.kind == PopupKind::Text) {
            (true, _) if self.chosen < last => self.chosen + 1,
            (true, true) => last,
            (true, false) => 0,
            (false, true) => self.chosen.saturating_sub(1),
            (false, false) => self.chosen.checked_sub(1).unwrap_or(last),
        };
    }
}

impl ScreenState {
    /// Opens, narrows or closes the list that belongs to what is being written.
    pub(super) fn refresh_popup(&mut self) -> Vec<ScreenEffect> {
        if let Some(Popup {
            kind:
                PopupKind::History(_)
                | PopupKind::Sessions
                | PopupKind::Prompts
                | PopupKind::Leave(_)
                | PopupKind::Text,
            ..
        }) = &self.popup
        {
            return Vec::new();
        }
        let before = self.composer.before_cursor();
        if let Some(name) = before.strip_prefix('/').filter(|name| !name.contains(char::is_whitespace)) {
            let bytes = before.len();
            let items = self
                .known_commands()
                .into_iter()
                .filter(|(known, ..)| known.starts_with(name))
                .map(|(known, input, about)| (format!("/{known} "), format!("/{known} {input}  {about}")))
                .collect();
            self.offer(PopupKind::Commands(bytes), "commands", items);
            return Vec::new();
        }
        let word = before.rsplit(char::is_whitespace).next().unwrap_or_default();
        let Some(query) = word.strip_prefix('@').map(str::to_owned) else {
            self.popup = None;
            self.files_for = None;
            return Vec::new();
        };
        let bytes = word.len();
        let at = before.len() - bytes;
        let items = matching(&self.files, &query)
            .into_iter()
            .map(|file| (format!("@{file} "), sanitise::line(file)))
            .collect();
        self.offer(PopupKind::Files(bytes), "files", items);
        // Listed anew for every `@`: the agent makes and removes files.
        match self.files_for.replace(at) {
            Some(known) if known == at => Vec::new(),
            _ => vec![ScreenEffect::ListFiles],
        }
    }

    fn offer(&mut self, kind: PopupKind, title: &str, items: Vec<(String, String)>) {
        let chosen = self.popup.as_ref().map_or(0, |popup| popup.chosen).min(items.len().saturating_sub(1));
        self.popup = (!items.is_empty()).then(|| Popup { kind, title: title.to_owned(), items, chosen });
    }

    /// Ctrl+R.
    pub(super) fn search_history(&mut self, query: String, now: Instant) -> Vec<ScreenEffect> {
        let entries = self.composer.history.newest_first();
        let items: Vec<(String, String)> = entries
            .enumerate()
            .filter(|(_, draft)| draft.shown().to_lowercase().contains(&query.to_lowercase()))
            .map(|(at, draft)| (at.to_string(), sanitise::line(&draft.shown())))
            .take(OFFERED)
            .collect();
        if items.is_empty() && query.is_empty() {
            return self.only_say("nothing was written before", now);
        }
        let title = format!("history: {query}▏ Enter takes it");
        self.open(Popup { kind: PopupKind::History(query), title, items, chosen: 0 })
    }

    pub(super) fn show_sessions(&mut self, sessions: &[SessionInfo], now: Instant) {
        let titled = sessions.iter().filter_map(|session| Some((session, session.title.as_ref()?)));
        let items: Vec<(String, String)> = titled
            .take(OFFERED)
            .map(|(session, title)| {
                let when = session.updated_at.clone().unwrap_or_default();
                let when: String = when.chars().take(16).collect();
                (
                    session.session_id.to_string(),
                    sanitise::line(&format!("{}  {title}", when.replace('T', " "))),
                )
            })
            .collect();
        if items.is_empty() {
            return self.say("there are no other sessions here", now);
        }
        let title = "sessions: Enter goes on with one".to_owned();
        self.popup = Some(Popup { kind: PopupKind::Sessions, title, items, chosen: 0 });
    }

    /// Esc Esc: the prompts that one can go back to, the last one chosen.
    pub(super) fn show_prompts(&mut self, prompts: &[String], now: Instant) {
        if prompts.is_empty() {
            return self.say("there is nothing to go back to", now);
        }
        let items: Vec<(String, String)> = prompts
            .iter()
            .enumerate()
            .map(|(at, text)| ((at + 1).to_string(), format!("{}  {}", at + 1, sanitise::line(text))))
            .collect();
        let chosen = items.len() - 1;
        let title = "go back to before a prompt, its files too: Enter".to_owned();
        self.popup = Some(Popup { kind: PopupKind::Prompts, title, items, chosen });
    }

    pub(super) fn step_popup(&mut self, down: bool) {
        if let Some(popup) = &mut self.popup {
            popup.step(down);
        }
    }

    /// Takes what is chosen in the list.
    pub(super) fn choose(&mut self, now: Instant) -> Vec<ScreenEffect> {
        let Some(popup) = self.popup.take() else { return Vec::new() };
        let Some((value, _)) = popup.items.get(popup.chosen) else { return Vec::new() };
        match popup.kind {
            PopupKind::Commands(bytes) | PopupKind::Files(bytes) => {
                self.composer.replace_before(bytes, value);
                Vec::new()
            }
            PopupKind::History(_) => {
                let at: usize = value.parse().unwrap_or_default();
                let draft = self.composer.history.newest_first().nth(at).cloned();
                if let Some(draft) = draft {
                    let written = self.composer.take();
                    if !written.is_blank() {
                        self.composer.history.push(written);
                    }
                    self.composer.set(draft);
                }
                Vec::new()
            }
            PopupKind::Prompts => {
                self.turn.prompted(now);
                vec![ScreenEffect::Prompt(format!("/rewind {value}"))]
            }
            PopupKind::Leave(destination) => self.answer_leave(value, destination, now),
            PopupKind::Sessions => self.leave_for(Destination::Load(value.clone()), now),
            PopupKind::Text => Vec::new(),
        }
    }
}

/// The files that a query means, best first: the letters of the query in their order, the nearer together the better.
fn matching<'f>(files: &'f [String], query: &str) -> Vec<&'f str> {
    let query: Vec<char> = query.to_lowercase().chars().collect();
    let mut scored: Vec<(usize, usize, &str)> = files
        .iter()
        .filter_map(|file| {
            let score = score(file, &query)?;
            Some((score, file.len(), file.as_str()))
        })
        .collect();
    scored.sort_unstable();
    scored.into_iter().take(OFFERED).map(|(_, _, file)| file).collect()
}

/// How far apart the letters of the query are in the name; none when they are not all there.
fn score(file: &str, query: &[char]) -> Option<usize> {
    if query.is_empty() {
        return Some(0);
    }
    let lower = file.to_lowercase();
    let needle: String = query.iter().collect();
    let name = lower.rfind('/').map_or(0, |at| at + 1);
    if let Some(at) = lower[name..].find(&needle) {
        return Some(at.min(1));
    }
    if lower.contains(&needle) {
        return Some(2);
    }
    let mut gaps = 3;
    let mut letters = lower.chars();
    for wanted in query {
        gaps += letters.by_ref().position(|letter| letter == *wanted)?;
    }
    Some(gaps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_file_comes_first() {
        let files: Vec<String> =
            ["src/main.rs", "docs/domain.md", "src/state/main_loop.rs", "Makefile", "m/a/i/n"]
                .map(String::from)
                .into();
        assert_eq!(
            matching(&files, "main"),
            ["src/main.rs", "src/state/main_loop.rs", "docs/domain.md", "m/a/i/n"]
        );
        assert_eq!(matching(&files, "zz"), [""; 0]);
    }
}
