//! The end of a turn: as the answer to a prompt, and as `_caliban/turn_ended` for those who only watch.

use caliban_acp::TurnEndedNotice;
use caliban_acp::v1::{Error, Meta, PromptResponse, StopReason as Stop, Usage as TokenUsage};
use caliban_agent::{TurnReport, event::Outcome};
use caliban_core::{message::StopReason, usage::Usage};
use serde_json::json;

/// A turn has ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TurnEnded {
    pub(crate) outcome: Outcome,
    pub(crate) stop: Option<StopReason>,
    pub(crate) usage: Usage,
    pub(crate) turns: u32,
}

impl TurnEnded {
    pub(crate) fn notice(&self, session: &str) -> TurnEndedNotice {
        TurnEndedNotice {
            session_id: session.to_owned(),
            outcome: self.outcome.clone(),
            usage: self.usage,
            turns: self.turns,
        }
    }
}

/// The answer to the prompt that began, or joined, the turn.
pub(crate) fn answer(report: &TurnReport, last: Option<&StopReason>) -> Result<PromptResponse, Error> {
    let stop = match (&report.outcome, last) {
        (Outcome::Done, _) => Stop::EndTurn,
        (Outcome::Failed { .. }, Some(StopReason::Refusal(_))) => Stop::Refusal,
        // Half an answer: `_meta` has the failure in words.
        (Outcome::Failed { .. }, Some(StopReason::MaxTokens)) => Stop::MaxTokens,
        (Outcome::Failed { error, hint }, _) => {
            let mut data = json!({"outcome": report.outcome});
            if let Some(hint) = hint {
                data["hint"] = json!(hint);
            }
            return Err(Error::new(Error::internal_error().code.into(), error.clone()).data(data));
        }
        // The protocol has no word for a budget; `_meta` and the text say which one.
        (Outcome::TurnLimit { .. } | Outcome::Budget { .. }, _) => Stop::MaxTurnRequests,
        (Outcome::Cancelled, _) => Stop::Cancelled,
    };
    Ok(PromptResponse::new(stop).usage(tokens(report.usage)).meta(meta(report)))
}

fn tokens(usage: Usage) -> TokenUsage {
    TokenUsage::new(usage.total(), usage.input, usage.output)
        .cached_read_tokens(usage.cache_read)
        .cached_write_tokens(usage.cache_write)
}

fn meta(report: &TurnReport) -> Meta {
    let elapsed = u64::try_from(report.elapsed.as_millis()).unwrap_or(u64::MAX);
    let caliban = json!({
        "outcome": report.outcome,
        "turns": report.turns,
        "microUsd": report.micro_usd,
        "refused": report.refused,
        "ms": elapsed,
    });
    Meta::from_iter([("caliban".to_owned(), caliban)])
}
