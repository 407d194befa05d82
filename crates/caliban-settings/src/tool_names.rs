//! The names of all tools that an agent can have, to find mistyped ones in rules and `--tools`.

use crate::values::close_match;

/// The tools that every agent can have.
const ALWAYS: [&str; 12] = [
    "Read",
    "Write",
    "Edit",
    "Bash",
    "BashOutput",
    "BashInput",
    "KillShell",
    "Glob",
    "Grep",
    "WebFetch",
    "TodoWrite",
    "AgentTool",
];

/// The tools of models of the GPT family, of whoever has skills or MCP resources, of a session with a person, and those of an agent with a mailbox.
const SOMETIMES: [&str; 10] = [
    "apply_patch",
    "Skill",
    "McpResource",
    "WebSearch",
    "spawn_background",
    "BrokerAgents",
    "BrokerSend",
    "BrokerBroadcast",
    "BrokerInbox",
    "BrokerAck",
];

/// What a rule can name beside tools: a command that outlives its agent (`Bash` with `detach`).
const RIGHTS: [&str; 1] = ["Detach"];

/// How the names of MCP servers' tools begin. Which there are is known when the servers run, so any name is possible.
const FOREIGN: &str = "mcp__";

/// Whether some agent can have a tool of this name.
pub fn is_known(name: &str) -> bool {
    is_for_all(name) || SOMETIMES.contains(&name) || RIGHTS.contains(&name)
}

/// Whether every agent can have a tool of this name.
pub fn is_for_all(name: &str) -> bool {
    ALWAYS.contains(&name) || name.starts_with(FOREIGN)
}

/// Our tool for a name of Claude Code's, where ours is called differently.
pub fn ours(theirs: &str) -> Option<&'static str> {
    Some(match theirs {
        "MultiEdit" | "NotebookEdit" => "Edit",
        "NotebookRead" | "LS" => "Read",
        "Task" | "Agent" => "AgentTool",
        "KillBash" => "KillShell",
        _ => return None,
    })
}

/// All names but those of MCP servers' tools.
pub fn all() -> Vec<&'static str> {
    ALWAYS.into_iter().chain(SOMETIMES).collect()
}

/// What to say to somebody who named a tool that there is not.
pub fn hint(name: &str) -> String {
    match close_match(name, ALWAYS.into_iter().chain(SOMETIMES).chain(RIGHTS)) {
        Some(close) if close != name => format!("did you mean `{close}`?"),
        _ => format!("the tools are {}, and {FOREIGN}SERVER__TOOL", ALWAYS.join(", ")),
    }
}
