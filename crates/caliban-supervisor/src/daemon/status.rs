//! `GET /v1/status` (f16): how the daemon is, and what it found when it started.

use super::agent::DaemonAgent;
use super::{DaemonAnswer, Owner, has_descriptors};
use crate::disk_room::{self, WAITS_FOR_ROOM};
use crate::protocol::{DaemonStatus, VERSION};

/// With less room than this a commit may fail: the registry's log grows by pages.
const LITTLE_ROOM: u64 = 64 * 1024;

impl Owner {
    /// In a word: `ok`, or what is wrong. A full disk is looked for, because nothing may have been written since: under the
    /// fleet's files, and under the repo, where worktrees are made.
    fn health(&self) -> String {
        if let Some(trouble) = &self.trouble {
            return trouble.clone();
        }
        if let Err(error) = has_descriptors() {
            return error.message;
        }
        for place in [self.places.base(), self.places.repo()] {
            // A file system that does not say is not full.
            if let Some(left) = disk_room::left(place).filter(|left| *left < LITTLE_ROOM) {
                return format!("the disk is full: {} KiB are left for {}", left / 1024, place.display());
            }
        }
        // There may be a little room, but not as much as these need.
        let waits = |agent: &&DaemonAgent| {
            let report = agent.own_report();
            report
                .and_then(|report| report.activity.as_deref())
                .is_some_and(|it| it.starts_with(WAITS_FOR_ROOM))
        };
        match self.agents.values().filter(waits).count() {
            0 => "ok".to_owned(),
            1 => "the disk is full: an agent waits for room".to_owned(),
            many => format!("the disk is full: {many} agents wait for room"),
        }
    }

    /// Whether a worktree may have room. Git itself says so when it has not.
    pub(super) fn has_room_in_repo(&self) -> bool {
        disk_room::left(self.places.repo()).is_none_or(|left| left >= LITTLE_ROOM)
    }

    pub(super) fn status(&mut self) -> DaemonAnswer {
        self.refresh();
        let registered = self.registered();
        let mut states = std::collections::BTreeMap::new();
        for agent in &registered {
            *states.entry(agent.state().word().to_owned()).or_insert(0) += 1;
        }
        DaemonAnswer::Status(Box::new(DaemonStatus {
            health: self.health(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: VERSION,
            uptime_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            agents: registered.len() as u64,
            states,
            queued: registered.iter().filter(|agent| agent.is_queued()).count() as u64,
            max_running: self.options.max_running,
            max_running_user: self.options.max_running_user,
            schedules: self.schedules.len() as u64,
            socket: self.places.socket(),
            repo: self.places.repo().to_owned(),
            base: self.places.base().to_owned(),
            log: self.places.log(),
            found: self.found.clone(),
        }))
    }
}
