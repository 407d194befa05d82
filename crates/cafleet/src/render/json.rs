//! JSON as it is printed: compact or indented, ASCII only.

use serde_json::Value;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Lines for people.
    Text,
    /// One line of JSON.
    Json,
    /// Indented JSON.
    PrettyJson,
}

impl Style {
    pub(crate) fn choose(json: bool, pretty: bool) -> Self {
        match (json, pretty) {
            (false, _) => Self::Text,
            (true, false) => Self::Json,
            (true, true) => Self::PrettyJson,
        }
    }
}

/// Writes a value. Everything outside printable ASCII becomes `\uXXXX`, so that it is the same in
/// every locale and inert in every terminal.
pub(crate) fn write(value: &Value, style: Style) -> String {
    let text = if style == Style::PrettyJson { format!("{value:#}") } else { value.to_string() };
    if text.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)) {
        return text;
    }
    let mut ascii = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c == '\n' || (' '..='~').contains(&c) {
            ascii.push(c);
        } else {
            // Only strings hold such characters, so an escape is always in its place here.
            for unit in c.encode_utf16(&mut [0; 2]) {
                ascii.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    ascii
}

#[cfg(test)]
mod tests {
    use super::{Style, write};
    use serde_json::json;

    #[test]
    fn everything_but_printable_ascii_is_escaped() {
        let value = json!({"a": "é😀\u{7f}\u{9b}\n\"", "b": []});
        assert_eq!(write(&value, Style::Json), r#"{"a":"\u00e9\ud83d\ude00\u007f\u009b\n\"","b":[]}"#);
        assert_eq!(
            write(&value, Style::PrettyJson),
            "{\n  \"a\": \"\\u00e9\\ud83d\\ude00\\u007f\\u009b\\n\\\"\",\n  \"b\": []\n}"
        );
    }
}
