//! The commands that only read, by their names, with the files that they would read.
//!
//! They run in the read fence, where they can change nothing whatever their words mean. So nothing is guessed about options, variables
//! and words that the shell computes. What surely writes is left out (`find -delete`, `git branch x`), because a person who is asked gets
//! more done than a command that fails. What runs without a fence is another matter: [`Reading::is_plain`] is short and strict.

use std::path::PathBuf;

use crate::{
    glob::expand,
    shell::{
        ParsedCommand,
        word::{Word, declared_name},
    },
};

/// What a reading command does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The files and directories that its words name.
    pub(crate) files: Vec<PathBuf>,
    /// Whether these are all of them, as far as words say.
    pub(crate) is_known: bool,
    /// Whether no option and no operand can make it write a file.
    pub(crate) is_sure: bool,
    /// Whether it may run where there is no fence, without a question.
    pub(crate) is_plain: bool,
}

/// How a command takes what is no option.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operands {
    /// No files among them.
    Texts,
    Files,
    /// Files; it also looks around in the working directory.
    Places,
    /// The same behind a first one, which is a pattern.
    PatternThenPlaces,
}

const READERS: &[(Operands, &[&str])] = &[
    (
        Operands::Texts,
        &[
            "true", "false", ":", "pwd", "echo", "printf", "whoami", "id", "uname", "basename", "dirname",
            "seq", "sleep", "nproc", "arch", "uptime", "exit", "break", "continue", "tr", "groups", "tty",
            "date", "hostname", "export", "command", "type", "which", "test", "[",
        ],
    ),
    (
        Operands::Files,
        &[
            "cd", "cat", "head", "tail", "nl", "tac", "rev", "cut", "paste", "fold", "expand", "column",
            "cmp", "comm", "diff", "stat", "readlink", "realpath", "od", "hexdump", "strings", "file", "wc",
            "sort", "uniq",
        ],
    ),
    (Operands::Files, &["cksum", "md5sum", "sha1sum", "sha256sum", "sha512sum"]),
    (Operands::Places, &["ls", "df", "du", "tree", "find", "git"]),
    (Operands::PatternThenPlaces, &["grep", "egrep", "fgrep", "rg"]),
];

/// The commands that may run without a fence and without a question.
const FEW: &[&str] = &[
    "true", "false", ":", "pwd", "echo", "whoami", "id", "uname", "cd", "ls", "cat", "head", "tail", "wc",
    "stat", "basename", "dirname", "date", "test", "[", "which", "grep", "cut", "tr", "nl", "export",
];

/// Nothing when the command is not known to read only.
pub(crate) fn reads(run: &ParsedCommand) -> Option<Reading> {
    let (name, words) = run.words.split_first()?;
    let name = name.literal()?;
    let (operands, _) = READERS.iter().find(|(_, names)| names.contains(&name))?;
    if writes(name, run) {
        return None;
    }
    let directories = run.directories.as_deref().unwrap_or_default();
    let (mut files, is_all) = files(&named(name, *operands, words), directories);
    // Git has files of its own.
    let is_known = is_all && run.directories.is_some() || *operands == Operands::Texts || name == "git";
    if matches!(operands, Operands::Places | Operands::PatternThenPlaces) {
        files.extend_from_slice(directories);
    }
    Some(Reading {
        files,
        is_known,
        is_sure: !matches!(name, "sort" | "uniq" | "tree" | "file"),
        is_plain: is_known && FEW.contains(&name) && has_plain_words(name, words),
    })
}

/// The files that words name in these directories, and whether they are all that the shell will make of them.
pub(crate) fn files(words: &[&Word], directories: &[PathBuf]) -> (Vec<PathBuf>, bool) {
    let mut files = Vec::new();
    let mut is_all = true;
    for word in words {
        match word {
            Word::Literal(text) if matches!(text.as_str(), "-" | "" | "/dev/null") => {}
            Word::Literal(text) if text.starts_with('/') => files.push(PathBuf::from(text)),
            Word::Literal(text) => files.extend(directories.iter().map(|directory| directory.join(text))),
            Word::Glob(pattern) => {
                for directory in directories {
                    let found = expand(directory, pattern);
                    is_all &= found.is_some();
                    files.extend(found.into_iter().flatten());
                }
            }
            Word::Computed(_) => is_all = false,
        }
    }
    (files, is_all)
}

