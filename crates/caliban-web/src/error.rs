//! Errors as responses: `{"error": {"code", "message", "hint"}}` with the fitting status.

use axum::Json;
use axum::response::{IntoResponse, Response};
use caliban_fleet::ClientError;
use caliban_fleet::protocol::ApiError;
use caliban_fleet::refusal::{Refusal, RefusalKind, VerbError};
use caliban_settings::SettingsError;
use http::StatusCode;
use serde_json::json;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), message: message.into(), hint: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// 400: the request makes no sense.
    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    /// 404: there is no such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// 500: something that should work does not.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(hint) = self.hint {
            error["hint"] = hint.into();
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let code = serde_json::to_value(error.code).ok().and_then(|code| code.as_str().map(str::to_owned));
        Self { status, code: code.unwrap_or_default(), message: error.message, hint: error.hint }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Self {
        let hint = error.hint();
        let (status, code) = match &error {
            ClientError::Refused(refused) => return refused.clone().into(),
            ClientError::NotRunning(_)
            | ClientError::Deaf { .. }
            | ClientError::Start(_)
            | ClientError::Places(_) => (StatusCode::SERVICE_UNAVAILABLE, "no_daemon"),
            ClientError::Stranger { .. } => (StatusCode::FORBIDDEN, "forbidden"),
            ClientError::Protocol { .. } => (StatusCode::BAD_GATEWAY, "protocol"),
            ClientError::Broken(_) => (StatusCode::BAD_GATEWAY, "broken"),
            ClientError::Silent(_) => (StatusCode::GATEWAY_TIMEOUT, "timeout"),
            ClientError::Unsure(_) => (StatusCode::BAD_GATEWAY, "unsure"),
        };
        Self { status, code: code.to_owned(), message: error.to_string(), hint }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, code) = match refusal.kind {
            RefusalKind::Usage => (StatusCode::BAD_REQUEST, "bad_request"),
            RefusalKind::Interrupted | RefusalKind::Failed => (StatusCode::CONFLICT, "conflict"),
        };
        let inert = |text: &str| caliban_core::inert::block(text).into_owned();
        Self { hint: refusal.hint.as_deref().map(inert), ..Self::new(status, code, inert(&refusal.message)) }
    }
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        Refusal::from(error).into()
    }
}

impl From<VerbError> for Problem {
    fn from(error: VerbError) -> Self {
        match error {
            VerbError::Refused(refusal) => refusal.into(),
            VerbError::Daemon(error) => error.into(),
        }
    }
}
