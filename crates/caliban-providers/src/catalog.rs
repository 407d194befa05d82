//! What is known of models by name: sizes, thinking, and which names exist.
//!
//! Kept short on purpose: a rule matches a family by the beginning of its names, so that a new
//! version of a family needs no new line. Models that no rule knows get careful defaults.
//!
//! Compared on 2026-11-16 with stored copies of `platform.claude.com/docs/en/models/overview` (October 2026),
//! `developers.openai.com/api/docs/models` and `ai.google.dev/gemini-api/docs/deprecations`; not with the live pages.

/// How a model is told to think.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// It does not, or cannot be told.
    None,
    /// By a number of tokens.
    Budget,
    /// By a word for the effort.
    Effort,
}

/// What is known of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelInfo {
    /// The most tokens of prompt and answer together.
    pub context_window: u64,
    /// The most tokens of an answer.
    pub max_output: u32,
    /// How it is told to think.
    pub thinking: Thinking,
}

/// What is assumed of a model that no rule knows: most local ones are served with less than their
/// makers' numbers.
pub const UNKNOWN: ModelInfo =
    ModelInfo { context_window: 128_000, max_output: 8_192, thinking: Thinking::None };

/// Beginnings of names, the more exact ones first.
const RULES: [(&str, ModelInfo); 38] = [
    ("claude-3-7-sonnet", info(200_000, 64_000, Thinking::Budget)),
    ("claude-3-5", info(200_000, 8_192, Thinking::None)),
    ("claude-3", info(200_000, 4_096, Thinking::None)),
    ("claude-opus-4-5", info(200_000, 64_000, Thinking::Budget)),
    ("claude-opus-4-1", info(200_000, 32_000, Thinking::Budget)),
    ("claude-opus-4-2025", info(200_000, 32_000, Thinking::Budget)),
    ("claude-opus-4-0", info(200_000, 32_000, Thinking::Budget)),
    ("claude-sonnet-4-5", info(200_000, 64_000, Thinking::Budget)),
    ("claude-sonnet-4-2025", info(200_000, 64_000, Thinking::Budget)),
    ("claude-sonnet-4-0", info(200_000, 64_000, Thinking::Budget)),
    ("claude-haiku-4-5", info(200_000, 64_000, Thinking::Budget)),
    ("claude-fable-5", info(1_000_000, 128_000, Thinking::Effort)),
    ("claude-opus-5", info(1_000_000, 128_000, Thinking::Effort)),
    ("claude-sonnet-5", info(1_000_000, 128_000, Thinking::Effort)),
    ("claude-haiku-5", info(1_000_000, 128_000, Thinking::Effort)),
    ("claude-", info(1_000_000, 64_000, Thinking::Effort)),
    ("gpt-3.5", info(16_385, 4_096, Thinking::None)),
    ("gpt-4.1", info(1_047_576, 32_768, Thinking::None)),
    ("gpt-4o", info(128_000, 16_384, Thinking::None)),
    ("gpt-4", info(128_000, 4_096, Thinking::None)),
    ("gpt-5-chat", info(128_000, 16_384, Thinking::None)),
    ("gpt-5.4-mini", info(400_000, 128_000, Thinking::Effort)),
    ("gpt-5.4-nano", info(400_000, 128_000, Thinking::Effort)),
    ("gpt-5.4", info(1_050_000, 128_000, Thinking::Effort)),
    ("gpt-5.5", info(1_050_000, 128_000, Thinking::Effort)),
    ("gpt-5.6", info(1_050_000, 128_000, Thinking::Effort)),
    ("gpt-5", info(400_000, 128_000, Thinking::Effort)),
    ("gpt-6", info(1_050_000, 128_000, Thinking::Effort)),
    ("gpt-oss", info(131_072, 32_768, Thinking::Effort)),
    ("gpt-", info(400_000, 128_000, Thinking::Effort)),
    ("codex-", info(400_000, 128_000, Thinking::Effort)),
    ("o1", info(200_000, 100_000, Thinking::Effort)),
    ("o3", info(200_000, 100_000, Thinking::Effort)),
    ("o4", info(200_000, 100_000, Thinking::Effort)),
    ("gemini-1.5", info(1_048_576, 8_192, Thinking::None)),
    ("gemini-2.0", info(1_048_576, 8_192, Thinking::None)),
    ("gemini-2.5", info(1_048_576, 65_536, Thinking::Budget)),
    ("gemini-", info(1_048_576, 65_536, Thinking::Effort)),
];

