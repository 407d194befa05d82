//! A point in time as the store keeps it: UTC, microseconds, always the same 32 characters.
//!
//! The text form sorts like the time it names, so SQL compares it as text on every database.
//! Refuses: being used for order between messages. That is the sequence's job (clocks jump).

use std::fmt;

use jiff::{Timestamp, civil, tz::TimeZone};

/// A UTC time with microseconds; displays as `YYYY-MM-DDTHH:MM:SS.ffffff+00:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(Timestamp);

/// The text is not a valid time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not an ISO 8601 time such as 2026-03-28T12:00:00+00:00")]
pub struct StampError(pub String);

impl Stamp {
    /// The time now, by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        Self(Timestamp::now())
    }

    /// Reads an ISO 8601 time. Any offset is converted to UTC; a time without one is taken as UTC.
    ///
    /// # Errors
    /// When the text is no such time.
    pub fn parse(text: &str) -> Result<Self, StampError> {
        let trimmed = text.trim();
        if let Ok(stamp) = trimmed.parse::<Timestamp>() {
            return Ok(Self(stamp));
        }
        trimmed
            .parse::<civil::DateTime>()
            .ok()
            .and_then(|naive| naive.to_zoned(TimeZone::UTC).ok())
            .map(|zoned| Self(zoned.timestamp()))
            .ok_or_else(|| StampError(text.to_owned()))
    }

    /// Microseconds since 1970, for tests and arithmetic.
    #[must_use]
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// The time so many microseconds after 1970; 1970 if out of range.
    #[must_use]
    pub fn from_micros(micros: i64) -> Self {
        Self(Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatted by hand: a mailbox of ten thousand messages has as many of these, and a format pattern costs ten
        // times as much.
        let at = TimeZone::UTC.to_datetime(self.0);
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}+00:00",
            at.year(),
            at.month(),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            at.subsec_nanosecond() / 1000
        )
    }
}

#[cfg(test)]
mod tests {
    use super::Stamp;

    #[test]
    fn always_shows_microseconds_and_an_offset() {
        let shown: Vec<String> = [
            "2026-03-28T12:00:00+00:00",
            "2026-03-28T14:00:00.5+02:00",
            "2026-03-28 12:00",
            "2026-03-28T12:00:00Z",
            "2026-03-28",
        ]
        .iter()
        .map(|text| Stamp::parse(text).map_or_else(|e| e.to_string(), |s| s.to_string()))
        .collect();
        assert_eq!(
            shown,
            [
                "2026-03-28T12:00:00.000000+00:00",
                "2026-03-28T12:00:00.500000+00:00",
                "2026-03-28T12:00:00.000000+00:00",
                "2026-03-28T12:00:00.000000+00:00",
                "2026-03-28T00:00:00.000000+00:00",
            ]
        );
    }

    #[test]
    fn refuses_what_is_no_time() {
        let refused = Stamp::parse("yesterday").map_err(|e| e.to_string());
        assert_eq!(
            refused,
            Err("'yesterday' is not an ISO 8601 time such as 2026-03-28T12:00:00+00:00".to_owned())
        );
    }
}
