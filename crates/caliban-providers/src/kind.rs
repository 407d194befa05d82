//! The providers by name: how each is reached unless the settings say otherwise.

use std::str::FromStr;

use crate::{ProviderError, catalog::close_matches};

/// A provider by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProviderKind {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    OpenAi,
    /// OpenAI Chat Completions, and everything that speaks the same.
    OpenAiChat,
    /// Google's Gemini API.
    Gemini,
    /// A local Ollama.
    Ollama,
    /// OpenRouter.
    OpenRouter,
    /// A local LM Studio.
    LmStudio,
    /// A local llama.cpp server.
    LlamaCpp,
    /// A vLLM server.
    Vllm,
    /// Answers from a script.
    Scripted,
}

/// What is written once about each provider.
struct ProviderFacts {
    kind: ProviderKind,
    name: &'static str,
    base_url: &'static str,
    key_variable: Option<&'static str>,
    model: Option<&'static str>,
    start: Option<&'static str>,
}

const FACTS: [ProviderFacts; 10] = [
    ProviderFacts {
        kind: ProviderKind::Anthropic,
        name: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        key_variable: Some("ANTHROPIC_API_KEY"),
        model: Some("claude-sonnet-4-6"),
        start: None,
    },
    ProviderFacts {
        kind: ProviderKind::OpenAi,
        name: "openai",
        base_url: "https://api.openai.com/v1",
        key_variable: Some("OPENAI_API_KEY"),
        model: Some("gpt-5.5"),
        start: None,
    },
    ProviderFacts {
        kind: ProviderKind::OpenAiChat,
        name: "openai-chat",
        base_url: "https://api.openai.com/v1",
        key_variable: Some("OPENAI_API_KEY"),
        model: Some("gpt-5.5"),
        start: None,
    },
    ProviderFacts {
        kind: ProviderKind::Gemini,
        name: "gemini",
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        key_variable: Some("GEMINI_API_KEY"),
        // Google has retired 2.5 Pro and names this one in its place.
        model: Some("gemini-3.8-flash"),
        start: None,
    },
    ProviderFacts {
        kind: ProviderKind::Ollama,
        name: "ollama",
        base_url: "http://localhost:11434/v1",
        key_variable: None,
        model: None,
        start: Some("is Ollama running? start it with `ollama serve`"),
    },
    ProviderFacts {
        kind: ProviderKind::OpenRouter,
        name: "openrouter",
        base_url: "https://openrouter.ai/api/v1",
        key_variable: Some("OPENROUTER_API_KEY"),
        model: None,
        start: None,
    },
    ProviderFacts {
        kind: ProviderKind::LmStudio,
        name: "lmstudio",
        base_url: "http://localhost:1234/v1",
        key_variable: None,
        model: None,
        start: Some("is LM Studio's server running? start it with `lms server start`"),
    },
    ProviderFacts {
        kind: ProviderKind::LlamaCpp,
        name: "llamacpp",
        base_url: "http://localhost:8080/v1",
        key_variable: None,
        model: None,
        start: Some("is llama.cpp running? start it with `llama-server -m <model>.gguf --jinja`"),
    },
    ProviderFacts {
        kind: ProviderKind::Vllm,
        name: "vllm",
        base_url: "http://localhost:8000/v1",
        key_variable: None,
        model: None,
        start: Some("is vLLM running? start it with `vllm serve <model>`"),
    },
    ProviderFacts {
        kind: ProviderKind::Scripted,
        name: "scripted",
        base_url: "",
        key_variable: None,
        model: Some("demo"),
        start: None,
    },
];

impl ProviderKind {
    /// Every provider, in the order in which they are listed to people.
    pub fn all() -> impl Iterator<Item = Self> {
        FACTS.iter().map(|facts| facts.kind)
    }

    /// The name: `anthropic`, `openai`, …
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Where it is, unless the settings say otherwise; empty for `scripted`.
    pub fn default_base_url(self) -> &'static str {
        self.facts().base_url
    }

    /// The environment variable that usually holds its key; none where no key is needed.
    pub fn key_variable(self) -> Option<&'static str> {
        self.facts().key_variable
    }

    /// The model that is used when none is named; none where only the user can know.
    pub fn default_model(self) -> Option<&'static str> {
        self.facts().model
    }

    /// How to start it, where it usually runs on the user's own machine.
    pub fn how_to_start(self) -> Option<&'static str> {
        self.facts().start
    }

    fn facts(self) -> &'static ProviderFacts {
        let at = FACTS.iter().position(|facts| facts.kind == self).unwrap_or_default();
        &FACTS[at]
    }
}

impl std::fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ProviderKind {
    type Err = ProviderError;

    fn from_str(name: &str) -> Result<Self, ProviderError> {
        let found = FACTS.iter().find(|facts| facts.name == name);
        found.map(|facts| facts.kind).ok_or_else(|| {
            let names = || FACTS.iter().map(|facts| facts.name);
            ProviderError::UnknownProvider {
                name: crate::error::clean(name),
                suggestion: close_matches(name, names()).into_iter().next(),
                known: names().collect::<Vec<_>>().join(", "),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_a_wrong_one_is_told_what_there_is() {
        for kind in ProviderKind::all() {
            assert_eq!(kind.name().parse::<ProviderKind>(), Ok(kind));
        }
        let error = "antropic".parse::<ProviderKind>().unwrap_err();
        assert_eq!(error.to_string(), "there is no provider antropic");
        let hint = "did you mean anthropic? known: anthropic, openai, openai-chat, gemini, ollama, openrouter, \
                    lmstudio, llamacpp, vllm, scripted";
        assert_eq!(error.hint().as_deref(), Some(hint));
    }
}
