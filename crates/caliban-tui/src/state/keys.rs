//! What keys do. People find the list of keys in `/help` and in `docs/guide/terminal.md`.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{Destination, Focus, PopupKind, ScreenState};
use crate::{
    asks::{AskArea, Pressed},
    composer::is_text,
    events::ScreenEffect,
    view::composer_columns,
};

/// A second Ctrl+C within this leaves.
const TWICE: Duration = Duration::from_secs(1);
/// A second Esc within this clears the draft.
const ESC_TWICE: Duration = Duration::from_millis(600);

impl ScreenState {
    pub(super) fn key(&mut self, key: KeyEvent, now: Instant) -> Vec<ScreenEffect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        self.key_at = Some(now);
        if key.code != KeyCode::Esc {
            self.escaped = None;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        if std::mem::take(&mut self.prefix) {
            match key.code {
                KeyCode::Char('e') if control => {
                    return vec![ScreenEffect::Edit(self.composer.draft().whole())];
                }
                KeyCode::Char('a') => return vec![ScreenEffect::Fleet],
                KeyCode::Char('v') => return self.view(now),
                KeyCode::Char('[') => return self.print(now),
                _ => {}
            }
        }
        if self.has_selection() {
            match (key.code, control) {
                (KeyCode::Char('c'), true) => return self.copy_selection(true),
                (KeyCode::PageUp | KeyCode::PageDown, _) => {}
                (KeyCode::Esc, _) => {
                    self.selection = None;
                    return Vec::new();
                }
                _ => self.selection = None,
            }
        }
        // Keys that mean the same wherever one is.
        match (key.code, control, alt) {
            (KeyCode::Char('c'), true, _) => return self.interrupt_or_leave(now),
            (KeyCode::Char('a'), false, true) => return vec![ScreenEffect::Fleet],
            (KeyCode::Char('l'), true, _) => return vec![ScreenEffect::Repaint],
            (KeyCode::Char('z'), true, _) => return vec![ScreenEffect::Suspend],
            (KeyCode::Char('o'), true, _) => self.expand(now),
            (KeyCode::Char('t'), true, _) => self.toggle_todo(now),
            (KeyCode::BackTab, ..) => return self.next_mode(now),
            (KeyCode::PageUp | KeyCode::PageDown, ..) if matches!(&self.popup, Some(popup) if popup.kind == PopupKind::Text) =>
            {
                let rows = crate::view::popup_rows(self);
                if let Some(popup) = &mut self.popup {
                    popup.scroll(rows, key.code == KeyCode::PageDown);
                }
            }
            (KeyCode::PageUp | KeyCode::PageDown, ..) if self.focus == Focus::Composer => {
                let rows = self.conversation_size().rows.saturating_sub(2).max(1);
                self.scroll(rows, key.code == KeyCode::PageDown);
            }
            (KeyCode::Home, true, _) => self.conversation.scroll_to_start(self.conversation_size()),
            (KeyCode::End, true, _) => self.conversation.follow(),
            _ => {
                return match self.focus {
                    Focus::Ask => self.ask_key(key, now),
                    Focus::Composer if self.popup.is_some() => self.popup_key(key, now),
                    Focus::Composer => self.composer_key(key, now),
                };
            }
        }
        Vec::new()
    }

    /// Ctrl+C: interrupts, then clears the draft into the history, then leaves.
    fn interrupt_or_leave(&mut self, now: Instant) -> Vec<ScreenEffect> {
        // Whoever presses it at the question wants to leave, whatever becomes of the agents.
        match self.popup.take().map(|popup| popup.kind) {
            Some(PopupKind::Leave(Destination::Quit)) => return vec![ScreenEffect::Quit],
            Some(_) => return Vec::new(),
            None => {}
        }
        if self.focus == Focus::Ask {
            self.focus_composer();
            return Vec::new();
        }
        if !self.composer.is_blank() {
            return self.clear_draft(now);
        }
        if is_within(TWICE, self.leaving, now) {
            return self.leave_for(Destination::Quit, now);
        }
        self.leaving = Some(now);
        if self.shell.running.is_some() {
            self.say("ending the command; Ctrl+C again leaves", now);
            return vec![ScreenEffect::StopShell];
        }
        if self.turn.is_running() {
            self.say("interrupting; Ctrl+C again leaves", now);
            return self.interrupt();
        }
        self.only_say("Ctrl+C again leaves", now)
    }

    /// Ctrl+D: leaves; twice where that would end work.
    fn leave(&mut self, now: Instant) -> Vec<ScreenEffect> {
        let ends_work = self.turn.is_running() && self.facts.attached.is_none();
        if ends_work && !is_within(TWICE, self.leaving, now) {
            self.leaving = Some(now);
            return self.only_say("the agent is at work: Ctrl+D again ends it and leaves", now);
        }
        self.leave_for(Destination::Quit, now)
    }

