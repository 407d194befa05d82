//! The beginning of a record, borrowed from its line: a transcript of 100 MB is indexed without parsing what was said in it.

use std::borrow::Cow;

use serde::Deserialize;

use super::EventKind;
use crate::usage::Usage;

/// What is needed of a record to know what it is about. Fields that its event has not are absent.
#[derive(Debug, Deserialize)]
pub struct RecordHead<'a> {
    /// Counts from 0 without gaps.
    pub seq: u64,
    /// When it was written.
    #[serde(borrow)]
    pub at: Cow<'a, str>,
    /// What happened.
    #[serde(rename = "event")]
    pub kind: EventKind,
    /// Of a call or an ask.
    #[serde(borrow, default)]
    id: Option<IdOf<'a>>,
    /// The tool.
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// Of a message that waits.
    #[serde(default)]
    pub number: Option<u64>,
    /// The waiting message that a prompt is.
    #[serde(default)]
    pub queued: Option<u64>,
    /// What a request cost.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// The model that answered.
    #[serde(borrow, default)]
    pub model: Option<Cow<'a, str>>,
    /// What was said.
    #[serde(borrow, default)]
    pub message: Option<MessageHead<'a>>,
    /// How many parts of it, the first ones, nobody has typed.
    #[serde(default)]
    context: usize,
}

/// The id of a call is text, that of a background agent a number.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum IdOf<'a> {
    #[serde(borrow)]
    Text(Cow<'a, str>),
    Number(#[expect(dead_code, reason = "only told apart")] u64),
}

/// A message, or the text of a refusal.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum MessageHead<'a> {
    /// A message.
    Whole {
        /// Its parts.
        #[serde(borrow)]
        blocks: Vec<BlockHead<'a>>,
    },
    /// A text.
    Text(Cow<'a, str>),
}

/// A part of a message.
#[derive(Debug, Deserialize)]
pub struct BlockHead<'a> {
    /// `text`, `thinking`, `image` …
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    /// Its text.
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
}

impl<'a> RecordHead<'a> {
    /// Of a line of a transcript; nothing when it is no record.
    #[must_use]
    pub fn read(line: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Whether it is a prompt that nobody has typed any part of.
    #[must_use]
    pub fn is_context_alone(&self) -> bool {
        let blocks = match &self.message {
            Some(MessageHead::Whole { blocks }) => blocks.len(),
            Some(MessageHead::Text(_)) | None => return false,
        };
        self.kind == EventKind::Prompt && super::is_context_alone(self.context, blocks)
    }

    /// The id of its call or ask.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        match &self.id {
            Some(IdOf::Text(id)) => Some(id),
            Some(IdOf::Number(_)) | None => None,
        }
    }
}
