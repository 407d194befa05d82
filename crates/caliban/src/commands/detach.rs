//! `/detach`: the conversation goes on as an agent of the fleet, in the same directory.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, PoisonError},
};

use caliban_acp_host::{CommandAnswer, SessionHost};
use caliban_agent::{blueprint::Blueprint, hooks::CommandHook, spawner::Spawner, subagent::rights};
use caliban_core::{
    setup::AgentSetup,
    spec::{AfterTurn, Handover as Conversation, SpawnSpec},
};

/// What an agent hears that was at work.
const GO_ON: &str = "[The user has sent this conversation to the fleet: it goes on in another process, in the same \
directory. What you were doing was cancelled: look how far it came before you do it again. Go on.]";

/// What of a session its agent in the fleet gets.
pub(super) struct Handover {
    spawner: Arc<dyn Spawner>,
    hooks: Vec<CommandHook>,
    cwd: PathBuf,
}

impl Handover {
    pub(super) fn of(blueprint: &Blueprint) -> Self {
        Self {
            spawner: blueprint.spawner.clone(),
            hooks: blueprint.hooks.commands.clone(),
            cwd: blueprint.cwd.clone(),
        }
    }

    /// Sends the conversation away; its background agents go on as agents of their own. When nobody takes it, the session
    /// is as it was, but for a turn that was interrupted.
    pub(super) async fn detach(&self, directory: &Path, host: &SessionHost) -> Result<CommandAnswer, String> {
        let title = crate::sessions::title(&host.records());
        if title.is_empty() {
            return Err("nothing was said yet: there is nothing to send".to_owned());
        }
        let settings = host.settings().borrow().clone();
        let rights = rights(&host.policy().read().unwrap_or_else(PoisonError::into_inner))?;
        let setup = AgentSetup {
            model: Some(settings.model),
            effort: Some(settings.effort),
            hooks: Some(self.hooks.clone()),
            ..rights
        };
        let mut spec =
            SpawnSpec { setup, after_turn: AfterTurn::Stay, ..SpawnSpec::new(title, self.cwd.clone()) };
        self.spawner.check(&spec).await?;
        let mut kept = Vec::new();
        if let Some(background) = host.background() {
            for id in background.at_work() {
                // One that has ended meanwhile has told so.
                if let Ok(agent) = background.keep(id).await {
                    kept.push(format!("background agent {id} goes on as agent {agent}"));
                }
            }
        }
        let was_running = host.lay_down().await.map_err(|_| "the session was closed")?;
        spec.conversation = Some(Conversation {
            session: directory.to_owned(),
            records: host.records().last().map_or(0, |record| record.seq + 1),
            go_on: was_running.then(|| GO_ON.to_owned()),
        });
        let id = match self.spawner.spawn(spec).await {
            Ok(id) => id,
            Err(why) => {
                host.take_up();
                return Err(why);
            }
        };
        let note = format!("sent to the fleet: it goes on as agent {id}");
        if let Err(error) = host.handle().note(note).await {
            tracing::warn!(%error, "that the session was sent to the fleet is not in its transcript");
        }
        kept.push(format!("this conversation goes on as agent {id}: `caliban attach {id}`"));
        Ok(CommandAnswer::Leave { text: kept.join("\n") })
    }
}
