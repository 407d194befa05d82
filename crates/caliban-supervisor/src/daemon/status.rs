//! `GET /v1/status` (f16): how the daemon is, and what it found when it started.

use super::{Answer, Owner};
use crate::protocol::{DaemonStatus, VERSION};

impl Owner {
    pub(super) fn status(&mut self) -> Answer {
        self.refresh();
        let registered = || self.agents.values().filter(|agent| agent.registered);
        let mut states = std::collections::BTreeMap::new();
        for agent in registered() {
            *states.entry(agent.state().word().to_owned()).or_insert(0) += 1;
        }
        Answer::Status(Box::new(DaemonStatus {
            health: self.trouble.clone().unwrap_or_else(|| "ok".to_owned()),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: VERSION,
            uptime_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            agents: registered().count() as u64,
            states,
            queued: registered().filter(|agent| agent.is_queued()).count() as u64,
            max_running: self.options.max_running,
            socket: self.places.socket(),
            repo: self.places.repo().to_owned(),
            base: self.places.base().to_owned(),
            log: self.places.log(),
            found: self.found.clone(),
        }))
    }
}
