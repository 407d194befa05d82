//! When a schedule runs: `--every 6h`, `--every 07:00`, `--every "mon-fri 07:00,19:00"`.
//!
//! Pure: what is due at a moment, what was missed, and when the next run is. The daemon keeps the time.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};
use serde::{Deserialize, Serialize};

use crate::calendar::{self, CalendarError, DAY, Days};
use crate::text_form::stored_as_text;

/// Runs that are counted as missed, at most.
const MISSED: u64 = 1000;
/// Days that are looked at for the next run: more than a week, because a clock may leave a time out.
const LOOK_AHEAD: i32 = 15;
/// The longest time between two runs at times of the day, and so the most that a past run can seem ahead.
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A run that begins this much after its time was missed, and says so.
pub const LATE_MS: u64 = 60_000;

/// How often a schedule runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Recurrence {
    /// So long after each other.
    Interval(SignedDuration),
    /// At times of the day, on these days.
    Times {
        /// The days.
        days: Days,
        /// Minutes since midnight, in order.
        times: Vec<u16>,
    },
}

/// What a schedule says at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing before this moment.
    At(Timestamp),
    /// A run is due.
    Now {
        /// Further runs that were due before and did not come about; they are not made up for.
        missed: u64,
        /// When the next one is.
        next: Timestamp,
    },
}

impl Recurrence {
    /// The first run after a moment, when none was before.
    #[must_use]
    pub fn first(&self, now: &Zoned) -> Option<Timestamp> {
        match self {
            Self::Interval(every) => now.timestamp().checked_add(*every).ok(),
            Self::Times { .. } => self.after(now.timestamp(), now),
        }
    }

    /// What is to be done now, when the next run is planned for `next` and `last` is the last one that was. A clock that
    /// was set back repeats no run, and keeps none away: times of the day are looked up again.
    #[must_use]
    pub fn due(&self, next: Timestamp, last: Option<Timestamp>, now: &Zoned) -> Due {
        let present = now.timestamp();
        if next > present {
            let first = match self {
                Self::Interval(_) => self.first(now),
                // A run that seems to have been more than a week ahead was by a wrong clock.
                Self::Times { .. } => {
                    let done = last.filter(|last| last.duration_since(present) <= WEEK);
                    self.after(done.map_or(present, |last| last.max(present)), now)
                }
            };
            return Due::At(first.filter(|first| *first < next).unwrap_or(next));
        }
        let (mut missed, mut at) = (0, next);
        if let Self::Interval(every) = self {
            let gone = present.duration_since(next).as_secs() / every.as_secs().max(1);
            let ahead = every.checked_mul(i32::try_from(gone + 1).unwrap_or(i32::MAX)).unwrap_or(*every);
            let after = next.checked_add(ahead).unwrap_or(present);
            return Due::Now { missed: u64::try_from(gone).unwrap_or_default(), next: after };
        }
        while let Some(after) = self.after(at, now) {
            if after > present {
                return Due::Now { missed, next: after };
            }
            (missed, at) = (missed + 1, after);
            if missed >= MISSED {
                at = present;
            }
        }
        Due::Now { missed, next: Timestamp::MAX }
    }

    /// The first time of the day after a moment.
    fn after(&self, moment: Timestamp, near: &Zoned) -> Option<Timestamp> {
        let Self::Times { days, times } = self else { return None };
        let from = Zoned::new(moment, near.time_zone().clone()).date();
        (0..LOOK_AHEAD).find_map(|ahead| {
            let date = from.checked_add(ahead.days()).ok().filter(|date| days.has(date.weekday()))?;
            // A time that the clock leaves out is a later one: the order of the list is not that of the day.
            times.iter().filter_map(|time| calendar::at(date, *time, near)).filter(|at| *at > moment).min()
        })
    }
}

impl FromStr for Recurrence {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let trimmed = text.trim();
        if !trimmed.contains(':') {
            let every = calendar::length(trimmed)?;
            return if every < SignedDuration::from_mins(1) {
                Err(CalendarError::Short)
            } else {
                Ok(Self::Interval(every))
            };
        }
        let (days, times) = Days::before(trimmed)?;
        let time = |text: &str| {
            calendar::minutes(text)
                .and_then(|at| if at < DAY { Ok(at) } else { Err(CalendarError::Time(text.into())) })
        };
        let mut times: Vec<u16> = times.split(',').map(time).collect::<Result<_, _>>()?;
        times.sort_unstable();
        times.dedup();
        Ok(Self::Times { days, times })
    }
}

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interval(every) => {
                let seconds = every.as_secs();
                let units = [(24 * 60 * 60, 'd'), (60 * 60, 'h'), (60, 'm'), (1, 's')];
                let (size, unit) =
                    units.into_iter().find(|(size, _)| seconds % size == 0).unwrap_or((1, 's'));
                write!(f, "{}{unit}", seconds / size)
            }
            Self::Times { days, times } => {
                let times: Vec<String> = times.iter().map(|time| calendar::clock(*time)).collect();
                write!(f, "{days} {}", times.join(","))
            }
        }
    }
}

stored_as_text!(Recurrence, CalendarError);
