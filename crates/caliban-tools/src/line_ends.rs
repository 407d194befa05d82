//! What a text file has beside its text: line ends and a byte order mark. Models write neither; files keep theirs.

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// How the lines of a file end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnds {
    Lf,
    Crlf,
    Mixed { mostly_crlf: bool },
}

/// Text in the shape of what it replaces, and what was done to it, for the model to know.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shaped {
    pub(crate) content: Vec<u8>,
    pub(crate) notes: Vec<&'static str>,
}

/// The text with the line ends and the byte order mark of the old content.
pub(crate) fn shaped_like(old: &[u8], text: &str) -> Shaped {
    let mut notes = Vec::new();
    let mut content = text.as_bytes().to_vec();
    let has_bare_ends = with_crlf(&content) != content;
    match ends(old) {
        LineEnds::Crlf if has_bare_ends => {
            content = with_crlf(&content);
            notes.push("[its lines end with CRLF, as before]");
        }
        LineEnds::Mixed { mostly_crlf: true } => {
            content = with_crlf(&content);
            notes.push("[its lines ended with CRLF and LF; now all end with CRLF]");
        }
        LineEnds::Mixed { mostly_crlf: false } => {
            notes.push("[its lines ended with CRLF and LF; now they end as you wrote them]");
        }
        LineEnds::Crlf | LineEnds::Lf => {}
    }
    if old.starts_with(MARK) && !content.starts_with(MARK) {
        content.splice(0..0, MARK.iter().copied());
        notes.push("[it begins with a byte order mark, as before]");
    }
    Shaped { content, notes }
}

/// Whether more than half of the lines end with CRLF.
pub(crate) fn mostly_crlf(content: &[u8]) -> bool {
    matches!(ends(content), LineEnds::Crlf | LineEnds::Mixed { mostly_crlf: true })
}

/// Every bare `\n` as `\r\n`.
pub(crate) fn with_crlf(text: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(text.len() + 16);
    let mut before = 0;
    for byte in text {
        if *byte == b'\n' && before != b'\r' {
            result.push(b'\r');
        }
        result.push(*byte);
        before = *byte;
    }
    result
}

fn ends(content: &[u8]) -> LineEnds {
    let (mut all, mut crlf) = (0_usize, 0_usize);
    for at in memchr::memchr_iter(b'\n', content) {
        all += 1;
        crlf += usize::from(at > 0 && content[at - 1] == b'\r');
    }
    match (all, crlf) {
        (_, 0) => LineEnds::Lf,
        (all, crlf) if all == crlf => LineEnds::Crlf,
        (all, crlf) => LineEnds::Mixed { mostly_crlf: crlf * 2 > all },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_a_model_does_not_write() {
        let check = |old: &[u8], text: &str, new: &[u8], notes: &[&'static str]| {
            assert_eq!(shaped_like(old, text), Shaped { content: new.to_vec(), notes: notes.to_vec() });
        };
        check(b"a\nb\n", "c\nd\n", b"c\nd\n", &[]);
        check(b"a\nb\n", "c\r\nd\r\n", b"c\r\nd\r\n", &[]);
        check(b"a\r\nb\r\n", "c\nd\n", b"c\r\nd\r\n", &["[its lines end with CRLF, as before]"]);
        check(b"a\r\nb\r\n", "c\r\nd", b"c\r\nd", &[]);
        check(b"\xef\xbb\xbfa", "c", b"\xef\xbb\xbfc", &["[it begins with a byte order mark, as before]"]);
        check(b"\xef\xbb\xbfa", "\u{feff}c", b"\xef\xbb\xbfc", &[]);
        check(
            b"a\r\nb\r\nc\n",
            "x\ny\n",
            b"x\r\ny\r\n",
            &["[its lines ended with CRLF and LF; now all end with CRLF]"],
        );
        check(
            b"a\r\nb\nc\n",
            "x\ny\n",
            b"x\ny\n",
            &["[its lines ended with CRLF and LF; now they end as you wrote them]"],
        );
    }
}
