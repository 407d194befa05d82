//! Starting a member's program: the stored command, and the pane that runs it.

use std::path::{Path, PathBuf};

use caliban_store::broker::AgentId;
use serde_json::{Value, json};

use super::tmux::{Tmux, TmuxError};
use crate::failure::Failure;
use crate::settings::Settings;

/// A program with its arguments and directory. Kept in the store, so that a recovery starts the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    pub(crate) cwd: String,
    /// The caliban worktree that it works in.
    pub(crate) worktree: Option<String>,
}

impl Launch {
    pub(crate) fn to_text(&self) -> String {
        json!({
            "program": self.program,
            "arguments": self.arguments,
            "cwd": self.cwd,
            "worktree": self.worktree,
        })
        .to_string()
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let word = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let arguments = value.get("arguments")?.as_array()?;
        Some(Self {
            program: word("program")?,
            arguments: arguments.iter().filter_map(|one| one.as_str().map(str::to_owned)).collect(),
            cwd: word("cwd")?,
            worktree: word("worktree"),
        })
    }
}

/// Finds a program as the shell would.
pub(crate) fn find_program(settings: &Settings, name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let is_program = |file: &Path| {
        file.metadata().is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|file| is_program(file));
    }
    let path = settings.path.as_deref().unwrap_or_default();
    std::env::split_paths(path).map(|dir| dir.join(name)).find(|file| is_program(file))
}

/// Makes the pane. Its first process is our own: it claims the member's placement in the store and then becomes the
/// program.
pub(crate) async fn open_pane(
    settings: &Settings,
    tmux: &Tmux,
    beside: &str,
    launch: &Launch,
    member: AgentId,
) -> Result<String, Failure> {
    let failed = |why: String| Failure::refused("pane", format!("cannot make a pane: {why}"));
    let own = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let own =
        own.to_str().ok_or_else(|| failed("the program's own path is not UTF-8".to_owned()))?.to_owned();
    let mut environment = settings.passed_on.clone();
    environment.push(("CAFLEET_DATABASE_URL".to_owned(), settings.database_for_others()?));
    let member = member.to_string();
    let command = [own.as_str(), "member-run", member.as_str()];
    match tmux.split(beside, &launch.cwd, &environment, &command).await {
        Ok(pane) => Ok(pane),
        Err(TmuxError::Failed(why)) if why.contains("no space") => {
            Err(failed(why).hint("make the terminal larger, or close a pane of the window"))
        }
        Err(error) => Err(failed(error.words())),
    }
}

#[cfg(test)]
mod tests {
    use super::Launch;

    #[test]
    fn a_launch_is_stored_and_read_again() {
        let launch = Launch {
            program: "/bin/claude".to_owned(),
            arguments: vec!["--name".to_owned(), "a \"b\"\n".to_owned()],
            cwd: "/work".to_owned(),
            worktree: Some("rev".to_owned()),
        };
        assert_eq!(Launch::from_text(&launch.to_text()), Some(launch));
        assert_eq!(Launch::from_text("{}"), None);
    }
}
