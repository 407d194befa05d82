//! An answer that has to have a form: it is checked when the model believes to be done, and asked for again with what is
//! wrong.

use std::sync::Arc;

use serde_json::Value;

/// How often an answer of the wrong form is asked for again.
pub(crate) const FORM_ROUNDS: u32 = 3;

/// Checks an answer: its value, or what is wrong with it in words for the model.
pub type Check = Arc<dyn Fn(&str) -> Result<Value, String> + Send + Sync>;

/// The form of an answer.
#[derive(Clone)]
pub struct AnswerForm {
    /// What the model is told of it, at the end of the system prompt.
    pub instructions: String,
    /// Whether an answer has it.
    pub check: Check,
}

/// The JSON in an answer: all of it, or what its only code fence holds.
pub fn json_of(answer: &str) -> &str {
    let answer = answer.trim();
    let Some((_, rest)) = answer.split_once("```") else { return answer };
    if answer.starts_with(['{', '[', '"']) {
        return answer;
    }
    let body = rest.split_once('\n').map_or(rest, |(_, body)| body);
    body.split_once("```").map_or(answer, |(body, _)| body.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_taken_out_of_a_fence() {
        assert_eq!(json_of(" {\"a\": 1}\n"), "{\"a\": 1}");
        assert_eq!(json_of("Here:\n```json\n{\"a\": 1}\n```\nDone."), "{\"a\": 1}");
        assert_eq!(json_of("{\"a\": \"```\"}"), "{\"a\": \"```\"}");
        assert_eq!(json_of("no json"), "no json");
    }
}
