//! `/bg keep`: a background agent that runs goes on in the fleet, with its conversation.

use caliban_core::{
    background::BackgroundStatus,
    setup::AgentSetup,
    spec::{Handover, Isolation, SpawnSpec, WorktreeSpec},
};

use super::{Background, BackgroundRefusal, Ground, Spawner, name, rows::Assignment};
use crate::transcript;

/// What one hears that goes on in the fleet.
const GO_ON: &str = "[You are an agent of the fleet from now on: this conversation goes on in another process, and your \
last message goes to the user. What you were doing was cancelled: look how far it came before you do it again. Go on with \
your task.]";
/// The same in a worktree.
const ELSEWHERE: &str = " [You work in another worktree now. What you had changed is committed in it.]";

impl Background {
    /// The numbers of those that run.
    pub fn at_work(&self) -> Vec<u32> {
        self.0.board().at_work()
    }

    /// Hands all that run to the fleet; their numbers and the ids that they have there. None is stopped when the fleet
    /// would not take all of them. One that ends by itself meanwhile needs no place there.
    pub async fn keep_all(&self) -> Result<Vec<(u32, String)>, BackgroundRefusal> {
        let at_work = self.at_work();
        for id in &at_work {
            match self.checked(*id).await {
                Ok(_) | Err(BackgroundRefusal::Ended(..)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let mut kept = Vec::new();
        for id in at_work {
            match self.keep(id).await {
                Ok(agent) => kept.push((id, agent)),
                Err(BackgroundRefusal::Ended(..)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(kept)
    }

    /// The request for one that runs, which the fleet would take.
    async fn checked(&self, id: u32) -> Result<(SpawnSpec, Ground), BackgroundRefusal> {
        let not_taken = |why: String| BackgroundRefusal::NotTaken(id, why);
        let Assignment { task, ground, model, .. } = self.0.board().assignment(id)?;
        let starter = &self.0.starter;
        let spawner = &starter.blueprint.spawner;
        let setup = AgentSetup {
            model: Some(model),
            effort: Some(starter.blueprint.effort),
            hooks: Some(starter.blueprint.hooks.commands.clone()),
            ..starter.rights().map_err(not_taken)?
        };
        let spec = SpawnSpec { setup, ..SpawnSpec::new(task, starter.blueprint.cwd.clone()) };
        spawner.check(&spec).await.map_err(not_taken)?;
        Ok((spec, ground))
    }

    /// Hands one that runs to the fleet; the id that it has there. It is not stopped when nobody would take it, and goes on
    /// here when nobody does after all.
    pub async fn keep(&self, id: u32) -> Result<String, BackgroundRefusal> {
        let not_taken = |why: String| BackgroundRefusal::NotTaken(id, why);
        let (mut spec, ground) = self.checked(id).await?;
        let spawner = &self.0.starter.blueprint.spawner;
        let branch = self.stop_to_leave(id).await?;
        let go_on = match ground {
            Ground::None => GO_ON.to_owned(),
            Ground::Worktree => {
                let base = branch.map(|base_ref| WorktreeSpec { base_ref, ..WorktreeSpec::default() });
                spec.isolation = Isolation::Worktree(base.unwrap_or_default());
                format!("{GO_ON}{ELSEWHERE}")
            }
        };
        let taken = match self.handover(id, go_on) {
            Ok(conversation) => {
                spec.conversation = Some(conversation);
                spawner.spawn(spec).await
            }
            Err(problem) => Err(problem),
        };
        let agent = match taken {
            Ok(agent) => agent,
            Err(why) => return Err(not_taken(self.takes_back(id, why).await)),
        };
        let name = name(id);
        let people = format!("{name} goes on in the fleet as agent {agent}: `caliban attach {agent}`");
        let model = format!(
            "[The user has handed {name} to the fleet as agent {agent}. Its result does not come here.]"
        );
        self.0.board().forget(id);
        let told = async {
            self.record(id, BackgroundStatus::Killed, people).await?;
            self.tell_model(model, Spawner::Person).await
        };
        if let Err(error) = told.await {
            tracing::warn!(id, %error, "that a background agent went to the fleet could not be recorded");
        }
        self.changed();
        Ok(agent)
    }

    /// The conversation of one that has stopped, for who goes on with it.
    fn handover(&self, id: u32, go_on: String) -> Result<Handover, String> {
        let session = self.directory(id);
        let records = transcript::read(&session).map_err(|error| error.to_string())?;
        let records = records.last().map_or(0, |record| record.seq + 1);
        Ok(Handover { session, records, go_on: Some(go_on) })
    }

    /// Stops one that shall go on elsewhere; the branch of its work. Refused when it has ended by itself meanwhile.
    async fn stop_to_leave(&self, id: u32) -> Result<Option<String>, BackgroundRefusal> {
        let mut changes = self.changes();
        let cancel = self.0.board().leave(id)?;
        cancel.cancel();
        while self.0.board().running(id).is_ok() && changes.changed().await.is_ok() {}
        self.0.board().left(id)
    }
}
