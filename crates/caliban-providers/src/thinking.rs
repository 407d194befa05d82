//! How much a model thinks, and what room that takes: the same decision for every wire.
//!
//! Thinking counts among the tokens of an answer, so its room comes on top of what the answer may have. A model that no
//! family knows is told nothing: it does what it does by itself.

use caliban_core::{
    message::Effort,
    models::{Family, Thinking},
};

/// What is left for the thinking of a model that decides by itself how much it thinks.
const FREE_ROOM: u32 = 32_000;
/// A smaller budget is refused by Anthropic.
const MIN_BUDGET: u32 = 1_024;

/// What is asked of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Nothing: it does not think, or nothing is known.
    Silent,
    /// As little thinking as there can be.
    Least,
    /// So many tokens of thinking.
    Budget(u32),
    /// By a word; by the model's own default when absent.
    Word(Option<Effort>),
}

impl Plan {
    /// What an effort means to a family.
    pub(crate) fn of(family: &Family, effort: Effort) -> Self {
        match (family.thinking, effort) {
            (Thinking::None, _) => Self::Silent,
            (_, Effort::None) => Self::Least,
            (Thinking::Budget, _) => Self::Budget(budget(effort)),
            (Thinking::Effort, Effort::Default) => Self::Word(None),
            (Thinking::Effort, effort) => Self::Word(Some(family.nearest(effort))),
        }
    }

    /// The most tokens of an answer with its thinking, where the answer alone may have so many; and the plan as far as
    /// the model's limit leaves room for it. Thinking never takes more than a quarter of what the answer was to have.
    pub(crate) fn with_room(self, family: &Family, answer: u32) -> (u32, Self) {
        let spare = family.output.saturating_sub(answer).max(family.output / 4);
        let (room, plan) = match self {
            Self::Silent => (0, self),
            Self::Least if family.off.as_deref() != Some("never") => (0, self),
            Self::Least | Self::Word(_) => (FREE_ROOM.min(spare), self),
            Self::Budget(budget) => match budget.min(spare) {
                budget if budget < MIN_BUDGET => (0, Self::Silent),
                budget => (budget, Self::Budget(budget)),
            },
        };
        let most = if room == 0 { answer } else { answer.saturating_add(room).min(family.output) };
        (most, plan)
    }
}

fn budget(effort: Effort) -> u32 {
    match effort {
        Effort::None => 0,
        Effort::Low => 4_000,
        Effort::Default | Effort::Medium => 10_000,
        Effort::High => 24_000,
        Effort::Xhigh | Effort::Max => 32_000,
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::models::family;

    use super::*;

    fn planned(model: &str, effort: Effort, answer: u32) -> (u32, Plan) {
        let family = family(model);
        Plan::of(family, effort).with_room(family, answer)
    }

    #[test]
    fn thinking_comes_on_top_of_the_answers_room() {
        assert_eq!(planned("claude-haiku-4-5", Effort::Default, 9_000), (19_000, Plan::Budget(10_000)));
        assert_eq!(planned("claude-haiku-4-5", Effort::Max, 32_000), (64_000, Plan::Budget(32_000)));
        // Where both do not fit, the answer keeps three quarters.
        assert_eq!(planned("claude-opus-4-1", Effort::Max, 32_000), (32_000, Plan::Budget(8_000)));
        assert_eq!(planned("claude-opus-5-5", Effort::Default, 32_000), (64_000, Plan::Word(None)));
        assert_eq!(planned("claude-opus-4-8", Effort::None, 12_000), (12_000, Plan::Least));
        // It cannot do without.
        assert_eq!(planned("claude-opus-5-5", Effort::None, 12_000), (44_000, Plan::Least));
        assert_eq!(planned("qwen3:8b", Effort::High, 8_192), (8_192, Plan::Silent));
    }

    #[test]
    fn a_level_that_a_model_does_not_have_is_the_next_lower_one() {
        let word = |model: &str, effort| Plan::of(family(model), effort);
        assert_eq!(word("claude-sonnet-4-6", Effort::Xhigh), Plan::Word(Some(Effort::High)));
        assert_eq!(word("claude-sonnet-4-6", Effort::Max), Plan::Word(Some(Effort::Max)));
        assert_eq!(word("gpt-5.5", Effort::Max), Plan::Word(Some(Effort::Xhigh)));
        assert_eq!(word("gpt-6.1-sol", Effort::Max), Plan::Word(Some(Effort::Max)));
        assert_eq!(word("gpt-5-pro", Effort::Low), Plan::Word(Some(Effort::High)));
        assert_eq!(word("gemini-3.8-flash", Effort::Xhigh), Plan::Word(Some(Effort::High)));
    }
}
