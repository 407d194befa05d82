//! Instants in JSON: milliseconds since 1970 in memory, RFC 3339 in UTC on the wire and on disk. For serde's `with`.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// As text; one that no calendar has is `null`.
pub fn serialize<S: Serializer>(ms: &u64, to: S) -> Result<S::Ok, S::Error> {
    text(*ms).serialize(to)
}

/// The text of an instant; none when no calendar has it.
#[must_use]
pub fn text(ms: u64) -> Option<String> {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok())?;
    Some(at.to_string())
}

/// The other way; `null` is 0, and so is what lies before 1970.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(0) };
    let at: Timestamp = text.parse().map_err(D::Error::custom)?;
    Ok(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

/// The same for an instant that there may be none of.
pub mod option {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    use super::{Timestamp, text};

    /// As text, or `null`.
    pub fn serialize<S: Serializer>(ms: &Option<u64>, to: S) -> Result<S::Ok, S::Error> {
        match ms.and_then(text) {
            Some(text) => to.serialize_some(&text),
            None => to.serialize_none(),
        }
    }

    /// The other way.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
        let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
        let at: Timestamp = text.parse().map_err(D::Error::custom)?;
        Ok(Some(u64::try_from(at.as_millisecond()).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        #[serde(with = "super")]
        at: u64,
        #[serde(default, with = "super::option", skip_serializing_if = "Option::is_none")]
        end: Option<u64>,
    }

    #[test]
    fn an_instant_is_rfc_3339_and_comes_back_to_the_millisecond() {
        for (ms, json) in [
            (1_794_800_065_189, r#"{"at":"2026-11-16T03:34:25.189Z"}"#),
            (1_794_800_064_000, r#"{"at":"2026-11-16T03:34:24Z"}"#),
            (0, r#"{"at":"1970-01-01T00:00:00Z"}"#),
        ] {
            assert_eq!(serde_json::to_string(&Row { at: ms, end: None }).unwrap(), json);
            assert_eq!(serde_json::from_str::<Row>(json).unwrap(), Row { at: ms, end: None });
        }
        assert_eq!(serde_json::to_string(&Row { at: u64::MAX, end: None }).unwrap(), r#"{"at":null}"#);
        assert_eq!(serde_json::from_str::<Row>(r#"{"at":null}"#).unwrap(), Row { at: 0, end: None });
        assert!(serde_json::from_str::<Row>(r#"{"at":"noon"}"#).is_err());
        let both = r#"{"at":"1970-01-01T00:00:00Z","end":"1970-01-01T00:00:01.5Z"}"#;
        assert_eq!(serde_json::from_str::<Row>(both).unwrap(), Row { at: 0, end: Some(1500) });
        assert_eq!(serde_json::to_string(&Row { at: 0, end: Some(1500) }).unwrap(), both);
        let none = r#"{"at":"1970-01-01T00:00:00Z","end":null}"#;
        assert_eq!(serde_json::from_str::<Row>(none).unwrap(), Row { at: 0, end: None });
    }
}
