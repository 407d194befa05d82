//! The agent view as a screen: the list, below it what is open, then the dispatch line and the keys.

use std::time::Instant;

use caliban_core::status_word::StatusGroup;
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    AgentKey, FleetRow, FleetScope, FleetState, Focus, Peek,
    list::{ListLine, lines},
    pages::ScrolledText,
};
use crate::{
    composer::Composer,
    sanitise,
    text::{Gutter, Row, Wrap, cut, wrap},
    theme::{Depth, Ground, TextRole, Theme},
    view::{composer, dialog, put, rule},
};

/// Looks that do not matter: only rows are counted.
const PLAIN: Theme = Theme { depth: Depth::None, ground: Ground::Dark };
/// The most rows of the dispatch line and of a reply.
const TYPED_ROWS: usize = 3;
/// The most rows of a message.
const FOOT_ROWS: u16 = 4;
/// Rows of the list that stay beside an open panel.
const LIST_ROWS: u16 = 4;

/// Where everything is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Areas {
    head: Rect,
    pub(super) list: Rect,
    /// A peek, a question or a page.
    pub(super) panel: Rect,
    dispatch: Rect,
    foot: Rect,
}

/// Divides the screen.
pub(super) fn areas(state: &FleetState) -> Areas {
    let (width, height) = state.size;
    let mut bottom = height;
    let mut take = |rows: u16| {
        let rows = rows.min(bottom);
        bottom -= rows;
        Rect::new(0, bottom, width, rows)
    };
    let foot = take(foot_rows(state));
    let dispatch = take(match state.focus {
        Focus::Dispatch => typed_rows(&state.dispatch, width),
        _ => 1,
    });
    let most = height.saturating_sub(1 + foot.height + dispatch.height);
    let panel = take(match &state.focus {
        Focus::List | Focus::Filter | Focus::Dispatch | Focus::Confirm(..) => 0,
        Focus::Page(_) => most,
        Focus::Peek(_) => (most * 2 / 3).max(most.saturating_sub(LIST_ROWS * 3)),
        Focus::Asking(asking) => {
            dialog::height(&asking.asks, state.theme, width, most.saturating_sub(LIST_ROWS))
        }
    });
    let head = Rect::new(0, 0, width, bottom.min(1));
    Areas { head, list: Rect::new(0, 1, width, bottom.saturating_sub(1)), panel, dispatch, foot }
}

/// A message takes as many rows as it needs, within bounds: a refusal is read whole.
fn foot_rows(state: &FleetState) -> u16 {
    match (&state.focus, &state.toast) {
        (Focus::Filter | Focus::Confirm(..), _) | (_, None) => 1,
        (_, Some((text, _))) => {
            let rows = page_rows(&(TextRole::Warn, sanitise::line(text)), state.size.0.into(), PLAIN).len();
            u16::try_from(rows).unwrap_or(u16::MAX).clamp(1, FOOT_ROWS)
        }
    }
}

fn typed_rows(text: &Composer, width: u16) -> u16 {
    let rows = text.lay(composer::columns(width)).rows.len().min(TYPED_ROWS);
    u16::try_from(rows).unwrap_or(1)
}

/// How many of a page's last lines fit on a screen of this size.
pub(super) fn fitting_lines(page: &ScrolledText, width: usize, height: usize) -> usize {
    let mut room = height;
    let mut fitting = 0;
    for line in page.lines.iter().rev() {
        let rows = page_rows(line, width, PLAIN).len();
        if rows > room {
            break;
        }
        room -= rows;
        fitting += 1;
    }
    fitting.max(1)
}

fn page_rows((role, line): &(TextRole, String), width: usize, theme: Theme) -> Vec<Row> {
    let span = Span::styled(line.clone(), theme.style(*role));
    wrap(&[span], width, &Gutter::blank(0), Wrap::Anywhere, 0)
}

