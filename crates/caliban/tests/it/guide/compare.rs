//! Compares the output that a page shows with what a command printed.
//!
//! - `…` stands for any text within a line; alone on a line, for any number of lines.
//! - An id (8, 10, 16 or 40 hexadecimal characters, or a UUID) stands for one real id: the same one each time it is shown.
//!   Commands that name it, or its beginning, get the real one ([`Names::put_into`]).
//! - Times, and numbers that differ from run to run (durations, sizes, counts of tokens), match others of their kind.
//! - White space is compared as one space: columns are as wide as their content.

/// Which real id an id of the page stands for.
#[derive(Clone, Debug, Default)]
pub(super) struct Names(Vec<(String, String)>);

enum Piece {
    Char(char),
    Any,
    Id(String),
    Time,
    Number,
}

impl Names {
    /// Whether the output is what the page shows. Ids that were seen first here are remembered then.
    pub(super) fn agree(&mut self, shown: &str, real: &str) -> bool {
        let shown: Vec<&str> = shown.trim_end().lines().collect();
        let real: Vec<String> = real.trim_end().lines().map(squeezed).collect();
        let found = lines(&shown, &real, self.clone());
        found.map(|names| *self = names).is_some()
    }

    /// The command with real ids in it.
    pub(super) fn put_into(&self, command: &str) -> String {
        let mut out = String::new();
        let mut rest = command;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
            out.push_str(&rest[..start]);
            let word = rest[start..].find(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
            let (word, after) = rest[start..].split_at(word.unwrap_or(rest.len() - start));
            let known = self.0.iter().find(|(shown, _)| word.len() >= 4 && shown.starts_with(word));
            out.push_str(known.map_or(word, |(_, real)| real));
            rest = after;
        }
        out + rest
    }

    fn bind(mut self, shown: &str, real: &str) -> Option<Self> {
        match self.0.iter().find(|(known, _)| known.starts_with(shown)) {
            Some((_, bound)) => bound.starts_with(real).then_some(self),
            None => {
                self.0.push((shown.to_owned(), real.to_owned()));
                Some(self)
            }
        }
    }
}

fn lines(shown: &[&str], real: &[String], names: Names) -> Option<Names> {
    let Some((first, rest)) = shown.split_first() else { return real.is_empty().then_some(names) };
    if first.trim() == "…" {
        return (0..=real.len()).find_map(|skip| lines(rest, &real[skip..], names.clone()));
    }
    let (line, more) = real.split_first()?;
    lines(rest, more, one(&pieces(&squeezed(first)), line, names)?)
}

fn one(pieces: &[Piece], real: &str, names: Names) -> Option<Names> {
    let Some((piece, rest)) = pieces.split_first() else { return real.is_empty().then_some(names) };
    let taken = match piece {
        Piece::Char(wanted) => real.starts_with(*wanted).then(|| wanted.len_utf8())?,
        Piece::Any => {
            let mut cuts = real.char_indices().map(|(at, _)| at).chain([real.len()]);
            return cuts.find_map(|at| one(rest, &real[at..], names.clone()));
        }
        Piece::Id(shown) => {
            let id = id_at(real).filter(|id| id.len() == shown.len())?;
            return one(rest, &real[id.len()..], names.bind(shown, id)?);
        }
        Piece::Time => time_at(real)?,
        Piece::Number => number_at(real)?,
    };
    one(rest, &real[taken..], names)
}

fn pieces(line: &str) -> Vec<Piece> {
    let timed = line.char_indices().any(|(at, _)| time_at(&line[at..]).is_some());
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(next) = line[at..].chars().next() {
        let rest = &line[at..];
        let begins = !line[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
        let id = id_at(rest).filter(|id| begins && id.contains(|c: char| c.is_ascii_digit()));
        let (piece, length) = if next == '…' {
            (Piece::Any, next.len_utf8())
        } else if let Some(length) = time_at(rest) {
            (Piece::Time, length)
        } else if let Some(id) = id {
            (Piece::Id(id.to_owned()), id.len())
        } else if let Some(length) =
            number_at(rest).filter(|length| begins && (timed || varies(rest, *length)))
        {
            (Piece::Number, length)
        } else {
            (Piece::Char(next), next.len_utf8())
        };
        pieces.push(piece);
        at += length;
    }
    pieces
}

/// Whether a number differs from run to run.
fn varies(text: &str, length: usize) -> bool {
    let (number, after) = text.split_at(length);
    let unit = ["s", " s ", " ms", " tokens", " MiB"].iter().any(|unit| after.starts_with(unit));
    number.contains(['.', 'k']) || number.len() >= 3 || unit
}

fn id_at(text: &str) -> Option<&str> {
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let uuid = text.get(..36).filter(|uuid| {
        uuid.char_indices().all(|(at, c)| if [8, 13, 18, 23].contains(&at) { c == '-' } else { hex(c) })
    });
    if uuid.is_some() {
        return uuid;
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let word = &text[..end];
    ([8, 10, 16, 40].contains(&word.len()) && word.chars().all(hex)).then_some(word)
}

/// `2026-11-16 00:10`, and what RFC 3339 makes of it.
fn time_at(text: &str) -> Option<usize> {
    let shape = text.get(..16)?.chars().map(|c| if c.is_ascii_digit() { '0' } else { c });
    let shape: String = shape.collect();
    let rest = &text[16..];
    let more = rest.find(|c: char| !(c.is_ascii_digit() || ":.Z+".contains(c))).unwrap_or(rest.len());
    ["0000-00-00 00:00", "0000-00-00T00:00"].contains(&shape.as_str()).then_some(16 + more)
}

/// Digits, with a fraction and a `k` if there are any.
fn number_at(text: &str) -> Option<usize> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let mut end = digits(text);
    if end == 0 {
        return None;
    }
    if let Some(rest) = text[end..].strip_prefix('.') {
        let fraction = digits(rest);
        end += if fraction == 0 { 0 } else { 1 + fraction };
    }
    Some(end + usize::from(text[end..].starts_with('k')))
}

fn squeezed(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn output_is_compared_as_the_rules_say() {
    let mut names = Names::default();
    let mut agree = |shown: &str, real: &str| names.agree(shown, real);
    assert!(agree("a3f8b2c1  done  2s  1.7k  finished", "0011aaff done 12s   950 finished\n"));
    assert!(agree("a3f8b2c1 at 2026-11-16 00:10, exit 3", "0011aaff at 2027-01-02 13:14, exit 3"));
    assert!(agree("first\n…\nlast: …", "first\n1\n2\nlast: words"));
    assert!(agree("fa9b1dea-b2be-4faf-8f84-5cf4a8c9be41", "00000000-b2be-4faf-8f84-5cf4a8c9be41"));
    assert!(agree("from:fa9b1dea", "from:00000000"));
    assert!(!agree("a3f8b2c1", "ffffffff"), "another agent");
    assert!(!agree("exit 3", "exit 4"));
    assert!(!agree("one line", "one line\nand more"));
    assert!(!agree("a word", "a wort"));
    assert_eq!(names.put_into("caliban logs a3f8 | wc -l"), "caliban logs 0011aaff | wc -l");
    assert_eq!(names.put_into("x --to fa9b1dea"), "x --to 00000000-b2be-4faf-8f84-5cf4a8c9be41");
}
