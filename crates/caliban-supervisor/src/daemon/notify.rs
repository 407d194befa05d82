//! Tells the user's own command of ends that no worker can tell of: crashed, killed, never begun.
//!
//! The daemon knows no settings. It starts the agent's program in a mode of its own, with the environment that the agent
//! was spawned with, and that finds the command as the worker would have. Best effort, and never waited for.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use caliban_contract::modes;
use caliban_contract::records::EndNotice;
use caliban_contract::variables::SECRET_NAMES;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_core::spec::SpawnSpec;
use tokio::io::AsyncWriteExt as _;

use super::agent::DaemonAgent;
use super::phase::Waiter;
use super::store::RegistryReader;
use super::{Owner, start};

/// How long it may take; the command itself is given less.
const LIMIT: Duration = Duration::from_secs(20);
/// Characters of what is told.
const TEXT_CHARS: usize = 2000;
/// How many tell at once.
static TELLERS: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(2);

/// All that telling needs.
struct NotifyOrder {
    id: AgentId,
    notice: EndNotice,
    program: PathBuf,
    secrets: PathBuf,
    specs: RegistryReader,
}

impl Owner {
    /// Tells that an agent has ended, if nobody else can have. Whoever removes or respawns it knows.
    pub(super) fn tell(&mut self, id: AgentId) {
        let Some(agent) = self.agents.get(&id) else { return };
        let Some(event) = event(agent.state()) else { return };
        if agent.phase.waiting().iter().any(|waiter| matches!(waiter, Waiter::Leave(_))) {
            return;
        }
        let order = NotifyOrder {
            id,
            notice: EndNotice {
                directory: self.places.agent_dir(id),
                event: event.to_owned(),
                text: words(agent),
                handover: Some(self.places.agent_secrets(id)),
            },
            program: agent.record.program.clone(),
            secrets: self.places.agent_secrets(id),
            specs: self.store.reader(),
        };
        self.later(async move {
            let _turn = TELLERS.acquire().await;
            if let Err(text) = tell(&order).await {
                tracing::warn!(id = %order.id, "nobody could be told that it is {}: {text}", order.notice.event);
            }
            None
        });
    }
}

/// What an ending is called where it is told.
fn event(state: State) -> Option<&'static str> {
    match state {
        State::Killed | State::Crashed | State::Failed => Some(state.word()),
        State::Spawning | State::Running | State::Idle | State::Done => None,
    }
}

fn words(agent: &DaemonAgent) -> String {
    let ending = agent.record.status.ending().map(ToString::to_string);
    let parts: Vec<String> = ending.into_iter().chain(agent.record.note.clone()).collect();
    parts.join("; ").chars().take(TEXT_CHARS).collect()
}

async fn tell(order: &NotifyOrder) -> Result<(), String> {
    let spec = SpawnSpec::from_json(&order.specs.get(order.id).await?).map_err(|error| error.to_string())?;
    // Those that are gone are not needed to find the command.
    let variables = start::read_handover(&order.secrets).unwrap_or_default().variables;
    let mut child = tokio::process::Command::new(&order.program)
        .arg(modes::NOTIFY)
        .env_clear()
        .envs(&spec.env)
        .env(SECRET_NAMES, start::names_of(&variables))
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{}: {error}", order.program.display()))?;
    let notice = serde_json::to_vec(&order.notice).map_err(|error| error.to_string())?;
    let said = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&notice).await?;
        }
        child.wait().await
    };
    match tokio::time::timeout(LIMIT, said).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("{} ended with {status}", order.program.display())),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("it took more than {LIMIT:?}")),
    }
}
