//! Requests of other programs, passed on as they are: with our key, at our governor, and counted.
//!
//! Owns what a gateway has to know of a provider: where it is, which headers carry the key, which refusals mean "later", and
//! what the bytes of an answer say about usage. It changes no byte of a request's or an answer's body.

use std::time::Duration;

use bytes::Bytes;
use caliban_core::{sse, usage::Usage};
use caliban_http::{HeaderMap, Method, Response};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Billed, Calls, Config, Delta, ModelRequest, ProviderError,
    error::AttemptFailure,
    factory, governor,
    http::{HttpProvider, MAX_ANSWER_BYTES, MAX_ERROR_BYTES, MAX_EVENT_BYTES, asked_wait},
    retry, unstreamed,
    wire::{Assemble, StreamProgress},
};

/// Headers that carry a key or login, in any protocol. The gateway's own go out in their place.
pub const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "proxy-authorization"];

/// Where requests of one protocol go. It holds a key, so it is not `Debug`.
pub struct Relay(HttpProvider);

/// What came of a request.
pub enum RelayOutcome {
    /// The server answers; the body is still to come.
    Begun(Response),
    /// The server has refused; this is all that it said.
    Refused(RelayRefused),
    /// Nobody answered.
    Failed {
        /// Why, in words.
        reason: String,
        /// Whether the model may have been at work.
        billed: Billed,
    },
}

/// A refusal, whole.
#[derive(Debug)]
pub struct RelayRefused {
    /// The status code.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Whether it is a rate limit or overload; then the governor knows of it.
    pub is_limited: bool,
    /// Whether the model may have been at work.
    pub billed: Billed,
}

/// Why a request did not get its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoTurn {
    /// The one who asked is gone.
    Cancelled,
    /// It would have to wait longer than it wants to.
    TooLong {
        /// How long, by what is known now.
        wait: Duration,
        /// Why, in words.
        reason: String,
    },
}

impl Relay {
    /// The way to a provider. Opens no connection.
    ///
    /// # Errors
    /// A missing key, or an address that is none.
    pub fn new(config: Config) -> Result<Self, ProviderError> {
        factory::over_http(config).map(Self)
    }

    /// The address for people: without a login.
    pub fn shown_base(&self) -> &str {
        &self.0.shown_base
    }

    /// Waits for a turn at the governor, at most this long.
    ///
    /// # Errors
    /// See [`NoTurn`]; the place in the queue is given up then.
    pub async fn turn(&self, at_most: Duration, cancel: &CancellationToken) -> Result<(), NoTurn> {
        let Some(governor) = &self.0.governor else { return Ok(()) };
        let end = Instant::now() + at_most;
        let enough = cancel.child_token();
        let mut too_long = None;
        let mut watch = |delta: Delta| {
            if let Delta::Waiting { wait, reason, .. } = delta
                && Instant::now() + wait > end
            {
                too_long = Some(NoTurn::TooLong { wait, reason });
                enough.cancel();
            }
        };
        let passed = governor::pass(governor, &mut watch, &enough).await;
        passed.map(drop).map_err(|_cancelled| too_long.unwrap_or(NoTurn::Cancelled))
    }

