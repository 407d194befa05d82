//! The words of a `Bash(…)` rule against the words of one command.
//!
//! `*` alone stands for any number of words, inside a word for any characters of it; a trailing `:*` is the
//! same as ` *`. A giving rule is read narrowly: a computed word fits only a lone `*`. A taking rule is read
//! widely: options before a sub-command and the directory of the program do not hide it.

use crate::{path::Reading, shell::word::Word};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandPattern {
    words: Vec<String>,
}

/// How a rule fits a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    No,
    /// It depends on what the shell computes.
    Maybe,
    Yes,
}

impl CommandPattern {
    /// An error says where (in bytes) and what.
    pub(crate) fn new(text: &str) -> Result<Self, (usize, &'static str)> {
        let text = match text.trim_end().strip_suffix(":*") {
            Some(prefix) => format!("{prefix} *"),
            None => text.to_owned(),
        };
        if let Some(at) = text.find(['|', ';', '&', '<', '>', '`', '\n']) {
            return Err((at, "a rule is about one command, and this joins several"));
        }
        let words: Vec<String> = text
            .split_whitespace()
            .map(|word| word.chars().filter(|c| !matches!(c, '"' | '\'')).collect::<String>())
            .collect();
        if words.is_empty() { Err((0, "no command is named")) } else { Ok(Self { words }) }
    }

    /// `Bash(*)`
    pub(crate) fn is_everything(&self) -> bool {
        self.words.iter().all(|word| word == "*")
    }

    pub(crate) fn fit(&self, words: &[Word], reading: Reading) -> Fit {
        let fit = fit(&self.words, words, reading);
        if reading == Reading::Narrow || fit == Fit::Yes {
            return fit;
        }
        plainer(words).iter().map(|words| self::fit(&self.words, words, reading)).fold(fit, Fit::max)
    }

    /// Whether the rule's fixed beginning stands anywhere in a text that could not be parsed.
    pub(crate) fn stands_in(&self, line: &str) -> bool {
        let fixed: Vec<&str> =
            self.words.iter().map(String::as_str).take_while(|word| !word.contains('*')).collect();
        if fixed.is_empty() {
            return true;
        }
        let bare: String = line.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
        let words: Vec<&str> = bare
            .split(|c: char| c.is_whitespace() || c.is_control() || ";&|()<>{}$`=,".contains(c))
            .filter(|word| !word.is_empty())
            .map(|word| word.rsplit('/').next().unwrap_or(word))
            .collect();
        words.windows(fixed.len()).any(|window| window == fixed)
    }
}

fn fit(pattern: &[String], words: &[Word], reading: Reading) -> Fit {
    let Some((first, rest)) = pattern.split_first() else {
        return if words.is_empty() { Fit::Yes } else { Fit::No };
    };
    if first == "*" {
        if rest.is_empty() {
            return Fit::Yes;
        }
        return (0..=words.len()).map(|skip| fit(rest, &words[skip..], reading)).max().unwrap_or(Fit::No);
    }
    let Some((word, others)) = words.split_first() else { return Fit::No };
    let here = match (word, reading) {
        (Word::Literal(text), _) if wildcard(first, text) => Fit::Yes,
        (Word::Literal(_), _) | (_, Reading::Narrow) => Fit::No,
        (Word::Glob(_), Reading::Wide) => Fit::Maybe,
        // It may become any number of words.
        (Word::Computed(_), Reading::Wide) => return Fit::Maybe,
    };
    if here == Fit::No { Fit::No } else { here.min(fit(rest, others, reading)) }
}

/// `*` in a word stands for any characters.
pub(crate) fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// The same command in the plainer spellings that a forbidding rule most likely means.
fn plainer(words: &[Word]) -> Vec<Vec<Word>> {
    let mut spellings = Vec::new();
    let mut plain = words.to_vec();
    if let Some(Word::Literal(name)) = plain.first_mut()
        && let Some(at) = name.rfind('/')
    {
        name.replace_range(..=at, "");
        spellings.push(plain.clone());
    }
    let name = plain.first().and_then(Word::literal).unwrap_or_default().to_owned();
    let valued: &[&str] = match name.as_str() {
        "git" => &["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env"],
        "cargo" => &["-C", "--config", "-Z", "--color"],
        "npm" | "pnpm" | "yarn" => &["--prefix", "-C", "--dir", "--cwd", "-w", "--workspace", "--filter"],
        "docker" | "kubectl" => &["-H", "--host", "--context", "-n", "--namespace", "--kubeconfig"],
        _ => &[],
    };
    let at = 1;
    let mut short = plain.clone();
    while at < short.len() {
        match short[at].literal() {
            Some(option) if option.starts_with('-') || option.starts_with('+') => {
                let takes_value = valued.contains(&option);
                short.remove(at);
                if takes_value && at < short.len() {
                    short.remove(at);
                }
            }
            _ => break,
        }
    }
    let options_first = short.len() != plain.len();
    if options_first {
        spellings.push(short);
    }
    let without: Vec<Word> = plain
        .iter()
        .filter(|word| word.literal().is_none_or(|text| !text.starts_with('-') && !text.starts_with('+')))
        .cloned()
        .collect();
    if without.len() != plain.len() {
        spellings.push(without);
    }
    spellings
}
