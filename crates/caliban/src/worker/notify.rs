//! Tells the user's own command when an agent needs a person, or has ended.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use caliban_agent::Agent;
use caliban_tools::WorkspaceOptions;

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Runs the command of `fleet.notify`.
pub(super) struct Notifier {
    command: Option<String>,
    agent: String,
    label: String,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
}

impl Notifier {
    pub(super) fn new(command: Option<String>, agent: &Agent, workspace: &WorkspaceOptions) -> Self {
        Self {
            command,
            agent: agent.kit().session.clone(),
            label: agent.kit().label.clone().unwrap_or_default(),
            env: workspace.env.clone(),
            cwd: workspace.root.clone(),
        }
    }

    pub(super) async fn needs_you(&self, what: &str) {
        self.run("needs_you", what).await;
    }

    pub(super) async fn ended(&self, how: &str, is_done: bool) {
        self.run(if is_done { "done" } else { "failed" }, how).await;
    }

    /// Best effort: a notification that fails must not hold up the agent.
    async fn run(&self, event: &str, text: &str) {
        let Some(command) = &self.command else { return };
        let child = tokio::process::Command::new("sh")
            .args(["-c", command])
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("CALIBAN_EVENT", event)
            .env("CALIBAN_AGENT", &self.agent)
            .env("CALIBAN_LABEL", &self.label)
            .env("CALIBAN_TEXT", caliban_core::inert::line(text).as_ref())
            .current_dir(&self.cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .status();
        match tokio::time::timeout(LIMIT, child).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => tracing::warn!(%status, "the notify command failed"),
            Ok(Err(error)) => tracing::warn!(%error, "the notify command cannot run"),
            Err(_) => tracing::warn!("the notify command took too long"),
        }
    }
}
