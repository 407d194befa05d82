//! What went wrong, as a client is told of it.

use caliban_acp::v1::{Error, ErrorCode};
use serde_json::json;

use crate::host::Unsaid;

/// Why a session cannot be made, loaded or listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AcpFailure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// What, in words.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// What kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no such session.
    NotFound,
    /// The request makes no sense.
    Invalid,
    /// A key or a login is missing.
    AuthRequired,
    /// Anything else.
    Internal,
}

impl AcpFailure {
    /// A failure without a hint.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// With what to do about it.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<AcpFailure> for Error {
    fn from(failure: AcpFailure) -> Self {
        let code = match failure.kind {
            FailureKind::NotFound => ErrorCode::ResourceNotFound,
            FailureKind::Invalid => ErrorCode::InvalidParams,
            FailureKind::AuthRequired => ErrorCode::AuthRequired,
            FailureKind::Internal => ErrorCode::InternalError,
        };
        let error = Self::new(code.into(), failure.message);
        match failure.hint {
            Some(hint) => error.data(json!({"hint": hint})),
            None => error,
        }
    }
}

impl From<Unsaid> for Error {
    fn from(unsaid: Unsaid) -> Self {
        let error = Self::new(ErrorCode::InternalError.into(), unsaid.to_string());
        match unsaid {
            Unsaid::Closed => caliban_acp::extension::closed_error(error),
            Unsaid::Storage(_) => error,
        }
    }
}
