//! The agent view: all agents of a repo on one screen, those who need a person first. Pure, like the rest of the state.
//!
//! The caller says what the rows are and carries out the effects; where a row stands follows from its group and from when
//! its agent was spawned, so rows never jump while one looks at them.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    foreign,
    text::cut,
    theme::{Role, Theme},
};

/// How long a message is shown.
const TOAST: Duration = Duration::from_secs(5);

/// Where a row stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// It waits for a person.
    NeedsYou,
    /// It works.
    Working,
    /// It waits for its start.
    Queued,
    /// It has ended.
    Finished,
}

/// One agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetRow {
    /// Its id.
    pub id: String,
    /// Its label.
    pub label: Option<String>,
    /// Where it stands.
    pub group: Group,
    /// Its state in a word.
    pub state: String,
    /// What it asks, does, or has said.
    pub doing: String,
    /// What it has spent, in a few words.
    pub spent: String,
}

/// Something happened.
#[derive(Debug)]
pub enum FleetEvent {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size.
    Resize(u16, u16),
    /// All agents, in the order in which they were spawned.
    Rows(Vec<FleetRow>),
    /// Something to say.
    Told(String),
    /// Time has passed.
    Tick,
}

/// Something that is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FleetEffect {
    /// Open the conversation of this agent.
    Attach(String),
    /// End this agent.
    Stop(String),
    /// Let this agent go on.
    Resume(String),
    /// Draw everything anew.
    Repaint,
    /// Leave.
    Quit,
}

/// Everything that the screen shows.
#[derive(Debug)]
pub struct FleetState {
    pub(crate) size: (u16, u16),
    theme: Theme,
    place: String,
    rows: Vec<FleetRow>,
    /// The row that keys are about, by its id.
    chosen: Option<String>,
    filter: String,
    is_filtering: bool,
    /// The agent that is ended when this is confirmed.
    ending: Option<String>,
    toast: Option<(String, Instant)>,
    is_ready: bool,
}

impl FleetState {
    /// A screen of this size, before the agents are known.
    pub fn new(size: (u16, u16), theme: Theme, place: String) -> Self {
        Self {
            size,
            theme,
            place,
            rows: Vec::new(),
            chosen: None,
            filter: String::new(),
            is_filtering: false,
            ending: None,
            toast: None,
            is_ready: false,
        }
    }

    /// Says something when the screen is shown next.
    pub fn tell(&mut self, text: &str) {
        self.toast = Some((text.to_owned(), Instant::now() + TOAST));
    }

    /// When something changes on the screen by itself.
    pub fn deadline(&self) -> Option<Instant> {
        self.toast.as_ref().map(|(_, until)| *until)
    }

    /// Takes what happened; what is to be done.
    pub fn update(&mut self, event: FleetEvent, now: Instant) -> Option<FleetEffect> {
        match event {
            FleetEvent::Key(key) if key.kind == KeyEventKind::Release => None,
            FleetEvent::Key(key) => self.key(key, now),
            FleetEvent::Resize(columns, rows) => {
                self.size = (columns, rows);
                None
            }
            FleetEvent::Rows(rows) => {
                self.is_ready = true;
                self.rows = rows;
                if self.ending.as_ref().is_some_and(|id| self.rows.iter().all(|row| row.id != *id)) {
                    self.ending = None;
                }
                None
            }
            FleetEvent::Told(text) => {
                self.toast = Some((text, now + TOAST));
                None
            }
            FleetEvent::Tick => {
                if self.toast.as_ref().is_some_and(|(_, until)| now >= *until) {
                    self.toast = None;
                }
                None
            }
        }
    }

