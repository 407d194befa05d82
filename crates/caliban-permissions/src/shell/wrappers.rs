//! Commands that run other commands: which ones, and what they run.
//!
//! An option that is not known here makes the inner command unknown; nothing is guessed.

use super::{WrapperTrust, dialect::Dialect, word::Word};

/// What a wrapper would run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What {
    Words(Vec<Word>),
    /// A line for a shell.
    Line(String),
    Unknown(&'static str),
}

/// A wrapper taken off.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrapped {
    pub(super) trust: WrapperTrust,
    pub(super) runs: Vec<What>,
    /// Variables that it sets or takes away.
    pub(super) assigned: Vec<String>,
    /// Who reads the line in it, where that is another shell.
    pub(super) dialect: Option<Dialect>,
}

impl Wrapped {
    fn new(trust: WrapperTrust, runs: Vec<What>) -> Self {
        Self { trust, runs, assigned: Vec::new(), dialect: None }
    }
}

const UNKNOWN_OPTION: &str = "a wrapper with an option that is not known";
const COMPUTED: &str = "what a wrapper runs is known only when it runs";

pub(super) fn unwrap(words: &[Word]) -> Option<Wrapped> {
    let name = words[0].literal()?;
    let base = name.rsplit('/').next().unwrap_or(name);
    // Only a bare name is surely the program that is meant.
    let known = if base == name { WrapperTrust::Transparent } else { WrapperTrust::Opaque };
    let rest = &words[1..];
    let wrapped = |trust, runs| Some(Wrapped::new(trust, runs));
    let transparent =
        |flags: &[&str], valued: &[&str], skip| wrapped(known, after_options(rest, flags, valued, skip));
    match base {
        "env" => Some(env(rest, known)),
        "command" => match rest.first().and_then(Word::literal) {
            Some("-v" | "-V") | None if rest.first().is_none_or(|word| word.literal().is_some()) => None,
            _ => transparent(&["-p"], &[], 0),
        },
        "builtin" | "nohup" => transparent(&[], &[], 0),
        "time" => transparent(&["-p", "-v", "--verbose"], &[], 0),
        "nice" => transparent(&[], &["-n", "--adjustment"], 0),
        "ionice" => transparent(&["-t"], &["-c", "-n"], 0),
        "stdbuf" => transparent(&[], &["-i", "-o", "-e", "--input", "--output", "--error"], 0),
        "timeout" => {
            let flags = ["-v", "-f", "-p", "--foreground", "--preserve-status", "--verbose"];
            transparent(&flags, &["-k", "-s", "--kill-after", "--signal"], 1)
        }
        "xargs" => {
            let flags = ["-0", "-r", "-t", "-x", "--null", "--no-run-if-empty", "--verbose", "--exit"];
            let valued = [
                "-n",
                "-P",
                REPLACED,
                "-L",
                "-d",
                "-s",
                "--max-args",
                "--max-procs",
                "--delimiter",
                "--max-lines",
            ];
            let mut runs = after_options(rest, &flags, &valued, 0);
            for run in &mut runs {
                if let What::Words(words) = run {
                    let own = &rest[..rest.len() - words.len()];
                    words.iter_mut().for_each(|word| put_in(word, own));
                    words.push(Word::Computed("…".to_owned()));
                }
            }
            wrapped(known, runs)
        }
        name if RUNNERS.contains(&name) || name.starts_with("ld-linux") || name.starts_with("ld-musl") => {
            wrapped(WrapperTrust::Opaque, somewhere_in(rest))
        }
        "eval" | "trap" => wrapped(WrapperTrust::Opaque, joined(rest)),
        "alias" | "shopt" | "enable" | "hash" | "bind" | "complete" => {
            wrapped(WrapperTrust::Opaque, vec![What::Unknown("what it changes decides what later names run")])
        }
        "source" | "." => {
            wrapped(WrapperTrust::Opaque, vec![What::Unknown("a script that is read when it runs")])
        }
        "bash" => shell(rest, known, Dialect::Bash),
        "sh" | "dash" | "ash" => shell(rest, known, Dialect::Posix),
        // They read too much otherwise.
        name if SHELLS.contains(&name) => shell(rest, WrapperTrust::Opaque, Dialect::Bash),
        "find" | "fd" | "fdfind" => find(rest),
        _ => None,
    }
}

