//! Typed ids, and how a person's words find one.
//!
//! Owns the shape of ids and the rule by which an id, a label or a prefix is resolved. Refuses to
//! make randomness: the caller hands in the bytes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{hex, inert, text_form::stored_as_text};

/// A supervised agent: eight lowercase hex characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AgentId([u8; 4]);

/// A conversation: sixteen bytes, shown like a UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId([u8; 16]);

/// A text that is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not the shape of an agent's id.
    #[error("{} is not an agent id (8 characters of 0-9 and a-f)", inert::quoted(.0))]
    Agent(String),
    /// Not the shape of a session's id.
    #[error("{} is not a session id (32 characters of 0-9 and a-f, with hyphens)", inert::quoted(.0))]
    Session(String),
}

/// One of those that a query may mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<Id> {
    /// Its id.
    pub id: Id,
    /// The label that its owner gave it.
    pub label: Option<String>,
}

/// Why a query names nobody in particular.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError<Id: fmt::Display + fmt::Debug> {
    /// No id, label or prefix fits.
    #[error("no agent has the id, id prefix or label {}", inert::quoted(query))]
    Unknown {
        /// What was asked for.
        query: String,
    },
    /// Several fit.
    #[error("{} fits several agents: {}", inert::quoted(query), list(candidates))]
    Ambiguous {
        /// What was asked for.
        query: String,
        /// Those that fit, in the order given.
        candidates: Vec<Candidate<Id>>,
    },
}

/// Finds the one that `query` means: an exact id, else an exact label, else a unique id prefix.
///
/// Ids are compared without regard to case. A label wins over a prefix, because it was chosen by a person.
pub fn resolve<Id: Clone + fmt::Display + fmt::Debug>(
    query: &str,
    candidates: impl IntoIterator<Item = Candidate<Id>>,
) -> Result<Id, ResolveError<Id>> {
    let wanted = query.to_ascii_lowercase();
    let (mut labelled, mut prefixed) = (Vec::new(), Vec::new());
    for candidate in candidates {
        let id = candidate.id.to_string();
        if id == wanted {
            return Ok(candidate.id);
        }
        if candidate.label.as_deref() == Some(query) {
            labelled.push(candidate);
        } else if !wanted.is_empty() && id.starts_with(&wanted) {
            prefixed.push(candidate);
        }
    }
    let mut fitting = if labelled.is_empty() { prefixed } else { labelled };
    match (fitting.pop(), fitting.is_empty()) {
        (None, _) => Err(ResolveError::Unknown { query: query.to_owned() }),
        (Some(only), true) => Ok(only.id),
        (Some(last), false) => {
            fitting.push(last);
            Err(ResolveError::Ambiguous { query: query.to_owned(), candidates: fitting })
        }
    }
}

impl AgentId {
    /// Characters of an agent's id.
    pub const LEN: usize = 8;

    /// An id from four random bytes.
    pub const fn from_random(bytes: [u8; 4]) -> Self {
        Self(bytes)
    }
}

impl SessionId {
    /// An id from sixteen bytes: random ones, or those of a UUID.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad`, so that a table's width and alignment apply.
        f.pad(&hex::encode(&self.0))
    }
}

impl fmt::Debug for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AgentId({self})")
    }
}

impl FromStr for AgentId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        hex::decode(text.as_bytes()).map(Self).ok_or_else(|| IdError::Agent(text.to_owned()))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = hex::encode(&self.0);
        for at in [20, 16, 12, 8] {
            text.insert(at, '-');
        }
        f.pad(&text)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({self})")
    }
}

impl FromStr for SessionId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bare: Vec<u8> = text
            .bytes()
            .enumerate()
            .filter(|(at, byte)| !(matches!(at, 8 | 13 | 18 | 23) && *byte == b'-'))
            .map(|(_, byte)| byte)
            .collect();
        let wanted_len = if bare.len() == text.len() { 32 } else { 36 };
        hex::decode(&bare)
            .filter(|_| text.len() == wanted_len)
            .map(Self)
            .ok_or_else(|| IdError::Session(text.to_owned()))
    }
}

fn list<Id: fmt::Display>(candidates: &[Candidate<Id>]) -> String {
    let shown: Vec<String> = candidates
        .iter()
        .map(|candidate| match &candidate.label {
            Some(label) => format!("{} ({})", candidate.id, inert::line(label)),
            None => candidate.id.to_string(),
        })
        .collect();
    shown.join(", ")
}

stored_as_text!(AgentId, IdError);
stored_as_text!(SessionId, IdError);