    fn key(&mut self, key: KeyEvent, now: Instant) -> Option<FleetEffect> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if self.is_filtering {
            match key.code {
                KeyCode::Enter => self.is_filtering = false,
                KeyCode::Esc => {
                    self.is_filtering = false;
                    self.filter.clear();
                }
                KeyCode::Backspace => {
                    self.filter.pop();
                }
                KeyCode::Char('c') if control => self.is_filtering = false,
                KeyCode::Char(c) if !control => self.filter.push(c),
                _ => {}
            }
            return None;
        }
        if let Some(id) = self.ending.take() {
            // Anything but a yes is a no.
            let is_yes = key.code == KeyCode::Char('y')
                && !key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
            return is_yes.then_some(FleetEffect::Stop(id));
        }
        if matches!(key.code, KeyCode::Char(c) if !"cdl".contains(c)) && control {
            return None;
        }
        match key.code {
            KeyCode::Char('c' | 'd') if control => return Some(FleetEffect::Quit),
            KeyCode::Char('l') if control => return Some(FleetEffect::Repaint),
            KeyCode::Char('q') => return Some(FleetEffect::Quit),
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return Some(FleetEffect::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(10),
            KeyCode::PageUp => self.step(-10),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('n') => self.next_in_need(now),
            KeyCode::Enter => {
                let row = self.chosen_row()?;
                if row.group != Group::Finished {
                    return Some(FleetEffect::Attach(row.id.clone()));
                }
                let text =
                    format!("it has ended: r lets it go on, `caliban logs {}` shows what it did", row.id);
                self.toast = Some((text, now + TOAST));
            }
            KeyCode::Char('r') => {
                let row = self.chosen_row()?;
                if row.group == Group::Finished {
                    return Some(FleetEffect::Resume(row.id.clone()));
                }
                self.toast = Some(("it has not ended".to_owned(), now + TOAST));
            }
            KeyCode::Char('x') => {
                let row = self.chosen_row()?;
                if row.group == Group::Finished {
                    self.toast = Some(("it has ended already".to_owned(), now + TOAST));
                } else {
                    self.ending = Some(row.id.clone());
                }
            }
            _ => {}
        }
        None
    }

    /// The rows that are shown, in their order.
    fn shown(&self) -> Vec<&FleetRow> {
        let filter = self.filter.to_lowercase();
        let matches = |row: &&FleetRow| {
            let label = row.label.as_deref().unwrap_or_default();
            filter.is_empty()
                || [row.id.as_str(), label, &row.state, &row.doing]
                    .iter()
                    .any(|text| text.to_lowercase().contains(&filter))
        };
        let mut rows: Vec<&FleetRow> = self.rows.iter().filter(matches).collect();
        // Stable: within a group the order of spawning stays.
        rows.sort_by_key(|row| row.group);
        rows
    }

    fn place_of_chosen(&self, rows: &[&FleetRow]) -> usize {
        rows.iter().position(|row| Some(&row.id) == self.chosen.as_ref()).unwrap_or(0)
    }

    fn chosen_row(&self) -> Option<&FleetRow> {
        let rows = self.shown();
        let at = self.place_of_chosen(&rows);
        rows.get(at).copied()
    }

