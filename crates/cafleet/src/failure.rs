//! Failures with their documented texts and codes.
//!
//! Owns every sentence after `Error:` that is not a usage error. Exit 1 is a refusal or a failure, exit 2 a wrong
//! command line. The code is for programs and does not change with the text.

use caliban_core::inert;
use caliban_store::StoreError;
use caliban_store::broker::{AgentId, BURST, BrokerError, EVERY, HOPS, IDENTITIES, Owner};

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: u8,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The usage lines before a usage error.
    pub(crate) banner: Option<String>,
    /// What to do about it, on a line of its own.
    pub(crate) hint: Option<&'static str>,
    /// A hint that was composed for this failure.
    pub(crate) hint_text: Option<String>,
}

impl Failure {
    /// A refusal: exit 1.
    pub(crate) fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self { exit: 1, code, message: message.into(), banner: None, hint: None, hint_text: None }
    }

    /// A failure of the machine: exit 1.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::refused("internal", message)
    }

    /// A wrong command line: exit 2.
    pub(crate) fn usage(banner: String, message: impl Into<String>) -> Self {
        Self {
            exit: 2,
            code: "usage",
            message: message.into(),
            banner: Some(banner),
            hint: None,
            hint_text: None,
        }
    }

    /// The same failure with another exit code.
    pub(crate) fn exit(self, exit: u8) -> Self {
        Self { exit, ..self }
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint_text.as_deref().or(self.hint)
    }

    /// The same failure with a hint.
    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

/// Foreign text within our sentence: on one line, and inert.
pub(crate) fn shown(text: &str) -> String {
    inert::line(text).into_owned()
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Busy(_) => "database_busy",
            StoreError::Foreign(_) => "database_foreign",
            StoreError::Older { .. } => "database_older",
            StoreError::Newer { .. } => "database_newer",
            StoreError::Damaged { .. } => "database_damaged",
            StoreError::Replaced(_) => "database_replaced",
            StoreError::ReadOnly(_) => "database_read_only",
            StoreError::Full(_) => "disk_full",
            StoreError::Io { .. } => "database_io",
            StoreError::Open { .. } => "database_open",
            StoreError::Sql { .. } => "database",
        };
        Self::refused(code, shown(&error.to_string()))
    }
}

/// Why a process of a fleet agent may not use an identity, and what it can do instead.
fn not_yours(agent: Option<AgentId>, by: Option<&Owner>, own: &[AgentId]) -> String {
    let whose = by.map_or_else(
        || "a fleet agent that cannot be told from its processes".to_owned(),
        |by| format!("the fleet agent {}", shown(by.name())),
    );
    let cannot = match agent {
        Some(agent) => format!("cannot act as {agent}"),
        None => "cannot act at all".to_owned(),
    };
    let own: Vec<String> = own.iter().map(|id| format!("--agent-id {id}")).collect();
    let instead = match (by, &own[..]) {
        (None, _) => "ask a person to do it".to_owned(),
        (Some(_), []) => {
            "it has no identity in this session: register one with 'cafleet agent register', or have the \
                          agent started with --session"
                .to_owned()
        }
        (Some(_), own) => format!("pass its own {}", own.join(" or ")),
    };
    format!("this process belongs to {whose} and {cannot}; {instead}")
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
            BrokerError::NotADirector(id) => (
                "not_a_director",
                format!(
                    "agent {} cannot be a Director: it must be an active agent of the session and not the Administrator.",
                    shown(&id)
                ),
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
            BrokerError::NotYours { agent, by, own } => ("not_yours", not_yours(agent, by.as_ref(), &own)),
            BrokerError::Unproven(agent) => {
                let words = format!(
                    "this process runs in a pid namespace (a container, a sandbox, unshare) that does not show who started \
                     it, and the session was made outside: it cannot act as its Director or Administrator ({agent})"
                );
                return Self::refused("unproven", words).hint(
                    "run it where the session was made ('cafleet setup' keeps claude and codex from running cafleet in \
                     their sandbox); in another container, or after a restart of this one, make a session there",
                );
            }
            BrokerError::NotThisMember { agent, member } => {
                let words = format!(
                    "this process runs in the pane of member {member} and cannot act as {agent}; pass --agent-id {member}"
                );
                return Self::refused("not_yours", words)
                    .hint("a person uses another pane to speak as somebody else");
            }
            BrokerError::TaskNotYours(id) => (
                "not_yours",
                format!(
                    "Task {id} is neither from nor to the given agent; a process of a fleet agent sees no other"
                ),
            ),
            BrokerError::NameTaken(name) => (
                "name_taken",
                format!(
                    "an agent of the session is called '{}' already; a process of a fleet agent must choose another name",
                    shown(&name)
                ),
            ),
            BrokerError::TooFast(wait) => (
                "too_fast",
                format!(
                    "a fleet agent sends at most {BURST} messages at once and then one every {} s; nothing was sent; try \
                     again in {} s",
                    EVERY.as_secs(),
                    wait.as_secs() + 1
                ),
            ),
            BrokerError::TooManyHops => (
                "too_many_hops",
                format!(
                    "{HOPS} messages of fleet agents have answered each other, and this would be one more; nothing was \
                     sent; it goes on when a person says something"
                ),
            ),
            BrokerError::TooManyIdentities => (
                "too_many_identities",
                format!(
                    "a fleet agent has at most {IDENTITIES} identities at a time; give one up first \
                     ('cafleet agent deregister', 'cafleet session delete')"
                ),
            ),
            BrokerError::Ambiguous { given, candidates } => (
                "ambiguous_id",
                format!("'{}' is ambiguous; it could be {}", shown(&given), candidates.join(", ")),
            ),
        };
        Self::refused(code, message)
    }
}
