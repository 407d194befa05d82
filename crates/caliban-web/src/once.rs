//! `Idempotency-Key`: two requests with the same key have one effect.
//!
//! Owns the recent responses by key, in memory. A repetition gets the same response, also while the first request is
//! still running; a request whose client has disconnected is carried out all the same. Deduplication across a restart
//! of this server is up to the daemon and the store: the routes pass them a name for the request ([`Named`]).

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, header};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::app::{App, BODY_CAP};
use crate::error::Problem;

/// The header with the key.
pub(crate) const HEADER: &str = "idempotency-key";
/// The header of a repeated response.
const REPLAYED: &str = "idempotency-replayed";
/// Maximum length of a key.
const KEY_CAP: usize = 128;
/// Maximum number of stored responses; the oldest one is removed.
const ANSWERS: usize = 1024;
/// Maximum total size of the stored responses in bytes.
const BYTES: usize = 8 * 1024 * 1024;
/// Maximum size of the response to a request with an effect.
const ANSWER_CAP: usize = 16 * 1024 * 1024;

/// A name for the request that daemon and store can deduplicate by: a repetition with the same key has the same name.
#[derive(Debug, Clone)]
pub(crate) struct Named(pub(crate) Option<String>);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or(Self(None)))
    }
}

impl Named {
    /// As a UUID, for the broker.
    pub(crate) fn uuid(&self) -> Option<String> {
        let name = self.0.as_deref()?;
        // UUID version 8: a computed one.
        Some(format!(
            "{}-{}-8{}-a{}-{}",
            name.get(..8)?,
            name.get(8..12)?,
            name.get(13..16)?,
            name.get(17..20)?,
            name.get(20..32)?
        ))
    }
}

/// Responses that were given, and requests that are running.
#[derive(Debug, Default)]
pub(crate) struct Once(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    by_key: HashMap<String, Known>,
    /// Keys with a stored response, the oldest first, and the size of each response.
    kept: VecDeque<(String, usize)>,
    bytes: usize,
}

/// A request with a key.
#[derive(Debug, Clone)]
struct Known {
    name: String,
    answer: watch::Receiver<Option<Answer>>,
}

/// A response that can be repeated.
#[derive(Debug, Clone)]
struct Answer {
    status: StatusCode,
    kind: Option<HeaderValue>,
    body: Bytes,
}

/// What a key means for a request.
enum Turn {
    /// The first request with this key; its response goes here.
    First(watch::Sender<Option<Answer>>),
    /// A repetition.
    Again(watch::Receiver<Option<Answer>>),
    /// The key belongs to a different request.
    Taken,
}

impl Once {
    fn turn(&self, key: &str, name: &str) -> Turn {
        let mut table = self.lock();
        // A request that was aborted without a response does not count.
        let known = table.by_key.get(key).filter(|known| known.is_alive()).cloned();
        match known {
            Some(known) if known.name == name => Turn::Again(known.answer),
            Some(_) => Turn::Taken,
            None => {
                let (answers, answer) = watch::channel(None);
                table.by_key.insert(key.to_owned(), Known { name: name.to_owned(), answer });
                Turn::First(answers)
            }
        }
    }

    /// Stores a success. After a refusal the same key may try again: nothing was done.
    fn settle(&self, key: &str, answer: &Answer) {
        let mut table = self.lock();
        if !answer.status.is_success() {
            table.by_key.remove(key);
            return;
        }
        table.kept.push_back((key.to_owned(), answer.body.len()));
        table.bytes += answer.body.len();
        while table.kept.len() > ANSWERS || table.bytes > BYTES && table.kept.len() > 1 {
            let Some((oldest, size)) = table.kept.pop_front() else { break };
            table.bytes -= size;
            table.by_key.remove(&oldest);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn is_alive(&self) -> bool {
        self.answer.borrow().is_some() || self.answer.has_changed().is_ok()
    }
}

impl Answer {
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        match to_bytes(body, ANSWER_CAP).await {
            Ok(body) => {
                Self { status: parts.status, kind: parts.headers.get(header::CONTENT_TYPE).cloned(), body }
            }
            Err(_) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                kind: None,
                body: Bytes::from_static(b"the answer is too large"),
            },
        }
    }

    fn response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        if let Some(kind) = self.kind {
            response.headers_mut().insert(header::CONTENT_TYPE, kind);
        }
        response
    }
}

