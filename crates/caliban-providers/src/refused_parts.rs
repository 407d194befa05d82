//! What a server has refused is left out from then on.
//!
//! Servers that speak a protocol do not all know all of it, and accounts may not use all of it. A refusal that names a
//! part which can be done without is met by sending the request again without it, at once. A picture that is refused is
//! replaced by words, so that a conversation with it in can go on.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

use caliban_core::message::{Block, Message, ResultPart};
use serde_json::Value;

use crate::error::AttemptFailure;

/// What stands in the place of a picture that was refused.
pub(crate) const NO_PICTURE: &str = "[a picture was here; the model's provider refused it]";

/// Something that a request can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum OptionalPart {
    CacheKey,
    StreamOptions,
    Summary,
    Encrypted,
    Display,
    OldThinking,
    Effort,
    Thinking,
    ToolChoice,
    ParallelCalls,
    MaxTokensName,
    Stream,
}

/// Each part with the words that a refusal names it by, the more exact ones first.
const PARTS: [(OptionalPart, &[&str]); 12] = [
    (OptionalPart::CacheKey, &["prompt_cache_key"]),
    (OptionalPart::StreamOptions, &["stream_options"]),
    (OptionalPart::Summary, &["reasoning.summary", "reasoning summar"]),
    (OptionalPart::Encrypted, &["encrypted_content", "'include'", "\"include\"", "include["]),
    (OptionalPart::MaxTokensName, &["max_completion_tokens"]),
    (OptionalPart::ParallelCalls, &["parallel_tool_calls"]),
    (OptionalPart::ToolChoice, &["tool_choice"]),
    (OptionalPart::Display, &["thinking.display", "thinking.adaptive.display"]),
    (
        OptionalPart::OldThinking,
        &["signature", "redacted_thinking", "thinking block", "`thinking` block", "item of type 'reasoning'"],
    ),
    (OptionalPart::Effort, &["effort", "thinking_level", "thinkinglevel"]),
    (OptionalPart::Thinking, &["thinking", "reasoning"]),
    (OptionalPart::Stream, &["'stream'", "\"stream\"", "to stream", "streaming", "stream is not"]),
];

/// What one server has refused so far.
#[derive(Debug, Default)]
pub(crate) struct Concessions(Mutex<RefusedParts>);

#[derive(Debug, Default, Clone)]
struct RefusedParts {
    parts: BTreeSet<OptionalPart>,
    pictures: BTreeSet<u64>,
    accepted: BTreeSet<u64>,
}

impl Concessions {
    /// The messages as they can be sent; nothing when they can be as they are.
    pub(crate) fn messages(&self, messages: &[Message]) -> Option<Vec<Message>> {
        let refused = self.lock().pictures.clone();
        if refused.is_empty() {
            return None;
        }
        let mut messages = messages.to_vec();
        for block in messages.iter_mut().flat_map(|message| &mut message.blocks) {
            match block {
                Block::Image { data, .. } if refused.contains(&mark(data)) => {
                    *block = Block::Text { text: NO_PICTURE.to_owned() };
                }
                Block::ToolResult { content, .. } => {
                    for part in content {
                        if let ResultPart::Image { data, .. } = part
                            && refused.contains(&mark(data))
                        {
                            *part = ResultPart::Text { text: NO_PICTURE.to_owned() };
                        }
                    }
                }
                _ => {}
            }
        }
        Some(messages)
    }

    /// Takes out of a request what the server has refused.
    pub(crate) fn apply(&self, body: &mut Value) {
        let parts = self.lock().parts.clone();
        for part in parts {
            take_out(body, part);
        }
    }

    /// The request was answered: its pictures are good ones.
    pub(crate) fn accept(&self, messages: &[Message]) {
        let pictures = pictures(messages);
        if !pictures.is_empty() {
            self.lock().accepted.extend(pictures);
        }
    }

