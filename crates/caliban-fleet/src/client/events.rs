//! Reading the daemon's events.

use std::collections::VecDeque;

use caliban_core::sse::{self, SseEvent};
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
    parser: sse::Parser,
    ready: VecDeque<SseEvent>,
    _connection: DaemonConnection,
}

impl DaemonEvents {
    pub(super) fn new(connection: DaemonConnection, body: Incoming) -> Self {
        Self { body, parser: sse::Parser::new(EVENT_CAP), ready: VecDeque::new(), _connection: connection }
    }

    /// The next event; none when the daemon has left. Safe to drop while it waits.
    pub async fn next(&mut self) -> Result<Option<FleetEvent>, ClientError> {
        let broken = |error: &dyn std::error::Error| ClientError::Broken(error.to_string());
        loop {
            if let Some(event) = std::iter::from_fn(|| self.ready.pop_front()).find_map(|event| known(&event))
            {
                return Ok(Some(event));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.ready.extend(self.parser.feed(&data).map_err(|error| broken(&error))?);
                    }
                }
                Some(Err(error)) => return Err(broken(&error)),
                None => return Ok(None),
            }
        }
    }
}

/// None for kinds that a later version has.
fn known(SseEvent { name, data }: &SseEvent) -> Option<FleetEvent> {
    let data: serde_json::Value = serde_json::from_str(data).ok()?;
    serde_json::from_value(serde_json::json!({ "event": name, "data": data })).ok()
}
