//! One request: records it, decides on the answer, carries the decision out.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use caliban_providers::script::{Fault, FaultKind, ScriptStep, ScriptView};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use serde_json::{Value, json};

use crate::endpoint::{Endpoint, EndpointForm};
use crate::request::{Recorded, RequestOutcome};
use crate::rules;
use crate::server::{Hangup, KeptRequests, Rules, ScriptServerSettings, ServerShared};
use crate::stream::{Items, StreamItem};
use crate::view::view;
use crate::wire::{self, Protocol, StreamPart, WireAnswer, WireRefusal};

/// Closes the connection without an answer.
#[derive(Debug)]
pub(crate) struct CloseConnection;

impl std::fmt::Display for CloseConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("closed by the script")
    }
}

impl std::error::Error for CloseConnection {}

pub(crate) async fn answer(
    shared: Arc<ServerShared>,
    request: Request<Incoming>,
) -> Result<Response<Items>, CloseConnection> {
    let (head, body) = request.into_parts();
    let raw = body.collect().await.map_err(|_| CloseConnection)?.to_bytes();
    let request = recorded(&shared, &head, raw);
    let anthropic = request.header("anthropic-version").is_some();
    let endpoint = Endpoint::of(&request.method, &request.path, &request.query, anthropic);
    let mut hangup = Hangup::armed(shared.clone());
    let (number, body, decision) = decide_and_record(&shared, request, &endpoint);
    let chosen = match decision {
        AnswerDecision::Plain(plain) => {
            hangup.disarm();
            return Ok(document(plain, hangup));
        }
        AnswerDecision::Step(chosen) => *chosen,
    };
    // The test holds the request until it releases it; a dropped sender means that the test has ended.
    let _ = shared.held.subscribe().wait_for(|held| !held).await;
    if let Some(millis) = chosen.step.delay_ms {
        tokio::time::sleep(Duration::from_millis(millis)).await;
    }
    let answer = WireAnswer::new(number, &body, &chosen.step, &chosen.view);
    let response = carry_out(&chosen, &answer, hangup)?;
    Ok(match shared.settings.frame_size {
        Some(size) => response.map(|items| items.in_frames_of(size)),
        None => response,
    })
}

/// The answer to a request.
enum AnswerDecision {
    /// By this document.
    Plain(Plain),
    /// By a step of the script.
    Step(Box<Chosen>),
}

struct Chosen {
    protocol: Protocol,
    form: EndpointForm,
    step: ScriptStep,
    view: ScriptView,
}

struct Plain {
    status: u16,
    body: String,
    retry_after: Option<String>,
    retry: Retry,
}

/// What the answer says about a retry.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// Nothing.
    Unsaid,
    /// That a retry is useless.
    Never,
}

impl Plain {
    fn ok(body: Value) -> Self {
        Self { status: 200, body: body.to_string(), retry_after: None, retry: Retry::Unsaid }
    }

    fn refused(protocol: Protocol, refusal: &WireRefusal<'_>) -> Self {
        let body = protocol.error(refusal).to_string();
        Self { status: protocol.status(refusal), body, retry_after: None, retry: Retry::Unsaid }
    }
}

/// Decides under the lock, so that requests are recorded in the order of the script. Returns the number of the request
/// among those to the model, its body and the decision.
fn decide_and_record(
    shared: &ServerShared,
    mut request: Recorded,
    endpoint: &Endpoint,
) -> (usize, Value, AnswerDecision) {
    let mut record = shared.lock();
    let record = &mut *record;
    if let Endpoint::Ask { protocol, .. } = endpoint {
        request.protocol = Some(*protocol);
        record.asked += 1;
    }
    let number = record.asked;
    let body = request.body.clone();
    let mut pick = |view: &ScriptView| {
        if let Some(chooser) = &shared.settings.chooser {
            return Ok((chooser.0)(&body));
        }
        let step = record.script.next(&mut record.state, view).map_err(|e| e.to_string())?;
        if !step.repeat {
            record.reached.push(ScriptStep { fault: None, ..step.clone() });
        }
        Ok(step)
    };
    let (outcome, decision) = decide(&shared.settings, &request, endpoint, &mut pick);
    request.outcome = outcome;
    if shared.settings.keep == KeptRequests::All {
        record.requests.push(request);
    }
    shared.changed();
    (number, body, decision)
}

