//! A kind of agent, as people write one in a file. Reading it is `caliban-settings`'s.

use std::path::PathBuf;

/// A kind of agent that a call can name.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Definition {
    /// The name to call it by.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its tools; all of the caller's when absent.
    pub tools: Option<Vec<String>>,
    /// Its model; the caller's when absent.
    pub model: Option<String>,
    /// The body: its part of the system prompt.
    #[serde(skip)]
    pub role: String,
    /// Where it comes from.
    pub path: PathBuf,
}