/// By their names alone; each may be given a line or a script.
pub(crate) const SHELLS: &[&str] =
    &["bash", "sh", "dash", "ash", "rbash", "zsh", "ksh", "mksh", "yash", "fish", "csh", "tcsh"];

/// Programs that run what stands somewhere behind their name, and add something to it.
const RUNNERS: &[&str] = &[
    "sudo",
    "doas",
    "su",
    "runuser",
    "pkexec",
    "exec",
    "setsid",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "strace",
    "ltrace",
    "valgrind",
    "perf",
    "watch",
    "entr",
    "parallel",
    "busybox",
    "toybox",
    "caffeinate",
    "script",
    "rtk",
    "proxychains",
    "torsocks",
    "taskset",
    "prlimit",
    "setarch",
    "linux32",
    "linux64",
    "i386",
    "x86_64",
    "choom",
    "numactl",
    "ld.so",
    "chrt",
    "systemd-run",
    "bwrap",
    "firejail",
    "fakeroot",
    "unbuffer",
    "xvfb-run",
    "dbus-run-session",
    "tmux",
    "screen",
    "direnv",
    "nix-shell",
];

/// The option of `xargs` that names what is replaced, wherever it stands in the words that follow.
const REPLACED: &str = "-I";

/// A word of the command that `xargs` runs: computed when its input is put there.
fn put_in(word: &mut Word, own: &[Word]) {
    let own: Vec<&str> = own.iter().filter_map(Word::literal).collect();
    let behind = own.windows(2).filter(|pair| pair[0] == REPLACED).map(|pair| pair[1]);
    let joined =
        own.iter().filter_map(|option| option.strip_prefix(REPLACED)).filter(|text| !text.is_empty());
    let mut replaced = behind.chain(joined).peekable();
    let written = match word {
        Word::Literal(text) if !replaced.any(|what| text.contains(what)) => return,
        // A pattern may become a word that holds it.
        Word::Glob(_) if replaced.peek().is_none() => return,
        Word::Literal(text) | Word::Glob(text) | Word::Computed(text) => std::mem::take(text),
    };
    *word = Word::Computed(written);
}

/// The words behind a wrapper's own options and `skip` operands.
fn after_options(words: &[Word], flags: &[&str], valued: &[&str], skip: usize) -> Vec<What> {
    let mut rest = words;
    loop {
        let Some((first, tail)) = rest.split_first() else { return Vec::new() };
        let Some(text) = first.literal() else { return vec![What::Unknown(COMPUTED)] };
        if text == "--" {
            rest = tail;
            break;
        }
        if !text.starts_with('-') || text == "-" {
            break;
        }
        let (option, value) =
            text.split_once('=').map_or((text, None), |(option, value)| (option, Some(value)));
        let joined =
            !text.starts_with("--") && text.len() > 2 && valued.contains(&text.get(..2).unwrap_or(text));
        rest = if flags.contains(&text) || joined || (value.is_some() && valued.contains(&option)) {
            tail
        } else if valued.contains(&text) {
            match tail.split_first() {
                Some((value, tail)) if value.literal().is_some() => tail,
                _ => return vec![What::Unknown(COMPUTED)],
            }
        } else {
            return vec![What::Unknown(UNKNOWN_OPTION)];
        };
    }
    for _ in 0..skip {
        match rest.split_first() {
            Some((operand, tail)) if operand.literal().is_some() => rest = tail,
            Some(_) => return vec![What::Unknown(COMPUTED)],
            None => return Vec::new(),
        }
    }
    if rest.is_empty() { Vec::new() } else { vec![What::Words(rest.to_vec())] }
}

