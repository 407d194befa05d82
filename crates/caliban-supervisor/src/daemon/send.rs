//! `POST /v1/agents/{id}/send`: answered when the agent has the message on its disk. An agent that sleeps is woken.

use std::time::Duration;

use caliban_acp::Unreached;
use caliban_acp::extension::SEND;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::agent_client::{Speaker, refusal};
use super::spawn;
use crate::disk_room::WAITS_FOR_ROOM;
use crate::protocol::{AgentRow, ApiError, Awake, ErrorCode, SendRequest, Sent};

/// How long an agent that is leaving memory may take to be gone and back.
const LEAVING_LIMIT: Duration = Duration::from_secs(30);
/// How long an idle agent may take to be seen at work; the message is safe in any case.
const TAKEN_UP_LIMIT: Duration = Duration::from_secs(5);
/// After so long without an answer, and again and again, it is looked at whether something keeps the agent from taking it.
const HELD_UP_LOOK: Duration = Duration::from_millis(1500);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Sends a message. Nobody waits for an agent that cannot take it before somebody else does something.
pub(super) async fn send(query: &str, request: SendRequest, speaker: &Speaker<'_>) -> Result<Sent, ApiError> {
    let telling = send_when_awake(query, request, speaker);
    tokio::pin!(telling);
    loop {
        if let Ok(sent) = tokio::time::timeout(HELD_UP_LOOK, &mut telling).await {
            return sent;
        }
        if let Some(refusal) = speaker.show(query.to_owned()).await.ok().and_then(|row| held_up(&row)) {
            return Err(refusal);
        }
    }
}

/// What keeps an agent from taking a message, when it does not go on by itself.
fn held_up(row: &AgentRow) -> Option<ApiError> {
    let id = row.id;
    let is_stopped =
        |pid: &i32| caliban_process::stat(*pid).is_some_and(|stat| matches!(stat.state, b'T' | b't'));
    let (why, hint) = if let Some(pid) = row.pid.filter(is_stopped) {
        let hint =
            format!("let it go on (kill -CONT {pid}), or `caliban kill {id}` and `caliban resume {id}` it");
        (format!("its process (pid {pid}) is stopped"), hint)
    } else {
        let activity = row.activity.as_ref().filter(|activity| activity.starts_with(WAITS_FOR_ROOM))?;
        (activity.clone(), "make room, then send it again".to_owned())
    };
    let text = format!("agent {id} was not given the message: {why}");
    Some(ApiError::new(ErrorCode::Timeout, text).hint(hint))
}

/// An agent that is just leaving memory takes nothing: it is woken, and told there by the same id.
async fn send_when_awake(
    query: &str,
    mut request: SendRequest,
    speaker: &Speaker<'_>,
) -> Result<Sent, ApiError> {
    if request.text.trim().is_empty() {
        return Err(ApiError::new(ErrorCode::BadRequest, "there is nothing to say"));
    }
    if request.id.is_none() {
        request.id = Some(spawn::new_nonce()?);
    }
    let give_up = Instant::now() + LEAVING_LIMIT;
    loop {
        let awake = speaker.wake(query).await?;
        let before = speaker.row(awake.id).await?;
        match tell(&awake, &request, speaker).await {
            Ok(veiled) => {
                taken_up(&before, speaker).await?;
                return Ok(Sent { id: awake.id, veiled });
            }
            Err(unreached) if unreached.is_gone && Instant::now() < give_up => sleep(LOOK).await,
            Err(unreached) => return Err(refusal(unreached)),
        }
    }
}

/// Tells one worker; whether it was told the message without secrets.
async fn tell(awake: &Awake, request: &SendRequest, speaker: &Speaker<'_>) -> Result<bool, Unreached> {
    let mut link = speaker.link(awake).await?;
    // It does not look at an agent's process, nor at one that it cannot see (a12).
    let veiled = request.veiled.as_ref().filter(|_| link.client.no_say().is_some());
    let text = veiled.unwrap_or(&request.text);
    link.call(SEND, json!({"text": text, "id": request.id})).await?;
    Ok(veiled.is_some_and(|veiled| *veiled != request.text))
}

