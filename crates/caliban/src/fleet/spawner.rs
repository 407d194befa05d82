//! The seam for `AgentTool {background: true}`: a helper that an agent starts becomes an agent of the fleet (f02, s11).

use caliban_agent::spawner::{Handover, Spawner};
use caliban_contract::variables::VEILED_TASK;
use caliban_control::protocol::SpawnRequest;
use caliban_core::{ids::AgentId, names::Slug};
use caliban_tools::BoxFuture;

use super::{Fleet, caller, daemon_options, flags, worded};
use crate::{cli::AgentFlags, report::Failure, settings::Environment};

/// Hands work to the daemon of the repo that the calling agent works in.
#[derive(Debug, Clone)]
pub(crate) struct FleetSpawner {
    environment: Environment,
    flags: AgentFlags,
    parent: Option<(AgentId, u32)>,
}

impl FleetSpawner {
    /// For an agent that was set up with these flags; what it starts is set up with them too, so its rights are no
    /// wider.
    pub(crate) fn new(environment: Environment, flags: AgentFlags) -> Self {
        Self { environment, flags, parent: None }
    }

    /// For an agent of the fleet: what it starts is known as its child.
    pub(crate) fn child_of(mut self, id: AgentId, depth: u32) -> Self {
        self.parent = Some((id, depth));
        self
    }

    async fn hand_over(&self, work: Handover) -> Result<String, Failure> {
        let Handover { mut spec, hooks } = work;
        let fleet = Fleet::open(&self.environment, &spec.cwd)?;
        let loaded = crate::settings::load(&self.environment, &spec.cwd, self.flags.layer())?;
        flags::put(&self.flags, None, &fleet.cwd, &mut spec);
        flags::put_hooks(&hooks, &mut spec);
        let own = crate::settings::load(&self.environment, &spec.cwd, flags::of(&spec).layer())?;
        super::checks::price(&own, &spec)?;
        if let Some((id, depth)) = self.parent {
            spec.parent = Some(id);
            spec.depth = depth + 1;
        }
        if let Some(given) = &loaded.settings.fleet.broker_session {
            let label = spec.label.as_ref().map(Slug::as_str);
            let session = crate::broker::living_session(&self.environment, &fleet.cwd, given, label).await?;
            spec.broker_session = Some(session.to_string());
        }
        super::spawn::pin_base(&spec.cwd, &mut spec.isolation).await?;
        spec.check().map_err(|error| Failure::new(error.to_string()))?;
        let mut caller = caller::caller(&self.environment, &loaded);
        caller.veil(&mut spec.prompt, VEILED_TASK);
        spec.env = caller.env;
        let program = Some(crate::compose::own_program()?);
        let request = SpawnRequest { spec, secrets: caller.secrets, program, key: None };
        let mut client = fleet.client_with(daemon_options(&loaded)).await?;
        Ok(client.spawn(request).await.map_err(worded)?.id.to_string())
    }
}

impl Spawner for FleetSpawner {
    fn spawn<'a>(&'a self, work: Handover) -> BoxFuture<'a, Result<String, String>> {
        Box::pin(async move {
            self.hand_over(work).await.map_err(|failure| {
                let hint = failure.hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
                format!("the background agent could not be started: {}{hint}", failure.message)
            })
        })
    }
}
