//! Changes as rows, from a git patch or from two texts: line numbers before and after, highlighted, with the changed
//! words marked.

use caliban_core::inert;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::{Highlighter, Run, language_of};

/// Larger texts are not compared.
const CHANGE_BYTES: usize = 512 * 1024;
/// Words are not marked in longer lines.
const WORDS_BYTES: usize = 1000;
/// Maximum number of changed lines before and after a page that are compared with it.
const AROUND: usize = 1000;
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The rows of the change that a tool call makes; `None` if the texts are too large.
pub(crate) fn change(path: &str, old: &str, new: &str) -> Option<Vec<Value>> {
    if old.len() + new.len() > CHANGE_BYTES {
        return None;
    }
    let (old, new) = (inert::block(old), inert::block(new));
    let diff = TextDiff::from_lines(old.as_ref(), new.as_ref());
    let mut writer = Writer::new(path);
    for group in diff.grouped_ops(CONTEXT) {
        for op in group {
            for part in diff.iter_changes(&op) {
                let line = part.value().trim_end_matches('\n');
                writer.line(part.tag(), None, None, line);
            }
        }
        writer.flush();
    }
    Some(writer.rows)
}

/// A line of a patch with its old and new line numbers.
struct PatchLine<'a> {
    kind: Kind,
    old: u64,
    new: u64,
    text: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Hunk,
    Line(ChangeTag),
    Remark,
}

/// A range of rows of one file's patch.
#[derive(Debug, Default)]
pub(crate) struct PatchPage {
    /// The total number of rows.
    pub(crate) total: usize,
    /// The rows at which hunks begin.
    pub(crate) hunks: Vec<usize>,
    pub(crate) rows: Vec<Value>,
}

/// A range of rows of one file's git patch. Only these are highlighted, so a page costs the same however long the patch
/// is.
pub(crate) fn patch_rows(path: &str, patch: &str, window: std::ops::Range<usize>) -> PatchPage {
    let lines = patch_lines(patch);
    let hunks =
        lines.iter().enumerate().filter(|(_, line)| line.kind == Kind::Hunk).map(|(n, _)| n).collect();
    let window = window.start.min(lines.len())..window.end.min(lines.len());
    // Words are compared within whole groups of changed lines, which may reach beyond the page.
    let is_changed =
        |line: &&PatchLine<'_>| matches!(line.kind, Kind::Line(ChangeTag::Insert | ChangeTag::Delete));
    let (before, behind) = lines.split_at(window.start);
    let back = before.iter().rev().take(AROUND).take_while(is_changed).count();
    let length = window.len();
    let on = behind.iter().skip(length).take(AROUND).take_while(is_changed).count();
    let mut writer = Writer::new(path);
    for line in lines.iter().skip(window.start - back).take(back + length + on) {
        match line.kind {
            Kind::Hunk => {
                writer.flush();
                writer.rows.push(json!({"t": "@", "in": [Run::new("", inert::line(line.text))]}));
                // The text between two hunks is unknown, so highlighting starts afresh.
                writer.highlighter = Highlighter::new(language_of(path));
            }
            Kind::Line(tag) => {
                let text = inert::block(line.text.get(1..).unwrap_or_default());
                let old = (tag != ChangeTag::Insert).then_some(line.old);
                let new = (tag != ChangeTag::Delete).then_some(line.new);
                writer.line(tag, old, new, &text);
            }
            Kind::Remark => {
                writer.flush();
                writer.rows.push(json!({"t": "\\", "in": [Run::new("dim", inert::line(line.text))]}));
            }
        }
    }
    writer.flush();
    let rows = writer.rows.into_iter().skip(back).take(length).collect();
    PatchPage { total: lines.len(), hunks, rows }
}

/// The lines of all hunks; each becomes a row.
fn patch_lines(patch: &str) -> Vec<PatchLine<'_>> {
    let mut lines = Vec::new();
    let (mut old, mut new, mut is_in_hunk) = (0_u64, 0_u64, false);
    for text in patch.lines() {
        if let Some((before, after)) = hunk(text) {
            (old, new, is_in_hunk) = (before, after, true);
            lines.push(PatchLine { kind: Kind::Hunk, old, new, text });
            continue;
        }
        if !is_in_hunk {
            continue;
        }
        let kind = match text.as_bytes().first() {
            Some(b'+') => Kind::Line(ChangeTag::Insert),
            Some(b'-') => Kind::Line(ChangeTag::Delete),
            Some(b' ') | None => Kind::Line(ChangeTag::Equal),
            Some(b'\\') => Kind::Remark,
            Some(_) => {
                is_in_hunk = false;
                continue;
            }
        };
        lines.push(PatchLine { kind, old, new, text });
        old += u64::from(matches!(kind, Kind::Line(ChangeTag::Delete | ChangeTag::Equal)));
        new += u64::from(matches!(kind, Kind::Line(ChangeTag::Insert | ChangeTag::Equal)));
    }
    lines
}

/// `@@ -12,3 +14,4 @@ …`: the first line numbers of a hunk.
fn hunk(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("@@ -")?;
    let (old, rest) = rest.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let first = |range: &str| range.split(',').next()?.parse().ok();
    Some((first(old)?, first(new)?))
}

/// A changed line that waits for its counterpart.
struct Line {
    number: Option<u64>,
    text: String,
    runs: Vec<Run>,
}

