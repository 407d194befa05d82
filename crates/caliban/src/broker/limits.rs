//! The caps of an agent's mail (a11), and the rate of what it sends.

use std::time::Duration;

use tokio::time::Instant;

/// How many messages of other agents an agent hears in a row with no word of a person, the Director or the Administrator
/// between them. Messages beyond wait in the mailbox. Every agent counts by itself, so a ring of agents that answer each
/// other stops after at most this many rounds.
pub(super) const HEARD_IN_A_ROW: u32 = 50;
/// How many delivered messages may wait for the agent's next model request; more wait in the mailbox.
pub(super) const WAITING: usize = 16;
/// How many characters of a body the model is given at once; the rest is read with `BrokerInbox`.
pub(super) const BODY_CHARS: usize = 8_000;
/// How many characters of a name are shown.
pub(super) const NAME_CHARS: usize = 100;
/// How many characters of a description are stored and shown.
pub(super) const DESCRIPTION_CHARS: usize = 200;
/// The largest body that an agent sends.
pub(super) const SENT_BYTES: usize = 64 * 1024;
/// How many agents a list shows.
pub(super) const LISTED: usize = 200;
/// How many messages the inbox shows at once.
pub(super) const INBOX: u32 = 10;
/// How many messages an agent may send at once ...
pub(super) const BURST: u32 = 20;
/// ... and how long it takes to be allowed one more.
pub(super) const EVERY: Duration = Duration::from_secs(3);

/// Allows [`BURST`] messages at once and one more [`EVERY`] so often. A broadcast counts as one.
#[derive(Debug)]
pub(super) struct Rate {
    left: u32,
    since: Instant,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    /// Takes one; or how long to wait for it.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        while self.left < BURST && now.saturating_duration_since(self.since) >= EVERY {
            self.left += 1;
            self.since += EVERY;
        }
        if self.left == BURST {
            self.since = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(EVERY.saturating_sub(now.saturating_duration_since(self.since))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a11_a_flood_is_cut_to_the_burst_and_then_to_the_rate() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        let taken = |rate: &mut Rate, now| (0..1000).take_while(|_| rate.take(now).is_ok()).count();
        assert_eq!(taken(&mut rate, start), BURST as usize);
        assert_eq!(rate.take(start + EVERY / 3), Err(EVERY - EVERY / 3));
        assert_eq!(taken(&mut rate, start + EVERY * 3), 3);
        assert_eq!(taken(&mut rate, start + EVERY * 10_000), BURST as usize);
    }
}
