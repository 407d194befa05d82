//! Files that a rule keeps from being read, where a command may get at them: its words name them, may name them,
//! or name a tree that holds them.
//!
//! Best effort: only a sandbox can bound what a program does with its other words.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use caliban_rooted::Root;

use crate::{
    command::CommandLine,
    fenced::{Deeper, MOST, walk},
    git,
    glob::expand,
    path::{as_given_and_real, resolve},
    policy::{SourcedRule, by_rule},
    read_only::{self, Operands},
    rule::Covers,
    shell::{ParsedCommand, word::Word},
    verdict::Verdict,
};

/// Programs that show or copy the files that they are given.
const READERS: &[&str] = &[
    "cat", "bat", "head", "tail", "less", "more", "nl", "tac", "rev", "cut", "paste", "fold", "expand",
    "column", "cmp", "comm", "diff", "od", "hexdump", "xxd", "strings", "base64", "base32", "sort", "uniq",
    "grep", "egrep", "fgrep", "rg", "ag", "ack", "sed", "awk", "gawk", "mawk", "jq", "yq", "cp", "mv", "ln",
    "install", "dd", "tar", "zip", "7z", "gzip", "bzip2", "xz", "zstd", "rsync", "scp", "curl", "wget", "nc",
    "tee", "source", ".", "openssl", "gpg", "pr", "fmt", "shuf", "split", "csplit", "iconv", "dos2unix",
    "view", "vim", "vi",
];

impl CommandLine<'_> {
    /// What rules about files say about the words of a command.
    pub(crate) fn mentioned(&self, run: &ParsedCommand) -> Vec<Verdict> {
        let (reads, edits) =
            (self.judge.about_files(Covers::is_read), self.judge.about_files(Covers::is_edit));
        if reads.is_empty() && edits.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        let spoken = self.spoken_of(run);
        let matches = |rule: &SourcedRule| spoken.iter().any(|path| self.judge.matches(&rule.rule, path));
        if !read_only::reads(run).is_some_and(|reading| reading.is_sure) {
            for rule in edits.iter().filter(|rule| speaks_of(rule, run) || matches(rule)) {
                let why = format!("it may change what {} ({}) protects", rule.rule, rule.source);
                found.push(Verdict::ask(why, Vec::new()));
            }
        }
        found.extend(reads.iter().filter(|rule| matches(rule)).map(|rule| by_rule(rule)));
        if let Some(first) = reads.first() {
            self.computed(run, &reads, first, &mut found);
            found.extend(trees(run).iter().filter_map(|(tree, hidden)| self.tree(tree, *hidden, &reads)));
        }
        found
    }

    /// What rules about files say about a command of git that shows content. Git keeps it in objects, which no mask covers.
    pub(crate) fn shown_by_git(&self, run: &ParsedCommand) -> Option<Verdict> {
        let shown = git::shown(run)?;
        let rules = self.judge.about_files(Covers::is_read);
        let first = rules.first()?;
        let about = |path: &Path| rules.iter().any(|rule| self.judge.matches(&rule.rule, path));
        let covers = |path: &Path| self.tree(path, Hidden::Too, &rules).is_some();
        shown.may_hold(&about, &covers).then(|| {
            let why = format!(
                "git may show what {} ({}) is about (better: name the paths that are wanted behind `--`)",
                first.rule, first.source
            );
            Verdict::ask(why, Vec::new())
        })
    }

    /// Words that are known only when the shell has computed them.
    fn computed(
        &self,
        run: &ParsedCommand,
        rules: &[&SourcedRule],
        first: &SourcedRule,
        found: &mut Vec<Verdict>,
    ) {
        let named = |text: &str| rules.iter().find(|rule| stands_in(rule, text)).map(|rule| by_rule(rule));
        let is_lost = run.directories.is_none();
        let mut unknown = false;
        for word in run.words.iter().skip(1) {
            match word {
                // Nobody knows from where it is taken.
                Word::Literal(text) if is_lost && !text.starts_with('/') => found.extend(named(text)),
                Word::Literal(_) => {}
                Word::Glob(pattern) => {
                    let mut places = places(run, self.root()).into_iter();
                    unknown |= is_lost || places.any(|place| expand(&place, pattern).is_none());
                }
                Word::Computed(text) => {
                    let named = named(text);
                    unknown |= named.is_none();
                    found.extend(named);
                }
            }
        }
        if unknown && name(run).is_some_and(|name| READERS.contains(&name)) {
            let why = format!(
                "what it reads is known only when it runs, and {} ({}) forbids some",
                first.rule, first.source
            );
            found.push(Verdict::ask(why, Vec::new()));
        }
    }

    /// Nothing when no rule is about anything in the tree.
    fn tree(&self, tree: &Path, hidden: Hidden, rules: &[&SourcedRule]) -> Option<Verdict> {
        let mut found = None;
        let start = Root::pin(&resolve(tree)?).ok()?;
        let walked = walk(&[Arc::new(start)], |at| {
            let path = at.path();
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            let is_skipped = name == b".git" || (hidden == Hidden::Skipped && name.starts_with(b"."));
            if is_skipped && !at.is_start() {
                return Deeper::No;
            }
            let Some(rule) = rules.iter().find(|rule| self.judge.matches(&rule.rule, &path)) else {
                return Deeper::Yes;
            };
            let (tree, path) = (tree.display(), path.display());
            let about = format!("{path}, which {} ({}) is about", rule.rule, rule.source);
            found = Some(format!("it reads all of {tree}, and with it {about}"));
            Deeper::Stop
        });
        let too_many = || {
            let first = rules.first()?;
            let why = format!("{} ({}) forbids some", first.rule, first.source);
            walked.is_err().then(|| format!("it reads more than {MOST} files, and {why}"))
        };
        found.or_else(too_many).map(|why| Verdict::ask(why, Vec::new()))
    }

    fn root(&self) -> &Path {
        &self.judge.policy.root
    }

    /// The files that the words of a command may name, as given and where they lead.
    fn spoken_of(&self, run: &ParsedCommand) -> Vec<PathBuf> {
        let git = name(run) == Some("git");
        let mut named = Vec::new();
        for directory in places(run, self.root()) {
            for word in run.words.iter().skip(1) {
                match word {
                    Word::Literal(text) => {
                        let option = text.get(2..).filter(|_| text.starts_with('-'));
                        let value = text.split_once('=').map(|(_, value)| value);
                        let values = [Some(text.as_str()), value, option];
                        for value in values.into_iter().flatten() {
                            named.push(directory.join(value));
                            named.extend(value.strip_prefix('@').map(|value| directory.join(value)));
                        }
                        // `HEAD:src/x` is taken from the top.
                        if let Some((_, path)) = text.split_once(':').filter(|_| git) {
                            named.extend([directory.join(path), self.root().join(path)]);
                        }
                    }
                    Word::Glob(pattern) => named.extend(expand(&directory, pattern).into_iter().flatten()),
                    Word::Computed(_) => {}
                }
            }
        }
        named.iter().flat_map(|path| as_given_and_real(path)).collect()
    }
}

