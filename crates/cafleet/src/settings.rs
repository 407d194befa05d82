//! The settings from the environment. The only reader of environment variables in this binary.
//!
//! Refuses: identities. `--session-id` and `--agent-id` are literal flags and nothing else. The fleet's mark can only
//! take rights away.

use std::path::{Path, PathBuf};

use caliban_contract::PlaceSources;
use caliban_settings::Environment;
use caliban_store::StoreUrl;

use crate::failure::{Failure, shown};

/// Default number of codepoints of a body that are shown.
const DEFAULT_MAX_TEXT_LEN: usize = 200;
/// Default path of the database below the home directory.
const DEFAULT_DATABASE: &str = ".local/share/cafleet/registry.db";

/// Default number of seconds after which a held message or a silent member is reported.
const DEFAULT_NOTICE_AFTER: u64 = 300;
/// The variables, besides the database, that a member's program inherits from its Director.
const PASSED_ON: [&str; 5] = ["PATH", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"];

/// The environment, read once.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Codepoints of a body that are shown without `--full`.
    pub(crate) max_text_len: usize,
    /// `$TMUX`, set inside tmux.
    pub(crate) tmux: Option<String>,
    /// `$TMUX_PANE`, set inside tmux.
    pub(crate) tmux_pane: Option<String>,
    /// The mark that every process of a fleet agent carries, unless it removed it.
    pub(crate) fleet_mark: Option<String>,
    /// The directory of Claude Code's settings, skills and sessions.
    pub(crate) claude_dir: Option<PathBuf>,
    /// Claude Code's own state file.
    pub(crate) claude_state: Option<PathBuf>,
    /// Codex's directory.
    pub(crate) codex_dir: Option<PathBuf>,
    /// `$PATH`.
    pub(crate) path: Option<String>,
    /// The variables that a member's program inherits from its Director.
    pub(crate) passed_on: Vec<(String, String)>,
    /// Whether commands start a deliverer for messages that they leave to be typed.
    pub(crate) starts_deliverer: bool,
    /// Number of seconds after which something that waits is reported.
    pub(crate) notice_after: u64,
    /// The dashboard's address, and the directories of the fleets.
    pub(crate) server: ServerSettings,
    database_url: Option<String>,
    home: Option<PathBuf>,
}

/// The whole environment: what an agent gets of the person who starts the server.
pub(crate) fn whole() -> Environment {
    Environment::of_process()
}

/// The dashboard's settings from the environment.
#[derive(Debug, Clone)]
pub(crate) struct ServerSettings {
    /// `$CAFLEET_BROKER_HOST`.
    pub(crate) host: Option<String>,
    /// `$CAFLEET_BROKER_PORT`.
    pub(crate) port: Option<String>,
    /// The directories of the fleets; none without a home directory.
    pub(crate) places: Option<PlaceSources>,
}

impl ServerSettings {
    fn read(home: Option<&Path>) -> Self {
        let path = |name: &str| var(name).map(PathBuf::from);
        let data = path("XDG_DATA_HOME")
            .filter(|data| data.is_absolute())
            .or_else(|| home.map(|home| home.join(".local/share")))
            .map(|data| data.join("caliban"));
        let places = data.map(|data| PlaceSources {
            daemon_runtime_dir: path("CALIBAN_DAEMON_RUNTIME_DIR"),
            xdg_runtime_dir: path("XDG_RUNTIME_DIR"),
            tmpdir: path("TMPDIR"),
            data,
        });
        Self { host: var("CAFLEET_BROKER_HOST"), port: var("CAFLEET_BROKER_PORT"), places }
    }
}

impl Settings {
    pub(crate) fn read() -> Result<Self, Failure> {
        let home = var("HOME").map(PathBuf::from);
        let max_text_len = match var("CAFLEET_MAX_TEXT_LEN") {
            None => DEFAULT_MAX_TEXT_LEN,
            Some(text) => text.trim().parse().map_err(|_| {
                let words = format!("CAFLEET_MAX_TEXT_LEN must be a whole number, not '{}'", shown(&text));
                Failure::refused("settings", words)
            })?,
        };
        let notice_after = match var("CAFLEET_NOTICE_AFTER") {
            None => DEFAULT_NOTICE_AFTER,
            Some(text) => text.trim().parse().map_err(|_| {
                let words =
                    format!("CAFLEET_NOTICE_AFTER must be a number of seconds, not '{}'", shown(&text));
                Failure::refused("settings", words)
            })?,
        };
        Ok(Self {
            max_text_len,
            notice_after,
            passed_on: PASSED_ON
                .iter()
                .filter_map(|name| var(name).map(|value| ((*name).to_owned(), value)))
                .collect(),
            starts_deliverer: var("CAFLEET_DELIVERER").is_none_or(|value| value != "off"),
            fleet_mark: var("CALIBAN_AGENT_ID"),
            tmux: var("TMUX"),
            tmux_pane: var("TMUX_PANE"),
            claude_state: var("CLAUDE_CONFIG_DIR")
                .map(PathBuf::from)
                .or_else(|| home.clone())
                .map(|dir| dir.join(".claude.json")),
            codex_dir: var("CODEX_HOME")
                .map(PathBuf::from)
                .or_else(|| home.as_ref().map(|home| home.join(".codex"))),
            path: var("PATH"),
            claude_dir: var("CLAUDE_CONFIG_DIR")
                .map(PathBuf::from)
                .or_else(|| home.as_ref().map(|home| home.join(".claude"))),
            server: ServerSettings::read(home.as_deref()),
            database_url: var("CAFLEET_DATABASE_URL"),
            home,
        })
    }

    /// The database's URL for a process with another working directory.
    pub(crate) fn database_for_others(&self) -> Result<String, Failure> {
        let StoreUrl::Sqlite(file) = self.database()?;
        let path = std::path::absolute(file.path())
            .map_err(|error| Failure::internal(format!("cannot tell where the database is: {error}")))?;
        Ok(format!("sqlite:///{}", path.display()))
    }

    /// The directory that the database is in.
    pub(crate) fn database_dir(&self) -> Result<PathBuf, Failure> {
        let StoreUrl::Sqlite(file) = self.database()?;
        let path = std::path::absolute(file.path())
            .map_err(|error| Failure::internal(format!("cannot tell where the database is: {error}")))?;
        Ok(path.parent().map(Path::to_owned).unwrap_or_default())
    }

    /// The database to use.
    pub(crate) fn database(&self) -> Result<StoreUrl, Failure> {
        let refused = |words: String| Failure::refused("settings", words);
        match (&self.database_url, &self.home) {
            (Some(url), _) => {
                let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
                StoreUrl::parse(url, &here).map_err(|error| refused(shown(&error.to_string())))
            }
            (None, Some(home)) if home.is_absolute() => {
                Ok(StoreUrl::sqlite(Path::join(home, DEFAULT_DATABASE)))
            }
            (None, _) => Err(refused("HOME is not set; set CAFLEET_DATABASE_URL".to_owned())),
        }
    }
}

/// Whether a variable is one that is read here, or by tmux.
pub(crate) fn is_ours(name: &str) -> bool {
    let ours = ["CAFLEET_", "CALIBAN_", "TMUX"];
    PASSED_ON.contains(&name) || ours.iter().any(|start| name.starts_with(start))
}

/// An empty variable counts as unset.
#[expect(clippy::disallowed_methods, reason = "this is the settings module")]
fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
