//! A provider over HTTP: one attempt is one POST and the stream that answers it.
//!
//! Owns the watchdog on the stream and the reading of HTTP errors. Which bytes are sent and what the
//! events mean is the wire's; when an attempt is made again is for `retry` to say.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use caliban_core::{message::Effort, sse, usage::Usage};
use caliban_http::{HttpClient, Method, Response};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    BoxFuture, Governor, ModelReply, ModelRequest, Provider, ProviderError, Watch,
    catalog::{close_matches, suggestions},
    context_window,
    error::{AttemptFailure, Circumstances, clean},
    governor,
    kind::ProviderKind,
    refused_parts::Concessions,
    retry::{self, Attempt, RetryPolicy, RetryTarget},
    script::CHARS_PER_TOKEN,
    unstreamed,
    wire::{Observe, StreamProgress, Wire},
};

/// How much of an error's body is read.
pub(crate) const MAX_ERROR_BYTES: usize = 64 * 1024;
/// How much of a list of models is read.
const MAX_LIST_BYTES: usize = 8 * 1024 * 1024;
/// The text, reasoning and arguments of an answer may not be larger than this; no model writes as much.
/// The largest real events repeat a whole answer.
pub(crate) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
pub(crate) const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;
/// The events that an answer comes in may not be larger than this. They are read and dropped one by one.
const MAX_STREAM_BYTES: usize = 128 * 1024 * 1024;
/// A server that thinks in silence sends signs of life. They are believed for so many times the limit of silence.
const SIGNS_OF_LIFE: u32 = 5;
/// How long a question may take that the user has not asked.
const SIDE_QUESTION_TIME: Duration = Duration::from_secs(2);
/// How many parts of a request a server may refuse, one after the other.
const MAX_CONCESSIONS: u32 = 8;
/// How long a list of models may take.
const LIST_TIME: Duration = Duration::from_secs(15);

/// A provider over HTTP. It holds a key, so it is not `Debug`.
pub(crate) struct HttpProvider {
    pub(crate) kind: ProviderKind,
    pub(crate) wire: Wire,
    /// Without a slash at its end.
    pub(crate) base: String,
    /// The same for people: without a login.
    pub(crate) shown_base: String,
    pub(crate) key: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) client: HttpClient,
    pub(crate) policy: RetryPolicy,
    /// What the server has refused.
    pub(crate) conceded: Concessions,
    pub(crate) governor: Option<Arc<dyn Governor>>,
}

impl Provider for HttpProvider {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest<'a>,
        watch: &'a mut dyn Watch,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ModelReply, ProviderError>> {
        Box::pin(async move {
            let target = RetryTarget {
                provider: self.kind,
                url: &self.shown_base,
                policy: &self.policy,
                governor: self.governor.as_ref(),
            };
            let answered = retry::run(target, self, &request, watch, cancel).await;
            match answered {
                Err(ProviderError::UnknownModel { provider, model, .. }) => {
                    let suggestions = tokio::select! {
                        () = cancel.cancelled() => Vec::new(),
                        suggestions = self.suggest(&model) => suggestions,
                    };
                    Err(ProviderError::UnknownModel { provider, model, suggestions })
                }
                answered => answered,
            }
        })
    }

    fn aside(&self, usual: Effort) -> Effort {
        match self.wire {
            // Another way to think makes another prefix: what was cached of the messages would be paid for again.
            Wire::Anthropic => usual,
            Wire::Responses | Wire::Chat(_) | Wire::Gemini => Effort::None,
        }
    }

    fn list_models<'a>(
        &'a self,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<String>, ProviderError>> {
        Box::pin(async move {
            let listed = tokio::select! {
                () = cancel.cancelled() => return Err(ProviderError::Cancelled),
                listed = tokio::time::timeout(LIST_TIME, self.list()) => listed,
            };
            let listed = listed.unwrap_or(Err(AttemptFailure::Stalled(LIST_TIME)));
            let around = Circumstances {
                provider: self.kind,
                url: &self.shown_base,
                model: "",
                attempts: 1,
                waited: Duration::ZERO,
                down: Duration::ZERO,
            };
            listed.map_err(|failure| failure.explain(&around))
        })
    }

    fn context_window<'a>(&'a self, model: &'a str) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async move {
            let url = context_window::url(self.kind, &self.base, model)?;
            let answer = tokio::time::timeout(SIDE_QUESTION_TIME, self.get_json(&url)).await.ok()?.ok()?;
            context_window::find(self.kind, model, &answer)
        })
    }
}

