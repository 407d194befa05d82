//! A command line that is not carried out: help and version, or what is wrong with it, always with a hint.
//!
//! Owns the translation of the parser's errors into ours, and the words for what people mistype.

use std::{ffi::OsString, fmt};

use clap::error::ErrorKind;

use crate::{
    report::{Code, Failure},
    settings::values::close_match,
};

/// Why there is nothing to carry out.
#[derive(Debug)]
pub(crate) enum Early {
    /// Help or the version, which the parser prints.
    Shown(Box<clap::Error>),
    /// The command line is wrong; with the parser's kind of error if the parser found it.
    Wrong(Failure, Option<ErrorKind>),
}

impl Early {
    /// Says it; the exit code.
    pub(crate) fn show(&self) -> u8 {
        match self {
            Self::Shown(error) => {
                // A terminal that is gone cannot be told.
                let _gone = error.print();
                u8::try_from(error.exit_code()).unwrap_or(Code::Usage.number())
            }
            Self::Wrong(failure, _) => {
                failure.show();
                failure.code.number()
            }
        }
    }
}

impl fmt::Display for Early {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shown(error) => error.fmt(out),
            Self::Wrong(failure, _) => {
                writeln!(out, "{failure}\n{}", failure.hint.as_deref().unwrap_or_default())
            }
        }
    }
}

impl From<clap::Error> for Early {
    fn from(error: clap::Error) -> Self {
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Self::Shown(Box::new(error)),
            kind => Self::Wrong(worded(&error.render().to_string()), Some(kind)),
        }
    }
}

impl From<Failure> for Early {
    fn from(failure: Failure) -> Self {
        Self::Wrong(failure, None)
    }
}

/// The parser's words as ours: the error, then its tips, or without one the usage.
fn worded(rendered: &str) -> Failure {
    let mut blocks = rendered.trim_end().split("\n\n");
    let first = blocks.next().unwrap_or_default();
    let message = first.strip_prefix("error: ").unwrap_or(first);
    let (mut tips, mut usage) = (Vec::new(), None);
    for block in blocks {
        tips.extend(block.lines().filter_map(|line| line.trim_start().strip_prefix("tip: ")));
        usage = usage.or(block.starts_with("Usage: ").then_some(block));
    }
    let hint = match (&tips[..], usage) {
        ([], Some(usage)) => format!("{usage}\n`{} --help` says more", path(usage)),
        ([], None) => match flag(message) {
            Some(flag) => format!("--help says what {flag} takes"),
            None => "--help says more".to_owned(),
        },
        (tips, _) => tips.join("\n"),
    };
    Failure::usage(message).hint(hint)
}

/// The flag that an error names first.
fn flag(message: &str) -> Option<&str> {
    message.split(['\'', ' ', '`']).find(|word| word.starts_with("--"))
}

/// The command that a usage line is about.
fn path(usage: &str) -> String {
    let words = usage.split_whitespace().skip(1);
    words.take_while(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect::<Vec<_>>().join(" ")
}

/// Commands under the names that other tools have for them.
const ALIASES: [(&str, &str); 3] = [("ps", "list"), ("ls", "list"), ("status", "list")];

/// Commands of other tools that are none here, and what to do instead. They are no prompts either.
const FOREIGN_COMMANDS: [(&str, &str); 13] = [
    ("login", "keys come from the environment or the settings; `caliban doctor` says which one is missing"),
    ("logout", "keys come from the environment or the settings; take it out there"),
    ("auth", "keys come from the environment or the settings; `caliban doctor` says which one is missing"),
    ("update", "caliban is updated by whatever installed it; `caliban --version` says which one this is"),
    ("upgrade", "caliban is updated by whatever installed it; `caliban --version` says which one this is"),
    ("install", "it is installed; `caliban doctor` checks whether everything is in place"),
    ("init", "`/init` on the screen writes an AGENTS.md; `caliban config show` shows the settings"),
    ("mcp", "MCP servers stand in the settings (`[mcp.NAME]`); `caliban config show` shows them"),
    ("exec", "caliban -p \"what to do\" works on a prompt and prints the answer"),
    ("run", "caliban -p \"what to do\" works on a prompt and prints the answer"),
    ("review", "git diff | caliban -p \"review this change\" --permission-mode plan"),
    ("chat", "`caliban` alone opens the screen"),
    ("version", "caliban --version"),
];

/// Flags of other tools, and what to do instead.
const FOREIGN_FLAGS: [(&str, &str); 11] = [
    ("--dangerously-skip-permissions", SKIPS),
    ("--dangerously-bypass-approvals-and-sandbox", SKIPS),
    ("--yolo", SKIPS),
    ("--full-auto", SKIPS),
    ("--append-system-prompt", "it is called --system-prompt-append here"),
    ("--allowedTools", "--allow \"Bash(git add *)\" allows what a rule covers; --deny refuses it"),
    ("--disallowedTools", "--deny \"Bash(git push *)\" refuses what a rule covers"),
    ("--worktree", "an agent in the background has a worktree of its own: caliban --bg \"what to do\""),
    ("--mcp-config", "MCP servers stand in the settings (`[mcp.NAME]`); `caliban config show` shows them"),
    ("--fork-session", "`caliban sessions fork ID` makes a copy to go on with"),
    ("--max-budget-usd", "it is called --budget-usd here"),
];
const SKIPS: &str = "--permission-mode says what is asked about; `caliban --help` lists the modes";

/// The command that a word of another tool means, if it is one of ours.
pub(super) fn alias(word: &str) -> Option<&'static str> {
    ALIASES.iter().find(|(alias, _)| *alias == word).map(|(_, command)| *command)
}

