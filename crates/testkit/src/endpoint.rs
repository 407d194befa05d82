//! What a request asks for, by its method, path and query.

use crate::wire::Protocol;

/// A thing the server can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Ask the model. Gemini has the model in the path, the others in the body.
    Ask { protocol: Protocol, model: Option<String>, form: EndpointForm },
    /// Count the tokens of a prompt.
    Count(Protocol),
    /// List the models.
    Models(Protocol),
    /// Ollama's version.
    OllamaVersion,
    /// `/`, by which clients check whether the server is there.
    Root,
    /// An unknown path.
    Unknown,
}

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndpointForm {
    /// As the body's `stream` says.
    AsAsked,
    Events,
    /// One document.
    Whole,
    /// One JSON list of the events.
    List,
}

impl Endpoint {
    /// `anthropic` says whether the request has Anthropic's version header: `/v1/models` is shared.
    pub(crate) fn of(method: &str, path: &str, query: &str, anthropic: bool) -> Self {
        let ask = |protocol| Self::Ask { protocol, model: None, form: EndpointForm::AsAsked };
        match (method, path.trim_end_matches('/')) {
            ("POST", "/v1/messages") => ask(Protocol::Anthropic),
            ("POST", "/v1/messages/count_tokens") => Self::Count(Protocol::Anthropic),
            ("POST", "/v1/responses") => ask(Protocol::Responses),
            ("POST", "/v1/chat/completions") => ask(Protocol::Chat),
            ("GET", "/v1/models") if anthropic => Self::Models(Protocol::Anthropic),
            ("GET", "/v1/models") => Self::Models(Protocol::Chat),
            ("GET", "/v1beta/models") => Self::Models(Protocol::Gemini),
            ("GET", "/api/tags") => Self::Models(Protocol::Ollama),
            ("GET", "/api/version") => Self::OllamaVersion,
            ("GET" | "HEAD", "") => Self::Root,
            ("POST", path) => {
                match path.strip_prefix("/v1beta/models/").and_then(|rest| rest.split_once(':')) {
                    Some((model, verb)) => Self::gemini(model, verb, query),
                    None => Self::Unknown,
                }
            }
            _ => Self::Unknown,
        }
    }

    fn gemini(model: &str, verb: &str, query: &str) -> Self {
        let form = match verb {
            "generateContent" => EndpointForm::Whole,
            "streamGenerateContent" if query.split('&').any(|pair| pair == "alt=sse") => EndpointForm::Events,
            "streamGenerateContent" => EndpointForm::List,
            "countTokens" => return Self::Count(Protocol::Gemini),
            _ => return Self::Unknown,
        };
        Self::Ask { protocol: Protocol::Gemini, model: Some(model.to_owned()), form }
    }

    /// The protocol whose format errors have.
    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Ask { protocol, .. } | Self::Count(protocol) | Self::Models(protocol) => *protocol,
            Self::OllamaVersion | Self::Root | Self::Unknown => Protocol::Chat,
        }
    }
}
