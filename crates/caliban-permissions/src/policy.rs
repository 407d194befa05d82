//! The rules of one agent, and the one question that is put to them: may this call go ahead?
//!
//! Deny beats ask beats allow, whichever layer a rule comes from. It decides; it neither asks nor runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use caliban_core::{access::Access, fence::Profile, mode::Mode};
use serde::{Deserialize, Serialize};

use crate::{
    command_pattern::wildcard,
    inherit::{Stored, in_both},
    path::{Bases, Reading, normalise, resolve},
    protected::protected_name,
    rule::{Covers, Rule},
    verdict::Verdict,
};

/// What a rule about detached commands is called.
const DETACH: &str = "Detach";
/// Characters of a command that are quoted.
const QUOTED_CHARACTERS: usize = 120;

/// What a rule does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Lets it go ahead.
    Allow,
    /// Has a person asked.
    Ask,
    /// Forbids it.
    Deny,
}

/// A rule with its effect and where it was written.
#[derive(Debug, Clone)]
pub struct SourcedRule {
    /// What it does.
    pub effect: Effect,
    /// What it covers.
    pub rule: Rule,
    /// Where it comes from: `~/.config/caliban/settings.toml`, `--allow`.
    pub source: String,
}

/// All that decides about the calls of one agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct Policy {
    /// Of all layers; their order does not matter.
    pub rules: Vec<SourcedRule>,
    /// What holds where no rule does.
    pub mode: Mode,
    /// The project's directory, absolute. Relative patterns start here.
    pub root: PathBuf,
    /// Further directories that count as inside the project.
    pub extra_dirs: Vec<PathBuf>,
    /// Directories that can be read without a question but are not the project's: where whole outputs are kept.
    pub read_dirs: Vec<PathBuf>,
    /// The user's home directory, absolute.
    pub home: PathBuf,
    /// The agent's own worktree, when it has one: then only files there (and in `extra_dirs`) count as inside
    /// for writing, while `root` can still be read. Relative patterns start here too.
    pub worktree: Option<PathBuf>,
    /// Whether what is allowed without a person's word can be fenced. Not part of what one agent hands to another.
    pub fencing: Fencing,
    /// The only tools of the agent and of every agent that it starts; all when absent.
    pub tools: Option<BTreeSet<String>>,
}

impl Policy {
    /// Without rules, in the default mode.
    pub fn new(root: impl Into<PathBuf>, home: impl Into<PathBuf>) -> Self {
        Self {
            rules: Vec::new(),
            mode: Mode::Default,
            root: root.into(),
            extra_dirs: Vec::new(),
            read_dirs: Vec::new(),
            home: home.into(),
            worktree: None,
            fencing: Fencing::Holds,
            tools: None,
        }
    }

    /// Takes every tool away that is not in this list. No agent below this one gets it back.
    pub fn keep_tools(&mut self, names: &[String]) {
        let names: BTreeSet<String> = names.iter().cloned().collect();
        self.tools = in_both(self.tools.take(), Some(names));
    }

    /// Whether the agent has this tool.
    pub fn has_tool(&self, name: &str) -> bool {
        self.tools.as_ref().is_none_or(|names| names.contains(name))
    }

    /// Adds a rule.
    pub fn add(&mut self, effect: Effect, rule: Rule, source: impl Into<String>) {
        self.rules.push(SourcedRule { effect, rule, source: source.into() });
    }

    /// Whether a call of this tool, touching this, may go ahead.
    pub fn decide(&self, tool: &str, accesses: &[Access]) -> Verdict {
        let judge = Judge::new(self);
        let touched = if accesses.is_empty() { &[Access::Nothing][..] } else { accesses };
        touched
            .iter()
            .map(|access| judge.access(tool, access))
            .reduce(Verdict::and)
            .unwrap_or_else(|| Verdict::deny("nothing to judge"))
    }
}

/// Whether commands can be fenced on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fencing {
    /// They can. A verdict that counts on it names the fence.
    Holds,
    /// They can, and git in a fence has a git directory of its own to change.
    HoldsGit,
    /// They cannot, or shall not: only a few plain commands are allowed without a question.
    Missing,
}

impl Fencing {
    /// Whether there are fences.
    pub fn holds(self) -> bool {
        self != Self::Missing
    }
}

