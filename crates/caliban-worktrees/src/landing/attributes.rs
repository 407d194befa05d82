//! What git would do to a file on its way into a commit, by the attributes of the commit that it goes on. We convert line
//! ends ourselves. A file that only a program could convert is refused, because none is run on an agent's files.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::refusal::CannotCommit;
use crate::error::Result;
use crate::marker::Oid;
use crate::repo::Repo;

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
    /// Only a program could do it.
    Refused(CannotCommit),
}

impl Repo {
    /// How each of `paths` goes into a commit on `before`. Asked with the user's configuration and attributes, which count
    /// for the commit; asking runs no program.
    pub(super) async fn treatments(
        &self,
        before: &Oid,
        paths: &[PathBuf],
    ) -> Result<BTreeMap<PathBuf, Treatment>> {
        let mut treatments = BTreeMap::new();
        if paths.is_empty() {
            return Ok(treatments);
        }
        let asked = paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\0"].concat()).collect();
        let call = self.git.trusted(self.users_directory(), "check-attr").args(["-z", "--stdin", "--source"]);
        let answer = call.arg(before.as_str()).args(ASKED).stdin(asked).ok().await?;
        let converts = self.users_setting("core.autocrlf".as_ref()).await?;
        let converts = matches!(converts.as_slice(), b"true" | b"input" | b"yes" | b"on" | b"1");
        let answer: Vec<&[u8]> = answer.stdout.split(|byte| *byte == 0).collect();
        for values in answer.chunks_exact(3 * ASKED.len()) {
            let path = Path::new(OsStr::from_bytes(values[0]));
            let value = |n: usize| Value::read(values[3 * n + 2]);
            let treatment = match (value(0), value(1), value(2)) {
                (Value::To(name), _, _) if self.is_configured(name).await? => {
                    Treatment::Refused(CannotCommit::Filter(String::from_utf8_lossy(name).into_owned()))
                }
                (_, Value::To(_), _) => Treatment::Refused(CannotCommit::Encoding),
                (_, _, Value::Set) => Treatment::Refused(CannotCommit::Ident),
                _ => decide(value(3), value(4), converts),
            };
            treatments.insert(path.to_owned(), treatment);
        }
        Ok(treatments)
    }

    /// Whether a filter does anything: one that nobody configured does not.
    async fn is_configured(&self, name: &[u8]) -> Result<bool> {
        for part in ["clean", "process"] {
            let mut key = OsStr::new("filter.").to_owned();
            key.push(OsStr::from_bytes(name));
            key.push(format!(".{part}"));
            if !self.users_setting(&key).await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A setting of the user's git; empty when there is none.
    async fn users_setting(&self, key: &OsStr) -> Result<Vec<u8>> {
        let call = self.git.trusted(self.users_directory(), "config").arg("--get").arg(key);
        let found = call.run().await?;
        Ok(if found.status.success() { found.stdout.trim_ascii().to_owned() } else { Vec::new() })
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fast_import;

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
        assert_eq!(fast_import::with_unix_line_ends(b"a\r\nb\rc\r\r\n\r"), b"a\nb\rc\r\n\r");
        assert!(has_crlf(b"a\r\n") && !has_crlf(b"a\rb\n"));
        assert!(looks_like_text(b"a\r\nb\n") && !looks_like_text(b"a\rb") && !looks_like_text(b"a\0\r\n"));
    }
}
