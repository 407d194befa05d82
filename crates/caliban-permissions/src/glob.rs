//! The files that a shell's pattern stands for.
//!
//! Rather too many than too few: `[…]` stands for anything, `?` for a character of any encoding. A pattern that
//! fits nothing stays as it is written, and is found too, as it fits itself.

use std::path::{Path, PathBuf};

/// The files that a pattern stands for now; nothing when there are too many, or when one would be an option.
pub(crate) fn expand(directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
    const MOST: usize = 2_000;
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { directory.to_owned() }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let pieces = pieces(part);
        if let [GlobPiece::Text(plain)] = pieces.as_slice() {
            found.iter_mut().for_each(|path| path.push(plain));
            continue;
        }
        let hidden = matches!(pieces.first(), Some(GlobPiece::Text(text)) if text.starts_with('.'));
        let mut next = Vec::new();
        for path in found {
            for entry in path.read_dir().into_iter().flatten().flatten() {
                let name = entry.file_name();
                let name = name.as_encoded_bytes();
                if (name.starts_with(b".") && !hidden) || !fits(&pieces, name) {
                    continue;
                }
                if name.starts_with(b"-") || next.len() > MOST {
                    return None;
                }
                next.push(entry.path());
            }
        }
        found = next;
    }
    Some(found)
}

#[derive(Debug, PartialEq, Eq)]
enum GlobPiece {
    Text(String),
    /// `?`
    One,
    /// `*`, `[…]`
    Any,
}

fn pieces(part: &str) -> Vec<GlobPiece> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    // Classes and quotes decide where a bracket ends. Take the last `]` that could end it, so that nothing is missed.
    let last = part.rfind(']');
    let mut chars = part.char_indices();
    while let Some((at, c)) = chars.next() {
        let special = match c {
            '?' => GlobPiece::One,
            '*' => GlobPiece::Any,
            '[' if last.is_some_and(|last| last > at) => {
                chars.by_ref().find(|(at, _)| Some(*at) == last);
                GlobPiece::Any
            }
            '\\' => {
                text.extend(chars.next().map(|(_, c)| c));
                continue;
            }
            c => {
                text.push(c);
                continue;
            }
        };
        if !text.is_empty() {
            pieces.push(GlobPiece::Text(std::mem::take(&mut text)));
        }
        if special != GlobPiece::Any || pieces.last() != Some(&GlobPiece::Any) {
            pieces.push(special);
        }
    }
    if !text.is_empty() {
        pieces.push(GlobPiece::Text(text));
    }
    pieces
}

/// The positions in the name that can be reached after each piece. Keeping all of them avoids backtracking.
fn fits(pieces: &[GlobPiece], name: &[u8]) -> bool {
    /// The most bytes that one character has.
    const WIDEST: usize = 4;
    let mut reached = vec![false; name.len() + 1];
    reached[0] = true;
    for piece in pieces {
        let mut next = vec![false; name.len() + 1];
        for at in (0..=name.len()).filter(|&at| reached[at]) {
            match piece {
                GlobPiece::Text(text) if name[at..].starts_with(text.as_bytes()) => {
                    next[at + text.len()] = true
                }
                GlobPiece::Text(_) => {}
                GlobPiece::One => next.iter_mut().skip(at + 1).take(WIDEST).for_each(|end| *end = true),
                GlobPiece::Any => {
                    next.iter_mut().skip(at).for_each(|end| *end = true);
                    break;
                }
            }
        }
        reached = next;
    }
    reached[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_fits_at_least_what_the_shell_says() {
        let fitting = [
            ("*.rs", "a.rs"),
            ("[[:alpha:]]tc", "etc"),
            ("[]x]y", "]y"),
            ("[!a]b[c]", "xbc"),
            ("[x]", "[x]"),
            ("?", "é"),
            ("a?c", "abc"),
            ("a\\*[b]", "a*b"),
            ("**", "x"),
        ];
        for (pattern, name) in fitting {
            assert!(fits(&pieces(pattern), name.as_bytes()), "{pattern} {name}");
        }
        let other =
            [("*.rs", "a.rc"), ("a?c", "ac"), ("a\\*[b]", "axb"), ("a[b", "ab"), ("?", ""), ("*?", "")];
        for (pattern, name) in other {
            assert!(!fits(&pieces(pattern), name.as_bytes()), "{pattern} {name}");
        }
    }
    #[test]
    fn nothing_is_known_when_a_name_would_be_an_option_or_there_are_too_many() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: String| std::fs::write(dir.path().join(name), "").unwrap();
        put("-x".to_owned());
        assert_eq!(expand(dir.path(), "*x"), None);
        (0..2_001).for_each(|number| put(format!("a{number}")));
        assert_eq!(expand(dir.path(), "a*").map(|found| found.len()), Some(2_001));
        put("a".to_owned());
        assert_eq!(expand(dir.path(), "a*"), None);
    }
}
