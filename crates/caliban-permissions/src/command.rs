//! The verdict on a command line: each command, each redirection and each doubt on its own, and the
//! strictest of them for the whole.

use std::{cell::Cell, path::Path};

use caliban_core::{fence::Profile, mode::Mode};

use crate::{
    command_pattern::{CommandPattern, Fit},
    path::{as_given_and_real, normalise, resolve},
    policy::{Effect, Fencing, FileAccess, Judge, by_rule, unattended},
    read_only::{self, Reading},
    rule::{Covers, Rule},
    shell::{
        Analysis, FileUse, ParsedCommand, WrapperTrust, analyse, dialect::Dialect, word::Word,
        wrappers::SHELLS,
    },
    verdict::Verdict,
};

impl Judge<'_> {
    pub(crate) fn line(&self, tool: &str, line: &str, cwd: &Path, outside: Option<&str>) -> Verdict {
        let everything = |rule: &Rule| match &rule.covers {
            Covers::Everything => true,
            Covers::Tool(name) => name == tool || name == "Bash",
            Covers::Command(pattern) => pattern.is_everything() && !rule.is_outside(),
            _ => false,
        };
        if let Some(rule) = self.forbidding().find(|rule| everything(&rule.rule)) {
            return by_rule(rule);
        }
        let blanket = self.rules(Effect::Allow).find(|rule| everything(&rule.rule)).map(by_rule);
        let analysis = analyse(line, cwd, &self.policy.home, Dialect::here());
        // Objects of git are not masked: where something must not be read, a command of git that may show it is asked about.
        let hides = self.forbidding().any(|rule| matches!(rule.rule.covers, Covers::Read(_)));
        let mode = self.policy.mode;
        let holds = self.policy.fencing.holds() && mode != Mode::Unattended;
        let ground = match outside {
            _ if !holds => Ground::Unfenced,
            Some(_) => Ground::Outside,
            None if mode != Mode::Plan && self.leaves(&analysis) => Ground::Outside,
            None => Ground::Fence,
        };
        let edits = mode.accepts_edits() || (mode == Mode::Default && self.policy.edits_own_worktree());
        let git_changes = self.policy.fencing == Fencing::HoldsGit && !hides;
        let line = CommandLine {
            judge: self,
            line,
            blanket,
            assigns: analysis.all().any(|part| part.assigns),
            ground,
            git_changes,
            editing: ground == Ground::Fence && edits && (git_changes || !changes_git(&analysis)),
            relies: Cell::new(false),
        };
        let verdict = line.analysis(&analysis).unwrap_or_else(|| Verdict::allow("it runs nothing"));
        let is_open = mode == Mode::Unattended && self.policy.fencing.holds() && self.holds_files();
        let mut verdict = verdict.within(if is_open { Profile::Open } else { line.fence(&analysis) });
        if self.policy.hides_objects && mode != Mode::Unattended && runs_git(&analysis) {
            let why = "git keeps a file that a rule keeps from being read, so its objects are in no fence";
            verdict = verdict.and(Verdict::ask(why.to_owned(), Vec::new()));
        }
        match (verdict, outside.filter(|_| holds)) {
            (Verdict::Ask { why, suggestions, outside }, Some(reason)) => {
                let reason =
                    if reason.trim().is_empty() { "the model gives no reason" } else { reason.trim() };
                Verdict::Ask { why: format!("{why}; outside of the fence: {reason}"), suggestions, outside }
            }
            (verdict, _) => verdict,
        }
    }
}

impl Judge<'_> {
    /// Whether rules keep files from being read or changed.
    fn holds_files(&self) -> bool {
        self.forbidding().any(|rule| rule.rule.covers.is_read() || rule.rule.covers.is_edit())
    }
}

/// Where a line runs: all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ground {
    /// In a fence.
    Fence,
    /// As the user, beside a fence that there is: by rules that say so.
    Outside,
    /// As the user, because there is no fence: by any rule.
    Unfenced,
}

pub(crate) struct CommandLine<'a> {
    pub(crate) judge: &'a Judge<'a>,
    line: &'a str,
    /// The rule that allows all commands, when there is one.
    blanket: Option<Verdict>,
    /// Whether it sets variables, but for those that only change output.
    pub(crate) assigns: bool,
    pub(crate) ground: Ground,
    /// Whether git can be changed in the fence.
    git_changes: bool,
    /// Whether a command that nobody has looked at may run in the edit fence.
    editing: bool,
    /// Whether some command is allowed only because of the edit fence.
    relies: Cell<bool>,
}

