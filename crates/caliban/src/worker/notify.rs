//! Runs the user's `fleet.notify` command when an agent needs a person, or has ended.
//!
//! The agent never waits for it: a command that hangs delays nothing. A worker that is killed cannot run it; then the daemon
//! does, through a mode of this program.

use std::{path::PathBuf, time::Duration};

use caliban_agent::Agent;
use caliban_fence::ProgramFence;
use caliban_keeper::{CommandEnd, KeptOutput, Launch, Streams, Supervised, SupervisedEnd, Variables};
use caliban_tools::WorkspaceOptions;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long the command may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The event, in `CALIBAN_EVENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    /// It asks for a permission; the text is the call.
    NeedsYou,
    /// Most of a budget is used up, told once for each; the text says whose, and how much.
    Budget,
    /// Its turn is over, and it waits for a message; the text is what it said.
    Idle,
    /// It has ended, with its work done; the text is what it said.
    Done,
    /// It has ended without its work done; the text is why.
    Failed,
    /// Somebody ended it; only the daemon tells this.
    Killed,
    /// Its process is gone without a record of its end; only the daemon tells this.
    Crashed,
}

impl News {
    fn name(self) -> &'static str {
        match self {
            Self::NeedsYou => "needs_you",
            Self::Budget => "budget",
            Self::Idle => "idle",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Killed => "killed",
            Self::Crashed => "crashed",
        }
    }

    /// An event that the daemon reports, by its name.
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::Failed, Self::Killed, Self::Crashed].into_iter().find(|news| news.name() == name)
    }
}

/// Runs the command of `fleet.notify`, under a reaper: nothing of it is left.
#[derive(Debug)]
pub(super) struct Notifier {
    command: Option<String>,
    agent: String,
    label: String,
    env: Variables,
    cwd: PathBuf,
    helper: PathBuf,
    fence: Option<ProgramFence>,
    running: JoinSet<()>,
}

impl Notifier {
    pub(super) fn new(command: Option<String>, agent: &Agent, workspace: &WorkspaceOptions) -> Self {
        let (id, label) =
            (agent.kit().wanted.session.clone(), agent.kit().wanted.label.clone().unwrap_or_default());
        let WorkspaceOptions { env, root, helper, .. } = workspace;
        Self::bare(command, id, label, env.clone(), root.clone(), helper.clone())
    }

    /// For an agent that could not begin, or is gone.
    pub(super) fn bare(
        command: Option<String>,
        agent: String,
        label: String,
        env: Variables,
        cwd: PathBuf,
        helper: PathBuf,
    ) -> Self {
        Self { command, agent, label, env, cwd, helper, fence: None, running: JoinSet::new() }
    }

    /// The same in a fence.
    pub(super) fn within(self, fence: Option<ProgramFence>) -> Self {
        Self { fence, ..self }
    }

    /// Starts the command. Best effort.
    pub(super) fn tell(&mut self, news: News, text: &str) {
        while self.running.try_join_next().is_some() {}
        let Some(command) = &self.command else { return };
        let text = caliban_core::inert::line(text);
        let ours = [
            ("CALIBAN_EVENT", news.name()),
            ("CALIBAN_AGENT", &self.agent),
            ("CALIBAN_LABEL", &self.label),
            ("CALIBAN_TEXT", &text),
        ];
        let env = self.env.iter().cloned().chain(ours.map(|(name, value)| (name.into(), value.into())));
        let Ok(fence) = self.fence.as_ref().map(ProgramFence::judge).transpose() else { return };
        let command = Supervised {
            helper: self.helper.clone(),
            launch: Launch {
                fence,
                ..Launch::shell(command, self.cwd.clone(), env.collect(), Streams::Joined)
            },
            limit: LIMIT,
            keep: KeptOutput::Last(0),
        };
        self.running.spawn(async move {
            match command.run(&CancellationToken::new()).await {
                Ok(SupervisedEnd { why: CommandEnd::Itself, code: Some(0), .. }) => {}
                Ok(SupervisedEnd { why: CommandEnd::Itself, code, .. }) => {
                    tracing::warn!(code, "the notify command failed");
                }
                Ok(_) => tracing::warn!("the notify command took too long"),
                Err(error) => tracing::warn!(%error, "the notify command cannot run"),
            }
        });
    }

    /// Waits until every command has ended or has taken too long.
    pub(super) async fn finish(mut self) {
        while self.running.join_next().await.is_some() {}
    }
}