    /// The draft goes into the history.
    fn clear_draft(&mut self, now: Instant) -> Vec<ScreenEffect> {
        let text = self.composer.draft().whole();
        self.composer.discard();
        self.say("cleared; ↑ brings it back", now);
        vec![ScreenEffect::Remember(text)]
    }

    fn interrupt(&mut self) -> Vec<ScreenEffect> {
        self.turn.stopping();
        vec![ScreenEffect::Cancel]
    }

    /// Ctrl+O: the last cell that has more to say, then all, then none.
    fn expand(&mut self, now: Instant) {
        let mut foldable = 0;
        let mut expanded = 0;
        for cell in self.conversation.newest_first().filter(|cell| cell.can_expand()) {
            foldable += 1;
            expanded += usize::from(cell.is_expanded());
        }
        if foldable == 0 {
            return self.say("nothing to expand", now);
        }
        let cells = self.conversation.newest_first_mut().filter(|cell| cell.can_expand());
        match expanded {
            0 => cells.take(1).for_each(|cell| cell.expand(true)),
            _ if expanded < foldable => cells.for_each(|cell| cell.expand(true)),
            _ => cells.for_each(|cell| cell.expand(false)),
        }
    }

    fn next_mode(&mut self, now: Instant) -> Vec<ScreenEffect> {
        // One key too many must not take the fence away.
        let modes: Vec<_> = self.modes.iter().filter(|mode| mode.id != super::UNATTENDED).collect();
        let current = modes.iter().position(|mode| Some(&mode.id) == self.mode.as_ref());
        let next = current.map_or(0, |at| (at + 1) % modes.len().max(1));
        match modes.get(next).copied().cloned() {
            Some(mode) => {
                self.say(format!("{}: {}", mode.id, mode.about), now);
                vec![ScreenEffect::SetMode(mode.id)]
            }
            None => Vec::new(),
        }
    }

    fn popup_key(&mut self, key: KeyEvent, now: Instant) -> Vec<ScreenEffect> {
        let Some(popup) = &self.popup else { return Vec::new() };
        let kind = popup.kind.clone();
        match key.code {
            KeyCode::Up => self.step_popup(false),
            KeyCode::Down => self.step_popup(true),
            KeyCode::Esc => self.popup = None,
            KeyCode::Tab => return self.choose(now),
            KeyCode::Enter => match &kind {
                // A command that stands there whole is carried out.
                PopupKind::Commands(_) if self.is_whole_command() => {
                    self.popup = None;
                    return self.submit(now);
                }
                PopupKind::Commands(_) if !self.wants_input() => {
                    let _none = self.choose(now);
                    return self.submit(now);
                }
                _ => return self.choose(now),
            },
            _ => match kind {
                PopupKind::History(mut query) => {
                    match key.code {
                        KeyCode::Char(c) if is_text(key) => query.push(c),
                        KeyCode::Backspace => {
                            query.pop();
                        }
                        _ => return Vec::new(),
                    }
                    return self.search_history(query, now);
                }
                PopupKind::Leave(destination) => {
                    let letter = if let KeyCode::Char(letter) = key.code { letter } else { ' ' };
                    let Some(choice) = Self::leave_choice(letter) else { return Vec::new() };
                    self.popup = None;
                    return self.answer_leave(choice, destination, now);
                }
                // What is typed goes on in the composer.
                PopupKind::Text | PopupKind::Sessions | PopupKind::Prompts => {
                    self.popup = None;
                    return self.composer_key(key, now);
                }
                PopupKind::Commands(_) | PopupKind::Files(_) => return self.composer_key(key, now),
            },
        }
        Vec::new()
    }

    fn is_whole_command(&self) -> bool {
        let name = self.composer.text().trim().trim_start_matches('/').to_owned();
        self.known_commands().iter().any(|(known, ..)| *known == name)
    }

    /// Whether the chosen command needs more behind its name.
    fn wants_input(&self) -> bool {
        let chosen = self.popup.as_ref().and_then(|popup| popup.items.get(popup.chosen));
        let name = chosen.map(|(value, _)| value.trim().trim_start_matches('/')).unwrap_or_default();
        self.known_commands()
            .iter()
            .any(|(known, input, _)| known == name && !input.is_empty() && !input.starts_with('['))
    }

