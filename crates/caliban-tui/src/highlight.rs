//! Code in colour, a line at a time. The grammars are loaded when the first code is shown.

use std::sync::OnceLock;

use ratatui::text::Span;
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use crate::theme::{Role, Theme};

/// A longer line is not highlighted.
const LINE_BYTES: usize = 4 * 1024;
/// What is behind so many lines is not highlighted.
const LINES: usize = 10_000;

/// The state between two lines of one piece of code.
#[derive(Clone)]
pub(crate) struct Highlighter {
    state: Option<(ParseState, ScopeStack)>,
    lines: usize,
}

impl Highlighter {
    /// For code in this language, as a fence or a file name's ending names it.
    pub(crate) fn new(language: &str) -> Self {
        let token = language.split([' ', ',', '{']).next().unwrap_or_default();
        let state = (!token.is_empty()).then(|| grammars().find_syntax_by_token(token)).flatten();
        Self { state: state.map(|syntax| (ParseState::new(syntax), ScopeStack::new())), lines: 0 }
    }

    /// The next line, without its end.
    pub(crate) fn line(&mut self, line: &str, theme: Theme) -> Vec<Span<'static>> {
        let plain = || vec![Span::raw(line.to_owned())];
        self.lines += 1;
        if line.len() > LINE_BYTES || self.lines > LINES {
            self.state = None;
        }
        let Some((state, stack)) = &mut self.state else { return plain() };
        let Ok(ops) = state.parse_line(&format!("{line}\n"), grammars()) else { return plain() };
        let mut spans: Vec<Span<'static>> = Vec::new();
        let mut put = |text: &str, stack: &ScopeStack| {
            if text.is_empty() {
                return;
            }
            let style = theme.style(role(stack));
            match spans.last_mut() {
                Some(last) if last.style == style => last.content.to_mut().push_str(text),
                _ => spans.push(Span::styled(text.to_owned(), style)),
            }
        };
        let mut from = 0;
        for (at, op) in ops {
            let at = at.min(line.len());
            put(&line[from..at], stack);
            from = at;
            if stack.apply(&op).is_err() {
                break;
            }
        }
        put(&line[from..], stack);
        spans
    }
}

fn grammars() -> &'static SyntaxSet {
    static GRAMMARS: OnceLock<SyntaxSet> = OnceLock::new();
    GRAMMARS.get_or_init(two_face::syntax::extra_newlines)
}

/// The innermost scope that means something.
fn role(stack: &ScopeStack) -> Role {
    stack.as_slice().iter().rev().find_map(|scope| meaning(*scope)).unwrap_or(Role::Text)
}

fn meaning(scope: Scope) -> Option<Role> {
    static ROLES: OnceLock<Vec<(Scope, Role)>> = OnceLock::new();
    let roles = ROLES.get_or_init(|| {
        [
            ("comment", Role::Comment),
            ("string", Role::Literal),
            ("constant.numeric", Role::Number),
            ("constant", Role::Number),
            ("keyword.operator", Role::Text),
            ("keyword", Role::Keyword),
            ("storage.type", Role::Keyword),
            ("storage", Role::Keyword),
            ("entity.name.function", Role::Function),
            ("support.function", Role::Function),
            ("variable.function", Role::Function),
            ("entity.name.tag", Role::Keyword),
            ("entity.name", Role::Type),
            ("support.type", Role::Type),
            ("markup.inserted", Role::Added),
            ("markup.deleted", Role::Removed),
        ]
        .into_iter()
        .filter_map(|(name, role)| Some((Scope::new(name).ok()?, role)))
        .collect()
    });
    roles.iter().find(|(prefix, _)| prefix.is_prefix_of(scope)).map(|(_, role)| *role)
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
        let mut none = Highlighter::new("no-such-language");
        assert_eq!(none.line("let x", theme), [Span::raw("let x")]);
    }
}