/// The words that may name files.
pub(crate) fn named<'a>(name: &str, operands: Operands, words: &'a [Word]) -> Vec<&'a Word> {
    let is_option = |word: &Word| {
        let (Word::Literal(text) | Word::Glob(text) | Word::Computed(text)) = word;
        text.starts_with('-') && text != "-"
    };
    if name == "find" {
        let tests = |word: &Word| is_option(word) || matches!(word.literal(), Some("(" | "!"));
        return words.iter().skip_while(|word| is_option(word)).take_while(|word| !tests(word)).collect();
    }
    let end = words.iter().position(|word| word.literal() == Some("--")).unwrap_or(words.len());
    let named = words.iter().enumerate().filter(|(at, word)| *at > end || !is_option(word));
    let mut named: Vec<&Word> = named.map(|(_, word)| word).collect();
    match operands {
        Operands::Texts => named.clear(),
        Operands::Files | Operands::Places => {}
        Operands::PatternThenPlaces => {
            let gives = |text: &str| match text.strip_prefix("--") {
                Some(long) => long.starts_with("reg") || long.starts_with("file"),
                None => text.contains(['e', 'f']),
            };
            let is_given = words.iter().any(|word| is_option(word) && word.literal().is_some_and(gives));
            // A shell's pattern can become several words.
            if !is_given && matches!(named.first(), Some(Word::Literal(_))) {
                named.remove(0);
            }
        }
    }
    named
}

/// Whether every word is what it seems: none is computed, none becomes an option by the name of some file (`: > ./--pre=sh; rg x *`; not
/// behind `--`), and no option makes it read elsewhere.
fn has_plain_words(name: &str, words: &[Word]) -> bool {
    let refused: &[char] = match name {
        "ls" => &['L', '/'],
        "grep" => &['f', 'R', '/'],
        // The subscript of a variable is evaluated.
        "test" | "[" => &['v', '/'],
        _ => &['/'],
    };
    let is_plain = |text: &str| match name {
        "export" => declared_name(&Word::Literal(text.to_owned())).is_some(),
        "date" => text.starts_with('+') || text == "-u",
        _ if text == "--" || !text.starts_with('-') => true,
        "cd" => false,
        "ls" | "grep" | "wc" if text.starts_with("--") => false,
        _ => !text.contains(refused),
    };
    let mut options_may_follow = true;
    let mut is_what_it_seems = |word: &Word| match word {
        Word::Literal(text) => {
            options_may_follow &= text != "--";
            is_plain(text)
        }
        Word::Glob(pattern) => {
            !options_may_follow || !pattern.starts_with(['*', '?', '[', '{', '@', '+', '!', '-'])
        }
        Word::Computed(_) => false,
    };
    words.iter().all(&mut is_what_it_seems) && (name != "cd" || words.len() == 1)
}

/// Whether a command of a listed name writes, or runs what may, as its plainest words say.
fn writes(name: &str, run: &ParsedCommand) -> bool {
    let words: Vec<&str> = run.words[1..].iter().map(|word| word.literal().unwrap_or_default()).collect();
    let has = |starts: &[&str]| words.iter().any(|word| starts.iter().any(|start| word.starts_with(start)));
    match name {
        "git" => has(&["--out"]) || !git_reads(&words),
        "find" => {
            let mut inner = run.inner.iter().flat_map(|inner| &inner.analysis.runs);
            has(&["-delete", "-fprint", "-fls", "-ok"]) || inner.any(|run| reads(run).is_none())
        }
        "command" => !matches!(words.first(), Some(&("-v" | "-V"))),
        "hostname" => !words.is_empty(),
        _ => false,
    }
}