struct Writer {
    rows: Vec<Value>,
    highlighter: Highlighter,
    deleted: Vec<Line>,
    inserted: Vec<Line>,
}

impl Writer {
    fn new(path: &str) -> Self {
        let highlighter = Highlighter::new(language_of(path));
        Self { rows: Vec::new(), highlighter, deleted: Vec::new(), inserted: Vec::new() }
    }

    fn line(&mut self, tag: ChangeTag, old: Option<u64>, new: Option<u64>, text: &str) {
        let runs = self.highlighter.line(text);
        let text = text.to_owned();
        match tag {
            ChangeTag::Equal => {
                self.flush();
                self.rows.push(json!({"t": " ", "a": old, "b": new, "in": runs}));
            }
            ChangeTag::Delete => {
                if !self.inserted.is_empty() {
                    self.flush();
                }
                self.deleted.push(Line { number: old, text, runs });
            }
            ChangeTag::Insert => self.inserted.push(Line { number: new, text, runs }),
        }
    }

    /// Writes the pending changed lines. If as many were deleted as inserted, their words are compared pairwise.
    fn flush(&mut self) {
        let (mut deleted, mut inserted) =
            (std::mem::take(&mut self.deleted), std::mem::take(&mut self.inserted));
        if deleted.len() == inserted.len() {
            for (old, new) in deleted.iter_mut().zip(&mut inserted) {
                mark_words(old, new);
            }
        }
        let gone =
            deleted.into_iter().map(|line| json!({"t": "-", "a": line.number, "b": null, "in": line.runs}));
        self.rows.extend(gone);
        let come =
            inserted.into_iter().map(|line| json!({"t": "+", "a": null, "b": line.number, "in": line.runs}));
        self.rows.extend(come);
    }
}

fn mark_words(old: &mut Line, new: &mut Line) {
    if old.text.len() > WORDS_BYTES || new.text.len() > WORDS_BYTES {
        return;
    }
    let diff = TextDiff::from_words(old.text.as_str(), new.text.as_str());
    // Lines with little in common count as replaced, not as changed.
    if diff.ratio() < 0.4 {
        return;
    }
    let (mut gone, mut come) = (Vec::new(), Vec::new());
    let (mut at_old, mut at_new) = (0, 0);
    for part in diff.iter_all_changes() {
        let length = part.value().len();
        match part.tag() {
            ChangeTag::Equal => (at_old, at_new) = (at_old + length, at_new + length),
            ChangeTag::Delete => {
                gone.push(at_old..at_old + length);
                at_old += length;
            }
            ChangeTag::Insert => {
                come.push(at_new..at_new + length);
                at_new += length;
            }
        }
    }
    old.runs = marked(&old.runs, &gone, "del");
    new.runs = marked(&new.runs, &come, "add");
}

/// The runs, with another class added within the ranges.
fn marked(runs: &[Run], ranges: &[std::ops::Range<usize>], class: &str) -> Vec<Run> {
    let mut out = Vec::new();
    let mut from = 0;
    for run in runs {
        for (at, character) in run.text.char_indices() {
            let is_marked = ranges.iter().any(|range| range.contains(&(from + at)));
            let classes = match (is_marked, run.class.is_empty()) {
                (true, true) => class.to_owned(),
                (true, false) => format!("{} {class}", run.class),
                (false, _) => run.class.clone(),
            };
            Run::put(&mut out, Run::new(classes, character));
        }
        from += run.text.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_rows_with_numbers_and_marked_words() {
        let patch = "diff --git a/x.txt b/x.txt\n--- a/x.txt\n+++ b/x.txt\n@@ -10,3 +10,3 @@ fn\n same\n-the old word\n+the new word\n same\n\\ No newline at end of file\n";
        let PatchPage { total, hunks, rows } = patch_rows("x.txt", patch, 0..100);
        assert_eq!(hunks, [0]);
        let is = |row: &Value, t: &str, a: Value, b: Value| row["t"] == t && row["a"] == a && row["b"] == b;
        assert!(rows[0]["t"] == "@" && rows[4]["t"] == " " && rows[5]["t"] == "\\", "{rows:?}");
        assert!(is(&rows[1], " ", json!(10), json!(10)));
        assert!(is(&rows[2], "-", json!(11), json!(null)));
        assert!(is(&rows[3], "+", json!(null), json!(11)));
        assert_eq!(rows[2]["in"], json!([["", "the "], ["del", "old"], ["", " word"]]));
        assert_eq!(rows[3]["in"], json!([["", "the "], ["add", "new"], ["", " word"]]));
        assert_eq!((rows.len(), total), (6, 6));
        // Every page shows the same rows as the whole.
        for (from, to) in [(0, 2), (2, 3), (3, 4), (3, 6), (5, 9), (7, 9)] {
            let page = patch_rows("x.txt", patch, from..to);
            let end = to.min(rows.len());
            assert_eq!((page.total, page.rows.as_slice()), (6, &rows[from.min(end)..end]), "{from}..{to}");
        }
    }

    #[test]
    fn a_change_of_a_call_is_rows() {
        let rows = change("a.rs", "fn a() {}\n", "fn b() {}\nfn c() {}\n").unwrap();
        let kinds: Vec<&str> = rows.iter().map(|row| row["t"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["-", "+", "+"]);
        assert!(rows[0]["in"].to_string().contains("kw"));
    }
}
