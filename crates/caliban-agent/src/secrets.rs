//! Takes secrets out of a record before it reaches the disk.
//!
//! Owns which parts of a record may hold them. Arguments of calls come from the model: everything in them is looked
//! at, names of fields too. A provider's opaque data (signatures, pictures) is left alone, since a changed byte would
//! make it worthless; reasoning that quotes a secret is therefore not kept for sending back.

use std::borrow::Cow;

use caliban_core::redact::{self, Redactor};
use serde_json::{Map, Value};

/// What the model sent as arguments.
const ARGUMENTS: &str = "input";
/// A provider's own block of reasoning.
const REASONING: &str = "raw";
/// A picture's bytes, and what a provider wants back with a call.
const OPAQUE: [&str; 2] = ["data", "extra"];
/// Fields of a provider's reasoning that hold no words.
const SEALED: [&str; 4] = ["signature", "encrypted_content", "data", "thoughtSignature"];

/// A record without secrets.
pub(crate) fn redact(record: &mut Value, redactor: &Redactor) {
    match record {
        Value::String(text) => redact_text(text, redactor),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, redactor)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    ARGUMENTS => redact_all(field, redactor),
                    REASONING if quotes_secret(field, redactor) => *field = Value::Null,
                    REASONING => {}
                    name if OPAQUE.contains(&name) => {}
                    _ => redact(field, redactor),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether arguments, as a record has them, are no longer what the model sent.
pub(crate) fn has_gap(arguments: &Value) -> bool {
    match arguments {
        Value::String(text) => redact::has_gap(text),
        Value::Array(items) => items.iter().any(has_gap),
        Value::Object(fields) => fields.iter().any(|(name, field)| redact::has_gap(name) || has_gap(field)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn redact_all(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => redact_text(text, redactor),
        Value::Array(items) => items.iter_mut().for_each(|item| redact_all(item, redactor)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| redact_all(field, redactor));
            if fields.keys().any(|name| matches!(redactor.redact(name), Cow::Owned(_))) {
                let renamed: Map<String, Value> = std::mem::take(fields)
                    .into_iter()
                    .map(|(name, field)| (redactor.redact(&name).into_owned(), field))
                    .collect();
                *fields = renamed;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn redact_text(text: &mut String, redactor: &Redactor) {
    if let Cow::Owned(clean) = redactor.redact(text) {
        *text = clean;
    }
}

fn quotes_secret(reasoning: &Value, redactor: &Redactor) -> bool {
    match reasoning {
        Value::String(text) => matches!(redactor.redact(text), Cow::Owned(_)),
        Value::Array(items) => items.iter().any(|item| quotes_secret(item, redactor)),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| !SEALED.contains(&name.as_str()) && quotes_secret(field, redactor)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CANARY: &str = "canary-4f1d9c7e2b";

    fn check(mut record: Value, expected: &Value) {
        redact(&mut record, &Redactor::new([("KEY", CANARY)]));
        assert_eq!(record, *expected);
    }

    #[test]
    fn a12_arguments_hide_nothing_whatever_their_fields_are_called() {
        check(
            json!({"input": {"data": CANARY, "raw": [CANARY], "extra": {CANARY: 1}, "n": 3}}),
            &json!({"input": {"data": "[redacted:KEY]", "raw": ["[redacted:KEY]"], "extra": {"[redacted:KEY]": 1}, "n": 3}}),
        );
    }

    #[test]
    fn a12_reasoning_that_quotes_a_secret_is_not_kept() {
        let quoted = json!({"type": "thinking", "thinking": format!("it is {CANARY}"), "signature": "x"});
        check(
            json!({"type": "thinking", "text": format!("it is {CANARY}"), "raw": quoted}),
            &json!({"type": "thinking", "text": "it is [redacted:KEY]", "raw": null}),
        );
    }

    #[test]
    fn opaque_data_stays_byte_for_byte() {
        let google_key = format!("AIza{}", "b".repeat(35));
        let record = json!({
            "raw": {"thinking": "hm", "signature": google_key},
            "extra": {"thoughtSignature": google_key},
            "data": google_key,
        });
        check(record.clone(), &record);
    }
}
