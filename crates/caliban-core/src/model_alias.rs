//! Short names of models, as people know them from Claude Code: `haiku`, `sonnet` and `opus` are the newest of their kind in
//! the catalogue.

use crate::models;

/// The short names.
const ALIASES: [&str; 3] = ["haiku", "sonnet", "opus"];
/// How a router names Anthropic's models.
const ROUTED: &str = "anthropic/";

/// The model that a name stands for, where `beside` is served: a model, or how its names begin. Only where Claude's models
/// are is an alias one; elsewhere a model may be called so.
#[must_use]
pub fn resolved(name: &str, beside: &str) -> String {
    let newest = || {
        let kind = format!("claude-{name}-");
        // The newest of a kind stands first.
        models::all().iter().find(|model| model.name.starts_with(&kind)).map(|model| model.name.as_str())
    };
    match ALIASES.contains(&name).then(newest).flatten() {
        Some(model) if beside.starts_with("claude-") => model.to_owned(),
        Some(model) if beside.starts_with(ROUTED) => format!("{ROUTED}{}", with_a_dot(model)),
        _ => name.to_owned(),
    }
}

/// Routers write `claude-opus-4.5` for what its vendor calls `claude-opus-4-5`.
fn with_a_dot(model: &str) -> String {
    match model.rsplit_once('-') {
        Some((rest, minor)) if rest.ends_with(|c: char| c.is_ascii_digit()) => format!("{rest}.{minor}"),
        _ => model.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_the_newest_models_of_the_catalogue() {
        assert_eq!(resolved("opus", "claude-opus-4-5"), "claude-opus-5-5");
        assert_eq!(resolved("haiku", "claude-opus-4-5"), "claude-haiku-5-5");
        assert_eq!(resolved("sonnet", "anthropic/claude-opus-4.5"), "anthropic/claude-sonnet-5.5");
        assert_eq!(resolved("opus", "qwen3"), "opus");
        assert_eq!(resolved("claude-opus-4-5", "claude-"), "claude-opus-4-5");
        assert_eq!(with_a_dot("claude-opus-5"), "claude-opus-5");
    }
}
