//! What a request asks for, by its method and path.

use http::{HeaderMap, Method};

/// Whose protocol a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
    /// OpenAI Chat Completions.
    Chat,
    /// Google's Gemini API. It names the model in the path.
    Gemini,
}

/// Where Gemini's paths begin.
const GEMINI: &str = "/v1beta";

impl Protocol {
    /// A path without what the provider's address ends with.
    pub(crate) fn below_base(self, path: &str) -> &str {
        let base = if self == Self::Gemini { GEMINI } else { "/v1" };
        path.strip_prefix(base).unwrap_or(path)
    }
}

/// The model and the verb of a path of Gemini's: `/v1beta/models/gemini-3-pro:generateContent`.
pub(crate) fn gemini_call(path: &str) -> Option<(&str, &str)> {
    let (model, verb) = path.strip_prefix(GEMINI)?.strip_prefix("/models/")?.rsplit_once(':')?;
    is_model(model).then_some((model, verb))
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// An answer of a model: it costs something.
    Ask(Protocol),
    /// Something that costs nothing: the models, a count of tokens.
    Free(Protocol),
    /// Whether anybody is there.
    Root,
    /// Nothing that goes through here.
    Unknown(Protocol),
}

impl Route {
    pub(crate) fn of(method: &Method, path: &str, headers: &HeaderMap) -> Self {
        // Both protocols have a list of models at the same path.
        let is_anthropic = headers.contains_key("anthropic-version") || headers.contains_key("x-api-key");
        let is_gemini =
            path.strip_prefix(GEMINI).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if is_gemini {
            return Self::of_gemini(method, path);
        }
        let family = if is_anthropic { Protocol::Anthropic } else { Protocol::Responses };
        let is_models = path == "/v1/models" || path.strip_prefix("/v1/models/").is_some_and(is_model);
        match (method, path) {
            (&Method::POST, "/v1/messages") => Self::Ask(Protocol::Anthropic),
            (&Method::POST, "/v1/messages/count_tokens") => Self::Free(Protocol::Anthropic),
            // A conversation made shorter is an answer of the model, too.
            (&Method::POST, "/v1/responses" | "/v1/responses/compact") => Self::Ask(Protocol::Responses),
            (&Method::POST, "/v1/chat/completions") => Self::Ask(Protocol::Chat),
            (&Method::GET, _) if is_models => Self::Free(family),
            (&Method::GET | &Method::HEAD, "/" | "/v1" | "/v1/") => Self::Root,
            _ => Self::Unknown(family),
        }
    }

    fn of_gemini(method: &Method, path: &str) -> Self {
        let models = path.strip_prefix(GEMINI).and_then(|rest| rest.strip_prefix("/models"));
        match (method, models, gemini_call(path)) {
            (&Method::POST, _, Some((_, "generateContent" | "streamGenerateContent"))) => {
                Self::Ask(Protocol::Gemini)
            }
            (&Method::POST, _, Some((_, "countTokens"))) => Self::Free(Protocol::Gemini),
            (&Method::GET, Some(""), _) => Self::Free(Protocol::Gemini),
            (&Method::GET, Some(name), None) if name.strip_prefix('/').is_some_and(is_model) => {
                Self::Free(Protocol::Gemini)
            }
            _ => Self::Unknown(Protocol::Gemini),
        }
    }
}

/// Whether this is the name of a model and nothing else: a path that leads elsewhere (`../files`) would go out with the key.
fn is_model(name: &str) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(c))
    };
    name.split('/').all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_costs_is_known_by_its_path_and_everything_else_does_not_go_through() {
        let route = |method: Method, path: &str| Route::of(&method, path, &HeaderMap::new());
        let cases = [
            (Method::POST, "/v1/messages", Route::Ask(Protocol::Anthropic)),
            (Method::POST, "/v1/messages/count_tokens", Route::Free(Protocol::Anthropic)),
            (Method::POST, "/v1/messages/batches", Route::Unknown(Protocol::Responses)),
            (Method::POST, "/v1/responses/compact", Route::Ask(Protocol::Responses)),
            (Method::GET, "/v1/responses", Route::Unknown(Protocol::Responses)),
            (Method::POST, "/v1/chat/completions", Route::Ask(Protocol::Chat)),
            (Method::POST, "/v1/chat/completions/", Route::Unknown(Protocol::Responses)),
            (Method::POST, "/v1/models", Route::Unknown(Protocol::Responses)),
            (Method::GET, "/v1/models/gpt-5.5", Route::Free(Protocol::Responses)),
            (Method::GET, "/v1/../v1/models/", Route::Unknown(Protocol::Responses)),
            (Method::GET, "/v1/models/anthropic/claude:free", Route::Free(Protocol::Responses)),
            (Method::GET, "/v1/models/../files/F/content", Route::Unknown(Protocol::Responses)),
            (Method::GET, "/v1/models/%2e%2e/files", Route::Unknown(Protocol::Responses)),
            (Method::GET, "/v1/models/.\\files", Route::Unknown(Protocol::Responses)),
            (Method::GET, "/v1/models//x", Route::Unknown(Protocol::Responses)),
            (Method::HEAD, "/", Route::Root),
            (Method::POST, "/v1beta/models/gemini-3-pro:generateContent", Route::Ask(Protocol::Gemini)),
            (Method::POST, "/v1beta/models/gemini-3-pro:streamGenerateContent", Route::Ask(Protocol::Gemini)),
            (Method::POST, "/v1beta/models/gemini-3-pro:countTokens", Route::Free(Protocol::Gemini)),
            (
                Method::POST,
                "/v1beta/models/gemini-3-pro:batchGenerateContent",
                Route::Unknown(Protocol::Gemini),
            ),
            (Method::POST, "/v1beta/models/../x:generateContent", Route::Unknown(Protocol::Gemini)),
            (Method::POST, "/v1beta/cachedContents", Route::Unknown(Protocol::Gemini)),
            (Method::GET, "/v1beta/models", Route::Free(Protocol::Gemini)),
            (Method::GET, "/v1beta/models/gemini-3-pro", Route::Free(Protocol::Gemini)),
            (Method::GET, "/v1beta/files", Route::Unknown(Protocol::Gemini)),
            (Method::GET, "/v1betatest", Route::Unknown(Protocol::Responses)),
        ];
        for (method, path, expected) in cases {
            assert_eq!(route(method, path), expected, "{path}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", http::HeaderValue::from_static("2023-06-01"));
        assert_eq!(Route::of(&Method::GET, "/v1/models", &headers), Route::Free(Protocol::Anthropic));
    }
}
