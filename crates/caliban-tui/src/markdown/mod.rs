//! Markdown as rows. A text is a list of top-level blocks, and each block is rendered by itself: what a block looks like
//! depends on nothing behind it, so a text that streams in looks at every moment like the same text rendered whole.
//! (So a link whose address is defined in another block shows its brackets.)

mod inline;
mod render;
mod stream;
mod table;

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser};

pub(crate) use render::block;
pub(crate) use stream::Stream;

fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// The top-level blocks of a text.
fn split(source: &str) -> Vec<Range<usize>> {
    let mut blocks = Vec::new();
    let mut depth = 0_usize;
    for (event, range) in Parser::new_ext(source, options()).into_offset_iter() {
        match event {
            Event::Start(_) => {
                if depth == 0 {
                    blocks.push(range);
                }
                depth += 1;
            }
            Event::End(_) => depth -= 1,
            _ if depth == 0 => blocks.push(range),
            _ => {}
        }
    }
    blocks
}
