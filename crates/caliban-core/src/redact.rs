//! Secrets taken out of text before it reaches a disk or a screen.
//!
//! Owns the known shapes of keys and the search for the caller's own secret values. Refuses to guess from
//! prose: `password = x` in source code stays, because a transcript must remain what was said. Time grows with
//! the text and with the number of values, never with the text squared.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use crate::cap;

mod known;
mod unmarked_variables;

pub use known::is_secret_name;
pub use unmarked_variables::{header_secrets, literal_secrets, secret_parts};

/// Values shorter than this are not looked for: they would blank out ordinary text.
pub const MIN_VALUE_CHARS: usize = 8;
/// Up to this length a value of small letters alone is taken for a word and not looked for, either: `postgres`.
const PLAIN_WORD_CHARS: usize = 12;

/// How the place of a secret begins.
const GAP: &str = "[redacted:";

/// Knows the values that must not be shown. All clones know the same: what one learns, the others know.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Kind, text to look for.
    values: Arc<RwLock<Vec<(String, String)>>>,
}

impl std::fmt::Debug for Redactor {
    /// Names only: a redactor that is printed must not be the leak.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_list().entries(values.iter().map(|(name, _)| name)).finish()
    }
}

impl Redactor {
    /// Looks for these values (and the known formats). Names say in the text what was there.
    pub fn new<N: Into<String>, V: Into<String>>(secrets: impl IntoIterator<Item = (N, V)>) -> Self {
        let redactor = Self::default();
        redactor.learn(secrets);
        redactor
    }

    /// Looks for these values as well from now on. What is short or a plain word is left out: it is in texts that have
    /// nothing to do with it, and whoever must judge a call could not read them any more.
    pub fn learn<N: Into<String>, V: Into<String>>(&self, secrets: impl IntoIterator<Item = (N, V)>) {
        let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
        for (name, value) in secrets {
            let (name, value) = (name.into(), value.into());
            let value = value.trim();
            let is_known = || values.iter().any(|(_, known)| known == value);
            if value.chars().count() < MIN_VALUE_CHARS || is_plain_word(value) || is_known() {
                continue;
            }
            // The same value inside a JSON string, when that looks different (quotes, line ends).
            let escaped = serde_json::Value::from(value).to_string();
            let escaped = escaped.trim_matches('"');
            if escaped != value {
                values.push((name.clone(), escaped.to_owned()));
            }
            values.push((name, value.to_owned()));
        }
    }

    /// `text` with every secret replaced by `[redacted:kind]`.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.replace(text, &mut |_| {})
    }

    /// The same, and what was replaced, in order: for a text that lies on a disk and shall be heard whole by whoever is
    /// handed the secrets another way.
    pub fn veil(&self, text: &str) -> (String, Vec<String>) {
        let mut secrets = Vec::new();
        let veiled = self.replace(text, &mut |secret| secrets.push(secret.to_owned())).into_owned();
        (veiled, secrets)
    }

    fn replace<'a>(&self, text: &'a str, taken: &mut dyn FnMut(&str)) -> Cow<'a, str> {
        let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
        let mut found: Vec<(Range<usize>, &str)> = Vec::new();
        for (name, value) in values.iter() {
            found.extend(
                text.match_indices(value.as_str()).map(|(at, _)| (at..at + value.len(), name.as_str())),
            );
        }
        for (name, value) in values.iter() {
            cut_values(text, value, name, &mut found);
        }
        private_keys(text, &mut found);
        url_credentials(text, &mut found);
        tokens(text, &mut found);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        // Leftmost first, the longest of those first: it names what overlaps it.
        found.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut out = String::with_capacity(text.len());
        let mut shown = 0;
        let mut found = found.into_iter().peekable();
        while let Some((Range { start, mut end }, kind)) = found.next() {
            // What only overlaps is swallowed by the one before it.
            while let Some((more, _)) = found.next_if(|(more, _)| more.start < end) {
                end = end.max(more.end);
            }
            out.push_str(&text[shown..start]);
            out.push_str(GAP);
            out.push_str(kind);
            out.push(']');
            taken(&text[start..end]);
            shown = end;
        }
        out.push_str(&text[shown..]);
        Cow::Owned(out)
    }
}

/// Whether something was taken out of a text.
pub fn has_gap(text: &str) -> bool {
    text.contains(GAP)
}