impl CommandLine<'_> {
    /// Nothing when there is nothing in it to judge.
    fn analysis(&self, analysis: &Analysis) -> Option<Verdict> {
        let runs = analysis.runs.iter().map(|run| match self.forbidden(run) {
            Some(verdict) => self.permitted(run).and(verdict),
            None => self.permitted(run),
        });
        let files = analysis.files.iter().map(|file| self.file(file));
        let doubts = analysis.doubts.iter().map(|why| self.doubt(why));
        runs.chain(files).chain(doubts).reduce(Verdict::and)
    }

    /// The fence of the whole line, once its commands were judged.
    fn fence(&self, analysis: &Analysis) -> Profile {
        let writes =
            || analysis.all().any(|part| part.files.iter().any(|file| matches!(file, FileUse::Write(_))));
        if self.ground != Ground::Fence {
            Profile::None
        } else if self.relies.get() || (self.judge.policy.mode != Mode::Plan && writes()) {
            Profile::Edit
        } else {
            Profile::Read
        }
    }

    fn file(&self, file: &FileUse) -> Verdict {
        match file {
            FileUse::Read(path) => self.read(path),
            FileUse::Write(path) => match self.judge.path("Write", FileAccess::Write, path) {
                // A fenced command has a temporary directory of its own.
                Verdict::Ask { .. } if self.editing && self.is_temporary(path) => self.relied_on(),
                verdict => verdict,
            },
        }
    }

    /// Whether a path is in the temporary directory, which a fenced command has for itself. Not where the work lies there.
    fn is_temporary(&self, path: &Path) -> bool {
        let place = normalise(path);
        let is_plain = || resolve(path).is_none_or(|real| real == place);
        ["/tmp", "/var/tmp"]
            .iter()
            .any(|top| place.starts_with(top) && !self.judge.works_below(Path::new(top)))
            && is_plain()
    }

    /// Reading a file. In the edit fence the system can be read, and what is not shown is not there; only for the home
    /// directory somebody is asked, because that is where it is missed, and where no rule could allow it.
    fn read(&self, path: &Path) -> Verdict {
        match self.judge.path("Read", FileAccess::Read, path) {
            Verdict::Ask { suggestions, .. }
                if self.editing && !suggestions.is_empty() && !self.judge.is_home(path) =>
            {
                self.relied_on()
            }
            verdict => verdict,
        }
    }

    /// What deny and ask rules say about a command and all that it runs.
    fn forbidden(&self, run: &ParsedCommand) -> Option<Verdict> {
        let mut found = Vec::new();
        for rule in self.judge.forbidding() {
            let Covers::Command(pattern) = &rule.rule.covers else { continue };
            let passed_on = || pattern.stands_among(&run.words) && read_only::reads(run).is_none();
            let script = script_of(&run.words).map_or(Fit::No, |words| self.fit_widely(pattern, run, words));
            let may = |does: &str| {
                Verdict::ask(
                    format!("it may {does} what {} ({}) is about", rule.rule, rule.source),
                    Vec::new(),
                )
            };
            match self.fit_widely(pattern, run, &run.words).max(script) {
                Fit::Yes => found.push(by_rule(rule)),
                Fit::Maybe => found.push(may("be")),
                Fit::No if passed_on() => found.push(may("run")),
                Fit::No => {}
            }
        }
        // In a fence the files of these rules are masked or cannot be changed: only what is named is refused right away.
        let is_denied = |verdict: &Verdict| matches!(verdict, Verdict::Deny { .. });
        found.extend(
            self.mentioned(run)
                .into_iter()
                .filter(|verdict| self.ground != Ground::Fence || is_denied(verdict)),
        );
        found.extend(self.shown_by_git(run));
        for inner in run.inner.iter().map(|inner| &inner.analysis) {
            found.extend(inner.runs.iter().filter_map(|run| self.forbidden(run)));
            found.extend(inner.files.iter().map(|file| self.file(file)).filter(is_denied));
            found.extend(inner.doubts.iter().filter(|_| self.fears()).map(|why| self.doubt(why)));
        }
        found.into_iter().reduce(Verdict::and)
    }

    /// A rule that names a program by its path is about that file, wherever the command runs and through whatever link it is
    /// called.
    fn fit_widely(&self, pattern: &CommandPattern, run: &ParsedCommand, words: &[Word]) -> Fit {
        let fit = pattern.fit_widely(words);
        let Some((Word::Literal(name), arguments)) = words.split_first() else { return fit };
        let is_path = name.contains('/') || words.len() != run.words.len();
        let (Some(directories), true) = (&run.directories, is_path && fit != Fit::Yes) else { return fit };
        let policy = self.judge.policy;
        let places = directories.iter().flat_map(|directory| as_given_and_real(&directory.join(name)));
        let named = places.map(|place| {
            let name = Word::Literal(place.to_string_lossy().into_owned());
            [std::slice::from_ref(&name), arguments].concat()
        });
        let bases = [Some(policy.root.as_path()), policy.worktree.as_deref()];
        let absolute: Vec<CommandPattern> =
            bases.into_iter().flatten().filter_map(|base| pattern.below(base)).collect();
        named.fold(fit, |fit, words| {
            absolute.iter().map(|pattern| pattern.fit_widely(&words)).fold(fit, Fit::max)
        })
    }

    /// Whether some rule could be evaded by what is not understood.
    fn fears(&self) -> bool {
        let can_be =
            |covers: &Covers| matches!(covers, Covers::Command(_) | Covers::Read(_) | Covers::Edit(_));
        self.judge.forbidding().any(|rule| can_be(&rule.rule.covers))
    }

    fn doubt(&self, why: &str) -> Verdict {
        let stands =
            |covers: &Covers| matches!(covers, Covers::Command(pattern) if pattern.stands_in(self.line));
        if let Some(rule) = self.judge.forbidding().find(|rule| stands(&rule.rule.covers)) {
            return by_rule(rule);
        }
        if self.judge.policy.mode == Mode::Plan {
            return Verdict::deny(format!("plan mode changes nothing, and this cannot be judged: {why}"));
        }
        if !self.fears() {
            if let Some(verdict) = self.of_everything() {
                return verdict;
            }
            if self.editing {
                return self.relied_on();
            }
        }
        Verdict::ask(format!("the command line cannot be judged: {why}"), Vec::new())
    }

    /// What a rule about all commands, or the mode that allows all, says.
    fn of_everything(&self) -> Option<Verdict> {
        if self.judge.policy.mode == Mode::Unattended {
            return Some(self.blanket.clone().unwrap_or_else(unattended));
        }
        self.blanket.clone().and_then(|verdict| self.by_plain_rule(verdict))
    }

    /// What a rule says that is not about outside: do not ask. The fence holds all the same.
    fn by_plain_rule(&self, verdict: Verdict) -> Option<Verdict> {
        match self.ground {
            Ground::Fence => self.relies.set(true),
            Ground::Outside => return None,
            Ground::Unfenced => {}
        }
        Some(verdict)
    }

    /// Allowed, because the edit fence makes it harmless.
    fn relied_on(&self) -> Verdict {
        self.relies.set(true);
        Verdict::allow("it stays inside the fence")
    }

    /// What the mode and the allow rules say about a command.
    fn permitted(&self, run: &ParsedCommand) -> Verdict {
        if let Some(verdict) = self.ruled(run) {
            return verdict;
        }
        // In a fence it can change nothing, whatever variables and file names (`: > ./--pre=sh; rg x *`) make of it.
        let is_set = self.assigns && run.words[0].literal() != Some("export");
        let is_free = |reading: &Reading| self.ground == Ground::Fence || (reading.is_plain && !is_set);
        if let Some(reading) = read_only::reads(run).filter(is_free) {
            // It may write, or read what only the edit fence has: the agent's own temporary files.
            let why = if self.editing && !(reading.is_sure && reading.is_known) {
                self.relied_on()
            } else {
                Verdict::allow("a command that only reads")
            };
            return reading.files.iter().map(|path| self.read(path)).fold(why, Verdict::and);
        }
        if let Some(inner) = run
            .inner
            .as_ref()
            .filter(|inner| inner.trust == WrapperTrust::Transparent && !inner.analysis.runs.is_empty())
            && let Some(verdict) = self.analysis(&inner.analysis)
        {
            return verdict;
        }
        if self.judge.policy.mode == Mode::Plan {
            return Verdict::deny(format!("plan mode changes nothing, and {} may", shown(&run.words)));
        }
        if self.editing {
            return self.relied_on();
        }
        self.asked(run, format!("runs {}", shown(&run.words)))
    }

    /// What allow rules say about a command.
    fn ruled(&self, run: &ParsedCommand) -> Option<Verdict> {
        let mode = self.judge.policy.mode;
        if mode == Mode::Plan {
            return None;
        }
        if mode != Mode::Unattended
            && self.ground == Ground::Outside
            && let Some(why) = self.is_own_program(run)
        {
            return Some(Verdict::ask(why, Vec::new()));
        }
        let leaving = self.judge.leaving(run);
        if let Some(Ok(rule)) = leaving
            && self.ground != Ground::Fence
        {
            return Some(self.by_outside_rule(run, rule));
        }
        // Who names exactly one command does not mean it with other variables: `hook=x make test`.
        let fits = |rule: &Rule| match &rule.covers {
            Covers::Command(pattern) if !rule.is_outside() => {
                allows(pattern, run) && (!self.assigns || !pattern.is_exact())
            }
            _ => false,
        };
        let allowing = self.judge.rules(Effect::Allow).find(|rule| fits(&rule.rule)).map(by_rule);
        let allowing =
            allowing.and_then(|verdict| self.by_plain_rule(verdict)).or_else(|| self.of_everything());
        match (allowing, leaving) {
            (Some(verdict), _) => Some(verdict),
            (None, Some(Err(why))) => Some(self.asked(run, why).only_outside()),
            (None, _) => None,
        }
    }

    /// A question about a command, with the rules that would answer it.
    fn asked(&self, run: &ParsedCommand, why: String) -> Verdict {
        // A rule is about the command without variables that the line sets.
        let rule = suggestion(run).filter(|_| !self.assigns);
        let outside = match self.ground {
            Ground::Unfenced => rule.clone(),
            Ground::Fence | Ground::Outside => {
                rule.as_ref().and_then(|rule| self.judge.outside_here(rule, run))
            }
        };
        let helps = match self.ground {
            Ground::Fence => self.git_changes || !is_changing_git(run),
            Ground::Outside => false,
            Ground::Unfenced => true,
        };
        Verdict::ask_command(why, rule.filter(|_| helps), outside)
    }
}

