//! What the commands of a session say, in words.

use std::{collections::BTreeMap, path::Path, time::Instant};

use caliban_agent::{
    checkpoint::{self, Undone},
    fork::Point,
};
use caliban_core::{definition::Definition, inert};
use caliban_fleet::protocol::Approval;
use caliban_permissions::{Effect, Policy};
use caliban_tools::limits::DIFF_TIME;
use similar::TextDiff;

use crate::{
    session_places::{Sessions, Shelf},
    sessions::summary::Summaries,
};

/// The most letters of a diff that are shown.
const DIFF_CHARS: usize = 64 * 1024;
/// The most sessions that are listed.
const SESSIONS: usize = 20;
/// The most letters of a prompt in a list.
const PROMPT_CHARS: usize = 70;

/// Lines, or a text when there are none.
pub(super) fn lines(lines: &[String], none: &str) -> String {
    if lines.is_empty() { none.to_owned() } else { lines.join("\n") }
}

/// What the tools of a session have changed, as a patch.
pub(super) fn diff(session: &Path, cwd: &Path) -> String {
    let mut out = String::new();
    let deadline = Instant::now() + DIFF_TIME;
    for changed in checkpoint::changed(session) {
        let now = std::fs::read(&changed.path).ok();
        if now == changed.before {
            continue;
        }
        let name = shown(&changed.path, cwd);
        let text =
            |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let (old, new) = (text(&changed.before), text(&now));
        let head = |text: &Option<String>, prefix: &str| match text {
            Some(_) => format!("{prefix}/{name}"),
            None => "/dev/null".to_owned(),
        };
        let (from, to) = (head(&old, "a"), head(&new, "b"));
        let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
        // Behind the deadline the difference is coarser, not missing.
        let mut diff = TextDiff::configure();
        diff.deadline(deadline);
        out.push_str(&diff.diff_lines(&old, &new).unified_diff().header(&from, &to).to_string());
        if out.len() > DIFF_CHARS {
            out = out.chars().take(DIFF_CHARS).collect();
            out.push_str("\n[…]");
            break;
        }
    }
    match out.is_empty() {
        true => {
            "The tools of this session have changed no file. What commands have changed: !git diff".to_owned()
        }
        // A fence that is longer than any in the patch.
        false => {
            format!("````diff\n{}\n````\nWhat commands have changed is not in it: !git diff", out.trim_end())
        }
    }
}

/// What came of an undo.
pub(crate) fn undone(undone: &Undone, cwd: &Path) -> String {
    let mut lines = Vec::new();
    lines.extend(undone.restored.iter().map(|path| format!("as it was: {}", shown(path, cwd))));
    lines.extend(
        undone.removed.iter().map(|path| format!("removed, as it was not there: {}", shown(path, cwd))),
    );
    lines.extend(undone.left.iter().map(|(path, why)| format!("left as it is, {why}: {}", shown(path, cwd))));
    self::lines(&lines, "No file had to be brought back.")
}

/// The prompts that one can go back to.
pub(crate) fn points(points: &[Point]) -> String {
    let lines =
        points.iter().enumerate().map(|(at, point)| format!("{}  {}", at + 1, first_line(&point.text)));
    let lines: Vec<String> = lines.collect();
    format!("name a prompt by its number:\n{}", lines.join("\n"))
}

/// The latest sessions of a repo.
pub(super) fn sessions(sessions: &Sessions) -> String {
    let present = sessions.list();
    let mut summaries = Summaries::open(sessions, Shelf::Sessions);
    let lines = present
        .iter()
        .take(SESSIONS)
        .filter_map(|found| Some(format!("{}  {}", found.id, summaries.get(found).ok()?.title)));
    let lines: Vec<String> = lines.collect();
    summaries.keep(&present);
    self::lines(&lines, "There are no sessions.")
}

/// The mode and the rules.
pub(super) fn permissions(policy: &Policy) -> String {
    let mut lines = vec![format!("Mode: {} (/mode changes it)", policy.mode)];
    for rule in &policy.rules {
        let effect = match rule.effect {
            Effect::Allow => "allow",
            Effect::Ask => "ask",
            Effect::Deny => "deny",
        };
        lines.push(inert::line(&format!("{effect} {}  ({})", rule.rule, rule.source)).into_owned());
    }
    if policy.rules.is_empty() {
        lines.push("No rules.".to_owned());
    }
    lines.join("\n")
}

/// The MCP servers, by the names of their tools, and those that were left out.
pub(super) fn mcp<'a>(tools: impl Iterator<Item = &'a str>, left_out: Vec<String>) -> Vec<String> {
    let mut servers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (server, tool) in tools.filter_map(|name| name.strip_prefix("mcp__")?.split_once("__")) {
        servers.entry(server).or_default().push(tool);
    }
    let lines = servers.into_iter().map(|(server, tools)| format!("{server}: {}", tools.join(", ")));
    lines.chain(left_out).collect()
}

/// The instruction files among the context that the model was given.
pub(super) fn memory(context: &[String]) -> Vec<String> {
    let file = |block: &String| {
        let name = block.strip_prefix("<instructions file=\"")?.split_once('"')?.0;
        Some(format!("{}: {} lines", inert::line(name), block.lines().count().saturating_sub(2)))
    };
    context.iter().filter_map(file).collect()
}

pub(super) fn agents(types: &[Definition]) -> String {
    let mut lines: Vec<String> = types
        .iter()
        .map(|kind| format!("{}: {}", inert::line(&kind.name), inert::line(&kind.description)))
        .collect();
    if lines.is_empty() {
        lines.push("There are no agent types.".to_owned());
    }
    lines.push("The agents of the fleet: `caliban agents`, on the screen Ctrl+X a.".to_owned());
    lines.join("\n")
}

/// What agents ask.
pub(super) fn approvals(open: &[Approval]) -> String {
    let mut lines: Vec<String> = open
        .iter()
        .map(|asked| {
            let label = asked.label.as_ref().map(|label| format!(" ({label})")).unwrap_or_default();
            inert::line(&format!("{}{label}: {}", asked.agent, asked.ask.what)).into_owned()
        })
        .collect();
    if lines.is_empty() {
        return "Nobody asks anything.".to_owned();
    }
    lines.push("Answer with `caliban approve`, or on the screen with Ctrl+X a.".to_owned());
    lines.join("\n")
}

fn shown(path: &Path, cwd: &Path) -> String {
    inert::line(&path.strip_prefix(cwd).unwrap_or(path).display().to_string()).into_owned()
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let cut: String = inert::line(line.trim()).chars().take(PROMPT_CHARS).collect();
    cut
}