impl FleetState {
    /// Draws it; where the cursor is.
    pub fn draw(&self, now: Instant, buffer: &mut Buffer) -> Position {
        let areas = areas(self);
        if areas.foot.height == 0 {
            return Position::ORIGIN;
        }
        self.draw_head(areas.head, buffer);
        self.draw_list(areas.list, buffer);
        let in_panel = match &self.focus {
            Focus::Peek(peek) => self.draw_peek(peek, areas.panel, buffer),
            Focus::Asking(asking) if asking.is_loading() => None,
            Focus::Asking(asking) => {
                dialog::draw(&asking.asks, (self.typed, now), self.theme, areas.panel, buffer)
            }
            Focus::Page(page) => self.draw_page(page, areas.panel, buffer),
            Focus::List | Focus::Filter | Focus::Dispatch | Focus::Confirm(..) => None,
        };
        let in_dispatch = self.draw_dispatch(areas.dispatch, buffer);
        let in_foot = self.draw_foot(areas.foot, buffer);
        in_panel.or(in_dispatch).unwrap_or(in_foot)
    }

    fn draw_head(&self, area: Rect, buffer: &mut Buffer) {
        if area.height == 0 {
            return;
        }
        let theme = self.theme;
        let in_need = self.rows.iter().filter(|row| row.needs_you()).count();
        let head = match self.scope {
            FleetScope::Repo => format!("agents of {}", self.place),
            FleetScope::All => "agents of all repos".to_owned(),
        };
        let need = match in_need {
            0 => String::new(),
            1 => "  1 needs you".to_owned(),
            more => format!("  {more} need you"),
        };
        let marked = match self.marked.len() {
            0 => String::new(),
            count => format!("  {count} marked"),
        };
        let filter = match self.filter.as_str() {
            "" => String::new(),
            filter => format!("  filter: {filter}"),
        };
        let room = usize::from(area.width).saturating_sub(need.width() + marked.width() + filter.width());
        let line = Line::from(vec![
            Span::styled(cut(&head, room), theme.style(TextRole::Heading)),
            Span::styled(need, theme.style(TextRole::Warn)),
            Span::styled(marked, theme.style(TextRole::Accent)),
            Span::styled(sanitise::line(&filter), theme.style(TextRole::Dim)),
        ]);
        put(buffer, area, area.y, &line);
    }

    fn draw_list(&self, area: Rect, buffer: &mut Buffer) {
        let rows = self.shown();
        if rows.is_empty() && area.height > 1 {
            let text = match (self.is_ready, self.filter.is_empty()) {
                (false, _) => "asking the daemon …",
                (true, true) => "there are no agents: Tab, a task and Enter start one",
                (true, false) => "no agent matches the filter",
            };
            put(buffer, area, area.y + 1, &Line::styled(text, self.theme.style(TextRole::Dim)));
        }
        let columns = usize::from(area.width);
        // Names of one width, so that what agents do stands in one column.
        let names = rows.iter().map(|row| self.name(row).width()).max().unwrap_or_default().min(columns / 3);
        for (line, y) in lines(&rows).into_iter().skip(self.top).zip(area.y..area.bottom()) {
            let line = match line {
                ListLine::Blank => Line::default(),
                ListLine::Head(group, count) => {
                    let (name, role) = match group {
                        StatusGroup::NeedsYou => ("needs you", TextRole::Warn),
                        StatusGroup::Working => ("working", TextRole::Accent),
                        StatusGroup::Queued => ("queued", TextRole::Dim),
                        StatusGroup::Finished => ("finished", TextRole::Dim),
                    };
                    Line::styled(format!("{name} ({count})"), self.theme.style(role))
                }
                ListLine::Row(number) => match rows.get(number) {
                    Some(row) => self.row_line(row, names, columns),
                    None => Line::default(),
                },
            };
            put(buffer, area, y, &line);
        }
    }

