//! Waiting in time of our own: a stretch in which we stood still ourselves does not count.
//!
//! Whoever is stopped together with us (SIGSTOP to all, a frozen container, a machine that was suspended under a
//! clock that went on) had no chance to do anything in that time. The wall clock is not looked at.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Milliseconds since the boot, suspends included. No clock setting changes it; compare it within one boot only
/// ([`crate::boot_id`]).
#[must_use]
pub fn boot_ms() -> u64 {
    clock_ms(rustix::time::ClockId::Boottime)
}

/// Milliseconds since the boot in which the machine was awake.
#[must_use]
pub fn awake_ms() -> u64 {
    clock_ms(rustix::time::ClockId::Monotonic)
}

fn clock_ms(clock: rustix::time::ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or_default() * 1000 + nanos.unwrap_or_default() / 1_000_000
}

/// The least that counts of one stretch.
const SLICE: Duration = Duration::from_millis(100);
/// Into how many slices a long time is cut at most: each is a wake-up, and the error of one stop.
const SLICES: u32 = 50;

/// How long to go on waiting. Goes on where it was when a wait for it is given up.
#[derive(Debug, Clone)]
pub struct Patience {
    /// When the present slice ends.
    slice_ends: Instant,
    /// What comes after it.
    rest: Duration,
    slice: Duration,
}

impl Patience {
    /// For this long from now.
    pub fn new(time: Duration) -> Self {
        Self::cut(time, SLICE.max(time / SLICES))
    }

    fn cut(time: Duration, slice: Duration) -> Self {
        let first = time.min(slice);
        Self { slice_ends: Instant::now() + first, rest: time - first, slice }
    }

    /// Waits for its end.
    pub async fn over(&mut self) {
        loop {
            sleep_until(self.slice_ends).await;
            if self.rest.is_zero() {
                return;
            }
            *self = Self::cut(self.rest, self.slice);
        }
    }

    /// Waits no longer than `time` from now.
    pub fn shorten(&mut self, time: Duration) {
        if time < self.rest + self.slice_ends.saturating_duration_since(Instant::now()) {
            *self = Self::new(time);
        }
    }
}

/// How much time of our own has passed, for loops that have something to do in every round.
#[derive(Debug, Clone)]
pub struct ElapsedTime {
    before: std::time::Instant,
    sum: Duration,
}

impl ElapsedTime {
    /// None yet.
    #[expect(clippy::new_without_default, reason = "it begins now, which is no default")]
    pub fn new() -> Self {
        Self { before: std::time::Instant::now(), sum: Duration::ZERO }
    }

    /// So far; to be asked in every round.
    pub fn so_far(&mut self) -> Duration {
        let now = std::time::Instant::now();
        self.sum += now.saturating_duration_since(self.before).min(SLICE);
        self.before = now;
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(test);
    }

    #[test]
    fn waiting_takes_as_long_as_asked_however_often_it_is_interrupted() {
        paused(async {
            let began = Instant::now();
            let mut patience = Patience::new(Duration::from_millis(250));
            let mut interrupted = 0;
            while tokio::time::timeout(Duration::from_millis(7), patience.over()).await.is_err() {
                interrupted += 1;
            }
            assert_eq!((began.elapsed().as_millis(), interrupted), (250, 35));
        });
    }

    #[test]
    fn r15_time_since_the_boot_is_the_kernels_and_no_time_of_day() {
        let uptime = || {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            let seconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
            (seconds * 1000.0) as u64
        };
        // The file has hundredths of a second.
        let (before, now, after) = (uptime(), boot_ms(), uptime());
        assert!((before..=after + 10).contains(&now), "{before} {now} {after}");
        assert!(awake_ms() <= boot_ms());
    }

    #[test]
    fn r15_a_stretch_in_which_we_stood_still_counts_as_one_slice() {
        paused(async {
            let mut patience = Patience::new(Duration::from_secs(5));
            // As if we had been stopped for a day: nobody polled, and the clock went on.
            tokio::time::advance(Duration::from_secs(86_400)).await;
            let began = Instant::now();
            patience.over().await;
            assert_eq!(began.elapsed(), Duration::from_millis(4_900));
        });
    }

    #[test]
    fn it_is_shortened_and_never_lengthened() {
        paused(async {
            let began = Instant::now();
            let mut patience = Patience::new(Duration::from_secs(5));
            patience.shorten(Duration::from_secs(60));
            patience.shorten(Duration::from_millis(30));
            patience.over().await;
            assert_eq!(began.elapsed(), Duration::from_millis(30));
        });
    }
}
