//! Markdown as one line of plain text, for rows and titles.

use caliban_core::inert;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// How much of a text is read: more than fits into a line.
const CAP: usize = 2000;
const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

/// The beginning of a text as one line without Markdown marks. A row's text has `␊` for line ends.
pub fn plain(text: &str) -> String {
    let cut = (0..=CAP.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let shown = text.get(..cut).unwrap_or_default().replace('␊', "\n");
    let shown = inert::block(&shown);
    let mut words = String::new();
    for event in Parser::new_ext(&shown, OPTIONS) {
        match event {
            Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
                words.push_str(&text);
            }
            // Marks within a line add no space.
            Event::Start(
                Tag::Strong | Tag::Emphasis | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. },
            )
            | Event::End(
                TagEnd::Strong | TagEnd::Emphasis | TagEnd::Strikethrough | TagEnd::Link | TagEnd::Image,
            ) => {}
            _ => words.push(' '),
        }
    }
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    inert::line(&line).into_owned()
}

/// A text in one line, its line ends drawn. A row's text has `␊` for them.
pub fn one_line(text: &str) -> String {
    let line = inert::line(text);
    let parts = line.split('␊').map(str::trim).filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ↵ ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_and_line_ends_become_one_line() {
        assert_eq!(plain("## Done␊␊- **two** files␊- `make` passes"), "Done two files make passes");
    }

    #[test]
    fn a_text_in_a_row_has_no_marks() {
        let text = "## Done\n\nIt is **strict** and `a*b` is kept:\n\n- one [link](https://x.y)\n- two\u{1b}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```sh\nls -l\n```\n";
        assert_eq!(plain(text), "Done It is strict and a*b is kept: one link two␛ a b 1 2 ls -l");
        assert_eq!(plain("# Done␊␊- **one**"), "Done one");
        assert_eq!(plain(&"ä".repeat(3000)).chars().count(), 1000);
    }
}
