//! Rules that let commands run outside of the fence: each is about a program in a place.
//!
//! Such a rule holds in the one directory that it names, for the program and the script that its words name there. Elsewhere, with
//! variables that a line sets, and for what the agent may have written, a person is asked.

use std::{
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::{
    command::{CommandLine, allows, shown},
    path::{follow, normalise, resolve},
    policy::{Effect, FileAccess, Judge, SourcedRule, by_rule},
    rule::Covers,
    shell::{Analysis, ParsedCommand, word::Word, wrappers::SHELLS},
    verdict::Verdict,
};

/// Programs that run what they are given, besides shells: what they are given must be known.
const INTERPRETERS: &[&str] = &[
    "source", ".", "python", "pypy", "ipython", "perl", "ruby", "irb", "node", "deno", "bun", "tsx",
    "ts-node", "lua", "luajit", "php", "tclsh", "julia", "Rscript", "R", "pwsh", "awk", "gawk", "mawk",
    "nawk", "make", "gmake", "just", "expect", "gdb", "lldb", "java",
];

/// Commands that never run the files that they are given: an agent hands in nearly nothing but files that it has written. `git push`
/// is none of them, because of `--receive-pack`.
const TAKE_DATA: &[(&str, &[&str])] =
    &[("git", &["add", "commit", "mv", "restore", "rm", "tag"]), ("gh", &["issue", "pr", "release"])];

/// Programs whose `-m NAME` means `NAME.py` or the package `NAME`.
const PYTHONS: &[&str] = &["python", "pypy", "ipython"];

/// A file system notes times by a clock that may be so far behind, in milliseconds.
const COARSE_CLOCK_MS: u64 = 20;

impl<'a> Judge<'a> {
    /// Whether a command of the line is one that a rule lets run outside, here.
    pub(crate) fn leaves(&self, analysis: &Analysis) -> bool {
        analysis.all().flat_map(|part| &part.runs).any(|run| matches!(self.leaving(run), Some(Ok(_))))
    }

    /// The rule that lets this command run outside; in words why not, when one is about these words and not about this place.
    pub(crate) fn leaving(&self, run: &ParsedCommand) -> Option<Result<&'a SourcedRule, String>> {
        let mut elsewhere = None;
        for rule in self.rules(Effect::Allow) {
            let (Some(place), Covers::Command(pattern)) = (&rule.rule.outside, &rule.rule.covers) else {
                continue;
            };
            if !allows(pattern, run) {
                continue;
            }
            let place: PathBuf = self.top().join(place).components().collect();
            if is_in(run, &place) {
                return Some(Ok(rule));
            }
            elsewhere = Some(Err(format!(
                "runs {}, and {} holds only in {}",
                shown(&run.words),
                rule.rule,
                place.display()
            )));
        }
        elsewhere
    }

    /// The same rule about outside, for the directory in which this command runs.
    pub(crate) fn outside_here(&self, rule: &str, run: &ParsedCommand) -> Option<String> {
        let [directory] = run.directories.as_deref()? else { return None };
        let (top, directory) = (self.top(), resolve(directory)?);
        let place = directory.strip_prefix(&top).unwrap_or(&directory).to_str()?;
        let is_plain = !place.contains(char::is_control) && place == place.trim() && !place.ends_with(')');
        match place {
            "" => Some(format!("{rule} outside")),
            _ => is_plain.then(|| format!("{rule} outside in {place}")),
        }
    }

    /// The top of the work, without links.
    fn top(&self) -> PathBuf {
        let top = self.policy.worktree.as_ref().unwrap_or(&self.policy.root);
        resolve(top).unwrap_or_else(|| normalise(top))
    }

    /// Whether the agent may have made a file what it is since then: it has changed where the agent writes, or something on the way to
    /// it has.
    fn may_have_written(&self, path: &Path, since: Option<u64>) -> bool {
        let mut may = false;
        let has_changed =
            |place: &Path, since| changed_at(place).is_none_or(|at| at + COARSE_CLOCK_MS >= since);
        let real = follow(path, |place| {
            let is_below = |top: &PathBuf| place.starts_with(top) && place != top;
            may |= if self.policy.agents_places.iter().any(is_below) {
                true
            } else if self.writable.iter().any(is_below) {
                since.is_none_or(|since| has_changed(place, since))
            } else {
                since.is_some_and(|since| self.is_written_elsewhere(place) && has_changed(place, since))
            };
        });
        may || real.is_none()
    }

    /// Whether a command that runs now can change a file after it was judged: an interpreter reads its script while it goes.
    fn is_written_meanwhile(&self, path: &Path) -> bool {
        self.policy.is_written_meanwhile && self.may_have_written(path, None)
    }

    /// Whether it is a file that a file tool may write by a rule, or one in the worktree of another agent.
    fn is_written_elsewhere(&self, place: &Path) -> bool {
        let is_anothers = self.policy.root.join(".caliban");
        place.is_file()
            && (place.starts_with(is_anothers) || self.path("Write", FileAccess::Write, place).is_allowed())
    }
}