impl Attempt for HttpProvider {
    fn attempt<'a>(
        &'a self,
        request: &'a ModelRequest<'a>,
        observe: &'a mut Observe<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, AttemptFailure>> {
        Box::pin(async move {
            for _ in 0..MAX_CONCESSIONS {
                let messages = self.conceded.messages(request.messages);
                let request = ModelRequest {
                    messages: messages.as_deref().unwrap_or(request.messages),
                    ..request.clone()
                };
                let mut body = self.wire.body(self.kind, &request);
                self.conceded.apply(&mut body);
                let answered = self.once(&request, body.to_string(), observe).await;
                match answered {
                    // At once: the server did not begin to answer.
                    Err(failure) if self.conceded.concede(&failure, &body, request.messages) => {}
                    Ok(reply) => {
                        self.conceded.accept(request.messages);
                        return Ok(reply);
                    }
                    Err(failure) => return Err(failure),
                }
            }
            Err(AttemptFailure::NotTheApi("it refuses one part of the request after the other".to_owned()))
        })
    }
}

impl HttpProvider {
    async fn once(
        &self,
        request: &ModelRequest<'_>,
        body: String,
        observe: &mut Observe<'_>,
    ) -> Result<ModelReply, AttemptFailure> {
        let sent_chars = body.len() as u64;
        let url = self.wire.url(&self.base, request.model);
        let limit = self.policy.stall;
        let more = self.wire.request_headers(request);
        let sent = self.send(Method::POST, &url, more, Bytes::from(body));
        let response =
            tokio::time::timeout(limit, sent).await.map_err(|_| AttemptFailure::Stalled(limit))??;
        if let Some(governor) = self.governor.as_ref().filter(|_| (200..300).contains(&response.status)) {
            governor.answered(governor::allowance(&response, jiff::Timestamp::now())).await;
        }
        let mut reply = self.read(response, request, observe).await?;
        count_unsaid(&mut reply, sent_chars);
        Ok(reply)
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        more: Option<(&'static str, String)>,
        body: Bytes,
    ) -> Result<Response, AttemptFailure> {
        let mut headers = self.wire.headers(self.key.as_deref());
        headers.extend(more);
        if method == Method::POST {
            headers.push(("content-type", "application/json".to_owned()));
            headers.push(("accept", "text/event-stream".to_owned()));
        }
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let all: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).chain(own).collect();
        self.client.send(method, url, &all, body).await.map_err(AttemptFailure::Network)
    }

