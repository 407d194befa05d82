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
        let family = if is_anthropic { Protocol::Anthropic } else { Protocol::Responses };
        let is_models = path == "/v1/models" || path.starts_with("/v1/models/");
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
            (Method::HEAD, "/", Route::Root),
        ];
        for (method, path, expected) in cases {
            assert_eq!(route(method, path), expected, "{path}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", http::HeaderValue::from_static("2023-06-01"));
        assert_eq!(Route::of(&Method::GET, "/v1/models", &headers), Route::Free(Protocol::Anthropic));
    }
}
