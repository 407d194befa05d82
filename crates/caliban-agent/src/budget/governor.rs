//! The governor of one provider and key, in the machine's ledger: all agents of the user wait together.
//!
//! Best effort on purpose: a ledger that cannot be read or written stops a request where it is reserved, not here.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use caliban_core::hex;
use caliban_core::priority::Standing;
use caliban_process::{awake_ms, boot_ms};
use caliban_providers::{Admitted, Allowance, BoxFuture, Governor};
use caliban_store::{
    StoreError,
    ledger::{Admission, GovernorTicket, Lane, Ledger},
};
use sha2::{Digest, Sha256};

use super::machine::{MachineLedger, own, settle_dead};

/// Characters of a key's hash in the name of its lane.
const DIGITS: usize = 12;

/// Lets requests of one provider and key through.
struct LaneGovernor {
    ledger: MachineLedger,
    lane: Lane,
    standing: Standing,
    /// Whether this process has met a limit, or was told of one, since an answer said nothing of any: only then an answer
    /// that says nothing is news.
    is_strained: AtomicBool,
}

impl MachineLedger {
    /// The governor of a provider and key. Whoever stands higher comes first when there is a queue.
    pub fn governor(&self, provider: &str, base: &str, key: &str, standing: Standing) -> Arc<dyn Governor> {
        let digest = Sha256::new().chain_update("caliban lane\0").chain_update(key).finalize();
        let hash = hex::encode(&digest);
        let lane = Lane::new(&own().boot, &format!("{provider} {base} {}", &hash[..DIGITS]));
        Arc::new(LaneGovernor { ledger: self.clone(), lane, standing, is_strained: AtomicBool::new(false) })
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl LaneGovernor {
    async fn ask(&self, ledger: &mut Ledger, ticket: Option<i64>) -> Result<Admission, StoreError> {
        if ticket.is_some() {
            // Those ahead may have been killed while they waited.
            settle_dead(ledger).await?;
        }
        ledger
            .admit(
                &self.lane,
                self.standing.rank(),
                ticket.map(GovernorTicket),
                &own(),
                boot_ms(),
                awake_ms(),
            )
            .await
    }
}

impl Governor for LaneGovernor {
    fn admit(&self, ticket: Option<i64>) -> BoxFuture<'_, Admitted> {
        Box::pin(async move {
            let asked = match self.ledger.open().await {
                Ok(mut ledger) => self.ask(&mut ledger, ticket).await,
                Err(error) => Err(error),
            };
            match asked {
                Ok(Admission::Wait { until_ms, ticket, reason }) => {
                    self.is_strained.store(true, Ordering::Release);
                    let wait = Duration::from_millis(until_ms.saturating_sub(boot_ms()));
                    Admitted::Wait { wait, ticket: ticket.0, reason }
                }
                Ok(Admission::Go) => Admitted::Go,
                Err(error) => {
                    tracing::warn!(%error, "nobody knows who else uses the key");
                    Admitted::Go
                }
            }
        })
    }

    fn give_up(&self, ticket: i64) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Ok(mut ledger) = self.ledger.open().await {
                noted(ledger.give_up(GovernorTicket(ticket)).await);
            }
        })
    }

    fn limited<'a>(&'a self, reason: &'a str, asked: Option<Duration>, ago: Duration) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.is_strained.store(true, Ordering::Release);
            let now = boot_ms();
            if let Ok(mut ledger) = self.ledger.open().await {
                let sent = now.saturating_sub(ms(ago));
                noted(ledger.limited(&self.lane, reason, asked.map(ms), sent, now).await.map(drop));
            }
        })
    }

    fn answered(&self, allowance: Option<Allowance>) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if !self.is_strained.swap(allowance.is_some(), Ordering::AcqRel) && allowance.is_none() {
                return;
            }
            if let Ok(mut ledger) = self.ledger.open().await {
                let allowance = allowance.map(|it| (it.limit, it.left, ms(it.reset)));
                noted(ledger.answered(&self.lane, allowance, boot_ms()).await);
            }
        })
    }
}

fn noted(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(%error, "the other agents are not told of a rate limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::Terms;
    use caliban_core::budget::{Limits, OnLimit};

    #[tokio::test]
    async fn r15_what_is_written_of_a_wait_is_time_since_the_boot() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = MachineLedger::new(Terms {
            file: dir.path().join("ledger.db"),
            repo: dir.path().to_owned(),
            repo_hash: "0".repeat(16),
            above: None,
            per_agent: Limits::NONE,
            per_repo_day: Limits::NONE,
            per_day: Limits::NONE,
            on_limit: OnLimit::default(),
        });
        let lane = Lane::new(&own().boot, "one");
        let governor = LaneGovernor {
            ledger: ledger.clone(),
            lane: lane.clone(),
            standing: Standing::Attended,
            is_strained: AtomicBool::new(false),
        };
        let before = boot_ms();
        governor.limited("429", Some(Duration::from_secs(60)), Duration::ZERO).await;
        let until = ledger.open().await.unwrap().lane(&lane).await.unwrap().0.until_ms;
        assert!((before + 60_000..=boot_ms() + 61_000).contains(&until), "{before} {until}");
        let Admitted::Wait { wait, .. } = governor.admit(None).await else { panic!("it waits") };
        assert!(wait > Duration::from_secs(50) && wait < Duration::from_secs(62), "{wait:?}");
    }
}