/// Waits a moment until an idle agent is seen at work, so that a `wait` which follows waits for this.
async fn taken_up(before: &AgentRow, speaker: &Speaker<'_>) -> Result<(), ApiError> {
    let id: AgentId = before.id;
    let give_up = Instant::now() + TAKEN_UP_LIMIT;
    let mut row = before.clone();
    while row.state == State::Idle && row.turns == before.turns && Instant::now() < give_up {
        sleep(LOOK).await;
        row = speaker.row(id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::Value;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::{UnixListener, UnixStream};
    use tokio::sync::mpsc;

    use super::super::wake::Waking;
    use super::super::{DaemonAnswer, DaemonRequest, Msg, stopping};
    use super::*;

    /// What an agent does with a message.
    #[derive(Clone, Copy)]
    enum Agent {
        HangsUp,
        IsClosed,
        Refuses,
        Takes,
        /// And does not look at who says it.
        TakesBlindly,
    }

    /// Serves one client; the message that came, if one did.
    async fn serve(stream: UnixStream, agent: Agent) -> Option<Value> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let request: Value = serde_json::from_str(&line).unwrap();
            let mut answer = match request["method"].as_str().unwrap() {
                "initialize" if matches!(agent, Agent::TakesBlindly) => {
                    json!({"result": {"protocolVersion": 1, "_meta": {"caliban": {"noSay": "a stranger"}}}})
                }
                "initialize" => json!({"result": {"protocolVersion": 1}}),
                "session/list" => json!({"result": {"sessions": [{"sessionId": "s", "cwd": "/"}]}}),
                _ => match agent {
                    Agent::HangsUp => return Some(request["params"].clone()),
                    Agent::IsClosed => {
                        json!({"error": {"code": -32603, "message": "the session is closed", "data": {"closed": true}}})
                    }
                    Agent::Refuses => json!({"error": {"code": -32603, "message": "the disk is broken"}}),
                    Agent::Takes | Agent::TakesBlindly => json!({"result": {}}),
                },
            };
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = request["id"].clone();
            writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            if request["method"] == SEND {
                return Some(request["params"].clone());
            }
        }
        None
    }

    /// An owner who knows one agent: where it listens, or that it has ended.
    async fn owner(mut messages: mpsc::Receiver<Msg>, socket: Option<PathBuf>) {
        let id: AgentId = "a3f8b2c1".parse().unwrap();
        while let Some(Msg::Request(request, reply)) = messages.recv().await {
            let ended = || ApiError::new(ErrorCode::Ended, "agent a3f8b2c1 has ended done");
            let answer = match request {
                DaemonRequest::Wake(..) => {
                    let socket = socket.clone().ok_or_else(ended);
                    socket.map(|socket| DaemonAnswer::Waking(Waking::at(id, socket)))
                }
                DaemonRequest::Show(_) => Ok(DaemonAnswer::Row(Box::new(AgentRow::new(id, State::Running)))),
                _ => Err(stopping()),
            };
            reply.send(answer);
        }
    }

    async fn say(socket: Option<PathBuf>) -> Result<bool, ApiError> {
        let (inbox, messages) = mpsc::channel(8);
        let owner = tokio::spawn(owner(messages, socket));
        let request = SendRequest {
            text: "hello".to_owned(),
            veiled: Some("[redacted:X]".to_owned()),
            id: Some("id-1".to_owned()),
        };
        let sent = send("a3f8", request, &Speaker { inbox: &inbox, caller: None }).await;
        drop(inbox);
        owner.await.unwrap();
        sent.map(|sent| sent.veiled)
    }

    async fn sent(agents: &[Agent]) -> (Result<bool, ApiError>, Vec<Value>) {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let agents = agents.to_vec();
        let serving = tokio::spawn(async move {
            let mut came = Vec::new();
            for agent in agents {
                // Who only looks whether somebody listens says nothing.
                let message = loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    if let Some(message) = serve(stream, agent).await {
                        break message;
                    }
                };
                came.push(message);
            }
            came
        });
        let told = say(Some(socket)).await;
        (told, serving.await.unwrap())
    }

    #[tokio::test]
    async fn an_agent_that_is_just_leaving_memory_is_woken_and_told_by_the_same_id() {
        let message = json!({"sessionId": "s", "text": "hello", "id": "id-1"});
        let (told, came) = sent(&[Agent::IsClosed, Agent::HangsUp, Agent::Takes]).await;
        assert_eq!(told, Ok(false));
        assert_eq!(came, [message.clone(), message.clone(), message.clone()]);
        let (told, came) = sent(&[Agent::Refuses]).await;
        assert_eq!((told.unwrap_err().message.as_str(), came), ("the disk is broken", vec![message]));
    }

    #[tokio::test]
    async fn a12_an_agent_that_would_not_know_our_secrets_is_not_told_them() {
        let (told, came) = sent(&[Agent::TakesBlindly]).await;
        assert_eq!(told, Ok(true));
        assert_eq!(came, [json!({"sessionId": "s", "text": "[redacted:X]", "id": "id-1"})]);
    }

    #[tokio::test]
    async fn an_agent_that_has_ended_meanwhile_is_not_tried_for_ever() {
        assert_eq!(say(None).await.unwrap_err().message, "agent a3f8b2c1 has ended done");
    }
}
