//! One top-level block as rows.

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Parser, Tag, TagEnd};
use ratatui::{style::Modifier, text::Span};

use super::{inline::Inline, options, table::MarkdownTable};
use crate::{
    highlight::Highlighter,
    sanitise,
    text::{Gutter, Row, Wrap, width, wrap},
    theme::{TextRole, Theme},
};

/// The longest rule.
const RULE: usize = 40;

/// The rows of a block. `base` is the number of its first logical line.
pub(crate) fn block(source: &str, columns: usize, theme: Theme, base: u32) -> Vec<Row> {
    let mut writer = RowWriter {
        theme,
        columns,
        rows: Vec::new(),
        source: base,
        inline: Inline::new(theme),
        nesting: Vec::new(),
        code: None,
        table: None,
        is_first: true,
    };
    for event in Parser::new_ext(source, options()) {
        writer.event(event);
    }
    writer.flush();
    writer.rows
}

/// What a line stands in.
enum Nesting {
    Quote,
    List {
        next: Option<u64>,
    },
    /// An item, with its marker until that is written.
    Item {
        marker: Option<String>,
        indent: usize,
    },
}

struct RowWriter {
    theme: Theme,
    columns: usize,
    rows: Vec<Row>,
    source: u32,
    inline: Inline,
    nesting: Vec<Nesting>,
    /// The language and the text of the code that is being read.
    code: Option<(String, String)>,
    table: Option<MarkdownTable>,
    /// Whether nothing stands before the next line in what it stands in.
    is_first: bool,
}

impl RowWriter {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) => match &mut self.code {
                Some((_, code)) => code.push_str(&text),
                None => self.inline.text(&text),
            },
            Event::HardBreak => self.line(),
            Event::Rule => {
                self.apart();
                let rule = "─".repeat(RULE.min(self.room()));
                self.put(&[Span::styled(rule, self.theme.style(TextRole::Dim))], Wrap::Anywhere);
            }
            Event::TaskListMarker(done) => self.inline.text(if done { "☑ " } else { "☐ " }),
            other => self.inline.event(other),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.apart(),
            Tag::Heading { level, .. } => {
                self.apart();
                let mut style = self.theme.style(TextRole::Heading);
                if level == HeadingLevel::H1 {
                    style = style.add_modifier(Modifier::UNDERLINED);
                }
                self.inline.push(style);
            }
            Tag::CodeBlock(kind) => {
                self.flush();
                self.apart();
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.code = Some((language, String::new()));
            }
            Tag::HtmlBlock => self.apart(),
            Tag::BlockQuote(_) => {
                self.flush();
                self.apart();
                self.nesting.push(Nesting::Quote);
                self.is_first = true;
            }
            Tag::List(next) => {
                self.flush();
                if !self.nesting.iter().any(|nesting| matches!(nesting, Nesting::List { .. })) {
                    self.apart();
                }
                self.nesting.push(Nesting::List { next });
                self.is_first = true;
            }
            Tag::Item => {
                let marker = match self.nesting.last_mut() {
                    Some(Nesting::List { next: Some(number) }) => {
                        let marker = format!("{number}. ");
                        *number += 1;
                        marker
                    }
                    _ => "• ".to_owned(),
                };
                let indent = marker.chars().count();
                self.nesting.push(Nesting::Item { marker: Some(marker), indent });
                self.is_first = true;
            }
            Tag::Table(_) => {
                self.apart();
                self.table = Some(MarkdownTable::default());
            }
            Tag::TableHead | Tag::TableRow | Tag::TableCell => {}
            other => self.inline.start(&other),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.inline.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::BlockQuote(_) | TagEnd::List(_) => {
                self.flush();
                self.nesting.pop();
                self.is_first = false;
            }
            TagEnd::Item => {
                self.flush();
                // An item without a word still has its marker.
                if matches!(self.nesting.last(), Some(Nesting::Item { marker: Some(_), .. })) {
                    self.put(&[], Wrap::Words);
                }
                self.nesting.pop();
                self.is_first = true;
            }
            TagEnd::TableCell => {
                let cell = self.inline.take();
                if let Some(table) = &mut self.table {
                    table.cell(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Some(table) = &mut self.table {
                    table.end_row();
                }
            }
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    for line in table.lines(self.room(), self.theme) {
                        self.put(&line, Wrap::Words);
                    }
                }
            }
            other => self.inline.end(other),
        }
    }

    fn end_code(&mut self) {
        let Some((language, code)) = self.code.take() else { return };
        let mut highlighter = Highlighter::new(&language);
        self.nesting.push(Nesting::Item { marker: None, indent: 2 });
        for line in code.strip_suffix('\n').unwrap_or(&code).split('\n') {
            let spans = highlighter.line(&sanitise::block(line), self.theme);
            self.put(&spans, Wrap::Anywhere);
        }
        self.nesting.pop();
    }

    /// A blank row before what is not the first in its place.
    fn apart(&mut self) {
        if std::mem::replace(&mut self.is_first, false) {
            return;
        }
        self.put_blank();
    }

    fn put_blank(&mut self) {
        let (gutter, _) = self.gutter(false);
        self.source += 1;
        self.rows.extend(wrap(&[], self.columns, &gutter, Wrap::Words, self.source));
    }

    /// Writes the words that were collected, if there are any.
    fn flush(&mut self) {
        if !self.inline.is_empty() {
            self.line();
        }
    }

    fn line(&mut self) {
        let spans = self.inline.take();
        self.put(&spans, Wrap::Words);
    }

    fn put(&mut self, spans: &[Span<'static>], how: Wrap) {
        let (gutter, marker) = self.gutter(true);
        self.is_first = false;
        self.source += 1;
        let mut text: Vec<Span<'static>> = Vec::new();
        text.extend(marker);
        text.extend(spans.iter().cloned());
        self.rows.extend(wrap(&text, self.columns, &gutter, how, self.source));
    }

    /// How many columns there are for text here.
    fn room(&self) -> usize {
        let (gutter, _) = self.peek_gutter();
        self.columns.saturating_sub(width(&gutter.rest)).max(1)
    }

    fn peek_gutter(&self) -> (Gutter, Option<usize>) {
        let mut gutter = Gutter::default();
        let mut marked = None;
        for (at, nesting) in self.nesting.iter().enumerate() {
            match nesting {
                Nesting::Quote => {
                    let bar = Span::styled("│ ", self.theme.style(TextRole::Dim));
                    gutter.first.push(bar.clone());
                    gutter.rest.push(bar);
                }
                Nesting::List { .. } => {}
                Nesting::Item { marker, indent } => {
                    let room = Span::raw(" ".repeat(*indent));
                    gutter.rest.push(room.clone());
                    if marker.is_some() {
                        marked = marked.or(Some(at));
                    } else {
                        gutter.first.push(room);
                    }
                }
            }
        }
        (gutter, marked)
    }

    /// What stands before the next line, and the markers of items that begin with it.
    fn gutter(&mut self, takes_marker: bool) -> (Gutter, Vec<Span<'static>>) {
        let (mut gutter, marked) = self.peek_gutter();
        if !takes_marker {
            gutter.first.clone_from(&gutter.rest);
            return (gutter, Vec::new());
        }
        let mut markers = Vec::new();
        let style = self.theme.style(TextRole::Accent);
        for nesting in self.nesting.iter_mut().skip(marked.unwrap_or(usize::MAX)) {
            if let Nesting::Item { marker, .. } = nesting
                && let Some(marker) = marker.take()
            {
                markers.push(Span::styled(marker, style));
            }
        }
        (gutter, markers)
    }
}
