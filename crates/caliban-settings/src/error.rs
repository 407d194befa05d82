//! What is wrong with a setting: where, what was found, what was expected, and a hint.
//!
//! Owns the translation of TOML's and serde's messages into plain words.

use std::{fmt, path::PathBuf};

use super::{layer::Source, values::close_match};

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingsError {
    /// Where it is.
    pub place: SettingPlace,
    /// What was found and what was expected.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Where a wrong setting is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingPlace {
    /// In a file, as a whole.
    File(PathBuf),
    /// At a position in a file, both counted from one.
    Position {
        /// Which file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
    /// On a line of a file, counted from one.
    Line {
        /// Which file.
        path: PathBuf,
        /// The line.
        line: usize,
    },
    /// In a variable of the environment.
    Variable(String),
    /// In this flag.
    Flag(String),
    /// Nowhere in particular.
    Nowhere,
}

impl SettingsError {
    /// An error without a hint.
    pub fn new(place: SettingPlace, message: impl Into<String>) -> Self {
        Self { place, message: message.into(), hint: None }
    }

    /// The same error with a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// An error of TOML or serde at its position in `text`.
    pub fn from_toml(path: PathBuf, text: &str, error: &toml::de::Error) -> Self {
        let place = match error.span() {
            Some(span) => {
                let (line, column) = position(text, span.start);
                SettingPlace::Position { path, line, column }
            }
            None => SettingPlace::File(path),
        };
        let (message, hint) = plain_words(error.message());
        Self { place, message, hint }
    }
}

impl From<Source> for SettingPlace {
    fn from(source: Source) -> Self {
        match source {
            Source::Default => Self::Nowhere,
            Source::File { path, line: 0 } => Self::File(path),
            Source::File { path, line } => Self::Line { path, line },
            Source::Environment(name) => Self::Variable(name),
            Source::Flag(name) => Self::Flag(name),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            SettingPlace::File(path) => write!(out, "{}: {}", path.display(), self.message),
            SettingPlace::Position { path, line, column } => {
                write!(out, "{}:{line}:{column}: {}", path.display(), self.message)
            }
            SettingPlace::Line { path, line } => write!(out, "{}:{line}: {}", path.display(), self.message),
            SettingPlace::Flag(name) => write!(out, "{name}: {}", self.message),
            SettingPlace::Variable(name) => write!(out, "the environment variable {name}: {}", self.message),
            SettingPlace::Nowhere => out.write_str(&self.message),
        }
    }
}

impl std::error::Error for SettingsError {}

/// Line and column of a byte offset, both counted from one; columns in characters.
pub fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    let before = text.get(..offset).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

/// Serde's message in plain words, and a hint where one can be given.
fn plain_words(message: &str) -> (String, Option<String>) {
    let message = message.trim().replace('\n', " ");
    if let Some((key, expected)) = unknown(&message, "unknown field ") {
        let hint = match close_match(&key, expected.iter().map(String::as_str)) {
            Some(close) => format!("did you mean `{close}`?"),
            None => format!("the keys here are {}", expected.join(", ")),
        };
        return (format!("unknown key `{key}`"), Some(hint));
    }
    if let Some((word, expected)) = unknown(&message, "unknown variant ") {
        let close = close_match(&word, expected.iter().map(String::as_str));
        let hint = close.map(|close| format!("did you mean `{close}`?"));
        return (format!("found `{word}`, expected {}", one_of(&expected)), hint);
    }
    for prefix in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) =
            message.strip_prefix(prefix).and_then(|rest| rest.rsplit_once(", expected "))
        {
            return (format!("found {}, expected {}", found_words(found), expected_words(expected)), None);
        }
    }
    if let Some(field) = message.strip_prefix("missing field ") {
        return (format!("the key {field} is missing"), None);
    }
    (message, None)
}

/// Splits ``unknown field `x`, expected one of `a`, `b` ``.
fn unknown(message: &str, prefix: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix(prefix)?.strip_prefix('`')?;
    let (word, expected) = match rest.rsplit_once("`, expected ") {
        Some(split) => split,
        // A type without any field: `unknown field x, there are no fields`.
        None => (rest.split_once('`')?.0, ""),
    };
    let expected = expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    Some((word.to_owned(), expected))
}

/// `a`, `a or b`, `a, b or c`, each in backquotes.
fn one_of(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn found_words(found: &str) -> String {
    match found {
        "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        other => {
            for kind in ["string", "integer", "floating point", "boolean"] {
                if let Some(value) = other.strip_prefix(kind) {
                    return value.trim().replace('`', "");
                }
            }
            other.to_owned()
        }
    }
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "a nonzero u32" | "a nonzero u64" => "a whole number above 0",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a table",
        "path string" => "a path",
        struct_ if struct_.starts_with("struct ") => "a table",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        assert_eq!(position("a = 1\nbü = 2\n", 0), (1, 1));
        assert_eq!(position("a = 1\nbü = 2\n", 9), (2, 3));
        assert_eq!(position("ü", 1), (1, 1));
        assert_eq!(position("", 7), (1, 1));
    }

    #[test]
    fn messages_become_plain_words() {
        let cases = [
            (
                "unknown field `modle`, expected `model` or `mode`",
                "unknown key `modle`",
                Some("did you mean `model`?"),
            ),
            (
                "unknown field `zzz`, expected one of `model`, `effort`",
                "unknown key `zzz`",
                Some("the keys here are model, effort"),
            ),
            (
                "unknown variant `plam`, expected one of `default`, `plan`",
                "found `plam`, expected `default` or `plan`",
                Some("did you mean `plan`?"),
            ),
            (
                "invalid type: string \"x\", expected u64",
                "found \"x\", expected a whole number, 0 or more",
                None,
            ),
            (
                "invalid value: integer `0`, expected a nonzero u32",
                "found 0, expected a whole number above 0",
                None,
            ),
            ("invalid type: integer `3`, expected struct Limits", "found 3, expected a table", None),
            ("missing field `command`", "the key `command` is missing", None),
        ];
        for (given, message, hint) in cases {
            assert_eq!(plain_words(given), (message.to_owned(), hint.map(str::to_owned)), "{given}");
        }
    }
}
