//! The rules of one agent, and the one question that is put to them: may this call go ahead?
//!
//! Deny beats ask beats allow, whichever layer a rule comes from. It decides; it neither asks nor runs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use caliban_core::{access::Access, fence::Profile, mode::Mode};
use caliban_rooted::Roots;
use serde::{Deserialize, Serialize};

use crate::{
    command_pattern::wildcard,
    inherit::in_both,
    path::{Bases, PathPattern, Reading, as_given_and_real, normalise, resolve},
    protected::protected_name,
    rule::{Covers, Rule, plain_host},
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
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SourcedRule {
    /// What it does.
    pub effect: Effect,
    /// What it covers.
    pub rule: Rule,
    /// Where it comes from: `~/.config/caliban/settings.toml`, `--allow`.
    pub source: String,
    /// When a person gave it, in milliseconds since 1970; before the agent began when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_at: Option<u64>,
}

/// All that decides about the calls of one agent. As text it goes to a process of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// What holds where no rule does.
    pub mode: Mode,
    /// Of all layers; their order does not matter.
    pub rules: Vec<SourcedRule>,
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
    #[serde(skip)]
    pub fencing: Fencing,
    /// Whether git keeps what rules keep from being read: then its objects are in no fence.
    #[serde(skip)]
    pub hides_objects: bool,
    /// The directories above, each as it was when it was first looked at. Not part of what one agent hands to another.
    #[serde(skip)]
    pub roots: Roots,
    /// Where the shell looks for programs.
    #[serde(skip)]
    pub path: Vec<PathBuf>,
    /// Where Caliban keeps what agents make besides their work: their `/tmp`, their outputs. Whatever is there counts as an agent's.
    #[serde(skip)]
    pub agents_places: Vec<PathBuf>,
    /// Whether another command of the conversation runs that can change files meanwhile.
    #[serde(skip)]
    pub is_written_meanwhile: bool,
    /// When the agent began, in milliseconds since 1970. A program that changed since then where the agent writes counts as the agent's
    /// own; when absent, every program there does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub began_at: Option<u64>,
    /// The only tools of the agent and of every agent that it starts; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
            hides_objects: false,
            roots: Roots::default(),
            path: Vec::new(),
            agents_places: Vec::new(),
            is_written_meanwhile: false,
            began_at: None,
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

    /// Whether an agent that this one starts may edit in a worktree of its own: only where this one edits and runs commands
    /// in the edit fence without a question, too. In plan mode no worktree is made at all.
    pub fn lends_edits(&self) -> bool {
        self.mode != Mode::Default || self.edits_own_worktree()
    }

    /// Whether it has a worktree of its own, with the rule that lets it edit there.
    pub(crate) fn edits_own_worktree(&self) -> bool {
        self.worktree.as_ref().is_some_and(|root| {
            let file = root.join("any");
            matches!(Judge::new(self).path("Edit", FileAccess::Write, &file), Verdict::Allow { .. })
        })
    }

    /// Adds a rule that holds since before the agent began.
    pub fn add(&mut self, effect: Effect, rule: Rule, source: impl Into<String>) {
        self.rules.push(SourcedRule { effect, rule, source: source.into(), given_at: None });
    }

    /// Adds a rule that a person gave at this time, in milliseconds since 1970: programs are what they were then.
    pub fn add_at(&mut self, at: u64, effect: Effect, rule: Rule, source: impl Into<String>) {
        self.rules.push(SourcedRule { effect, rule, source: source.into(), given_at: Some(at) });
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
            .settled()
    }
}

