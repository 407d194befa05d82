//! Times as the API writes them.

use jiff::Timestamp;

/// RFC 3339 with milliseconds, UTC.
pub(crate) fn text(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", at.unwrap_or(Timestamp::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_has_milliseconds() {
        assert_eq!(super::text(1_700_000_000_001), "2023-11-14T22:13:20.001Z");
        assert_eq!(super::text(0), "1970-01-01T00:00:00.000Z");
    }
}
