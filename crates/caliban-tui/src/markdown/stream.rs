//! A text that comes in pieces. All blocks but the last are frozen: split once, rendered once for a width.

use std::{cell::RefCell, ops::Range, rc::Rc};

use super::{block, split};
use crate::{text::Row, theme::Theme};

/// Markdown that grows.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    source: String,
    /// The blocks that cannot change any more.
    frozen: Vec<Range<usize>>,
    /// The rows of frozen blocks, for one width and theme.
    rendered: RefCell<Rendered>,
}

#[derive(Debug, Default)]
struct Rendered {
    key: Option<(usize, Theme)>,
    blocks: Vec<Rc<[Row]>>,
}

impl Stream {
    /// More text, already made safe.
    pub(crate) fn push(&mut self, text: &str) {
        self.source.push_str(text);
        if !text.contains('\n') {
            return;
        }
        // Only whole lines tell where a block ends: `#` may be a heading, and with the next letter it is none.
        let whole = self.source.rfind('\n').map_or(0, |at| at + 1);
        let from = self.frozen_end();
        let blocks = split(&self.source[from..whole]);
        let all_but_last = blocks.len().saturating_sub(1);
        let frozen = blocks.into_iter().take(all_but_last);
        self.frozen.extend(frozen.map(|range| range.start + from..range.end + from));
    }

    /// The whole text.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    fn frozen_end(&self) -> usize {
        self.frozen.last().map_or(0, |range| range.end)
    }

    /// Its rows, block by block. Each block but the first begins with a blank row.
    pub(crate) fn rows(&self, columns: usize, theme: Theme) -> Vec<Rc<[Row]>> {
        let mut rendered = self.rendered.borrow_mut();
        if rendered.key != Some((columns, theme)) {
            *rendered = Rendered { key: Some((columns, theme)), blocks: Vec::new() };
        }
        let render = |range: Range<usize>, number: usize| -> Rc<[Row]> {
            // Sources are counted from the block: unique within the cell.
            let base = u32::try_from(number << 16).unwrap_or(u32::MAX);
            let mut rows = Vec::new();
            if number > 0 {
                rows.push(Row::blank(base));
            }
            rows.extend(block(&self.source[range], columns, theme, base));
            rows.into()
        };
        for number in rendered.blocks.len()..self.frozen.len() {
            let block = render(self.frozen[number].clone(), number);
            rendered.blocks.push(block);
        }
        let mut all = rendered.blocks.clone();
        let from = self.frozen_end();
        for range in split(&self.source[from..]) {
            all.push(render(range.start + from..range.end + from, all.len()));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::theme::{Depth, Ground};

    const THEME: Theme = Theme { depth: Depth::True, ground: Ground::Dark };

    fn whole(source: &str, columns: usize) -> Vec<Row> {
        let blocks = split(source);
        let mut rows = Vec::new();
        for (number, range) in blocks.into_iter().enumerate() {
            let base = u32::try_from(number << 16).unwrap();
            if number > 0 {
                rows.push(Row::blank(base));
            }
            rows.extend(block(&source[range], columns, THEME, base));
        }
        rows
    }

    fn check(pieces: &[String], columns: usize) {
        let mut stream = Stream::default();
        let mut text = String::new();
        for piece in pieces {
            stream.push(piece);
            text.push_str(piece);
            let rows: Vec<Row> =
                stream.rows(columns, THEME).iter().flat_map(|block| block.iter().cloned()).collect();
            assert_eq!(rows, whole(&text, columns), "{pieces:?} after {text:?}");
        }
    }

    #[test]
    fn t30_a_streamed_text_looks_like_the_whole_one() {
        let text = "# Title\n\nSome *text* with `code`.\n- one\n- two\n\n  more\n\n```rust\nfn a() {}\n\n# no title\n```\npara\n#no heading\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> quote\nlazy\n\n1. x\n2. y\nend\n---\nlast";
        for size in [1, 2, 3, 7, 50] {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.iter().collect()).collect();
            check(&pieces, 40);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn t30_stream_is_final_for_any_pieces(pieces in proptest::collection::vec(
            prop_oneof![
                Just("\n".to_owned()), Just("\n\n".to_owned()), Just("- ".to_owned()), Just("  ".to_owned()),
                Just("```".to_owned()), Just("# ".to_owned()), Just("> ".to_owned()), Just("|a|b|\n|-|-|\n".to_owned()),
                Just("1. ".to_owned()), Just("    ".to_owned()), Just("---".to_owned()), Just("[a]: b".to_owned()),
                Just("<div>".to_owned()), Just("word ".to_owned()), Just("*".to_owned()), Just("`".to_owned()),
                "[a-z#*\\-`>| \n]{1,6}",
            ], 0..30), columns in 10_usize..60) {
            check(&pieces, columns);
        }
    }
}