    fn step(&mut self, by: isize) {
        let rows = self.shown();
        let at = self.place_of_chosen(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        let chosen = rows.get(at).map(|row| row.id.clone());
        self.chosen = chosen;
    }

    fn next_in_need(&mut self, now: Instant) {
        let rows = self.shown();
        let at = self.place_of_chosen(&rows);
        let after = rows.iter().skip(at + 1).chain(rows.iter().take(at + 1));
        let next = after.filter(|row| row.group == Group::NeedsYou).map(|row| row.id.clone()).next();
        match next {
            Some(id) => self.chosen = Some(id),
            None => self.toast = Some(("nobody needs you".to_owned(), now + TOAST)),
        }
    }

    /// Draws it; where the cursor is.
    pub fn draw(&self, buffer: &mut Buffer) -> Position {
        let (width, height) = self.size;
        let area = Rect::new(0, 0, width, height);
        if height < 3 {
            return Position::ORIGIN;
        }
        let theme = self.theme;
        let columns = usize::from(width);
        let put = |buffer: &mut Buffer, y: u16, line: &Line<'_>| {
            buffer.set_line(area.x, y, line, width);
        };
        let rows = self.shown();
        let in_need = self.rows.iter().filter(|row| row.group == Group::NeedsYou).count();
        let head = format!("agents of {}", self.place);
        let need = if in_need > 0 { format!("  {in_need} need you") } else { String::new() };
        let line = Line::from(vec![
            Span::styled(cut(&head, columns), theme.style(Role::Heading)),
            Span::styled(need, theme.style(Role::Warn)),
        ]);
        put(buffer, 0, &line);
        let chosen = self.place_of_chosen(&rows);
        let (lines, at) = self.lines(&rows, chosen);
        let room = usize::from(height - 2);
        let first = (at + 2).saturating_sub(room).min(lines.len().saturating_sub(room));
        for (line, y) in lines.iter().skip(first).take(room).zip(1_u16..) {
            put(buffer, y, line);
        }
        if rows.is_empty() {
            let text = match (self.is_ready, self.filter.is_empty()) {
                (false, _) => "asking the daemon …",
                (true, true) => "there are no agents: caliban --bg \"…\" starts one",
                (true, false) => "no agent matches the filter",
            };
            put(buffer, 2.min(height - 2), &Line::styled(text, theme.style(Role::Dim)));
        }
        let bottom = height - 1;
        let mut cursor = Position::new(0, bottom);
        if self.is_filtering {
            let text = format!("/{}", self.filter);
            cursor.x = u16::try_from(text.width()).unwrap_or(u16::MAX).min(width.saturating_sub(1));
            put(buffer, bottom, &Line::raw(cut(&text, columns)));
        } else if let Some(id) = &self.ending {
            let text =
                format!("end agent {id} with everything that it started? y ends it, any other key does not");
            put(buffer, bottom, &Line::styled(cut(&text, columns), theme.style(Role::Warn)));
        } else if let Some((text, _)) = &self.toast {
            put(buffer, bottom, &Line::styled(cut(&foreign::line(text), columns), theme.style(Role::Warn)));
        } else {
            let filter =
                if self.filter.is_empty() { String::new() } else { format!("filter: {}   ", self.filter) };
            let keys = format!(
                "{filter}Enter attach   n next who needs you   x stop   r resume   / filter   q leave"
            );
            put(buffer, bottom, &Line::styled(cut(&keys, columns), theme.style(Role::Dim)));
        }
        cursor
    }

    /// All lines of the list, and at which of them the chosen row stands.
    fn lines(&self, rows: &[&FleetRow], chosen: usize) -> (Vec<Line<'static>>, usize) {
        let theme = self.theme;
        let columns = usize::from(self.size.0);
        let mut lines = Vec::new();
        let mut at = 0;
        let mut group = None;
        for (number, row) in rows.iter().enumerate() {
            if group.replace(row.group) != Some(row.group) {
                lines.push(Line::default());
                let count = rows.iter().filter(|other| other.group == row.group).count();
                let (name, role) = match row.group {
                    Group::NeedsYou => ("needs you", Role::Warn),
                    Group::Working => ("working", Role::Accent),
                    Group::Queued => ("queued", Role::Dim),
                    Group::Finished => ("finished", Role::Dim),
                };
                lines.push(Line::styled(format!("{name} ({count})"), theme.style(role)));
            }
            let is_chosen = number == chosen;
            if is_chosen {
                at = lines.len();
            }
            let mark = if is_chosen { "› " } else { "  " };
            let label =
                row.label.as_ref().map(|label| format!(" {}", foreign::line(label))).unwrap_or_default();
            let head = cut(&format!("{mark}{}{label}", row.id), columns / 2);
            let state = format!("  {:<8}", foreign::line(&row.state));
            let spent = format!("  {}", foreign::line(&row.spent));
            let room = columns.saturating_sub(head.width() + state.width() + spent.width() + 1);
            let doing = cut(&foreign::line(&row.doing), room);
            let fill = " ".repeat(room.saturating_sub(doing.width()) + 1);
            let style = theme.style(if is_chosen { Role::Chosen } else { Role::Text });
            let text = format!("{head}{state}{doing}{fill}{spent}");
            lines.push(Line::styled(cut(&text, columns), style));
        }
        (lines, at)
    }
}
