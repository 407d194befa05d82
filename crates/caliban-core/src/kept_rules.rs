//! Rules that a person adds with a yes to a question, and for how long they hold.
//!
//! The rules are text here: what one means is known in `caliban-permissions`.

use serde::{Deserialize, Serialize};

use crate::{inert, text_form::known_by_name};

/// Between rules that are written in one line. A pattern of a command has it only in quotes.
const BETWEEN: char = ';';

/// How long a rule holds, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeepFor {
    /// Until the session ends, for its agent.
    #[default]
    Session,
    /// For every agent in this repo: it is written into the user's own settings for the repo.
    Repo,
    /// For every agent of the user: it is written into the user's settings.
    Everywhere,
}

impl KeepFor {
    /// All of them, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Session, Self::Repo, Self::Everywhere];

    /// All of them, as they are written.
    pub const NAMES: [&str; 3] = [Self::ALL[0].name(), Self::ALL[1].name(), Self::ALL[2].name()];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Repo => "repo",
            Self::Everywhere => "everywhere",
        }
    }

    /// For people: `this repo`.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Session => "this session",
            Self::Repo => "this repo",
            Self::Everywhere => "everywhere",
        }
    }
}

/// Rules are kept for no such time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rules are not kept for {}; expected {}", inert::quoted(.0), KeepFor::NAMES.join(", "))]
pub struct KeepForError(String);

known_by_name!(KeepFor, KeepForError);

/// Rules, and how long they hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KeptRules {
    /// What they allow.
    pub rules: Vec<String>,
    /// How long they hold.
    #[serde(rename = "for", default)]
    pub keep: KeepFor,
}

impl KeptRules {
    /// These rules.
    pub fn new(keep: KeepFor, rules: &[String]) -> Self {
        Self { rules: rules.to_vec(), keep }
    }

    /// Rules as somebody wrote them, in one line or several.
    pub fn written(keep: KeepFor, text: &str) -> Self {
        let mut quote = None;
        let between = |(at, c): (usize, char)| match quote {
            Some(open) => {
                if c == open {
                    quote = None;
                }
                None
            }
            // A quote that nothing closes means nothing.
            None if matches!(c, '"' | '\'') && text[at + 1..].contains(c) => {
                quote = Some(c);
                None
            }
            None => (c == BETWEEN || c == '\n').then_some(at),
        };
        let ends: Vec<usize> = text.char_indices().filter_map(between).chain([text.len()]).collect();
        let starts = std::iter::once(0).chain(ends.iter().map(|end| end + 1));
        let rules = starts.zip(&ends).filter_map(|(start, end)| text.get(start..*end));
        let rules = rules.map(str::trim).filter(|rule| !rule.is_empty());
        Self { rules: rules.map(str::to_owned).collect(), keep }
    }

    /// In one line, as [`Self::written`] reads them.
    pub fn line(rules: &[String]) -> String {
        rules.join("; ")
    }

    /// For people: `Bash(make) (this repo)`.
    pub fn words(&self) -> String {
        format!("{} ({})", inert::line(&Self::line(&self.rules)), self.keep.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_written_in_a_line_and_read_again() {
        let rules = ["Bash(make -j2)", r#"Bash(find . -exec rm {} ";")"#, "Edit(./it's)"].map(str::to_owned);
        let line = KeptRules::line(&rules);
        assert_eq!(KeptRules::written(KeepFor::Repo, &line), KeptRules::new(KeepFor::Repo, &rules));
        assert_eq!(KeptRules::written(KeepFor::Repo, " ;\n").rules, Vec::<String>::new());
        assert_eq!(KeptRules::new(KeepFor::Repo, &rules[..1]).words(), "Bash(make -j2) (this repo)");
        for keep in KeepFor::ALL {
            assert_eq!(keep.name().parse(), Ok(keep));
        }
        let read: KeptRules = serde_json::from_str(r#"{"rules": ["Bash"], "for": "everywhere"}"#).unwrap();
        assert_eq!(read.keep, KeepFor::Everywhere);
    }
}
