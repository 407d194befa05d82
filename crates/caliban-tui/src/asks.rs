//! Questions of the agent: which one lies before the person, and whether a key may answer it yet. Pure.
//!
//! A key answers only what has been read: the dialog has the focus, it has been on the screen for a while, nobody was
//! typing just before, and, for a yes, the end of the call has been on the screen.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use caliban_core::{ask::Answer, call_text::TELLING, inert};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::Span;
use serde_json::Value;
use similar::{ChangeTag, TextDiff};
use unicode_segmentation::UnicodeSegmentation as _;

use crate::{
    composer::is_text,
    text::{Gutter, Row, Wrap, wrap},
    theme::{TextRole, Theme},
};

mod keeping;

pub(crate) use keeping::Keeping;

/// How long a question must have been on the screen.
pub(crate) const READING: Duration = Duration::from_millis(500);
/// How long nobody may have typed.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// More blanks in a row than this are counted instead of shown: they would push the rest out of sight.
const BLANKS: usize = 16;
/// The same for empty lines.
const EMPTY_LINES: usize = 3;
/// The columns of a preview that the number of a line takes.
const NUMBER_COLUMNS: usize = 6;
/// A comparison that takes longer is less exact.
const COMPARED_WITHIN: Duration = Duration::from_millis(50);

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedQuestion {
    /// A number that the answer carries.
    pub number: u64,
    /// The tool.
    pub tool: String,
    /// Another agent than the one of the conversation, for which it is asked.
    pub agent: Option<String>,
    /// The arguments.
    pub input: Value,
    /// What it would change, in lines with their numbers, and the lines around.
    pub preview: Option<String>,
    /// Why it is asked.
    pub why: String,
    /// The rules that "always" would add; empty when that is not offered.
    pub rules: Vec<String>,
    /// The rules that "always, outside the fence" would add; empty when that is not offered.
    pub outside: Vec<String>,
}

/// A question that is open.
#[derive(Debug)]
pub(crate) struct PendingAsk {
    pub(crate) asked: AskedQuestion,
    pub(crate) scroll: usize,
    /// Since when it has been on the screen with the focus.
    shown: Option<Instant>,
    /// Since when its end has been seen.
    end_shown: Option<Instant>,
    /// What the person says instead of a yes, while it is written.
    pub(crate) reason: Option<String>,
    /// The rules that "always" adds, while the person looks at them.
    pub(crate) keeping: Option<Keeping>,
}

/// Why a key does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unready {
    /// It has not been read yet.
    Wait,
    /// The end of the call has not been seen.
    EndUnseen,
    /// The call is too long to be seen whole.
    TooLong,
}

/// What a key did to the question that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pressed {
    /// It answers the question.
    Answer(Answer),
    /// The person leaves the dialog.
    Back,
    /// It scrolled, or showed the next question.
    Moved,
    /// It typed something, or means nothing here: the person is not reading.
    Typed,
    /// It would have allowed the call and does not, for this reason; whether the waiting begins anew.
    Refused(String, bool),
}

/// Where the call is shown: its columns and rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskArea {
    pub(crate) columns: usize,
    pub(crate) rows: usize,
}

/// The open questions, the one that is shown first.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    open: VecDeque<PendingAsk>,
}

