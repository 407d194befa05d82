//! The no-progress guard: a model that makes the same failing call again and again is told so, then stopped.

use std::collections::BTreeMap;

use serde_json::Value;

/// After so many failures of the same call in a row the model is told.
pub(crate) const TOLD_AFTER: u32 = 3;
/// After so many the run ends.
pub(crate) const ENDED_AFTER: u32 = 8;

/// Counts, for each call that failed in the last reply, in how many replies in a row it did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    failures: BTreeMap<(String, String), u32>,
}

/// What a reply's calls show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallProgress {
    Fine,
    /// This tool's call has failed often enough to say so.
    Repeats(String),
    /// It has failed too often.
    Stuck(String),
}

impl Guard {
    /// Takes note of the calls of one reply: tool, arguments, and whether it failed. Equal ones count once.
    pub(crate) fn after<'a>(
        &mut self,
        calls: impl Iterator<Item = (&'a str, &'a Value, bool)>,
    ) -> CallProgress {
        let before = std::mem::take(&mut self.failures);
        let mut worst: Option<(u32, String)> = None;
        for (tool, input, failed) in calls {
            if !failed {
                continue;
            }
            let call = (tool.to_owned(), input.to_string());
            let count = before.get(&call).map_or(1, |count| count + 1);
            self.failures.insert(call, count);
            if worst.as_ref().is_none_or(|(most, _)| *most < count) {
                worst = Some((count, tool.to_owned()));
            }
        }
        match worst {
            Some((count, tool)) if count >= ENDED_AFTER => CallProgress::Stuck(tool),
            Some((TOLD_AFTER, tool)) => CallProgress::Repeats(tool),
            _ => CallProgress::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_same_failing_call_is_told_at_the_third_reply_and_ended_at_the_eighth() {
        let (a, b) = (json!({"command": "a"}), json!({"command": "b"}));
        let mut guard = Guard::default();
        let mut after = |calls: &[(&Value, bool)]| {
            guard.after(calls.iter().map(|(input, failed)| ("Bash", *input, *failed)))
        };
        // A batch of equal calls counts once.
        assert_eq!(after(&[(&a, true), (&a, true), (&a, true), (&a, true)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, true), (&b, false)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, true)]), CallProgress::Repeats("Bash".into()));
        for _ in 4..8 {
            assert_eq!(after(&[(&a, true)]), CallProgress::Fine);
        }
        assert_eq!(after(&[(&a, true)]), CallProgress::Stuck("Bash".into()));
        // Another call in between begins anew, and so does a success.
        assert_eq!(after(&[(&b, true)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, true)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, false)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, true)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, true)]), CallProgress::Fine);
        assert_eq!(after(&[(&a, true)]), CallProgress::Repeats("Bash".into()));
    }
}
