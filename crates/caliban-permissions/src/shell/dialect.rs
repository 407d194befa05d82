//! Which shell will read a line, and what of a line the shells do not read alike.
//!
//! The parser reads bash. A line that another shell gets is judged only when it is plain enough for both.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::OnceLock};

/// Who reads a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Bash,
    /// `sh`, whichever it is: dash, busybox.
    Posix,
}

impl Dialect {
    /// The shell that the Bash tool uses here: it takes `/bin/sh` where there is no bash. It looks at more
    /// places than these, so that in doubt the answer is the stricter one.
    #[expect(clippy::disallowed_methods, reason = "of the system's shell")]
    pub(crate) fn here() -> Self {
        static HERE: OnceLock<Dialect> = OnceLock::new();
        *HERE.get_or_init(|| {
            let runs = |bash: &str| {
                let meta = Path::new(bash).metadata();
                meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
            };
            if ["/bin/bash", "/usr/bin/bash"].iter().any(|bash| runs(bash)) {
                Self::Bash
            } else {
                Self::Posix
            }
        })
    }

    /// Whether this shell reads the line as the parser does.
    pub(super) fn check(self, line: &str) -> Result<(), &'static str> {
        let is_same = self == Self::Bash || plain(line);
        if is_same { Ok(()) } else { Err("sh reads it otherwise than bash") }
    }
}

/// What only bash knows, or knows in another way. `a+=x/y` is a program's name in sh, and `10<x` has an argument.
const BASH_ONLY: &[&str] =
    &["$'", "$\"", "$[", "`", "&>", "<(", ">(", "<<<", "[[", "((", "|&", ";&", "+=", "]=", "=("];
const BASH_WORDS: &[&str] =
    &["function", "select", "coproc", "time", "declare", "typeset", "local", "readonly"];

/// Quotes are not looked at: too strict an answer only asks.
fn plain(line: &str) -> bool {
    let words = || line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    !BASH_ONLY.iter().any(|construct| line.contains(construct))
        && !words().any(|word| BASH_WORDS.contains(&word))
        && line.match_indices('{').all(|(at, _)| plain_brace(&line[..at], &line[at + 1..]))
        && line.match_indices(['<', '>']).all(|(at, _)| plain_redirection(&line[..at], &line[at + 1..]))
}

/// `{ ls; }`, `{}` and `${name}`.
fn plain_brace(before: &str, after: &str) -> bool {
    if before.ends_with('$') {
        let name = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        return name.len() < after.len() && name.starts_with('}');
    }
    after.starts_with([' ', '\t', '\n', '}'])
}

/// One digit before it; behind `&` a descriptor.
fn plain_redirection(before: &str, after: &str) -> bool {
    let digits = before.len() - before.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let to = after.strip_prefix('&').map(str::trim_start);
    digits < 2 && to.is_none_or(|to| to.starts_with(|c: char| c.is_ascii_digit() || c == '-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sh_is_given_only_what_it_reads_as_bash_does() {
        let same =
            ["ls", "cd a && ls 2>&1 | wc -l", "{ ls; } >x", "echo ${x} \"$(pwd)\"", "x=1; echo $((1+2))"];
        let other = [
            "a+=x/y",
            "a[0]=x/y",
            "cat 10<x",
            "ls >&x",
            "echo {a,b}",
            "echo ${x:-y}",
            "echo $'x'",
            "echo ${}",
        ];
        // Both shells read `$((` as arithmetic, but telling it apart from `((` is not worth the code: it is refused.
        let checked =
            |lines: &[&str]| lines.iter().map(|line| Dialect::Posix.check(line).is_ok()).collect::<Vec<_>>();
        assert_eq!(checked(&same), [true, true, true, true, false]);
        assert_eq!(checked(&other), [false; 8]);
        assert!(other.iter().all(|line| Dialect::Bash.check(line).is_ok()));
    }
}
