//! Days of the week and times of the day as people write them: `mon-fri`, `sat,sun`, `07:00`. And one moment: `--at`.
//!
//! Owns the text forms; what is made of them is in `quiet_hours.rs` and `recurrence.rs`. Knows no clock: the present and its
//! time zone are arguments.

use std::fmt;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::{SignedDuration, Timestamp, ToSpan as _, Zoned};

use crate::inert;

/// Minutes of a day.
pub(crate) const DAY: u16 = 24 * 60;

/// The names of the days, from Monday on.
const NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// What is wrong with a time that somebody wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// No time of the day.
    #[error("{} is no time of the day; expected hours and minutes like 07:30", inert::quoted(.0))]
    Time(String),
    /// No day.
    #[error("{} is no day; expected {}, day, or a range like mon-fri", inert::quoted(.0), NAMES.join(", "))]
    Day(String),
    /// No length of time.
    #[error("{} is no length of time; expected a number with m, h or d (30m, 6h, 1d)", inert::quoted(.0))]
    Length(String),
    /// Too short.
    #[error("a schedule has at least a minute between two runs")]
    Short,
    /// No range.
    #[error("{} is no range of times; expected one like 23:00-07:00", inert::quoted(.0))]
    Range(String),
    /// Nothing would ever run.
    #[error("these hours leave no minute of the week in which agents may work")]
    Always,
    /// No moment.
    #[error("{} is no moment; expected 07:00, tomorrow 07:00, 2026-11-18 07:00 or +2h", inert::quoted(.0))]
    Moment(String),
    /// A moment that is over.
    #[error("{} is over", inert::quoted(.0))]
    Over(String),
}

/// Some days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days(u8);

impl Days {
    /// All of them.
    pub const ALL: Self = Self(0b111_1111);

    /// `mon-fri`, `sat,sun`, `day`.
    fn parse(text: &str) -> Result<Self, CalendarError> {
        let unknown = || CalendarError::Day(text.to_owned());
        let number = |name: &str| {
            let name = name.trim().to_ascii_lowercase();
            NAMES.iter().position(|known| *known == name).ok_or_else(unknown)
        };
        match text.trim().to_ascii_lowercase().as_str() {
            "day" | "daily" => return Ok(Self::ALL),
            "weekdays" => return Ok(Self(0b001_1111)),
            _ => {}
        }
        let mut days = 0;
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (mut at, last) = (number(first)?, number(last)?);
            loop {
                days |= 1 << at;
                if at == last {
                    break;
                }
                at = (at + 1) % 7;
            }
        }
        Ok(Self(days))
    }

    /// The days before a text about times, and that text: `mon-fri 07:00`. Without any it is about all of them.
    pub(crate) fn before(text: &str) -> Result<(Self, &str), CalendarError> {
        match text.trim().rsplit_once(char::is_whitespace) {
            Some((days, times)) => Ok((Self::parse(days)?, times)),
            None => Ok((Self::ALL, text.trim())),
        }
    }

    /// Whether a date is one of them.
    #[must_use]
    pub fn has(self, weekday: Weekday) -> bool {
        self.0 & (1 << weekday.to_monday_zero_offset()) != 0
    }

    /// Whether the day with this number, from Monday on, is one of them.
    pub(crate) fn has_number(self, number: usize) -> bool {
        self.0 & (1 << (number % 7)) != 0
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return f.write_str("day");
        }
        let (mut parts, mut at) = (Vec::new(), 0);
        while at < NAMES.len() {
            let first = at;
            while at < NAMES.len() && self.has_number(at) {
                at += 1;
            }
            match at - first {
                0 => at += 1,
                1 => parts.push(NAMES[first].to_owned()),
                2 => parts.push(format!("{},{}", NAMES[first], NAMES[at - 1])),
                _ => parts.push(format!("{}-{}", NAMES[first], NAMES[at - 1])),
            }
        }
        f.write_str(&parts.join(","))
    }
}

