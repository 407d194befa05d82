//! What the verbs print for programs, where that is not what the daemon or git says. Owns one rule: an instant is RFC 3339
//! in UTC and is called `*_at`; a duration is a whole number of milliseconds and is called `*_ms`.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// An instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At(Option<Timestamp>);

impl At {
    /// Seconds since 1970.
    pub(crate) fn seconds(since: i64) -> Self {
        Self(Timestamp::from_second(since).ok())
    }
}

/// One that no calendar has is `null`.
impl Serialize for At {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Some(at) => to.collect_str(at),
            None => to.serialize_none(),
        }
    }
}

/// The same with every field `from`, in seconds since 1970, as the instant `to`, in its place.
pub(crate) fn with_instants(
    value: &impl Serialize,
    from: &str,
    to: &str,
) -> Result<Value, serde_json::Error> {
    fn changed(value: Value, from: &str, to: &str) -> Value {
        match value {
            Value::Array(all) => all.into_iter().map(|value| changed(value, from, to)).collect(),
            Value::Object(fields) => {
                let field = |(name, value): (String, Value)| match value.as_i64() {
                    Some(since) if name == from => (to.to_owned(), serde_json::json!(At::seconds(since))),
                    _ => (name, changed(value, from, to)),
                };
                Value::Object(fields.into_iter().map(field).collect::<Map<_, _>>())
            }
            other => other,
        }
    }
    Ok(changed(serde_json::to_value(value)?, from, to))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn seconds_become_instants_wherever_they_are() {
        let value = json!({"a": [{"time": 1_794_800_065, "b": 1}], "time": "noon", "c": {"time": i64::MAX}});
        assert_eq!(
            with_instants(&value, "time", "made_at").unwrap().to_string(),
            r#"{"a":[{"made_at":"2026-11-16T03:34:25Z","b":1}],"time":"noon","c":{"made_at":null}}"#
        );
    }
}
