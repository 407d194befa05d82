//! Server-sent events, as far as MCP uses them: the name and the data of each event.

/// Puts events together from pieces of any size.
#[derive(Default)]
pub(crate) struct SseParser {
    line: Vec<u8>,
    name: Vec<u8>,
    data: Vec<u8>,
    after_return: bool,
}

/// One event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct McpSseEvent {
    /// Its name; empty when it has none.
    pub(crate) name: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// An event that is too large.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

impl SseParser {
    /// Takes a piece in; gives the events that it completes.
    pub(crate) fn push(&mut self, piece: &[u8], limit: usize) -> Result<Vec<McpSseEvent>, TooLarge> {
        let mut done = Vec::new();
        for &byte in piece {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => done.extend(self.end_line()),
                _ => self.line.push(byte),
            }
            if self.line.len() + self.name.len() + self.data.len() > limit {
                return Err(TooLarge);
            }
        }
        Ok(done)
    }

    fn end_line(&mut self) -> Option<McpSseEvent> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            return (!data.is_empty()).then_some(McpSseEvent { name, data });
        }
        if let Some(value) = line.strip_prefix(b"event:") {
            self.name = value.strip_prefix(b" ").unwrap_or(value).to_vec();
        }
        if let Some(value) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_out_whole_however_they_come_in() {
        let text = b": hi\nevent: message\ndata: {\"a\":\ndata:1}\n\r\ndata: two\r\n\r\nid: 3\n\ndata: three";
        let event = |name: &str, data: &str| McpSseEvent { name: name.into(), data: data.into() };
        let expected = vec![event("message", "{\"a\":\n1}"), event("", "two")];
        for size in 1..text.len() {
            let mut events = SseParser::default();
            let got: Vec<McpSseEvent> =
                text.chunks(size).flat_map(|piece| events.push(piece, 100).unwrap()).collect();
            assert_eq!(got, expected, "in pieces of {size}");
        }
        assert_eq!(SseParser::default().push(&[b'x'; 200], 100), Err(TooLarge));
    }
}