/// Whether the pattern of an allow rule is about this command.
pub(crate) fn allows(pattern: &CommandPattern, run: &ParsedCommand) -> bool {
    pattern.allows(&run.words, &|below, path| stays_below(run, below, path))
}

/// Whether a path that a rule's wildcard stands for is where the rule's words before it say: not above by `..`, and not
/// elsewhere through a link.
fn stays_below(run: &ParsedCommand, below: &str, path: &str) -> bool {
    if path.split('/').any(|part| part == "..") {
        return false;
    }
    let Some(directories) = &run.directories else { return false };
    directories.iter().all(|directory| {
        let (below, path) = (directory.join(below), directory.join(path));
        match (resolve(&below), resolve(&path)) {
            (Some(below), Some(path)) => path.starts_with(below),
            _ => false,
        }
    })
}

/// The script that a shell is given, with its arguments: `sh -e deploy.sh x`.
fn script_of(words: &[Word]) -> Option<&[Word]> {
    let name = words.first()?.literal()?;
    let name = name.rsplit('/').next().unwrap_or(name);
    if matches!(name, "busybox" | "toybox") {
        return script_of(words.get(1..)?);
    }
    if !SHELLS.contains(&name) && !matches!(name, "source" | ".") {
        return None;
    }
    let at = words
        .iter()
        .skip(1)
        .position(|word| word.literal().is_none_or(|text| !text.starts_with(['-', '+'])))?;
    words.get(at + 1..)
}