/// The reading sub-commands of git.
fn git_reads(words: &[&str]) -> bool {
    let is_own =
        |word: &&&str| matches!(**word, "--no-pager" | "--no-optional-locks" | "--literal-pathspecs");
    let mut rest = words.iter().skip_while(is_own).copied();
    let command = rest.next().unwrap_or_default();
    let rest: Vec<&str> = rest.collect();
    let first = rest.iter().copied().find(|word| !word.starts_with('-'));
    match command {
        "status" | "diff" | "log" | "show" | "blame" | "ls-files" | "ls-tree" | "rev-parse" | "rev-list"
        | "merge-base" | "describe" | "shortlog" | "cat-file" | "name-rev" | "diff-tree" | "for-each-ref"
        | "show-ref" | "count-objects" | "check-ignore" | "version" | "--version" => true,
        "branch" | "tag" if rest.iter().any(|word| matches!(*word, "-l" | "--list")) => true,
        "branch" | "tag" => rest.iter().all(|word| {
            matches!(
                *word,
                "--show-current" | "--all" | "--remotes" | "-a" | "-r" | "-v" | "-vv" | "-n" | "--no-color"
            )
        }),
        "remote" => matches!(first, None | Some("get-url")),
        "stash" | "worktree" => first == Some("list"),
        "reflog" => matches!(first, None | Some("show")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Reading> {
        let word = |text: &str| match text {
            _ if text.contains('$') => Word::Computed(text.to_owned()),
            _ if text.contains('*') => Word::Glob(text.to_owned()),
            _ => Word::Literal(text.to_owned()),
        };
        let words = line.split(' ').map(word).collect();
        reads(&ParsedCommand { words, directories: Some(vec!["/r".into()]), inner: None })
    }

    fn is_plain(line: &str) -> bool {
        read(line).is_some_and(|reading| reading.is_plain)
    }

    #[test]
    fn what_a_reading_command_reads_is_known() {
        let cases: [(&str, &[&str]); 21] = [
            ("hostname", &[]),
            ("cat a /b", &["/r/a", "/b"]),
            ("cat - /dev/null", &[]),
            ("cat -- -x", &["/r/-x"]),
            ("cat $x", &[]),
            ("uniq a", &["/r/a"]),
            ("ls -l", &["/r"]),
            ("grep x a", &["/r/a", "/r"]),
            ("grep -e x a", &["/r/x", "/r/a", "/r"]),
            ("grep -nfx a", &["/r/a", "/r"]),
            ("grep - a", &["/r/a", "/r"]),
            ("grep --regexp=x a", &["/r/a", "/r"]),
            ("grep --include=*.rs x a", &["/r/a", "/r"]),
            ("grep -- -x a", &["/r/a", "/r"]),
            ("find a b -name x", &["/r/a", "/r/b", "/r"]),
            ("find -L a ( -name x )", &["/r/a", "/r"]),
            ("find a ! -name x", &["/r/a", "/r"]),
            ("find a ( -name /x )", &["/r/a", "/r"]),
            ("command -v ls", &[]),
            ("git tag", &["/r/tag", "/r"]),
            ("git remote get-url origin", &["/r/remote", "/r/get-url", "/r/origin", "/r"]),
        ];
        for (line, files) in cases {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            assert_eq!(read(line).map(|reading| reading.files), Some(files), "{line}");
        }
        for line in [
            "git tag -l v",
            "git tag -n",
            "git tag --list v",
            "git branch -a",
            "git branch --list x",
            "git remote -v",
            "git reflog",
            "git reflog show x",
            "git stash list",
            "git --no-pager log",
            "git status $x",
            // In the fence it changes nothing, whatever it is told to.
            "sort -o x a",
            "uniq a b",
            "ls -*",
            "ls $x",
        ] {
            assert!(read(line).is_some(), "{line}");
        }
    }

    #[test]
    fn what_surely_writes_is_not_reading() {
        for line in [
            "hostname x",
            "command ls",
            "find a -delete",
            "git diff --output=x",
            "git $x",
            "git tag v1",
            "git tag -n v1",
            "git tag -d v1",
            "git branch x",
            "git branch $x",
            "git branch -a x",
            "git branch -D x",
            "git remote add x",
            "git reflog expire",
            "git stash",
            "git worktree add x",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn without_a_fence_only_plain_words_are_allowed() {
        for line in [
            "ls -la a",
            "tail -n 5 a",
            "cut -d: -f1 a",
            "grep -rn x a",
            "date +%s",
            "export A=b",
            "cat -- -x",
        ] {
            assert!(is_plain(line), "{line}");
        }
        for line in [
            "ls -aL",
            "ls --dereference",
            "grep -nf x a",
            "grep -R x",
            "grep --file=x a",
            "wc --files0-from=x",
            "test -v x",
            "date -s x",
            "date 1",
            "export -f x",
            "cat $x",
            "cat *",
            "sort a",
            "rg x",
            "git status",
        ] {
            assert!(!is_plain(line), "{line}");
        }
        // What an option or an operand can make write.
        let is_sure = |line: &str| read(line).is_some_and(|reading| reading.is_sure);
        assert_eq!(
            ["echo $x", "git log", "cat $x", "sort a", "uniq a"].map(is_sure),
            [true, true, true, false, false]
        );
    }
}