/// Whether commands can be fenced on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fencing {
    /// They can. A verdict that counts on it names the fence.
    #[default]
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
    pub(crate) writable: Vec<PathBuf>,
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
        // Where a directory leads is found once: an agent may put a link in its place.
        let real = |path: &Path| policy.roots.real(path).or_else(|| resolve(path));
        let both = |paths: Vec<&PathBuf>| -> Vec<PathBuf> {
            let mut all: Vec<PathBuf> =
                paths.into_iter().flat_map(|path| [Some(normalise(path)), real(path)]).flatten().collect();
            all.sort();
            all.dedup();
            all
        };
        let project = both([&policy.root].into_iter().chain(&policy.worktree).collect());
        let extra = both(policy.extra_dirs.iter().collect());
        Self {
            policy,
            readable: [&project[..], &extra, &both(policy.read_dirs.iter().collect())].concat(),
            writable: both(vec![own]).into_iter().chain(extra).collect(),
            home: as_given_and_real(&policy.home).collect(),
            project,
        }
    }

    fn access(&self, tool: &str, access: &Access) -> Verdict {
        match access {
            Access::Read(path) => return self.path(tool, FileAccess::Read, path),
            Access::Write(path) => return self.path(tool, FileAccess::Write, path),
            Access::Command { line, cwd, outside } => return self.line(tool, line, cwd, outside.as_deref()),
            _ => {}
        }
        let covers = |rule: &SourcedRule| match (&rule.rule.covers, access) {
            // What outlives the agent needs a rule of its own.
            (covers, Access::Detach { .. }) if rule.effect == Effect::Allow => {
                matches!(covers, Covers::Tool(name) if name == DETACH)
            }
            (Covers::Everything, _) => true,
            (Covers::Tool(name), _) => name == tool || Some(name.as_str()) == usual_tool(access),
            (Covers::Mcp(pattern), Access::Mcp { server, tool: name, .. }) => {
                fits_mcp(pattern, &mcp_name(server, name)) || fits_mcp(pattern, tool)
            }
            (Covers::Mcp(pattern), _) => fits_mcp(pattern, tool),
            (Covers::Domain(domain), Access::Fetch { host, .. }) => wildcard(domain, &plain_host(host)),
            _ => false,
        };
        let ruled = self.forbidding().chain(self.rules(Effect::Allow)).find(|rule| covers(rule)).map(by_rule);
        let mode = self.policy.mode;
        let changes = matches!(access, Access::Detach { .. } | Access::Mcp { read_only: false, .. });
        match ruled {
            Some(denied @ Verdict::Deny { .. }) => denied,
            _ if mode == Mode::Plan && changes => Verdict::deny("plan mode changes nothing"),
            Some(ruled) => ruled,
            None => self.unruled(access),
        }
    }

    /// What the mode says about a call that no rule covers. None allows what outlives the agent.
    fn unruled(&self, access: &Access) -> Verdict {
        let ask = |why: String, rule: String| match self.policy.mode {
            Mode::Unattended => unattended(),
            _ => Verdict::ask(why, vec![rule]),
        };
        match access {
            Access::Fetch { host, .. } => {
                ask(format!("fetches from {host}"), format!("WebFetch(domain:{host})"))
            }
            Access::Mcp { server, tool, .. } => {
                ask(format!("calls {tool} of the MCP server {server}"), mcp_name(server, tool))
            }
            Access::Detach { line } => {
                let short: String = caliban_core::inert::line(line).chars().take(QUOTED_CHARACTERS).collect();
                let why = format!("leaves `{short}` running when the agent has ended");
                Verdict::ask(why, vec![DETACH.to_owned()])
            }
            Access::AgentInWorktree if !self.policy.lends_edits() => {
                let why =
                    "starts an agent that edits in a worktree of its own, which this one may not do unasked";
                ask(why.to_owned(), "AgentTool".to_owned())
            }
            Access::Agent | Access::AgentInWorktree => {
                Verdict::allow("what an agent does is judged call by call")
            }
            _ => Verdict::allow("it touches nothing but the conversation"),
        }
    }

    /// The rules that deny, then those that ask.
    pub(crate) fn forbidding(&self) -> impl Iterator<Item = &'a SourcedRule> + use<'a> {
        self.rules(Effect::Deny).chain(self.rules(Effect::Ask))
    }

    /// Those of them that are about files.
    pub(crate) fn about_files(&self, kind: fn(&Covers) -> bool) -> Vec<&'a SourcedRule> {
        self.forbidding().filter(|rule| kind(&rule.rule.covers)).collect()
    }

    pub(crate) fn rules(&self, effect: Effect) -> impl Iterator<Item = &'a SourcedRule> + use<'a> {
        self.policy.rules.iter().filter(move |rule| rule.effect == effect)
    }

    /// The path as given and where it leads: the stricter answer holds.
    pub(crate) fn path(&self, tool: &str, access: FileAccess, path: &Path) -> Verdict {
        let given = normalise(path);
        // What a path through a process leads to is the command's own, not ours.
        let is_own = through_proc(&given);
        let Some(real) = resolve(path).filter(|_| !is_own) else {
            let why =
                if is_own { "only the command knows where that leads" } else { "its links go in a circle" };
            let ask = Verdict::ask(format!("{}: {why}", path.display()), Vec::new());
            return self.plain_path(tool, access, &given).and(ask);
        };
        let verdict = self.plain_path(tool, access, &real);
        if given == real { verdict } else { self.plain_path(tool, access, &given).and(verdict) }
    }

    fn plain_path(&self, tool: &str, access: FileAccess, path: &Path) -> Verdict {
        let covers = |rule: &&SourcedRule| self.covers_path(&rule.rule, tool, access, path, Reading::Wide);
        if let Some(rule) = self.forbidding().find(covers) {
            return by_rule(rule);
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
        let ask =
            |why: String, rule: &str, pattern: String| Verdict::ask(why, vec![format!("{rule}({pattern})")]);
        match (access, mode, protected) {
            (_, Mode::Unattended, _) => unattended(),
            (FileAccess::Read, _, _) if inside(&self.readable) => Verdict::allow("reads inside the project"),
            (FileAccess::Read, _, _) => {
                ask(format!("reads {shown}, outside the project"), "Read", escaped(path))
            }
            (_, _, Some(Protected::Outside)) => {
                ask(format!("writes {shown}, outside the project"), "Edit", escaped(path))
            }
            (_, _, Some(Protected::Name(name, _))) => {
                ask(format!("writes {shown}: {name} is protected"), "Edit", self.pattern_for(path))
            }
            (_, mode, None) if mode.accepts_edits() => {
                Verdict::allow("edits inside the project are accepted")
            }
            (_, _, None) => ask(format!("writes {shown}"), "Edit", self.pattern_for(path)),
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
        match (&rule.covers, access) {
            (Covers::Everything, _) => true,
            (Covers::Tool(name), FileAccess::Read) => name == tool || name == "Read",
            (Covers::Tool(name), FileAccess::Write) => name == tool || name == "Edit" || name == "Write",
            (Covers::Read(pattern), FileAccess::Read) | (Covers::Edit(pattern), FileAccess::Write) => {
                self.fits(pattern, path, reading)
            }
            // What must not be read must not be overwritten either.
            (Covers::Read(pattern), FileAccess::Write) => {
                reading == Reading::Wide && self.fits(pattern, path, reading)
            }
            _ => false,
        }
    }

    /// Whether a path, as given or where it leads, is in the home directory.
    pub(crate) fn is_home(&self, path: &Path) -> bool {
        as_given_and_real(path).any(|path| self.home.iter().any(|home| path.starts_with(home)))
    }

    /// Whether the home directory or a directory of the work is below this one.
    pub(crate) fn works_below(&self, top: &Path) -> bool {
        self.home.iter().chain(&self.readable).any(|place| place.starts_with(top))
    }

    /// Whether a rule about paths speaks of this one.
    pub(crate) fn matches(&self, rule: &Rule, path: &Path) -> bool {
        matches!(&rule.covers, Covers::Read(pattern) | Covers::Edit(pattern) if self.fits(pattern, path, Reading::Wide))
    }

    fn fits(&self, pattern: &PathPattern, path: &Path, reading: Reading) -> bool {
        pattern.matches(path, Bases { project: &self.project, home: &self.home }, reading)
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

fn mcp_name(server: &str, tool: &str) -> String {
    format!("mcp__{server}__{tool}")
}

/// The tool whose name stands for all that do this.
fn usual_tool(access: &Access) -> Option<&'static str> {
    match access {
        Access::Fetch { .. } => Some("WebFetch"),
        Access::Agent | Access::AgentInWorktree => Some("AgentTool"),
        Access::Detach { .. } => Some(DETACH),
        _ => None,
    }
}

fn fits_mcp(pattern: &str, full: &str) -> bool {
    wildcard(pattern, full) || full.strip_prefix(pattern).is_some_and(|rest| rest.starts_with("__"))
}
