//! The no-progress guard: a model that makes the same failing call again and again is stopped.

use serde_json::Value;

/// The same call may fail this many times in a row.
pub(crate) const SAME_FAILURES: u32 = 3;

/// Remembers the last failing call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    last: Option<(String, String)>,
    failures: u32,
}

impl Guard {
    /// Takes note of a call; says whether that is one failure too many.
    pub(crate) fn is_stuck_after(&mut self, tool: &str, input: &Value, failed: bool) -> bool {
        if !failed {
            *self = Self::default();
            return false;
        }
        let call = Some((tool.to_owned(), input.to_string()));
        if self.last == call {
            self.failures += 1;
        } else {
            self.last = call;
            self.failures = 1;
        }
        self.failures >= SAME_FAILURES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_same_failing_call_in_a_row_counts() {
        let mut guard = Guard::default();
        let (a, b) = (json!({"command": "a"}), json!({"command": "b"}));
        let mut stuck = |input: &Value, failed| guard.is_stuck_after("Bash", input, failed);
        assert!(!stuck(&a, true));
        assert!(!stuck(&a, true));
        assert!(!stuck(&b, true));
        assert!(!stuck(&a, true));
        assert!(!stuck(&a, true));
        assert!(!stuck(&a, false));
        assert!(!stuck(&a, true));
        assert!(!stuck(&a, true));
        assert!(stuck(&a, true));
    }
}