/// A policy with its directories resolved.
pub(crate) struct Judge<'a> {
    pub(crate) policy: &'a Policy,
    project: Vec<PathBuf>,
    home: Vec<PathBuf>,
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileAccess {
    Read,
    Write,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(policy: &'a Policy) -> Self {
        let own = policy.worktree.as_ref().unwrap_or(&policy.root);
        let both = |paths: Vec<&PathBuf>| -> Vec<PathBuf> {
            let plain = paths.iter().map(|path| normalise(path));
            let mut all: Vec<PathBuf> = plain.chain(paths.iter().filter_map(|path| resolve(path))).collect();
            all.sort();
            all.dedup();
            all
        };
        let project = both([&policy.root].into_iter().chain(&policy.worktree).collect());
        let extra = both(policy.extra_dirs.iter().collect());
        Self {
            policy,
            readable: project
                .iter()
                .chain(&extra)
                .cloned()
                .chain(both(policy.read_dirs.iter().collect()))
                .collect(),
            writable: both(vec![own]).into_iter().chain(extra).collect(),
            home: both(vec![&policy.home]),
            project,
        }
    }

    fn access(&self, tool: &str, access: &Access) -> Verdict {
        let by_name = |rule: &Rule| match &rule.covers {
            Covers::Everything => true,
            Covers::Tool(name) => name == tool,
            Covers::Mcp(name) => tool.starts_with("mcp__") && fits_mcp(name, tool),
            _ => false,
        };
        match access {
            Access::Read(path) => self.path(tool, FileAccess::Read, path),
            Access::Write(path) => self.path(tool, FileAccess::Write, path),
            Access::Command { line, cwd, outside } => self.line(tool, line, cwd, outside.as_deref()),
            Access::Fetch { host, .. } => {
                let covers = |rule: &Rule| match &rule.covers {
                    Covers::Domain(domain) => domain.matches(host),
                    Covers::Tool(name) => name == tool || name == "WebFetch",
                    _ => by_name(rule),
                };
                self.by_rules(covers).unwrap_or_else(|| match self.policy.mode {
                    Mode::Unattended => unattended(),
                    _ => {
                        Verdict::ask(format!("fetches from {host}"), vec![format!("WebFetch(domain:{host})")])
                    }
                })
            }
            Access::Mcp { server, tool: name, read_only } => {
                let full = format!("mcp__{server}__{name}");
                let covers = |rule: &Rule| match &rule.covers {
                    Covers::Mcp(pattern) => fits_mcp(pattern, &full) || fits_mcp(pattern, tool),
                    _ => by_name(rule),
                };
                let ruled = self.by_rules(covers);
                if self.policy.mode == Mode::Plan
                    && !read_only
                    && !matches!(ruled, Some(Verdict::Deny { .. }))
                {
                    return Verdict::deny("plan mode changes nothing");
                }
                ruled.unwrap_or_else(|| match self.policy.mode {
                    Mode::Unattended => unattended(),
                    _ => Verdict::ask(format!("calls {name} of the MCP server {server}"), vec![full.clone()]),
                })
            }
            // No mode allows it: what outlives the agent needs a rule or an answer of its own.
            Access::Detach { line } => {
                let named = |rule: &Rule| matches!(&rule.covers, Covers::Tool(name) if name == DETACH);
                let ruled = [Effect::Deny, Effect::Ask].into_iter().find_map(|effect| {
                    self.rules(effect).find(|rule| named(&rule.rule) || by_name(&rule.rule)).map(by_rule)
                });
                let ruled =
                    ruled.or_else(|| self.rules(Effect::Allow).find(|rule| named(&rule.rule)).map(by_rule));
                match (self.policy.mode, ruled) {
                    (Mode::Plan, _) => Verdict::deny("plan mode changes nothing"),
                    (_, Some(ruled)) => ruled,
                    (_, None) => {
                        let line = caliban_core::inert::line(line);
                        let short: String = line.chars().take(QUOTED_CHARACTERS).collect();
                        Verdict::ask(
                            format!("leaves `{short}` running when the agent has ended"),
                            vec![DETACH.to_owned()],
                        )
                    }
                }
            }
            Access::Agent => {
                let covers = |rule: &Rule| {
                    matches!(&rule.covers, Covers::Tool(name) if name == "AgentTool") || by_name(rule)
                };
                self.by_rules(covers)
                    .unwrap_or_else(|| Verdict::allow("what an agent does is judged call by call"))
            }
            Access::Nothing => self
                .by_rules(by_name)
                .unwrap_or_else(|| Verdict::allow("it touches nothing but the conversation")),
        }
    }

    /// The rules alone: nothing when none covers it.
    fn by_rules(&self, covers: impl Fn(&Rule) -> bool) -> Option<Verdict> {
        [Effect::Deny, Effect::Ask, Effect::Allow].into_iter().find_map(|effect| {
            let rule = self.rules(effect).find(|rule| covers(&rule.rule))?;
            Some(by_rule(rule))
        })
    }

    pub(crate) fn rules(&self, effect: Effect) -> impl Iterator<Item = &'a SourcedRule> {
        self.policy.rules.iter().filter(move |rule| rule.effect == effect)
    }

    /// The path as given and where it leads: the stricter answer holds.
    pub(crate) fn path(&self, tool: &str, access: FileAccess, path: &Path) -> Verdict {
        let given = normalise(path);
        if through_proc(&given) {
            // What it leads to is the command's own, not ours.
            return self.plain_path(tool, access, &given).and(Verdict::ask(
                format!("{}: only the command knows where that leads", path.display()),
                Vec::new(),
            ));
        }
        let Some(real) = resolve(path) else {
            return self
                .plain_path(tool, access, &given)
                .and(Verdict::ask(format!("{}: its links go in a circle", path.display()), Vec::new()));
        };
        let verdict = self.plain_path(tool, access, &real);
        if given == real { verdict } else { self.plain_path(tool, access, &given).and(verdict) }
    }

    fn plain_path(&self, tool: &str, access: FileAccess, path: &Path) -> Verdict {
        for effect in [Effect::Deny, Effect::Ask] {
            if let Some(rule) = self
                .rules(effect)
                .find(|rule| self.covers_path(&rule.rule, tool, access, path, Reading::Wide))
            {
                return by_rule(rule);
            }
        }
        let mode = self.policy.mode;
        if mode == Mode::Plan && access == FileAccess::Write {
            return Verdict::deny("plan mode changes nothing");
        }
        let inside = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        let protected = match access {
            FileAccess::Read => None,
            FileAccess::Write => self.protected(path, inside(&self.writable)),
        };
        let allowing = self.rules(Effect::Allow).find(|rule| {
            self.covers_path(&rule.rule, tool, access, path, Reading::Narrow)
                && protected.as_ref().is_none_or(|protected| self.names(&rule.rule, protected))
        });
        if let Some(rule) = allowing {
            return by_rule(rule);
        }
        let shown = path.display();
        match (access, mode, protected) {
            (_, Mode::Unattended, _) => unattended(),
            (FileAccess::Read, _, _) if inside(&self.readable) => Verdict::allow("reads inside the project"),
            (FileAccess::Read, _, _) => Verdict::ask(
                format!("reads {shown}, outside the project"),
                vec![format!("Read({})", escaped(path))],
            ),
            (FileAccess::Write, _, Some(Protected::Outside)) => Verdict::ask(
                format!("writes {shown}, outside the project"),
                vec![format!("Edit({})", escaped(path))],
            ),
            (FileAccess::Write, _, Some(Protected::Name(name, _))) => Verdict::ask(
                format!("writes {shown}: {name} is protected"),
                vec![format!("Edit({})", self.pattern_for(path))],
            ),
            (FileAccess::Write, Mode::AcceptEdits, None) => {
                Verdict::allow("edits inside the project are accepted")
            }
            (FileAccess::Write, _, None) => {
                Verdict::ask(format!("writes {shown}"), vec![format!("Edit({})", self.pattern_for(path))])
            }
        }
    }

    fn covers_path(
        &self,
        rule: &Rule,
        tool: &str,
        access: FileAccess,
        path: &Path,
        reading: Reading,
    ) -> bool {
        let bases = Bases { project: &self.project, home: &self.home };
        match (&rule.covers, access) {
            (Covers::Everything, _) => true,
            (Covers::Tool(name), FileAccess::Read) => name == tool || name == "Read",
            (Covers::Tool(name), FileAccess::Write) => name == tool || name == "Edit" || name == "Write",
            (Covers::Read(pattern), FileAccess::Read) | (Covers::Edit(pattern), FileAccess::Write) => {
                pattern.matches(path, bases, reading)
            }
            // What must not be read must not be overwritten either.
            (Covers::Read(pattern), FileAccess::Write) => {
                reading == Reading::Wide && pattern.matches(path, bases, reading)
            }
            _ => false,
        }
    }

    /// Whether a path, as given or where it leads, is in the home directory.
    pub(crate) fn is_home(&self, path: &Path) -> bool {
        let both = [Some(normalise(path)), resolve(path)];
        both.into_iter().flatten().any(|path| self.home.iter().any(|home| path.starts_with(home)))
    }

    /// Whether the home directory or a directory of the work is below this one.
    pub(crate) fn works_below(&self, top: &Path) -> bool {
        self.home.iter().chain(&self.readable).any(|place| place.starts_with(top))
    }

    /// Whether a rule that denies or asks is about reading a path.
    pub(crate) fn is_ruled(&self, path: &Path) -> bool {
        let both: Vec<PathBuf> = [Some(normalise(path)), resolve(path)].into_iter().flatten().collect();
        let covers = |rule: &SourcedRule| {
            both.iter()
                .any(|path| self.covers_path(&rule.rule, "Read", FileAccess::Read, path, Reading::Wide))
        };
        [Effect::Deny, Effect::Ask].into_iter().any(|effect| self.rules(effect).any(covers))
    }

    /// Whether a rule about paths speaks of this one.
    pub(crate) fn matches(&self, rule: &Rule, path: &Path) -> bool {
        let bases = Bases { project: &self.project, home: &self.home };
        match &rule.covers {
            Covers::Read(pattern) | Covers::Edit(pattern) => pattern.matches(path, bases, Reading::Wide),
            _ => false,
        }
    }

    fn protected(&self, path: &Path, inside: bool) -> Option<Protected> {
        let below = self.writable.iter().filter_map(|base| path.strip_prefix(base).ok());
        // The project itself may lie in a place of that name.
        let below = below.min_by_key(|rest| rest.components().count()).unwrap_or(path);
        match protected_name(below) {
            Some((name, count)) => {
                let base = path.components().count() - below.components().count();
                Some(Protected::Name(name, path.components().take(base + count).collect()))
            }
            None if inside => None,
            None => Some(Protected::Outside),
        }
    }

    /// Whether a rule speaks of the protected place itself, not just of everything.
    fn names(&self, rule: &Rule, protected: &Protected) -> bool {
        match (&rule.covers, protected) {
            (Covers::Edit(pattern), Protected::Outside) => pattern.literal.starts_with(['/', '~']),
            (Covers::Edit(pattern), Protected::Name(name, place)) => {
                if let Some(rest) = pattern.literal.strip_prefix("~/") {
                    self.home.iter().any(|home| home.join(rest).starts_with(place))
                } else if pattern.literal.starts_with('/') {
                    Path::new(&pattern.literal).starts_with(place)
                } else {
                    // `.cargo/**` speaks of `.cargo/config.toml`, too.
                    let wanted = name.split('/').next().unwrap_or(name);
                    pattern.literal.split('/').any(|part| part.eq_ignore_ascii_case(wanted))
                }
            }
            _ => false,
        }
    }

    /// From the project root where it lies in it.
    fn pattern_for(&self, path: &Path) -> String {
        let below = self.project.iter().find_map(|base| path.strip_prefix(base).ok());
        match below {
            Some(below) if below.components().count() > 1 => escaped(below),
            Some(below) => format!("./{}", escaped(below)),
            None => escaped(path),
        }
    }
}