    /// Sends a request to this path below the provider's address, and tells the governor what the head of the answer says.
    /// `headers` are the client's, without hop-by-hop ones and [`KEY_HEADERS`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> RelayOutcome {
        let provider = &self.0;
        let url = format!("{}{path}", provider.base);
        let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let keys = provider.wire.headers(provider.key.as_deref());
        let own = provider.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> = keys
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .filter(|(name, _)| !given(name))
            .chain(headers.iter().copied())
            .chain(own.filter(|(name, _)| !given(name)))
            .collect();
        let sent = Instant::now();
        let response = match provider.client.send(method, &url, &all, body).await {
            Ok(response) => response,
            Err(error) => {
                let failure = AttemptFailure::Network(error);
                return RelayOutcome::Failed { reason: failure.in_words(), billed: failure.billed() };
            }
        };
        if !(200..300).contains(&response.status) {
            return RelayOutcome::Refused(self.refused(response, sent).await);
        }
        if let Some(governor) = &provider.governor {
            governor.answered(governor::allowance(&response, jiff::Timestamp::now())).await;
        }
        RelayOutcome::Begun(response)
    }

    async fn refused(&self, mut response: Response, sent: Instant) -> RelayRefused {
        let asked = asked_wait(&response);
        let body = response.bytes_up_to(MAX_ERROR_BYTES).await.map(|body| body.bytes).unwrap_or_default();
        let failure = AttemptFailure::from_body(response.status, &body, asked);
        let is_limited = retry::is_limited(&failure);
        let asked = retry::asked_wait(&failure);
        // A wait that no agent would wait (the rest of a day) is this client's alone.
        let is_for_all = is_limited && asked.is_none_or(|asked| asked <= self.0.policy.patience);
        if let Some(governor) = self.0.governor.as_ref().filter(|_| is_for_all) {
            governor.limited(&failure.in_words(), asked, sent.elapsed()).await;
        }
        let (status, headers) = (response.status, std::mem::take(&mut response.headers));
        RelayRefused { status, headers, body, is_limited: is_for_all, billed: failure.billed() }
    }

    /// Reads along in the answer to a request for this model.
    pub fn reader(&self, response: &Response, model: &str) -> RelayReader {
        let is_plain = response.header("content-encoding").is_none_or(|encoding| encoding == "identity");
        let is_stream =
            response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        let request = ModelRequest {
            model,
            system: "",
            tools: &[],
            calls: Calls::Allowed,
            messages: &[],
            max_output: None,
            effort: caliban_core::message::Effort::default(),
            session: "",
        };
        let form = match (is_plain, is_stream) {
            (false, _) => BodyForm::Unreadable,
            (true, true) => BodyForm::Events(sse::Parser::new(MAX_EVENT_BYTES)),
            (true, false) => BodyForm::Whole(Vec::new()),
        };
        let assembler = self.0.wire.assembler(self.0.kind, &request);
        RelayReader { wire: self.0.wire, form, assembler, counted: None, seen: 0 }
    }
}

/// Reads an answer as it passes by.
pub struct RelayReader {
    wire: crate::wire::Wire,
    form: BodyForm,
    assembler: Box<dyn Assemble>,
    counted: Option<Usage>,
    /// Bytes of the answer so far.
    seen: u64,
}

enum BodyForm {
    Events(sse::Parser),
    Whole(Vec<u8>),
    /// Compressed, too large, or not the protocol: only its size is known.
    Unreadable,
}

impl RelayReader {
    /// Takes the next bytes of the answer.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.seen += bytes.len() as u64;
        let is_readable = match &mut self.form {
            BodyForm::Events(parser) => match parser.feed(bytes) {
                Ok(events) => events
                    .into_iter()
                    .filter(|event| !event.data.trim().is_empty())
                    .all(|event| observe(&mut *self.assembler, &event, &mut self.counted).is_ok()),
                Err(_) => false,
            },
            BodyForm::Whole(all) => {
                all.extend_from_slice(bytes);
                all.len() <= MAX_ANSWER_BYTES
            }
            BodyForm::Unreadable => true,
        };
        if !is_readable || self.assembler.size() > MAX_ANSWER_BYTES {
            self.form = BodyForm::Unreadable;
        }
    }

    /// What the server has counted so far.
    pub fn counted(&self) -> Option<Usage> {
        self.counted
    }

    /// Bytes of text, reasoning and arguments so far; of an answer that cannot be read, all bytes.
    pub fn said(&self) -> u64 {
        match self.form {
            BodyForm::Events(_) => self.assembler.size() as u64,
            BodyForm::Whole(_) | BodyForm::Unreadable => self.seen,
        }
    }

    /// The body is at its end: what the request took, by the server's count. Nothing when the answer is not whole, or the server
    /// has not counted: it may have thought unseen, or think on.
    pub fn finish(mut self) -> Option<Usage> {
        match self.form {
            BodyForm::Events(parser) => {
                if let Some(event) = parser.finish() {
                    let _half_an_event = observe(&mut *self.assembler, &event, &mut self.counted);
                }
            }
            BodyForm::Whole(all) => {
                let value: Value = serde_json::from_slice(&all).ok()?;
                for event in unstreamed::events(self.wire, &value)? {
                    let event = sse::SseEvent { name: String::new(), data: event.to_string() };
                    observe(&mut *self.assembler, &event, &mut self.counted).ok()?;
                }
            }
            BodyForm::Unreadable => return None,
        }
        let reply = self.assembler.finish().ok()?;
        (reply.usage.total() > 0).then_some(reply.usage)
    }
}

fn observe(
    assembler: &mut dyn Assemble,
    event: &sse::SseEvent,
    counted: &mut Option<Usage>,
) -> Result<StreamProgress, AttemptFailure> {
    assembler.event(event, &mut |delta| {
        if let Delta::Usage(usage) = delta {
            *counted = Some(usage);
        }
    })
}
