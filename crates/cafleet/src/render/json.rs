//! JSON as it is printed: compact or indented, ASCII only.

use std::io;

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter, Serializer};

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
pub(crate) fn write(value: &impl Serialize, style: Style) -> String {
    let mut out = Vec::new();
    let done = match style {
        Style::PrettyJson => {
            value.serialize(&mut Serializer::with_formatter(&mut out, Ascii(PrettyFormatter::new())))
        }
        Style::Text | Style::Json => {
            value.serialize(&mut Serializer::with_formatter(&mut out, Ascii(CompactFormatter)))
        }
    };
    // Cannot fail: all keys are strings, and the output goes to memory.
    debug_assert!(done.is_ok());
    String::from_utf8(out).unwrap_or_default()
}

/// A formatter that writes strings in ASCII.
struct Ascii<F>(F);

impl<F: Formatter> Formatter for Ascii<F> {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, text: &str) -> io::Result<()> {
        let is_plain = |byte: u8| (b' '..=b'~').contains(&byte);
        if text.bytes().all(is_plain) {
            return writer.write_all(text.as_bytes());
        }
        for c in text.chars() {
            if (' '..='~').contains(&c) {
                writer.write_all(c.encode_utf8(&mut [0; 4]).as_bytes())?;
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(writer, "\\u{unit:04x}")?;
                }
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }
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
