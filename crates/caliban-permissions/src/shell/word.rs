//! Reads one shell word: what it says after quotes are removed, and which command lines it would run.
//!
//! Owns the second opinion on word boundaries: a word of the parser that does not end where this scanner
//! says it ends is refused. It expands nothing but `~`, and refuses whatever it is not sure about.

use std::path::Path;

/// One word of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// Its exact text, quotes removed.
    Literal(String),
    /// A pattern that the shell expands to file names; quoted special characters have a backslash.
    Glob(String),
    /// Known only when the shell runs (variables, substitutions, braces); the text as written.
    Computed(String),
}

impl Word {
    pub(crate) fn literal(&self) -> Option<&str> {
        match self {
            Self::Literal(text) => Some(text),
            Self::Glob(_) | Self::Computed(_) => None,
        }
    }
}

/// A word, and the command lines inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scanned {
    pub(crate) word: Word,
    pub(crate) commands: Vec<String>,
}

/// Why a word cannot be judged.
pub(crate) type WordDoubt = &'static str;

/// How a text is quoted where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuoteContext {
    Word,
    HereDocument,
}

pub(crate) fn scan(raw: &str, context: QuoteContext, home: &Path) -> Result<Scanned, WordDoubt> {
    let mut scanner = Scanner { text: raw, at: 0, depth: 0 };
    let mut sink = Sink::default();
    match context {
        QuoteContext::Word => scanner.word(&mut sink, home)?,
        QuoteContext::HereDocument => scanner.double_quoted(&mut sink, Closing::EndOfText)?,
    }
    let word = if sink.computed {
        Word::Computed(raw.to_owned())
    } else if sink.glob {
        Word::Glob(sink.pattern)
    } else {
        Word::Literal(sink.plain)
    };
    Ok(Scanned { word, commands: sink.commands })
}

