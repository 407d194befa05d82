//! `GET /v1/status` (f16): how the daemon is, and what it found when it started.

use super::{Answer, Owner};
use crate::protocol::{DaemonStatus, VERSION};

/// With less room than this a commit may fail: the registry's log grows by pages.
const LITTLE_ROOM: u64 = 64 * 1024;

impl Owner {
    /// In a word: `ok`, or what is wrong. A full disk is looked for, because nothing may have been written since.
    fn health(&self) -> String {
        if let Some(trouble) = &self.trouble {
            return trouble.clone();
        }
        match rustix::fs::statvfs(self.places.base()) {
            Ok(disk) if disk.f_bavail.saturating_mul(disk.f_frsize) < LITTLE_ROOM => {
                format!(
                    "the disk is full: {} KiB are left for {}",
                    disk.f_bavail * disk.f_frsize / 1024,
                    self.places.base().display()
                )
            }
            // A file system that does not say is not full.
            Ok(_) | Err(_) => "ok".to_owned(),
        }
    }

    pub(super) fn status(&mut self) -> Answer {
        self.refresh();
        let registered = self.registered();
        let mut states = std::collections::BTreeMap::new();
        for agent in &registered {
            *states.entry(agent.state().word().to_owned()).or_insert(0) += 1;
        }
        Answer::Status(Box::new(DaemonStatus {
            health: self.health(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: VERSION,
            uptime_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            agents: registered.len() as u64,
            states,
            queued: registered.iter().filter(|agent| agent.is_queued()).count() as u64,
            max_running: self.options.max_running,
            socket: self.places.socket(),
            repo: self.places.repo().to_owned(),
            base: self.places.base().to_owned(),
            log: self.places.log(),
            found: self.found.clone(),
        }))
    }
}
