//! The verdict on a command line: each command, each redirection and each doubt on its own, and the
//! strictest of them for the whole.

use std::path::Path;

use caliban_core::mode::Mode;

use crate::{
    command_pattern::Fit,
    path::Reading,
    policy::{Effect, FileAccess, Judge, by_rule, unattended},
    read_only,
    rule::{Covers, Rule},
    shell::{Analysis, FileUse, Run, Trust, analyse, dialect::Dialect, word::Word},
    verdict::Verdict,
};

impl Judge<'_> {
    pub(crate) fn line(&self, tool: &str, line: &str, cwd: &Path) -> Verdict {
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
        let line = Line { judge: self, line, blanket, variables: analysis.sets_variables() };
        line.analysis(&analysis).unwrap_or_else(|| Verdict::allow("it runs nothing"))
    }
}

pub(crate) struct Line<'a> {
    pub(crate) judge: &'a Judge<'a>,
    line: &'a str,
    /// The rule that allows all commands, when there is one.
    blanket: Option<Verdict>,
    /// Whether variables are set that a reading command may act on.
    variables: bool,
}

impl Line<'_> {
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

    fn file(&self, file: &FileUse) -> Verdict {
        match file {
            FileUse::Read(path) => self.judge.path("Read", FileAccess::Read, path),
            FileUse::Write(path) => self.judge.path("Write", FileAccess::Write, path),
        }
    }

    /// What deny and ask rules say about a command and all that it runs.
    fn forbidden(&self, run: &Run) -> Option<Verdict> {
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
                match pattern.fit(&run.words, Reading::Wide) {
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
        self.mentioned(run, &mut add);
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
            if let Some(blanket) = &self.blanket {
                return blanket.clone();
            }
            if self.judge.policy.mode == Mode::Unattended {
                return unattended();
            }
        }
        Verdict::ask(format!("the command line cannot be judged: {why}"), Vec::new())
    }

    /// What the mode and the allow rules say about a command.
    fn permitted(&self, run: &Run) -> Verdict {
        let plan = self.judge.policy.mode == Mode::Plan;
        if !plan {
            let allowing = self.judge.rules(Effect::Allow).find(|rule| {
                matches!(&rule.rule.covers, Covers::Command(pattern) if pattern.fit(&run.words, Reading::Narrow) == Fit::Yes)
            });
            if let Some(rule) = allowing {
                return by_rule(rule);
            }
            if let Some(blanket) = &self.blanket {
                return blanket.clone();
            }
            if self.judge.policy.mode == Mode::Unattended {
                return unattended();
            }
        }
        let free = run.words[0].literal() == Some("export") || !self.variables;
        if let Some(files) = read_only::reads(run).filter(|_| free) {
            let reads = files.iter().map(|path| self.judge.path("Read", FileAccess::Read, path));
            return reads.fold(Verdict::allow("a command that only reads"), Verdict::and);
        }
        if let Some(inner) = run
            .inner
            .as_ref()
            .filter(|inner| inner.trust == Trust::Transparent && !inner.analysis.runs.is_empty())
            && let Some(verdict) = self.analysis(&inner.analysis)
        {
            return verdict;
        }
        if plan {
            return Verdict::deny(format!("plan mode changes nothing, and {} may", shown(&run.words)));
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