    /// Whether the failure is a refusal of something that the request has and can do without. Then it is left out from now
    /// on.
    pub(crate) fn concede(&self, failure: &AttemptFailure, body: &Value, messages: &[Message]) -> bool {
        let AttemptFailure::Status {
            status: status @ (400 | 403 | 413 | 415 | 422 | 501), code, reason, ..
        } = failure
        else {
            return false;
        };
        let words = format!("{code} {reason}").to_lowercase();
        let mut refused = self.lock();
        let open: BTreeSet<u64> = pictures(messages).difference(&refused.pictures).copied().collect();
        if !open.is_empty()
            && (*status == 413 || ["image", "picture"].iter().any(|word| words.contains(word)))
        {
            // Those that were taken before are not the ones, unless there is no other.
            let new: BTreeSet<u64> = open.difference(&refused.accepted).copied().collect();
            refused.pictures.extend(if new.is_empty() { open } else { new });
            return true;
        }
        if matches!(status, 413 | 415) {
            return false;
        }
        let found = PARTS.iter().find(|(part, names)| {
            let mut without = body.clone();
            names.iter().any(|name| words.contains(name)) && {
                take_out(&mut without, *part);
                without != *body
            }
        });
        match found {
            Some((part, _)) => refused.parts.insert(*part),
            None => false,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RefusedParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn mark(data: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    data.hash(&mut hasher);
    hasher.finish()
}

fn pictures(messages: &[Message]) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for block in messages.iter().flat_map(|message| &message.blocks) {
        match block {
            Block::Image { data, .. } => {
                found.insert(mark(data));
            }
            Block::ToolResult { content, .. } => found.extend(content.iter().filter_map(|part| match part {
                ResultPart::Image { data, .. } => Some(mark(data)),
                ResultPart::Text { .. } => None,
            })),
            _ => {}
        }
    }
    found
}

fn take_out(body: &mut Value, part: OptionalPart) {
    let Value::Object(fields) = body else { return };
    let mut remove = |pointer: &str, key: &str| {
        if let Some(Value::Object(inner)) = fields.get_mut(pointer) {
            inner.remove(key);
            if inner.is_empty() {
                fields.remove(pointer);
            }
        }
    };
    match part {
        OptionalPart::Summary => remove("reasoning", "summary"),
        OptionalPart::Display => remove("thinking", "display"),
        OptionalPart::Effort => {
            remove("reasoning", "effort");
            remove("output_config", "effort");
            fields.remove("reasoning_effort");
            thinking_config(fields, &["thinkingLevel", "thinkingBudget"]);
        }
        OptionalPart::Thinking => {
            for key in ["reasoning", "thinking", "output_config", "reasoning_effort", "include"] {
                fields.remove(key);
            }
            thinking_config(fields, &["thinkingLevel", "thinkingBudget", "includeThoughts"]);
        }
        OptionalPart::CacheKey => drop(fields.remove("prompt_cache_key")),
        OptionalPart::StreamOptions => drop(fields.remove("stream_options")),
        OptionalPart::Encrypted => drop(fields.remove("include")),
        OptionalPart::ToolChoice => drop(fields.remove("tool_choice")),
        OptionalPart::ParallelCalls => drop(fields.remove("parallel_tool_calls")),
        OptionalPart::MaxTokensName => {
            // Older servers know the one name, OpenAI's own the other.
            if let Some(limit) = fields.remove("max_tokens") {
                fields.insert("max_completion_tokens".to_owned(), limit);
            } else if let Some(limit) = fields.remove("max_completion_tokens") {
                fields.insert("max_tokens".to_owned(), limit);
            }
        }
        OptionalPart::Stream => {
            fields.remove("stream_options");
            if let Some(stream) = fields.get_mut("stream") {
                *stream = Value::Bool(false);
            }
        }
        OptionalPart::OldThinking => {
            for message in fields.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(content) = message["content"].as_array_mut() {
                    content.retain(|block| {
                        !matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"))
                    });
                }
            }
            if let Some(input) = fields.get_mut("input").and_then(Value::as_array_mut) {
                input.retain(|item| item["type"] != "reasoning");
            }
        }
    }
}

fn thinking_config(fields: &mut serde_json::Map<String, Value>, keys: &[&str]) {
    let config = fields.get_mut("generationConfig").and_then(|config| config.get_mut("thinkingConfig"));
    if let Some(Value::Object(config)) = config {
        config.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(reason: &str) -> AttemptFailure {
        AttemptFailure::Status {
            status: 400,
            code: String::new(),
            reason: reason.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn only_what_the_request_has_is_conceded_and_once() {
        let conceded = Concessions::default();
        let body =
            json!({"prompt_cache_key": "s", "stream": true, "stream_options": {"include_usage": true}});
        let concede = |reason: &str| conceded.concede(&refusal(reason), &body, &[]);
        assert!(!concede("the moon is in the wrong house"));
        assert!(!concede("unknown parameter: thinking"));
        assert!(concede("Unknown parameter: 'prompt_cache_key'."));
        assert!(!concede("Unknown parameter: 'prompt_cache_key'."));
        assert!(concede("extra inputs are not permitted: stream_options"));
        let mut sent = body.clone();
        conceded.apply(&mut sent);
        assert_eq!(sent, json!({"stream": true}));
    }

    #[test]
    fn thinking_is_given_up_in_steps() {
        let conceded = Concessions::default();
        let body = json!({"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}});
        let left = |reason: &str| {
            let mut sent = body.clone();
            conceded.apply(&mut sent);
            assert!(conceded.concede(&refusal(reason), &sent, &[]), "{reason}");
            let mut sent = body.clone();
            conceded.apply(&mut sent);
            sent
        };
        assert_eq!(
            left("thinking.adaptive.display: Extra inputs are not permitted"),
            json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}})
        );
        assert_eq!(
            left("output_config.effort: this model does not support max"),
            json!({"thinking": {"type": "adaptive"}})
        );
        assert_eq!(left("adaptive thinking is not supported on this model"), json!({}));
    }
}
