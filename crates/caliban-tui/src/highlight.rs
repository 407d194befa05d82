//! Code in colour, a line at a time.

use caliban_highlight::Meaning;
use ratatui::text::Span;

use crate::theme::{Role, Theme};

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
                Role::Text => Span::raw(text.to_owned()),
                role => Span::styled(text.to_owned(), theme.style(role)),
            })
            .collect()
    }
}

fn role(meaning: Meaning) -> Role {
    match meaning {
        Meaning::Plain => Role::Text,
        Meaning::Comment => Role::Comment,
        Meaning::Text => Role::Literal,
        Meaning::Number => Role::Number,
        Meaning::Keyword => Role::Keyword,
        Meaning::Function => Role::Function,
        Meaning::Type => Role::Type,
        Meaning::Added => Role::Added,
        Meaning::Removed => Role::Removed,
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
        assert_eq!(style("let"), theme.style(Role::Keyword));
        assert_eq!(style("text"), theme.style(Role::Literal));
        assert_eq!(style("why"), theme.style(Role::Comment));
    }
}