    fn composer_key(&mut self, key: KeyEvent, now: Instant) -> Vec<ScreenEffect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        let shift = key.modifiers.contains(KeyModifiers::SHIFT);
        let columns = composer_columns(self.size.0);
        match (key.code, control, alt) {
            (KeyCode::Enter, ..) if alt || shift || control => self.composer.insert("\n"),
            (KeyCode::Enter, ..) if self.composer.before_cursor().ends_with('\\') => {
                self.composer.backspace();
                self.composer.insert("\n");
            }
            (KeyCode::Enter, ..) => {
                self.typed = Some(now);
                return self.submit(now);
            }
            (KeyCode::Tab, ..) if !self.asks.is_empty() => {
                // The hand is still on the keys: what follows at once is no answer.
                self.typed = Some(now);
                self.is_unbidden = false;
                self.focus = Focus::Ask;
                self.popup = None;
                return Vec::new();
            }
            (KeyCode::Tab, ..) => return self.enqueue(now),
            (KeyCode::Esc, ..) => return self.escape(now),
            (KeyCode::Up, _, true) => self.unqueue(),
            (KeyCode::Up, ..) => {
                if !self.composer.up(columns) && !self.composer.older() {
                    self.composer.home();
                }
            }
            (KeyCode::Down, ..) => {
                if !self.composer.down(columns) && !self.composer.newer() {
                    self.composer.end();
                }
            }
            (KeyCode::Char('d'), true, _) if self.composer.text().is_empty() => return self.leave(now),
            (KeyCode::Char('r'), true, _) => return self.search_history(String::new(), now),
            (KeyCode::Char('g'), true, _) => return vec![ScreenEffect::Edit(self.composer.draft().whole())],
            (KeyCode::Char('v'), true, _) => {
                self.typed = Some(now);
                return vec![ScreenEffect::ReadClipboard];
            }
            (KeyCode::Char('x'), true, _) => {
                self.prefix = true;
                return Vec::new();
            }
            (KeyCode::Char('s'), true, _) => {
                if self.composer.stash() {
                    self.say("put aside; Ctrl+S on an empty line takes it back", now);
                }
            }
            _ if self.composer.key(key) => {}
            _ => return Vec::new(),
        }
        self.typed = Some(now);
        self.refresh_popup()
    }

    /// Esc: interrupts; twice on an idle screen: clears the draft into the history, or goes back to an earlier prompt.
    fn escape(&mut self, now: Instant) -> Vec<ScreenEffect> {
        if self.shell.running.is_some() {
            return vec![ScreenEffect::StopShell];
        }
        if self.turn.is_running() {
            self.say("interrupting; what is queued stays", now);
            return self.interrupt();
        }
        let is_twice = is_within(ESC_TWICE, self.escaped.take(), now);
        if is_twice && self.composer.is_blank() {
            if self.can_rewind() {
                return vec![ScreenEffect::ListPrompts];
            }
            return self.only_say("there is nothing to go back to here", now);
        }
        if is_twice {
            return self.clear_draft(now);
        }
        if self.composer.is_blank() && self.can_rewind() {
            self.say("Esc again goes back to an earlier prompt", now);
        }
        self.escaped = Some(now);
        Vec::new()
    }

    fn can_rewind(&self) -> bool {
        !self.conversation.is_empty() && self.commands.iter().any(|command| command.name == "rewind")
    }

    /// Whether a letter in a question is for the input line: a command begins there, and in a question that has opened by itself
    /// whatever is written before anybody can have read it.
    fn is_for_composer(&self, key: KeyEvent, now: Instant) -> bool {
        let begins_command = matches!(key.code, KeyCode::Char('/' | '!'));
        self.asks.first().is_some_and(|open| {
            open.reason.is_none()
                && open.keeping.is_none()
                && is_text(key)
                && (begins_command
                    || self.is_unbidden && key.code != KeyCode::Char(' ') && !open.is_read(self.typed, now))
        })
    }

    fn ask_key(&mut self, key: KeyEvent, now: Instant) -> Vec<ScreenEffect> {
        let dialog = crate::view::areas(self).dialog;
        let page = AskArea {
            columns: dialog.map_or(1, |dialog| usize::from(dialog.width)),
            rows: dialog.map_or(1, crate::view::call_height).max(1),
        };
        let is_writing = self.asks.first().is_some_and(|open| open.reason.is_some());
        let leaves =
            key.code == KeyCode::Char('d') && key.modifiers.contains(KeyModifiers::CONTROL) && !is_writing;
        // What is typed is a command or a message, and no answer.
        if leaves || self.is_for_composer(key, now) {
            self.focus_composer();
            return self.composer_key(key, now);
        }
        match self.asks.key(key, (self.typed, now), page, self.theme) {
            Pressed::Answer(reply) => return self.answer(reply, now),
            Pressed::Back => self.focus_composer(),
            Pressed::Moved => {}
            Pressed::Typed => self.typed = Some(now),
            Pressed::Refused(why, waits) => {
                self.typed = if waits { Some(now) } else { self.typed };
                self.say(&why, now);
            }
        }
        Vec::new()
    }
}

fn is_within(time: Duration, before: Option<Instant>, now: Instant) -> bool {
    before.is_some_and(|before| now.saturating_duration_since(before) < time)
}
