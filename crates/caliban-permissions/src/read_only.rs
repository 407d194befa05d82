//! The commands that are known to read only, with the files that they would read.
//!
//! They run in the read fence, where they can change nothing whatever their words mean. So what is listed here beside a name are only
//! the options that make it write: a person who is asked gets more done than a command that fails. Without a fence there is a short list
//! ([`is_plain`]); the options of those that read elsewhere stand here, too. Abbreviated long options count as their longest form.

use std::path::{Path, PathBuf};

use crate::{
    glob::expand,
    shell::{
        ParsedCommand,
        word::{Word, declared_name},
    },
};

/// The files and directories that a read-only command reads; nothing when it is not known to read only.
pub(crate) fn reads(run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    let (name, words) = run.words.split_first()?;
    match name.literal()? {
        "cd" => change_directory(words, run),
        "git" => git(words, run),
        "find" => find(words, run),
        "date" => date(words),
        "export" => words.iter().all(|word| declared_name(word).is_some()).then(Vec::new),
        "hostname" if words.is_empty() => Some(Vec::new()),
        "command" | "type" | "which" => looked_up(name.literal()?, words),
        // `-v` names a variable, and its subscript is evaluated.
        "test" | "[" => {
            words.iter().all(|word| word.literal().is_some_and(|text| text != "-v")).then(Vec::new)
        }
        name => {
            let spec = LISTED.iter().find(|spec| spec.names.contains(&name))?;
            listed(spec, words, run)
        }
    }
}

/// The commands that are allowed where nothing can be fenced, when every word is plain.
const FEW: &[&str] = &[
    "true", "false", ":", "pwd", "echo", "whoami", "id", "uname", "cd", "ls", "cat", "head", "tail", "wc",
    "stat", "basename", "dirname", "date", "test", "[", "which", "grep", "cut", "tr", "nl", "export",
];

/// Whether a command is plain enough to run without a fence and without a question: no word is computed, and no pattern may become an
/// option by the name of some file (`: > ./--pre=sh; rg x *`), as it may not behind `--`.
pub(crate) fn is_plain(run: &ParsedCommand) -> bool {
    let mut options_may_follow = true;
    let mut plain = |word: &Word| match word {
        Word::Literal(text) => {
            options_may_follow &= text != "--";
            true
        }
        Word::Glob(pattern) => {
            !options_may_follow || !pattern.starts_with(['*', '?', '[', '{', '@', '+', '!', '-'])
        }
        Word::Computed(_) => false,
    };
    run.words.first().and_then(Word::literal).is_some_and(|name| FEW.contains(&name))
        && run.words.iter().all(&mut plain)
}

/// How a command takes what is no option.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operands {
    /// No files among them.
    Texts,
    Files,
    /// The first one is a pattern, unless an option gives it.
    PatternThenFiles,
}

struct ReadOnlyCommands {
    names: &'static [&'static str],
    operands: Operands,
    /// One-letter options that take it off the list.
    letters: &'static str,
    /// Long options that do.
    long: &'static [&'static str],
    most_operands: usize,
    /// Whether it reads the working directory by itself.
    reads_directory: bool,
}

const PLAIN: ReadOnlyCommands = ReadOnlyCommands {
    names: &[],
    operands: Operands::Texts,
    letters: "",
    long: &[],
    most_operands: usize::MAX,
    reads_directory: false,
};

