//! Why something is not done, in words: what every client of the fleet shows.

use caliban_providers::ProviderError;
use caliban_settings::{SettingPlace, SettingsError};
use caliban_worktrees::Error;

use crate::{ClientError, protocol::ApiError};

/// An error for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// What went wrong.
    pub message: String,
    /// What to do about it; may have several lines.
    pub hint: Option<String>,
    /// Of what kind it is.
    pub kind: RefusalKind,
}

/// The kinds of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request makes no sense.
    Usage,
    /// The caller gave up.
    Interrupted,
    /// Something else.
    Failed,
}

impl Refusal {
    /// Something failed.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, kind: RefusalKind::Failed }
    }

    /// The request makes no sense.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: RefusalKind::Usage, ..Self::new(message) }
    }

    /// The same with what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self { hint: error.hint(), ..Self::new(error.to_string()) }
    }
}

impl From<SettingsError> for Refusal {
    fn from(error: SettingsError) -> Self {
        let kind = match error.place {
            SettingPlace::Flag(_) => RefusalKind::Usage,
            _ => RefusalKind::Failed,
        };
        Self { kind, message: error.to_string(), hint: error.hint }
    }
}

impl From<ProviderError> for Refusal {
    fn from(error: ProviderError) -> Self {
        Self { hint: error.hint(), ..Self::new(error.to_string()) }
    }
}

/// Why a verb was not carried out.
#[derive(Debug)]
pub enum VerbError {
    /// It was refused here.
    Refused(Refusal),
    /// The daemon refused it, or cannot be asked.
    Daemon(ClientError),
}

impl From<Refusal> for VerbError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<SettingsError> for VerbError {
    fn from(error: SettingsError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<ClientError> for VerbError {
    fn from(error: ClientError) -> Self {
        Self::Daemon(error)
    }
}

impl From<ApiError> for VerbError {
    fn from(error: ApiError) -> Self {
        Self::Daemon(ClientError::Refused(error))
    }
}

/// An error with its causes, in one line.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}