fn env(words: &[Word], trust: WrapperTrust) -> Wrapped {
    let mut assigned = Vec::new();
    let mut cleared = None;
    let mut rest = words;
    let runs = loop {
        let Some((first, tail)) = rest.split_first() else { break Vec::new() };
        let Some(text) = first.literal() else { break vec![What::Unknown(COMPUTED)] };
        match text {
            "-i" | "-" | "--ignore-environment" => {
                cleared = Some(What::Unknown("an empty environment has nothing that holds programs back"));
                rest = tail;
            }
            "-u" | "--unset" => match tail.split_first() {
                Some((Word::Literal(name), tail)) => {
                    assigned.push(name.clone());
                    rest = tail;
                }
                _ => break vec![What::Unknown(COMPUTED)],
            },
            _ if text.starts_with('-') => break vec![What::Unknown(UNKNOWN_OPTION)],
            _ => match text.split_once('=') {
                Some((name, _)) => {
                    assigned.push(name.to_owned());
                    rest = tail;
                }
                None => break vec![What::Words(rest.to_vec())],
            },
        }
    };
    Wrapped { trust, runs: runs.into_iter().chain(cleared).collect(), assigned, dialect: None }
}

/// For deny rules: the command may begin at any of the words, or be one of them (`watch 'make test'`).
fn somewhere_in(words: &[Word]) -> Vec<What> {
    /// A wrapper of a wrapper repeats this; few are needed.
    const MOST: usize = 6;
    let mut starts =
        (0..words.len()).filter(|&at| words[at].literal().is_none_or(|text| !text.starts_with('-')));
    let mut runs: Vec<What> =
        starts.by_ref().take(MOST).map(|at| What::Words(words[at..].to_vec())).collect();
    if starts.next().is_some() {
        runs.push(What::Unknown("a wrapper with many words"));
    }
    let lines = words.iter().filter_map(Word::literal).filter(|text| text.contains(char::is_whitespace));
    runs.extend(lines.map(|line| What::Line(line.to_owned())));
    runs
}

fn joined(words: &[Word]) -> Vec<What> {
    match words.iter().map(Word::literal).collect::<Option<Vec<_>>>() {
        Some(texts) if !texts.is_empty() => vec![What::Line(texts.join(" "))],
        Some(_) => Vec::new(),
        None => vec![What::Unknown(COMPUTED)],
    }
}

fn shell(words: &[Word], trust: WrapperTrust, dialect: Dialect) -> Option<Wrapped> {
    let wrapped = |trust, runs| Some(Wrapped { trust, runs, assigned: Vec::new(), dialect: Some(dialect) });
    let Some(first) = words.first() else {
        return wrapped(WrapperTrust::Opaque, vec![What::Unknown("a shell that reads its commands")]);
    };
    match (first.literal(), words.get(1)) {
        (Some("--version"), None) => None,
        // Options go on behind it.
        (Some(first), Some(Word::Literal(line)))
            if first.starts_with('-') && line.starts_with(['-', '+']) =>
        {
            wrapped(WrapperTrust::Opaque, vec![What::Unknown(UNKNOWN_OPTION)])
        }
        (Some("-c" | "-ec" | "-ce" | "-xc" | "-euc" | "-lc"), Some(line)) => match line.literal() {
            // A login shell reads start files, and further words become `$0`, `$1` … of the line.
            Some(line) if words.len() == 2 && first.literal() != Some("-lc") => {
                wrapped(trust, vec![What::Line(line.to_owned())])
            }
            Some(line) => wrapped(WrapperTrust::Opaque, vec![What::Line(line.to_owned())]),
            None => wrapped(WrapperTrust::Opaque, vec![What::Unknown(COMPUTED)]),
        },
        (Some(script), _) if !script.starts_with('-') => None,
        _ => wrapped(WrapperTrust::Opaque, vec![What::Unknown(UNKNOWN_OPTION)]),
    }
}

