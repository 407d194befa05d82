//! What went wrong, in words: one line that says what happened and one that says what to do.
//!
//! Owns the public error and the private [`AttemptFailure`] of one attempt, from which the retry decision
//! is made. Text of a provider is shown cleaned and capped.

use std::time::Duration;

use serde_json::Value;

use crate::{Billed, kind::ProviderKind, script::ScriptError};

/// How much of a provider's own words is shown.
const MAX_REASON_CHARS: usize = 500;

/// Why a request failed for good.
#[expect(missing_docs, reason = "a field is what the message of its variant says")]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
    /// No provider of this name.
    #[error("there is no provider {name}")]
    UnknownProvider { name: String, suggestion: Option<String>, known: String },
    /// A key is needed and there is none.
    #[error("there is no key for {provider}")]
    NoKey { provider: ProviderKind },
    /// The provider does not accept the key, or the key may not do this.
    #[error("{provider} refused the key: {reason}")]
    Auth { provider: ProviderKind, reason: String },
    /// The account has nothing left.
    #[error("{provider} will not work for this account: {reason}")]
    Quota { provider: ProviderKind, reason: String },
    /// The provider found the request wrong.
    #[error("{provider} refused the request ({status}): {reason}")]
    BadRequest { provider: ProviderKind, status: u16, reason: String },
    /// The conversation is larger than the model's window.
    #[error("the conversation is too long for {model}: {reason}")]
    ContextTooLong { model: String, reason: String },
    /// The provider has no such model.
    #[error("{provider} has no model {model}")]
    UnknownModel { provider: ProviderKind, model: String, suggestions: Vec<String> },
    /// There is something at the URL, but not this API.
    #[error("{url} is not the API of {provider}: {reason}")]
    NotTheApi { provider: ProviderKind, url: String, reason: String },
    /// The rate limit outlasted our patience.
    #[error("{provider} limits the rate, after {} s of waiting: {reason}", waited.as_secs())]
    RateLimited { provider: ProviderKind, waited: Duration, reason: String },
    /// The provider's servers fail or are overloaded.
    #[error("{provider} is out of order ({status}, {attempts} attempts): {reason}")]
    Overloaded { provider: ProviderKind, status: u16, attempts: u32, reason: String },
    /// No connection.
    #[error("cannot reach {provider} at {url}{}: {reason}", tried_for(*down))]
    Unreachable { provider: ProviderKind, url: String, down: Duration, reason: String },
    /// The answer broke off, again and again.
    #[error("the answer of {provider} broke off ({attempts} attempts)")]
    Cut { provider: ProviderKind, attempts: u32 },
    /// The answer stopped coming, again and again.
    #[error("{provider} sent nothing for {} s ({attempts} attempts)", after.as_secs_f64())]
    Stalled { provider: ProviderKind, after: Duration, attempts: u32 },
    /// The answer makes no sense.
    #[error("the answer of {provider} cannot be read: {reason}")]
    Unreadable { provider: ProviderKind, reason: String },
    /// The answer is larger than any model writes.
    #[error("the answer of {provider} is larger than {} MB; the rest was not read", limit / 1_000_000)]
    TooLarge { provider: ProviderKind, limit: usize },
    /// The caller did not let the request be sent: [`crate::Watch`] says so.
    #[error("the request was not sent")]
    Stopped,
    /// The settings cannot work.
    #[error("{reason}")]
    Settings { reason: String },
    /// The script cannot be read.
    #[error("cannot use the script {path}: {reason}")]
    ScriptFile { path: String, reason: String },
    /// The script has no answer.
    #[error(transparent)]
    Script(#[from] ScriptError),
}

impl ProviderError {
    /// Whether another model of the same provider may answer where this one did not.
    pub fn may_another_model_answer(&self) -> bool {
        matches!(
            self,
            Self::Overloaded { .. }
                | Self::RateLimited { .. }
                | Self::UnknownModel { .. }
                | Self::Cut { .. }
                | Self::Stalled { .. }
        )
    }

