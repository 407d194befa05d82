//! Why the gateway itself refuses, in the words of the client's protocol.
//!
//! The statuses are chosen so that a client stops where waiting is of no use. The SDKs of both vendors try 408, 409, 429 and 5xx
//! again. So a budget that is used up is a 402 for Anthropic's (its own `billing_error`). For OpenAI's it is a 400: codex tries a 402
//! five times, and replaces the words of a 429 by its own.

use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

use crate::answer_body::{AnswerBody, whole};
use crate::route::Protocol;

/// Why a request was not passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GatewayRefusal {
    /// Not for this address, or not from a page.
    Forbidden(String),
    /// No token, or a wrong one.
    NoToken,
    /// Nothing of that name goes through here.
    NotFound(String),
    /// The request makes no sense.
    Bad(String),
    /// The body is too large.
    TooLarge(usize),
    /// A limit of the ledger is in the way.
    Budget(String),
    /// The rate limit would last longer than a request waits here.
    Limited {
        /// Until it may be tried again.
        wait: Duration,
        /// Why.
        reason: String,
    },
    /// The settings have no key for this provider.
    NoUpstream(String),
    /// The provider did not answer.
    Unanswered(String),
    /// The ledger cannot be written.
    NoLedger(String),
}

impl GatewayRefusal {
    fn status(&self, protocol: Protocol) -> StatusCode {
        match self {
            Self::Forbidden(_) | Self::NoUpstream(_) => StatusCode::FORBIDDEN,
            Self::NoToken => StatusCode::UNAUTHORIZED,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Bad(_) => StatusCode::BAD_REQUEST,
            Self::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Budget(_) if protocol == Protocol::Anthropic => StatusCode::PAYMENT_REQUIRED,
            Self::Budget(_) => StatusCode::BAD_REQUEST,
            Self::Limited { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Unanswered(_) => StatusCode::BAD_GATEWAY,
            Self::NoLedger(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The kind of error, in Anthropic's and in OpenAI's words.
    fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::Forbidden(_) | Self::NoUpstream(_) => ("permission_error", "permission_denied"),
            Self::NoToken => ("authentication_error", "invalid_api_key"),
            Self::NotFound(_) => ("not_found_error", "not_found"),
            Self::Bad(_) => ("invalid_request_error", "invalid_request_error"),
            Self::TooLarge(_) => ("request_too_large", "request_too_large"),
            Self::Budget(_) => ("billing_error", "insufficient_quota"),
            Self::Limited { .. } => ("rate_limit_error", "rate_limit_exceeded"),
            Self::Unanswered(_) | Self::NoLedger(_) => ("api_error", "server_error"),
        }
    }

    /// The kind of error in Google's words.
    fn google_status(&self) -> &'static str {
        match self {
            Self::Forbidden(_) | Self::NoUpstream(_) => "PERMISSION_DENIED",
            Self::NoToken => "UNAUTHENTICATED",
            Self::NotFound(_) => "NOT_FOUND",
            // A budget is no quota that comes back: RESOURCE_EXHAUSTED would be tried again.
            Self::Bad(_) | Self::TooLarge(_) | Self::Budget(_) => "FAILED_PRECONDITION",
            Self::Limited { .. } => "RESOURCE_EXHAUSTED",
            Self::Unanswered(_) => "UNAVAILABLE",
            Self::NoLedger(_) => "INTERNAL",
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Forbidden(why)
            | Self::NotFound(why)
            | Self::Bad(why)
            | Self::Budget(why)
            | Self::NoUpstream(why)
            | Self::Unanswered(why)
            | Self::NoLedger(why) => why.clone(),
            Self::NoToken => "this is no token of the gateway, or it was removed; make one with \
                              `caliban gateway token create`, or start the program with `caliban gateway run`"
                .to_owned(),
            Self::TooLarge(cap) => format!("the body is larger than {} MiB", cap / (1024 * 1024)),
            Self::Limited { wait, reason } => {
                format!("rate limited: {reason}; try again in {} s", seconds(*wait))
            }
        }
    }

    /// The answer to a client that speaks this protocol.
    pub(crate) fn answer(&self, protocol: Protocol) -> Response<AnswerBody> {
        let (message, (anthropic, openai)) = (self.words(), self.kind());
        let value = match protocol {
            Protocol::Anthropic => {
                json!({"type": "error", "error": {"type": anthropic, "message": message}})
            }
            Protocol::Gemini => {
                let code = self.status(protocol).as_u16();
                json!({"error": {"code": code, "message": message, "status": self.google_status()}})
            }
            Protocol::Responses | Protocol::Chat => {
                json!({"error": {"message": message, "type": openai, "param": null, "code": openai}})
            }
        };
        let mut answer = Response::new(whole(value.to_string().into()));
        *answer.status_mut() = self.status(protocol);
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self {
            Self::Limited { wait, .. } => {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds(*wait)));
            }
            Self::Unanswered(_) => {}
            // What both vendors' SDKs ask first.
            _ => {
                headers.insert("x-should-retry", HeaderValue::from_static("false"));
            }
        }
        answer
    }
}

/// Whole seconds, never too few.
fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
