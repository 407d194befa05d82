//! What a reply without calls means for the run: whether it is the answer, half of one, or none.
//!
//! Half an answer is never taken for a whole one. Pure; `turn.rs` does what follows from it.

use caliban_core::message::StopReason;
use caliban_providers::ModelReply;

/// What a reply without calls is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FinalReply {
    /// The model has said what it wanted to say.
    Whole,
    /// The output limit cut it off.
    CutByLimit,
    /// The model's window was full before the answer was.
    CutByWindow,
    /// The server wants to be asked to go on.
    Paused,
    /// It declined, with the provider's word for it.
    Declined(String),
    /// Nothing that can be used came: why, in words.
    Unusable(String),
}

pub(crate) fn of(reply: &ModelReply) -> FinalReply {
    let is_empty = reply.message.text().trim().is_empty();
    match &reply.stop {
        StopReason::MaxTokens => FinalReply::CutByLimit,
        StopReason::Refusal(reason) => FinalReply::Declined(reason.clone()),
        StopReason::Other(word) if word == "model_context_window_exceeded" => FinalReply::CutByWindow,
        StopReason::Other(word) if word == "pause_turn" => FinalReply::Paused,
        StopReason::Other(word) => FinalReply::Unusable(format!("it stopped with {word:?}")),
        StopReason::EndTurn | StopReason::ToolUse if is_empty => {
            FinalReply::Unusable("it was empty".to_owned())
        }
        StopReason::EndTurn | StopReason::ToolUse => FinalReply::Whole,
    }
}

#[cfg(test)]
mod tests {
    use caliban_core::{message::Message, usage::Usage};

    use super::*;

    #[test]
    fn only_an_answer_that_ended_by_itself_is_whole() {
        let reply = |text: &str, stop: StopReason| ModelReply {
            message: Message::user(text),
            usage: Usage::default(),
            stop,
            model: "m".into(),
        };
        let other = |word: &str| of(&reply("some text", StopReason::Other(word.into())));
        assert_eq!(of(&reply("text", StopReason::EndTurn)), FinalReply::Whole);
        assert_eq!(of(&reply(" \n", StopReason::EndTurn)), FinalReply::Unusable("it was empty".into()));
        assert_eq!(of(&reply("text", StopReason::MaxTokens)), FinalReply::CutByLimit);
        assert_eq!(other("model_context_window_exceeded"), FinalReply::CutByWindow);
        assert_eq!(other("pause_turn"), FinalReply::Paused);
        for word in ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "OTHER", "LANGUAGE", "what else"] {
            assert_eq!(other(word), FinalReply::Unusable(format!("it stopped with {word:?}")));
        }
    }
}