impl CommandLine<'_> {
    /// What a rule about outside says of a command in its place.
    pub(crate) fn by_outside_rule(&self, run: &ParsedCommand, rule: &SourcedRule) -> Verdict {
        if self.assigns {
            let why = format!(
                "runs {} with variables that the line sets, and {} is about the command without them",
                shown(&run.words),
                rule.rule
            );
            return Verdict::ask(why, Vec::new());
        }
        let since = rule.given_at.or(self.judge.policy.began_at);
        let own = |path: &Path| self.judge.may_have_written(path, since);
        let Some(scripts) = scripts(run) else {
            let why =
                format!("runs {}, and which file that is is known only when it runs", shown(&run.words));
            return Verdict::ask(why, Vec::new());
        };
        let mut files = program(run, &self.judge.policy.path);
        files.extend(scripts);
        if let Some(path) = files.iter().find(|path| own(path)) {
            return Verdict::ask(written_by_agent(run, path), Vec::new());
        }
        match files.iter().find(|path| self.judge.is_written_meanwhile(path)) {
            Some(path) => Verdict::ask(written_meanwhile(run, path), Vec::new()),
            None => by_rule(rule),
        }
    }

    /// Why a command beside one that runs outside must not go with it: the program that its name means may be the agent's.
    pub(crate) fn is_own_program(&self, run: &ParsedCommand) -> Option<String> {
        // A rule about the command itself knows better when it was given.
        if self.judge.leaving(run).is_some() {
            return None;
        }
        let policy = self.judge.policy;
        let own = |path: &&PathBuf| self.judge.may_have_written(path, policy.began_at);
        let meanwhile = |path: &&PathBuf| self.judge.is_written_meanwhile(path);
        let files = program(run, &policy.path);
        let is_own = files.iter().find(own).map(|path| written_by_agent(run, path));
        is_own.or_else(|| files.iter().find(meanwhile).map(|path| written_meanwhile(run, path)))
    }
}

fn written_meanwhile(run: &ParsedCommand, path: &Path) -> String {
    format!(
        "runs {} while another command of this conversation runs, which may change {}",
        shown(&run.words),
        path.display()
    )
}

fn written_by_agent(run: &ParsedCommand, path: &Path) -> String {
    format!("runs {}, and the agent may have written {}", shown(&run.words), path.display())
}

/// Whether a command surely runs in this directory, and not in one that a link has put in its place.
fn is_in(run: &ParsedCommand, place: &Path) -> bool {
    run.directories.as_deref().is_some_and(|directories| {
        !directories.is_empty()
            && directories.iter().all(|directory| resolve(directory).is_some_and(|real| real == place))
    })
}

/// The files that the name of a command means; none for one of the shell's own.
#[expect(
    clippy::disallowed_methods,
    reason = "a program that a rule names: looked up as the shell looks it up"
)]
fn program(run: &ParsedCommand, path: &[PathBuf]) -> Vec<PathBuf> {
    let directories = run.directories.as_deref().unwrap_or_default();
    let Some(name) = run.words[0].literal() else { return Vec::new() };
    if name.contains('/') {
        return directories.iter().map(|directory| directory.join(name)).collect();
    }
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let first =
        |directory: &PathBuf| path.iter().map(|place| directory.join(place).join(name)).find(is_program);
    directories.iter().filter_map(first).collect()
}

/// The files among the words of a command: whatever its program is, it may run them (`uv run x.py`, `sed -f x`). Nothing when the
/// program surely runs what it is given, and the words do not say what that is.
fn scripts(run: &ParsedCommand) -> Option<Vec<PathBuf>> {
    let is_one_of = |word: &str, names: &[&str]| {
        let base = word.rsplit('/').next().unwrap_or(word);
        let plain = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
        names.contains(&base) || names.contains(&plain)
    };
    let program = run.words[0].literal().unwrap_or_default();
    let verb = run.words.get(1).and_then(Word::literal).unwrap_or_default();
    if TAKE_DATA.iter().any(|(name, verbs)| *name == program && verbs.contains(&verb)) {
        return Some(Vec::new());
    }
    let words = run.words[1..].iter().map(Word::literal);
    let words: Vec<&str> = match is_one_of(program, SHELLS) || is_one_of(program, INTERPRETERS) {
        true => words.collect::<Option<_>>()?,
        false => words.flatten().collect(),
    };
    // `--require=./x.js`, `-fx.mk`
    let texts = words.iter().flat_map(|word| {
        let value = word.split_once('=').map(|(_, value)| value);
        let behind = word.strip_prefix('-').and_then(|rest| rest.get(1..));
        [Some(*word), value, behind].into_iter().flatten()
    });
    let mut names: Vec<String> = texts.map(str::to_owned).collect();
    if std::iter::once(&program).chain(&words).any(|word| is_one_of(word, PYTHONS)) {
        names.extend(words.windows(2).filter(|pair| pair[0].ends_with('m')).flat_map(|pair| module(pair[1])));
        names.extend(words.iter().filter_map(|word| word.strip_prefix("-m")).flat_map(module));
    }
    let directories = run.directories.as_deref().unwrap_or_default();
    let places = names.iter().flat_map(|name| directories.iter().map(move |directory| directory.join(name)));
    Some(places.filter(|path| path.is_file()).collect())
}

/// The files that may be a module of Python.
fn module(name: &str) -> [String; 3] {
    let path = name.replace('.', "/");
    ["", "/__init__", "/__main__"].map(|part| format!("{path}{part}.py"))
}

/// When a file, a link or a directory last changed in any way, in milliseconds since 1970. A program cannot set that back.
#[expect(
    clippy::disallowed_methods,
    reason = "a program that a rule names: each link on the way is looked at by itself"
)]
fn changed_at(path: &Path) -> Option<u64> {
    let found = path.symlink_metadata().ok()?;
    let (seconds, nanoseconds) =
        (u64::try_from(found.ctime()).ok()?, u64::try_from(found.ctime_nsec()).ok()?);
    Some(seconds.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000))
}
