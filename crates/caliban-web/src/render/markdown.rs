//! Markdown as blocks and runs. HTML in it is shown as text.

use caliban_core::inert;
use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use serde_json::{Value, json};

use super::{Highlighter, Run};

/// Longer texts are cut.
const CAP: usize = 256 * 1024;
const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);
/// Maximum nesting of lists and quotes.
const DEPTH: usize = 16;
/// The schemes that a link may have.
const SCHEMES: [&str; 3] = ["http://", "https://", "mailto:"];

/// The blocks of a text.
pub(crate) fn blocks(text: &str) -> Vec<Value> {
    let cut = (0..=CAP.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (shown, is_cut) = (text.get(..cut).unwrap_or_default(), cut < text.len());
    let shown = inert::block(shown);
    let mut reader = Reader { events: Parser::new_ext(&shown, OPTIONS), depth: 0 };
    let mut blocks = reader.blocks();
    if is_cut {
        blocks.push(json!({"b": "p", "in": [["dim", format!("… {} bytes more", text.len() - cut)]]}));
    }
    blocks
}

struct Reader<'t> {
    events: Parser<'t>,
    depth: usize,
}

impl<'t> Reader<'t> {
    /// The blocks up to the end of the enclosing element.
    fn blocks(&mut self) -> Vec<Value> {
        let mut blocks = Vec::new();
        let mut loose = Vec::new();
        self.depth += 1;
        while let Some(event) = self.events.next() {
            if !matches!(event, Event::Start(_) | Event::End(_)) || is_inline(&event) {
                // In a tight list: its items have no paragraphs.
                self.inline(event, &mut loose, &mut Style::default());
                continue;
            }
            flush(&mut loose, &mut blocks);
            match event {
                Event::Start(tag) => blocks.extend(self.block(tag)),
                _ => break,
            }
        }
        flush(&mut loose, &mut blocks);
        self.depth -= 1;
        blocks
    }

    fn block(&mut self, tag: Tag<'t>) -> Option<Value> {
        if self.depth > DEPTH {
            let text = self.flat();
            return Some(json!({"b": "p", "in": [Run::new("", text)]}));
        }
        Some(match tag {
            Tag::Heading { level, .. } => {
                let level = match level {
                    HeadingLevel::H1 => 1,
                    HeadingLevel::H2 => 2,
                    HeadingLevel::H3 => 3,
                    HeadingLevel::H4 => 4,
                    HeadingLevel::H5 => 5,
                    HeadingLevel::H6 => 6,
                };
                json!({"b": "h", "level": level, "in": self.runs()})
            }
            Tag::CodeBlock(kind) => {
                let language = match kind {
                    CodeBlockKind::Fenced(language) => language.to_string(),
                    CodeBlockKind::Indented => String::new(),
                };
                let text = self.flat();
                let mut highlighter = Highlighter::new(&language);
                let lines: Vec<Vec<Run>> = text.lines().map(|line| highlighter.line(line)).collect();
                json!({"b": "code", "lang": language, "lines": lines})
            }
            Tag::List(start) => {
                let mut items = Vec::new();
                while let Some(Event::Start(Tag::Item)) = self.events.next() {
                    items.push(self.item());
                }
                json!({"b": "list", "start": start, "items": items})
            }
            Tag::BlockQuote(_) => json!({"b": "quote", "blocks": self.blocks()}),
            Tag::Table(alignments) => self.table(&alignments),
            Tag::HtmlBlock => {
                let text = self.flat();
                let lines: Vec<Run> =
                    text.lines().flat_map(|line| [Run::new("", line), Run::new("", "\n")]).collect();
                json!({"b": "p", "in": lines})
            }
            _ => json!({"b": "p", "in": self.runs()}),
        })
    }

    fn item(&mut self) -> Value {
        let mut done = None;
        let mut blocks = Vec::new();
        let mut loose = Vec::new();
        self.depth += 1;
        while let Some(event) = self.events.next() {
            match event {
                Event::TaskListMarker(is_done) => done = Some(is_done),
                Event::End(TagEnd::Item) => break,
                Event::Start(tag) if !is_inline_tag(&tag) => {
                    flush(&mut loose, &mut blocks);
                    blocks.extend(self.block(tag));
                }
                other => self.inline(other, &mut loose, &mut Style::default()),
            }
        }
        flush(&mut loose, &mut blocks);
        self.depth -= 1;
        json!({"done": done, "blocks": blocks})
    }

    fn table(&mut self, alignments: &[Alignment]) -> Value {
        let align: Vec<&str> = alignments
            .iter()
            .map(|alignment| match alignment {
                Alignment::None | Alignment::Left => "left",
                Alignment::Center => "center",
                Alignment::Right => "right",
            })
            .collect();
        let (mut head, mut rows, mut row) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(event) = self.events.next() {
            match event {
                Event::Start(Tag::TableCell) => row.push(self.runs()),
                Event::End(TagEnd::TableHead) => head = std::mem::take(&mut row),
                Event::End(TagEnd::TableRow) => rows.push(std::mem::take(&mut row)),
                Event::End(TagEnd::Table) => break,
                _ => {}
            }
        }
        json!({"b": "table", "align": align, "head": head, "rows": rows})
    }

