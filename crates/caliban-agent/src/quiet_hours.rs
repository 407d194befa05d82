//! Quiet hours: no model request begins in them. Nothing is reserved meanwhile, and the time does not count as working time.

use std::time::Duration;

use caliban_contract::local_time;
use caliban_core::wait::{Pause, Wait};
use caliban_providers::ProviderError;
use tokio_util::sync::CancellationToken;

use crate::{agent::Agent, feed::FeedEntry, request::Failed, turn::milliseconds};

/// The longest sleep before the clock is looked at again: it may have been set.
const LOOK: Duration = Duration::from_secs(5);

impl Agent {
    /// Waits until it is not quiet.
    pub(crate) async fn keep_quiet(&self, cancel: &CancellationToken) -> Result<(), Failed> {
        let hours = &self.kit.shared.quiet_hours;
        if hours.is_empty() {
            return Ok(());
        }
        let mut told = None;
        let mut resting = None;
        while let Some(until) = { hours.until(&local_time::now()) } {
            resting.get_or_insert_with(|| self.kit.purse.rest());
            let left = until.duration_since(jiff::Timestamp::now());
            let left = Duration::try_from(left).unwrap_or_default();
            if told != Some(until) {
                told = Some(until);
                let until_ms = u64::try_from(until.as_millisecond()).unwrap_or_default();
                let reason = format!("quiet hours ({hours})");
                let pause = Pause { reason, ms: milliseconds(left), until_ms };
                self.transcript.feed().push(FeedEntry::Waiting(Wait::QuietHours(pause)));
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Failed::Model(ProviderError::Cancelled)),
                () = tokio::time::sleep(left.min(LOOK)) => {}
            }
        }
        Ok(())
    }
}