fn decide(
    settings: &ScriptServerSettings,
    request: &Recorded,
    endpoint: &Endpoint,
    pick: &mut dyn FnMut(&ScriptView) -> Result<ScriptStep, String>,
) -> (RequestOutcome, AnswerDecision) {
    let protocol = endpoint.protocol();
    let refuse = |refusal: &WireRefusal<'_>| {
        let plain = Plain::refused(protocol, refusal);
        (RequestOutcome::Rejected(plain.body.clone()), AnswerDecision::Plain(plain))
    };
    let other = |plain: Plain| (RequestOutcome::Other, AnswerDecision::Plain(plain));
    let keyed = !matches!(endpoint, Endpoint::Root | Endpoint::Unknown | Endpoint::OllamaVersion);
    if let Some(key) = settings.key.as_deref().filter(|_| keyed && protocol != Protocol::Ollama) {
        let sent = key_of(request);
        if sent != key {
            return refuse(&WireRefusal::WrongKey(&sent));
        }
    }
    let (model, form) = match endpoint {
        Endpoint::Ask { model, form, .. } => (model.as_deref(), *form),
        Endpoint::Models(Protocol::Anthropic) => {
            return other(Plain::ok(wire::anthropic_models(&settings.models())));
        }
        Endpoint::Models(Protocol::Gemini) => {
            return other(Plain::ok(wire::gemini_models(&settings.models())));
        }
        Endpoint::Models(Protocol::Ollama) => {
            return other(Plain::ok(wire::ollama_models(&settings.models())));
        }
        Endpoint::Models(Protocol::Chat | Protocol::Responses) => {
            return other(Plain::ok(wire::openai_models(&settings.models())));
        }
        Endpoint::Count(protocol) => {
            let chars = view(*protocol, "", &request.body).prompt_chars;
            let tokens = chars.div_ceil(caliban_providers::script::CHARS_PER_TOKEN);
            let key = if *protocol == Protocol::Gemini { "totalTokens" } else { "input_tokens" };
            return other(Plain::ok(json!({key: tokens})));
        }
        Endpoint::OllamaVersion => return other(Plain::ok(json!({"version": "0.15.0"}))),
        Endpoint::Root => {
            let body = "Ollama is running".to_owned();
            return other(Plain { status: 200, body, retry_after: None, retry: Retry::Unsaid });
        }
        Endpoint::Unknown => {
            let message = format!("testkit: there is no {} {}", request.method, request.path);
            let refusal = WireRefusal::Status { status: 404, message: Some(&message), retry_after: None };
            return other(Plain::refused(protocol, &refusal));
        }
    };
    if !request.body.is_object() {
        let message = "We could not parse the JSON body of your request.";
        return refuse(&WireRefusal::Status { status: 400, message: Some(message), retry_after: None });
    }
    let model = model.or(request.body["model"].as_str()).unwrap_or_default();
    if settings.models.as_ref().is_some_and(|known| !known.iter().any(|one| one == model)) {
        return refuse(&WireRefusal::UnknownModel(model));
    }
    if settings.rules == Rules::Held
        && let Err(broken) = rules::check(protocol, request)
    {
        return refuse(&WireRefusal::Status { status: 400, message: Some(&broken), retry_after: None });
    }
    let view = view(protocol, model, &request.body);
    match pick(&view) {
        Ok(step) => {
            let outcome =
                if step.fault.is_some() { RequestOutcome::Failed } else { RequestOutcome::Answered };
            let form = match form {
                EndpointForm::AsAsked if request.body["stream"] == true => EndpointForm::Events,
                EndpointForm::AsAsked => EndpointForm::Whole,
                said => said,
            };
            (outcome, AnswerDecision::Step(Box::new(Chosen { protocol, form, step, view })))
        }
        Err(reason) => {
            let message = format!("testkit: {reason}");
            let refusal = WireRefusal::Status { status: 500, message: Some(&message), retry_after: None };
            let plain = Plain { retry: Retry::Never, ..Plain::refused(protocol, &refusal) };
            (RequestOutcome::Unmatched(reason), AnswerDecision::Plain(plain))
        }
    }
}

fn carry_out(
    chosen: &Chosen,
    answer: &WireAnswer<'_>,
    mut hangup: Hangup,
) -> Result<Response<Items>, CloseConnection> {
    let protocol = chosen.protocol;
    match &chosen.step.fault {
        Some(Fault { kind: FaultKind::Refuse, .. }) => {
            hangup.disarm();
            return Err(CloseConnection);
        }
        Some(Fault { kind: FaultKind::Status, status, retry_after, body, .. }) => {
            hangup.disarm();
            let (status, retry_after) = (status.unwrap_or(500), retry_after.clone());
            let refusal = WireRefusal::Status { status, message: None, retry_after: retry_after.as_deref() };
            let usual = || protocol.error(&refusal).to_string();
            let body = body.clone().unwrap_or_else(usual);
            return Ok(document(Plain { status, body, retry_after, retry: Retry::Unsaid }, hangup));
        }
        Some(Fault { kind: FaultKind::Cut | FaultKind::Stall | FaultKind::ErrorEvent, .. }) | None => {}
    }
    Ok(match chosen.form {
        EndpointForm::Events => events(chosen, answer, hangup),
        EndpointForm::Whole | EndpointForm::AsAsked => whole(chosen, &protocol.whole(answer), hangup),
        EndpointForm::List => whole(chosen, &json!([protocol.whole(answer)]), hangup),
    })
}

