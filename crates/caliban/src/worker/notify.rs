//! Tells the user's own command when an agent needs a person, or has ended.
//!
//! Never waited for by the agent: a command that hangs holds up nothing. A worker that is killed cannot tell anybody; then
//! the daemon does, through a mode of this program.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use caliban_agent::Agent;
use caliban_tools::WorkspaceOptions;
use tokio::task::JoinSet;

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What is told, in `CALIBAN_EVENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// It asks for a permission; the text is the call.
    NeedsYou,
    /// Its turn is over, and it waits for a message; the text is what it said.
    Idle,
    /// It has ended, with its work done; the text is what it said.
    Done,
    /// It has ended without; the text is why.
    Failed,
    /// Somebody ended it; only the daemon tells this.
    Killed,
    /// Its process is gone without a word; only the daemon tells this.
    Crashed,
}

impl News {
    fn name(self) -> &'static str {
        match self {
            Self::NeedsYou => "needs_you",
            Self::Idle => "idle",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Crashed => "crashed",
        }
    }

    /// What the daemon tells, by its name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Failed, Self::Killed, Self::Crashed].into_iter().find(|news| news.name() == name)
    }
}

/// Runs the command of `fleet.notify`.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    command: Option<String>,
    agent: String,
    label: String,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    running: JoinSet<()>,
}

impl Notifier {
    pub(super) fn new(command: Option<String>, agent: &Agent, workspace: &WorkspaceOptions) -> Self {
        Self {
            command,
            agent: agent.kit().session.clone(),
            label: agent.kit().label.clone().unwrap_or_default(),
            env: workspace.env.clone(),
            cwd: workspace.root.clone(),
            running: JoinSet::new(),
        }
    }

    /// For an agent that could not begin, or is gone.
    pub(super) fn bare(
        command: Option<String>,
        agent: String,
        label: String,
        env: Vec<(OsString, OsString)>,
        cwd: PathBuf,
    ) -> Self {
        Self { command, agent, label, env, cwd, running: JoinSet::new() }
    }

    /// Begins to tell. Best effort.
    pub(super) fn tell(&mut self, news: News, text: &str) {
        while self.running.try_join_next().is_some() {}
        let Some(command) = &self.command else { return };
        let child = tokio::process::Command::new("sh")
            .args(["-c", command])
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("CALIBAN_EVENT", news.name())
            .env("CALIBAN_AGENT", &self.agent)
            .env("CALIBAN_LABEL", &self.label)
            .env("CALIBAN_TEXT", caliban_core::inert::line(text).as_ref())
            .current_dir(&self.cwd)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .status();
        self.running.spawn(async move {
            match tokio::time::timeout(LIMIT, child).await {
                Ok(Ok(status)) if status.success() => {}
                Ok(Ok(status)) => tracing::warn!(%status, "the notify command failed"),
                Ok(Err(error)) => tracing::warn!(%error, "the notify command cannot run"),
                Err(_) => tracing::warn!("the notify command took too long"),
            }
        });
    }

    /// Waits until all is told, or has taken too long.
    pub(super) async fn finish(mut self) {
        while self.running.join_next().await.is_some() {}
    }
}
