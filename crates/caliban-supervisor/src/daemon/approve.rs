//! `POST /v1/agents/{id}/approve` and `…/deny`: a person's answer to an agent's question. The first answer counts.
//!
//! The answer goes to exactly the call that was shown: the agent asks us over its socket, and a question about another
//! call is not answered (a16).

use std::time::Duration;

use caliban_acp::client::{AskReply, Question};
use caliban_acp::v1::AGENT_METHOD_NAMES;
use caliban_acp::{ClientError, ClientEvent, Link};
use caliban_contract::recorded_ask::RecordedAsk;
use caliban_core::kept_rules::KeptRules;
use caliban_permissions::Rule;
use serde_json::{Value, json};

use super::agent_client::{Speaker, refusal};
use super::internal;
use crate::protocol::{
    AgentRow, Answered, ApiError, Approval, ApprovalList, ApproveRequest, DenyRequest, ErrorCode,
};
use crate::records::{AskAnswer, AskRecord};

/// How often it is looked whether the question is still open.
const LOOK: Duration = Duration::from_millis(50);
/// How long the agent may take to ask us, and to act on the answer.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer to one call.
pub(super) struct AskVerdict {
    ask: String,
    digest: String,
    said: PersonSaid,
}

enum PersonSaid {
    Yes,
    Always(ApproveRequest),
    No(Option<String>),
}

impl From<ApproveRequest> for AskVerdict {
    fn from(request: ApproveRequest) -> Self {
        let (ask, digest) = (request.ask.clone(), request.digest.clone());
        let is_always = request.always || request.outside;
        Self { ask, digest, said: if is_always { PersonSaid::Always(request) } else { PersonSaid::Yes } }
    }
}

impl From<DenyRequest> for AskVerdict {
    fn from(request: DenyRequest) -> Self {
        Self { ask: request.ask, digest: request.digest, said: PersonSaid::No(request.reason) }
    }
}

impl PersonSaid {
    /// What it means for the question that the agent asks us.
    fn reply(self, question: &Question) -> Result<AskReply, ApiError> {
        let request = match self {
            Self::Yes => return Ok(AskReply::AllowOnce),
            Self::No(reason) => return Ok(AskReply::Reject(reason)),
            Self::Always(request) => request,
        };
        let [plain, outside] = question.rules();
        let offered = if request.outside { outside } else { plain };
        if offered.is_empty() {
            let text = "there is no rule that would allow this call always";
            return Err(ApiError::new(ErrorCode::BadRequest, text).hint("allow it once"));
        }
        let rules = if request.rules.is_empty() { offered } else { request.rules };
        if let Some(wrong) = rules.iter().find_map(|rule| rule.parse::<Rule>().err()) {
            return Err(ApiError::new(ErrorCode::BadRequest, wrong.to_string()));
        }
        Ok(AskReply::Keep(KeptRules { rules, keep: request.keep }))
    }
}

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

/// Gives the answer; returns when the agent has recorded it.
pub(super) async fn answer(
    query: &str,
    verdict: AskVerdict,
    speaker: &Speaker<'_>,
) -> Result<Answered, ApiError> {
    let awake = speaker.wake(query).await?;
    let row = speaker.row(awake.id).await?;
    let asked = row.asks.iter().find(|ask| ask.id == verdict.ask && ask.digest == verdict.digest);
    let asked = asked.ok_or_else(not_asked)?.clone();
    let mut link = speaker.link(&awake).await.map_err(refusal)?;
    if let Some(why) = link.client.no_say() {
        return Err(ApiError::new(ErrorCode::Forbidden, why)
            .hint("a person answers, in a terminal of their own: caliban approvals"));
    }
    let late = |text: &str| ApiError::new(ErrorCode::Timeout, text);
    let question = tokio::time::timeout(LIMIT, question(&mut link, &row, &asked, speaker))
        .await
        .map_err(|_| late("the agent does not ask us: it may be stopped"))??;
    let reply = verdict.said.reply(&question)?;
    let _seen_below = question.answer(reply.clone()).await;
    let taken = async {
        closed(&mut link, &row, &asked, speaker).await?;
        recorded(&row, &asked, speaker).await
    };
    let answer = tokio::time::timeout(LIMIT, taken)
        .await
        .map_err(|_| late("the agent has not taken the answer yet; `caliban approvals` tells"))??;
    // A reason, and a rule, is recorded without its secrets.
    let is_ours = match (&answer, &reply) {
        (AskAnswer::Once, AskReply::AllowOnce) | (AskAnswer::No(_), AskReply::Reject(_)) => true,
        (AskAnswer::Keep(kept), AskReply::Keep(wanted)) => kept.keep == wanted.keep,
        _ => false,
    };
    if is_ours {
        return Ok(Answered { id: row.id, ask: asked.id });
    }
    let said = match answer {
        AskAnswer::Once => "allowed".to_owned(),
        AskAnswer::Always | AskAnswer::AlwaysOutside => "allowed from now on".to_owned(),
        AskAnswer::Keep(kept) => format!("allowed from now on: {}", kept.words()),
        AskAnswer::No(reason) => format!("denied {}", reason.unwrap_or_default()),
    };
    let text = format!("somebody else has answered it first: {said}");
    Err(ApiError::new(ErrorCode::Conflict, text))
}