/// A stream of events, up to the fault if there is one.
fn events(chosen: &Chosen, answer: &WireAnswer<'_>, hangup: Hangup) -> Response<Items> {
    let data = |event: String| StreamItem::Data(event.into());
    let pause = chosen.step.chunk_delay_ms.map(Duration::from_millis);
    let mut left = chosen.step.fault.as_ref().map(|fault| fault.after_chunks);
    let mut items = Vec::new();
    for part in chosen.protocol.stream(answer) {
        match (&part, left) {
            (StreamPart::End(_), Some(_)) | (StreamPart::Text(_) | StreamPart::Arguments(_), Some(0)) => {
                break;
            }
            (StreamPart::Text(_) | StreamPart::Arguments(_), Some(some)) => left = Some(some - 1),
            (StreamPart::Frame(_), _) | (_, None) => {}
        }
        if let (StreamPart::Text(_), Some(pause)) = (&part, pause) {
            items.push(StreamItem::Pause(pause));
        }
        items.push(data(part.into_event()));
    }
    if let Some(fault) = &chosen.step.fault {
        items.push(match fault.kind {
            FaultKind::ErrorEvent => {
                let message = fault.body.as_deref().unwrap_or("Overloaded");
                data(chosen.protocol.error_event(answer, message))
            }
            FaultKind::Stall => StreamItem::Stall,
            FaultKind::Cut | FaultKind::Status | FaultKind::Refuse => StreamItem::Cut,
        });
    }
    response(200, "text/event-stream; charset=utf-8")
        .header("cache-control", "no-cache")
        .body(Items::stream(items, hangup))
        .expect("a response of known headers")
}

/// One document, or its first half and the fault.
fn whole(chosen: &Chosen, value: &Value, mut hangup: Hangup) -> Response<Items> {
    let bytes = Bytes::from(value.to_string());
    let length = bytes.len();
    let half = bytes.slice(..length / 2);
    let items = match chosen.step.fault.as_ref().map(|fault| (fault.kind, &fault.body)) {
        None => vec![StreamItem::Data(bytes)],
        Some((FaultKind::Stall, _)) => vec![StreamItem::Data(half), StreamItem::Stall],
        Some((FaultKind::ErrorEvent, message)) => {
            hangup.disarm();
            let message = message.as_deref();
            let refusal = WireRefusal::Status { status: 500, message, retry_after: None };
            return document(Plain::refused(chosen.protocol, &refusal), hangup);
        }
        Some((FaultKind::Cut | FaultKind::Status | FaultKind::Refuse, _)) => {
            vec![StreamItem::Data(half), StreamItem::Cut]
        }
    };
    let body = Items::sized(length, items, hangup);
    response(200, "application/json").body(body).expect("a response of known headers")
}

fn document(plain: Plain, hangup: Hangup) -> Response<Items> {
    let bytes = Bytes::from(plain.body);
    let is_json = serde_json::from_slice::<serde::de::IgnoredAny>(&bytes).is_ok();
    let mut builder =
        response(plain.status, if is_json { "application/json" } else { "text/plain; charset=utf-8" });
    if let Some(value) = plain.retry_after {
        builder = builder.header("retry-after", value);
    }
    if plain.retry == Retry::Never {
        builder = builder.header("x-should-retry", "false");
    }
    builder
        .body(Items::sized(bytes.len(), [StreamItem::Data(bytes)], hangup))
        .expect("the script's Retry-After is a header value")
}

fn response(status: u16, content_type: &str) -> hyper::http::response::Builder {
    Response::builder()
        .status(status)
        .header("content-type", content_type)
        .header("request-id", "req_testkit")
}

fn recorded(shared: &ServerShared, head: &hyper::http::request::Parts, raw: Bytes) -> Recorded {
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    Recorded {
        method: head.method.as_str().to_owned(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        body: serde_json::from_slice(&raw).unwrap_or(Value::Null),
        raw,
        protocol: None,
        outcome: RequestOutcome::Other,
        at: shared.start.elapsed(),
    }
}

/// The key of a request, wherever the protocol has it; empty without one.
fn key_of(request: &Recorded) -> String {
    let bearer = || request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let in_query = || request.query.split('&').find_map(|pair| pair.strip_prefix("key="));
    let key = request.header("x-api-key").or_else(|| request.header("x-goog-api-key"));
    key.or_else(bearer).or_else(in_query).unwrap_or_default().to_owned()
}