impl Asks {
    pub(crate) fn push(&mut self, asked: AskedQuestion) {
        self.open.push_back(PendingAsk {
            asked,
            scroll: 0,
            shown: None,
            end_shown: None,
            reason: None,
            keeping: None,
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Whether this agent waits for an answer.
    pub(crate) fn is_asked_by(&self, agent: &str) -> bool {
        self.open.iter().any(|open| open.asked.agent.as_deref() == Some(agent))
    }

    pub(crate) fn first(&self) -> Option<&PendingAsk> {
        self.open.front()
    }

    pub(crate) fn first_mut(&mut self) -> Option<&mut PendingAsk> {
        self.open.front_mut()
    }

    /// The question is answered here.
    pub(crate) fn take(&mut self) -> Option<PendingAsk> {
        self.open.pop_front()
    }

    /// The question is answered elsewhere, or its call is gone; what was asked.
    pub(crate) fn withdraw(&mut self, number: u64) -> Option<PendingAsk> {
        let at = self.open.iter().position(|open| open.asked.number == number)?;
        self.open.remove(at)
    }

    /// Shows the next question.
    pub(crate) fn rotate(&mut self) {
        self.blur();
        self.open.rotate_left(1.min(self.open.len()));
    }

    /// The dialog has lost the focus: what was read is read, and the waiting begins anew.
    pub(crate) fn blur(&mut self) {
        for open in &mut self.open {
            open.shown = None;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    /// A key in the dialog. `typed` is when the person last typed something.
    pub(crate) fn key(
        &mut self,
        key: KeyEvent,
        (typed, now): (Option<Instant>, Instant),
        page: AskArea,
        theme: Theme,
    ) -> Pressed {
        let Some(open) = self.open.front_mut() else { return Pressed::Back };
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        if let Some(reason) = &mut open.reason {
            match key.code {
                KeyCode::Esc => open.reason = None,
                KeyCode::Enter => {
                    let words = reason.trim().to_owned();
                    return open.said(words, typed, now);
                }
                KeyCode::Backspace => {
                    reason.pop();
                }
                KeyCode::Char(c) if is_text(key) => reason.push(c),
                _ => {}
            }
            return Pressed::Typed;
        }
        if let Some(keeping) = &mut open.keeping {
            if control || alt {
                return Pressed::Typed;
            }
            return keeping.key(key).unwrap_or_else(|| {
                open.keeping = None;
                Pressed::Typed
            });
        }
        // Ctrl+A goes to the start of a line elsewhere: no key with a modifier answers.
        if control || alt {
            return Pressed::Typed;
        }
        let last = open.rows(page.columns, theme).len().saturating_sub(page.rows);
        let scroll = match key.code {
            KeyCode::Up => Some(open.scroll.saturating_sub(1)),
            KeyCode::Down => Some(open.scroll + 1),
            KeyCode::PageUp => Some(open.scroll.saturating_sub(page.rows)),
            KeyCode::PageDown | KeyCode::Char(' ') => Some(open.scroll + page.rows),
            KeyCode::Home => Some(0),
            KeyCode::End => Some(last),
            _ => None,
        };
        if let Some(scroll) = scroll {
            open.scroll = scroll.min(last);
            return Pressed::Moved;
        }
        let is_read = open.is_read(typed, now);
        match (key.code, open.may_allow(typed, now)) {
            (KeyCode::Esc, _) => Pressed::Back,
            (KeyCode::Tab, _) => {
                self.rotate();
                Pressed::Moved
            }
            (KeyCode::Char('y'), Ok(())) => Pressed::Answer(Answer::Once),
            (KeyCode::Char(c @ ('a' | 'o')), Ok(())) => {
                let rules = if c == 'a' { &open.asked.rules } else { &open.asked.outside };
                if rules.is_empty() {
                    return Pressed::Refused("there is no rule for that: y allows it once".to_owned(), true);
                }
                open.keeping = Some(Keeping::new(rules));
                Pressed::Moved
            }
            // The end that is missing is no reason to wait longer.
            (KeyCode::Char('y' | 'a' | 'o'), Err(why)) => {
                Pressed::Refused(why.words().to_owned(), why != Unready::EndUnseen)
            }
            (KeyCode::Char('n'), _) if is_read => Pressed::Answer(Answer::No(None)),
            // Any other letter begins an answer in words; Enter does for one that begins with a letter from above.
            (KeyCode::Char(c), _) if is_read && is_text(key) => {
                open.reason = Some(c.to_string());
                Pressed::Typed
            }
            (KeyCode::Enter, _) if is_read => {
                open.reason = Some(String::new());
                Pressed::Moved
            }
            _ => Pressed::Typed,
        }
    }
}

impl Unready {
    /// Why the call is not allowed, for the person who pressed the key.
    fn words(self) -> &'static str {
        match self {
            Self::EndUnseen => "first scroll to the end of it (PgDn)",
            Self::TooLong => "it is too long to be shown whole: it can only be refused here",
            Self::Wait => "Hold on a second",
        }
    }
}

impl PendingAsk {
    /// The dialog was drawn: so many rows of the call, of which so many were on the screen.
    pub(crate) fn drawn(&mut self, rows: usize, height: usize, now: Instant) {
        // Without room nothing was shown.
        if height == 0 {
            return;
        }
        self.shown.get_or_insert(now);
        if self.first_row(rows, height) + height >= rows {
            self.end_shown.get_or_insert(now);
        }
    }

    /// The first row of the call that is shown: a screen that has grown shows no emptiness behind the end.
    pub(crate) fn first_row(&self, rows: usize, height: usize) -> usize {
        self.scroll.min(rows.saturating_sub(height))
    }

    /// Words and Enter: a word that means yes or no, or what to do instead.
    fn said(&mut self, words: String, typed: Option<Instant>, now: Instant) -> Pressed {
        match words.to_lowercase().as_str() {
            "" => {
                self.reason = None;
                Pressed::Moved
            }
            "n" | "no" => Pressed::Answer(Answer::No(None)),
            // What was written here was typed with the question before one's eyes.
            "y" | "yes" => match self.may_allow(typed.filter(|typed| Some(*typed) < self.shown), now) {
                Ok(()) => Pressed::Answer(Answer::Once),
                Err(why) => Pressed::Refused(why.words().to_owned(), false),
            },
            _ => Pressed::Answer(Answer::No(Some(words))),
        }
    }

    /// Whether a key may answer now.
    pub(crate) fn is_read(&self, typed: Option<Instant>, now: Instant) -> bool {
        self.ready_at(typed).is_some_and(|at| now >= at)
    }

    /// From when on a key may answer; never while it is not on the screen.
    pub(crate) fn ready_at(&self, typed: Option<Instant>) -> Option<Instant> {
        let shown = self.shown?;
        let read = self.end_shown.map_or(shown, |end| end.max(shown)) + READING;
        Some(typed.map_or(read, |typed| read.max(typed + QUIET)))
    }

    /// Whether a yes is possible, or why not.
    pub(crate) fn may_allow(&self, typed: Option<Instant>, now: Instant) -> Result<(), Unready> {
        if caliban_acp::cut_arguments::is_cut(&self.asked.input) {
            return Err(Unready::TooLong);
        }
        if self.end_shown.is_none() {
            return Err(Unready::EndUnseen);
        }
        if self.is_read(typed, now) { Ok(()) } else { Err(Unready::Wait) }
    }

    /// The whole call, and the rules that "always" would add.
    pub(crate) fn rows(&self, columns: usize, theme: Theme) -> Vec<Row> {
        let gutter = Gutter::blank(2);
        let mut lines = self.asked.lines();
        for (answer, rules) in
            [("always", &self.asked.rules), ("always, outside the fence,", &self.asked.outside)]
        {
            let rules: Vec<String> = rules.iter().map(|rule| visible(&inert::line(rule))).collect();
            if !rules.is_empty() {
                lines.push((TextRole::Text, format!("{answer} would add: {}", rules.join(", "))));
            }
        }
        let mut rows = Vec::new();
        for (number, (role, line)) in lines.into_iter().enumerate() {
            let source = u32::try_from(number).unwrap_or(u32::MAX);
            let spans = [Span::styled(line, theme.style(role))];
            rows.extend(wrap(&spans, columns, &gutter, Wrap::Anywhere, source));
        }
        rows
    }
}

impl AskedQuestion {
    /// The call with all its arguments, made visible, line by line. What is changed is shown as a change.
    fn lines(&self) -> Vec<(TextRole, String)> {
        let mut lines = vec![(TextRole::Strong, inert::line(&self.tool).into_owned())];
        let mut put =
            |role: TextRole, text: &str| lines.extend(text.split('\n').map(|line| (role, line.to_owned())));
        let Value::Object(fields) = &self.input else {
            if !self.input.is_null() {
                put(TextRole::Text, &shown(&self.input));
            }
            return lines;
        };
        // The command first, wherever the model put it; all else is indented, so that no argument looks like one.
        let command = fields.get("command").filter(|_| self.tool == "Bash");
        if let Some(command) = command {
            put(TextRole::Text, &shown(command));
        }
        // With the file before one's eyes the change is shown there, once.
        let preview = self.preview.as_deref();
        let change = match preview {
            Some(_) if fields.contains_key("old_string") => Some(Vec::new()),
            _ => change(fields.get("old_string"), fields.get("new_string")),
        };
        for (name, value) in fields {
            match (name.as_str(), &change) {
                ("command", _) if command.is_some() => {}
                ("old_string", Some(change)) => change.iter().for_each(|(role, line)| put(*role, line)),
                ("new_string", Some(_)) => {}
                _ => {
                    let text = shown(value).replace('\n', "\n    ");
                    let apart = if text.contains('\n') { "\n    " } else { " " };
                    put(TextRole::Text, &format!("  {}:{apart}{text}", visible(&inert::line(name))));
                }
            }
        }
        for line in preview.map(|text| shown(&Value::from(text))).iter().flat_map(|text| text.split('\n')) {
            put(sign_of(line), line);
        }
        lines
    }

    /// One line that says what it is about.
    pub(crate) fn title(&self) -> String {
        let tool = inert::line(&self.tool);
        let Value::Object(fields) = &self.input else {
            let text = if self.input.is_null() { String::new() } else { shown(&self.input) };
            return first_line(&tool, &text, false);
        };
        let telling = TELLING.iter().find_map(|name| fields.get(*name)).or_else(|| fields.values().next());
        first_line(&tool, &telling.map(shown).unwrap_or_default(), fields.len() > 1)
    }
}

fn first_line(tool: &str, text: &str, has_more: bool) -> String {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let more = if has_more || !rest.is_empty() { " …" } else { "" };
    format!("{tool} {first}{more}").trim_end().to_owned()
}

/// What a line of a preview is: `    12 +new`, `       -old`, `    13  same`. The number stands before the sign.
fn sign_of(line: &str) -> TextRole {
    let number = line.get(..NUMBER_COLUMNS).unwrap_or_default();
    let is_line = number.chars().all(|c| c == ' ' || c.is_ascii_digit());
    match line.get(NUMBER_COLUMNS..).and_then(|rest| rest.chars().nth(1)).filter(|_| is_line) {
        Some('+') => TextRole::Added,
        Some('-') => TextRole::Removed,
        _ => TextRole::Text,
    }
}

/// Two texts as a change, every line of both; none when they are no texts.
fn change(old: Option<&Value>, new: Option<&Value>) -> Option<Vec<(TextRole, String)>> {
    let (old, new) = (shown(old.filter(|old| old.is_string())?), shown(new.filter(|new| new.is_string())?));
    let diff = TextDiff::configure().timeout(COMPARED_WITHIN).diff_lines(&old, &new);
    let line = |change: similar::Change<&str>| {
        let (role, sign) = match change.tag() {
            ChangeTag::Insert => (TextRole::Added, '+'),
            ChangeTag::Delete => (TextRole::Removed, '-'),
            ChangeTag::Equal => (TextRole::Text, ' '),
        };
        (role, format!("    {sign} {}", change.value().trim_end_matches('\n')))
    };
    Some(diff.iter_all_changes().map(line).collect())
}

/// A value with everything in it that could hide something made visible.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = visible(&inert::block(&text)).replace('\t', "␉   ");
    let mut out: Vec<String> = Vec::new();
    let mut empty = 0;
    for line in text.split('\n') {
        if line.trim().is_empty() {
            empty += 1;
            continue;
        }
        pad(&mut out, empty);
        empty = 0;
        out.push(counted(line));
    }
    pad(&mut out, empty);
    out.join("\n")
}

fn pad(out: &mut Vec<String>, empty: usize) {
    match empty {
        0..=EMPTY_LINES => out.extend(std::iter::repeat_n(String::new(), empty)),
        _ => out.push(format!("⟨{empty} empty lines⟩")),
    }
}

/// A line whose long runs of blanks are counted.
fn counted(line: &str) -> String {
    let mut out = String::new();
    let mut blanks = 0;
    let indent = line.len() - line.trim_start_matches(' ').len();
    for c in line.chars().chain(['\0']) {
        if c.is_whitespace() {
            blanks += 1;
            continue;
        }
        if blanks > BLANKS && (!out.is_empty() || indent > 4 * BLANKS) {
            out.push_str(&format!("⟨{blanks} blanks⟩"));
        } else {
            out.extend(std::iter::repeat_n(' ', blanks));
        }
        blanks = 0;
        if c != '\0' {
            out.push(c);
        }
    }
    out
}

/// A text in which each cluster that takes more than two columns is written as its code points: the screen would not draw
/// one that is wider than a row, and what follows it neither.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for cluster in text.graphemes(true) {
        if crate::text::columns(cluster) <= 2 {
            out.push_str(cluster);
            continue;
        }
        for c in cluster.chars() {
            if c.is_ascii() { out.push(c) } else { out.push_str(&format!("<U+{:04X}>", u32::from(c))) }
        }
    }
    out
}

#[cfg(test)]
mod tests;