const LISTED: &[ReadOnlyCommands] = &[
    ReadOnlyCommands {
        names: &[
            "true", "false", ":", "pwd", "echo", "whoami", "id", "uname", "basename", "dirname", "seq",
            "sleep", "nproc", "arch", "uptime", "exit", "break", "continue", "tr", "groups", "tty", "printf",
        ],
        ..PLAIN
    },
    ReadOnlyCommands {
        names: &[
            "cat",
            "head",
            "tail",
            "nl",
            "tac",
            "rev",
            "cut",
            "paste",
            "fold",
            "expand",
            "column",
            "cmp",
            "comm",
            "stat",
            "readlink",
            "realpath",
            "od",
            "hexdump",
            "md5sum",
            "sha1sum",
            "sha256sum",
            "sha512sum",
            "cksum",
            "strings",
            "diff",
            "file",
        ],
        operands: Operands::Files,
        ..PLAIN
    },
    ReadOnlyCommands { names: &["wc"], operands: Operands::Files, long: &["files0-from"], ..PLAIN },
    ReadOnlyCommands {
        names: &["ls"],
        operands: Operands::Files,
        letters: "L",
        long: &["dereference"],
        reads_directory: true,
        ..PLAIN
    },
    ReadOnlyCommands { names: &["df", "du"], operands: Operands::Files, reads_directory: true, ..PLAIN },
    ReadOnlyCommands {
        names: &["sort"],
        operands: Operands::Files,
        letters: "o",
        long: &["output"],
        ..PLAIN
    },
    // A second operand is written to.
    ReadOnlyCommands { names: &["uniq"], operands: Operands::Files, most_operands: 1, ..PLAIN },
    ReadOnlyCommands {
        names: &["tree"],
        operands: Operands::Files,
        letters: "oR",
        long: &["output"],
        reads_directory: true,
        ..PLAIN
    },
    ReadOnlyCommands {
        names: &["grep", "egrep", "fgrep"],
        operands: Operands::PatternThenFiles,
        letters: "R",
        long: &["dereference-recursive"],
        reads_directory: true,
        ..PLAIN
    },
    ReadOnlyCommands { names: &["rg"], operands: Operands::PatternThenFiles, reads_directory: true, ..PLAIN },
];

fn listed(spec: &ReadOnlyCommands, words: &[Word], run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    if spec.operands == Operands::Texts {
        return Some(Vec::new());
    }
    let arguments = Arguments::of(words)?;
    if arguments.options.iter().any(|option| takes_off(option, spec.letters, spec.long)) {
        return None;
    }
    if arguments.operands.len() > spec.most_operands {
        return None;
    }
    let mut operands = arguments.operands.as_slice();
    if spec.operands == Operands::PatternThenFiles {
        let given = arguments
            .options
            .iter()
            .any(|option| takes_off(option, "ef", &["regexp", "file", "files", "type-list"]));
        // A shell pattern can expand to several words.
        if !given && !matches!(operands.first()?, Word::Glob(_)) {
            operands = operands.get(1..)?;
        }
    }
    let mut files = files(operands, run)?;
    files.extend(option_files(&arguments.options, run)?);
    if spec.reads_directory {
        files.extend(run.directories.clone()?);
    }
    Some(files)
}

/// Options whose value is a pattern, and often not quoted.
const PATTERN_OPTIONS: [&str; 4] = ["--include=", "--exclude=", "--exclude-dir=", "--glob="];

struct Arguments<'a> {
    options: Vec<&'a str>,
    operands: Vec<&'a Word>,
}

impl<'a> Arguments<'a> {
    /// Nothing when some word is computed: it may be an option. So may a pattern that fits no file. What looks
    /// like an option behind `--` counts as both: `--` may be the value of the option before it.
    fn of(words: &'a [Word]) -> Option<Self> {
        let mut arguments = Self { options: Vec::new(), operands: Vec::new() };
        let mut only_operands = false;
        for word in words {
            match word {
                Word::Computed(_) => return None,
                Word::Glob(pattern) if pattern.starts_with('-') => {
                    let harmless = PATTERN_OPTIONS.iter().find(|option| pattern.starts_with(**option));
                    arguments.options.push(harmless?);
                }
                Word::Glob(_) => arguments.operands.push(word),
                Word::Literal(text) if only_operands && text.starts_with('-') => {
                    arguments.options.push(text);
                    arguments.operands.push(word);
                }
                Word::Literal(text) if only_operands || !text.starts_with('-') || text == "-" => {
                    arguments.operands.push(word);
                }
                Word::Literal(text) if text == "--" => only_operands = true,
                Word::Literal(text) => arguments.options.push(text),
            }
        }
        Some(arguments)
    }
}

