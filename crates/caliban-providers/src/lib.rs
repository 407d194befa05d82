//! Models: one trait, five ways to reach one.
//!
//! Owns the wire protocols, retries, the script format and what is known of models. Reads no
//! environment and prints nothing: settings come in a [`Config`], progress goes out as [`Delta`]s.

mod anthropic;
pub mod catalog;
mod chat;
mod context_window;
mod error;
mod factory;
mod gemini;
mod governor;
mod http;
mod kind;
mod refused_parts;
pub mod relay;
mod responses;
mod retry;
pub mod script;
pub mod scripted;
mod thinking;
mod unstreamed;
mod wire;

pub use caliban_core::BoxFuture;
use caliban_core::{
    message::{Effort, Message, StopReason, ToolSpec},
    usage::Usage,
};
pub use error::ProviderError;
pub use factory::{Config, MAX_SCRIPT_BYTES, ScriptSource, build, ollama_models, ollama_running};
pub use governor::{Admitted, Allowance, Governor};
pub use kind::ProviderKind;
pub use retry::RetryPolicy;
use tokio_util::sync::CancellationToken;

/// One request to a model. Everything in it is sent in the order given, so that the prefix of a
/// conversation is byte-identical from turn to turn.
#[derive(Debug, Clone)]
pub struct ModelRequest<'a> {
    /// The model's name as the provider knows it.
    pub model: &'a str,
    /// The system prompt.
    pub system: &'a str,
    /// The tools the model may call.
    pub tools: &'a [ToolSpec],
    /// Whether it may call them now. They are sent in any case: the conversation speaks of them.
    pub calls: Calls,
    /// The conversation, oldest first.
    pub messages: &'a [Message],
    /// The most tokens the answer may have; the provider's usual one when `None`.
    pub max_output: Option<u32>,
    /// How hard to think.
    pub effort: Effort,
    /// Stable over a conversation; lets providers route to the same prompt cache.
    pub session: &'a str,
}

/// Whether a model may call tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Calls {
    /// As it likes.
    #[default]
    Allowed,
    /// It has to answer.
    Forbidden,
}

/// A model's whole answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReply {
    /// What it said and which tools it called.
    pub message: Message,
    /// What it cost.
    pub usage: Usage,
    /// Why it stopped.
    pub stop: StopReason,
    /// The model that answered, by the provider's word.
    pub model: String,
}

/// What can be seen while an answer comes in.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// More reasoning that may be shown.
    Thinking(String),
    /// A tool call has begun; its arguments are still coming.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// What the attempt has used so far, by the server's own count. Each one replaces the one before it.
    Usage(Usage),
    /// The attempt failed and is made again: what it has shown so far is void.
    Restart {
        /// Why, in words.
        reason: String,
    },
    /// Nothing comes until the wait is over.
    Waiting {
        /// Why, in words.
        reason: String,
        /// For how long.
        wait: std::time::Duration,
        /// What kind of wait it is.
        cause: WaitCause,
    },
}

/// Why a request waits before it is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCause {
    /// The server has asked for it: a rate limit or overload.
    RateLimit,
    /// The server cannot be reached.
    Outage,
    /// The last attempt failed, and the next one backs off.
    Retry,
}

/// Whether an attempt that failed may be on the bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Billed {
    /// The server did not begin to answer.
    No,
    /// The model was at work when the attempt failed.
    Perhaps,
}

/// The caller does not want the request to be sent (any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stopped;

/// Accompanies a request: sees the answer come in, and is asked before each attempt. A closure that takes [`Delta`]s is
/// one that lets everything pass.
pub trait Watch: Send {
    /// Something new of the answer, or of the wait for it.
    fn see(&mut self, delta: Delta);

    /// An attempt is about to be sent; a retry is one, too. [`Stopped`] keeps it from being sent and ends the request.
    fn before_attempt<'a>(&'a mut self) -> BoxFuture<'a, Result<(), Stopped>> {
        Box::pin(async { Ok(()) })
    }

    /// The attempt has failed.
    fn attempt_failed<'a>(&'a mut self, _billed: Billed) -> BoxFuture<'a, Result<(), Stopped>> {
        Box::pin(async { Ok(()) })
    }
}

impl<F: FnMut(Delta) + Send> Watch for F {
    fn see(&mut self, delta: Delta) {
        self(delta);
    }
}

/// Something that answers model requests.
pub trait Provider: Send + Sync {
    /// The provider's name: `anthropic`, `openai`, `openai-chat`, `gemini`, `ollama`, `scripted`.
    fn name(&self) -> &str;

    /// Answers one request, retries included; `watch` sees the answer as it comes in.
    /// Dropping the future or cancelling the token ends the request at once.
    fn respond<'a>(
        &'a self,
        request: ModelRequest<'a>,
        watch: &'a mut dyn Watch,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<ModelReply, ProviderError>>;

    /// How hard the model thinks about a question aside, asked from the same prefix, when it usually thinks so hard. As
    /// little as it can, unless that would cost the provider's cache of the prefix.
    fn aside(&self, _usual: Effort) -> Effort {
        Effort::None
    }

    /// The models that the provider offers; empty where it cannot be asked.
    fn list_models<'a>(
        &'a self,
        _cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Vec<String>, ProviderError>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    /// The context window that the server really gives this model, asked in at most two seconds;
    /// `None` where it cannot be asked or does not know, and [`caliban_core::models::family`] has to do. Ollama
    /// knows only once the model is loaded: ask again after the first answer.
    fn context_window<'a>(&'a self, _model: &'a str) -> BoxFuture<'a, Option<u64>> {
        Box::pin(async { None })
    }
}