/// The name in `NAME` or `NAME=value`, when the word surely begins with one.
pub(crate) fn declared_name(word: &Word) -> Option<&str> {
    let (text, plain) = match word {
        Word::Literal(text) => (text, true),
        Word::Glob(text) | Word::Computed(text) => (text, false),
    };
    let name = match text.split_once('=') {
        Some((name, _)) => name.strip_suffix('+').unwrap_or(name),
        None if plain => text,
        None => return None,
    };
    let first = name.chars().next()?;
    let identifier = (first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    identifier.then_some(name)
}

/// Whether a raw word is `{name}` or `{name[1]}`: in front of a redirection that is no word, but the variable
/// which gets the descriptor's number.
pub(crate) fn names_descriptor(raw: &str) -> bool {
    let raw = raw.replace("\\\n", "");
    let Some(inner) = raw.strip_prefix('{').and_then(|raw| raw.strip_suffix('}')) else { return false };
    let name = inner.split('[').next().unwrap_or(inner);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether every quote, bracket and here-document of a whole line ends in it. The parser is asked only then: it
/// panics on some lines of which this is not true.
pub(crate) fn balanced(line: &str) -> Result<(), WordDoubt> {
    let text = format!("{line}\n)");
    let mut scanner = Scanner { text: &text, at: 0, depth: 0 };
    match scanner.skip_substitution() {
        Ok(()) if scanner.at == text.len() => Ok(()),
        Ok(()) => Err("a parenthesis too many"),
        // The patterns of `case` have unbalanced parentheses, so the parser has to check this line.
        Err(CASE) => Ok(()),
        Err(why) => Err(why),
    }
}

const CASE: WordDoubt = "case in a substitution";

/// Nesting of substitutions inside one word beyond which it is refused.
const MAX_DEPTH: usize = 12;

const ARITHMETIC: WordDoubt = "arithmetic with variables can run commands";

#[derive(Default)]
struct Sink {
    plain: String,
    pattern: String,
    glob: bool,
    computed: bool,
    commands: Vec<String>,
}

impl Sink {
    fn quoted(&mut self, c: char) {
        self.plain.push(c);
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!' | ',') {
            self.pattern.push('\\');
        }
        self.pattern.push(c);
    }

    fn bare(&mut self, c: char) {
        self.plain.push(c);
        self.pattern.push(c);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Closing {
    Quote,
    EndOfText,
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn starts_with(&self, what: &str) -> bool {
        self.text[self.at..].starts_with(what)
    }

    fn word(&mut self, sink: &mut Sink, home: &Path) -> Result<(), WordDoubt> {
        if self.starts_with("~") {
            self.at += 1;
            match (self.peek(), home.to_str()) {
                (None | Some('/'), Some(home)) => home.chars().for_each(|c| sink.quoted(c)),
                _ => sink.computed = true,
            }
        }
        while let Some(c) = self.next() {
            match c {
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(c) => sink.quoted(c),
                    None => return Err("a backslash at the end"),
                },
                '\'' => self.single_quoted(Some(sink))?,
                '"' => self.double_quoted(sink, Closing::Quote)?,
                '$' => self.dollar(sink, QuoteContext::Word)?,
                '`' => self.backquoted(sink, QuoteContext::Word)?,
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '(' | ')' | '<' | '>' => {
                    return Err("a word with an unquoted separator in it");
                }
                '*' | '?' => {
                    sink.glob = true;
                    sink.bare(c);
                }
                '[' if self.text[self.at..].contains(']') => {
                    sink.glob = true;
                    sink.bare(c);
                }
                '[' => sink.quoted(c),
                '{' => {
                    let rest = &self.text[self.at..];
                    if rest.contains('}') && (rest.contains(',') || rest.contains("..")) {
                        sink.computed = true;
                    }
                    sink.quoted(c);
                }
                '}' | ',' => sink.quoted(c),
                c => sink.bare(c),
            }
        }
        Ok(())
    }

    fn single_quoted(&mut self, mut sink: Option<&mut Sink>) -> Result<(), WordDoubt> {
        loop {
            match self.next().ok_or("a quote that does not end")? {
                '\'' => return Ok(()),
                c => {
                    if let Some(sink) = sink.as_deref_mut() {
                        sink.quoted(c);
                    }
                }
            }
        }
    }

    /// Also the text of a here-document, in which quotes are ordinary characters.
    fn double_quoted(&mut self, sink: &mut Sink, closing: Closing) -> Result<(), WordDoubt> {
        loop {
            let Some(c) = self.next() else {
                return match closing {
                    Closing::EndOfText => Ok(()),
                    Closing::Quote => Err("a quote that does not end"),
                };
            };
            match c {
                '"' if closing == Closing::Quote => return Ok(()),
                '\\' => match self.next() {
                    Some('\n') => {}
                    Some(c @ ('$' | '`' | '"' | '\\')) => sink.quoted(c),
                    Some(c) => {
                        sink.quoted('\\');
                        sink.quoted(c);
                    }
                    None => return Err("a backslash at the end"),
                },
                '$' => self.dollar(sink, QuoteContext::HereDocument)?,
                '`' => self.backquoted(sink, QuoteContext::HereDocument)?,
                c => sink.quoted(c),
            }
        }
    }

    /// After a `$`. `HereDocument` stands for double quotes too.
    fn dollar(&mut self, sink: &mut Sink, context: QuoteContext) -> Result<(), WordDoubt> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err("substitutions nested too deep");
        }
        match self.peek() {
            Some('\'') if context == QuoteContext::Word => {
                self.at += 1;
                self.ansi_quoted(sink)?;
            }
            // What a translation holds is expanded like what is written here.
            Some('"') if context == QuoteContext::Word => return Err("a text that is translated"),
            Some('(') if self.starts_with("((") => {
                self.at += 2;
                sink.computed = true;
                self.arithmetic()?;
            }
            Some('(') => {
                self.at += 1;
                let start = self.at;
                self.skip_substitution()?;
                sink.computed = true;
                sink.commands.push(self.text[start..self.at - 1].to_owned());
            }
            Some('{') => {
                self.at += 1;
                sink.computed = true;
                self.braced(sink, context)?;
            }
            Some('[') => return Err(ARITHMETIC),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                sink.computed = true;
                while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.at += 1;
                }
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                sink.computed = true;
                self.at += 1;
            }
            _ => sink.quoted('$'),
        }
        self.depth -= 1;
        Ok(())
    }

    fn ansi_quoted(&mut self, sink: &mut Sink) -> Result<(), WordDoubt> {
        loop {
            match self.next().ok_or("a quote that does not end")? {
                '\'' => return Ok(()),
                '\\' => match self.next().ok_or("a quote that does not end")? {
                    'n' => sink.quoted('\n'),
                    't' => sink.quoted('\t'),
                    c @ ('\\' | '\'' | '"' | '?') => sink.quoted(c),
                    // Numeric escapes can spell any text. A command with them is never allowed by a pattern.
                    _ => sink.computed = true,
                },
                c => sink.quoted(c),
            }
        }
    }

    /// After `$((`. Only numbers: the value of a variable is evaluated again and may hold a substitution.
    fn arithmetic(&mut self) -> Result<(), WordDoubt> {
        let mut depth = 0;
        loop {
            match self.next().ok_or("an arithmetic expansion that does not end")? {
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ')' if self.peek() == Some(')') => {
                    self.at += 1;
                    return Ok(());
                }
                '0'..='9' | ' ' | '\t' | '+' | '-' | '*' | '/' | '%' | '<' | '>' | '=' | '!' => {}
                _ => return Err(ARITHMETIC),
            }
        }
    }

    /// After `${`.
    fn braced(&mut self, sink: &mut Sink, context: QuoteContext) -> Result<(), WordDoubt> {
        const UNKNOWN: WordDoubt = "a parameter expansion of a kind that is not judged";
        if self.starts_with("#") && !self.starts_with("#}") {
            self.at += 1;
        }
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.at += 1;
        }
        if self.at == start {
            match self.next() {
                Some('@' | '*' | '#' | '?' | '-' | '$') => {}
                _ => return Err(UNKNOWN),
            }
        }
        match self.next() {
            Some('}') => return Ok(()),
            Some(':') => match self.next() {
                Some('-' | '+' | '?') => {}
                Some(c) if c.is_ascii_digit() => {
                    while self.peek().is_some_and(|c| c.is_ascii_digit() || c == ':') {
                        self.at += 1;
                    }
                    return if self.next() == Some('}') { Ok(()) } else { Err(UNKNOWN) };
                }
                _ => return Err(UNKNOWN),
            },
            Some('-' | '+' | '?' | '%' | '#' | '/' | '^' | ',') => {}
            _ => return Err(UNKNOWN),
        }
        loop {
            match self.next().ok_or("a parameter expansion that does not end")? {
                '}' => return Ok(()),
                '\\' => {
                    self.next().ok_or("a backslash at the end")?;
                }
                '\'' if context == QuoteContext::Word => self.single_quoted(None)?,
                // The shells differ on quotes here, and `<(…)` runs what is in it.
                '\'' | '{' | '<' | '>' | '(' => return Err(UNKNOWN),
                '"' if context == QuoteContext::Word => self.double_quoted(sink, Closing::Quote)?,
                '"' => return Err(UNKNOWN),
                '$' => self.dollar(sink, context)?,
                '`' => self.backquoted(sink, context)?,
                _ => {}
            }
        }
    }

    /// After a backquote.
    fn backquoted(&mut self, sink: &mut Sink, context: QuoteContext) -> Result<(), WordDoubt> {
        let mut body = String::new();
        loop {
            match self.next().ok_or("a backquote that does not end")? {
                '`' => break,
                '\\' => match self.next().ok_or("a backquote that does not end")? {
                    c @ ('`' | '\\' | '$') => body.push(c),
                    '"' if context == QuoteContext::HereDocument => body.push('"'),
                    c => {
                        body.push('\\');
                        body.push(c);
                    }
                },
                c => body.push(c),
            }
        }
        sink.computed = true;
        sink.commands.push(body);
        Ok(())
    }

    /// After `$(`: moves behind its `)`.
    fn skip_substitution(&mut self) -> Result<(), WordDoubt> {
        const OPEN: WordDoubt = "a substitution that does not end";
        let mut unused = Sink::default();
        let mut open = 0;
        let mut word_starts = true;
        let mut documents: Vec<HereEnd> = Vec::new();
        loop {
            if word_starts && self.starts_with("case") {
                return Err(CASE);
            }
            let starts = std::mem::replace(&mut word_starts, false);
            match self.next().ok_or(OPEN)? {
                '\\' => {
                    self.next().ok_or(OPEN)?;
                }
                '\'' => self.single_quoted(None)?,
                '"' => self.double_quoted(&mut unused, Closing::Quote)?,
                '$' => self.dollar(&mut unused, QuoteContext::Word)?,
                '`' => self.backquoted(&mut unused, QuoteContext::Word)?,
                '#' if starts => {
                    while self.peek().is_some_and(|c| c != '\n') {
                        self.next();
                    }
                }
                '(' => {
                    open += 1;
                    word_starts = true;
                }
                ')' if open == 0 => {
                    return if documents.is_empty() {
                        Ok(())
                    } else {
                        Err("a here-document that does not end")
                    };
                }
                ')' => {
                    open -= 1;
                    word_starts = true;
                }
                '<' if self.starts_with("<<") => self.at += 2,
                '<' if self.starts_with("<") => {
                    self.at += 1;
                    documents.push(self.here_end()?);
                }
                '\n' => {
                    for end in documents.drain(..) {
                        self.skip_document(&end)?;
                    }
                    word_starts = true;
                }
                ' ' | '\t' | ';' | '&' | '|' | '<' | '>' => word_starts = true,
                _ => {}
            }
        }
    }

    fn here_end(&mut self) -> Result<HereEnd, WordDoubt> {
        let tabs = self.starts_with("-");
        if tabs {
            self.at += 1;
        }
        while matches!(self.peek(), Some(' ' | '\t')) {
            self.at += 1;
        }
        let start = self.at;
        while self.peek().is_some_and(|c| !" \t\n;&|()<>".contains(c)) {
            self.next();
        }
        let (word, quoted) = here_delimiter(&self.text[start..self.at])?;
        Ok(HereEnd { word: word.to_owned(), tabs, quoted })
    }

    fn skip_document(&mut self, end: &HereEnd) -> Result<(), WordDoubt> {
        loop {
            let rest = &self.text[self.at..];
            let (line, length) = match rest.find('\n') {
                Some(length) => (&rest[..length], length + 1),
                None => (rest, rest.len()),
            };
            if !end.quoted && line.ends_with('\\') {
                return Err("a joined line in a here-document");
            }
            let bare = if end.tabs { line.trim_start_matches('\t') } else { line };
            self.at += length;
            if bare == end.word {
                return Ok(());
            }
            if self.at >= self.text.len() {
                return Err("a here-document that does not end");
            }
        }
    }
}

