//! The replacement itself, as a function of bytes.

use memchr::memmem;

use crate::line_ends::{mostly_crlf, with_crlf};

/// Lines named when a text occurs more than once.
const LINES_NAMED: usize = 8;

/// What came of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// The new content.
    pub(super) content: Vec<u8>,
    /// Where the matches were in the old content.
    pub(super) places: Vec<usize>,
    /// Bytes that each match had.
    pub(super) old: usize,
    /// Bytes that each match has now.
    pub(super) new: usize,
}

/// Why nothing was replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Empty,
    Same,
    Missing,
    Many { count: usize, lines: Vec<u64> },
}

/// Replaces the one place, or all places, where `old` occurs. Models write `\n`; in a file with CRLF
/// both texts are taken with CRLF.
pub(super) fn replace(content: &[u8], old: &str, new: &str, all: bool) -> Result<Replaced, Fault> {
    if old.is_empty() {
        return Err(Fault::Empty);
    }
    if old == new {
        return Err(Fault::Same);
    }
    let mut old = old.as_bytes().to_vec();
    let mut places: Vec<usize> = memmem::find_iter(content, &old).collect();
    let mut ends = if mostly_crlf(content) { Ends::Crlf } else { Ends::AsGiven };
    if places.is_empty() && memchr::memchr(b'\n', &old).is_some() {
        old = with_crlf(&old);
        places = memmem::find_iter(content, &old).collect();
        // A file with both kinds of ends: the new lines end like the ones they replace.
        ends = Ends::Crlf;
    }
    let new = match ends {
        Ends::Crlf => with_crlf(new.as_bytes()),
        Ends::AsGiven => new.as_bytes().to_vec(),
    };
    match places.len() {
        0 => return Err(Fault::Missing),
        1 => {}
        _ if all => {}
        count => {
            let lines = places.iter().take(LINES_NAMED).map(|place| line_of(content, *place)).collect();
            return Err(Fault::Many { count, lines });
        }
    }
    if old == new {
        return Err(Fault::Same);
    }
    let mut result = Vec::with_capacity(content.len() + new.len());
    let mut at = 0;
    for place in &places {
        result.extend_from_slice(&content[at..*place]);
        result.extend_from_slice(&new);
        at = place + old.len();
    }
    result.extend_from_slice(&content[at..]);
    Ok(Replaced { content: result, places, old: old.len(), new: new.len() })
}

/// The number of the line that this byte is in, from 1.
pub(super) fn line_of(content: &[u8], at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &content[..at]).count() as u64 + 1
}

enum Ends {
    AsGiven,
    Crlf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(before: &[u8], old: &str, new: &str, all: bool) -> Result<Vec<u8>, Fault> {
        replace(before, old, new, all).map(|replaced| replaced.content)
    }

    #[test]
    fn one_place_is_replaced_and_two_are_refused() {
        assert_eq!(content(b"a b c", "b", "x", false), Ok(b"a x c".to_vec()));
        assert_eq!(content(b"a\nb\na\n", "a", "x", false), Err(Fault::Many { count: 2, lines: vec![1, 3] }));
        assert_eq!(content(b"a\nb\na\n", "a", "x", true), Ok(b"x\nb\nx\n".to_vec()));
        assert_eq!(content(b"aaa", "aa", "b", true), Ok(b"ba".to_vec()));
        assert_eq!(content(b"abc", "x", "y", false), Err(Fault::Missing));
        assert_eq!(content(b"abc", "", "y", false), Err(Fault::Empty));
        assert_eq!(content(b"abc", "b", "b", false), Err(Fault::Same));
    }

    #[test]
    fn crlf_stays_crlf() {
        assert_eq!(
            content(b"a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz", false),
            Ok(b"x\r\ny\r\nz\r\nc\r\n".to_vec())
        );
        assert_eq!(content(b"a\r\nb\r\n", "a", "x\ny", false), Ok(b"x\r\ny\r\nb\r\n".to_vec()));
        assert_eq!(content(b"a\r\nb\r\n", "a\r\nb", "x\r\ny", false), Ok(b"x\r\ny\r\n".to_vec()));
        // Mixed ends: each place keeps its own.
        assert_eq!(
            content(b"1\n2\n3\n4\na\r\nb\n", "a\nb", "x\ny", false),
            Ok(b"1\n2\n3\n4\nx\r\ny\n".to_vec())
        );
        assert_eq!(content(b"1\n2\n3\na\r\nb\n", "1\n2", "x\ny", false), Ok(b"x\ny\n3\na\r\nb\n".to_vec()));
        assert_eq!(content(b"a\nb\r\n", "a\n", "a\r\n", false), Ok(b"a\r\nb\r\n".to_vec()));
    }

    #[test]
    fn bytes_outside_the_match_stay() {
        assert_eq!(
            content(b"\xef\xbb\xbfone\n\xff\xfe two", "one", "1", false),
            Ok(b"\xef\xbb\xbf1\n\xff\xfe two".to_vec())
        );
    }
}
