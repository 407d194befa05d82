//! A command's output as the model reads it: without terminal escapes, and of a line that was drawn over again and again
//! (a progress bar) only what was drawn last.

/// The text without escapes and overdrawn parts.
pub(super) fn plain(text: &str) -> String {
    if !text.contains(['\u{1b}', '\r']) {
        return text.to_owned();
    }
    let text = without_escapes(text);
    let lines: Vec<&str> = text.split('\n').map(last_drawn).collect();
    lines.join("\n")
}

/// What stands in a line after all of it was drawn. A line end of `\r\n` draws nothing over.
fn last_drawn(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').find(|part| !part.is_empty()).unwrap_or_default()
}

/// Drops escape sequences: `ESC [ … letter`, `ESC ] … BEL` or `ESC ] … ESC \`, and `ESC` with one character.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        plain.push_str(&rest[..at]);
        rest = after_escape(&rest[at + 1..]);
    }
    plain.push_str(rest);
    plain
}

fn after_escape(rest: &str) -> &str {
    let mut characters = rest.chars();
    match characters.next() {
        Some('[') => {
            let end = rest[1..].find(|c: char| !matches!(c, '0'..='9' | ';' | ':' | '<'..='?' | ' '..='/'));
            // A sequence that is cut off at the end of the output has no last character.
            end.map_or("", |end| {
                let mut after = rest[1 + end..].chars();
                match after.next() {
                    Some('@'..='~') => after.as_str(),
                    // Not a sequence after all: what broke it stays.
                    _ => &rest[1 + end..],
                }
            })
        }
        Some(']') => {
            let line_end = rest.find('\n').unwrap_or(rest.len());
            let (bell, string_end) = (rest[..line_end].find('\u{7}'), rest[..line_end].find("\u{1b}\\"));
            match (bell, string_end) {
                (Some(bell), end) if end.is_none_or(|end| bell < end) => &rest[bell + 1..],
                (_, Some(end)) => &rest[end + 2..],
                // Without its end it would swallow what follows.
                _ => characters.as_str(),
            }
        }
        // The choice of a character set has one more character.
        Some('(' | ')') => {
            characters.next();
            characters.as_str()
        }
        Some('\n') | None => rest,
        Some(_) => characters.as_str(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_go_and_of_a_progress_bar_the_last_state_stays() {
        let cases = [
            ("plain\ntext\n", "plain\ntext\n"),
            ("\u{1b}[1;31merror\u{1b}[0m: no\n", "error: no\n"),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\\n", "alink\n"),
            (" 10%\r 50%\r100%\ndone\r\n", "100%\ndone\n"),
            ("50%\r100%\r", "100%"),
            ("a\r\nb\r\r\n", "a\nb\n"),
            ("\u{1b}[2K\r 3/9\u{1b}[2K\r 9/9\n", " 9/9\n"),
            ("cut \u{1b}[3", "cut "),
            ("\u{1b}(Bé\u{1b}\n\u{1b}", "é\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(plain(text), expected, "{text:?}");
        }
    }
}
