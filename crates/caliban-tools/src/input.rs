//! Arguments as models send them: strict about what is missing, lenient about how numbers and
//! booleans are written (many models quote them).

use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::Value;

/// Reads a call's arguments; the error is worded for the model.
pub(crate) fn parse<T: DeserializeOwned>(tool: &str, input: &Value) -> Result<T, String> {
    match input {
        Value::Object(_) => T::deserialize(input).map_err(|error| format!("{tool}: {error}")),
        Value::Null => {
            T::deserialize(Value::Object(serde_json::Map::new())).map_err(|error| format!("{tool}: {error}"))
        }
        Value::String(_) => Err(format!("{tool}: the arguments were not valid JSON; send one JSON object")),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            Err(format!("{tool}: the arguments must be one JSON object"))
        }
    }
}

/// A whole number, also as `"12"` or `12.0`; null is none.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let found = match &value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match found {
        Some(number) => Ok(Some(number)),
        None => Err(serde::de::Error::custom(format!("expected a whole number from 0 up, got {value}"))),
    }
}

/// A boolean, also as `"true"`; null is false.
pub(crate) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match &value {
        Value::Null => Ok(false),
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Ok(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") || text.is_empty() => Ok(false),
        Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            Err(serde::de::Error::custom(format!("expected true or false, got {value}")))
        }
    }
}

/// A text in which empty means absent, as some models fill every optional field.
pub(crate) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

/// A list, also as a text that holds it in JSON.
pub(crate) fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let value = match Value::deserialize(deserializer)? {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) if text.trim().is_empty() => return Ok(Vec::new()),
        Value::String(text) => serde_json::from_str(&text)
            .map_err(|error| serde::de::Error::custom(format!("expected a list, got a text ({error})")))?,
        value => value,
    };
    Vec::deserialize(value).map_err(serde::de::Error::custom)
}

fn whole(number: f64) -> Option<u64> {
    // 2^53: beyond it a float names no single whole number.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (number.fract() == 0.0 && (0.0..=EXACT).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Sample {
        name: String,
        #[serde(default, deserialize_with = "number")]
        count: Option<u64>,
        #[serde(default, deserialize_with = "flag")]
        all: bool,
        #[serde(default, deserialize_with = "text")]
        path: Option<String>,
        #[serde(default, deserialize_with = "list")]
        names: Vec<String>,
    }

    fn sample(count: Option<u64>, all: bool) -> Result<Sample, String> {
        Ok(Sample { name: "n".into(), count, all, path: None, names: Vec::new() })
    }

    #[test]
    fn numbers_and_booleans_may_be_quoted() {
        assert_eq!(parse("T", &json!({"name": "n", "count": "12", "all": "true"})), sample(Some(12), true));
        assert_eq!(
            parse("T", &json!({"name": "n", "count": 12.0, "all": null, "path": ""})),
            sample(Some(12), false)
        );
        assert_eq!(parse("T", &json!({"name": "n"})), sample(None, false));
    }

    #[test]
    fn a_list_may_be_a_text_of_json() {
        let names = |names: Value| {
            parse::<Sample>("T", &json!({"name": "n", "names": names})).map(|sample| sample.names)
        };
        let both = Ok(vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!(names(json!(["a", "b"])), both);
        assert_eq!(names(json!("[\"a\", \"b\"]")), both);
        assert_eq!(names(json!(null)), Ok(Vec::new()));
        let error = "T: expected a list, got a text (expected value at line 1 column 1)";
        assert_eq!(names(json!("a, b")), Err(error.into()));
        assert_eq!(names(json!("[1]")), Err("T: invalid type: integer `1`, expected a string".into()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let error = |value: Value| parse::<Sample>("T", &value).unwrap_err();
        assert_eq!(error(json!({})), "T: missing field `name`");
        assert_eq!(error(Value::Null), "T: missing field `name`");
        assert_eq!(error(json!({"name": "n", "count": -1})), "T: expected a whole number from 0 up, got -1");
        assert_eq!(error(json!({"name": "n", "all": 7})), "T: expected true or false, got 7");
        assert_eq!(error(json!("{oops")), "T: the arguments were not valid JSON; send one JSON object");
        assert_eq!(error(json!([1])), "T: the arguments must be one JSON object");
    }
}
