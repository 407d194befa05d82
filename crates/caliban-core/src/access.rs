//! What a tool call would touch, as data: the tool says it, the permission rules judge it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One thing that a call would do. A call may have several; all of them must be allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Reads this absolute path (links not yet resolved).
    Read(PathBuf),
    /// Creates or changes this absolute path (links not yet resolved).
    Write(PathBuf),
    /// Runs this command line in a shell, in this directory.
    Command {
        /// The line as the shell would get it.
        line: String,
        /// The absolute working directory.
        cwd: PathBuf,
        /// Why the model wants it to run outside of the fence, when it does.
        outside: Option<String>,
    },
    /// Fetches this URL.
    Fetch {
        /// The whole URL.
        url: String,
        /// Its host, lower case, without port.
        host: String,
    },
    /// Calls a tool of an MCP server.
    Mcp {
        /// The server's name.
        server: String,
        /// The tool's name there.
        tool: String,
        /// Whether the server says that the tool only reads.
        read_only: bool,
    },
    /// Leaves this command running when the agent has ended.
    Detach {
        /// The line as the shell would get it.
        line: String,
    },
    /// Starts another agent; what that one does is judged call by call.
    Agent,
    /// Starts another agent in a worktree that is made for it, where it edits without a question.
    AgentInWorktree,
    /// Touches nothing but the conversation itself (the todo list, output of a running job).
    Nothing,
}

impl Access {
    /// Whether this can change anything outside the conversation. A command counts as changing.
    pub fn changes_something(&self) -> bool {
        match self {
            Self::Write(_) | Self::Command { .. } | Self::Detach { .. } => true,
            Self::Agent | Self::AgentInWorktree => true,
            Self::Mcp { read_only, .. } => !read_only,
            Self::Read(_) | Self::Fetch { .. } | Self::Nothing => false,
        }
    }
}
