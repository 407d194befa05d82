//! What the wire protocols have in common: the seam between the HTTP provider and a protocol.

use std::hash::{BuildHasher as _, RandomState};

use caliban_core::{
    message::{Block, Message, Role, StopReason},
    sse,
    usage::Usage,
};
use serde_json::{Value, json};

use crate::{
    Delta, ModelReply, ModelRequest, anthropic, chat, error::AttemptFailure, gemini, kind::ProviderKind,
    responses,
};

/// How the text of a failed tool call begins where the protocol has no flag for it.
pub(crate) const FAILED_MARK: &str = "[the tool failed] ";

/// Sees what comes of an answer.
pub(crate) type Observe<'a> = dyn FnMut(Delta) + Send + 'a;

/// A wire protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Anthropic,
    Responses,
    Chat(chat::Dialect),
    Gemini,
}

/// Whether more events are to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamProgress {
    More,
    /// The protocol's closing event was there.
    Closed,
}

/// Puts an answer together from its events.
pub(crate) trait Assemble: Send {
    /// Takes one event and shows what it brings.
    fn event(
        &mut self,
        event: &sse::SseEvent,
        observe: &mut Observe<'_>,
    ) -> Result<StreamProgress, AttemptFailure>;

    /// How many bytes of text, reasoning and arguments have come.
    fn size(&self) -> usize;

    /// The whole answer, or [`AttemptFailure::Cut`] if its end is missing.
    fn finish(self: Box<Self>) -> Result<ModelReply, AttemptFailure>;
}

impl Wire {
    pub(crate) fn url(self, base: &str, model: &str) -> String {
        match self {
            Self::Anthropic => format!("{base}/messages"),
            Self::Responses => format!("{base}/responses"),
            Self::Chat(_) => format!("{base}/chat/completions"),
            Self::Gemini => gemini::url(base, model),
        }
    }

    pub(crate) fn models_url(self, base: &str) -> String {
        match self {
            Self::Anthropic => format!("{base}/models?limit=1000"),
            Self::Gemini => format!("{base}/models?pageSize=1000"),
            Self::Responses | Self::Chat(_) => format!("{base}/models"),
        }
    }

    /// The headers of a request beside its content type.
    pub(crate) fn headers(self, key: Option<&str>) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        if self == Self::Anthropic {
            headers.push(("anthropic-version", anthropic::VERSION.to_owned()));
        }
        if let Some(key) = key {
            headers.push(match self {
                Self::Anthropic => ("x-api-key", key.to_owned()),
                Self::Gemini => ("x-goog-api-key", key.to_owned()),
                Self::Responses | Self::Chat(_) => ("authorization", format!("Bearer {key}")),
            });
        }
        headers
    }

    /// Headers that only some requests have.
    pub(crate) fn request_headers(self, request: &ModelRequest<'_>) -> Option<(&'static str, String)> {
        match self {
            Self::Anthropic => anthropic::headers(request),
            Self::Responses | Self::Chat(_) | Self::Gemini => None,
        }
    }

    pub(crate) fn body(self, provider: ProviderKind, request: &ModelRequest<'_>) -> Value {
        match self {
            Self::Anthropic => anthropic::body(provider, request),
            Self::Responses => responses::body(provider, request),
            Self::Chat(dialect) => chat::body(dialect, provider, request),
            Self::Gemini => gemini::body(provider, request),
        }
    }

    pub(crate) fn assembler(self, provider: ProviderKind, request: &ModelRequest<'_>) -> Box<dyn Assemble> {
        let ids = CallIds::default();
        match self {
            Self::Anthropic => Box::new(anthropic::AnthropicAssembler::new(provider, request.model)),
            Self::Responses => Box::new(responses::ResponsesAssembler::new(provider, request.model)),
            Self::Chat(_) => Box::new(chat::ChatAssembler::new(provider, request.model, ids)),
            Self::Gemini => Box::new(gemini::GeminiAssembler::new(provider, request.model, ids)),
        }
    }
}

/// Makes ids for the calls of models that send none. The number of messages cannot tell two answers of a conversation
/// apart, since a compaction removes messages, so each answer gets a random number.
#[derive(Debug)]
pub(crate) struct CallIds {
    answer: u64,
    next: usize,
}

impl Default for CallIds {
    fn default() -> Self {
        // The keys of a hasher are random.
        Self { answer: RandomState::new().hash_one(()), next: 0 }
    }
}

impl CallIds {
    pub(crate) fn make(&mut self) -> String {
        self.next += 1;
        format!("call_{:016x}_{}", self.answer, self.next - 1)
    }
}

/// The data of an event as JSON.
pub(crate) fn parse(event: &sse::SseEvent) -> Result<Value, AttemptFailure> {
    serde_json::from_str(&event.data)
        .map_err(|error| AttemptFailure::Unreadable(format!("an event of the stream is not JSON: {error}")))
}

/// Tool arguments as the model sent them: an object, or the text itself where that was none.
pub(crate) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => value,
        _ => Value::String(text.to_owned()),
    }
}

/// Tool arguments as they are sent back: always an object, since every protocol insists on one.
pub(crate) fn arguments_object(input: &Value) -> Value {
    match input {
        Value::Object(_) => input.clone(),
        other => json!({"not_json": other}),
    }
}

/// The stop reason by what was said: calls count more than the provider's word.
fn settled(stop: StopReason, blocks: &[Block]) -> StopReason {
    let calls = blocks.iter().any(|block| matches!(block, Block::ToolUse { .. }));
    match stop {
        StopReason::MaxTokens | StopReason::Refusal(_) => stop,
        StopReason::EndTurn | StopReason::ToolUse | StopReason::Other(_) if calls => StopReason::ToolUse,
        StopReason::ToolUse => StopReason::EndTurn,
        StopReason::EndTurn | StopReason::Other(_) => stop,
    }
}

/// A whole answer. `model` is the one that answered by the provider's word; without it, it is the one that was asked for.
pub(crate) fn reply(
    stop: StopReason,
    blocks: Vec<Block>,
    usage: Usage,
    model: Option<String>,
    asked: String,
) -> ModelReply {
    let model = model.filter(|model| !model.is_empty()).unwrap_or(asked);
    let stop = settled(stop, &blocks);
    ModelReply { stop, message: Message { role: Role::Assistant, blocks }, usage, model }
}

/// Tokens, where the server counts those of the cache among all tokens of the prompt.
pub(crate) fn usage_of(prompt: u64, cache_read: u64, cache_write: u64, output: u64) -> Usage {
    let cache_read = cache_read.min(prompt);
    let cache_write = cache_write.min(prompt - cache_read);
    Usage { input: prompt - cache_read - cache_write, output, cache_read, cache_write }
}
