//! Words with their emphasis, collected until a line ends.

use pulldown_cmark::{Event, Tag, TagEnd};
use ratatui::{
    style::{Modifier, Style},
    text::Span,
};

use crate::{
    sanitise,
    theme::{TextRole, Theme},
};

/// The words of a line.
pub(super) struct Inline {
    theme: Theme,
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    /// The address of the link that is open, and where its text begins.
    link: Option<(String, usize)>,
}

impl Inline {
    pub(super) fn new(theme: Theme) -> Self {
        Self { theme, spans: Vec::new(), styles: Vec::new(), link: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// What was collected; nothing is left.
    pub(super) fn take(&mut self) -> Vec<Span<'static>> {
        if let Some((_, from)) = &mut self.link {
            *from = 0;
        }
        std::mem::take(&mut self.spans)
    }

    /// From now on words look like this, too.
    pub(super) fn push(&mut self, style: Style) {
        let style = self.style().patch(style);
        self.styles.push(style);
    }

    /// As before the last [`Self::push`].
    pub(super) fn pop(&mut self) {
        self.styles.pop();
    }

    fn style(&self) -> Style {
        self.styles.last().copied().unwrap_or_default()
    }

    pub(super) fn text(&mut self, text: &str) {
        // An entity can spell out a control character that was not in the source.
        let text = sanitise::line(text.trim_end_matches('\n'));
        if !text.is_empty() {
            self.spans.push(Span::styled(text, self.style()));
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Code(code) => {
                let style = self.style().patch(self.theme.style(TextRole::Code));
                self.spans.push(Span::styled(sanitise::line(&code), style));
            }
            Event::SoftBreak => self.spans.push(Span::styled(" ", self.style())),
            Event::InlineHtml(text) | Event::InlineMath(text) | Event::DisplayMath(text) => self.text(&text),
            Event::FootnoteReference(name) => self.text(&format!("[^{name}]")),
            _ => {}
        }
    }

    pub(super) fn start(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Emphasis => self.push(Style::new().add_modifier(Modifier::ITALIC)),
            Tag::Strong => self.push(Style::new().add_modifier(Modifier::BOLD)),
            Tag::Strikethrough => self.push(Style::new().add_modifier(Modifier::CROSSED_OUT)),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.link = Some((sanitise::line(dest_url), self.spans.len()));
                self.push(self.theme.style(TextRole::Link));
            }
            _ => {}
        }
    }

    pub(super) fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.pop(),
            TagEnd::Link | TagEnd::Image => {
                self.pop();
                let Some((address, from)) = self.link.take() else { return };
                let text: String = self.spans.iter().skip(from).map(|span| span.content.as_ref()).collect();
                // The address is always seen: a text can claim any other.
                if !address.is_empty() && address != text && address != format!("mailto:{text}") {
                    let style = self.style().patch(self.theme.style(TextRole::Dim));
                    self.spans.push(Span::styled(format!(" ({address})"), style));
                }
            }
            _ => {}
        }
    }
}
