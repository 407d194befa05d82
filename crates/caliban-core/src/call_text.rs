//! A call as a person reads it before they allow it: every argument, nothing hidden, nothing that could be taken for
//! something else.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::inert;

/// Arguments that say what a call is about, the most telling first.
pub const TELLING: [&str; 7] = ["command", "file_path", "path", "url", "pattern", "query", "prompt"];
/// Of a longer call, so much of its beginning and of its end is shown.
const HEAD: Room = Room { characters: 2500, lines: 40 };
const TAIL: Room = Room { characters: 1500, lines: 20 };

struct Room {
    characters: usize,
    lines: usize,
}

/// The tool and all its arguments. The further lines of an argument are indented, so that they are not taken for others.
pub fn whole_call(name: &str, input: &Value) -> String {
    let name = inert::line(name);
    let Some(fields) = input.as_object() else { return format!("{name} {}", indented(&text(input))) };
    let mut fields = fields.iter();
    match (fields.next(), fields.len()) {
        (None, _) => name.into_owned(),
        (Some((field, Value::String(only))), 0) if TELLING.contains(&field.as_str()) => {
            format!("{name} {}", indented(only))
        }
        (Some(first), _) => {
            let mut all = name.into_owned();
            for (field, value) in [first].into_iter().chain(fields) {
                all.push_str(&format!("\n  {}: {}", inert::line(field), indented(&text(value))));
            }
            all
        }
    }
}

/// The same for a call that a person is asked about, with the lines of the file that it would change.
pub fn asked_call(name: &str, input: &Value, preview: Option<&str>) -> String {
    let call = whole_call(name, input);
    preview.map_or(call.clone(), |lines| format!("{call}\n  in the file:\n    {}", indented(lines)))
}

/// A text that may have a part left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The text, with a line that says so where something is left out.
    pub text: String,
    /// How many characters are.
    pub hidden: usize,
}

impl Excerpt {
    /// A text that is all there.
    pub fn whole(text: String) -> Self {
        Self { text, hidden: 0 }
    }

    /// As much of the beginning as fits into so many bytes.
    pub fn beginning(text: String, bytes: usize) -> Self {
        if text.len() <= bytes {
            return Self::whole(text);
        }
        let cut = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let hidden = text[cut..].chars().count();
        Self { text: format!("{}\n{}", &text[..cut], left_out(hidden)), hidden }
    }

    /// Only a line about the text.
    pub fn about(self, line: &str) -> Self {
        let hidden = self.hidden + self.text.chars().count();
        Self { text: format!("{line}\n{}", left_out(hidden)), hidden }
    }
}

/// The line that stands for what is left out.
fn left_out(characters: usize) -> String {
    format!("[… {characters} characters are not shown …]")
}

/// Beginning and end of a text that is too long to be read at once: what stands at the end is not hidden by what stands
/// before it.
pub fn excerpt(text: &str) -> Excerpt {
    let is_short = text.chars().count() <= HEAD.characters + TAIL.characters
        && text.lines().count() <= HEAD.lines + TAIL.lines;
    if is_short {
        return Excerpt::whole(text.to_owned());
    }
    let head =
        fitting(text.char_indices().map(|(at, character)| (at + character.len_utf8(), character)), &HEAD);
    let tail = fitting(text.char_indices().rev(), &TAIL).unwrap_or(text.len());
    let head = head.unwrap_or(0).min(tail);
    let hidden = text[head..tail].chars().count();
    let (begin, end) = (text[..head].trim_end_matches('\n'), text[tail..].trim_start_matches('\n'));
    Excerpt { text: format!("{begin}\n{}\n{end}", left_out(hidden)), hidden }
}

/// How far one gets before the room is used up.
fn fitting(characters: impl Iterator<Item = (usize, char)>, room: &Room) -> Option<usize> {
    let mut lines = 0;
    characters
        .take(room.characters)
        .take_while(|(_, character)| {
            lines += usize::from(*character == '\n');
            lines < room.lines
        })
        .last()
        .map(|(at, _)| at)
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn indented(text: &str) -> String {
    inert::block(text).replace('\n', "\n    ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_argument_is_shown_and_none_can_pass_for_another() {
        assert_eq!(whole_call("Bash", &json!({"command": "make"})), "Bash make");
        assert_eq!(whole_call("Bash", &json!({"command": "a\n  b: c"})), "Bash a\n      b: c");
        assert_eq!(
            whole_call("mcp__x__send", &json!({"path": "/a", "text": "1\n  to: y", "to": ["x"]})),
            "mcp__x__send\n  path: /a\n  text: 1\n      to: y\n  to: [\"x\"]"
        );
        assert_eq!(whole_call("Write", &json!({"content": "x"})), "Write\n  content: x");
        assert_eq!((whole_call("T", &json!({})), whole_call("T", &json!(1))), ("T".into(), "T 1".into()));
    }

    #[test]
    fn a_long_text_keeps_both_ends_and_says_what_is_missing() {
        let short = Excerpt { text: "a\nb".into(), hidden: 0 };
        assert_eq!(excerpt("a\nb"), short);
        for whole in ["x".repeat(4000), "x\n".repeat(60)] {
            assert_eq!(excerpt(&whole), Excerpt { text: whole, hidden: 0 });
        }
        let long = format!("start {} end", "é".repeat(5000));
        let got = excerpt(&long);
        assert_eq!(got.hidden, 5010 - 4000);
        assert!(got.text.starts_with("start ") && got.text.ends_with(" end"), "{}", got.text);
        assert!(got.text.contains("\n[… 1010 characters are not shown …]\n"), "{}", got.text);
        let lines: String = (0..100).map(|line| format!("{line}\n")).collect();
        let got = excerpt(&lines);
        assert!(got.text.starts_with("0\n1\n") && got.text.ends_with("98\n99\n"), "{}", got.text);
        assert!(got.text.lines().count() <= 61, "{}", got.text);
        assert_eq!(
            got.hidden
                + got.text.replace(&format!("[… {} characters are not shown …]\n", got.hidden), "").len(),
            lines.len() + 1
        );
    }

    #[test]
    fn what_is_cut_off_is_counted() {
        assert_eq!(Excerpt::beginning("aé".into(), 3), Excerpt::whole("aé".into()));
        let cut = Excerpt::beginning("aéb".into(), 2);
        assert_eq!(cut, Excerpt { text: "a\n[… 2 characters are not shown …]".into(), hidden: 2 });
        let about = Excerpt { hidden: 7, ..cut }.about("Bash");
        assert_eq!((about.hidden, about.text.lines().next()), (7 + 34, Some("Bash")));
    }
}
