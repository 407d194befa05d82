//! Files that a rule keeps from being read, where a command may get at them: its words name them, may name them,
//! or name a tree that holds them.
//!
//! Best effort: only a sandbox can bound what a program does with its other words.

use std::path::{Path, PathBuf};

use crate::{
    command::CommandLine,
    git,
    glob::expand,
    path::{normalise, resolve},
    policy::{Effect, SourcedRule, by_rule},
    read_only,
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
    pub(crate) fn mentioned(&self, run: &ParsedCommand, add: &mut impl FnMut(Verdict)) {
        let effects = [Effect::Deny, Effect::Ask].into_iter().flat_map(|effect| self.judge.rules(effect));
        let (reads, edits): (Vec<_>, Vec<_>) = effects
            .filter(|rule| matches!(rule.rule.covers, Covers::Read(_) | Covers::Edit(_)))
            .partition(|rule| matches!(rule.rule.covers, Covers::Read(_)));
        if reads.is_empty() && edits.is_empty() {
            return;
        }
        let spoken = self.spoken_of(run);
        let matches = |rule: &SourcedRule| spoken.iter().any(|path| self.judge.matches(&rule.rule, path));
        if read_only::reads(run).is_none() {
            for rule in edits.iter().filter(|rule| speaks_of(rule, run) || matches(rule)) {
                let why = format!("it may change what {} ({}) protects", rule.rule, rule.source);
                add(Verdict::ask(why, Vec::new()));
            }
        }
        for rule in reads.iter().filter(|rule| matches(rule)) {
            add(by_rule(rule));
        }
        if let Some(first) = reads.first() {
            self.computed(run, &reads, first, add);
            let held = |path: &Path| reads.iter().copied().find(|rule| self.judge.matches(&rule.rule, path));
            for (tree, hidden) in trees(run) {
                if let Some(verdict) = self.tree(&tree, hidden, &held, first) {
                    add(verdict);
                }
            }
        }
    }

    /// What rules about files say about a command of git that shows content. Git keeps it in objects, which no mask covers.
    pub(crate) fn shown_by_git(&self, run: &ParsedCommand) -> Option<Verdict> {
        let shown = git::shown(run)?;
        let rules: Vec<_> = [Effect::Deny, Effect::Ask]
            .into_iter()
            .flat_map(|effect| self.judge.rules(effect))
            .filter(|rule| matches!(rule.rule.covers, Covers::Read(_)))
            .collect();
        let first = *rules.first()?;
        let held = |path: &Path| rules.iter().copied().find(|rule| self.judge.matches(&rule.rule, path));
        let covers = |path: &Path| self.tree(path, Hidden::Too, &held, first).is_some();
        shown.may_hold(&|path| held(path).is_some(), &covers).then(|| {
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
        add: &mut impl FnMut(Verdict),
    ) {
        let mut unknown = false;
        for word in run.words.iter().skip(1) {
            let text = match word {
                Word::Computed(text) => text,
                // Nobody knows from where it is taken.
                Word::Literal(text) if run.directories.is_none() && !text.starts_with('/') => {
                    if let Some(rule) = rules.iter().find(|rule| stands_in(rule, text)) {
                        add(by_rule(rule));
                    }
                    continue;
                }
                Word::Glob(pattern) => {
                    unknown |= run.directories.is_none();
                    unknown |= places(run, self.root()).iter().any(|place| expand(place, pattern).is_none());
                    continue;
                }
                Word::Literal(_) => continue,
            };
            match rules.iter().find(|rule| stands_in(rule, text)) {
                Some(rule) => add(by_rule(rule)),
                None => unknown = true,
            }
        }
        if unknown && name(run).is_some_and(|name| READERS.contains(&name)) {
            let why = format!(
                "what it reads is known only when it runs, and {} ({}) forbids some",
                first.rule, first.source
            );
            add(Verdict::ask(why, Vec::new()));
        }
    }

    /// Nothing when no rule is about anything in the tree.
    fn tree<'r>(
        &self,
        tree: &Path,
        hidden: Hidden,
        held: &impl Fn(&Path) -> Option<&'r SourcedRule>,
        first: &SourcedRule,
    ) -> Option<Verdict> {
        /// How many names are looked at. A tree with more names counts as holding the file.
        const MOST: usize = 100_000;
        let mut seen = 0;
        let mut open = vec![resolve(tree)?];
        while let Some(directory) = open.pop() {
            for entry in directory.read_dir().into_iter().flatten().flatten() {
                seen += 1;
                if seen > MOST {
                    let why = format!(
                        "it reads more than {MOST} files, and {} ({}) forbids some",
                        first.rule, first.source
                    );
                    return Some(Verdict::ask(why, Vec::new()));
                }
                let name = entry.file_name();
                let skipped = hidden == Hidden::Skipped && name.as_encoded_bytes().starts_with(b".");
                if skipped || name == ".git" {
                    continue;
                }
                let path = entry.path();
                if let Some(rule) = held(&path) {
                    let why = format!(
                        "it reads all of {}, and with it {}, which {} ({}) is about",
                        tree.display(),
                        path.display(),
                        rule.rule,
                        rule.source
                    );
                    return Some(Verdict::ask(why, Vec::new()));
                }
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    open.push(path);
                }
            }
        }
        None
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
        named.iter().flat_map(|path| [Some(normalise(path)), resolve(path)]).flatten().collect()
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
    let given = letter("ef") || long(&["--regexp", "--file"]);
    let operands =
        run.words.iter().skip(1).filter(|word| word.literal().is_none_or(|text| !text.starts_with('-')));
    let operands: Vec<&Word> = operands.skip(usize::from(searches && !given)).collect();
    let mut trees = Vec::new();
    for directory in run.directories.iter().flatten() {
        let mut named = Vec::new();
        for operand in &operands {
            match operand {
                Word::Literal(text) => named.push(directory.join(text)),
                Word::Glob(pattern) => named.extend(expand(directory, pattern).into_iter().flatten()),
                Word::Computed(_) => {}
            }
        }
        let there: Vec<PathBuf> = named.into_iter().filter(|path| path.exists()).collect();
        if there.is_empty() && searches {
            trees.push(directory.clone());
        }
        trees.extend(there.into_iter().filter(|path| path.is_dir()));
    }
    trees.into_iter().map(|tree| (tree, hidden)).collect()
}
