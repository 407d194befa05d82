//! The text of a rule, taken apart once: `Bash(git *)`, `Edit(src/**)`, `WebFetch(domain:example.org)`,
//! `Bash(npm install *) outside`.
//!
//! It says what a rule covers, not what follows from it.

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{command_pattern::CommandPattern, path::PathPattern};

/// One rule, without its effect.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    text: String,
    pub(crate) covers: Covers,
    /// Where the commands that it covers run outside of the fence: from the top of the work, or absolute. None when the fence holds
    /// for them.
    pub(crate) outside: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub(crate) enum Covers {
    /// `*`
    Everything,
    /// A tool's bare name.
    Tool(String),
    /// `Bash(…)`
    Command(CommandPattern),
    /// `Read(…)`: Read, Glob and Grep.
    Read(PathPattern),
    /// `Edit(…)` or `Write(…)`: both tools.
    Edit(PathPattern),
    /// `WebFetch(domain:…)`: a host, `*.` and a host for those below it, or `*`.
    Domain(String),
    /// `mcp__server` and `mcp__server__tool`, with `*` in them.
    Mcp(String),
}

impl Covers {
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    pub(crate) fn is_edit(&self) -> bool {
        matches!(self, Self::Edit(_))
    }
}

/// A rule that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule `{rule}`: {problem} at character {at}; expected {expected}, for example `{example}`")]
pub struct RuleError {
    /// The rule as written.
    pub rule: String,
    /// What is wrong.
    pub problem: String,
    /// Where, counted from 1.
    pub at: usize,
    /// What could stand there.
    pub expected: String,
    /// A rule that is right.
    pub example: &'static str,
}

impl Rule {
    /// The rule as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether what it covers runs outside of the fence.
    pub fn is_outside(&self) -> bool {
        self.outside.is_some()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> Self {
        rule.text
    }
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Self, RuleError> {
        text.parse()
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let trimmed = text.trim();
        let (rule, outside) = match outside_of(trimmed) {
            Some((rule, place)) => (rule, Some(place)),
            None => (trimmed, None),
        };
        let covers = covers(rule)?;
        if outside.is_some() && !matches!(covers, Covers::Command(_)) {
            return Err(RuleError {
                rule: trimmed.to_owned(),
                problem: "only commands run outside of the fence".to_owned(),
                at: rule.chars().count() + 2,
                expected: "the end of the rule".to_owned(),
                example: "Bash(npm install *) outside",
            });
        }
        Ok(Self { text: trimmed.to_owned(), covers, outside })
    }
}

/// A rule and the place behind it: `outside` is the top of the work, `outside in web` a directory below it.
fn outside_of(text: &str) -> Option<(&str, PathBuf)> {
    let (rule, place) = text.rsplit_once(" outside")?;
    let place = match place.strip_prefix(" in ") {
        Some(place) => place.trim(),
        None if place.is_empty() => "",
        None => return None,
    };
    // Behind a parenthesis that closes later the word is part of the pattern.
    (!place.ends_with(')')).then(|| (rule.trim_end(), crate::path::normalise(place.as_ref())))
}

fn covers(text: &str) -> Result<Covers, RuleError> {
    let error = |at: usize, problem: &str, expected: &str, example| RuleError {
        rule: text.to_owned(),
        problem: problem.to_owned(),
        at: text.get(..at).map_or(0, |before| before.chars().count()) + 1,
        expected: expected.to_owned(),
        example,
    };
    if text == "*" {
        return Ok(Covers::Everything);
    }
    let name_end = text.find('(').unwrap_or(text.len());
    let name = &text[..name_end];
    if text.starts_with("mcp__") {
        return if name_end < text.len() {
            Err(error(
                name_end,
                "an MCP rule takes no pattern in parentheses",
                "the end of the rule",
                "mcp__github__get_issue",
            ))
        } else if text.trim_start_matches("mcp__").is_empty() {
            Err(error(text.len(), "no server is named", "the server's name", "mcp__github"))
        } else {
            Ok(Covers::Mcp(text.to_owned()))
        };
    }
    if name.is_empty() {
        return Err(error(0, "no tool is named", "a tool's name", "Bash(cargo test *)"));
    }
    if let Some(bad) = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-') {
        return Err(error(
            bad,
            "this cannot stand in a tool's name",
            "letters, digits, `_` and `-`",
            "Bash(cargo test *)",
        ));
    }
    if name_end == text.len() {
        return Ok(Covers::Tool(name.to_owned()));
    }
    let start = name_end + 1;
    let Some(inner) = text[start..].strip_suffix(')') else {
        return Err(error(text.len(), "the parenthesis is not closed", "`)`", "Bash(cargo test *)"));
    };
    if inner.trim().is_empty() {
        return Err(error(
            start,
            "the parentheses are empty",
            "a pattern, or no parentheses at all",
            "Bash(cargo test *)",
        ));
    }
    match name {
        "Bash" => CommandPattern::new(inner).map(Covers::Command).map_err(|(at, problem)| {
            error(start + at, problem, "the words of one command, with `*`", "Bash(git log *)")
        }),
        "Read" => PathPattern::new(inner.trim())
            .map(Covers::Read)
            .map_err(|why| error(start, "this is no path pattern", &why, "Read(~/notes/**)")),
        "Edit" | "Write" => PathPattern::new(inner.trim())
            .map(Covers::Edit)
            .map_err(|why| error(start, "this is no path pattern", &why, "Edit(src/**)")),
        "WebFetch" => domain(inner).map(Covers::Domain).ok_or_else(|| {
            error(start, "this is no domain", "`domain:` and a host name", "WebFetch(domain:example.org)")
        }),
        "Glob" | "Grep" => Err(error(
            name_end,
            "this tool takes no pattern",
            "`Read(…)`, which covers it too",
            "Read(~/notes/**)",
        )),
        _ => Err(error(
            name_end,
            "this tool takes no pattern",
            "the bare name; patterns go with Bash, Read, Edit, Write and WebFetch",
            "Bash(cargo test *)",
        )),
    }
}

fn domain(inner: &str) -> Option<String> {
    let host = plain_host(inner.trim().strip_prefix("domain:")?.trim());
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    (host == "*" || (!name.is_empty() && name.chars().all(fits))).then_some(host)
}

/// A host as it is compared.
pub(crate) fn plain_host(host: &str) -> String {
    host.trim_end_matches('.').to_ascii_lowercase()
}
