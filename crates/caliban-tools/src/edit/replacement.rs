//! The replacement itself, as a function of bytes.

use std::ops::Range;

use memchr::memmem;

use crate::line_ends::{mostly_crlf, with_crlf};

/// Lines named when a text occurs more than once.
const LINES_NAMED: usize = 8;

/// What came of a replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    pub(super) content: Vec<u8>,
    /// Where the matches were in the old content.
    pub(super) places: Vec<Range<usize>>,
    /// Bytes that the first match has now.
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
/// both texts are taken with CRLF. Models write straight quotes, too: where nothing else fits, curly quotes of the file
/// count as straight ones.
pub(super) fn replace(content: &[u8], old: &str, new: &str, all: bool) -> Result<Replaced, Fault> {
    if old.is_empty() {
        return Err(Fault::Empty);
    }
    if old == new {
        return Err(Fault::Same);
    }
    let mut old = old.as_bytes().to_vec();
    let mut places = find(content, &old);
    let mut ends = if mostly_crlf(content) { ReplacementEnds::Crlf } else { ReplacementEnds::AsGiven };
    if places.is_empty() && memchr::memchr(b'\n', &old).is_some() {
        let crlf = with_crlf(&old);
        places = find(content, &crlf);
        // A file with both kinds of ends: the new lines end like the ones they replace.
        if !places.is_empty() {
            (old, ends) = (crlf, ReplacementEnds::Crlf);
        }
    }
    let mut new = match ends {
        ReplacementEnds::Crlf => with_crlf(new.as_bytes()),
        ReplacementEnds::AsGiven => new.as_bytes().to_vec(),
    };
    if places.is_empty() {
        if let ReplacementEnds::Crlf = ends {
            old = with_crlf(&old);
        }
        places = find_quoted(content, &old);
        // What is the same in both texts stays as the file has it, with its quotes.
        let (was, is) = (Straight::new(&old), Straight::new(&new));
        let pairs = || was.text.iter().zip(&is.text);
        let head = pairs().take_while(|(a, b)| a == b).count();
        let rest = was.text.len().min(is.text.len()) - head;
        let back = was.text.iter().rev().zip(is.text.iter().rev());
        let tail = back.take(rest).take_while(|(a, b)| a == b).count();
        for place in &mut places {
            let inner = Straight::new(&content[place.clone()]);
            let (start, end) = (inner.place(head), inner.place(was.text.len() - tail));
            *place = place.start + start..place.start + end;
        }
        new = new[is.place(head)..is.place(is.text.len() - tail)].to_vec();
    }
    match places.len() {
        0 => return Err(Fault::Missing),
        1 => {}
        _ if all => {}
        count => {
            let lines = places.iter().take(LINES_NAMED).map(|place| line_of(content, place.start)).collect();
            return Err(Fault::Many { count, lines });
        }
    }
    if places.iter().all(|place| content[place.clone()] == new) {
        return Err(Fault::Same);
    }
    let mut result = Vec::with_capacity(content.len() + new.len());
    let mut at = 0;
    for place in &places {
        result.extend_from_slice(&content[at..place.start]);
        result.extend_from_slice(&new);
        at = place.end;
    }
    result.extend_from_slice(&content[at..]);
    Ok(Replaced { content: result, places, new: new.len() })
}

fn find(content: &[u8], old: &[u8]) -> Vec<Range<usize>> {
    memmem::find_iter(content, old).map(|at| at..at + old.len()).collect()
}

/// Where the text is when all quotes are straight.
fn find_quoted(content: &[u8], old: &[u8]) -> Vec<Range<usize>> {
    let (content, old) = (Straight::new(content), Straight::new(old));
    if content.moved.is_empty() && old.moved.is_empty() {
        return Vec::new();
    }
    let found = memmem::find_iter(&content.text, &old.text);
    found.map(|at| content.place(at)..content.place(at + old.text.len())).collect()
}

/// A text with straight quotes in place of curly ones.
struct Straight {
    text: Vec<u8>,
    /// Behind each quote: its place in the straight text and in the original.
    moved: Vec<(usize, usize)>,
}

impl Straight {
    fn new(original: &[u8]) -> Self {
        /// The first two bytes of all curly quotes in UTF-8.
        const CURLY: [u8; 2] = [0xe2, 0x80];
        let (mut text, mut moved, mut at) = (Vec::with_capacity(original.len()), Vec::new(), 0);
        for found in memmem::find_iter(original, &CURLY) {
            let straight = match original.get(found + 2) {
                Some(0x98 | 0x99) => b'\'',
                Some(0x9c | 0x9d) => b'"',
                _ => continue,
            };
            text.extend_from_slice(&original[at..found]);
            text.push(straight);
            at = found + 3;
            moved.push((text.len(), at));
        }
        text.extend_from_slice(&original[at..]);
        Self { text, moved }
    }

    /// Where this byte of the straight text is in the original.
    fn place(&self, at: usize) -> usize {
        let before = self.moved.partition_point(|(straight, _)| *straight <= at);
        match before.checked_sub(1).and_then(|index| self.moved.get(index)) {
            Some((straight, original)) => original + (at - straight),
            None => at,
        }
    }
}

/// The number of the line that this byte is in, from 1.
pub(super) fn line_of(content: &[u8], at: usize) -> u64 {
    memchr::memchr_iter(b'\n', &content[..at]).count() as u64 + 1
}

enum ReplacementEnds {
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
    fn straight_quotes_fit_curly_ones_and_the_file_keeps_its_own() {
        let file = "“a” isn’t “b”\n";
        let new = |old: &str, new: &str| {
            content(file.as_bytes(), old, new, false).map(|bytes| String::from_utf8(bytes).unwrap())
        };
        assert_eq!(new("\"a\" isn't", "\"a\" is not"), Ok("“a” is not “b”\n".into()));
        assert_eq!(new("isn't \"b\"\n", "isn't \"c\"\n"), Ok("“a” isn’t “c”\n".into()));
        assert_eq!(new("'a'", "x"), Err(Fault::Missing));
        // The other way round, and with CRLF.
        assert_eq!(content(b"it's\r\nx\r\n", "it’s\nx", "it was\nx", false), Ok(b"it was\r\nx\r\n".to_vec()));
        assert_eq!(content(b"x = 'a'; y = 'a'", "‘a’", "b", true), Ok(b"x = b; y = b".to_vec()));
    }

    #[test]
    fn bytes_outside_the_match_stay() {
        assert_eq!(
            content(b"\xef\xbb\xbfone\n\xff\xfe two", "one", "1", false),
            Ok(b"\xef\xbb\xbf1\n\xff\xfe two".to_vec())
        );
    }
}
