//! The one rule for names: agents, labels, branches and worktrees all pass it.
//!
//! A name becomes a directory, a git ref and an argument of a command, so it is what all three take
//! without quoting: lower-case ASCII letters and digits, with `-`, `_` and `.` between them. Upper case
//! is refused because two names that differ only in case are one directory on some file systems.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{inert, text_form::stored_as_text};

/// A name that is safe as a file name, a git branch component and a command's argument.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Slug(String);

/// Why a text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Nothing there.
    #[error("a name must not be empty")]
    Empty,
    /// Over [`Slug::MAX_BYTES`].
    #[error("a name has at most {max} bytes, this one has {0}", max = Slug::MAX_BYTES)]
    TooLong(usize),
    /// A character that no name has.
    #[error("a name has only a-z, 0-9, '-', '_' and '.', not '{}'", inert::line(&.0.to_string()))]
    Character(char),
    /// `-x`, `.x`: an option, a hidden file.
    #[error("a name begins with a letter or digit, not '{0}'")]
    Start(char),
    /// `x-`, `x.`
    #[error("a name ends with a letter or digit, not '{0}'")]
    End(char),
    /// `a..b` is a range to git.
    #[error("a name must not contain '..'")]
    DotDot,
    /// git's own lock files.
    #[error("a name must not end with '.lock'")]
    Lock,
    /// `head` and its kin, which git takes for something else.
    #[error("'{0}' means something to git and cannot be a name")]
    Reserved(&'static str),
}

/// Names that git resolves by itself (on a file system that ignores case, in lower case too).
const RESERVED: [&str; 8] = [
    "head",
    "fetch_head",
    "orig_head",
    "merge_head",
    "cherry_pick_head",
    "revert_head",
    "rebase_head",
    "auto_merge",
];

/// How long a name made from free text gets; short, because people read it in tables.
const MADE_BYTES: usize = 40;

/// What free text without one usable character becomes.
const FALLBACK: &str = "agent";

impl Slug {
    /// The longest name. A ref and a path hold more, a table does not.
    pub const MAX_BYTES: usize = 64;

    /// Takes `text` as it is, or says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let (Some(first), Some(last)) = (text.chars().next(), text.chars().next_back()) else {
            return Err(NameError::Empty);
        };
        if text.len() > Self::MAX_BYTES {
            return Err(NameError::TooLong(text.len()));
        }
        if let Some(wrong) = text.chars().find(|c| !is_alphanumeric(*c) && !matches!(c, '-' | '_' | '.')) {
            return Err(NameError::Character(wrong));
        }
        if !is_alphanumeric(first) {
            return Err(NameError::Start(first));
        }
        if !is_alphanumeric(last) {
            return Err(NameError::End(last));
        }
        if text.contains("..") {
            return Err(NameError::DotDot);
        }
        if text.ends_with(".lock") {
            return Err(NameError::Lock);
        }
        if let Some(reserved) = RESERVED.iter().find(|reserved| **reserved == text) {
            return Err(NameError::Reserved(reserved));
        }
        Ok(Self(text.to_owned()))
    }

    /// Makes a name from free text, whatever it is: its ASCII words in lower case, joined by hyphens.
    pub fn slugify(text: &str) -> Self {
        let mut name = String::new();
        // Bounded reading: a prompt may be a megabyte, its first words are enough.
        for c in text.chars().take(MADE_BYTES * 8) {
            let c = c.to_ascii_lowercase();
            if is_alphanumeric(c) {
                name.push(c);
            } else if !name.is_empty() && !name.ends_with('-') {
                name.push('-');
            }
        }
        if name.len() > MADE_BYTES {
            // ASCII only, so any byte is a boundary. Prefer to end with a whole word.
            let cut = name[..=MADE_BYTES].rfind('-').filter(|at| *at >= MADE_BYTES / 2).unwrap_or(MADE_BYTES);
            name.truncate(cut);
        }
        let name = name.trim_end_matches('-');
        let name = if name.is_empty() { FALLBACK.to_owned() } else { name.to_owned() };
        Self::parse(&name).unwrap_or_else(|_| Self(format!("{FALLBACK}-{name}")))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_alphanumeric(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit()
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for Slug {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl FromStr for Slug {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::parse(text)
    }
}

impl From<crate::ids::AgentId> for Slug {
    /// Eight hex characters are a name: fleet worktrees are called like their agent.
    fn from(id: crate::ids::AgentId) -> Self {
        Self(id.to_string())
    }
}

stored_as_text!(Slug, NameError);