/// Whether names with a dot in front are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hidden {
    Too,
    Skipped,
}

fn name(run: &ParsedCommand) -> Option<&str> {
    let name = run.words.first()?.literal()?;
    Some(name.rsplit('/').next().unwrap_or(name))
}

/// Whether a computed word names what a rule is about.
fn speaks_of(rule: &SourcedRule, run: &ParsedCommand) -> bool {
    run.words.iter().skip(1).any(|word| match word {
        Word::Computed(text) => stands_in(rule, text),
        Word::Literal(text) | Word::Glob(text) => run.directories.is_none() && stands_in(rule, text),
    })
}

fn stands_in(rule: &SourcedRule, text: &str) -> bool {
    matches!(&rule.rule.covers, Covers::Read(pattern) | Covers::Edit(pattern) if pattern.stands_in(text))
}

/// Where a command may run.
fn places(run: &ParsedCommand, root: &Path) -> Vec<PathBuf> {
    run.directories.clone().unwrap_or_else(|| vec![root.to_owned()])
}

/// The directories that a command reads with all that is in them.
fn trees(run: &ParsedCommand) -> Vec<(PathBuf, Hidden)> {
    let Some(name) = name(run) else { return Vec::new() };
    let literal: Vec<&str> = run.words.iter().skip(1).filter_map(Word::literal).collect();
    let letter = |letters: &str| {
        let short = literal.iter().filter(|word| word.starts_with('-') && !word.starts_with("--"));
        short.flat_map(|word| word.chars()).any(|c| letters.contains(c))
    };
    let long = |names: &[&str]| literal.iter().any(|word| names.iter().any(|name| word.starts_with(name)));
    let searches = matches!(name, "grep" | "egrep" | "fgrep" | "rg" | "ag" | "ack");
    let whole = match name {
        "grep" | "egrep" | "fgrep" => letter("rRd") || long(&["--rec", "--dereference", "--directories"]),
        "rg" | "ag" | "ack" | "tar" | "bsdtar" | "7z" | "rsync" => true,
        "zip" | "scp" | "diff" => letter("r") || long(&["--rec"]),
        "cp" => letter("rRa") || long(&["--rec", "--archive"]),
        _ => false,
    };
    if !whole {
        return Vec::new();
    }
    let hidden = match name {
        "rg" | "ag" if !letter("u.") && !long(&["--hidden", "--unrestricted"]) => Hidden::Skipped,
        _ => Hidden::Too,
    };
    let operands = if searches { Operands::PatternThenPlaces } else { Operands::Files };
    let mut trees = Vec::new();
    for directory in run.directories.iter().flatten() {
        let here = std::slice::from_ref(directory);
        let (mut there, _) = read_only::files(&read_only::named(name, operands, &run.words[1..]), here);
        there.retain(|path| path.exists());
        if there.is_empty() && searches {
            trees.push(directory.clone());
        }
        trees.extend(there.into_iter().filter(|path| path.is_dir()));
    }
    trees.into_iter().map(|tree| (tree, hidden)).collect()
}