    /// What to do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cancelled | Self::Stopped => None,
            Self::UnknownProvider { suggestion, known, .. } => Some(match suggestion {
                Some(name) => format!("did you mean {name}? known: {known}"),
                None => format!("known: {known}"),
            }),
            Self::NoKey { provider } => Some(set_key(*provider)),
            Self::Auth { provider, .. } => Some(format!("check the key: {}", set_key(*provider))),
            Self::Quota { .. } => {
                Some("check the account's plan and balance, or use another provider".to_owned())
            }
            Self::BadRequest { .. } => None,
            Self::ContextTooLong { .. } => {
                Some("compact the conversation, or use a model with a larger window".to_owned())
            }
            Self::UnknownModel { provider, model, suggestions } => {
                Some(match (provider, suggestions.as_slice()) {
                    (ProviderKind::Ollama, []) => {
                        format!("get it with `ollama pull {model}`, or choose with --model")
                    }
                    (_, []) => "choose another with --model or `model` in settings".to_owned(),
                    (_, [one]) => format!("did you mean {one}?"),
                    (_, some) => format!("did you mean one of {}?", some.join(", ")),
                })
            }
            Self::NotTheApi { .. } => Some("check `base_url` in settings".to_owned()),
            Self::RateLimited { .. } => Some("try again later, or run fewer agents at once".to_owned()),
            Self::Overloaded { .. } => Some("try again later, or use another model".to_owned()),
            Self::Unreachable { provider, .. } => Some(match provider.how_to_start() {
                Some(start) => start.to_owned(),
                None => "check the network, the proxy and `base_url` in settings".to_owned(),
            }),
            Self::Cut { .. } => {
                Some("try again; if it happens often, check the network or the proxy".to_owned())
            }
            Self::Stalled { .. } => {
                Some("try again; a slow model needs a larger `stall_seconds` under [retry]".to_owned())
            }
            Self::TooLarge { .. } => {
                Some("limit it with max_output_tokens, or check the server behind `base_url`".to_owned())
            }
            Self::Unreadable { .. } => Some("does `base_url` belong to this provider?".to_owned()),
            Self::Settings { .. } => None,
            Self::ScriptFile { .. } | Self::Script(_) => None,
        }
    }
}

/// How long a server was tried, where that took any time.
fn tried_for(down: Duration) -> String {
    match down.as_secs() {
        0 => String::new(),
        seconds => format!(" (tried for {seconds} s)"),
    }
}

/// Why one attempt failed.
#[derive(Debug)]
pub(crate) enum AttemptFailure {
    /// An HTTP error, or an error event that means the same.
    Status { status: u16, code: String, reason: String, retry_after: Option<Duration> },
    /// The connection failed.
    Network(caliban_http::HttpError),
    /// The stream ended without its closing event.
    Cut,
    /// The stream was silent for this long.
    Stalled(Duration),
    /// The answer is larger than so many bytes.
    TooLarge(usize),
    /// What came is not what the protocol says.
    Unreadable(String),
    /// There is something at the URL, but not this API.
    NotTheApi(String),
    /// The script has no answer.
    Script(ScriptError),
}

/// What an error message needs to know beside the failure.
#[derive(Debug)]
pub(crate) struct Circumstances<'a> {
    pub(crate) provider: ProviderKind,
    pub(crate) url: &'a str,
    pub(crate) model: &'a str,
    pub(crate) attempts: u32,
    pub(crate) waited: Duration,
    /// For how long the server could not be reached.
    pub(crate) down: Duration,
}

impl AttemptFailure {
    /// The failure in a few words, for people who wait.
    pub(crate) fn in_words(&self) -> String {
        match self {
            Self::Status { status: 429, reason, .. } => format!("rate limit: {reason}"),
            Self::Status { status: 529, reason, .. } => format!("overloaded: {reason}"),
            Self::Status { status, reason, .. } => format!("error {status}: {reason}"),
            Self::Network(error) => clean(&error.to_string()),
            Self::Cut => "the answer broke off".to_owned(),
            Self::Stalled(after) => format!("nothing came for {} s", after.as_secs_f64()),
            Self::TooLarge(limit) => format!("the answer is larger than {} MB", limit / 1_000_000),
            Self::Unreadable(reason) | Self::NotTheApi(reason) => reason.clone(),
            Self::Script(error) => error.to_string(),
        }
    }

    /// The failure as it is told for good.
    pub(crate) fn explain(self, around: &Circumstances<'_>) -> ProviderError {
        let Circumstances { provider, url, model, attempts, waited, down } = *around;
        match self {
            Self::Status { status, code, reason, .. } => {
                let is = |words: &[&str]| {
                    words.iter().any(|word| contains(&code, word) || contains(&reason, word))
                };
                match status {
                    400 | 413 | 422 if status == 413 || is(&TOO_LONG) => {
                        ProviderError::ContextTooLong { model: clean(model), reason }
                    }
                    402 => ProviderError::Quota { provider, reason },
                    429 if is(&NO_QUOTA) => ProviderError::Quota { provider, reason },
                    401 | 403 => ProviderError::Auth { provider, reason },
                    400 if is(&BAD_KEY) => ProviderError::Auth { provider, reason },
                    400 | 404 if is(&NO_MODEL) || (status == 404 && contains(&reason, "model")) => {
                        ProviderError::UnknownModel { provider, model: clean(model), suggestions: Vec::new() }
                    }
                    404 | 405 | 300..=399 => ProviderError::NotTheApi {
                        provider,
                        url: url.to_owned(),
                        reason: format!("{status} {reason}"),
                    },
                    429 => ProviderError::RateLimited { provider, waited, reason },
                    400..=499 if status != 408 => ProviderError::BadRequest { provider, status, reason },
                    _ => ProviderError::Overloaded { provider, status, attempts, reason },
                }
            }
            Self::Network(
                error @ (caliban_http::HttpError::BadUrl { .. } | caliban_http::HttpError::BadHeader { .. }),
            ) => ProviderError::Settings { reason: clean(&error.to_string()) },
            Self::Network(error) => ProviderError::Unreachable {
                provider,
                url: url.to_owned(),
                down,
                reason: clean(&error.to_string()),
            },
            Self::Cut => ProviderError::Cut { provider, attempts },
            Self::Stalled(after) => ProviderError::Stalled { provider, after, attempts },
            Self::TooLarge(limit) => ProviderError::TooLarge { provider, limit },
            Self::Unreadable(reason) => ProviderError::Unreadable { provider, reason },
            Self::NotTheApi(reason) => ProviderError::NotTheApi { provider, url: url.to_owned(), reason },
            Self::Script(error) => ProviderError::Script(error),
        }
    }