/// Minutes since midnight, of `07:30`; `24:00` is the end of the day.
pub(crate) fn minutes(text: &str) -> Result<u16, CalendarError> {
    let wrong = || CalendarError::Time(text.to_owned());
    let (hours, minutes) = text.trim().split_once(':').ok_or_else(wrong)?;
    let number = |text: &str, most: u16| {
        let fits = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u16>().ok().filter(|number| fits && *number <= most).ok_or_else(wrong)
    };
    let (hours, minutes) = (number(hours, 24)?, number(minutes, 59)?);
    Some(hours * 60 + minutes).filter(|all| *all <= DAY).ok_or_else(wrong)
}

/// `07:30`.
pub(crate) fn clock(minutes: u16) -> String {
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

/// A time of a day in a zone. A time that the clock leaves out (spring) is the one after the gap; of one that comes twice
/// (autumn) it is the first.
pub(crate) fn at(date: Date, minutes: u16, near: &Zoned) -> Option<Timestamp> {
    let date = if minutes == DAY { date.tomorrow().ok()? } else { date };
    let minutes = i8::try_from(minutes / 60 % 24).ok().zip(i8::try_from(minutes % 60).ok())?;
    let time = Time::new(minutes.0, minutes.1, 0, 0).ok()?;
    let zoned = near.time_zone().to_ambiguous_zoned(DateTime::from_parts(date, time)).compatible().ok()?;
    Some(zoned.timestamp())
}

/// A length of time: `90s`, `30m`, `6h`, `1d`.
pub fn length(text: &str) -> Result<SignedDuration, CalendarError> {
    let wrong = || CalendarError::Length(text.to_owned());
    let text = text.trim();
    let unit = text.char_indices().next_back().ok_or_else(wrong)?;
    let number: i64 = text[..unit.0].parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
    let seconds = match unit.1 {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    // Nobody means more than ten years.
    let most = 10 * 366 * 24 * 60 * 60;
    number.checked_mul(seconds).filter(|all| *all <= most).map(SignedDuration::from_secs).ok_or_else(wrong)
}

/// A moment to come: `07:00` (the next one), `tomorrow 07:00`, `2026-11-18 07:00`, `+2h`, or RFC 3339.
pub fn moment(text: &str, now: &Zoned) -> Result<Timestamp, CalendarError> {
    let trimmed = text.trim();
    let wrong = || CalendarError::Moment(text.to_owned());
    if let Some(ahead) = trimmed.strip_prefix('+') {
        return now.timestamp().checked_add(length(ahead)?).map_err(|_| wrong());
    }
    let found = if let Some(time) = trimmed.strip_prefix("tomorrow") {
        let tomorrow = now.date().checked_add(1.day()).map_err(|_| wrong())?;
        at(tomorrow, minutes(time).map_err(|_| wrong())?, now)
    } else if let Ok(time) = minutes(trimmed) {
        let today = at(now.date(), time, now).filter(|today| *today > now.timestamp());
        match today {
            Some(today) => Some(today),
            None => at(now.date().tomorrow().map_err(|_| wrong())?, time, now),
        }
    } else if let Ok(timestamp) = trimmed.parse::<Timestamp>() {
        Some(timestamp)
    } else {
        let written: DateTime = trimmed.parse().map_err(|_| wrong())?;
        let zoned = now.time_zone().to_ambiguous_zoned(written).compatible();
        zoned.ok().map(|zoned| zoned.timestamp())
    };
    let found = found.ok_or_else(wrong)?;
    if found <= now.timestamp() {
        return Err(CalendarError::Over(text.to_owned()));
    }
    Ok(found)
}

/// A length of time as people write it: `30m`, `90s`, `1h30m`.
#[must_use]
pub fn short(ms: u64) -> String {
    let seconds = ms.div_ceil(1000);
    let parts =
        [(seconds / 86400, 'd'), (seconds / 3600 % 24, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, unit)| format!("{count}{unit}"))
        .collect();
    if parts.is_empty() { "0s".to_owned() } else { parts.concat() }
}
