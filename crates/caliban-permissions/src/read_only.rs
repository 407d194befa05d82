//! The commands that are known to read only, with the files that they would read.
//!
//! A command is listed here with the options that make it write or run something; those take it off the
//! list. Abbreviated long options count as their longest form.

use std::path::{Path, PathBuf};

use globset::GlobBuilder;

use crate::shell::{
    Run,
    word::{Word, declared_name},
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
        "printf" => words.first()?.literal().filter(|format| !format.starts_with('-')).map(|_| Vec::new()),
        name => {
            let spec = LISTED.iter().find(|spec| spec.names.contains(&name))?;
            listed(spec, words, run)
        }
    }
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

struct Listed {
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

const PLAIN: Listed = Listed {
    names: &[],
    operands: Operands::Texts,
    letters: "",
    long: &[],
    most_operands: usize::MAX,
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
            "cat",
            "head",
            "tail",
            "wc",
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
            "strings",
            "md5sum",
            "sha1sum",
            "sha256sum",
            "sha512sum",
            "cksum",
        ],
        operands: Operands::Files,
        ..PLAIN
    },
    Listed { names: &["ls", "df"], operands: Operands::Files, reads_directory: true, ..PLAIN },
    Listed {
        names: &["du"],
        operands: Operands::Files,
        letters: "L",
        long: &["dereference"],
        reads_directory: true,
        ..PLAIN
    },
    Listed {
        names: &["diff"],
        operands: Operands::Files, // Recursion follows links.
        letters: "lr",
        long: &["paginate", "recursive"],
        ..PLAIN
    },
    Listed {
        names: &["file"],
        operands: Operands::Files,
        letters: "CzZ",
        long: &["compile", "uncompress", "uncompress-noreport"],
        ..PLAIN
    },
    Listed {
        names: &["sort"],
        operands: Operands::Files,
        letters: "oT",
        long: &["output", "compress-program", "temporary-directory"],
        ..PLAIN
    },
    Listed { names: &["uniq"], operands: Operands::Files, most_operands: 1, ..PLAIN },
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
        if !given {
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

struct Arguments<'a> {
    options: Vec<&'a str>,
    operands: Vec<&'a Word>,
}

impl<'a> Arguments<'a> {
    /// Nothing when some word is computed: it may be an option.
    fn of(words: &'a [Word]) -> Option<Self> {
        let mut arguments = Self { options: Vec::new(), operands: Vec::new() };
        let mut only_operands = false;
        for word in words {
            match word {
                Word::Computed(_) => return None,
                Word::Glob(_) => arguments.operands.push(word),
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

/// `--file=/x` and `-f/x` name files too.
fn option_files(options: &[&str], run: &Run) -> Option<Vec<PathBuf>> {
    let mut files = Vec::new();
    for option in options {
        let value = match option.strip_prefix("--") {
            Some(long) => long.split_once('=').map(|(_, value)| value),
            None => option.get(2..),
        };
        if let Some(value) = value.filter(|value| value.contains('/') || value.contains("..")) {
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

/// The files that a pattern stands for now; nothing when there are too many.
pub(crate) fn expand(directory: &Path, pattern: &str) -> Option<Vec<PathBuf>> {
    const MOST: usize = 2_000;
    let mut found = vec![if pattern.starts_with('/') { PathBuf::from("/") } else { directory.to_owned() }];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        if !part.contains(['*', '?', '[']) {
            let plain: String = part.chars().filter(|&c| c != '\\').collect();
            found.iter_mut().for_each(|path| path.push(&plain));
            continue;
        }
        let matcher = GlobBuilder::new(part).backslash_escape(true).build().ok()?.compile_matcher();
        let mut next = Vec::new();
        for path in found {
            for entry in path.read_dir().into_iter().flatten().flatten() {
                if matcher.is_match(entry.file_name()) {
                    // It would be taken for an option.
                    if entry.file_name().as_encoded_bytes().starts_with(b"-") {
                        return None;
                    }
                    next.push(entry.path());
                }
                if next.len() > MOST {
                    return None;
                }
            }
        }
        found = next;
    }
    Some(found)
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
    const OFF: [&str; 12] = [
        "-exec",
        "-execdir",
        "-ok",
        "-okdir",
        "-delete",
        "-fprint",
        "-fprint0",
        "-fprintf",
        "-fls",
        "-files0-from",
        "-L",
        "-follow",
    ];
    let literal: Vec<&str> = words.iter().map(Word::literal).collect::<Option<_>>()?;
    if literal.iter().any(|word| OFF.contains(word)) {
        return None;
    }
    let starts = literal
        .iter()
        .skip_while(|word| matches!(**word, "-H" | "-P"))
        .take_while(|word| !word.starts_with(['-', '(', '!', ')', ',']));
    let mut files = run.directories.clone()?;
    for start in starts {
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
        | "show-ref" | "count-objects" | "check-ignore" | "version" => true,
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
