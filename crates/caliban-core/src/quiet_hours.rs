//! Quiet hours: when agents in the background begin no model request that costs.
//!
//! Owns their text form and the one question: until when is it quiet now? Ranges may overlap, pass midnight and be for some
//! days only; a range belongs to the day on which it begins.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::{Timestamp, Zoned};
use serde::{Deserialize, Serialize};

use crate::calendar::{self, CalendarError, DAY, Days};
use crate::text_form::stored_as_text;

/// Minutes of a week.
const WEEK: usize = 7 * DAY as usize;
/// Ranges that may follow each other without a gap. A week has at most as many as the text names, eight times over.
const IN_A_ROW: usize = 1024;

/// When it is quiet: `23:00-07:00`, `mon-fri 22:00-06:00`; several are separated by `;`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct QuietHours(Vec<Range>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    days: Days,
    /// Minutes since midnight.
    from: u16,
    /// Minutes since midnight, of the next day when it is not after `from`.
    to: u16,
}

impl QuietHours {
    /// Until when it is quiet, if it is now.
    #[must_use]
    pub fn until(&self, now: &Zoned) -> Option<Timestamp> {
        let mut end = now.timestamp();
        for _ in 0..IN_A_ROW {
            let here = Zoned::new(end, now.time_zone().clone());
            let Some(later) = self.0.iter().filter_map(|range| range.end(&here)).max() else { break };
            end = later;
        }
        (end > now.timestamp()).then_some(end)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a minute in an ordinary week that is not quiet.
    fn leaves_time(&self) -> bool {
        let mut is_quiet = vec![false; WEEK];
        for range in &self.0 {
            let length = usize::from(range.length());
            for day in (0..7).filter(|day| range.days.has_number(*day)) {
                let from = day * usize::from(DAY) + usize::from(range.from);
                (from..from + length).for_each(|minute| is_quiet[minute % WEEK] = true);
            }
        }
        is_quiet.contains(&false)
    }
}

impl Range {
    fn length(self) -> u16 {
        if self.from < self.to { self.to - self.from } else { self.to + DAY - self.from }
    }

    /// When it ends, if `now` is in it.
    fn end(self, now: &Zoned) -> Option<Timestamp> {
        let today = now.date();
        [today.yesterday().ok(), Some(today)].into_iter().flatten().find_map(|date| self.on(date, now))
    }

    /// When the one that begins on this day ends, if `now` is in it.
    fn on(self, date: Date, now: &Zoned) -> Option<Timestamp> {
        if !self.days.has(date.weekday()) {
            return None;
        }
        let last = if self.from < self.to { date } else { date.tomorrow().ok()? };
        let (from, to) = (calendar::at(date, self.from, now)?, calendar::at(last, self.to, now)?);
        (from <= now.timestamp() && now.timestamp() < to).then_some(to)
    }
}

impl FromStr for QuietHours {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let ranges = text.split(';').map(str::trim).filter(|part| !part.is_empty());
        let ranges: Vec<Range> = ranges.map(str::parse).collect::<Result<_, _>>()?;
        let hours = Self(ranges);
        if hours.leaves_time() { Ok(hours) } else { Err(CalendarError::Always) }
    }
}

impl FromStr for Range {
    type Err = CalendarError;

    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let (days, times) = Days::before(text)?;
        let (from, to) = times.split_once('-').ok_or_else(|| CalendarError::Range(text.to_owned()))?;
        let range = Self { days, from: calendar::minutes(from)?, to: calendar::minutes(to)? };
        if range.from == DAY { Err(CalendarError::Range(text.to_owned())) } else { Ok(range) }
    }
}

impl fmt::Display for QuietHours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            if range.days != Days::ALL {
                write!(f, "{} ", range.days)?;
            }
            write!(f, "{}-{}", calendar::clock(range.from), calendar::clock(range.to))?;
        }
        Ok(())
    }
}

stored_as_text!(QuietHours, CalendarError);
