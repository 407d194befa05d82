//! Everything that the screen shows, and how it changes: [`ScreenState::update`] takes what happened and returns what is to be
//! done. Pure: the time is an argument, and nothing is read or written.

mod agent;
mod commands;
mod keys;
mod leave;
mod popup;
mod selection;
mod shell;
mod submit;
mod turn;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use caliban_core::defaults;

pub use self::leave::OnLeave;
pub(crate) use self::{
    leave::Destination,
    popup::{Popup, PopupKind},
    selection::Selection,
    turn::{Turn, TurnPhase},
};
use crate::{
    asks::{Asks, PendingAsk},
    cells::Todo,
    composer::{Composer, Draft},
    conversation::{Conversation, Size},
    events::{BackgroundRow, ScreenEffect, ScreenEvent},
    theme::{Depth, Theme},
    view::areas,
};

/// A question opens by itself when no key came for this long.
const OPENS_AFTER: Duration = Duration::from_millis(800);
/// How long a message at the bottom is shown.
const TOAST: Duration = Duration::from_secs(4);
/// The longest title of a window.
const TITLE_COLUMNS: usize = 80;

/// The mode without questions and without a fence.
pub(crate) const UNATTENDED: &str = "unattended";

/// What does not change while the screen is open.
#[derive(Debug, Clone, Default)]
pub struct ScreenFacts {
    /// The version of the program.
    pub version: String,
    /// The model, as far as it is known before the session is open.
    pub model: Option<String>,
    /// The branch of the working directory.
    pub branch: Option<String>,
    /// The working directory, for people.
    pub place: String,
    /// The agent of the fleet that this is attached to. Without one the session is ours and ends with us.
    pub attached: Option<String>,
    /// Why this client is not asked anything and cannot decide; none when it can.
    pub no_say: Option<String>,
}

/// How the screen is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// Whether it is the terminal's alternate screen; else what is finished goes into the terminal's own scrollback.
    pub is_alternate: bool,
    /// Whether the mouse is ours: the wheel scrolls, and dragging selects.
    pub has_mouse: bool,
    /// Rows that one notch of the wheel moves.
    pub wheel_rows: u16,
    /// Whether what is selected is copied at once.
    pub copy_on_select: bool,
    /// What becomes of background agents at work when their session is left.
    pub on_leave: OnLeave,
}

impl Default for Look {
    fn default() -> Self {
        Self {
            is_alternate: defaults::ALT_SCREEN,
            has_mouse: defaults::MOUSE,
            wheel_rows: defaults::WHEEL_ROWS,
            copy_on_select: defaults::COPY_ON_SELECT,
            on_leave: OnLeave::Ask,
        }
    }
}

/// Who gets the keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Focus {
    #[default]
    Composer,
    Ask,
}

/// A permission mode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModeChoice {
    pub(crate) id: String,
    pub(crate) about: String,
}

/// A command of the agent's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OfferedCommand {
    pub(crate) name: String,
    pub(crate) about: String,
    /// What goes behind its name.
    pub(crate) hint: Option<String>,
}