/// Whether an option is one of these, abbreviated or in a cluster.
fn takes_off(option: &str, letters: &str, long: &[&str]) -> bool {
    match option.strip_prefix("--") {
        Some(name) => {
            let name = name.split('=').next().unwrap_or(name);
            long.iter().any(|long| long.starts_with(name))
        }
        None => option.chars().skip(1).any(|letter| letters.contains(letter)),
    }
}

fn files(operands: &[&Word], run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    for operand in operands {
        match operand {
            Word::Literal(text) if matches!(text.as_str(), "-" | "" | "/dev/null") => {}
            Word::Literal(text) => files.extend(located(text, run)?),
            Word::Glob(pattern) => {
                for directory in run.directories.as_ref()? {
                    files.extend(expand(directory, pattern)?);
                }
            }
            Word::Computed(_) => return None,
        }
    }
    Some(files)
}

/// `--file=x`, `-fx` and `-rfx` name files too.
fn option_files(options: &[&str], run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    /// Of a longer one there are too many ends to look at.
    const LONGEST: usize = 200;
    let mut files = Vec::new();
    for option in options {
        if !option.starts_with("--") && option.len() > LONGEST {
            return None;
        }
        let values: Vec<&str> = match option.strip_prefix("--") {
            Some(long) => long.split_once('=').map(|(_, value)| value).into_iter().collect(),
            // Only the program knows which of the letters takes the rest of the word as its value.
            None => option.char_indices().skip(2).map(|(at, _)| &option[at..]).collect(),
        };
        for value in values.into_iter().filter(|value| !value.is_empty()) {
            files.extend(located(value, run)?);
        }
    }
    Some(files)
}

fn located(text: &str, run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    let path = Path::new(text);
    if path.is_absolute() {
        return Some(vec![path.to_owned()]);
    }
    Some(run.directories.as_ref()?.iter().map(|directory| directory.join(path)).collect())
}

fn change_directory(words: &[Word], run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    match words {
        [Word::Literal(target)] if !target.starts_with('-') => located(target, run),
        _ => None,
    }
}

fn looked_up(name: &str, words: &[Word]) -> Option<Vec<PathBuf>> {
    let literal = words.iter().all(|word| word.literal().is_some());
    let asked = name != "command" || matches!(words.first().and_then(Word::literal), Some("-v" | "-V"));
    (literal && asked).then(Vec::new)
}

fn date(words: &[Word]) -> Option<Vec<PathBuf>> {
    let shows = |word: &Word| {
        word.literal().is_some_and(|text| {
            text.starts_with('+')
                || matches!(text, "-u" | "--utc" | "-R" | "-I" | "-Iseconds" | "-Is" | "--iso-8601=seconds")
        })
    };
    words.iter().all(shows).then(Vec::new)
}

fn find(words: &[Word], run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    /// They write, or run what may.
    const OFF: [&str; 5] = ["-exec", "-ok", "-delete", "-fprint", "-fls"];
    let literal: Vec<&str> = words.iter().map(Word::literal).collect::<Option<_>>()?;
    if literal.iter().any(|word| OFF.iter().any(|off| word.starts_with(off))) {
        return None;
    }
    let mut files = run.directories.clone()?;
    let starts = literal.iter().skip_while(|word| matches!(**word, "-H" | "-L" | "-P"));
    for start in starts.take_while(|word| !word.starts_with(['-', '(', '!', ')', ','])) {
        files.extend(located(start, run)?);
    }
    Some(files)
}