struct HereEnd {
    word: String,
    tabs: bool,
    quoted: bool,
}

/// The delimiter of a here-document and whether it is quoted. Odd spellings are refused: the shells do not
/// agree on them.
pub(crate) fn here_delimiter(raw: &str) -> Result<(&str, bool), WordDoubt> {
    let inner = [('\'', '\''), ('"', '"')]
        .iter()
        .find_map(|&(open, close)| raw.strip_prefix(open)?.strip_suffix(close))
        .or_else(|| raw.strip_prefix('\\'));
    let (word, quoted) = inner.map_or((raw, false), |inner| (inner, true));
    if !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
        Ok((word, quoted))
    } else {
        Err("a here-document with an odd end mark")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(raw: &str, context: QuoteContext) -> Result<(Word, Vec<String>), WordDoubt> {
        scan(raw, context, Path::new("/home/me")).map(|scanned| (scanned.word, scanned.commands))
    }

    fn word(raw: &str) -> Result<(Word, Vec<String>), WordDoubt> {
        read(raw, QuoteContext::Word)
    }

    #[track_caller]
    fn literal(raw: &str, text: &str) {
        assert_eq!(word(raw), Ok((Word::Literal(text.to_owned()), Vec::new())), "{raw}");
    }

    #[track_caller]
    fn computed(raw: &str, commands: &[&str]) {
        let commands = commands.iter().map(|&command| command.to_owned()).collect();
        assert_eq!(word(raw), Ok((Word::Computed(raw.to_owned()), commands)), "{raw}");
    }

    #[track_caller]
    fn refused(raw: &str, why: &str) {
        assert_eq!(word(raw).map_err(str::to_owned), Err(why.to_owned()), "{raw}");
    }

    const KIND: &str = "a parameter expansion of a kind that is not judged";

    #[test]
    fn quotes_are_removed_as_the_shell_does() {
        literal(r#"$'a\n\t\\\'\"\?b'"#, "a\n\t\\'\"?b");
        computed(r"$'\x41'", &[]);
        refused(r#"$"x""#, "a text that is translated");
        literal(r#""$'x'""#, "$'x'");
        literal(r#""a$""#, "a$");
        literal("$", "$");
        literal("$%", "$%");
        let document = read("a \"b\" 'c'", QuoteContext::HereDocument);
        assert_eq!(document, Ok((Word::Literal("a \"b\" 'c'".to_owned()), Vec::new())));
    }

    #[test]
    fn variables_and_parameters_are_known_only_when_the_shell_runs() {
        for raw in ["$a", "$_x", "$1", "$?", "$$", "$@"] {
            computed(raw, &[]);
        }
        refused("$$(x)", "a word with an unquoted separator in it");
        for raw in ["${a}", "${#a}", "${#}", "${@}", "${?}", "${a%b}", "${a#b}", "${a/b/c}", "${a-b}"] {
            computed(raw, &[]);
        }
        for raw in ["${a:-b}", "${a:0}", "${a:0:2}", "${a:-'}'}", "${a:-\"x}\"}", r"${a:-\'}", r"${a:-\}}"] {
            computed(raw, &[]);
        }
        computed("${a:-$(x)}", &["x"]);
        computed("${a:-`x`}", &["x"]);
        for raw in ["${!a}", "${a|b}", "${a:x}", "${a:0:x}", "${a:-<(x)}", "${a:-{b}"] {
            refused(raw, KIND);
        }
        // The shells differ on quotes within quotes.
        for raw in [r#""${a:-'x'}""#, r#""${a:-"x"}""#] {
            refused(raw, KIND);
        }
    }

    #[test]
    fn arithmetic_is_judged_when_it_has_only_numbers() {
        computed("$((1+(2*3)))", &[]);
        computed("$(((1)+(2)))", &[]);
        for raw in ["$((a))", "$((1)x)", "$((1) )", "$[1]"] {
            refused(raw, ARITHMETIC);
        }
        refused("$((1+(2)", "an arithmetic expansion that does not end");
    }

    #[test]
    fn substitutions_nest_so_deep_and_follow_each_other_at_will() {
        let nested = |depth: usize| format!("{}x{}", "${a:-".repeat(depth), "}".repeat(depth));
        computed(&nested(MAX_DEPTH), &[]);
        refused(&nested(MAX_DEPTH + 1), "substitutions nested too deep");
        computed(&"$a".repeat(3 * MAX_DEPTH), &[]);
    }

    #[test]
    fn the_line_of_a_substitution_ends_at_its_own_parenthesis() {
        for line in [
            "echo \\)",
            "echo ')'",
            "echo \")\"",
            "echo `)`",
            "echo a # )\n",
            "echo a#b",
            "echo a;# )\n",
            " (echo a)",
            "cat <<<x",
            "cat <<E\n)\nE\n",
            "cat << E\n)\nE\n",
            "cat <<-E\n\t)\n\tE\n",
            "cat <<'E'\nx\\\nE\n",
        ] {
            computed(&format!("$({line})"), &[line]);
        }
        refused("$(cat <<E\nx\\\nE\n)", "a joined line in a here-document");
        refused("$(cat <<E\nx\n)", "a here-document that does not end");
        refused("$(cat <<E)", "a here-document that does not end");
        refused("$(cat << \n)", "a here-document with an odd end mark");
        refused("$(echo", "a substitution that does not end");
        // A backslash before a quote stays in backquotes, and goes in quoted ones.
        computed("`echo \\\"x\\\"`", &["echo \\\"x\\\""]);
        computed("\"`echo \\\"x\\\"`\"", &["echo \"x\""]);
    }

    #[test]
    fn a_whole_line_is_balanced_or_not() {
        for line in ["echo x", "(echo)", "echo ')'", "cat <<E\n(\nE", "case x in a) ls;; esac"] {
            assert_eq!(balanced(line), Ok(()), "{line}");
        }
        assert_eq!(balanced("echo )"), Err("a parenthesis too many"));
        assert_eq!(balanced("(echo"), Err("a substitution that does not end"));
        assert_eq!(balanced("echo 'x"), Err("a quote that does not end"));
    }

    #[test]
    fn names_that_are_declared() {
        let name = |word: Word| declared_name(&word).map(str::to_owned);
        let plain = |text: &str| name(Word::Literal(text.to_owned()));
        for (text, wanted) in [("A", "A"), ("_a", "_a"), ("a1=x", "a1"), ("A+=x", "A")] {
            assert_eq!(plain(text).as_deref(), Some(wanted));
        }
        for text in ["", "1a", "a-b", "-a", "a-b=x", "=x"] {
            assert_eq!(plain(text), None, "{text}");
        }
        // What is computed may be more than a name.
        assert_eq!(name(Word::Computed("AB".to_owned())), None);
        assert_eq!(name(Word::Computed("A=$x".to_owned())).as_deref(), Some("A"));
        for (raw, wanted) in
            [("{fd}", true), ("{f_d}", true), ("{a[1]}", true), ("{}", false), ("{a-b}", false)]
        {
            assert_eq!(names_descriptor(raw), wanted, "{raw}");
        }
    }
}
