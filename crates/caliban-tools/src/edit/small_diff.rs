//! What the model and people are shown of a change: a small diff around the first place.

use std::time::Instant;

use similar::{ChangeTag, TextDiff};

use crate::{
    edit::replacement::{Replaced, line_of},
    limits::{DIFF_LINES, DIFF_TIME, LINE_CHARS},
};

/// Lines of context.
const CONTEXT: usize = 3;

/// The first place of a change as it is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ShownChange {
    /// Lines added.
    pub(super) added: usize,
    /// Lines removed.
    pub(super) removed: usize,
    /// The diff, with line numbers of the new file.
    pub(super) text: String,
}

/// The change at the first place. Only the lines around it are compared, never whole files.
pub(super) fn change(before: &[u8], replaced: &Replaced) -> ShownChange {
    compared(before, replaced, DIFF_LINES, LINE_CHARS)
}

/// The same in words, with nothing left out.
pub(super) fn whole(before: &[u8], replaced: &Replaced) -> String {
    compared(before, replaced, usize::MAX, usize::MAX).text
}

fn compared(before: &[u8], replaced: &Replaced, lines: usize, chars: usize) -> ShownChange {
    let mut change = ShownChange { added: 0, removed: 0, text: String::new() };
    let Some(place) = replaced.places.first().cloned() else { return change };
    let around = lines_around(before, place.start, place.len());
    let new = &replaced.content[place.start..place.start + replaced.new];
    let after = [&before[around.start..place.start], new, &before[place.end..around.end]].concat();
    let old_text = String::from_utf8_lossy(&before[around.clone()]);
    let new_text = String::from_utf8_lossy(&after);
    let deadline = Instant::now() + DIFF_TIME;
    let diff = TextDiff::configure().deadline(deadline).diff_lines(&*old_text, &*new_text);
    let mut line = line_of(before, around.start);
    let mut shown: Vec<String> = Vec::new();
    for part in diff.iter_all_changes() {
        let text: String = part.value().trim_end_matches(['\n', '\r']).chars().take(chars).collect();
        match part.tag() {
            ChangeTag::Equal => {
                shown.push(format!("{line:>6}  {text}"));
                line += 1;
            }
            ChangeTag::Insert => {
                shown.push(format!("{line:>6} +{text}"));
                line += 1;
                change.added += 1;
            }
            ChangeTag::Delete => {
                shown.push(format!("       -{text}"));
                change.removed += 1;
            }
        }
    }
    if shown.len() > lines {
        let left = shown.len() - lines;
        shown.truncate(lines);
        shown.push(format!("       [{left} more lines]"));
    }
    change.text = shown.join("\n");
    change
}

/// The range of the lines that the place is in, with context.
fn lines_around(content: &[u8], at: usize, length: usize) -> std::ops::Range<usize> {
    let start = memchr::memrchr_iter(b'\n', &content[..at]).nth(CONTEXT).map_or(0, |newline| newline + 1);
    // A place that ends with a newline ends its line; context begins right behind it.
    let ended = length > 0 && content[at + length - 1] == b'\n';
    let more = if ended { CONTEXT - 1 } else { CONTEXT };
    let end = memchr::memchr_iter(b'\n', &content[at + length..])
        .nth(more)
        .map_or(content.len(), |newline| at + length + newline + 1);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::replacement::replace;

    fn told(before: &str, old: &str, new: &str) -> ShownChange {
        change(before.as_bytes(), &replace(before.as_bytes(), old, new, true).unwrap())
    }

    #[test]
    fn the_lines_around_the_change_are_shown() {
        let before = "1\n2\n3\n4\n5\nsix\n7\n8\n9\n10\n11\n";
        assert_eq!(
            told(before, "six\n", "6a\n6b\n"),
            ShownChange {
                added: 2,
                removed: 1,
                text: "     3  3\n     4  4\n     5  5\n       -six\n     6 +6a\n     7 +6b\n     8  7\n     9  8\n    10  9".into()
            }
        );
        assert_eq!(
            told("a\nb", "b", ""),
            ShownChange { added: 0, removed: 1, text: "     1  a\n       -b".into() }
        );
    }

    #[test]
    fn of_many_places_the_first_is_shown() {
        let change = told(&"x\n".repeat(30), "x", "yy");
        assert_eq!((change.added, change.removed), (1, 1));
        assert_eq!(change.text, "       -x\n     1 +yy\n     2  x\n     3  x\n     4  x");
    }
}
