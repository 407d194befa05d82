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
        ];
        for (method, path, expected) in cases {
            assert_eq!(route(method, path), expected, "{path}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", http::HeaderValue::from_static("2023-06-01"));
        assert_eq!(Route::of(&Method::GET, "/v1/models", &headers), Route::Free(Protocol::Anthropic));
    }
}
