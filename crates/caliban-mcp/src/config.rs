//! What a server is reached by; all of it is given, nothing is looked up.

use std::{ffi::OsString, path::PathBuf, time::Duration};

/// How long a tool call may take, unless the settings say otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a server may take to start and list its tools, unless the settings say otherwise.
pub const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// One configured server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Its name, as rules and tool names have it.
    pub name: String,
    /// Where it is.
    pub endpoint: McpEndpoint,
    /// How long one tool call may take.
    pub timeout: Duration,
    /// How long starting and listing the tools may take.
    pub startup_timeout: Duration,
}

/// Where a server is.
#[derive(Clone)]
pub enum McpEndpoint {
    /// A program that speaks over its standard input and output.
    Stdio {
        /// The program whose hidden mode keeps commands (`caliban_contract::modes::REAP`): the own executable.
        helper: PathBuf,
        /// The program.
        command: OsString,
        /// Its arguments.
        args: Vec<OsString>,
        /// Its whole environment.
        env: Vec<(OsString, OsString)>,
        /// Its working directory.
        cwd: PathBuf,
        /// The fence that it runs in; none when it runs as the user.
        fence: Option<caliban_fence::ProgramFence>,
        /// What it may take of the machine without a fence.
        limits: caliban_contract::tree_limits::TreeLimits,
    },
    /// A URL that speaks the older way: a stream of events, and requests to an address that it names.
    Sse {
        /// The URL of the stream.
        url: String,
        /// Headers of every request (`Authorization`).
        headers: Vec<(String, String)>,
    },
    /// A URL that speaks streamable HTTP.
    Http {
        /// The URL.
        url: String,
        /// Headers of every request (`Authorization`).
        headers: Vec<(String, String)>,
    },
}

/// Values of variables and headers are secrets more often than not.
impl std::fmt::Debug for McpEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stdio { helper: _, command, args, env, cwd, fence: _, limits: _ } => {
                let names: Vec<_> = env.iter().map(|(name, _)| name).collect();
                f.debug_struct("Stdio")
                    .field("command", command)
                    .field("args", args)
                    .field("env", &names)
                    .field("cwd", cwd)
                    .finish()
            }
            Self::Http { url, headers } | Self::Sse { url, headers } => {
                let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
                f.debug_struct("Http").field("url", url).field("headers", &names).finish()
            }
        }
    }
}