    /// Its repo, when there are several, its id, its label, and whether there is a draft for it.
    fn name(&self, row: &FleetRow) -> String {
        let label = row.label.as_ref().map(|label| format!(" {}", sanitise::line(label))).unwrap_or_default();
        let repo = match self.scope {
            FleetScope::Repo => String::new(),
            FleetScope::All => {
                let name = row.key.repo.file_name().unwrap_or_default().to_string_lossy();
                format!(" {}:", sanitise::line(&name))
            }
        };
        let draft = if self.drafts.contains_key(&row.key) { " ✎" } else { "" };
        format!("{repo}{}{label}{draft}", spaced(&repo, &row.key.id))
    }

    fn row_line(&self, row: &FleetRow, names: usize, columns: usize) -> Line<'static> {
        let is_chosen = self.chosen.as_ref() == Some(&row.key);
        let choice = if is_chosen { "›" } else { " " };
        let mark = if self.marked.contains(&row.key) { "*" } else { " " };
        let name = cut(&self.name(row), names.max((columns / 2).saturating_sub(2)));
        let fill = " ".repeat(names.saturating_sub(name.width()));
        let head = format!("{choice}{mark}{name}{fill}");
        let state = format!("  {:<8} ", sanitise::line(&row.state));
        let waiting = row.waiting.as_ref().map(|time| format!("waiting {time}  ")).unwrap_or_default();
        let spent = format!("  {}", sanitise::line(&row.spent));
        let used = head.width() + state.width() + waiting.width() + spent.width();
        let room = columns.saturating_sub(used);
        let doing = cut(&sanitise::line(&row.doing), room);
        let fill = " ".repeat(room.saturating_sub(doing.width()));
        let style = self.theme.style(if is_chosen { TextRole::Chosen } else { TextRole::Text });
        let text = format!("{head}{state}{waiting}{doing}{fill}{spent}");
        Line::styled(cut(&text, columns), style)
    }

    fn draw_peek(&self, peek: &Peek, area: Rect, buffer: &mut Buffer) -> Option<Position> {
        let row = self.chosen_row()?;
        let theme = self.theme;
        let label = row.label.as_ref().map(|label| format!(" {}", sanitise::line(label))).unwrap_or_default();
        let title = format!("{}{label}: {}", row.key.id, sanitise::line(&row.doing));
        rule(buffer, area, area.y, &title, theme.style(TextRole::Accent));
        let typed = typed_rows(&peek.reply, area.width).min(area.height.saturating_sub(2));
        let reply = Rect::new(area.x, area.bottom() - typed, area.width, typed);
        let room = Rect::new(area.x, area.y + 1, area.width, area.height.saturating_sub(1 + typed));
        let width = usize::from(area.width);
        let rows: Vec<Row> = peek
            .lines
            .iter()
            .rev()
            .skip(peek.scroll)
            .take(room.height.into())
            .flat_map(|line| {
                let line = (TextRole::Text, sanitise::block(line));
                page_rows(&line, width, theme).into_iter().rev().collect::<Vec<_>>()
            })
            .take(room.height.into())
            .collect();
        for (row, y) in rows.iter().rev().zip(room.y..room.bottom()) {
            put(buffer, room, y, &row.line);
        }
        let hint = match row.group() {
            StatusGroup::Finished => "a reply lets it go on",
            StatusGroup::NeedsYou if !row.asks.is_empty() => "a reply; Esc, then y shows what it asks",
            StatusGroup::NeedsYou | StatusGroup::Working | StatusGroup::Queued => "a reply",
        };
        Some(self.draw_typed(&peek.reply, "> ", hint, reply, buffer))
    }

    /// Where the cursor is when the message of a merge has the keys.
    fn draw_page(&self, page: &ScrolledText, area: Rect, buffer: &mut Buffer) -> Option<Position> {
        rule(buffer, area, area.y, &page.title, self.theme.style(TextRole::Accent));
        let text = Rect::new(area.x, area.y + 1, area.width, area.height.saturating_sub(2));
        let rows = page
            .lines
            .iter()
            .skip(page.scroll)
            .flat_map(|line| page_rows(line, area.width.into(), self.theme));
        for (row, y) in rows.zip(text.y..text.bottom()) {
            put(buffer, text, y, &row.line);
        }
        let bottom = area.bottom().saturating_sub(1);
        let keys = match &page.lands {
            Some(landing) if landing.is_edited => {
                let line = Rect { y: bottom, height: 1, ..area };
                return Some(self.draw_typed(&landing.message, "message: ", "Enter keeps it", line, buffer));
            }
            Some(landing) => match landing.own_message() {
                Some(message) => {
                    format!("y lands it with: {}   e edits that   Esc back", sanitise::line(&message))
                }
                None => "y lands it   e edits the message   Esc back".to_owned(),
            },
            None => "↑ ↓ PgUp PgDn   Esc back".to_owned(),
        };
        let keys = cut(&keys, area.width.into());
        put(buffer, area, bottom, &Line::styled(keys, self.theme.style(TextRole::Dim)));
        None
    }

    /// The line that starts a new agent; where the cursor is when it has the keys.
    fn draw_dispatch(&self, area: Rect, buffer: &mut Buffer) -> Option<Position> {
        let hint = match self.dispatched {
            Some(_) => "starting it …",
            None => "Tab: a task for a new agent, with @type --model M --after ID --budget-tokens N",
        };
        let caret = self.draw_typed(&self.dispatch, "+ ", hint, area, buffer);
        matches!(self.focus, Focus::Dispatch).then_some(caret)
    }

    fn draw_typed(
        &self,
        text: &Composer,
        mark: &'static str,
        hint: &str,
        area: Rect,
        buffer: &mut Buffer,
    ) -> Position {
        let hint = cut(hint, usize::from(area.width).saturating_sub(mark.len()));
        composer::draw_text(text, (mark, TextRole::Accent), &hint, self.theme, area, buffer)
    }

    fn draw_foot(&self, area: Rect, buffer: &mut Buffer) -> Position {
        let columns = usize::from(area.width);
        let mut cursor = Position::new(0, area.y);
        let (text, role) = match (&self.focus, &self.toast) {
            (Focus::Filter, _) => {
                let text = format!("/{}", sanitise::line(&self.filter));
                cursor.x = u16::try_from(text.width()).unwrap_or(u16::MAX).min(area.width.saturating_sub(1));
                (text, TextRole::Text)
            }
            (Focus::Confirm(_, question), _) => (question.clone(), TextRole::Warn),
            (_, Some((text, _))) => (sanitise::line(text), TextRole::Warn),
            (Focus::List, None) => {
                let keys = "? keys  Enter open  p peek  n next who needs you  y its question  x stop";
                (keys.to_owned(), TextRole::Dim)
            }
            (Focus::Dispatch, None) => ("Enter starts it, Esc back to the list".to_owned(), TextRole::Dim),
            (Focus::Peek(_), None) => {
                ("Enter sends, ↑ ↓ another agent, PgUp PgDn scroll, Esc back".to_owned(), TextRole::Dim)
            }
            (Focus::Asking(asking), None) if asking.is_loading() => {
                ("reading what it asks …".to_owned(), TextRole::Dim)
            }
            (Focus::Asking(_) | Focus::Page(_), None) => (String::new(), TextRole::Dim),
        };
        let is_message = role == TextRole::Warn;
        let text = if is_message { text } else { cut(&text, columns) };
        let rows = page_rows(&(role, text), columns, self.theme);
        for (row, y) in rows.iter().zip(area.y..area.bottom()) {
            put(buffer, area, y, &row.line);
        }
        cursor
    }
}

/// The id, apart from the repo before it.
fn spaced(repo: &str, id: &str) -> String {
    if repo.is_empty() { format!(" {id}") } else { id.to_owned() }
}

pub(super) fn confirmation(verb: &str, keys: &[AgentKey], what: &str) -> String {
    let who = match keys {
        [one] => format!("agent {}", one.id),
        several => {
            let ids: Vec<&str> = several.iter().take(4).map(|key| key.id.as_str()).collect();
            let more = if several.len() > 4 { ", …" } else { "" };
            format!("{} agents ({}{more})", several.len(), ids.join(", "))
        }
    };
    format!("{verb} {who} {what}? y does it, any other key does not")
}