/// The reading sub-commands of git. What the configuration or an option makes them run runs in the fence.
fn git(words: &[Word], run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    let mut words = words;
    while let Some((Word::Literal(first), rest)) = words.split_first() {
        match first.as_str() {
            "--no-pager" | "--no-optional-locks" | "--literal-pathspecs" => words = rest,
            _ => break,
        }
    }
    let (command, rest) = words.split_first()?;
    let arguments = Arguments::of(rest)?;
    // `--output-indicator-new` and the like are harmless, but rare: they ask.
    if arguments.options.iter().any(|option| takes_off(option, "", &["output", "output-directory"])) {
        return None;
    }
    let only = |allowed: &[&str]| arguments.options.iter().all(|option| allowed.contains(option));
    let none = arguments.operands.is_empty();
    let first = arguments.operands.first().and_then(|word| word.literal());
    let reads = match command.literal()? {
        "status" | "diff" | "log" | "show" | "blame" | "ls-files" | "ls-tree" | "rev-parse" | "rev-list"
        | "merge-base" | "describe" | "shortlog" | "cat-file" | "name-rev" | "diff-tree" | "for-each-ref"
        | "show-ref" | "count-objects" | "check-ignore" | "version" | "--version" => true,
        "branch" => {
            let listing = [
                "--list",
                "-a",
                "-r",
                "-v",
                "-vv",
                "--all",
                "--remotes",
                "--verbose",
                "--show-current",
                "--no-color",
            ];
            only(&listing) && (none || arguments.options.iter().any(|option| matches!(*option, "--list")))
        }
        "tag" => {
            only(&["-l", "--list", "-n"])
                && (none || arguments.options.iter().any(|option| matches!(*option, "-l" | "--list")))
        }
        "remote" => only(&["-v", "--verbose"]) && (none || first == Some("get-url")),
        "stash" | "worktree" => first == Some("list"),
        "reflog" => none || first == Some("show"),
        _ => false,
    };
    if !reads {
        return None;
    }
    let mut files = files(&arguments.operands, run)?;
    files.extend(option_files(&arguments.options, run)?);
    files.extend(run.directories.clone()?);
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<PathBuf>> {
        let word = |text: &str| match text {
            _ if text.contains('$') => Word::Computed(text.to_owned()),
            _ if text.contains('*') => Word::Glob(text.to_owned()),
            _ => Word::Literal(text.to_owned()),
        };
        let words = line.split(' ').map(word).collect();
        reads(&ParsedCommand { words, directories: Some(vec!["/r".into()]), inner: None })
    }

    #[test]
    fn what_a_reading_command_reads_is_known() {
        let cases: [(&str, &[&str]); 11] = [
            ("hostname", &[]),
            ("cat a /b", &["/r/a", "/b"]),
            ("cat - /dev/null", &[]),
            ("cat -- -x", &["/r/-x"]),
            ("uniq a", &["/r/a"]),
            ("grep x a", &["/r/a", "/r"]),
            ("grep --include=*.rs x a", &["/r/a", "/r"]),
            ("find a b -name x", &["/r", "/r/a", "/r/b"]),
            ("find -L a ( -name x )", &["/r", "/r/a"]),
            ("git tag", &["/r"]),
            ("git remote get-url origin", &["/r/get-url", "/r/origin", "/r"]),
        ];
        for (line, files) in cases {
            let files = files.iter().map(PathBuf::from).collect();
            assert_eq!(read(line), Some(files), "{line}");
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
        ] {
            assert!(read(line).is_some(), "{line}");
        }
    }

    #[test]
    fn what_may_do_more_than_read_is_not() {
        for line in [
            "hostname x",
            "uniq a b",
            "ls -*",
            "ls $x",
            "sort -o x a",
            "sort -- -o x",
            "find a -delete",
            "git tag v1",
            "git tag -n v1",
            "git tag -d v1",
            "git branch x",
            "git branch -a x",
            "git branch -D x",
            "git branch -D --list x",
            "git remote add x",
            "git remote -x",
            "git remote -x get-url",
            "git reflog expire",
            "git stash",
            "git worktree add x",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        // Too many letters to look at every end of them.
        let letters = |count: usize| read(&format!("ls -{}", "l".repeat(count)));
        assert!(letters(199).is_some() && letters(200).is_none());
    }
}
