//! Server-sent events: bytes in, events out.
//!
//! Takes the bytes in any pieces, with any line ending, and caps the size of one event at what its reader says. Refuses to
//! know what is in an event.

/// One event; without data it is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; empty when it has none.
    pub name: String,
    /// Its data lines, joined by line feeds.
    pub data: String,
}

/// The event was larger than this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is larger than {0} bytes")]
pub struct TooLarge(usize);

/// Splits a stream of bytes into events.
#[derive(Debug)]
pub struct Parser {
    cap: usize,
    line: Vec<u8>,
    /// The last byte was a carriage return: a line feed now belongs to it.
    after_cr: bool,
    begun: bool,
    name: String,
    data: Option<String>,
}

impl Parser {
    /// Of a stream whose events have at most `cap` bytes.
    #[must_use]
    pub fn new(cap: usize) -> Self {
        Self { cap, line: Vec::new(), after_cr: false, begun: false, name: String::new(), data: None }
    }

    /// Takes the next bytes and gives the events that they complete.
    ///
    /// # Errors
    /// An event is too large; nothing more can be read.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<Vec<SseEvent>, TooLarge> {
        let mut events = Vec::new();
        while !bytes.is_empty() {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            let held = self.line.len() + self.name.len() + self.data.as_ref().map_or(0, String::len);
            if held + part.len() > self.cap {
                return Err(TooLarge(self.cap));
            }
            self.line.extend_from_slice(part);
            let Some((ending, rest)) = rest.split_first() else { break };
            self.after_cr = *ending == b'\r';
            bytes = rest;
            events.extend(self.end_line());
        }
        Ok(events)
    }

    /// The event that the end of the stream leaves open. The standard drops it, but some servers
    /// leave out the last empty line; whether it is whole is for the caller to see.
    #[must_use]
    pub fn finish(mut self) -> Option<SseEvent> {
        let ended = self.end_line();
        ended.or_else(|| self.end_event())
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.begun, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            return self.end_event();
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            // Comments (an empty field) and everything else.
            _ => {}
        }
        None
    }

    fn end_event(&mut self) -> Option<SseEvent> {
        let name = std::mem::take(&mut self.name);
        self.data.take().filter(|data| !data.is_empty()).map(|data| SseEvent { name, data })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(parts: &[&[u8]]) -> Vec<SseEvent> {
        let mut parser = Parser::new(1000);
        let mut events: Vec<SseEvent> = parts.iter().flat_map(|part| parser.feed(part).unwrap()).collect();
        events.extend(parser.finish());
        events
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.into(), data: data.into() }
    }

    #[test]
    fn every_line_ending_comments_and_many_data_lines() {
        let text = "\u{feff}event: a\r\ndata: 1\r\n\r\n: ping\n\ndata:2\ndata: 3\n\nevent: lost\n\nid: 7\rdata\r\rdata: end";
        let expected = [event("a", "1"), event("", "2\n3"), event("", "end")];
        assert_eq!(all(&[text.as_bytes()]), expected);
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::new(100);
        let piece = [b'x'; 50];
        assert_eq!(parser.feed(b"data: "), Ok(vec![]));
        assert_eq!(parser.feed(&piece), Ok(vec![]));
        assert_eq!(parser.feed(b"\ndata: "), Ok(vec![]));
        assert_eq!(parser.feed(&piece), Err(TooLarge(100)));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            text in "(event: [a-c]{0,2}|data: ?[ä€x:]{0,4}|: c|\r|\n|\r\n){0,30}",
            cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
        ) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let mut parts = Vec::new();
            let mut from = 0;
            for cut in cuts {
                parts.push(&bytes[from..cut]);
                from = cut;
            }
            parts.push(&bytes[from..]);
            prop_assert_eq!(all(&parts), all(&[bytes]));
        }
    }
}
