//! Failures in their documented words, with their codes.
//!
//! Owns every sentence after `Error:` that is not a usage error. Exit 1 is a refusal or a failure,
//! exit 2 a wrong command line. The code is for programs and does not change with the words.

use caliban_core::inert;
use caliban_store::StoreError;
use caliban_store::broker::BrokerError;

/// Why a command did not do it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The usage lines that stand before a usage error.
    pub(crate) banner: Option<String>,
}

impl Failure {
    /// A refusal: exit 1.
    pub(crate) fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self { exit: 1, code, message: message.into(), banner: None }
    }

    /// A failure of the machine: exit 1.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::refused("internal", message)
    }

    /// A wrong command line: exit 2.
    pub(crate) fn usage(banner: String, message: impl Into<String>) -> Self {
        Self { exit: 2, code: "usage", message: message.into(), banner: Some(banner) }
    }
}

/// Somebody's words inside ours: on one line and harmless.
pub(crate) fn shown(text: &str) -> String {
    inert::line(text).into_owned()
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Busy(_) => "database_busy",
            StoreError::Foreign(_) => "database_foreign",
            StoreError::Newer { .. } => "database_newer",
            StoreError::Damaged { .. } => "database_damaged",
            StoreError::ReadOnly(_) => "database_read_only",
            StoreError::Full(_) => "disk_full",
            StoreError::Io { .. } => "database_io",
            StoreError::Open { .. } => "database_open",
            StoreError::Sql { .. } => "database",
        };
        Self::refused(code, shown(&error.to_string()))
    }
}

impl From<BrokerError> for Failure {
    fn from(error: BrokerError) -> Self {
        let (code, message) = match error {
            BrokerError::Store(store) => return store.into(),
            BrokerError::SessionNotFound(id) => {
                ("session_not_found", format!("session '{}' not found.", shown(&id)))
            }
            BrokerError::SessionDeleted(id) => ("session_deleted", format!("session {id} is deleted")),
            BrokerError::NotAMember { agent, session } => {
                ("not_a_member", format!("agent {} is not a member of session {session}.", shown(&agent)))
            }
            BrokerError::DestinationNotFound(id) => {
                ("destination_not_found", format!("Destination agent not found: {}", shown(&id)))
            }
            BrokerError::DestinationNotInSession(id) => {
                ("destination_not_in_session", format!("Destination agent not in session: {}", shown(&id)))
            }
            BrokerError::SenderNotActive(id) => (
                "sender_not_active",
                format!("Sender agent not found or not active in session: {}", shown(&id)),
            ),
            BrokerError::AgentNotFound(id) => ("agent_not_found", format!("Agent {} not found", shown(&id))),
            BrokerError::AlreadyDeregistered(id) => {
                ("agent_not_found", format!("agent {id} not found or already deregistered."))
            }
            BrokerError::RootDirector => (
                "root_director",
                "cannot deregister the root Director; use 'cafleet session delete' instead.".to_owned(),
            ),
            BrokerError::Administrator => {
                ("administrator", "Administrator cannot be deregistered".to_owned())
            }
            BrokerError::ReservedName(name) => (
                "reserved_name",
                format!("the name '{}' is reserved for the built-in agent; choose another", shown(&name)),
            ),
            BrokerError::TaskNotFound(id) => ("task_not_found", format!("Task {} not found", shown(&id))),
            BrokerError::NotTheRecipient => {
                ("not_the_recipient", "Only the recipient can ACK a task".to_owned())
            }
            BrokerError::NotTheSender => ("not_the_sender", "Only the sender can cancel a task".to_owned()),
            BrokerError::CannotAck(state) => ("wrong_state", format!("Cannot ACK task in state {state}")),
            BrokerError::CannotCancel(state) => {
                ("wrong_state", format!("Cannot cancel task in state {state}"))
            }
            BrokerError::IdTaken(id) => {
                ("id_taken", format!("--id {id} is already used by a different message; nothing was sent"))
            }
            BrokerError::Ambiguous { given, candidates } => (
                "ambiguous_id",
                format!("'{}' is ambiguous; it could be {}", shown(&given), candidates.join(", ")),
            ),
        };
        Self::refused(code, message)
    }
}
