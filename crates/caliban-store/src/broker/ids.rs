//! Identities of the broker: sessions, agents, tasks, and prefixes of them.
//!
//! Owns what an id looks like. `broker::AgentId` is a mailbox, not a supervised run.

use std::fmt;

use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new random id.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }

            /// Reads a whole id.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text).ok().map(Self)
            }

            /// The first eight characters, which people and panes see.
            #[must_use]
            pub fn short(&self) -> String {
                self.to_string().chars().take(8).collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0.as_hyphenated())
            }
        }
    };
}

id!(
    /// A session: a namespace of agents.
    SessionId
);
id!(
    /// An agent of a session: a mailbox with a name.
    AgentId
);
id!(
    /// A task: one message to one recipient, or the summary of a broadcast.
    TaskId
);

/// An id as somebody typed it: the whole, or enough of its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPrefix {
    given: String,
    low: String,
}

/// The text cannot be the beginning of an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither an id nor the first {min} or more characters of one", min = IdPrefix::MIN_LEN)]
pub struct IdPrefixError(pub String);

impl IdPrefix {
    /// The shortest prefix accepted; fewer characters are more likely a mistake.
    pub const MIN_LEN: usize = 4;

    /// Reads a whole id or a prefix.
    ///
    /// # Errors
    /// When it is too short or not the beginning of any id.
    pub fn parse(text: &str) -> Result<Self, IdPrefixError> {
        let given = text.to_owned();
        if let Ok(whole) = Uuid::try_parse(text) {
            return Ok(Self { given, low: whole.as_hyphenated().to_string() });
        }
        let low = text.to_ascii_lowercase();
        let fits = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        if (Self::MIN_LEN..36).contains(&low.len()) && low.bytes().enumerate().all(fits) {
            Ok(Self { given, low })
        } else {
            Err(IdPrefixError(given))
        }
    }

    /// As it was typed.
    #[must_use]
    pub fn given(&self) -> &str {
        &self.given
    }

    /// Whether it is the beginning of this agent's id.
    pub(crate) fn begins(&self, id: AgentId) -> bool {
        id.to_string().starts_with(&self.low)
    }

    /// The smallest id that it can mean.
    pub(crate) fn low(&self) -> &str {
        &self.low
    }

    /// Greater than every id that it can mean: `g` sorts after all hexadecimal digits and `-`.
    pub(crate) fn high(&self) -> String {
        format!("{}g", self.low)
    }
}

macro_rules! from_id {
    ($name:ident) => {
        impl From<$name> for IdPrefix {
            fn from(id: $name) -> Self {
                Self { given: id.to_string(), low: id.to_string() }
            }
        }
    };
}
from_id!(SessionId);
from_id!(AgentId);
from_id!(TaskId);

#[cfg(test)]
mod tests {
    use super::IdPrefix;

    #[track_caller]
    fn check(text: &str, low: Option<&str>) {
        assert_eq!(IdPrefix::parse(text).ok().map(|p| p.low), low.map(str::to_owned), "{text}");
    }

    #[test]
    fn whole_ids_and_prefixes_are_read_and_nothing_else() {
        let whole = "0a1b2c3d-0000-4000-8000-00000000000f";
        check(whole, Some(whole));
        check(&whole.to_uppercase(), Some(whole));
        check(&whole.replace('-', ""), Some(whole));
        check("0A1B", Some("0a1b"));
        check("0a1b2c3d-", Some("0a1b2c3d-"));
        for bad in ["", "0a1", "zzzz", "0a1b2c3d0", "0a1b-2c3", "0a1b%", "--json"] {
            check(bad, None);
        }
    }
}
