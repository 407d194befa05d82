//! `caliban agents send`: returns when the agent has the message on disk, without the secrets of our shell. The agent
//! sees those in our process and hears them all the same; where it does not look, they stay here (a12).

use std::{
    io::{Read as _, Write},
    path::PathBuf,
    time::Duration,
};

use caliban_control::{Client, protocol::AgentRow};
use caliban_core::{lifecycle::State, redact::Redactor};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Fleet,
    link::{Link, SEND, Unreached},
    worded,
};
use crate::{
    cli::fleet::SendArgs,
    report::{Code, Failure},
};

/// The longest message that is read from stdin.
const MESSAGE_CAP: u64 = caliban_core::spec::MAX_PROMPT_BYTES as u64;

/// How long an agent that is leaving memory may take to be gone and back.
const LEAVING_LIMIT: Duration = Duration::from_secs(30);
/// How long it is tried without a word.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an idle agent may take to be seen at work; the message is safe in any case.
const TAKEN_UP_LIMIT: Duration = Duration::from_secs(5);
/// The pause between two looks.
const LOOK: Duration = Duration::from_millis(5);

pub(super) async fn send(fleet: &Fleet<'_>, args: &SendArgs, out: &mut dyn Write) -> Result<Code, Failure> {
    let text = if args.text == "-" { from_stdin()? } else { args.text.clone() };
    if text.trim().is_empty() {
        return Err(Failure::usage("there is nothing to say"));
    }
    let veiled = Redactor::new(crate::settings::tool_environment::spoken_secrets(fleet.environment))
        .redact(&text)
        .into_owned();
    let mut client = fleet.client().await?;
    let mut agent = None;
    // With an id of ours, so that a message which is sent twice is said once.
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| Failure::new(format!("no random numbers: {error}")))?;
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let wake = async || {
        let awake = fleet.wake(&mut client, &args.agent.id).await.map_err(worded)?;
        agent = Some(client.show(&awake.id.to_string()).await.map_err(worded)?);
        Ok(awake.socket)
    };
    let said = bring(wake, &Words { text: &text, veiled: &veiled }, &id, LEAVING_LIMIT).await?;
    if said != text {
        super::say("without what looks like secrets of this shell: they would be in its transcript");
    }
    let Some(before) = agent else { return Ok(Code::Done) };
    if before.state == State::Idle {
        taken_up(&mut client, &before).await?;
    }
    writeln!(out, "{} has it", before.id)?;
    Ok(Code::Done)
}

/// What is said.
struct Words<'a> {
    /// To an agent that knows our secrets when it sees them.
    text: &'a str,
    /// To one that does not.
    veiled: &'a str,
}

/// Brings a message to an agent, and returns what it was told. One that is just leaving memory takes nothing: it is woken, and told there.
async fn bring<'a>(
    mut wake: impl AsyncFnMut() -> Result<PathBuf, Failure>,
    words: &Words<'a>,
    id: &str,
    limit: Duration,
) -> Result<&'a str, Failure> {
    let give_up = Instant::now() + limit;
    let mut is_said = false;
    loop {
        let socket = wake().await?;
        let told = async {
            let mut link = Link::open(&socket).await?;
            // It does not look at an agent's process, nor at one that it cannot see.
            let text = if link.client.no_say().is_some() { words.veiled } else { words.text };
            link.call(SEND, json!({"text": text, "id": id})).await.map(|_| text)
        };
        match told.await {
            Ok(text) => return Ok(text),
            Err(Unreached::Gone(gone)) if Instant::now() < give_up => {
                if !is_said && limit.saturating_sub(give_up - Instant::now()) > PATIENCE {
                    is_said = true;
                    super::say(&format!("{}; trying again", gone.message));
                }
                sleep(LOOK).await;
            }
            Err(unreached) => return Err(unreached.into()),
        }
    }
}

/// Waits a moment until the list shows that an idle agent is at work, so that a `wait` which follows waits for this.
async fn taken_up(client: &mut Client, before: &AgentRow) -> Result<(), Failure> {
    let give_up = Instant::now() + TAKEN_UP_LIMIT;
    while Instant::now() < give_up {
        let row = client.show(&before.id.to_string()).await.map_err(worded)?;
        if row.state != State::Idle || row.turns != before.turns {
            break;
        }
        sleep(LOOK).await;
    }
    Ok(())
}

fn from_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MESSAGE_CAP + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage(format!("cannot read stdin: {error}")))?;
    if text.len() as u64 > MESSAGE_CAP {
        return Err(Failure::usage(format!("the message has more than {MESSAGE_CAP} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tokio::{
        io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
        net::{UnixListener, UnixStream},
    };

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

    const HELLO: Words<'_> = Words { text: "hello", veiled: "[redacted:X]" };

    /// Serves one client; the message that came, if one did.
    async fn serve(stream: UnixStream, agent: Agent) -> Option<Value> {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            let request: Value = serde_json::from_str(&line).unwrap();
            let result = match request["method"].as_str().unwrap() {
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
            let mut answer = result;
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = request["id"].clone();
            writer.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
            if request["method"] == SEND {
                return Some(request["params"].clone());
            }
        }
        None
    }

    async fn sent(agents: &[Agent]) -> (Result<String, Failure>, Vec<Value>) {
        let place = tempfile::tempdir().unwrap();
        let socket = place.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let agents = agents.to_vec();
        let serving = tokio::spawn(async move {
            let mut came = Vec::new();
            for agent in agents {
                let (stream, _) = listener.accept().await.unwrap();
                came.extend(serve(stream, agent).await);
            }
            came
        });
        let told = bring(async || Ok(socket.clone()), &HELLO, "id-1", LEAVING_LIMIT).await;
        (told.map(str::to_owned), serving.await.unwrap())
    }

    #[tokio::test]
    async fn an_agent_that_is_just_leaving_memory_is_woken_and_told_by_the_same_id() {
        let message = json!({"sessionId": "s", "text": "hello", "id": "id-1"});
        let (told, came) = sent(&[Agent::IsClosed, Agent::HangsUp, Agent::Takes]).await;
        assert_eq!(told.unwrap(), "hello");
        assert_eq!(came, [message.clone(), message.clone(), message.clone()]);
        let (told, came) = sent(&[Agent::Refuses]).await;
        assert_eq!((told.unwrap_err().message.as_str(), came), ("the disk is broken", vec![message]));
    }

    #[tokio::test]
    async fn a12_an_agent_that_would_not_know_our_secrets_is_not_told_them() {
        let (told, came) = sent(&[Agent::TakesBlindly]).await;
        assert_eq!(told.unwrap(), "[redacted:X]");
        assert_eq!(came, [json!({"sessionId": "s", "text": "[redacted:X]", "id": "id-1"})]);
    }

    #[tokio::test]
    async fn an_agent_that_has_ended_meanwhile_is_not_tried_for_ever() {
        let nobody = async || Err(Failure::new("agent a3f8b2c1 has ended done"));
        let failure = bring(nobody, &HELLO, "id-1", LEAVING_LIMIT).await.unwrap_err();
        assert_eq!(failure.message, "agent a3f8b2c1 has ended done");
        let place = tempfile::tempdir().unwrap();
        let gone = async || Ok(place.path().join("nobody"));
        let failure = bring(gone, &HELLO, "id-1", Duration::ZERO).await.unwrap_err();
        assert!(failure.message.contains("cannot be reached"), "{}", failure.message);
    }
}