/// Everything that the screen shows.
#[derive(Debug, Default)]
pub struct ScreenState {
    pub(crate) size: (u16, u16),
    pub(crate) theme: Theme,
    pub(crate) facts: ScreenFacts,
    pub(crate) conversation: Conversation,
    pub(crate) composer: Composer,
    /// Messages for the next turn.
    pub(crate) queue: Vec<Draft>,
    pub(crate) asks: Asks,
    pub(crate) focus: Focus,
    pub(crate) turn: Turn,
    pub(crate) popup: Option<Popup>,
    pub(crate) modes: Vec<ModeChoice>,
    /// Whether the person was told what `unattended` means.
    is_warned: bool,
    pub(crate) mode: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) commands: Vec<OfferedCommand>,
    pub(crate) todo: Todo,
    pub(crate) shows_todo: bool,
    pub(crate) background: Vec<BackgroundRow>,
    /// Tokens in the model's window, and how many it holds.
    pub(crate) window: Option<(u64, u64)>,
    pub(crate) tokens: u64,
    pub(crate) cost: Option<f64>,
    pub(crate) title: Option<String>,
    pub(crate) toast: Option<(String, Instant)>,
    /// Whether another window has the keyboard.
    pub(crate) is_unfocused: bool,
    /// Whether a session is open.
    pub(crate) is_open: bool,
    /// Why no session could be opened at all.
    pub(crate) failure: Option<crate::events::FailureEvent>,
    /// Whether the agent is gone.
    pub(crate) is_gone: bool,
    /// Whether there is no session and none is on its way.
    is_without: bool,
    /// Whether a session was open before.
    was_open: bool,
    /// When a key last changed the text.
    typed: Option<Instant>,
    /// When a key was last pressed.
    key_at: Option<Instant>,
    /// When the last question came.
    asked_at: Option<Instant>,
    /// The question that has opened by itself: it does so once.
    opened_itself: Option<u64>,
    /// Whether the dialog was opened by no key.
    is_unbidden: bool,
    /// When Ctrl+C was last pressed with nothing to interrupt.
    leaving: Option<Instant>,
    /// When Esc was last pressed with nothing to close.
    escaped: Option<Instant>,
    /// Ctrl+X was pressed: the next key completes it.
    prefix: bool,
    /// Files for `@`, newest list.
    files: Vec<String>,
    /// Where the `@` stands for which they were listed.
    files_for: Option<usize>,
    /// The wall clock, for what other processes have stamped.
    pub(crate) wall_ms: u64,
    pub(crate) shell: shell::Shell,
    /// What was said and is not known to be on the disk, oldest first.
    unheard: VecDeque<String>,
    /// What is told as soon as another session is open.
    told_when_open: Option<String>,
    /// A command that was entered before the agent had named its own: carried out then, if it still is the draft.
    early: Option<String>,
    /// Where one goes when the fleet has taken the background agents.
    keeping_for: Option<Destination>,
    /// Where the session goes on, when it was sent away.
    pub(crate) farewell: Option<String>,
    pub(crate) effort: Option<String>,
    /// Whether this client neither answers questions nor changes the mode.
    pub(crate) only_watches: bool,
    pub(crate) look: Look,
    pub(crate) selection: Option<Selection>,
}

impl ScreenState {
    /// A screen of this size, before the session is open.
    pub fn new(size: (u16, u16), theme: Theme, facts: ScreenFacts) -> Self {
        Self { size, theme, model: facts.model.clone(), facts, ..Self::default() }
    }

    /// Draws with these looks from now on.
    pub fn set_theme(&mut self, theme: Theme) {
        self.theme = theme;
    }

    /// Uses the screen in this way.
    pub fn set_look(&mut self, look: Look) {
        self.look = look;
    }

    /// What was written in earlier sessions, oldest first.
    pub fn remember(&mut self, entries: impl IntoIterator<Item = String>) {
        for entry in entries {
            self.composer.history.push(Draft::of(&entry));
        }
    }

    /// What is said as soon as the session is open.
    pub fn say_first(&mut self, text: &str) {
        self.queue.push(Draft::of(text));
    }

