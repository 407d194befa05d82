//! Reading the daemon's events.

use bytes::BytesMut;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::{ClientError, DaemonConnection};
use crate::protocol::FleetEvent;

/// The longest event that is read.
const EVENT_CAP: usize = 4 * 1024 * 1024;

/// A stream of events; ends when the daemon leaves.
#[derive(Debug)]
pub struct DaemonEvents {
    body: Incoming,
    buffer: BytesMut,
    _connection: DaemonConnection,
}

impl DaemonEvents {
    pub(super) fn new(connection: DaemonConnection, body: Incoming) -> Self {
        Self { body, buffer: BytesMut::new(), _connection: connection }
    }

    /// The next event; none when the daemon has left. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Option<FleetEvent>, ClientError> {
        loop {
            while let Some(block) = self.block() {
                if let Some(event) = parse(&block) {
                    return Ok(Some(event));
                }
            }
            if self.buffer.len() > EVENT_CAP {
                return Err(ClientError::Broken("an event is too large".to_owned()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                Some(Err(error)) => return Err(ClientError::Broken(error.to_string())),
                None => return Ok(None),
            }
        }
    }

    fn block(&mut self) -> Option<BytesMut> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")?;
        Some(self.buffer.split_to(end + 2))
    }
}

/// An event from its lines; none for comments and for kinds that a later version has.
fn parse(block: &[u8]) -> Option<FleetEvent> {
    let text = std::str::from_utf8(block).ok()?;
    let (mut name, mut data) = (None, String::new());
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("event:") {
            name = Some(value.trim());
        } else if let Some(value) = line.strip_prefix("data:") {
            data += value.trim_start();
        }
    }
    let data: serde_json::Value = serde_json::from_str(&data).ok()?;
    serde_json::from_value(serde_json::json!({ "event": name?, "data": data })).ok()
}
