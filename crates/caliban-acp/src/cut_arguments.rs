//! Long arguments of a call are cut before clients are shown them. Owns where they are cut, so that a client knows a cut
//! argument and does not let it be allowed unseen (a16).

use serde_json::Value;

/// A longer text in the arguments of a call is cut, and a mark is added behind it.
pub const SHOWN_ARGUMENT_BYTES: usize = 64 * 1024;

/// Whether the agent has cut an argument: only a cut one is longer than what is shown.
#[must_use]
pub fn is_cut(arguments: &Value) -> bool {
    match arguments {
        Value::String(text) => text.len() > SHOWN_ARGUMENT_BYTES,
        Value::Array(items) => items.iter().any(is_cut),
        Value::Object(fields) => fields.values().any(is_cut),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