    /// The runs up to the end of the enclosing element.
    fn runs(&mut self) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut style = Style::default();
        while let Some(event) = self.events.next() {
            if matches!(event, Event::End(_)) {
                break;
            }
            self.inline(event, &mut runs, &mut style);
        }
        runs
    }

    /// One inline event; a span consumes everything up to its end.
    fn inline(&mut self, event: Event<'t>, runs: &mut Vec<Run>, style: &mut Style) {
        match event {
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => style.put(runs, &text),
            Event::Code(text) => {
                let mut code = style.clone();
                code.words.push("code");
                code.put(runs, &text);
            }
            Event::SoftBreak => style.put(runs, " "),
            Event::HardBreak => style.put(runs, "\n"),
            Event::Rule | Event::End(_) | Event::FootnoteReference(_) => {}
            Event::TaskListMarker(is_done) => style.put(runs, if is_done { "☑ " } else { "☐ " }),
            Event::InlineMath(text) | Event::DisplayMath(text) => style.put(runs, &text),
            Event::Start(tag) => {
                let mut inner = style.clone();
                match tag {
                    Tag::Strong => inner.words.push("b"),
                    Tag::Emphasis => inner.words.push("i"),
                    Tag::Strikethrough => inner.words.push("s"),
                    Tag::Link { dest_url, .. } => inner.link(&dest_url),
                    // An image becomes a link with its alt text: nothing is fetched from outside.
                    Tag::Image { dest_url, .. } => inner.link(&dest_url),
                    _ => {}
                }
                while let Some(event) = self.events.next() {
                    if matches!(event, Event::End(_)) {
                        break;
                    }
                    self.inline(event, runs, &mut inner);
                }
            }
        }
    }

    /// The bare text up to the end of the enclosing element.
    fn flat(&mut self) -> String {
        let (mut text, mut depth) = (String::new(), 0_usize);
        for event in self.events.by_ref() {
            match event {
                Event::Start(_) => depth += 1,
                Event::End(_) if depth == 0 => break,
                Event::End(_) => depth -= 1,
                Event::Text(part) | Event::Code(part) | Event::Html(part) | Event::InlineHtml(part) => {
                    text.push_str(&part);
                }
                Event::SoftBreak | Event::HardBreak => text.push('\n'),
                _ => {}
            }
        }
        text
    }
}

#[derive(Debug, Clone, Default)]
struct Style {
    words: Vec<&'static str>,
    href: Option<String>,
}

impl Style {
    fn link(&mut self, address: &str) {
        if SCHEMES.iter().any(|scheme| address.to_ascii_lowercase().starts_with(scheme)) {
            self.words.push("a");
            self.href = Some(address.to_owned());
        }
    }

    fn put(&self, runs: &mut Vec<Run>, text: &str) {
        Run::put(runs, Run { class: self.words.join(" "), text: text.to_owned(), href: self.href.clone() });
    }
}

fn is_inline(event: &Event<'_>) -> bool {
    matches!(event, Event::Start(tag) if is_inline_tag(tag))
}

fn is_inline_tag(tag: &Tag<'_>) -> bool {
    matches!(tag, Tag::Strong | Tag::Emphasis | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. })
}

fn flush(loose: &mut Vec<Run>, blocks: &mut Vec<Value>) {
    if !loose.is_empty() {
        blocks.push(json!({"b": "p", "in": std::mem::take(loose)}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_is_blocks() {
        let text = "# Title\n\nSome **bold _both_** `code` [link](https://a.example)\n\n- [x] done\n- open\n  - below\n\n1. one\n\n\
                    ```rust\nlet x = 1;\n```\n\n> quoted\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n\n---\n";
        let found = blocks(text);
        let kinds: Vec<&str> = found.iter().map(|block| block["b"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["h", "p", "list", "list", "code", "quote", "table"]);
        assert_eq!(
            found[1]["in"],
            json!([
                ["", "Some "],
                ["b", "bold "],
                ["b i", "both"],
                ["", " "],
                ["code", "code"],
                ["", " "],
                ["a", "link", "https://a.example"]
            ])
        );
        assert_eq!(found[2]["items"][0], json!({"done": true, "blocks": [{"b": "p", "in": [["", "done"]]}]}));
        assert_eq!(found[2]["items"][1]["blocks"][1]["items"][0]["blocks"][0]["in"], json!([["", "below"]]));
        assert_eq!(found[3]["start"], 1);
        assert_eq!(found[4]["lines"][0][0], json!(["kw", "let"]));
        assert_eq!(found[6]["rows"], json!([[[["", "1"]], [["", "2"]]]]));
    }

    #[test]
    fn a13_markup_and_bad_addresses_are_text() {
        let text = "<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![p](http://evil.example/p.png) \u{1b}[2J\u{202e}";
        let found = json!(blocks(text)).to_string();
        assert!(found.contains("<img src=x onerror=alert(1)>"), "{found}");
        assert!(!found.contains("javascript:"), "{found}");
        assert!(
            !found.contains('\u{1b}') && !found.contains("\\u001b") && !found.contains('\u{202e}'),
            "{found}"
        );
        // The nesting is bounded.
        let deep = "> ".repeat(500) + "x";
        assert!(json!(blocks(&deep)).to_string().len() < 100_000);
    }
}