/// The middleware around all routes, behind the guard.
pub(crate) async fn once(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let is_effect = matches!(*request.method(), Method::POST | Method::DELETE);
    // Signing in has a one-time token of its own.
    if !is_effect || request.uri().path().starts_with("/auth/") || !request.headers().contains_key(HEADER) {
        return next.run(request).await;
    }
    match answer(app, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn answer(app: Arc<App>, request: Request, next: Next) -> Result<Response, Problem> {
    let key = request.headers().get(HEADER).and_then(|key| key.to_str().ok()).unwrap_or_default().to_owned();
    if key.is_empty() || key.len() > KEY_CAP {
        return Err(Problem::bad(format!("Idempotency-Key has 1 to {KEY_CAP} visible characters")));
    }
    let (mut parts, body) = request.into_parts();
    let body = to_bytes(body, BODY_CAP).await.map_err(|_| {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is too large or broke off")
    })?;
    let name = name(&parts, &body, &key);
    parts.extensions.insert(Named(Some(name.clone())));
    let mut waiting = match app.once.turn(&key, &name) {
        Turn::Taken => {
            let why = "this Idempotency-Key was used for another request";
            return Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "key_taken", why));
        }
        Turn::Again(waiting) => waiting,
        Turn::First(answers) => {
            let request = Request::from_parts(parts, Body::from(body));
            let carried_out = tokio::spawn(async move {
                let answer = Answer::of(next.run(request).await).await;
                app.once.settle(&key, &answer);
                let _nobody_waits = answers.send(Some(answer.clone()));
                answer
            });
            let answer = carried_out.await.map_err(|_| Problem::internal("the request broke"))?;
            return Ok(answer.response());
        }
    };
    let answer = waiting.wait_for(Option::is_some).await.map(|answer| answer.clone());
    let Ok(Some(answer)) = answer else { return Err(Problem::internal("the request broke")) };
    let mut response = answer.response();
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// The name of a request: 32 hex characters of a hash over everything that identifies it.
fn name(parts: &Parts, body: &[u8], key: &str) -> String {
    let mut digest = Sha256::new();
    let path = parts.uri.path_and_query().map(|path| path.as_str()).unwrap_or_default();
    let session = parts.headers.get("x-session-id").map(HeaderValue::as_bytes).unwrap_or_default();
    for part in [key.as_bytes(), parts.method.as_str().as_bytes(), path.as_bytes(), session, body] {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    digest.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: StatusCode, size: usize) -> Answer {
        Answer { status, kind: None, body: Bytes::from(vec![b'x'; size]) }
    }

    #[test]
    fn a_key_is_one_requests_until_that_is_refused() {
        let once = Once::default();
        let Turn::First(answers) = once.turn("k", "one") else { panic!("the first") };
        assert!(matches!(once.turn("k", "one"), Turn::Again(_)), "while the first is at work");
        assert!(matches!(once.turn("k", "other"), Turn::Taken));
        let refused = answer(StatusCode::CONFLICT, 1);
        once.settle("k", &refused);
        answers.send(Some(refused)).unwrap_err();
        // After a refusal the key is free, also for a different request.
        let Turn::First(answers) = once.turn("k", "other") else { panic!("again the first") };
        // An aborted request leaves no response, and does not block the key.
        drop(answers);
        assert!(matches!(once.turn("k", "one"), Turn::First(_)));
    }

    #[test]
    fn the_oldest_answers_go() {
        let once = Once::default();
        let mut all = Vec::new();
        for n in 0..=ANSWERS {
            let Turn::First(answers) = once.turn(&n.to_string(), "one") else { panic!("the first") };
            once.settle(&n.to_string(), &answer(StatusCode::OK, 1));
            all.push(answers);
        }
        assert!(matches!(once.turn("0", "one"), Turn::First(_)));
        assert!(matches!(once.turn("1", "one"), Turn::Again(_)));
        // A response as large as the limit for all of them.
        once.settle("2", &answer(StatusCode::OK, BYTES));
        assert!(matches!(once.turn("1", "one"), Turn::First(_)));
    }

    #[test]
    fn a_name_for_the_broker_is_a_uuid() {
        let named = Named(Some("00112233445566778899aabbccddeeff".to_owned()));
        assert_eq!(named.uuid().unwrap(), "00112233-4455-8677-a899-aabbccddeeff");
        assert_eq!(Named(None).uuid(), None);
    }
}
