//! `--output-schema FILE`: the answer is JSON that a JSON Schema allows.

use std::{path::Path, sync::Arc};

use caliban_agent::answer_form::{AnswerForm, json_of};
use serde_json::Value;

use crate::{
    report::{Failure, Result},
    settings::file,
};

/// A larger file is no schema.
const MAX_SCHEMA_BYTES: u64 = 256 * 1024;
/// What is wrong with an answer is told in so many parts.
const ERRORS: usize = 5;

/// The form that a schema's file asks for.
pub(super) fn form(path: &Path) -> Result<AnswerForm> {
    let shown = path.display();
    let wrong = |why: String| {
        Failure::usage(format!("--output-schema: {shown} cannot be used: {why}"))
            .hint("name a file with a JSON Schema, such as {\"type\": \"object\", \"required\": [\"title\"]}")
    };
    let size = std::fs::metadata(path).map_err(|error| wrong(file::words(&error)))?.len();
    if size > MAX_SCHEMA_BYTES {
        return Err(wrong(format!("it is larger than {MAX_SCHEMA_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(file::words(&error)))?;
    let schema: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let validator = jsonschema::validator_for(&schema).map_err(|error| wrong(error.to_string()))?;
    let check = move |answer: &str| {
        let value: Value =
            serde_json::from_str(json_of(answer)).map_err(|error| format!("it is not JSON: {error}"))?;
        let errors: Vec<String> = validator
            .iter_errors(&value)
            .take(ERRORS)
            .map(|error| match error.instance_path().to_string() {
                at if at.is_empty() => error.to_string(),
                at => format!("at {at}: {error}"),
            })
            .collect();
        if errors.is_empty() { Ok(value) } else { Err(errors.join("; ")) }
    };
    let instructions = format!(
        "# The form of your last message\nYour last message is read by a program: it must be one JSON value, without a code \
         fence or other words, that this JSON Schema allows:\n{schema}"
    );
    Ok(AnswerForm { instructions, check: Arc::new(check) })
}
