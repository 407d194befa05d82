//! What the parts of a piece of code mean, a line at a time: for the colours of the screen and the classes of the pages. The
//! grammars are loaded when the first code is shown.

use std::sync::OnceLock;

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxSet};

/// A longer line is not highlighted.
const LINE_BYTES: usize = 4 * 1024;
/// What is behind so many lines is not highlighted.
const LINES: usize = 10_000;

/// What a part of code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// Nothing in particular.
    Plain,
    /// A comment.
    Comment,
    /// A string.
    Text,
    /// A number or another constant.
    Number,
    /// A keyword, a tag.
    Keyword,
    /// The name of a function.
    Function,
    /// The name of a type.
    Type,
    /// An added line of a patch.
    Added,
    /// A removed line of a patch.
    Removed,
}

const MEANINGS: [(&str, Meaning); 14] = [
    ("comment", Meaning::Comment),
    ("string", Meaning::Text),
    ("constant", Meaning::Number),
    ("keyword.operator", Meaning::Plain),
    ("keyword", Meaning::Keyword),
    ("storage", Meaning::Keyword),
    ("entity.name.function", Meaning::Function),
    ("support.function", Meaning::Function),
    ("variable.function", Meaning::Function),
    ("entity.name.tag", Meaning::Keyword),
    ("entity.name", Meaning::Type),
    ("support.type", Meaning::Type),
    ("markup.inserted", Meaning::Added),
    ("markup.deleted", Meaning::Removed),
];

/// The state between two lines of one piece of code.
#[derive(Debug, Clone)]
pub struct Highlighter {
    state: Option<(ParseState, ScopeStack)>,
    lines: usize,
}

impl Highlighter {
    /// For code in this language, as a fence or a file name's ending names it.
    #[must_use]
    pub fn new(language: &str) -> Self {
        let token = language.split([' ', ',', '{']).next().unwrap_or_default();
        let state = (!token.is_empty()).then(|| grammars().find_syntax_by_token(token)).flatten();
        Self { state: state.map(|syntax| (ParseState::new(syntax), ScopeStack::new())), lines: 0 }
    }

    /// The next line, without its end, in parts; two that follow each other differ in what they mean.
    pub fn line<'a>(&mut self, line: &'a str) -> Vec<(Meaning, &'a str)> {
        self.lines += 1;
        if line.len() > LINE_BYTES || self.lines > LINES {
            self.state = None;
        }
        let plain = || vec![(Meaning::Plain, line)];
        let Some((state, stack)) = &mut self.state else { return plain() };
        let Ok(ops) = state.parse_line(&format!("{line}\n"), grammars()) else { return plain() };
        // Where each part begins, and what it is.
        let mut starts: Vec<(usize, Meaning)> = Vec::new();
        let mut put = |from: usize, to: usize, meaning: Meaning| {
            if from < to && starts.last().is_none_or(|(_, last)| *last != meaning) {
                starts.push((from, meaning));
            }
        };
        let mut from = 0;
        for (at, op) in ops {
            let at = at.min(line.len());
            put(from, at, meaning(stack));
            from = at;
            if stack.apply(&op).is_err() {
                break;
            }
        }
        put(from, line.len(), meaning(stack));
        let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([line.len()]);
        let parts = starts.iter().zip(ends);
        parts.map(|((start, meaning), end)| (*meaning, line.get(*start..end).unwrap_or_default())).collect()
    }
}

/// The language of a file, by its name.
#[must_use]
pub fn language_of(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rsplit_once('.').map_or(name, |(_, ending)| ending)
}

fn grammars() -> &'static SyntaxSet {
    static GRAMMARS: OnceLock<SyntaxSet> = OnceLock::new();
    GRAMMARS.get_or_init(two_face::syntax::extra_newlines)
}

/// Of the innermost scope that means something.
fn meaning(stack: &ScopeStack) -> Meaning {
    static SCOPES: OnceLock<Vec<(Scope, Meaning)>> = OnceLock::new();
    let scopes = SCOPES.get_or_init(|| {
        MEANINGS.into_iter().filter_map(|(name, meaning)| Some((Scope::new(name).ok()?, meaning))).collect()
    });
    let of = |scope: &Scope| scopes.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope));
    stack.as_slice().iter().rev().find_map(of).map_or(Meaning::Plain, |(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_has_meanings_and_keeps_its_text() {
        let line = "let x = \"text\"; // <b>why</b>";
        let parts = Highlighter::new("rust").line(line);
        assert_eq!(parts.iter().map(|(_, text)| *text).collect::<String>(), line);
        let of = |part: &str| parts.iter().find(|(_, text)| text.contains(part)).unwrap().0;
        assert_eq!((of("let"), of("text"), of("why")), (Meaning::Keyword, Meaning::Text, Meaning::Comment));
        assert!(parts.windows(2).all(|pair| pair[0].0 != pair[1].0), "{parts:?}");
        assert_eq!(Highlighter::new("no-such-language").line("let x"), [(Meaning::Plain, "let x")]);
        assert_eq!(Highlighter::new("rust").line(""), []);
        assert_eq!((language_of("src/a.rs"), language_of("Makefile")), ("rs", "Makefile"));
    }
}
