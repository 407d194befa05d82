//! The wire formats: answers, errors and lists of models in each protocol.
//!
//! Pure: an answer goes in, events come out. Refuses to know sockets and how a step is chosen.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use caliban_core::message::StopReason;
use caliban_core::usage::Usage;
use caliban_providers::script::{ScriptStep, ScriptView};
use serde_json::{Value, json};

/// The creation time in all answers: fixed, so that answers can be compared.
const CREATED: u64 = 1_790_000_000;

/// A way to talk to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Anthropic Messages, `/v1/messages`.
    Anthropic,
    /// OpenAI Responses, `/v1/responses`.
    Responses,
    /// OpenAI Chat Completions, `/v1/chat/completions`.
    Chat,
    /// Gemini, `/v1beta/models/{model}:streamGenerateContent`.
    Gemini,
    /// Ollama: Chat Completions, with `/api/tags` for the models.
    Ollama,
}

impl Protocol {
    /// All of them, for tests that must pass for each.
    pub const ALL: [Self; 5] = [Self::Anthropic, Self::Responses, Self::Chat, Self::Gemini, Self::Ollama];

    /// Its name for `--provider`.
    pub fn provider(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Responses => "openai",
            Self::Chat => "openai-chat",
            Self::Gemini => "gemini",
            Self::Ollama => "ollama",
        }
    }

    /// The body of an error in the protocol's format, with the provider's reason.
    pub fn error_body(self, status: u16, message: &str) -> String {
        self.error(&WireRefusal::Status { status, message: Some(message), retry_after: None }).to_string()
    }

    /// The status of a refusal in this protocol.
    pub(crate) fn status(self, refusal: &WireRefusal<'_>) -> u16 {
        match (refusal, self) {
            (WireRefusal::Status { status, .. }, _) => *status,
            (WireRefusal::WrongKey(_), Self::Gemini) | (WireRefusal::UnknownModel(_), Self::Responses) => 400,
            (WireRefusal::WrongKey(_), _) => 401,
            (WireRefusal::UnknownModel(_), _) => 404,
        }
    }

    /// An error in the protocol's format.
    pub(crate) fn error(self, refusal: &WireRefusal<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::error(refusal),
            Self::Responses => responses::error(refusal),
            Self::Chat | Self::Ollama => chat::error(refusal),
            Self::Gemini => gemini::error(refusal),
        }
    }

    /// The answer as events.
    pub(crate) fn stream(self, answer: &WireAnswer<'_>) -> Vec<StreamPart> {
        match self {
            Self::Anthropic => anthropic::stream(answer),
            Self::Responses => responses::stream(answer),
            Self::Chat | Self::Ollama => chat::stream(answer),
            Self::Gemini => gemini::stream(answer),
        }
    }

    /// The answer as one document.
    pub(crate) fn whole(self, answer: &WireAnswer<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::whole(answer),
            Self::Responses => responses::whole(answer),
            Self::Chat | Self::Ollama => chat::whole(answer),
            Self::Gemini => gemini::whole(answer),
        }
    }

    /// An error event inside a stream that began well.
    pub(crate) fn error_event(self, answer: &WireAnswer<'_>, message: &str) -> String {
        match self {
            Self::Anthropic => anthropic::error_event(message),
            Self::Responses => responses::error_event(answer, message),
            Self::Chat | Self::Ollama => chat::error_event(message),
            Self::Gemini => gemini::error_event(message),
        }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WireRefusal<'a> {
    /// By the script, or by a violated rule of the protocol.
    Status { status: u16, message: Option<&'a str>, retry_after: Option<&'a str> },
    /// The key is missing or wrong: the key that was sent.
    WrongKey(&'a str),
    /// The model is not known.
    UnknownModel(&'a str),
}

/// An answer, ready to be encoded in a protocol.
#[derive(Debug)]
pub(crate) struct WireAnswer<'a> {
    /// The number of the request, to make ids.
    pub(crate) number: usize,
    pub(crate) model: &'a str,
    /// The request's body, for options that affect the form of the answer.
    pub(crate) asked: &'a Value,
    pub(crate) step: &'a ScriptStep,
    /// The text in its pieces.
    pub(crate) pieces: Vec<String>,
    /// Id, name and arguments.
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) usage: Usage,
    pub(crate) stop: StopReason,
}

