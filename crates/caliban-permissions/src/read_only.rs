//! The commands that are known to read only, with the files that they would read.
//!
//! A command is listed here with the options that make it write or run something; those take it off the
//! list. Abbreviated long options count as their longest form.

use std::path::{Path, PathBuf};

use crate::{
    glob::expand,
    shell::{
        Run,
        word::{Word, declared_name},
    },
};

/// The files and directories that a read-only command reads; nothing when it is not known to read only.
pub(crate) fn reads(run: &Run) -> Option<Vec<PathBuf>> {
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
        "printf" => words
            .first()?
            .literal()
            .filter(|text| !text.starts_with('-') && !counts(text))
            .map(|_| Vec::new()),
        name => {
            let spec = LISTED.iter().find(|spec| spec.names.contains(&name))?;
            listed(spec, words, run)
        }
    }
}

/// The commands that are allowed where nothing can be fenced, when every word is plain.
const FEW: &[&str] = &[
    "true", "false", ":", "pwd", "echo", "whoami", "id", "uname", "cd", "ls", "cat", "head", "tail", "wc",
    "stat", "basename", "dirname", "date", "test", "[", "which", "grep",
];

/// Whether a command is plain enough to run without a fence and without a question.
pub(crate) fn is_plain(run: &Run) -> bool {
    let plain = |word: &Word| word.literal().is_some();
    run.words.first().and_then(Word::literal).is_some_and(|name| FEW.contains(&name))
        && run.words.iter().all(plain)
}

/// Whether a word is a pattern that may become an option, by the name of some file.
pub(crate) fn may_become_option(run: &Run) -> bool {
    let before_dashes = run.words.iter().skip(1).take_while(|word| word.literal() != Some("--"));
    let mut patterns = before_dashes.filter_map(|word| match word {
        Word::Glob(pattern) => Some(pattern),
        Word::Literal(_) | Word::Computed(_) => None,
    });
    patterns.any(|pattern| pattern.starts_with(['*', '?', '[', '{', '@', '+', '!']))
}

/// Whether a format of `printf` has a `%n`, which sets a variable.
fn counts(format: &str) -> bool {
    let mut rest = format;
    while let Some((_, behind)) = rest.split_once('%') {
        let conversion = behind.trim_start_matches(|c| "-+ #'0123456789.*$hjlLqtzI".contains(c));
        if conversion.starts_with('n') {
            return true;
        }
        rest = behind.strip_prefix('%').unwrap_or(conversion);
    }
    false
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

/// Operands that take a command off the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    None,
    /// It would follow the links in them.
    Directories,
    /// Patterns: each file more has another meaning.
    Patterns,
}

struct Listed {
    names: &'static [&'static str],
    operands: Operands,
    /// One-letter options that take it off the list.
    letters: &'static str,
    /// Long options that do.
    long: &'static [&'static str],
    most_operands: usize,
    /// What an operand cannot be.
    refuses: Refused,
    /// Whether it reads the working directory by itself.
    reads_directory: bool,
}

const PLAIN: Listed = Listed {
    names: &[],
    operands: Operands::Texts,
    letters: "",
    long: &[],
    most_operands: usize::MAX,
    refuses: Refused::None,
    reads_directory: false,
};

const LISTED: &[Listed] = &[
    Listed {
        names: &[
            "true", "false", ":", "pwd", "echo", "whoami", "id", "uname", "basename", "dirname", "seq",
            "sleep", "nproc", "arch", "uptime", "exit", "break", "continue", "tr", "groups", "tty",
        ],
        ..PLAIN
    },
    Listed {
        names: &[
            "cat", "head", "tail", "nl", "tac", "rev", "cut", "paste", "fold", "expand", "column", "cmp",
            "comm", "stat", "readlink", "realpath", "od", "hexdump",
        ],
        operands: Operands::Files,
        ..PLAIN
    },
    Listed { names: &["wc"], operands: Operands::Files, long: &["files0-from"], ..PLAIN },
    Listed {
        names: &["md5sum", "sha1sum", "sha256sum", "sha512sum", "cksum"],
        operands: Operands::Files,
        letters: "c",
        long: &["check"],
        ..PLAIN
    },
    // `@file` holds further words.
    Listed { names: &["strings"], operands: Operands::Files, refuses: Refused::Patterns, ..PLAIN },
    Listed {
        names: &["ls"],
        operands: Operands::Files,
        letters: "L",
        long: &["dereference"],
        reads_directory: true,
        ..PLAIN
    },
    Listed { names: &["df"], operands: Operands::Files, reads_directory: true, ..PLAIN },
    Listed {
        names: &["du"],
        operands: Operands::Files,
        letters: "L",
        long: &["dereference", "files0-from"],
        reads_directory: true,
        ..PLAIN
    },
    Listed {
        names: &["diff"],
        operands: Operands::Files,
        letters: "lr",
        long: &["paginate", "recursive"],
        refuses: Refused::Directories,
        ..PLAIN
    },
    Listed {
        names: &["file"],
        operands: Operands::Files,
        letters: "CzZfm",
        long: &["compile", "uncompress", "uncompress-noreport", "files-from", "magic-file"],
        ..PLAIN
    },
    Listed {
        names: &["sort"],
        operands: Operands::Files,
        letters: "oT",
        long: &["output", "compress-program", "temporary-directory", "files0-from"],
        ..PLAIN
    },
    // A second operand is written to.
    Listed {
        names: &["uniq"],
        operands: Operands::Files,
        most_operands: 1,
        refuses: Refused::Patterns,
        ..PLAIN
    },
    Listed {
        names: &["tree"],
        operands: Operands::Files,
        letters: "oRl",
        long: &["output"],
        reads_directory: true,
        ..PLAIN
    },
    Listed {
        names: &["grep", "egrep", "fgrep"],
        operands: Operands::PatternThenFiles,
        letters: "R",
        long: &["dereference-recursive"],
        reads_directory: true,
        ..PLAIN
    },
    Listed {
        names: &["rg"],
        operands: Operands::PatternThenFiles,
        letters: "zL",
        long: &["pre", "pre-glob", "hostname-bin", "search-zip", "follow"],
        reads_directory: true,
        ..PLAIN
    },
];

