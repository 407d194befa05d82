//! What keys do in the agent view. The list for people is in `pages.rs`, behind `?`.

use std::time::Instant;

use caliban_core::status_word::StatusGroup;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{FleetEffect, FleetScope, FleetState, Focus, Peek, pages::ScrolledText, view};
use crate::composer::{Composer, Draft, is_text};

impl FleetState {
    pub(super) fn key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('l') {
            return vec![FleetEffect::Repaint];
        }
        match &self.focus {
            Focus::List => self.list_key(key, now),
            Focus::Filter => self.filter_key(key, now),
            Focus::Dispatch => self.dispatch_key(key, now),
            Focus::Confirm(..) => self.confirm_key(key),
            Focus::Peek(_) => self.peek_key(key, now),
            Focus::Asking(_) => self.ask_key(key, now),
            Focus::Page(_) => self.page_key(key, now),
        }
    }

    pub(super) fn paste(&mut self, text: &str, now: Instant) {
        self.typed = Some(now);
        match &mut self.focus {
            Focus::Dispatch => self.dispatch.paste(text),
            Focus::Peek(peek) => peek.reply.paste(text),
            Focus::Filter => self.filter.push_str(text.lines().next().unwrap_or_default()),
            Focus::Page(ScrolledText { lands: Some(landing), .. }) if landing.is_edited => {
                landing.message.paste(text);
            }
            // A paste is never a command, and answers nothing.
            Focus::List | Focus::Confirm(..) | Focus::Asking(_) | Focus::Page(_) => {}
        }
    }

    fn list_key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        if key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) {
            return match key.code {
                KeyCode::Char('c' | 'd') if key.modifiers == KeyModifiers::CONTROL => vec![FleetEffect::Quit],
                _ => Vec::new(),
            };
        }
        let page = isize::try_from(view::areas(self).list.height).unwrap_or(10).max(2) - 1;
        match key.code {
            KeyCode::Char('q') => return vec![FleetEffect::Quit],
            KeyCode::Esc => return self.escape(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(page),
            KeyCode::PageUp => self.step(-page),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('/') => self.focus = Focus::Filter,
            KeyCode::Tab => {
                self.focus = Focus::Dispatch;
                self.typed = Some(now);
            }
            KeyCode::Char('?') => self.focus = Focus::Page(ScrolledText::help()),
            KeyCode::Char('n') => self.next_in_need(now),
            KeyCode::Char(' ') => self.mark(),
            KeyCode::Char('a') => return self.show_others(),
            _ => return self.order(key.code, now),
        }
        Vec::new()
    }

    /// Keys that are about agents.
    fn order(&mut self, code: KeyCode, now: Instant) -> Vec<FleetEffect> {
        let Some(row) = self.chosen_row() else { return Vec::new() };
        let (key, group) = (row.key.clone(), row.group());
        match code {
            // Of one that has ended, or has not begun, there is no conversation to open: the peek shows what there is.
            KeyCode::Enter if matches!(group, StatusGroup::NeedsYou | StatusGroup::Working) => {
                return vec![FleetEffect::Attach(key)];
            }
            KeyCode::Enter | KeyCode::Char('p') => return self.peek(),
            KeyCode::Char('y') => return self.ask(now),
            KeyCode::Char('d') => return vec![FleetEffect::Diff(key)],
            KeyCode::Char('m') => return vec![FleetEffect::Foretell(key)],
            KeyCode::Char('x') => {
                let ends = self.only(self.targets(), false);
                if ends.is_empty() {
                    self.say("it has ended already", now);
                } else {
                    let question = view::confirmation("end", &ends, "with everything started by it");
                    self.focus = Focus::Confirm(FleetEffect::Stop(ends), question);
                }
            }
            KeyCode::Char('r') => {
                let ended = self.only(self.targets(), true);
                if ended.is_empty() {
                    self.say("it has not ended: Enter opens it", now);
                } else {
                    self.marked.clear();
                    return vec![FleetEffect::Resume(ended)];
                }
            }
            KeyCode::Char('R') => {
                let targets = self.targets();
                let question =
                    view::confirmation("start anew", &targets, "(the old one goes; its work is kept)");
                self.focus = Focus::Confirm(FleetEffect::Respawn(targets), question);
            }
            _ => {}
        }
        Vec::new()
    }

    /// Esc: what narrows the list goes first.
    fn escape(&mut self) -> Vec<FleetEffect> {
        if !self.marked.is_empty() {
            self.marked.clear();
        } else if !self.filter.is_empty() {
            self.filter.clear();
        } else {
            return vec![FleetEffect::Quit];
        }
        Vec::new()
    }

    fn mark(&mut self) {
        let Some(key) = self.chosen_row().map(|row| row.key.clone()) else { return };
        if !self.marked.remove(&key) {
            self.marked.insert(key);
        }
        self.step(1);
    }

    fn show_others(&mut self) -> Vec<FleetEffect> {
        self.scope = match self.scope {
            FleetScope::Repo => FleetScope::All,
            FleetScope::All => FleetScope::Repo,
        };
        vec![FleetEffect::Show(self.scope)]
    }

    fn filter_key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        self.typed = Some(now);
        match key.code {
            KeyCode::Enter => self.focus = Focus::List,
            KeyCode::Esc => {
                self.focus = Focus::List;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Down => self.step(1),
            KeyCode::Up => self.step(-1),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.focus = Focus::List,
            KeyCode::Char(c) if is_text(key) => self.filter.push(c),
            _ => {}
        }
        Vec::new()
    }

    fn confirm_key(&mut self, key: KeyEvent) -> Vec<FleetEffect> {
        let Focus::Confirm(order, _) = std::mem::replace(&mut self.focus, Focus::List) else {
            return Vec::new();
        };
        // Anything but a yes is a no.
        if key.code != KeyCode::Char('y') || !is_plain(key) {
            return Vec::new();
        }
        self.marked.clear();
        vec![order]
    }

    fn dispatch_key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        self.typed = Some(now);
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            // What was written stays there.
            KeyCode::Esc | KeyCode::Tab => self.focus = Focus::List,
            KeyCode::Char('c') if control => self.focus = Focus::List,
            KeyCode::Enter if is_newline(key) => self.dispatch.insert("\n"),
            KeyCode::Enter if self.dispatch.is_blank() => self.focus = Focus::List,
            KeyCode::Enter if self.dispatched.is_some() => {
                self.say("the last one is still being started", now);
            }
            KeyCode::Enter => {
                let draft = self.dispatch.take();
                let line = draft.whole();
                self.dispatched = Some(draft);
                return vec![FleetEffect::Dispatch(line)];
            }
            _ => drop(self.dispatch.key(key)),
        }
        Vec::new()
    }

    /// Opens the peek of the chosen agent, with what was written to it before.
    fn peek(&mut self) -> Vec<FleetEffect> {
        let Some(row) = self.chosen_row() else { return Vec::new() };
        let (key, revision) = (row.key.clone(), row.revision);
        let mut reply = Composer::default();
        if let Some(draft) = self.drafts.remove(&key) {
            reply.set(draft);
        }
        self.focus = Focus::Peek(Peek { lines: Vec::new(), scroll: 0, reply, revision });
        vec![FleetEffect::Peek(key)]
    }

    /// Closes the peek; what was written and not sent waits for the next one.
    pub(super) fn leave_peek(&mut self) {
        let Focus::Peek(mut peek) = std::mem::replace(&mut self.focus, Focus::List) else { return };
        let draft: Draft = peek.reply.take();
        if let (false, Some(key)) = (draft.is_blank(), self.chosen.clone()) {
            self.drafts.insert(key, draft);
        }
    }

    fn peek_key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        self.typed = Some(now);
        let page = usize::from(view::areas(self).panel.height).saturating_sub(3).max(1);
        let chosen = self.chosen.clone();
        let Focus::Peek(peek) = &mut self.focus else { return Vec::new() };
        match key.code {
            KeyCode::Esc => self.leave_peek(),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.leave_peek(),
            KeyCode::PageUp => peek.scroll = (peek.scroll + page).min(peek.lines.len().saturating_sub(page)),
            KeyCode::PageDown => peek.scroll = peek.scroll.saturating_sub(page),
            KeyCode::Up | KeyCode::Down => {
                self.leave_peek();
                self.step(if key.code == KeyCode::Up { -1 } else { 1 });
                return self.peek();
            }
            KeyCode::Enter if is_newline(key) => peek.reply.insert("\n"),
            KeyCode::Enter if peek.reply.is_blank() => {
                self.say("write a reply, then Enter; Esc goes back", now)
            }
            KeyCode::Enter => {
                let text = peek.reply.take().whole();
                return chosen.map(|key| FleetEffect::Reply(key, text)).into_iter().collect();
            }
            _ => drop(peek.reply.key(key)),
        }
        Vec::new()
    }

    fn page_key(&mut self, key: KeyEvent, now: Instant) -> Vec<FleetEffect> {
        let area = view::areas(self).panel;
        let (height, width) = (usize::from(area.height).saturating_sub(2).max(1), usize::from(area.width));
        let Focus::Page(page) = &mut self.focus else { return Vec::new() };
        if let Some(landing) = page.lands.as_mut().filter(|landing| landing.is_edited) {
            match key.code {
                KeyCode::Enter if is_newline(key) => landing.message.insert("\n"),
                KeyCode::Enter | KeyCode::Esc => landing.is_edited = false,
                _ => drop(landing.message.key(key)),
            }
            // A `y` that is still typed for the message lands nothing.
            landing.from = now + crate::asks::QUIET;
            return Vec::new();
        }
        let fits = view::fitting_lines(page, width, height);
        let by = isize::try_from(height).unwrap_or(10);
        match key.code {
            KeyCode::Down | KeyCode::Char('j') => page.scroll(1, fits),
            KeyCode::Up | KeyCode::Char('k') => page.scroll(-1, fits),
            KeyCode::PageDown | KeyCode::Char(' ') => page.scroll(by, fits),
            KeyCode::PageUp => page.scroll(-by, fits),
            KeyCode::Home => page.scroll(isize::MIN, fits),
            KeyCode::End => page.scroll(isize::MAX, fits),
            KeyCode::Char('y') if is_plain(key) => match page.lands.take() {
                Some(landing) if now >= landing.from => {
                    let message = landing.own_message();
                    self.focus = Focus::List;
                    return vec![FleetEffect::Merge(landing.key, message)];
                }
                Some(early) => {
                    page.lands = Some(early);
                    self.say("read it first, then y", now);
                }
                None => {}
            },
            KeyCode::Char('e') if is_plain(key) => {
                if let Some(landing) = &mut page.lands {
                    landing.is_edited = true;
                }
            }
            KeyCode::Esc | KeyCode::Char('q' | '?' | 'd' | 'm') | KeyCode::Enter => self.focus = Focus::List,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.focus = Focus::List,
            _ => {}
        }
        Vec::new()
    }
}

fn is_plain(key: KeyEvent) -> bool {
    !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT)
}

fn is_newline(key: KeyEvent) -> bool {
    key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT | KeyModifiers::SHIFT)
}