    async fn read(
        &self,
        mut response: Response,
        request: &ModelRequest<'_>,
        observe: &mut Observe<'_>,
    ) -> Result<ModelReply, AttemptFailure> {
        if !(200..300).contains(&response.status) {
            return Err(self.refusal(response).await);
        }
        if let Some(kind) = response.header("content-type").map(str::to_owned)
            && !kind.starts_with("text/event-stream")
        {
            return self.not_a_stream(response, &kind, request, observe).await;
        }
        let mut parser = sse::Parser::new(MAX_EVENT_BYTES);
        let mut assembler = self.wire.assembler(self.kind, request);
        let (mut read, mut size) = (0, 0);
        let mut progress = Instant::now();
        while let Some(chunk) = self.chunk(&mut response, progress).await? {
            read += chunk.len();
            if read > MAX_STREAM_BYTES {
                return Err(AttemptFailure::TooLarge(MAX_STREAM_BYTES));
            }
            let events =
                parser.feed(&chunk).map_err(|error| AttemptFailure::Unreadable(error.to_string()))?;
            // An event without data is only a sign of life.
            for event in events.into_iter().filter(|event| !event.data.trim().is_empty()) {
                if assembler.event(&event, observe)? == StreamProgress::Closed {
                    response.release();
                    return assembler.finish();
                }
            }
            if assembler.size() > MAX_ANSWER_BYTES {
                return Err(AttemptFailure::TooLarge(MAX_ANSWER_BYTES));
            }
            if std::mem::replace(&mut size, assembler.size()) != size {
                progress = Instant::now();
            }
        }
        if let Some(event) = parser.finish() {
            match assembler.event(&event, observe) {
                // Half an event is what a cut stream ends with.
                Ok(_) | Err(AttemptFailure::Unreadable(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        assembler.finish()
    }

    /// The next bytes, under the watchdog: silence has a limit, and signs of life without an answer have a longer one.
    async fn chunk(
        &self,
        response: &mut Response,
        progress: Instant,
    ) -> Result<Option<Bytes>, AttemptFailure> {
        let silence = self.policy.stall;
        let left = silence.saturating_mul(SIGNS_OF_LIFE).saturating_sub(progress.elapsed());
        match tokio::time::timeout(silence.min(left), response.chunk()).await {
            Ok(Ok(chunk)) => Ok(chunk),
            Ok(Err(_)) => Err(AttemptFailure::Cut),
            Err(_) if left < silence => Err(AttemptFailure::Stalled(silence.saturating_mul(SIGNS_OF_LIFE))),
            Err(_) => Err(AttemptFailure::Stalled(silence)),
        }
    }

    async fn refusal(&self, mut response: Response) -> AttemptFailure {
        let asked = asked_wait(&response);
        let status = response.status;
        if let Some(location) = response.header("location").filter(|_| (300..400).contains(&status)) {
            return AttemptFailure::NotTheApi(format!("it redirects to {}", clean(location)));
        }
        let body = tokio::time::timeout(self.policy.stall, response.bytes_up_to(MAX_ERROR_BYTES)).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.bytes).unwrap_or_default();
        AttemptFailure::from_body(status, &body, asked)
    }

    /// What is no stream: a whole answer at once, an error with the wrong status, or something else altogether.
    async fn not_a_stream(
        &self,
        mut response: Response,
        kind: &str,
        request: &ModelRequest<'_>,
        observe: &mut Observe<'_>,
    ) -> Result<ModelReply, AttemptFailure> {
        let body = tokio::time::timeout(self.policy.stall, response.bytes_up_to(MAX_ANSWER_BYTES)).await;
        let body = body.ok().and_then(Result::ok).map(|body| body.bytes).unwrap_or_default();
        let value = serde_json::from_slice::<Value>(&body).unwrap_or_default();
        if value.get("error").is_some_and(|error| !error.is_null()) {
            return Err(AttemptFailure::from_event(&value));
        }
        let Some(events) = unstreamed::events(self.wire, &value) else {
            let reason = format!("it answers with {} instead of a stream of events", clean(kind));
            return Err(AttemptFailure::NotTheApi(reason));
        };
        let mut assembler = self.wire.assembler(self.kind, request);
        for event in events {
            let event = sse::SseEvent { name: String::new(), data: event.to_string() };
            assembler.event(&event, observe)?;
        }
        assembler.finish()
    }

    async fn list(&self) -> Result<Vec<String>, AttemptFailure> {
        let value = self.get_json(&self.wire.models_url(&self.base)).await?;
        Ok(names(&value))
    }

    async fn get_json(&self, url: &str) -> Result<Value, AttemptFailure> {
        let mut response = self.send(Method::GET, url, None, Bytes::new()).await?;
        if response.status != 200 {
            return Err(self.refusal(response).await);
        }
        let body = response.bytes_up_to(MAX_LIST_BYTES).await.map_err(AttemptFailure::Network)?;
        serde_json::from_slice(&body.bytes).map_err(|error| AttemptFailure::Unreadable(error.to_string()))
    }

    async fn suggest(&self, model: &str) -> Vec<String> {
        let listed = tokio::time::timeout(SIDE_QUESTION_TIME, self.list()).await;
        match listed {
            Ok(Ok(names)) if !names.is_empty() => close_matches(model, names.iter().map(String::as_str)),
            _ => suggestions(model),
        }
    }
}

/// The wait that the headers of a refusal ask for.
pub(crate) fn asked_wait(response: &Response) -> Option<Duration> {
    let milliseconds = response.header("retry-after-ms").and_then(|value| value.parse().ok());
    let seconds = || retry::retry_after(response.header("retry-after")?, jiff::Timestamp::now());
    milliseconds.map(Duration::from_millis).or_else(seconds)
}

/// The names in a list of models: `data[].id`, or Gemini's `models[].name`.
fn names(value: &Value) -> Vec<String> {
    let list = |key: &str, name: &str| -> Vec<String> {
        let items = value[key].as_array().into_iter().flatten();
        let names = items.filter_map(|item| item[name].as_str());
        names.map(|name| clean(name.strip_prefix("models/").unwrap_or(name))).collect()
    };
    let by_id = list("data", "id");
    if by_id.is_empty() { list("models", "name") } else { by_id }
}

/// What an answer probably cost, where the server does not say.
pub(crate) fn count_unsaid(reply: &mut ModelReply, sent_chars: u64) {
    if reply.usage != Usage::default() {
        return;
    }
    let said = serde_json::to_string(&reply.message.blocks).map_or(0, |text| text.len() as u64);
    reply.usage = Usage {
        input: sent_chars.div_ceil(CHARS_PER_TOKEN),
        output: said.div_ceil(CHARS_PER_TOKEN),
        ..Usage::default()
    };
}