fn listed(spec: &Listed, words: &[Word], run: &Run) -> Option<Vec<PathBuf>> {
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
    let refused = match spec.refuses {
        Refused::None => false,
        Refused::Directories => files.iter().any(|file| file.is_dir()),
        Refused::Patterns => operands.iter().any(|word| match word {
            Word::Literal(text) => text.starts_with('@'),
            _ => true,
        }),
    };
    if refused {
        return None;
    }
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

fn files(operands: &[&Word], run: &Run) -> Option<Vec<PathBuf>> {
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
fn option_files(options: &[&str], run: &Run) -> Option<Vec<PathBuf>> {
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

fn located(text: &str, run: &Run) -> Option<Vec<PathBuf>> {
    let path = Path::new(text);
    if path.is_absolute() {
        return Some(vec![path.to_owned()]);
    }
    Some(run.directories.as_ref()?.iter().map(|directory| directory.join(path)).collect())
}

fn change_directory(words: &[Word], run: &Run) -> Option<Vec<PathBuf>> {
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

fn find(words: &[Word], run: &Run) -> Option<Vec<PathBuf>> {
    const OFF: [&str; 8] = ["-exec", "-ok", "-delete", "-fprint", "-fls", "-files0", "-L", "-follow"];
    // The options that may stand first without a path before them. Any other option there is followed by paths.
    const FIRST: [&str; 12] = [
        "-name",
        "-iname",
        "-type",
        "-path",
        "-ipath",
        "-regex",
        "-maxdepth",
        "-mindepth",
        "-size",
        "-mtime",
        "-mmin",
        "-empty",
    ];
    let literal: Vec<&str> = words.iter().map(Word::literal).collect::<Option<_>>()?;
    if literal.iter().any(|word| OFF.iter().any(|off| word.starts_with(off))) {
        return None;
    }
    let rest = literal.iter().position(|word| !matches!(*word, "-H" | "-P")).unwrap_or(literal.len());
    let rest = &literal[rest..];
    if rest.first().is_some_and(|word| word.starts_with('-') && !FIRST.contains(word)) {
        return None;
    }
    let mut files = run.directories.clone()?;
    for start in rest.iter().take_while(|word| !word.starts_with(['-', '(', '!', ')', ','])) {
        files.extend(located(start, run)?);
    }
    Some(files)
}

/// The reading sub-commands of git. Options that name a program, a file to write or another repository take
/// them off the list.
fn git(words: &[Word], run: &Run) -> Option<Vec<PathBuf>> {
    let mut words = words;
    while let Some((Word::Literal(first), rest)) = words.split_first() {
        match first.as_str() {
            "--no-pager" | "--no-optional-locks" | "--literal-pathspecs" => words = rest,
            _ => break,
        }
    }
    let (command, rest) = words.split_first()?;
    let arguments = Arguments::of(rest)?;
    let long = [
        "output",
        "output-directory",
        "ext-diff",
        "textconv",
        "no-index",
        "exec",
        "upload-pack",
        "receive-pack",
        "open-files-in-pager",
        "filters",
        "batch",
        "batch-check",
        "batch-command",
        "contents",
        "edit",
        "git-dir",
        "work-tree",
        "show-signature",
        "stdin",
        "help",
    ];
    // `--output-indicator-new` and the like are harmless, but rare: they ask.
    let letters =
        if matches!(command.literal()?, "diff" | "log" | "show" | "blame" | "ls-files") { "O" } else { "" };
    if arguments.options.iter().any(|option| takes_off(option, letters, &long)) {
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
