//! When a frame is drawn: what a person does is shown at once, what agents say at most thirty times a second. Pure.

use std::time::{Duration, Instant};

/// Between two frames of a stream.
const FRAME: Duration = Duration::from_millis(33);

/// Ends at this time; without one, never.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<Instant>,
    due: Option<Instant>,
}

impl Pace {
    /// Something has changed that a person waits for.
    pub(super) fn at_once(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Something has changed by itself.
    pub(super) fn soon(&mut self, now: Instant) {
        let soonest = self.last.map_or(now, |last| (last + FRAME).max(now));
        self.due = Some(self.due.map_or(soonest, |due| due.min(soonest)));
    }

    /// When the next frame is due; none when nothing has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether a frame is to be drawn now. It counts as drawn then.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_some_and(|due| now >= due);
        if is_due {
            (self.last, self.due) = (Some(now), None);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t14_what_four_agents_stream_in_a_second_is_thirty_frames() {
        let begun = Instant::now();
        let mut pace = Pace::default();
        let mut frames = 0;
        for at in 0..4_000 {
            let now = begun + Duration::from_micros(250 * at);
            pace.soon(now);
            frames += u32::from(pace.take(now));
        }
        assert!((28..=31).contains(&frames), "{frames}");
        // A key does not wait for the next of them.
        let now = begun + Duration::from_secs(1);
        pace.soon(now);
        pace.at_once(now);
        assert!(pace.take(now));
        assert_eq!(pace.due(), None, "nothing has changed since: nothing is drawn");
    }
}