    /// Whether the account itself is the trouble: no wait will help.
    pub(crate) fn is_quota(&self) -> bool {
        match self {
            Self::Status { code, reason, .. } => {
                NO_QUOTA.iter().any(|word| contains(code, word) || contains(reason, word))
            }
            _ => false,
        }
    }

    /// Whether the model was at work when the attempt failed. A request that was refused, or never came there, is not billed.
    pub(crate) fn billed(&self) -> Billed {
        match self {
            Self::Cut | Self::Stalled(_) | Self::TooLarge(_) | Self::Unreadable(_) => Billed::Perhaps,
            Self::Network(
                caliban_http::HttpError::ClosedMidBody { .. }
                // The request may have been read, and the model at work.
                | caliban_http::HttpError::Closed { .. },
            ) => Billed::Perhaps,
            // A gateway has waited for the model in vain.
            Self::Status { status: 504, .. } => Billed::Perhaps,
            Self::Status { .. } | Self::Network(_) | Self::NotTheApi(_) | Self::Script(_) => Billed::No,
        }
    }

    /// An error event inside a stream, as the HTTP error that it would have been.
    pub(crate) fn from_event(event: &Value) -> Self {
        let (code, reason) = code_and_reason(event);
        let status = event.pointer("/error/code").or_else(|| event.get("code")).and_then(Value::as_u64);
        let status = match (status, code.as_str()) {
            (Some(status @ 400..=599), _) => u16::try_from(status).unwrap_or(500),
            (_, "overloaded_error" | "overloaded") => 529,
            (_, "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" | "slow_down") => 429,
            (_, "invalid_request_error" | "context_length_exceeded" | "invalid_prompt") => 400,
            (_, "authentication_error" | "invalid_api_key") => 401,
            (_, "billing_error") => 402,
            (_, "permission_error") => 403,
            (_, "not_found_error" | "model_not_found") => 404,
            (_, "request_too_large") => 413,
            (_, "timeout_error") => 504,
            _ => 500,
        };
        let retry_after = crate::retry::wait_in_words(&reason);
        Self::Status { status, code, reason, retry_after }
    }

    /// An HTTP error from its status and body.
    pub(crate) fn from_body(status: u16, body: &[u8], retry_after: Option<Duration>) -> Self {
        let text = String::from_utf8_lossy(body);
        let (code, reason) = match serde_json::from_str::<Value>(&text) {
            Ok(value) => code_and_reason(&value),
            Err(_) if looks_like_html(&text) => (String::new(), "a web page came instead".to_owned()),
            Err(_) => (String::new(), clean(&text)),
        };
        let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason };
        let retry_after = retry_after.or_else(|| crate::retry::wait_in_details(&text));
        Self::Status { status, code, reason, retry_after }
    }
}

/// Words by which providers say that the conversation is too long.
const TOO_LONG: [&str; 8] = [
    "context_length_exceeded",
    "exceed_context_size",
    "prompt is too long",
    "maximum context length",
    "context window",
    "exceeds the available context size",
    "input token count",
    "request_too_large",
];
const NO_QUOTA: [&str; 4] =
    ["insufficient_quota", "billing_error", "credit balance", "exceeded your current quota"];
const BAD_KEY: [&str; 3] = ["api_key_invalid", "api key not valid", "invalid_api_key"];
const NO_MODEL: [&str; 4] = ["model_not_found", "is not a valid model", "does not exist", "invalid model"];

/// A provider's text, fit to be shown: one line, no control characters, capped.
pub(crate) fn clean(text: &str) -> String {
    let invisible = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut words = String::new();
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.extend(word.chars().filter(|c| !invisible(*c)));
    }
    match words.char_indices().nth(MAX_REASON_CHARS) {
        Some((at, _)) => format!("{}…", &words[..at]),
        None => words,
    }
}

