//! Ids of the broker: of sessions, agents and tasks, their prefixes, and the numbers beside them.
//!
//! Owns the syntax of ids and numbers. A number has up to seven digits, because ids are shown with eight characters.
//! `broker::AgentId` is a mailbox, not a supervised run.

use std::fmt;

use uuid::Uuid;

use super::types::Agent;

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

            /// Parses a whole id.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text).ok().map(Self)
            }

            /// The first eight characters, which people and panes see.
            #[must_use]
            pub fn short(&self) -> String {
                format!("{:08x}", self.0.as_fields().0)
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
id!(
    /// A command that a member runs for its Director.
    ExecId
);

/// An id as typed: whole, a prefix of at least four characters, or the number of an agent or a task in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdPrefix {
    given: String,
    /// The prefix of an id, unless it is too short for one.
    low: Option<String>,
    number: Option<i64>,
}

/// The text cannot be the prefix of an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is neither an id, nor the first {min} or more characters of one, nor a number", min = IdPrefix::MIN_LEN)]
pub struct IdPrefixError(pub String);

impl IdPrefix {
    /// The shortest prefix accepted; fewer characters are more likely a mistake.
    pub const MIN_LEN: usize = 4;
    /// Maximum number of digits of a number, so that an id shown with eight characters is never taken for one.
    const MAX_DIGITS: usize = 7;

    /// Parses a whole id, a prefix or a number. Four digits and more can be both; then the store decides by what
    /// exists.
    ///
    /// # Errors
    /// When it is neither a number nor the beginning of any id.
    pub fn parse(text: &str) -> Result<Self, IdPrefixError> {
        let given = text.to_owned();
        if let Ok(whole) = Uuid::try_parse(text) {
            return Ok(Self { given, low: Some(whole.as_hyphenated().to_string()), number: None });
        }
        let low = text.to_ascii_lowercase();
        let fits = |(at, byte): (usize, u8)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        };
        let is_prefix = (Self::MIN_LEN..36).contains(&low.len()) && low.bytes().enumerate().all(fits);
        let is_number = (1..=Self::MAX_DIGITS).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && !text.starts_with('0');
        match (is_prefix.then_some(low), is_number.then(|| text.parse().ok()).flatten()) {
            (None, None) => Err(IdPrefixError(given)),
            (low, number) => Ok(Self { given, low, number }),
        }
    }

    /// The text as typed.
    #[must_use]
    pub fn given(&self) -> &str {
        &self.given
    }

    /// The agent id, if it is a whole one.
    pub(crate) fn whole(&self) -> Option<AgentId> {
        AgentId::parse(self.low())
    }

    /// Whether it can mean this agent.
    #[must_use]
    pub fn means(&self, agent: &Agent) -> bool {
        self.low.as_ref().is_some_and(|low| agent.id.to_string().starts_with(low))
            || (self.number.is_some() && self.number == agent.number)
    }

    /// The smallest id that it can mean. If it cannot be a prefix of an id: `g`, which sorts after all ids.
    pub(crate) fn low(&self) -> &str {
        self.low.as_deref().unwrap_or("g")
    }

    /// Greater than every id that it can mean: `g` sorts after all hexadecimal digits and `-`.
    pub(crate) fn high(&self) -> String {
        format!("{}g", self.low())
    }

    /// The number that it can mean; 0 for none, since numbers begin at 1.
    pub(crate) fn number(&self) -> i64 {
        self.number.unwrap_or_default()
    }
}

macro_rules! from_id {
    ($name:ident) => {
        impl From<$name> for IdPrefix {
            fn from(id: $name) -> Self {
                Self { given: id.to_string(), low: Some(id.to_string()), number: None }
            }
        }
    };
}
from_id!(SessionId);
from_id!(AgentId);
from_id!(TaskId);

impl TaskId {
    /// A random id that starts with the same three digits as this one. The rows of one transaction then share pages of the
    /// index, and the commit writes fewer of them. The other 110 bits are as random as ever.
    #[must_use]
    pub(super) fn beside(self) -> Self {
        let mut bytes = *Self::random().0.as_bytes();
        let [first, second, ..] = *self.0.as_bytes();
        let [own_first, own_second, ..] = &mut bytes;
        *own_first = first;
        *own_second = second & 0xf0 | *own_second & 0x0f;
        Self(Uuid::from_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::IdPrefix;

    #[track_caller]
    fn check(text: &str, low: Option<&str>) {
        assert_eq!(IdPrefix::parse(text).ok().and_then(|p| p.low), low.map(str::to_owned), "{text}");
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

    #[test]
    fn up_to_seven_digits_are_a_number_and_four_may_be_both() {
        let read = |text| IdPrefix::parse(text).ok().map(|id| (id.low, id.number));
        assert_eq!(read("7"), Some((None, Some(7))));
        assert_eq!(read("123"), Some((None, Some(123))));
        assert_eq!(read("1234567"), Some((Some("1234567".to_owned()), Some(1_234_567))));
        assert_eq!(read("12345678"), Some((Some("12345678".to_owned()), None)));
        assert_eq!(read("0123"), Some((Some("0123".to_owned()), None)));
        for bad in ["0", "007", "-1", "+1", "1.", "#1", "12345678901234567890"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
