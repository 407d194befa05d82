//! The context window that a server really has, where it can be asked.
//!
//! Local servers often run a model with far less than it could hold, and Ollama forgets the beginning
//! of a conversation without a word. The catalogue cannot know that; the server does.

use serde_json::Value;

use crate::kind::ProviderKind;

/// Where to ask for a model's window; nothing where the catalogue is all there is.
pub(crate) fn url(kind: ProviderKind, base: &str, model: &str) -> Option<String> {
    let root = base.trim_end_matches("/v1");
    match kind {
        ProviderKind::Ollama => Some(format!("{root}/api/ps")),
        ProviderKind::LlamaCpp => Some(format!("{root}/props")),
        ProviderKind::LmStudio => Some(format!("{root}/api/v0/models")),
        ProviderKind::Vllm | ProviderKind::OpenRouter | ProviderKind::OpenAiChat => {
            Some(format!("{base}/models"))
        }
        ProviderKind::Gemini => {
            Some(format!("{base}/models/{}", model.strip_prefix("models/").unwrap_or(model)))
        }
        ProviderKind::Anthropic | ProviderKind::OpenAi | ProviderKind::Scripted => None,
    }
}

/// The window in the server's answer, for this model.
pub(crate) fn find(kind: ProviderKind, model: &str, answer: &Value) -> Option<u64> {
    let entry = |list: &str, name: &str| {
        let mut entries = answer[list].as_array()?.iter();
        entries.find(|entry| same(model, entry[name].as_str().unwrap_or_default()))
    };
    let window = match kind {
        ProviderKind::Ollama => entry("models", "name")?["context_length"].as_u64(),
        ProviderKind::LlamaCpp => answer.pointer("/default_generation_settings/n_ctx")?.as_u64(),
        ProviderKind::LmStudio => entry("data", "id")?["loaded_context_length"].as_u64(),
        ProviderKind::Vllm | ProviderKind::OpenRouter | ProviderKind::OpenAiChat => {
            let entry = entry("data", "id")?;
            entry["max_model_len"].as_u64().or_else(|| entry["context_length"].as_u64())
        }
        ProviderKind::Gemini => answer["inputTokenLimit"].as_u64(),
        ProviderKind::Anthropic | ProviderKind::OpenAi | ProviderKind::Scripted => None,
    };
    window.filter(|window| *window > 0)
}

/// Ollama adds `:latest` to names without a tag.
fn same(wanted: &str, name: &str) -> bool {
    name == wanted || name.strip_suffix(":latest") == Some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_server_is_asked_in_its_own_way() {
        let base = "http://h:1/v1";
        let cases = [
            (
                ProviderKind::Ollama,
                "http://h:1/api/ps",
                json!({"models": [{"name": "x", "context_length": 1}, {"name": "m:latest", "context_length": 4096}]}),
            ),
            (
                ProviderKind::LlamaCpp,
                "http://h:1/props",
                json!({"default_generation_settings": {"n_ctx": 4096}}),
            ),
            (
                ProviderKind::LmStudio,
                "http://h:1/api/v0/models",
                json!({"data": [{"id": "m", "max_context_length": 9, "loaded_context_length": 4096}]}),
            ),
            (
                ProviderKind::Vllm,
                "http://h:1/v1/models",
                json!({"data": [{"id": "m", "max_model_len": 4096}]}),
            ),
            (
                ProviderKind::OpenRouter,
                "http://h:1/v1/models",
                json!({"data": [{"id": "m", "context_length": 4096}]}),
            ),
            (ProviderKind::Gemini, "http://h:1/v1/models/m", json!({"inputTokenLimit": 4096})),
        ];
        for (kind, expected, answer) in cases {
            assert_eq!(url(kind, base, "m").as_deref(), Some(expected));
            assert_eq!(find(kind, "m", &answer), Some(4096), "{kind}");
            assert_eq!(find(kind, "m", &json!({})), None, "{kind}");
        }
        assert_eq!(url(ProviderKind::Anthropic, base, "m"), None);
    }
}