/// The error's code and message, wherever this provider puts them.
fn code_and_reason(value: &Value) -> (String, String) {
    let value = value.get(0).unwrap_or(value);
    let error = match value.get("error") {
        Some(Value::Null) | None => value.pointer("/response/error").unwrap_or(value),
        Some(error) => error,
    };
    let text = |key: &str| error.get(key).and_then(Value::as_str);
    let code =
        text("code").or_else(|| text("type").filter(|kind| *kind != "error")).or_else(|| text("status"));
    let nested = error.pointer("/metadata/raw").and_then(Value::as_str);
    let reason = match (error.as_str(), text("message"), text("detail")) {
        (Some(text), _, _) | (None, Some(text), _) | (None, None, Some(text)) => match nested {
            // OpenRouter puts the real provider's words there.
            Some(nested) => format!("{text}: {nested}"),
            None => text.to_owned(),
        },
        (None, None, None) => error.to_string(),
    };
    (code.unwrap_or_default().to_owned(), clean(&reason))
}

fn contains(text: &str, word: &str) -> bool {
    text.to_ascii_lowercase().contains(word)
}

fn looks_like_html(text: &str) -> bool {
    text.trim_start().starts_with('<')
}

fn set_key(provider: ProviderKind) -> String {
    match provider.key_variable() {
        Some(variable) => format!("set {variable}, or `api_key` in settings"),
        None => "set `api_key` in settings".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(status: u16, body: Value) -> String {
        let around = Circumstances {
            provider: ProviderKind::Anthropic,
            url: "http://x",
            model: "m",
            attempts: 3,
            waited: Duration::from_secs(9),
            down: Duration::ZERO,
        };
        let error = AttemptFailure::from_body(status, body.to_string().as_bytes(), None).explain(&around);
        format!("{error} | {}", error.hint().unwrap_or_default())
    }

    #[test]
    fn r20_a_request_that_may_have_come_to_the_model_counts() {
        let status = |status| AttemptFailure::from_body(status, b"", None).billed();
        let host = || "h".to_owned();
        assert_eq!(status(504), Billed::Perhaps);
        assert_eq!([400, 429, 500, 503, 529].map(status), [Billed::No; 5]);
        let network = |error| AttemptFailure::Network(error).billed();
        assert_eq!(network(caliban_http::HttpError::Closed { host: host() }), Billed::Perhaps);
        assert_eq!(network(caliban_http::HttpError::ClosedMidBody { host: host() }), Billed::Perhaps);
    }

    #[test]
    fn every_provider_s_errors_are_understood() {
        let error = |kind: &str, message: &str| json!({"error": {"type": kind, "message": message}});
        let code = |code: &str, message: &str| json!({"error": {"code": code, "message": message}});
        let cases = [
            (
                400,
                error("invalid_request_error", "max_tokens: bad"),
                "anthropic refused the request (400): max_tokens: bad | ",
            ),
            (
                401,
                error("authentication_error", "invalid x-api-key"),
                "anthropic refused the key: invalid x-api-key | check the key: set ANTHROPIC_API_KEY, or `api_key` in settings",
            ),
            (
                400,
                error("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum"),
                "the conversation is too long for m: prompt is too long: 9 tokens > 8 maximum | \
                 compact the conversation, or use a model with a larger window",
            ),
            (
                404,
                error("not_found_error", "model: m"),
                "anthropic has no model m | choose another with --model or `model` in settings",
            ),
            (
                404,
                json!("404 page not found"),
                "http://x is not the API of anthropic: 404 404 page not found | check `base_url` in settings",
            ),
            (
                429,
                code("insufficient_quota", "pay"),
                "anthropic will not work for this account: pay | check the account's plan and balance, or use another provider",
            ),
            (
                429,
                error("rate_limit_error", "slow"),
                "anthropic limits the rate, after 9 s of waiting: slow | try again later, or run fewer agents at once",
            ),
            (
                529,
                error("overloaded_error", "Overloaded"),
                "anthropic is out of order (529, 3 attempts): Overloaded | try again later, or use another model",
            ),
            (
                400,
                json!([{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
                "anthropic refused the key: API key not valid. | check the key: set ANTHROPIC_API_KEY, or `api_key` in settings",
            ),
            (
                400,
                json!({"object": "error", "message": "bad", "code": 400}),
                "anthropic refused the request (400): bad | ",
            ),
            (
                422,
                json!({"detail": "no\u{1b}[31m red\nlines"}),
                "anthropic refused the request (422): no[31m red lines | ",
            ),
        ];
        for (status, body, expected) in cases {
            assert_eq!(told(status, body), expected);
        }
    }

    #[test]
    fn long_reasons_are_capped() {
        assert_eq!(clean(&"x".repeat(600)).chars().count(), MAX_REASON_CHARS + 1);
    }
}
