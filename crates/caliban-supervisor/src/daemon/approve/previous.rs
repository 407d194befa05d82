//! The same for a worker of an earlier build, which takes no answers: it is joined, and answered when it asks us (r22). It
//! can go one release after 0.1.

use std::time::Duration;

use caliban_acp::client::Question;
use caliban_acp::v1::AGENT_METHOD_NAMES;
use caliban_acp::{ClientError, ClientEvent, Link};
use caliban_contract::recorded_ask::RecordedAsk;
use caliban_core::ask::{Answer, GivenAnswer};
use serde_json::{Value, json};

use super::not_asked;
use crate::daemon::agent_client::{Speaker, refusal};
use crate::daemon::internal;
use crate::protocol::{AgentRow, ApiError};
use crate::records::AskRecord;

/// How often it is looked whether the question is still open.
const LOOK: Duration = Duration::from_millis(50);

/// Gives the answer; what the agent has recorded.
pub(super) async fn give(
    link: &mut Link,
    row: &AgentRow,
    asked: &AskRecord,
    answer: Answer,
    speaker: &Speaker<'_>,
) -> Result<GivenAnswer, ApiError> {
    let question = question(link, row, asked, speaker).await?;
    let answer = with_rules_of(&question, asked, answer);
    let _seen_below = question.answer(answer).await;
    closed(link, row, asked, speaker).await?;
    Ok(recorded(row, asked, speaker).await?.into())
}

/// The record has its rules without secrets; the question has them whole.
fn with_rules_of(question: &Question, asked: &AskRecord, answer: Answer) -> Answer {
    let Answer::Keep(mut kept) = answer else { return answer };
    let [plain, outside] = question.rules();
    if kept.rules == asked.outside {
        kept.rules = outside;
    } else if kept.rules == asked.suggestions {
        kept.rules = plain;
    }
    Answer::Keep(kept)
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
async fn recorded(row: &AgentRow, asked: &AskRecord, speaker: &Speaker<'_>) -> Result<Answer, ApiError> {
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