fn is_plain_word(value: &str) -> bool {
    value.len() <= PLAIN_WORD_CHARS && value.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// Puts back what [`Redactor::veil`] took out. A text with another number of gaps stays as it is.
pub fn unveil(text: &str, secrets: &[String]) -> String {
    let mut parts = text.split(GAP);
    let mut out = parts.next().unwrap_or_default().to_owned();
    let mut put = 0;
    for part in parts {
        let (Some((_kind, after)), Some(secret)) = (part.split_once(']'), secrets.get(put)) else {
            return text.to_owned();
        };
        out.push_str(secret);
        out.push_str(after);
        put += 1;
    }
    if put == secrets.len() { out } else { text.to_owned() }
}

/// The least length of a part of a JSON web token.
const JWT_PART: usize = 10;

/// The least length of what follows a bare `Bearer` (after `Authorization:` anything is a secret).
const BARE_BEARER: usize = 16;

/// Keys that are one word, and what follows `Authorization:`, `Bearer` and `x-api-key:`.
///
/// Works on maximal runs of word characters, each looked at once, so that a long run of almost-keys costs
/// no more than its length.
fn tokens(text: &str, found: &mut Vec<(Range<usize>, &str)>) {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !is_word(bytes[at]) {
            at += 1;
            continue;
        }
        let end = run_end(bytes, at);
        let found_here =
            key_in(bytes, at..end).or_else(|| header(bytes, at..end)).or_else(|| bot(bytes, at..end));
        if let Some((range, kind)) = found_here {
            at = range.end.max(end);
            found.push((range, kind));
        } else {
            at = end;
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn run_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|byte| !is_word(*byte)).map_or(bytes.len(), |length| from + length)
}

/// The first known key that begins within a run; it may go on behind it.
fn key_in(bytes: &[u8], run: Range<usize>) -> Option<(Range<usize>, &'static str)> {
    // After `\n` in an escaped string the run begins with that `n`.
    let escaped = run.start > 0 && bytes[run.start - 1] == b'\\';
    let starts_word = |at: usize| {
        at == run.start || !bytes[at - 1].is_ascii_alphanumeric() || (escaped && at == run.start + 1)
    };
    let last_digit = run.clone().rev().find(|at| bytes[*at].is_ascii_digit());
    // The parts after the run are the same wherever in it a web token might begin: looked at once.
    let mut web_token_end = None;
    for at in run.clone().filter(|at| starts_word(*at)) {
        if let Some(found) = known::key_at(bytes, at) {
            return Some(found);
        }
        let rest = &bytes[at..run.end];
        if rest.starts_with(b"eyJ")
            && rest.len() >= JWT_PART
            && last_digit.is_some_and(|digit| digit >= at)
            && let Some(end) = *web_token_end.get_or_insert_with(|| jwt_end(bytes, run.end))
        {
            return Some((at..end, "jwt"));
        }
    }
    None
}

/// The end of a JSON web token whose first part ends at `end`.
fn jwt_end(bytes: &[u8], end: usize) -> Option<usize> {
    let part = |from: usize| {
        (bytes.get(from) == Some(&b'.')).then(|| run_end(bytes, from + 1)).filter(|to| to - from > JWT_PART)
    };
    part(part(end)?)
}

/// What a header or scheme that is this run introduces.
fn header(bytes: &[u8], run: Range<usize>) -> Option<(Range<usize>, &'static str)> {
    let word = &bytes[run.clone()];
    let ends_with = |name: &str| {
        word.len() >= name.len() && word[word.len() - name.len()..].eq_ignore_ascii_case(name.as_bytes())
    };
    if word.eq_ignore_ascii_case(b"bearer") {
        let start = skip(bytes, run.end, b" ");
        let end = secret_end(bytes, start);
        let has_digit = bytes[start..end].iter().any(u8::is_ascii_digit);
        return (start > run.end && end - start >= BARE_BEARER && has_digit)
            .then_some((start..end, "bearer"));
    }
    let assigned = known::assigned_to(word);
    if assigned.is_none() && !ends_with("authorization") && !ends_with("x-api-key") {
        return None;
    }
    let colon = skip(bytes, run.end, b" \"'\\");
    if !matches!(bytes.get(colon), Some(b':' | b'=')) {
        return None;
    }
    let mut start = skip(bytes, colon + 1, b" \"'\\");
    if let Some(key) = assigned {
        let end = secret_end(bytes, start);
        let is_key = end - start >= key.least && bytes[start..end].iter().any(u8::is_ascii_digit);
        return is_key.then_some((start..end, key.kind.as_str()));
    }
    let scheme = run_end(bytes, start);
    if [b"bearer".as_slice(), b"basic", b"token"].iter().any(|s| bytes[start..scheme].eq_ignore_ascii_case(s))
    {
        start = skip(bytes, scheme, b" ");
    }
    let end = secret_end(bytes, start);
    (end > start).then_some((start..end, "authorization"))
}

/// The token of a Telegram bot, whose number ends this run: `bot712345678:AA…`.
fn bot(bytes: &[u8], run: Range<usize>) -> Option<(Range<usize>, &'static str)> {
    const TOKEN: usize = 35;
    let digits = bytes[run.clone()].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let is_bot = (8..=10).contains(&digits) && bytes[run.end..].starts_with(b":AA");
    let end = if is_bot { run_end(bytes, run.end + 1) } else { run.end };
    (end - run.end > TOKEN).then_some((run.end - digits..end, "telegram-token"))
}

fn skip(bytes: &[u8], from: usize, what: &[u8]) -> usize {
    bytes[from..].iter().position(|byte| !what.contains(byte)).map_or(bytes.len(), |length| from + length)
}

/// The end of what can be in a header's value: `+`, `/`, `=`, `.`, `~` too. ASCII, so a character boundary.
fn secret_end(bytes: &[u8], from: usize) -> usize {
    let inside = |byte: &u8| is_word(*byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=');
    bytes[from..].iter().position(|byte| !inside(byte)).map_or(bytes.len(), |length| from + length)
}

/// How many gaps of a text are looked at: our own cut makes one.
const GAPS: usize = 16;

/// A value that a cut in the middle of the text (`cap::middle`) has gone through: its beginning before the gap, its end
/// behind it. What is shorter than a value has to be is left: nobody can tell it from other text.
fn cut_values<'a>(text: &str, value: &str, name: &'a str, found: &mut Vec<(Range<usize>, &'a str)>) {
    let parts = || value.char_indices().map(|(at, _)| at);
    for (at, _) in text.match_indices(cap::GAP_BEGINS).take(GAPS) {
        let before = &text[..at];
        let longest = parts().rev().find(|part| before.ends_with(&value[..*part]));
        if let Some(part) = longest.filter(|part| value[..*part].chars().count() >= MIN_VALUE_CHARS) {
            found.push((at - part..at, name));
        }
    }
    for (at, mark) in text.match_indices(cap::GAP_ENDS).take(GAPS) {
        let start = at + mark.len();
        let after = &text[start..];
        let longest = parts().find(|part| after.starts_with(&value[*part..]));
        if let Some(part) = longest.filter(|part| value[*part..].chars().count() >= MIN_VALUE_CHARS) {
            found.push((start..start + value.len() - part, name));
        }
    }
}

/// PEM blocks of private keys; one without an end goes to the end of the text.
fn private_keys(text: &str, found: &mut Vec<(Range<usize>, &str)>) {
    const BEGIN: &str = "-----BEGIN ";
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(start) = text[at..].find(BEGIN).map(|offset| at + offset) {
        at = start + BEGIN.len();
        // Ends before the next `-----BEGIN `: each byte is looked at once.
        let header = &bytes[at..];
        let name =
            header.iter().position(|byte| !byte.is_ascii_uppercase() && !matches!(byte, b' ' | b'0'..=b'9'));
        let name = &header[..name.unwrap_or(header.len())];
        if !name.windows(b"PRIVATE KEY".len()).any(|window| window == b"PRIVATE KEY") {
            continue;
        }
        let body = at + name.len();
        let end = text[body..].find("-----END ").map_or(text.len(), |offset| {
            let close = body + offset + "-----END ".len();
            text[close..].find("-----").map_or(text.len(), |dashes| close + dashes + "-----".len())
        });
        found.push((start..end, "private-key"));
        at = end;
    }
}

/// `scheme://user:password@host`: the password; `scheme://token@host`: the token, when it is long.
fn url_credentials(text: &str, found: &mut Vec<(Range<usize>, &str)>) {
    /// A user name is shorter.
    const TOKEN_CHARS: usize = 16;
    for (at, mark) in text.match_indices("://") {
        let start = at + mark.len();
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "/?#\"'<>`".contains(c)).unwrap_or(rest.len());
        // The last `@`: a password may have one itself.
        let Some(user) = rest[..end].rfind('@').map(|at| &rest[..at]) else { continue };
        match user.find(':') {
            Some(colon) if colon + 1 < user.len() => {
                found.push((start + colon + 1..start + user.len(), "url-password"));
            }
            None if user.len() >= TOKEN_CHARS => found.push((start..start + user.len(), "url-token")),
            Some(_) | None => {}
        }
    }
}
