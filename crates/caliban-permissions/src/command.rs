//! The verdict on a command line: each command, each redirection and each doubt on its own, and the
//! strictest of them for the whole.

use std::{cell::Cell, path::Path};

use caliban_core::{fence::Profile, mode::Mode};

use crate::{
    command_pattern::{CommandPattern, Fit},
    path::{normalise, resolve},
    policy::{Effect, Fencing, FileAccess, Judge, by_rule, unattended},
    read_only,
    rule::{Covers, Rule},
    shell::{Analysis, FileUse, ParsedCommand, WrapperTrust, analyse, dialect::Dialect, word::Word},
    verdict::Verdict,
};

impl Judge<'_> {
    pub(crate) fn line(&self, tool: &str, line: &str, cwd: &Path, outside: Option<&str>) -> Verdict {
        let everything = |rule: &Rule| match &rule.covers {
            Covers::Everything => true,
            Covers::Tool(name) => name == tool || name == "Bash",
            Covers::Command(pattern) => pattern.is_everything(),
            _ => false,
        };
        for effect in [Effect::Deny, Effect::Ask] {
            if let Some(rule) = self.rules(effect).find(|rule| everything(&rule.rule)) {
                return by_rule(rule);
            }
        }
        let blanket = self.rules(Effect::Allow).find(|rule| everything(&rule.rule)).map(by_rule);
        let analysis = analyse(line, cwd, &self.policy.home, Dialect::here());
        let holds = self.policy.fencing.holds();
        // Objects of git are not masked: where something must not be read, a command of git that may show it is asked about.
        let hides = [Effect::Deny, Effect::Ask]
            .into_iter()
            .any(|effect| self.rules(effect).any(|rule| matches!(rule.rule.covers, Covers::Read(_))));
        let git_changes = (self.policy.fencing == Fencing::HoldsGit && !hides) || !changes_git(&analysis);
        let mode = self.policy.mode;
        let edits = mode == Mode::AcceptEdits || (mode == Mode::Default && self.policy.worktree.is_some());
        let mut line = CommandLine {
            judge: self,
            line,
            blanket,
            variables: analysis.sets_variables(),
            assigns: analysis.assigns(),
            reading: match (holds, outside.is_some()) {
                (true, true) => Reads::Never,
                (true, false) => Reads::Fenced,
                (false, _) => Reads::Plain,
            },
            editing: holds && edits && outside.is_none() && git_changes,
            fenced: true,
            relies: Cell::new(false),
            ruled: Cell::new(false),
        };
        let verdict = line.analysis(&analysis);
        let fence = line.fence(&analysis);
        line.fenced = fence != Profile::None;
        let verdict = if line.fenced { verdict } else { line.analysis(&analysis) };
        let verdict = verdict.unwrap_or_else(|| Verdict::allow("it runs nothing")).within(fence);
        match (verdict, outside.filter(|_| holds)) {
            (Verdict::Ask { why, suggestions }, Some(reason)) => {
                let reason =
                    if reason.trim().is_empty() { "the model gives no reason" } else { reason.trim() };
                Verdict::ask(format!("{why}; outside of the fence: {reason}"), suggestions)
            }
            (verdict, _) => verdict,
        }
    }
}

pub(crate) struct CommandLine<'a> {
    pub(crate) judge: &'a Judge<'a>,
    line: &'a str,
    /// The rule that allows all commands, when there is one.
    blanket: Option<Verdict>,
    /// Whether variables are set that a reading command may act on.
    variables: bool,
    /// Whether it sets any, but for those that only change output.
    assigns: bool,
    /// What a command gets that only reads.
    reading: Reads,
    /// Whether a command that nobody has looked at may run in the edit fence.
    editing: bool,
    /// Whether the whole line runs in a fence.
    fenced: bool,
    /// Whether some command is allowed only because of the edit fence.
    relies: Cell<bool>,
    /// Whether some command is allowed by a rule, or by the mode that allows all.
    ruled: Cell<bool>,
}