fn not_asked() -> ApiError {
    ApiError::new(ErrorCode::NotAsked, "this call is not asked for any more")
        .hint("somebody else has answered, or the agent has ended: `caliban agents list` tells")
}

/// Takes part in the conversation, and waits to be asked.
async fn question(
    link: &mut Link,
    row: &AgentRow,
    asked: &AskRecord,
    speaker: &Speaker<'_>,
) -> Result<Question, ApiError> {
    let params = json!({"sessionId": link.session, "cwd": link.cwd, "mcpServers": []});
    let peer = link.client.peer().clone();
    let joining = async move { peer.call::<Value>(AGENT_METHOD_NAMES.session_resume, &params).await };
    tokio::pin!(joining);
    let broken = |error: ClientError| refusal(error.into());
    let mut look = tokio::time::interval(LOOK);
    let mut joined = false;
    loop {
        tokio::select! {
            event = link.events.next() => match event.map_err(|error| broken(error.into()))? {
                Some(ClientEvent::Permission(question)) if is_about(&question, asked) => return Ok(question),
                Some(_) => {}
                None => return Err(not_asked()),
            },
            answer = &mut joining, if !joined => {
                answer.map_err(|error| broken(error.into()))?;
                joined = true;
            }
            _ = look.tick(), if joined => {
                if !is_open(&speaker.row(row.id).await?, asked) {
                    return Err(not_asked());
                }
            }
        }
    }
}

/// Whether it is the question that was shown: the same call, with the same arguments to the last byte. The agent says
/// what stands for the call, because secrets are not in the list.
fn is_about(question: &Question, asked: &AskRecord) -> bool {
    let call = &question.request.tool_call;
    let digest = call.meta.as_ref().and_then(|meta| meta.get("caliban")?.get("ask")?.get("digest")?.as_str());
    digest == Some(&asked.digest) && *call.tool_call_id.0 == *asked.id
}

/// Waits until the question is not open any more, keeping up with what the agent says.
async fn closed(
    link: &mut Link,
    row: &AgentRow,
    asked: &AskRecord,
    speaker: &Speaker<'_>,
) -> Result<(), ApiError> {
    let mut look = tokio::time::interval(LOOK);
    let mut hung_up = false;
    loop {
        tokio::select! {
            event = link.events.next(), if !hung_up => hung_up = !matches!(event, Ok(Some(_))),
            _ = look.tick() => {
                if !is_open(&speaker.row(row.id).await?, asked) {
                    return Ok(());
                }
            }
        }
    }
}

fn is_open(row: &AgentRow, asked: &AskRecord) -> bool {
    row.asks.iter().any(|ask| ask.id == asked.id && ask.opened_at == asked.opened_at)
}

/// What the transcript says was answered. The record comes a moment after the question is closed, or never, when the agent
/// has ended in between.
async fn recorded(row: &AgentRow, asked: &AskRecord, speaker: &Speaker<'_>) -> Result<AskAnswer, ApiError> {
    let mut answers = RecordedAsk::new(&row.dir, &asked.id);
    loop {
        let has_ended = speaker.row(row.id).await?.state.is_ending();
        // Transcripts are long.
        let read = tokio::task::spawn_blocking(move || answers.read().map(|()| answers)).await;
        answers = read.map_err(internal)?.map_err(internal)?;
        if let Some(answer) = answers.answer() {
            return Ok(answer.clone());
        }
        if has_ended {
            return Err(not_asked());
        }
        tokio::time::sleep(LOOK).await;
    }
}