fn find(words: &[Word]) -> Option<Wrapped> {
    const RUNNERS: [&str; 8] = ["-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"];
    let mut runs = Vec::new();
    for (at, word) in words.iter().enumerate() {
        if word.literal().is_some_and(|text| RUNNERS.contains(&text)) {
            let tail = &words[at + 1..];
            let end =
                tail.iter().position(|word| matches!(word.literal(), Some(";" | "+"))).unwrap_or(tail.len());
            let inner: Vec<Word> = tail[..end]
                .iter()
                .map(|word| match word {
                    Word::Literal(text) if text.contains("{}") => Word::Computed(text.clone()),
                    other => other.clone(),
                })
                .collect();
            runs.push(if inner.is_empty() { What::Unknown(COMPUTED) } else { What::Words(inner) });
        }
    }
    // `find` itself is never transparent: where it looks must be judged as well.
    (!runs.is_empty()).then(|| Wrapped::new(WrapperTrust::Opaque, runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn literal(text: &str) -> Word {
        Word::Literal(text.to_owned())
    }

    /// `$x` is computed, `*.rs` a pattern.
    fn words(line: &str) -> Vec<Word> {
        let word = |text: &str| match text {
            _ if text.contains('$') => Word::Computed(text.to_owned()),
            _ if text.contains('*') => Word::Glob(text.to_owned()),
            _ => literal(text),
        };
        line.split(' ').map(word).collect()
    }

    fn runs(line: &str) -> Option<(WrapperTrust, Vec<What>)> {
        unwrap(&words(line)).map(|wrapped| (wrapped.trust, wrapped.runs))
    }

    #[test]
    fn a_wrapper_runs_what_stands_behind_its_options() {
        for line in [
            "builtin",
            "command -p",
            "nohup",
            "time -p",
            "nice -n 5",
            "ionice -c 2 -t",
            "stdbuf -oL --error=0",
            "timeout -k 3 5",
            "env A=1 -u B",
        ] {
            let expected = (WrapperTrust::Transparent, vec![What::Words(words("ls -l"))]);
            assert_eq!(runs(&format!("{line} ls -l")), Some(expected), "{line}");
        }
        for line in
            ["command -v git", "command -V git", "command", "bash --version", "bash script.sh", "ls -l"]
        {
            assert_eq!(runs(line), None, "{line}");
        }
        let line = || What::Line("ls".to_owned());
        assert_eq!(runs("bash -c ls"), Some((WrapperTrust::Transparent, vec![line()])));
        for shell in ["zsh", "fish", "/bin/bash"] {
            assert_eq!(
                runs(&format!("{shell} -c ls")),
                Some((WrapperTrust::Opaque, vec![line()])),
                "{shell}"
            );
        }
        assert_eq!(runs("eval ls"), Some((WrapperTrust::Opaque, vec![line()])));
        assert_eq!(unwrap(&[literal("eval")]).map(|wrapped| wrapped.runs), Some(Vec::new()));
    }

    #[test]
    fn what_is_computed_or_not_known_is_not_guessed() {
        for line in [
            "command $x",
            "nice -n $x ls",
            "timeout $x ls",
            "timeout -- $x ls",
            "env $x",
            "bash -c $x",
            "eval $x",
        ] {
            assert_eq!(runs(line).map(|found| found.1), Some(vec![What::Unknown(COMPUTED)]), "{line}");
        }
        for line in ["bash -x", "nice --odd ls", "env --odd ls"] {
            assert_eq!(runs(line).map(|found| found.1), Some(vec![What::Unknown(UNKNOWN_OPTION)]), "{line}");
        }
        let cleared = runs("env -i ls").unwrap().1;
        assert!(matches!(&cleared[..], [What::Words(_), What::Unknown(_)]), "{cleared:?}");
    }

    #[test]
    fn what_is_put_into_a_command_is_computed() {
        let inner = |line: &str| match runs(line).unwrap().1.remove(0) {
            What::Words(words) => words,
            other => panic!("{other:?}"),
        };
        let added = |mut all: Vec<Word>| {
            all.push(Word::Computed("…".to_owned()));
            all
        };
        let computed = |text: &str| Word::Computed(text.to_owned());
        assert_eq!(inner("xargs echo X *.rs"), added(words("echo X *.rs")));
        for option in ["-I X", "-IX"] {
            let put = vec![literal("echo"), computed("aX"), literal("b"), computed("*.rs")];
            assert_eq!(inner(&format!("xargs {option} echo aX b *.rs")), added(put), "{option}");
        }
        assert_eq!(inner("find . -exec echo a{} b ;"), [literal("echo"), computed("a{}"), literal("b")]);
    }
}
