//! Short names of models, as people know them from Claude Code: `haiku`, `sonnet` and `opus` are the newest of their kind.

/// Short names and what they stand for.
const ALIASES: [(&str, &str); 3] =
    [("haiku", "claude-haiku-5-5"), ("sonnet", "claude-sonnet-5-5"), ("opus", "claude-opus-5-5")];

/// How a router names Anthropic's models.
const ROUTED: &str = "anthropic/";

/// The model that a name stands for, where `beside` is served: a model, or how its names begin. Only where Claude's models
/// are is an alias one; elsewhere a model may be called so.
#[must_use]
pub fn resolved(name: &str, beside: &str) -> String {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, model)| *model);
    match alias {
        Some(model) if beside.starts_with("claude-") => model.to_owned(),
        Some(model) if beside.starts_with(ROUTED) => format!("{ROUTED}{model}"),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::{Billing, of};

    #[test]
    fn short_names_are_models_with_a_price() {
        for (alias, model) in ALIASES {
            assert_eq!(resolved(alias, "claude-opus-4-5"), model);
            assert_eq!(resolved(alias, "anthropic/claude-opus-4-5"), format!("anthropic/{model}"));
            assert_eq!(resolved(alias, "qwen3"), alias);
            assert!(of(model, Billing::Listed).is_some(), "{model}");
        }
        assert_eq!(resolved("claude-opus-4-5", "claude-"), "claude-opus-4-5");
    }
}