/// Whether a word is a command of ours by another name, or `help`.
pub(super) fn is_alias(word: &str) -> bool {
    word == "help" || alias(word).is_some()
}

/// What to say about a flag of another tool.
pub(super) fn foreign_flag(flag: &str) -> Option<Failure> {
    let (_, instead) = FOREIGN_FLAGS.iter().find(|(name, _)| *name == flag)?;
    Some(Failure::usage(format!("there is no flag {flag}")).hint(*instead))
}

/// What to say about a word that stands where a command does and is none, but nearly. `rest` is behind it.
pub(super) fn mistyped(word: &str, rest: &[OsString], commands: &[&str]) -> Option<Failure> {
    let is_ours = |word: &str| commands.contains(&word) || is_alias(word);
    let is_word = word.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    if !is_word || word.starts_with('-') || is_ours(word) {
        return None;
    }
    let rest: Vec<&str> = rest.iter().filter_map(|word| word.to_str()).collect();
    let says = |line: &str| {
        let prompt = if rest.is_empty() {
            format!("\na prompt of one word goes behind -p: caliban -p {word}")
        } else {
            String::new()
        };
        Some(Failure::usage(format!("there is no command `{word}`")).hint(format!("{line}{prompt}")))
    };
    let says_meant = |command: &str| {
        let line: Vec<String> = std::iter::once(command).chain(rest.iter().copied()).map(quoted).collect();
        says(&format!("did you mean `caliban {}`?", line.join(" ")))
    };
    let typed = word.to_ascii_lowercase();
    if is_ours(&typed) {
        return says_meant(&typed);
    }
    let is_alone = rest.iter().all(|word| word.starts_with('-'));
    if let Some((_, instead)) = FOREIGN_COMMANDS.iter().find(|(name, _)| *name == typed && is_alone) {
        return says(instead);
    }
    // Words of other tools are too many to be guessed from a syllable.
    let others = ALIASES.iter().chain(&FOREIGN_COMMANDS).map(|(name, _)| *name).chain(["help"]);
    let candidates = commands.iter().copied().chain(others.filter(|name| name.len() > 3));
    let close = match rest.is_empty() {
        true => close_to_prompt(&typed, candidates),
        false => close_match(&typed, candidates),
    }?;
    match FOREIGN_COMMANDS.iter().find(|(name, _)| *name == close) {
        Some((_, instead)) => says(instead),
        None => says_meant(close),
    }
}

/// The command that one word alone nearly is. The word could be a prompt, so a short one may have one slip, and a longer one
/// with several begins as the command does.
fn close_to_prompt<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = if word.len() < 5 { 1 } else { (word.len() / 3).max(1) };
    let begins_alike = |candidate: &str| candidate.as_bytes().first() == word.as_bytes().first();
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(slips, candidate)| *slips <= most && (*slips == 1 || begins_alike(candidate)))
        .min_by_key(|(slips, candidate)| (*slips, candidate.len().abs_diff(word.len())))
        .map(|(_, candidate)| candidate)
}

/// A prompt that nobody has put into quotes.
pub(super) fn unquoted(words: &[OsString]) -> Option<Failure> {
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let words = words.filter(|words| words.len() > 1 && words.iter().all(|word| !word.starts_with('-')))?;
    let prompt = words.join(" ");
    Some(
        Failure::usage("found several words, expected a command or one prompt")
            .hint(format!("a prompt of several words goes in quotes: caliban {}", quoted(&prompt))),
    )
}

/// A word as one types it.
pub(super) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
}
