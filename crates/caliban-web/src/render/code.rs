//! Highlighted code as runs, line by line.

use caliban_highlight::Meaning;
pub(crate) use caliban_highlight::language_of;

use super::Run;

/// The state between two lines of one piece of code.
pub(crate) struct Highlighter(caliban_highlight::Highlighter);

impl Highlighter {
    /// `language` is that of a code fence, or a file name extension.
    pub(crate) fn new(language: &str) -> Self {
        Self(caliban_highlight::Highlighter::new(language))
    }

    /// The next line, without its line end. The text must be inert already.
    pub(crate) fn line(&mut self, line: &str) -> Vec<Run> {
        self.0.line(line).into_iter().map(|(meaning, text)| Run::new(class(meaning), text)).collect()
    }
}

fn class(meaning: Meaning) -> &'static str {
    match meaning {
        Meaning::Plain => "",
        Meaning::Comment => "com",
        Meaning::Text => "str",
        Meaning::Number => "num",
        Meaning::Keyword => "kw",
        Meaning::Function => "fn",
        Meaning::Type => "type",
        Meaning::Added => "add",
        Meaning::Removed => "del",
    }
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
    }
}