    /// The last lines of the conversation, as text.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let columns = usize::from(self.size.0);
        let mut lines: Vec<String> = Vec::new();
        for cell in self.conversation.newest_first() {
            let text = crate::text::logical(cell.rows(columns, self.theme).iter());
            lines.extend(text.split('\n').rev().map(|line| line.trim_end().to_owned()));
            if lines.len() >= count {
                break;
            }
        }
        lines.truncate(count);
        lines.reverse();
        lines
    }

    /// The wall clock, in milliseconds since 1970.
    pub fn set_wall(&mut self, ms: u64) {
        self.wall_ms = ms;
    }

    /// Takes what happened; what is to be done.
    pub fn update(&mut self, event: ScreenEvent, now: Instant) -> Vec<ScreenEffect> {
        match event {
            ScreenEvent::Key(key) => {
                let before = self.toast.clone();
                let effects = self.key(key, now);
                // What was said before does not stay under what is done now.
                if !effects.is_empty() && self.toast == before {
                    self.toast = None;
                }
                return effects;
            }
            ScreenEvent::Paste(text) => return self.paste(&text, now),
            ScreenEvent::Mouse(action, x, y) => return self.mouse(action, x, y),
            ScreenEvent::Agent(event) => return self.agent(event, now),
            ScreenEvent::Wheel(notches) => {
                let rows = usize::from(notches.unsigned_abs()) * usize::from(self.look.wheel_rows);
                self.scroll(rows, notches > 0);
            }
            ScreenEvent::Resize(columns, rows) => {
                // It is in places of the old layout.
                self.selection = self.selection.filter(|_| columns == self.size.0);
                self.size = (columns, rows);
            }
            ScreenEvent::Focus(has_focus) => self.is_unfocused = !has_focus,
            ScreenEvent::Ground(ground) => self.theme.ground = ground,
            ScreenEvent::Tick => {
                self.toast.take_if(|(_, until)| now >= *until);
                self.open_question(now);
            }
        }
        Vec::new()
    }

    /// Opens the question that waits, whole, when nobody is writing: the input line is empty and no key came for a while.
    fn open_question(&mut self, now: Instant) {
        if self.opens_at().is_some_and(|at| now >= at) {
            self.opened_itself = self.asks.first().map(|open| open.asked.number);
            self.is_unbidden = true;
            self.focus = Focus::Ask;
        }
    }

    /// When the question that waits opens by itself, by what is known now.
    fn opens_at(&self) -> Option<Instant> {
        let number = self.asks.first()?.asked.number;
        let is_free = self.focus == Focus::Composer
            && self.composer.is_blank()
            && self.popup.is_none()
            && !self.only_watches
            && self.opened_itself != Some(number);
        let since = [self.key_at, self.asked_at].into_iter().flatten().max()?;
        is_free.then(|| since + OPENS_AFTER)
    }

    /// What the window of the terminal is called: what this is about, and whether it works or needs the person.
    pub fn window_title(&self) -> String {
        let about = self.title.as_deref().unwrap_or(&self.facts.place);
        let sign = match (self.asks.is_empty(), self.turn.is_running()) {
            (false, _) => "! ",
            (true, true) => "▶ ",
            (true, false) => "",
        };
        crate::text::cut(&format!("{sign}caliban: {}", crate::sanitise::line(about)), TITLE_COLUMNS)
    }

    /// The frame is on the screen.
    pub fn drawn(&mut self, now: Instant) {
        if self.focus == Focus::Ask
            && let Some(dialog) = areas(self).dialog
        {
            let columns = usize::from(dialog.width);
            let height = crate::view::call_height(dialog);
            let theme = self.theme;
            if let Some(open) = self.asks.first_mut() {
                let rows = open.rows(columns, theme).len();
                open.drawn(rows, height, now);
            }
        }
    }

    /// The rows that will not change any more, each once: they go into the terminal's own scrollback.
    pub(crate) fn print_settled(&mut self) -> Vec<crate::text::Row> {
        let is_at_rest = self.is_open && !self.turn.is_running() && self.shell.running.is_none();
        self.conversation.print_settled(is_at_rest, self.whole_size())
    }

    /// Everything that is not printed yet.
    pub(crate) fn print_rest(&mut self) -> Vec<crate::text::Row> {
        self.conversation.print_settled(true, self.whole_size())
    }

    fn whole_size(&self) -> Size {
        Size { columns: self.size.0.into(), rows: self.size.1.into(), theme: self.theme }
    }

    /// How high the live area is below what is printed, on a terminal of this height: at most a third of it, unless
    /// something is asked or chosen.
    pub(crate) fn live_height(&mut self, rows: u16) -> u16 {
        self.size.1 = rows;
        let areas = areas(self);
        let others = rows - areas.conversation.height;
        let unprinted = self.conversation.unprinted_rows(self.whole_size());
        let unprinted = u16::try_from(unprinted).unwrap_or(u16::MAX);
        let most = if self.popup.is_some() || self.focus == Focus::Ask { rows } else { rows / 3 };
        others.saturating_add(unprinted).min(most.max(others)).min(rows.saturating_sub(1)).max(1)
    }

    /// When something changes on the screen by itself; none when nothing does.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let spinner = (self.turn.is_running() && !self.is_unfocused && self.asks.is_empty())
            .then(|| now + crate::view::SPINNER_EVERY);
        // Unfocused: the elapsed time is still true to the second.
        let elapsed =
            (self.turn.is_running() || self.has_running_background()).then(|| now + Duration::from_secs(1));
        // Every change is read out to somebody who listens: nothing moves by itself.
        let (spinner, elapsed) =
            if self.theme.depth == Depth::Words { (None, None) } else { (spinner, elapsed) };
        let toast = self.toast.as_ref().map(|(_, until)| *until);
        let ready = (self.focus == Focus::Ask)
            .then(|| self.asks.first().and_then(|open| open.ready_at(self.typed)))
            .flatten()
            .filter(|ready| *ready > now);
        let opens = self.opens_at().map(|at| at.max(now));
        [spinner, elapsed, toast, ready, opens].into_iter().flatten().min()
    }

    /// Whether a session is being opened.
    pub(crate) fn is_opening(&self) -> bool {
        !self.is_open && !self.is_gone && !self.is_without
    }

    fn has_running_background(&self) -> bool {
        self.background.iter().any(|row| row.ended_ms.is_none())
    }

    /// When a key last changed a text.
    pub(crate) fn typed(&self) -> Option<Instant> {
        self.typed
    }

    pub(crate) fn say(&mut self, text: impl Into<String>, now: Instant) {
        self.toast = Some((text.into(), now + TOAST));
    }

    /// Says something, and nothing is to be done.
    fn only_say(&mut self, text: impl Into<String>, now: Instant) -> Vec<ScreenEffect> {
        self.say(text, now);
        Vec::new()
    }

    /// The size that the conversation is drawn for.
    pub(crate) fn conversation_size(&self) -> Size {
        let area = areas(self).conversation;
        Size { columns: usize::from(area.width), rows: usize::from(area.height), theme: self.theme }
    }

    fn scroll(&mut self, rows: usize, to_end: bool) {
        let size = self.conversation_size();
        if to_end {
            self.conversation.scroll_down(rows, size);
        } else {
            self.conversation.scroll_up(rows, size);
        }
    }

    fn paste(&mut self, text: &str, now: Instant) -> Vec<ScreenEffect> {
        // A paste never answers a question: it goes where text goes.
        self.typed = Some(now);
        match self.asks.first_mut().filter(|_| self.focus == Focus::Ask) {
            Some(open) if open.reason.as_ref().is_some_and(|words| !words.is_empty()) => {
                open.reason.get_or_insert_default().push_str(&crate::sanitise::line(text));
                Vec::new()
            }
            Some(PendingAsk { keeping: Some(keeping), .. }) => {
                keeping.insert(&crate::sanitise::line(text));
                Vec::new()
            }
            _ => {
                self.focus_composer();
                self.composer.paste(text);
                self.refresh_popup()
            }
        }
    }

    fn focus_composer(&mut self) {
        self.focus = Focus::Composer;
        self.asks.blur();
    }

    /// Whether nothing was said in the session.
    pub fn is_empty(&self) -> bool {
        self.conversation.is_empty()
    }

    /// The person was away from the screen (a shell, an editor): nothing that they read before counts as read.
    pub fn returned(&mut self, now: Instant) {
        self.typed = Some(now);
        self.asks.blur();
    }

    /// What is left unsent when the screen closes: the queue, the draft, and the draft that was put aside.
    pub fn unsent(&self) -> Vec<String> {
        let drafts = self.queue.iter().chain([self.composer.draft()]).chain(self.composer.stashed());
        drafts.filter(|draft| !draft.is_blank()).map(Draft::whole).collect()
    }
}
