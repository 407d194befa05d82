//! `POST /v1/agents/{id}/approve` and `…/deny`: a person's answer to an agent's question. The first answer counts.
//!
//! The answer goes to exactly the call that was shown: the agent takes it with that call's digest (a16), and says what it
//! has recorded.

mod previous;

use std::time::Duration;

use caliban_acp::connection::CallError;
use caliban_acp::extension::{AnswerRequest, is_not_asked_error};
use caliban_acp::v1::Error;
use caliban_acp::{ClientError, Link};
use caliban_core::ask::{Answer, GivenAnswer};
use caliban_core::kept_rules::KeptRules;
use caliban_permissions::Rule;

use super::agent_client::{Speaker, refusal};
use crate::protocol::{
    AgentRow, Answered, ApiError, Approval, ApprovalList, ApproveRequest, DenyRequest, ErrorCode,
};
use crate::records::AskRecord;

/// How long the agent may take to record the answer.
const LIMIT: Duration = Duration::from_secs(30);

/// What agents ask, the oldest question first.
pub(super) fn open(rows: impl Iterator<Item = AgentRow>) -> ApprovalList {
    let mut approvals: Vec<Approval> = rows
        .flat_map(|row| {
            let (agent, label) = (row.id, row.label);
            row.asks.into_iter().map(move |ask| Approval { agent, label: label.clone(), ask })
        })
        .collect();
    approvals.sort_by_key(|approval| (approval.ask.opened_at, approval.agent));
    ApprovalList { approvals }
}

/// Allows a call; returns when the agent has recorded it.
pub(super) async fn approve(
    query: &str,
    request: ApproveRequest,
    speaker: &Speaker<'_>,
) -> Result<Answered, ApiError> {
    let which = (request.ask.clone(), request.digest.clone());
    answer(query, which, |asked| yes(request, asked), speaker).await
}

/// Refuses a call; returns when the agent has recorded it.
pub(super) async fn deny(
    query: &str,
    request: DenyRequest,
    speaker: &Speaker<'_>,
) -> Result<Answered, ApiError> {
    let DenyRequest { ask, digest, reason } = request;
    answer(query, (ask, digest), |_| Ok(Answer::No(reason)), speaker).await
}

/// What a yes to this question means.
fn yes(request: ApproveRequest, asked: &AskRecord) -> Result<Answer, ApiError> {
    if !(request.always || request.outside) {
        return Ok(Answer::Once);
    }
    let offered = if request.outside { &asked.outside } else { &asked.suggestions };
    if offered.is_empty() {
        let text = "there is no rule that would allow this call always";
        return Err(ApiError::new(ErrorCode::BadRequest, text).hint("allow it once"));
    }
    if let Some(wrong) = request.rules.iter().find_map(|rule| rule.parse::<Rule>().err()) {
        return Err(ApiError::new(ErrorCode::BadRequest, wrong.to_string()));
    }
    let rules = if request.rules.is_empty() { offered.clone() } else { request.rules };
    Ok(Answer::Keep(KeptRules { rules, keep: request.keep }))
}

async fn answer(
    query: &str,
    (ask, digest): (String, String),
    answer: impl FnOnce(&AskRecord) -> Result<Answer, ApiError>,
    speaker: &Speaker<'_>,
) -> Result<Answered, ApiError> {
    let awake = speaker.wake(query).await?;
    let row = speaker.row(awake.id).await?;
    let asked = row.asks.iter().find(|asked| asked.id == ask && asked.digest == digest);
    let asked = asked.ok_or_else(not_asked)?;
    let answer = answer(asked)?;
    let mut link = speaker.link(&awake).await.map_err(refusal)?;
    if let Some(why) = link.client.no_say() {
        return Err(ApiError::new(ErrorCode::Forbidden, why)
            .hint("a person answers, in a terminal of their own: caliban approvals"));
    }
    let given = async {
        match link.client.takes_answers() {
            true => give(&mut link, asked, answer.clone()).await,
            false => previous::give(&mut link, &row, asked, answer.clone(), speaker).await,
        }
    };
    let late = || {
        let text = "the agent has not taken the answer yet: it may be stopped; `caliban approvals` tells";
        ApiError::new(ErrorCode::Timeout, text)
    };
    let given = tokio::time::timeout(LIMIT, given).await.map_err(|_| late())??;
    if given.answer.is_same_decision(&answer) {
        return Ok(Answered { id: row.id, ask });
    }
    let by = given.by.map(|by| format!(" by {by}")).unwrap_or_default();
    let text = format!("somebody else has answered it first: {}{by}", given.answer.words());
    Err(ApiError::new(ErrorCode::Conflict, text))
}

fn not_asked() -> ApiError {
    ApiError::new(ErrorCode::NotAsked, "this call is not asked for any more")
        .hint("somebody else has answered, or the agent has ended: `caliban agents list` tells")
}

/// Gives the answer; what the agent has recorded.
async fn give(link: &mut Link, asked: &AskRecord, answer: Answer) -> Result<GivenAnswer, ApiError> {
    let request = AnswerRequest {
        session_id: link.session.clone(),
        ask: asked.id.clone(),
        digest: asked.digest.clone(),
        answer,
    };
    let client = link.client.clone();
    let recorded = link.events.until(async move { client.answer(&request).await }).await;
    recorded.and_then(|recorded| recorded).map_err(|error| match &error {
        ClientError::Call(CallError::Refused(refused)) if is_not_asked_error(refused) => not_asked(),
        ClientError::Call(CallError::Refused(refused)) if refused.code == Error::invalid_params().code => {
            ApiError::new(ErrorCode::BadRequest, error.to_string())
        }
        _ => refusal(error.into()),
    })
}

#[cfg(test)]
mod tests;
