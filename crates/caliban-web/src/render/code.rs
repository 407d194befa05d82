//! Code as runs, a line at a time. The grammars are loaded when the first code is shown.

use std::sync::OnceLock;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

use super::Run;

/// A longer line is not highlighted.
const LINE_BYTES: usize = 4 * 1024;
/// What is behind so many lines is not highlighted.
const LINES: usize = 10_000;

/// The state between two lines of one piece of code.
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

    /// The next line, without its end; it must be inert.
    pub(crate) fn line(&mut self, line: &str) -> Vec<Run> {
        let plain = || vec![Run::new("", line)];
        self.lines += 1;
        if line.len() > LINE_BYTES || self.lines > LINES {
            self.state = None;
        }
        let Some((state, stack)) = &mut self.state else { return plain() };
        let Ok(ops) = state.parse_line(&format!("{line}\n"), grammars()) else { return plain() };
        let (mut runs, mut from) = (Vec::new(), 0);
        for (at, op) in ops {
            let at = at.min(line.len());
            Run::put(&mut runs, Run::new(class(stack), line.get(from..at).unwrap_or_default()));
            from = at;
            if stack.apply(&op).is_err() {
                break;
            }
        }
        Run::put(&mut runs, Run::new(class(stack), line.get(from..).unwrap_or_default()));
        runs
    }
}

/// The language of a file, by its name.
pub(crate) fn language_of(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(_, ending)| ending)
}

fn grammars() -> &'static SyntaxSet {
    static GRAMMARS: OnceLock<SyntaxSet> = OnceLock::new();
    GRAMMARS.get_or_init(two_face::syntax::extra_newlines)
}

/// The innermost scope that means something.
fn class(stack: &ScopeStack) -> &'static str {
    stack.as_slice().iter().rev().find_map(|scope| meaning(*scope)).unwrap_or("")
}

fn meaning(scope: Scope) -> Option<&'static str> {
    static CLASSES: OnceLock<Vec<(Scope, &'static str)>> = OnceLock::new();
    let classes = CLASSES.get_or_init(|| {
        [
            ("comment", "com"),
            ("string", "str"),
            ("constant", "num"),
            ("keyword.operator", ""),
            ("keyword", "kw"),
            ("storage", "kw"),
            ("entity.name.function", "fn"),
            ("support.function", "fn"),
            ("variable.function", "fn"),
            ("entity.name.tag", "kw"),
            ("entity.name", "type"),
            ("support.type", "type"),
            ("markup.inserted", "add"),
            ("markup.deleted", "del"),
        ]
        .into_iter()
        .filter_map(|(name, class)| Some((Scope::new(name).ok()?, class)))
        .collect()
    });
    classes.iter().find(|(prefix, _)| prefix.is_prefix_of(scope)).map(|(_, class)| *class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_classes_and_keeps_its_text() {
        let runs = Highlighter::new("rust").line("let x = \"text\"; // <b>why</b>");
        let text: String = runs.iter().map(|run| run.text.as_str()).collect();
        assert_eq!(text, "let x = \"text\"; // <b>why</b>");
        let class = |part: &str| runs.iter().find(|run| run.text.contains(part)).unwrap().class.as_str();
        assert_eq!((class("let"), class("text"), class("why")), ("kw", "str", "com"));
        assert_eq!(Highlighter::new("no-such-language").line("let x"), [Run::new("", "let x")]);
        assert_eq!((language_of("src/a.rs"), language_of("Makefile")), ("rs", "Makefile"));
    }
}