/// What becomes of a command that is known to read only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// It is allowed, in a fence.
    Fenced,
    /// It is allowed if it is one of a few plain ones.
    Plain,
    /// It is asked about: it shall run outside of the fence.
    Never,
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

    /// The fence of the whole line, once its commands were judged. A rule is somebody's word: what it allows runs as the
    /// user, with the commands around it that only read.
    fn fence(&self, analysis: &Analysis) -> Profile {
        if self.judge.policy.fencing == Fencing::Missing {
            Profile::None
        } else if self.relies.get() {
            Profile::Edit
        } else if self.ruled.get() || self.reading == Reads::Never {
            Profile::None
        } else if self.judge.policy.mode != Mode::Plan && writes(analysis) {
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
    /// directory somebody is asked, because that is where it is missed.
    fn read(&self, path: &Path) -> Verdict {
        match self.judge.path("Read", FileAccess::Read, path) {
            Verdict::Ask { .. }
                if self.editing && !self.judge.is_home(path) && !self.judge.is_ruled(path) =>
            {
                self.relied_on()
            }
            verdict => verdict,
        }
    }

    /// What deny and ask rules say about a command and all that it runs.
    fn forbidden(&self, run: &ParsedCommand) -> Option<Verdict> {
        let mut found: Option<Verdict> = None;
        let mut add = |verdict: Verdict| {
            found = Some(match found.take() {
                Some(before) => before.and(verdict),
                None => verdict,
            });
        };
        for effect in [Effect::Deny, Effect::Ask] {
            for rule in self.judge.rules(effect) {
                let Covers::Command(pattern) = &rule.rule.covers else { continue };
                let passed_on = || pattern.stands_among(&run.words) && read_only::reads(run).is_none();
                let script =
                    script_of(&run.words).map_or(Fit::No, |words| self.fit_widely(pattern, run, words));
                match self.fit_widely(pattern, run, &run.words).max(script) {
                    Fit::No if passed_on() => add(Verdict::ask(
                        format!("it may run what {} ({}) is about", rule.rule, rule.source),
                        Vec::new(),
                    )),
                    Fit::Yes => add(by_rule(rule)),
                    Fit::Maybe => add(Verdict::ask(
                        format!("it may be what {} ({}) is about", rule.rule, rule.source),
                        Vec::new(),
                    )),
                    Fit::No => {}
                }
            }
        }
        // In a fence the files of these rules are masked or cannot be changed: only what is named is refused right away.
        self.mentioned(run, &mut |verdict| {
            if !self.fenced || matches!(verdict, Verdict::Deny { .. }) {
                add(verdict);
            }
        });
        if let Some(verdict) = self.shown_by_git(run) {
            add(verdict);
        }
        if let Some(inner) = &run.inner {
            for run in &inner.analysis.runs {
                if let Some(verdict) = self.forbidden(run) {
                    add(verdict);
                }
            }
            for file in &inner.analysis.files {
                if let denied @ Verdict::Deny { .. } = self.file(file) {
                    add(denied);
                }
            }
            for why in &inner.analysis.doubts {
                if self.fears() {
                    add(self.doubt(why));
                }
            }
        }
        found
    }

    /// A rule that names a program by its path is about that file, wherever the command runs and through whatever link it is
    /// called.
    fn fit_widely(&self, pattern: &CommandPattern, run: &ParsedCommand, words: &[Word]) -> Fit {
        let fit = pattern.fit_widely(words);
        let Some((Word::Literal(name), arguments)) = words.split_first() else { return fit };
        let is_path = name.contains('/') || words.len() != run.words.len();
        let (Some(directories), true) = (&run.directories, is_path && fit != Fit::Yes) else { return fit };
        let policy = self.judge.policy;
        let places = directories.iter().flat_map(|directory| {
            let path = directory.join(name);
            [Some(normalise(&path)), resolve(&path)]
        });
        let named = places.flatten().map(|place| {
            let name = Word::Literal(place.to_string_lossy().into_owned());
            [std::slice::from_ref(&name), arguments].concat()
        });
        let bases: Vec<&Path> =
            [Some(policy.root.as_path()), policy.worktree.as_deref()].into_iter().flatten().collect();
        let absolute: Vec<CommandPattern> = bases.iter().filter_map(|base| pattern.below(base)).collect();
        named.fold(fit, |fit, words| {
            absolute.iter().map(|pattern| pattern.fit_widely(&words)).fold(fit, Fit::max)
        })
    }

    /// Whether some rule could be evaded by what is not understood.
    fn fears(&self) -> bool {
        [Effect::Deny, Effect::Ask].into_iter().any(|effect| {
            self.judge.rules(effect).any(|rule| {
                matches!(rule.rule.covers, Covers::Command(_) | Covers::Read(_) | Covers::Edit(_))
            })
        })
    }

    fn doubt(&self, why: &str) -> Verdict {
        for effect in [Effect::Deny, Effect::Ask] {
            for rule in self.judge.rules(effect) {
                if matches!(&rule.rule.covers, Covers::Command(pattern) if pattern.stands_in(self.line)) {
                    return by_rule(rule);
                }
            }
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
        let is_unattended = self.judge.policy.mode == Mode::Unattended;
        let verdict = self.blanket.clone().or_else(|| is_unattended.then(unattended))?;
        self.ruled.set(true);
        Some(verdict)
    }

    /// Allowed, because the edit fence makes it harmless.
    fn relied_on(&self) -> Verdict {
        self.relies.set(true);
        Verdict::allow("it stays inside the fence")
    }

    /// What the mode and the allow rules say about a command.
    fn permitted(&self, run: &ParsedCommand) -> Verdict {
        let plan = self.judge.policy.mode == Mode::Plan;
        if !plan {
            // Who names exactly one command does not mean it with other variables: `hook=x make test`.
            let fits = |pattern: &CommandPattern| {
                pattern.allows(&run.words, &|below, path| stays_below(run, below, path))
                    && (!self.assigns || !pattern.is_exact())
            };
            let allowing = self
                .judge
                .rules(Effect::Allow)
                .find(|rule| matches!(&rule.rule.covers, Covers::Command(pattern) if fits(pattern)));
            if let Some(rule) = allowing {
                self.ruled.set(true);
                return by_rule(rule);
            }
            if let Some(verdict) = self.of_everything() {
                return verdict;
            }
        }
        let free = run.words[0].literal() == Some("export") || !self.variables;
        let free = match self.reading {
            // Whatever variables and file names (`: > ./--pre=sh; rg x *`) make of it, it can change nothing.
            Reads::Fenced if self.fenced => true,
            Reads::Fenced | Reads::Plain => free && read_only::is_plain(run),
            Reads::Never => false,
        };
        if let Some(files) = read_only::reads(run).filter(|_| free) {
            let reads = files.iter().map(|path| self.read(path));
            return reads.fold(Verdict::allow("a command that only reads"), Verdict::and);
        }
        if let Some(inner) = run
            .inner
            .as_ref()
            .filter(|inner| inner.trust == WrapperTrust::Transparent && !inner.analysis.runs.is_empty())
            && let Some(verdict) = self.analysis(&inner.analysis)
        {
            return verdict;
        }
        if plan {
            return Verdict::deny(format!("plan mode changes nothing, and {} may", shown(&run.words)));
        }
        if self.editing {
            return self.relied_on();
        }
        match run.words[0].literal() {
            Some(name) if !name.is_empty() => Verdict::ask(
                format!("runs {}", shown(&run.words)),
                suggestion(&run.words).into_iter().collect(),
            ),
            _ => Verdict::ask(format!("runs {}", shown(&run.words)), Vec::new()),
        }
    }
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
    if !matches!(
        name,
        "sh" | "bash"
            | "rbash"
            | "dash"
            | "ash"
            | "zsh"
            | "ksh"
            | "mksh"
            | "yash"
            | "fish"
            | "csh"
            | "tcsh"
            | "source"
            | "."
    ) {
        return None;
    }
    let at = words
        .iter()
        .skip(1)
        .position(|word| word.literal().is_none_or(|text| !text.starts_with(['-', '+'])))?;
    words.get(at + 1..)
}

/// Whether a line may write a file by a redirection.
fn writes(analysis: &Analysis) -> bool {
    analysis.files.iter().any(|file| matches!(file, FileUse::Write(_))) || inner(analysis).any(writes)
}

/// Whether it has a command of git that does not only read: `.git` cannot be changed in a fence, so the rules decide.
fn changes_git(analysis: &Analysis) -> bool {
    let git = |run: &ParsedCommand| {
        let name = run.words[0].literal().unwrap_or_default();
        name.rsplit('/').next() == Some("git") && read_only::reads(run).is_none()
    };
    analysis.runs.iter().any(git) || inner(analysis).any(changes_git)
}

fn inner(analysis: &Analysis) -> impl Iterator<Item = &Analysis> {
    analysis.runs.iter().filter_map(|run| run.inner.as_ref()).map(|inner| &inner.analysis)
}

/// Programs whose first argument says what they do.
const WITH_SUBCOMMANDS: &[&str] = &[
    "git",
    "cargo",
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "deno",
    "go",
    "docker",
    "podman",
    "kubectl",
    "gh",
    "pip",
    "uv",
    "poetry",
    "systemctl",
    "brew",
    "apt",
    "rustup",
    "dotnet",
    "terraform",
    "mix",
    "bundle",
    "make",
    "just",
];
/// Programs that can do anything, run others, or reach other machines: only the exact words are suggested.
const ANYTHING: &[&str] = &[
    "bash",
    "sh",
    "dash",
    "ash",
    "zsh",
    "ksh",
    "mksh",
    "yash",
    "fish",
    "csh",
    "tcsh",
    "busybox",
    "toybox",
    "eval",
    "exec",
    "source",
    ".",
    "command",
    "builtin",
    "trap",
    "alias",
    "sudo",
    "su",
    "doas",
    "pkexec",
    "runuser",
    "env",
    "xargs",
    "parallel",
    "nohup",
    "setsid",
    "timeout",
    "time",
    "nice",
    "ionice",
    "stdbuf",
    "taskset",
    "chrt",
    "chroot",
    "unshare",
    "nsenter",
    "flock",
    "strace",
    "ltrace",
    "gdb",
    "lldb",
    "watch",
    "entr",
    "script",
    "expect",
    "find",
    "fd",
    "fdfind",
    "rm",
    "dd",
    "tee",
    "cp",
    "mv",
    "ln",
    "install",
    "chmod",
    "chown",
    "python",
    "pypy",
    "ipython",
    "perl",
    "ruby",
    "irb",
    "node",
    "tsx",
    "ts-node",
    "lua",
    "luajit",
    "php",
    "tclsh",
    "julia",
    "Rscript",
    "R",
    "osascript",
    "pwsh",
    "ssh",
    "scp",
    "sftp",
    "rsync",
    "telnet",
    "nc",
    "ncat",
    "socat",
    "curl",
    "wget",
    "awk",
    "gawk",
    "mawk",
    "nawk",
    "sed",
    "ed",
    "ex",
    "vi",
    "vim",
    "nvim",
    "view",
    "emacs",
    "nano",
    "less",
    "more",
    "man",
    "tar",
    "zip",
    "unzip",
    "crontab",
    "at",
    "batch",
    "systemd-run",
    "npx",
    "bunx",
    "uvx",
    "pipx",
    "tmux",
    "screen",
];

/// A rule that would allow commands of this kind; none where the only one would allow others too.
fn suggestion(words: &[Word]) -> Option<String> {
    let plain = |word: &Word| {
        word.literal()
            .filter(|text| {
                !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "_-./:=+@%,~".contains(c))
            })
            .map(str::to_owned)
    };
    let name = plain(&words[0])?;
    // `/bin/sh` is `sh`, `python3.12` is `python`.
    let base = name.rsplit('/').next().unwrap_or(&name);
    let base = match base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-') {
        "" => base,
        plain => plain,
    };
    let options_first = WITH_SUBCOMMANDS.contains(&base)
        && words.get(1).is_some_and(|word| word.literal().is_none_or(|text| text.starts_with('-')));
    if ANYTHING.contains(&base) || options_first {
        let all = words.iter().map(plain).collect::<Option<Vec<_>>>()?;
        return Some(format!("Bash({})", all.join(" ")));
    }
    Some(match words.get(1).and_then(plain) {
        Some(sub) if WITH_SUBCOMMANDS.contains(&name.as_str()) && !sub.starts_with('-') => {
            format!("Bash({name} {sub} *)")
        }
        _ => format!("Bash({name} *)"),
    })
}

fn shown(words: &[Word]) -> String {
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
