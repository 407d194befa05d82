//! The names of all tools that an agent can have, to find mistyped ones in rules and `--tools`.

use crate::settings::values::close_match;

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
pub(crate) fn is_known(name: &str) -> bool {
    is_for_all(name) || SOMETIMES.contains(&name) || RIGHTS.contains(&name)
}

/// Whether every agent can have a tool of this name.
pub(crate) fn is_for_all(name: &str) -> bool {
    ALWAYS.contains(&name) || name.starts_with(FOREIGN)
}

/// Our tool for a name of Claude Code's, where ours is called differently.
pub(crate) fn ours(theirs: &str) -> Option<&'static str> {
    Some(match theirs {
        "MultiEdit" | "NotebookEdit" => "Edit",
        "NotebookRead" | "LS" => "Read",
        "Task" | "Agent" => "AgentTool",
        "KillBash" => "KillShell",
        _ => return None,
    })
}

/// All names but those of MCP servers' tools.
pub(crate) fn all() -> Vec<&'static str> {
    ALWAYS.into_iter().chain(SOMETIMES).collect()
}

/// What to say to somebody who named a tool that there is not.
pub(crate) fn hint(name: &str) -> String {
    match close_match(name, ALWAYS.into_iter().chain(SOMETIMES).chain(RIGHTS)) {
        Some(close) if close != name => format!("did you mean `{close}`?"),
        _ => format!("the tools are {}, and {FOREIGN}SERVER__TOOL", ALWAYS.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_tool_of_ours_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let options = caliban_tools::WorkspaceOptions {
            root: dir.path().to_owned(),
            extra_dirs: Vec::new(),
            project: None,
            roots: Default::default(),
            output_dir: dir.path().join("outputs"),
            env: Vec::new(),
            helper: "/bin/false".into(),
            private_addresses: caliban_core::address::AddressPolicy::PublicOnly,
            detach: None,
            search: None,
            redact: None,
            limits: caliban_tools::ToolLimits::default(),
            http: caliban_http::ClientOptions::default(),
            editor: None,
        };
        let workspace: Arc<_> = caliban_tools::Workspace::new(options).unwrap();
        let mut names: Vec<String> =
            caliban_tools::builtin(&workspace).iter().map(|tool| tool.spec().name.clone()).collect();
        names.push(caliban_agent::subagent::NAME.to_owned());
        assert_eq!(names, ALWAYS);
        let mut names = vec![
            caliban_tools::APPLY_PATCH,
            crate::skills::TOOL,
            caliban_mcp::RESOURCE_TOOL,
            caliban_agent::background::TOOL,
        ];
        names.extend(crate::broker::tool_names());
        names.insert(3, "WebSearch");
        assert_eq!(names, SOMETIMES);
    }
}