/// Whether it has a command of git.
fn runs_git(analysis: &Analysis) -> bool {
    analysis.all().flat_map(|part| &part.runs).any(|run| {
        let name = run.words[0].literal().unwrap_or_default();
        name.rsplit('/').next() == Some("git")
    })
}

/// Whether it has a command of git that does not only read: `.git` cannot be changed in a fence, so the rules decide.
fn changes_git(analysis: &Analysis) -> bool {
    analysis.all().flat_map(|part| &part.runs).any(is_changing_git)
}

fn is_changing_git(run: &ParsedCommand) -> bool {
    let name = run.words[0].literal().unwrap_or_default();
    name.rsplit('/').next() == Some("git") && read_only::reads(run).is_none()
}

/// The rule that allows this command, and no other: these words, each by itself. None where a word is known only when the command runs, or
/// no rule can name it.
fn suggestion(run: &ParsedCommand) -> Option<String> {
    let words = run.words.iter().map(in_rule).collect::<Option<Vec<_>>>()?;
    Some(format!("Bash({})", words.join(" ")))
}

/// A word as a rule names it.
fn in_rule(word: &Word) -> Option<String> {
    let text = word.literal()?;
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:=+@%,~".contains(c);
    match text {
        _ if text.contains('*') || text.contains(char::is_control) => None,
        _ if !text.is_empty() && text.chars().all(is_plain) => Some(text.to_owned()),
        _ if !text.contains('"') => Some(format!("\"{text}\"")),
        _ if !text.contains('\'') => Some(format!("'{text}'")),
        _ => None,
    }
}

pub(crate) fn shown(words: &[Word]) -> String {
    /// Enough to know which command is meant.
    const MOST: usize = 80;
    let texts: Vec<&str> = words
        .iter()
        .map(|word| match word {
            Word::Literal(text) | Word::Glob(text) | Word::Computed(text) => text.as_str(),
        })
        .collect();
    let line = texts.join(" ").replace(char::is_control, " ");
    match line.char_indices().nth(MOST) {
        Some((at, _)) => format!("`{}…`", &line[..at]),
        None => format!("`{line}`"),
    }
}
