//! Waiting on conditions. The only sleep of the kit is the poll in here.

use std::time::{Duration, Instant};

/// Time limit of every wait. Generous: it costs time only when a test fails.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(5);

/// Waits until `condition` holds, and panics after [`LIMIT`] with what was awaited.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    if !poll_until(&mut condition) {
        panic!("waited {} s in vain until {what}", LIMIT.as_secs());
    }
}

/// Polls until the condition holds; returns whether it did within [`LIMIT`].
pub(crate) fn poll_until(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        if condition() {
            return true;
        }
        if start.elapsed() > LIMIT {
            return false;
        }
        std::thread::sleep(POLL);
    }
}
