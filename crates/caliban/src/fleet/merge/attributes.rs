//! What git would do to a file on its way into a commit, by the attributes of the commit that it goes on: line ends we
//! convert ourselves; what only a program can do is refused, because none is run on an agent's files.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use caliban_core::inert;

use super::super::git::{self, Git};
use crate::report::Failure;

/// The attributes that change what is committed.
const ASKED: [&str; 5] = ["filter", "working-tree-encoding", "ident", "text", "eol"];

/// What becomes of a file on its way into a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Treatment {
    /// Committed byte for byte.
    Kept,
    /// CRLF becomes LF.
    Text,
    /// The same, when it looks like text and the commit before has it without CRLF.
    Guessed,
    /// Only a program could do it; why.
    Refused(String),
}

/// How each of `paths` goes into a commit on `before`.
pub(super) async fn treatments(
    tree: &Path,
    before: &str,
    paths: &[PathBuf],
) -> Result<BTreeMap<PathBuf, Treatment>, Failure> {
    let mut treatments = BTreeMap::new();
    if paths.is_empty() {
        return Ok(treatments);
    }
    let asked: Vec<u8> =
        paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
    let answer = Git::plain(tree)
        .args(["check-attr", "-z", "--stdin", "--source", before])
        .args(ASKED)
        .feed(move |out| out.write_all(&asked).map_err(|error| git::gone(&error)))
        .await?;
    let converts = Git::plain(tree).args(["config", "--get", "core.autocrlf"]).output().await?;
    let converts = matches!(converts.stdout.trim_ascii(), b"true" | b"input" | b"yes" | b"on" | b"1");
    let answer: Vec<&[u8]> = answer.split(|byte| *byte == 0).collect();
    for values in answer.chunks_exact(3 * ASKED.len()) {
        let path = Path::new(OsStr::from_bytes(values[0]));
        let value = |n: usize| Value::read(values[3 * n + 2]);
        let treatment = match program(tree, [value(0), value(1), value(2)]).await? {
            Some(why) => Treatment::Refused(why),
            None => decide(value(3), value(4), converts),
        };
        treatments.insert(path.to_owned(), treatment);
    }
    Ok(treatments)
}

/// `CRLF` as `LF`.
pub(super) fn converted(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter().peekable();
    while let Some(byte) = rest.next() {
        if *byte != b'\r' || rest.peek() != Some(&&b'\n') {
            out.push(*byte);
        }
    }
    out
}

/// Whether there is a line that ends in CRLF.
pub(super) fn has_crlf(bytes: &[u8]) -> bool {
    bytes.windows(2).any(|pair| pair == b"\r\n")
}

/// Whether git would take it for text where it has to guess.
pub(super) fn looks_like_text(bytes: &[u8]) -> bool {
    let is_lone = |n: usize| bytes[n] == b'\r' && bytes.get(n + 1) != Some(&b'\n');
    !bytes.contains(&0) && !(0..bytes.len()).any(is_lone)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value<'a> {
    Unspecified,
    Unset,
    Set,
    To(&'a [u8]),
}

impl<'a> Value<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        match bytes {
            b"unspecified" => Self::Unspecified,
            b"unset" => Self::Unset,
            b"set" => Self::Set,
            other => Self::To(other),
        }
    }
}

fn decide(text: Value<'_>, eol: Value<'_>, converts: bool) -> Treatment {
    match (text, eol) {
        (Value::Unset, _) => Treatment::Kept,
        (Value::Set | Value::To(b"input"), _) => Treatment::Text,
        (Value::To(b"auto"), _) => Treatment::Guessed,
        (_, Value::To(b"lf" | b"crlf")) => Treatment::Text,
        _ if converts => Treatment::Guessed,
        _ => Treatment::Kept,
    }
}

/// What only a program could do to it.
async fn program(tree: &Path, values: [Value<'_>; 3]) -> Result<Option<String>, Failure> {
    let [filter, encoding, ident] = values;
    Ok(match (filter, encoding, ident) {
        (Value::To(name), _, _) if is_configured(tree, name).await? => {
            Some(format!("it goes through the filter {}", inert::quoted(&String::from_utf8_lossy(name))))
        }
        (_, Value::To(_), _) => Some("it is kept in another encoding".to_owned()),
        (_, _, Value::Set) => Some("it has its id put in by git".to_owned()),
        _ => None,
    })
}

/// A filter that nobody configured is none.
async fn is_configured(tree: &Path, name: &[u8]) -> Result<bool, Failure> {
    for part in ["clean", "process"] {
        let mut key = OsStr::new("filter.").to_owned();
        key.push(OsStr::from_bytes(name));
        key.push(format!(".{part}"));
        let found = Git::plain(tree).args(["config", "--get"]).args([key]).output().await?;
        if found.status.success() && !found.stdout.trim_ascii().is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_follow_the_attributes() {
        use Value::{Set, To, Unset, Unspecified};
        let table = [
            (Unspecified, Unspecified, false, Treatment::Kept),
            (Unspecified, Unspecified, true, Treatment::Guessed),
            (Unset, To(b"crlf"), true, Treatment::Kept),
            (Set, Unspecified, false, Treatment::Text),
            (To(b"auto"), To(b"crlf"), false, Treatment::Guessed),
            (Unspecified, To(b"crlf"), false, Treatment::Text),
            (To(b"what"), Unspecified, false, Treatment::Kept),
        ];
        for (text, eol, converts, expected) in table {
            assert_eq!(decide(text, eol, converts), expected, "{text:?} {eol:?} {converts}");
        }
    }

    #[test]
    fn only_crlf_is_converted() {
        assert_eq!(converted(b"a\r\nb\rc\r\r\n\r"), b"a\nb\rc\r\n\r");
        assert!(has_crlf(b"a\r\n") && !has_crlf(b"a\rb\n"));
        assert!(looks_like_text(b"a\r\nb\n") && !looks_like_text(b"a\rb") && !looks_like_text(b"a\0\r\n"));
    }
}
