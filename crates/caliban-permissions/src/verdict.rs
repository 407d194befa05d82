//! What came of asking the rules.

use caliban_core::fence::Profile;

/// Whether a call may go ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allow {
        /// The rule that allows it, with its source; none when the mode does.
        rule: Option<String>,
        /// In words, for the audit.
        why: String,
        /// The fence in which it must run: the answer holds only there.
        fence: Profile,
    },
    /// A person must say.
    Ask {
        /// In words.
        why: String,
        /// The rules that would allow it, in a fence where there is one; none when no rule short of allowing everything could.
        suggestions: Vec<String>,
        /// The rules that would let it run outside of the fence; none when there are none, or no fence.
        outside: Vec<String>,
    },
    /// It may not.
    Deny {
        /// The rule that forbids it, with its source; none when the mode does.
        rule: Option<String>,
        /// In words.
        why: String,
    },
}

impl Verdict {
    /// The flags that would allow a call about which nobody could be asked: `--allow 'Bash(cargo test *)'`.
    pub fn allowing_flags(&self) -> Option<String> {
        let Self::Ask { suggestions, outside, .. } = self else { return None };
        let rules = if suggestions.is_empty() { outside } else { suggestions };
        let flags: Vec<String> =
            rules.iter().map(|rule| format!("--allow '{}'", rule.replace('\'', r"'\''"))).collect();
        (!flags.is_empty()).then(|| flags.join(" "))
    }

    /// Whether the call may go ahead without a question.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    /// In words, whichever it is.
    pub fn why(&self) -> &str {
        match self {
            Self::Allow { why, .. } | Self::Ask { why, .. } | Self::Deny { why, .. } => why,
        }
    }

    /// A question that the same rules answer inside and outside of a fence.
    pub(crate) fn ask(why: impl Into<String>, suggestions: Vec<String>) -> Self {
        Self::Ask { why: why.into(), outside: suggestions.clone(), suggestions }
    }

    /// A question about a command.
    pub(crate) fn ask_command(
        why: impl Into<String>,
        suggestions: Option<String>,
        outside: Option<String>,
    ) -> Self {
        let (suggestions, outside) = (suggestions.into_iter().collect(), outside.into_iter().collect());
        Self::Ask { why: why.into(), suggestions, outside }
    }

    /// The same question, for a command that is meant to run outside of the fence.
    pub(crate) fn only_outside(mut self) -> Self {
        if let Self::Ask { suggestions, outside, .. } = &mut self
            && suggestions != outside
        {
            suggestions.clear();
        }
        self
    }

    /// The same answer, without rules for outside that say no more than those for inside.
    pub(crate) fn settled(mut self) -> Self {
        if let Self::Ask { suggestions, outside, .. } = &mut self
            && suggestions == outside
        {
            outside.clear();
        }
        self
    }

    pub(crate) fn allow(why: impl Into<String>) -> Self {
        Self::Allow { rule: None, why: why.into(), fence: Profile::None }
    }

    pub(crate) fn deny(why: impl Into<String>) -> Self {
        Self::Deny { rule: None, why: why.into() }
    }

    /// The same answer, for a call that runs in this fence.
    pub(crate) fn within(mut self, profile: Profile) -> Self {
        if let Self::Allow { fence, .. } = &mut self {
            *fence = profile;
        }
        self
    }

    /// The stricter of the two. Two questions become one that suggests both rules.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (
                Self::Ask { why, suggestions, outside },
                Self::Ask { why: more, suggestions: others, outside: others_outside },
            ) => {
                let why = if why == more || why.contains(&more) { why } else { format!("{why}; {more}") };
                Self::Ask {
                    why,
                    suggestions: both(suggestions, others),
                    outside: both(outside, others_outside),
                }
            }
            // The rule is worth more than the mode, the narrower fence than the wider one.
            (Self::Allow { rule, why, fence }, Self::Allow { rule: more, why: other, fence: second }) => {
                let (rule, why) = if rule.is_none() && more.is_some() { (more, other) } else { (rule, why) };
                Self::Allow { rule, why, fence: fence.narrower(second) }
            }
            (deny @ Self::Deny { .. }, _) | (_, deny @ Self::Deny { .. }) => deny,
            (ask @ Self::Ask { .. }, _) | (_, ask @ Self::Ask { .. }) => ask,
        }
    }
}

/// The rules of two questions. No rule helps when one of the two cannot be answered by a rule.
fn both(mut rules: Vec<String>, others: Vec<String>) -> Vec<String> {
    if rules.is_empty() || others.is_empty() {
        return Vec::new();
    }
    for other in others {
        if !rules.contains(&other) {
            rules.push(other);
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ruled(rule: &str) -> Verdict {
        Verdict::Allow { rule: Some(rule.to_owned()), why: rule.to_owned(), fence: Profile::None }
    }

    #[test]
    fn two_verdicts_become_the_stricter_and_say_each_reason_once() {
        let ask = |why: &str| Verdict::ask(why, vec![why.to_owned()]);
        for (one, other, why) in [("a", "a", "a"), ("a b", "b", "a b"), ("a", "b", "a; b")] {
            assert_eq!(ask(one).and(ask(other)).why(), why);
        }
        assert_eq!(ask("a").and(ask("b")), Verdict::ask("a; b", vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(ask("a").and(Verdict::ask("b", Vec::new())), Verdict::ask("a; b", Vec::new()));
        assert_eq!(ruled("one").and(ruled("two")), ruled("one"));
        assert_eq!(Verdict::allow("mode").and(ruled("two")), ruled("two"));
        assert_eq!(ruled("one").and(Verdict::allow("mode")), ruled("one"));
        assert_eq!(Verdict::allow("x").and(Verdict::allow("y")).why(), "x");
        assert_eq!(Verdict::deny("x").and(Verdict::deny("y")).why(), "x");
        assert_eq!(ask("x").and(Verdict::deny("y")).why(), "y");
        assert_eq!(ask("x").and(ruled("y")).why(), "x");
    }
}