/// Whether a path goes through a process in `/proc`.
fn through_proc(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else { return false };
    let mut parts = below.components().map(|part| part.as_os_str().to_str().unwrap_or_default());
    let process = parts.next().is_some_and(|name| {
        name == "self" || name == "thread-self" || name.bytes().all(|byte| byte.is_ascii_digit())
    });
    process && parts.any(|part| matches!(part, "cwd" | "root" | "fd" | "task" | "map_files" | "exe"))
}

/// Why writing somewhere always asks.
enum Protected {
    /// The name, and the path down to it.
    Name(&'static str, PathBuf),
    Outside,
}

pub(crate) fn by_rule(rule: &SourcedRule) -> Verdict {
    let named = format!("{} ({})", rule.rule, rule.source);
    match rule.effect {
        Effect::Allow => {
            Verdict::Allow { why: format!("allowed by {named}"), rule: Some(named), fence: Profile::None }
        }
        // No further rule helps: ask beats allow.
        Effect::Ask => Verdict::ask(format!("the rule {named} asks"), Vec::new()),
        Effect::Deny => Verdict::Deny { why: format!("denied by {named}"), rule: Some(named) },
    }
}

pub(crate) fn unattended() -> Verdict {
    Verdict::allow("unattended: no rule denies it")
}

/// Characters of a path that would be wildcards in a pattern.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().chars().fold(String::new(), |mut text, c| {
        if "*?[]{}\\".contains(c) {
            text.push('\\');
        }
        text.push(c);
        text
    })
}

fn fits_mcp(pattern: &str, full: &str) -> bool {
    wildcard(pattern, full) || full.strip_prefix(pattern).is_some_and(|rest| rest.starts_with("__"))
}
