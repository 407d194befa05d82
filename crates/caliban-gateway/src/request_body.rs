//! What the body of a request says that the ledger has to know. Nothing of it is changed.

use serde::Deserialize;

/// The longest name of a model that is written down.
const MODEL_CAP: usize = 200;

/// The part of a body that is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct AskedBody {
    pub(crate) model: String,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    max_output_tokens: Option<u64>,
    background: Option<bool>,
    #[serde(rename = "generationConfig", alias = "generation_config")]
    generation: GenerationConfig,
}

/// Where Gemini's requests have their limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct GenerationConfig {
    #[serde(rename = "maxOutputTokens", alias = "max_output_tokens")]
    max_output_tokens: Option<u64>,
}

impl AskedBody {
    /// What a body asks for; nothing when it is no request. `model` is the one that the path names, if it does.
    pub(crate) fn read(body: &[u8], model: Option<&str>) -> Option<Self> {
        let mut asked: Self = serde_json::from_slice(body).ok()?;
        if let Some(model) = model {
            asked.model = model.to_owned();
        }
        let is_name = !asked.model.is_empty()
            && asked.model.len() <= MODEL_CAP
            && !asked.model.contains(|c: char| c.is_control());
        is_name.then_some(asked)
    }

    /// Whether the provider works on it after it has answered, where nobody here could count it.
    pub(crate) fn is_background(&self) -> bool {
        self.background == Some(true)
    }

    /// The most tokens that the answer may have.
    pub(crate) fn max_output(&self) -> Option<u64> {
        let openai = self.max_completion_tokens.or(self.max_output_tokens);
        self.max_tokens.or(openai).or(self.generation.max_output_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_and_the_limit_are_read_in_each_protocols_words() {
        let read = |text: &str| {
            AskedBody::read(text.as_bytes(), None).map(|asked| (asked.max_output(), asked.model))
        };
        let expected = |limit| Some((limit, "m".to_owned()));
        assert_eq!(read(r#"{"model":"m","max_tokens":5,"messages":[{"content":"ä"}]}"#), expected(Some(5)));
        assert_eq!(read(r#"{"max_completion_tokens":6,"model":"m"}"#), expected(Some(6)));
        assert_eq!(read(r#"{"model":"m","max_output_tokens":null}"#), expected(None));
        let background =
            |text: &str| AskedBody::read(text.as_bytes(), None).is_some_and(|asked| asked.is_background());
        let gemini = br#"{"contents":[],"generationConfig":{"maxOutputTokens":7}}"#;
        let gemini = AskedBody::read(gemini, Some("gemini-3-pro")).unwrap();
        assert_eq!((gemini.max_output(), gemini.model.as_str()), (Some(7), "gemini-3-pro"));
        assert!(background(r#"{"model":"m","background":true}"#));
        assert!(!background(r#"{"model":"m","background":false}"#) && !background(r#"{"model":"m"}"#));
        for wrong in ["", "[]", r#"{"messages":[]}"#, r#"{"model":"a\nb"}"#, r#"{"model":"m""#] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
