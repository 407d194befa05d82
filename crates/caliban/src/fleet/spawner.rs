//! The seam for `AgentTool {background: true}`: a helper that an agent starts becomes an agent of the fleet (f02, s11).

use caliban_agent::spawner::Spawner;
use caliban_core::{ids::AgentId, setup::AgentSetup, spec::SpawnSpec};
use caliban_fleet::{Client, spawn};
use caliban_tools::BoxFuture;

use super::Fleet;
use crate::{
    report::{Failure, Result},
    settings::{Environment, Loaded},
};

/// Hands work to the daemon of the repo that the calling agent works in.
#[derive(Debug, Clone)]
pub(crate) struct FleetSpawner {
    environment: Environment,
    /// The calling agent's own: what it starts gets what it leaves open, so its rights are no wider.
    setup: AgentSetup,
    parent: Option<(AgentId, u32)>,
}

impl FleetSpawner {
    pub(crate) fn new(environment: Environment, setup: AgentSetup) -> Self {
        Self { environment, setup, parent: None }
    }

    /// For an agent of the fleet: what it starts is known as its child.
    pub(crate) fn child_of(mut self, id: AgentId, depth: u32) -> Self {
        self.parent = Some((id, depth));
        self
    }

    /// Everything up to the registration.
    async fn prepare(&self, spec: &mut SpawnSpec) -> Result<(Fleet<'_>, Loaded, Client)> {
        let fleet = Fleet::open(&self.environment, &spec.cwd)?;
        spec.setup = spec.setup.clone().below(&self.setup);
        let loaded = crate::settings::load(&self.environment, &spec.cwd, (&spec.setup).into())?;
        if let Some((id, depth)) = self.parent {
            spec.parent = Some(id);
            spec.depth = depth + 1;
        }
        let program = crate::compose::own_program()?;
        spawn::prepare(&fleet.caller(&program), &loaded, spec, None).await?;
        spec.check().map_err(|error| Failure::new(error.to_string()))?;
        let client = fleet.client_with(loaded.daemon_options()).await?;
        Ok((fleet, loaded, client))
    }

    async fn hand_over(&self, mut spec: SpawnSpec) -> Result<String> {
        let (fleet, loaded, mut client) = self.prepare(&mut spec).await?;
        let program = crate::compose::own_program()?;
        let request = spawn::request(&fleet.caller(&program), &loaded, spec);
        Ok(client.spawn(request).await?.id.to_string())
    }
}

/// For a model, which gets one text.
fn in_one(failure: Failure) -> String {
    let hint = failure.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
    format!("the background agent could not be started: {}{hint}", failure.message)
}

impl Spawner for FleetSpawner {
    fn check<'a>(&'a self, spec: &'a SpawnSpec) -> BoxFuture<'a, Result<(), String>> {
        let mut spec = spec.clone();
        Box::pin(async move { self.prepare(&mut spec).await.map(drop).map_err(in_one) })
    }

    fn spawn<'a>(&'a self, spec: SpawnSpec) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move { self.hand_over(spec).await.map_err(in_one) })
    }
}