/// Names that people mean when they mistype one, where the provider cannot be asked.
const NAMES: [&str; 27] = [
    "claude-fable-5-1",
    "claude-opus-5-5",
    "claude-opus-5",
    "claude-opus-4-8",
    "claude-opus-4-7",
    "claude-opus-4-6",
    "claude-opus-4-5",
    "claude-sonnet-5-5",
    "claude-sonnet-5",
    "claude-sonnet-4-6",
    "claude-sonnet-4-5",
    "claude-haiku-5-5",
    "claude-haiku-4-5",
    "gpt-6-astra",
    "gpt-6.1-sol",
    "gpt-6.1-terra",
    "gpt-6-luna",
    "gpt-5.6-sol",
    "gpt-5.6-terra",
    "gpt-5.6-luna",
    "gpt-5.5",
    "gpt-5.4",
    "gpt-5.4-mini",
    "gemini-3.8-flash",
    "gemini-3.5-flash",
    "gemini-3.1-pro-preview",
    "gemini-3.1-flash-lite",
];

/// How many suggestions are made.
const MAX_SUGGESTIONS: usize = 3;
/// How alike two names must be, from 0 to 1.
const ALIKE: f64 = 0.75;

/// What is known of a model. A vendor's prefix (`anthropic/…`) does not matter, nor do capitals, nor that routers write
/// `claude-opus-4.5` for what its vendor calls `claude-opus-4-5`.
pub fn lookup(model: &str) -> ModelInfo {
    let bare = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let bare = if bare.starts_with("claude-") { bare.replace('.', "-") } else { bare };
    RULES.iter().find(|(prefix, _)| bare.starts_with(*prefix)).map_or(UNKNOWN, |(_, info)| *info)
}

/// The known names that are like a mistyped one, the most alike first.
pub fn suggestions(model: &str) -> Vec<String> {
    close_matches(model, NAMES)
}

/// The names that are like a wanted one, the most alike first.
pub fn close_matches<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let score = |name: &str| {
        let name = name.to_lowercase();
        // The tag or vendor is what people leave out: `llama3` for `llama3:8b`.
        let part = name.split([':', '/']).any(|part| part == wanted);
        if part { 1.0 } else { strsim::jaro_winkler(&wanted, &name) }
    };
    let mut scored: Vec<(f64, &str)> = names.into_iter().map(|name| (score(name), name)).collect();
    scored.retain(|(score, name)| *score >= ALIKE && !name.eq(&wanted.as_str()));
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.to_owned()).collect()
}

const fn info(context_window: u64, max_output: u32, thinking: Thinking) -> ModelInfo {
    ModelInfo { context_window, max_output, thinking }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_known_by_their_beginning() {
        let thinking = |model: &str| lookup(model).thinking;
        assert_eq!(thinking("claude-haiku-4-5-20251001"), Thinking::Budget);
        assert_eq!(thinking("anthropic/claude-opus-4-7"), Thinking::Effort);
        assert_eq!(thinking("gpt-4.1-mini"), Thinking::None);
        assert_eq!(thinking("gpt-5.6-sol"), Thinking::Effort);
        assert_eq!(lookup("qwen3:8b"), UNKNOWN);
    }

    #[test]
    fn windows_are_as_the_vendors_publish_them() {
        let window = |model: &str| lookup(model).context_window;
        for model in ["gpt-5.6-sol", "gpt-6-luna", "gpt-6.1-terra", "openai/gpt-6-astra"] {
            assert_eq!(window(model), 1_050_000, "{model}");
        }
        assert_eq!(window("claude-haiku-5-5"), 1_000_000);
        assert_eq!(window("gpt-5.1"), 400_000);
        // As routers write it.
        assert_eq!(lookup("anthropic/claude-opus-4.5"), lookup("claude-opus-4-5"));
        assert_eq!(lookup("anthropic/Claude-Haiku-4.5").context_window, 200_000);
    }

    #[test]
    fn an_exact_rule_comes_before_a_general_one() {
        for (at, (prefix, _)) in RULES.iter().enumerate() {
            let first = RULES.iter().position(|(earlier, _)| prefix.starts_with(earlier));
            assert_eq!(first, Some(at), "{prefix} is hidden by an earlier rule");
        }
    }

    #[test]
    fn a_mistyped_name_finds_its_neighbours() {
        assert_eq!(suggestions("claude-sonet-4-6")[0], "claude-sonnet-4-6");
        assert_eq!(suggestions("gpt5.5")[0], "gpt-5.5");
        assert_eq!(close_matches("llama3", ["qwen3:8b", "llama3:8b"]), ["llama3:8b"]);
        assert_eq!(suggestions("zzz"), Vec::<String>::new());
    }
}
