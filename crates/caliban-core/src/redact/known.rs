//! What is known of secrets: how keys begin, and what variables are called that hold one. The facts are in `secrets.json`.

use std::{ops::Range, sync::LazyLock};

use serde::Deserialize;

/// How far behind its beginning a key is looked at to see whether it is one: so a text of almost-keys costs no more than its
/// length.
const LOOK: usize = 64;

/// A kind of key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Format {
    /// What stands in its place.
    kind: String,
    begins: Vec<String>,
    /// How much follows its beginning at least.
    least: usize,
    /// What follows.
    #[serde(default)]
    of: Characters,
    /// Whether the beginning is no part of the secret.
    #[serde(default)]
    shows_beginning: bool,
}

/// Besides letters, digits, `_` and `-`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Characters {
    #[default]
    Word,
    /// `.`
    Dotted,
    /// `+`, `/`, `=`
    Base64,
    /// `/`
    Path,
    /// `%`, `+`, `/`, `=`: of an address, between `&` and `&`.
    Query,
    /// Only digits and `a` to `f`.
    Hex,
}

impl Characters {
    fn has(self, byte: u8) -> bool {
        let more: &[u8] = match self {
            Self::Hex => return matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
            Self::Word => b"",
            Self::Dotted => b".",
            Self::Base64 => b"+/=",
            Self::Path => b"/",
            Self::Query => b"%+/=",
        };
        super::is_word(byte) || more.contains(&byte)
    }
}

/// A key without a beginning of its own, known by the name that it is assigned to: `name=…`, `"name": "…"`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AssignedKey {
    pub(super) kind: String,
    /// In small letters; a longer name may end so.
    names: Vec<String>,
    pub(super) least: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretNames {
    words: Vec<String>,
    /// Also without a separator before them, where they begin without one. Not `KEY`: `MONKEY` is none. `AUTH` only as a word:
    /// `SSH_AUTH_SOCK` is a path.
    endings: Vec<String>,
    whole: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownFormats {
    /// The day on which the formats were looked at last.
    #[serde(rename = "compared")]
    _compared: String,
    formats: Vec<Format>,
    assigned: Vec<AssignedKey>,
    names: SecretNames,
}

static KNOWN: LazyLock<Option<KnownFormats>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../secrets.json")).ok());

/// The beginnings of keys by their first byte: most words of a text are none after one look.
static BEGINNINGS: LazyLock<Vec<Vec<(&'static str, &'static Format)>>> = LazyLock::new(|| {
    let mut by_byte = vec![Vec::new(); usize::from(u8::MAX) + 1];
    for format in KNOWN.iter().flat_map(|known| &known.formats) {
        for begin in &format.begins {
            let first = begin.bytes().next().unwrap_or_default();
            by_byte[usize::from(first)].push((begin.as_str(), format));
        }
    }
    by_byte
});

/// A key that begins here.
pub(super) fn key_at(bytes: &[u8], at: usize) -> Option<(Range<usize>, &'static str)> {
    let rest = &bytes[at..];
    for (begin, format) in &BEGINNINGS[usize::from(*rest.first()?)] {
        if !rest.starts_with(begin.as_bytes()) {
            continue;
        }
        let behind = &rest[begin.len()..];
        let is_in = |byte: &&u8| format.of.has(**byte);
        let look = &behind[..behind.len().min(format.least.max(LOOK))];
        let length = look.iter().take_while(is_in).count();
        // Keys are random and so have a digit; `sk-learn-compatible-estimators` has none.
        if length < format.least || !look[..length].iter().any(u8::is_ascii_digit) {
            continue;
        }
        let end = at + begin.len() + behind.iter().take_while(is_in).count();
        let start = if format.shows_beginning { at + begin.len() } else { at };
        return Some((start..end, &format.kind));
    }
    None
}

/// The key that is assigned to this name.
pub(super) fn assigned_to(word: &[u8]) -> Option<&'static AssignedKey> {
    let ends_with = |name: &String| {
        let at = word.len().checked_sub(name.len());
        at.is_some_and(|at| word[at..].eq_ignore_ascii_case(name.as_bytes()))
    };
    KNOWN.iter().flat_map(|known| &known.assigned).find(|key| key.names.iter().any(ends_with))
}

/// What of a text follows a known beginning.
pub(super) fn behind_beginning(text: &str) -> impl Iterator<Item = &str> {
    let formats = KNOWN.iter().flat_map(|known| &known.formats);
    formats.flat_map(|format| &format.begins).filter_map(move |begin| text.strip_prefix(begin.as_str()))
}

/// Whether a variable of this name holds a secret: `FOO_TOKEN`, `API_KEY`, `PGPASSWORD`, `db-password`, `npm_config__auth`.
pub fn is_secret_name(name: &str) -> bool {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    KNOWN.as_ref().is_none_or(|KnownFormats { names, .. }| {
        name.split('_').any(|part| names.words.iter().any(|word| word == part))
            || names.endings.iter().any(|ending| name.ends_with(ending.as_str()))
            || names.whole.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_and_each_beginning_is_known_once() {
        let known = KNOWN.as_ref().expect("secrets.json is valid");
        let mut begins: Vec<&String> = known.formats.iter().flat_map(|format| &format.begins).collect();
        let count = begins.len();
        begins.sort();
        begins.dedup();
        assert_eq!(begins.len(), count);
        // A longer beginning stands before the shorter one that hides it.
        for (at, format) in known.formats.iter().enumerate() {
            for later in known.formats[at + 1..].iter().flat_map(|format| &format.begins) {
                assert!(!format.begins.iter().any(|begin| later.starts_with(begin.as_str())), "{later}");
            }
        }
    }
}
