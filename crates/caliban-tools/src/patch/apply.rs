//! Pieces of a patch applied to a content: lines are found exactly, else with other whitespace at their ends, else with
//! other whitespace around them.

use super::parse::PatchHunk;
use crate::line_ends::{mostly_crlf, with_crlf};

/// Lines of the file that an error shows.
const LINES_SHOWN: usize = 3;

/// The content with all pieces replaced; the error says which piece does not fit.
pub(super) fn apply(content: &[u8], pieces: &[PatchHunk]) -> Result<Vec<u8>, String> {
    let text = String::from_utf8(content.to_vec())
        .map_err(|_| "it is not valid UTF-8; change it with Bash".to_owned())?;
    let mut lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    // What stands behind the last line end is no line.
    let ends_with_newline = lines.last().is_some_and(|last| last.is_empty());
    if ends_with_newline {
        lines.pop();
    }
    let (mut result, mut at) = (Vec::<&str>::new(), 0);
    for (number, piece) in pieces.iter().enumerate() {
        let place = place(&lines, piece, at).map_err(|why| format!("piece {} {why}", number + 1))?;
        result.extend(&lines[at..place.start]);
        // Where only whitespace differs, the file's own context stays.
        result.extend(kept(piece, &lines[place.clone()]));
        at = place.end;
    }
    result.extend(&lines[at..]);
    let mut text = result.join("\n");
    if !result.is_empty() {
        text.push('\n');
    }
    Ok(if mostly_crlf(content) { with_crlf(text.as_bytes()) } else { text.into_bytes() })
}

/// The lines of a piece in the new file: context as the file has it, else as written.
fn kept<'a>(piece: &'a PatchHunk, found: &[&'a str]) -> Vec<&'a str> {
    let mut lines = Vec::new();
    // Without the empty line at its end that the file does not have.
    let is_shorter = found.len() < piece.old.len();
    let new =
        if is_shorter { piece.new.strip_suffix(&[String::new()]).unwrap_or(&piece.new) } else { &piece.new };
    let mut found = piece.old.iter().zip(found).peekable();
    for new in new {
        // Removed lines are passed over until the context that this one is.
        let mut ahead = found.clone();
        match ahead.find(|(old, _)| *old == new) {
            Some((_, as_is)) => {
                lines.push(*as_is);
                found = ahead;
            }
            None => lines.push(new.as_str()),
        }
    }
    lines
}

fn place(lines: &[&str], piece: &PatchHunk, from: usize) -> Result<std::ops::Range<usize>, String> {
    let mut from = from;
    for anchor in &piece.anchors {
        let found = find(lines, std::slice::from_ref(anchor), from, false);
        from = found.ok_or_else(|| format!("has `@@ {anchor}`, which is not in the rest of the file"))? + 1;
    }
    if piece.old.is_empty() {
        // Only new lines: below the anchor, else at the end.
        let at = if piece.anchors.is_empty() { lines.len() } else { from };
        return Ok(at..at);
    }
    let found = find(lines, &piece.old, from, piece.at_end).map(|at| at..at + piece.old.len());
    // An empty line at the end of a piece is often one too many.
    let shorter = || {
        let (last, rest) = piece.old.split_last()?;
        let at = find(lines, rest, from, piece.at_end).filter(|_| last.is_empty() && !rest.is_empty())?;
        Some(at..at + rest.len())
    };
    found.or_else(shorter).ok_or_else(|| {
        let wanted: Vec<&str> = piece.old.iter().take(LINES_SHOWN).map(String::as_str).collect();
        format!("was not found in the file (in order, from line {}):\n{}", from + 1, wanted.join("\n"))
    })
}

/// Where these lines begin, at or below `from`.
fn find(lines: &[&str], wanted: &[String], from: usize, at_end: bool) -> Option<usize> {
    let last = lines.len().checked_sub(wanted.len())?;
    let ways: [fn(&str) -> String; 3] =
        [str::to_owned, |line| line.trim_end().to_owned(), |line| straight(line.trim())];
    ways.iter().find_map(|way| {
        let wanted: Vec<String> = wanted.iter().map(|line| way(line)).collect();
        let fits = |at: &usize| lines[*at..].iter().zip(&wanted).all(|(line, wanted)| way(line) == *wanted);
        let end = Some(last).filter(|at| at_end && *at >= from && fits(at));
        end.or_else(|| (from..=last).find(fits))
    })
}

/// With straight quotes.
fn straight(line: &str) -> String {
    line.replace(['‘', '’'], "'").replace(['“', '”'], "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(anchors: &[&str], lines: &[&str]) -> PatchHunk {
        let mut piece =
            PatchHunk { anchors: anchors.iter().map(|a| (*a).to_owned()).collect(), ..PatchHunk::default() };
        for line in lines {
            let (sign, rest) = line.split_at(1);
            if sign != "+" {
                piece.old.push(rest.to_owned());
            }
            if sign != "-" {
                piece.new.push(rest.to_owned());
            }
        }
        piece
    }

    fn applied(content: &str, pieces: &[PatchHunk]) -> Result<String, String> {
        apply(content.as_bytes(), pieces).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn pieces_are_found_in_order_below_their_anchors() {
        let file = "class A:\n  def f():\n    return 1\nclass B:\n  def f():\n    return 1\n";
        assert_eq!(
            applied(file, &[piece(&["class B:", "def f():"], &["-    return 1", "+    return 2"])]),
            Ok(file.replace("B:\n  def f():\n    return 1", "B:\n  def f():\n    return 2"))
        );
        let both = [
            piece(&[], &["-    return 1", "+    return 2"]),
            piece(&[], &["-    return 1", "+    return 3"]),
        ];
        let text = applied(file, &both).unwrap();
        assert_eq!(text.matches("return 2").count() + text.matches("return 3").count(), 2);
        let error = applied(file, &[piece(&["class C:"], &["-x"])]).unwrap_err();
        assert_eq!(error, "piece 1 has `@@ class C:`, which is not in the rest of the file");
        let error = applied(file, &[piece(&[], &[" class A:", "-nothing"])]).unwrap_err();
        assert!(error.starts_with("piece 1 was not found in the file (in order, from line 1):\nclass A:"));
    }

    #[test]
    fn whitespace_and_quotes_of_the_file_stay() {
        assert_eq!(
            applied("\tsay “a”  \n\told\n", &[piece(&[], &[" say \"a\"", "-old", "+\tnew"])]),
            Ok("\tsay “a”  \n\tnew\n".into())
        );
        assert_eq!(applied("a\r\nb\r\n", &[piece(&[], &[" a", "-b", "+c"])]), Ok("a\r\nc\r\n".into()));
        assert_eq!(applied("a", &[piece(&[], &["+b"])]), Ok("a\nb\n".into()));
        // One empty line too many, as context.
        assert_eq!(applied("a\nb\n", &[piece(&[], &["-b", "+c", " "])]), Ok("a\nc\n".into()));
    }

    #[test]
    fn a_piece_for_the_end_is_looked_for_there_first() {
        let last = PatchHunk { at_end: true, ..piece(&[], &["-x", "+y"]) };
        assert_eq!(applied("x\na\nx\n", std::slice::from_ref(&last)), Ok("x\na\ny\n".into()));
        assert_eq!(applied("x\na\n", &[last]), Ok("y\na\n".into()));
    }
}
