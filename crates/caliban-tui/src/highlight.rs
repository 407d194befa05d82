//! Code in colour, a line at a time.

use caliban_highlight::Meaning;
use ratatui::text::Span;

use crate::theme::{TextRole, Theme};

/// The state between two lines of one piece of code.
#[derive(Clone)]
pub(crate) struct Highlighter(caliban_highlight::Highlighter);

impl Highlighter {
    /// For code in this language, as a fence or a file name's ending names it.
    pub(crate) fn new(language: &str) -> Self {
        Self(caliban_highlight::Highlighter::new(language))
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self, line: &str, theme: Theme) -> Vec<Span<'static>> {
        let parts = self.0.line(line).into_iter();
        parts
            .map(|(meaning, text)| match role(meaning) {
                TextRole::Text => Span::raw(text.to_owned()),
                role => Span::styled(text.to_owned(), theme.style(role)),
            })
            .collect()
    }
}

fn role(meaning: Meaning) -> TextRole {
    match meaning {
        Meaning::Plain => TextRole::Text,
        Meaning::Comment => TextRole::Comment,
        Meaning::Text => TextRole::Literal,
        Meaning::Number => TextRole::Number,
        Meaning::Keyword => TextRole::Keyword,
        Meaning::Function => TextRole::Function,
        Meaning::Type => TextRole::Type,
        Meaning::Added => TextRole::Added,
        Meaning::Removed => TextRole::Removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::{Depth, Ground};

    #[test]
    fn code_has_colours_and_keeps_its_text() {
        let theme = Theme { depth: Depth::True, ground: Ground::Dark };
        let mut rust = Highlighter::new("rust");
        let spans = rust.line("let x = \"text\"; // why", theme);
        let text: String = spans.iter().map(|span| span.content.as_ref()).collect();
        assert_eq!(text, "let x = \"text\"; // why");
        let style = |part: &str| spans.iter().find(|span| span.content.contains(part)).unwrap().style;
        assert_eq!(style("let"), theme.style(TextRole::Keyword));
        assert_eq!(style("text"), theme.style(TextRole::Literal));
        assert_eq!(style("why"), theme.style(TextRole::Comment));
    }
}
