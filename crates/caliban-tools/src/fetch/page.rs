//! From HTML to markdown: the article when the page is one, else the whole page, and bare text when the
//! page is built to break converters.

use dom_smoothie::{Config, Readability};
use htmd::HtmlToMarkdown;

/// Elements inside each other up to which a page is parsed. The libraries walk trees by recursion, and
/// elements that are never closed are copied by the HTML rules again and again: such a page is only
/// stripped of its tags.
const DEPTH: usize = 256;
/// Elements up to which the article of a page is looked for.
const ELEMENTS: usize = 50_000;
/// Characters that an article must have to stand for its page.
const ARTICLE_CHARS: usize = 500;
/// The stack of the thread that walks the page.
const STACK_BYTES: usize = 64 << 20;

/// The page's text as markdown.
pub(super) fn markdown(html: String, url: &str) -> String {
    if depth(&html) > DEPTH {
        return stripped(&html);
    }
    let url = url.to_owned();
    let fallback = html.clone();
    // A thread of its own for its stack; a panic in there costs the markdown, not the call.
    let walked = std::thread::Builder::new()
        .name("page".into())
        .stack_size(STACK_BYTES)
        .spawn(move || converted(&html, &url))
        .map(std::thread::JoinHandle::join);
    match walked {
        Ok(Ok(text)) if !text.trim().is_empty() => text,
        Ok(Ok(_) | Err(_)) | Err(_) => stripped(&fallback),
    }
}

fn converted(html: &str, url: &str) -> String {
    if let Some((title, article)) = article(html, url) {
        let text = to_markdown(&article);
        if text.chars().count() >= ARTICLE_CHARS {
            let begins_with_title =
                text.trim_start().trim_start_matches('#').trim_start().starts_with(&title);
            return if title.is_empty() || begins_with_title { text } else { format!("# {title}\n\n{text}") };
        }
    }
    to_markdown(html)
}

fn article(html: &str, url: &str) -> Option<(String, String)> {
    let config = Config { max_elements_to_parse: ELEMENTS, ..Config::default() };
    let mut page = Readability::new(html, Some(url), Some(config)).ok()?;
    if !page.is_probably_readable() {
        return None;
    }
    let article = page.parse().ok()?;
    Some((article.title, article.content.to_string()))
}

fn to_markdown(html: &str) -> String {
    let converter = HtmlToMarkdown::builder()
        .skip_tags(vec!["script", "style", "noscript", "svg", "iframe", "template", "head", "button", "form"])
        .build();
    converter.convert(html).unwrap_or_default()
}

/// An upper bound of how deep elements are nested, without parsing. Elements that HTML closes by itself
/// are not counted.
fn depth(html: &str) -> usize {
    const VOID: [&str; 14] = [
        "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
        "track", "wbr",
    ];
    const SELF_CLOSING: [&str; 17] = [
        "p", "li", "td", "th", "tr", "dt", "dd", "option", "optgroup", "thead", "tbody", "tfoot", "colgroup",
        "rt", "rp", "html", "body",
    ];
    let (mut now, mut most) = (0_usize, 0_usize);
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let (closing, name) = match rest.strip_prefix('/') {
            Some(name) => (true, name),
            None => (false, rest),
        };
        let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
        let name = name[..end].to_ascii_lowercase();
        let counted = !name.is_empty() && !VOID.contains(&&*name) && !SELF_CLOSING.contains(&&*name);
        match (counted, closing) {
            (false, _) => {}
            (true, true) => now = now.saturating_sub(1),
            (true, false) => {
                // What is in there is text, whatever it looks like.
                if matches!(&*name, "script" | "style" | "textarea" | "title") {
                    rest = after_closing(rest, &name);
                    continue;
                }
                now += 1;
                most = most.max(now);
            }
        }
    }
    most
}

/// What follows the end tag of this name; nothing when there is none.
fn after_closing<'a>(text: &'a str, name: &str) -> &'a str {
    let end = format!("</{name}");
    let bytes = text.as_bytes();
    memchr::memchr_iter(b'<', bytes)
        .find(|at| bytes.get(*at..at + end.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(end.as_bytes())))
        .map_or("", |at| &text[at + end.len()..])
}

/// The text between the tags, with the commonest entities resolved and blank lines squeezed.
pub(super) fn stripped(html: &str) -> String {
    let mut text = String::with_capacity(html.len() / 2);
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let name_end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '/').unwrap_or(rest.len());
        let name = rest[..name_end].to_ascii_lowercase();
        if matches!(&*name, "script" | "style") {
            rest = after_closing(rest, &name);
        }
        rest = rest.find('>').map_or("", |end| &rest[end + 1..]);
        if !matches!(
            &*name,
            "a" | "/a" | "b" | "/b" | "i" | "/i" | "em" | "/em" | "span" | "/span" | "code" | "/code"
        ) {
            text.push('\n');
        }
    }
    text.push_str(rest);
    let text = text
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'")
        .replace("&nbsp;", " ")
        .replace("&amp;", "&");
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_article_is_taken_out_of_its_page() {
        let paragraph = "This is a sentence of the article, and it is long enough to count. ".repeat(8);
        let html = format!(
            "<html><head><title>The Title</title></head><body><nav><a href=/x>Menu</a></nav>\
             <article><h2>Part</h2><p>{paragraph}</p><p>{paragraph} <a href=\"/more\">more</a></p></article>\
             <footer>Imprint</footer></body></html>"
        );
        let text = markdown(html, "https://example.org/a");
        assert!(text.starts_with("# The Title\n"), "{text}");
        assert!(text.contains("[more](https://example.org/more)"), "{text}");
        assert!(!text.contains("Menu") && !text.contains("Imprint"), "{text}");
    }

    #[test]
    fn a_page_that_is_no_article_is_kept_whole() {
        let html =
            "<html><body><script>var x = '<p>no';</script><ul><li><a href='/a'>A</a><li>B</ul></body></html>";
        let text = markdown(html.into(), "https://example.org/");
        assert!(text.contains("[A](/a)") && text.contains('B') && !text.contains("var x"), "{text}");
    }

    #[test]
    fn a14_pages_built_to_break_converters_come_out_as_text() {
        let deep = format!("{}deep{}", "<div>".repeat(200_000), "</div>".repeat(200_000));
        assert_eq!(markdown(deep, "https://example.org/"), "deep");
        let unclosed: String = (0..50_000).map(|n| format!("<b a={n}><p>")).collect::<String>() + "end";
        assert_eq!(markdown(unclosed, "https://example.org/"), "end");
        let just_allowed = format!("{}inside{}", "<div><p>".repeat(250), "</div>".repeat(250));
        assert_eq!(markdown(just_allowed, "https://example.org/").trim(), "inside");
        for broken in ["<", "</", "<script>", "<!--", "<a href=", "&amp;<x", ""] {
            let _must_not_panic = markdown(broken.into(), "https://example.org/");
        }
    }

    #[test]
    fn scripts_and_tags_are_stripped() {
        assert_eq!(
            stripped(
                "<style>x{}</style><h1>A &amp; B</h1><p>one <b>two</b></p><SCRIPT>if (a<b) {}</SCRIPT>end"
            ),
            "A & B\none two\nend"
        );
    }
}