impl<'a> WireAnswer<'a> {
    pub(crate) fn new(number: usize, asked: &'a Value, step: &'a ScriptStep, view: &'a ScriptView) -> Self {
        Self {
            number,
            model: &view.model,
            asked,
            step,
            pieces: step.pieces(),
            calls: step.calls(view.turn),
            usage: step.usage(view),
            stop: step.stop_reason(),
        }
    }

    fn text(&self) -> &str {
        self.step.text.as_deref().unwrap_or_default()
    }

    fn thinking(&self) -> Option<&str> {
        self.step.thinking.as_deref()
    }

    /// A placeholder for the provider's signature or encrypted reasoning, different for each answer.
    fn seal(&self) -> String {
        format!("EqQBCkYICxgCKkDseal{:04}==", self.number)
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}{:04}", self.number)
    }
}

/// A piece of a stream, and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamPart {
    /// An event around the content.
    Frame(String),
    /// A piece of the text: counted, and delayed if the script says so.
    Text(String),
    /// A piece of a call's arguments: counted.
    Arguments(String),
    /// An event that marks the answer as complete.
    End(String),
}

impl StreamPart {
    pub(crate) fn into_event(self) -> String {
        match self {
            Self::Frame(event) | Self::Text(event) | Self::Arguments(event) | Self::End(event) => event,
        }
    }
}

/// OpenAI's details of the input tokens; cache writes are included only if there are any.
fn cached(usage: Usage) -> Value {
    let mut details = json!({"cached_tokens": usage.cache_read});
    if usage.cache_write > 0 {
        details["cache_write_tokens"] = usage.cache_write.into();
    }
    details
}

/// A text in two halves (one if it is too short), to test that clients join pieces.
fn halves(text: &str) -> Vec<&str> {
    let mut middle = text.len() / 2;
    while !text.is_char_boundary(middle) {
        middle += 1;
    }
    let (first, second) = text.split_at(middle);
    [first, second].into_iter().filter(|half| !half.is_empty()).collect()
}

fn named_event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

fn data_event(data: &Value) -> String {
    format!("data: {data}\n\n")
}

/// The usual error text of a status.
fn usual(status: u16) -> &'static str {
    match status {
        400 => "The request is not valid.",
        401 => "The key is not valid.",
        403 => "The key may not do that.",
        404 => "There is no such thing here.",
        413 => "The request is too large.",
        429 => "This request would exceed the rate limit. Please try again later.",
        503 | 529 => "Overloaded",
        _ => "Internal server error",
    }
}

pub(crate) fn anthropic_models(models: &[String]) -> Value {
    let data: Vec<Value> = models
        .iter()
        .map(
            |id| json!({"type": "model", "id": id, "display_name": id, "created_at": "2026-01-01T00:00:00Z"}),
        )
        .collect();
    json!({"data": data, "has_more": false, "first_id": models.first(), "last_id": models.last()})
}

pub(crate) fn openai_models(models: &[String]) -> Value {
    let data: Vec<Value> = models
        .iter()
        .map(|id| json!({"id": id, "object": "model", "created": CREATED, "owned_by": "testkit"}))
        .collect();
    json!({"object": "list", "data": data})
}

pub(crate) fn gemini_models(models: &[String]) -> Value {
    let models: Vec<Value> = models
        .iter()
        .map(|id| {
            json!({"name": format!("models/{id}"), "displayName": id, "inputTokenLimit": 1_048_576,
                "outputTokenLimit": 65_536, "supportedGenerationMethods": ["generateContent", "countTokens"]})
        })
        .collect();
    json!({"models": models})
}

pub(crate) fn ollama_models(models: &[String]) -> Value {
    let models: Vec<Value> = models
        .iter()
        .map(|name| {
            json!({"name": name, "model": name, "modified_at": "2026-01-01T00:00:00Z", "size": 5_000_000_000u64,
                "digest": "0".repeat(64), "details": {"parent_model": "", "format": "gguf", "family": "test",
                "families": ["test"], "parameter_size": "8B", "quantization_level": "Q4_K_M"}})
        })
        .collect();
    json!({"models": models})
}
