use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use caliban_contract::records::TRANSCRIPT;
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::super::wake::Waking;
use super::super::{DaemonAnswer, DaemonRequest, Msg, stopping};
use super::*;

/// What an agent is like.
#[derive(Clone)]
enum Agent {
    /// It takes answers, and says this.
    Takes(Value),
    /// The build before: it asks who joins it.
    AsksUs,
}

/// The agent, and what is known of it.
#[derive(Clone)]
struct World {
    agent: Agent,
    place: PathBuf,
    asks: Arc<Mutex<Vec<AskRecord>>>,
    /// What the agent was asked, and the answers to its questions.
    heard: Arc<Mutex<Vec<Value>>>,
}

fn id() -> AgentId {
    "a3f8b2c1".parse().unwrap()
}

impl World {
    fn new(agent: Agent, place: &Path) -> Self {
        let ask = AskRecord {
            id: "c1".into(),
            digest: "d".into(),
            suggestions: vec!["Bash(make [redacted:X])".into()],
            ..AskRecord::default()
        };
        Self { agent, place: place.to_owned(), asks: Arc::new(Mutex::new(vec![ask])), heard: Arc::default() }
    }

    /// Serves one client.
    async fn serve(self, stream: UnixStream) {
        let (reader, mut writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            let said: Value = serde_json::from_str(&line).unwrap();
            self.heard.lock().unwrap().push(said.clone());
            let is_new = matches!(self.agent, Agent::Takes(_));
            let mut out = Vec::new();
            match (said["method"].as_str(), &self.agent) {
                (Some("initialize"), _) => {
                    let meta = json!({"caliban": {"takesAnswers": is_new}});
                    out.push(json!({"result": {"protocolVersion": 1, "_meta": meta}}));
                }
                (Some("session/list"), _) => {
                    out.push(json!({"result": {"sessions": [{"sessionId": "s", "cwd": "/"}]}}));
                }
                (Some("_caliban/answer"), Agent::Takes(answer)) => out.push(answer.clone()),
                (Some("session/resume"), Agent::AsksUs) => {
                    out.push(json!({"result": {}}));
                    let about = json!({"digest": "d", "rules": ["Bash(make canary)"]});
                    let call = json!({"toolCallId": "c1", "_meta": {"caliban": {"ask": about}}});
                    let options = ["allow_once", "allow_always", "reject_once"]
                        .map(|option| json!({"optionId": option, "name": option, "kind": option}));
                    let params = json!({"sessionId": "s", "toolCall": call, "options": options});
                    out.push(json!({"method": "session/request_permission", "id": 1, "params": params}));
                }
                // The answer to our question: it is recorded, and asked no more.
                (None, Agent::AsksUs) => {
                    let recorded = json!({"event": "ask_answered", "id": "c1", "answer": "once"});
                    std::fs::write(self.place.join(TRANSCRIPT), format!("{recorded}\n")).unwrap();
                    self.asks.lock().unwrap().clear();
                }
                _ => out.push(json!({"error": {"code": -32601, "message": "no such method"}})),
            }
            for mut line in out {
                line["jsonrpc"] = json!("2.0");
                if line["id"].is_null() {
                    line["id"] = said["id"].clone();
                }
                writer.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
        }
    }

    /// An owner who knows this agent.
    async fn own(self, mut messages: mpsc::Receiver<Msg>, socket: PathBuf) {
        while let Some(Msg::Request(request, reply)) = messages.recv().await {
            reply.send(match request {
                DaemonRequest::Wake(..) => Ok(DaemonAnswer::Waking(Waking::at(id(), socket.clone()))),
                DaemonRequest::Show(_) => {
                    let row = AgentRow::new(id(), State::Running);
                    let asks = self.asks.lock().unwrap().clone();
                    Ok(DaemonAnswer::Row(Box::new(AgentRow { asks, dir: self.place.clone(), ..row })))
                }
                _ => Err(stopping()),
            });
        }
    }
}

/// Says yes; what comes of it, and the methods that the agent heard with the answer to its question.
async fn yes_to(agent: Agent, request: ApproveRequest) -> (Result<Answered, ApiError>, Vec<Value>) {
    let place = tempfile::tempdir().unwrap();
    let world = World::new(agent, place.path());
    let socket = place.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    let serving = world.clone();
    tokio::spawn(async move {
        // Whoever only looks whether somebody listens says nothing.
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serving.clone().serve(stream));
        }
    });
    let (inbox, messages) = mpsc::channel(8);
    tokio::spawn(world.clone().own(messages, socket));
    let answered = approve("a3f8", request, &Speaker { inbox: &inbox, caller: None }).await;
    let heard = world.heard.lock().unwrap().clone();
    (answered, heard)
}

fn request() -> ApproveRequest {
    let named = json!({"ask": "c1", "digest": "d"});
    serde_json::from_value(named).unwrap()
}

fn always() -> ApproveRequest {
    ApproveRequest { always: true, ..request() }
}

#[tokio::test]
async fn an_answer_is_one_request_and_its_answer_what_is_recorded() {
    let (answered, heard) = yes_to(Agent::Takes(json!({"result": {"answer": "once"}})), request()).await;
    assert_eq!(answered.unwrap(), Answered { id: id(), ask: "c1".into() });
    let methods: Vec<&str> = heard.iter().filter_map(|said| said["method"].as_str()).collect();
    assert_eq!(methods, ["initialize", "session/list", "_caliban/answer"]);
    assert_eq!(heard[2]["params"], json!({"sessionId": "s", "ask": "c1", "digest": "d", "answer": "once"}));
    // The rules are those of the list: the agent has them whole.
    let kept = json!({"rules": ["Bash(make [redacted:X])"], "for": "session"});
    let took = json!({"result": {"answer": {"keep": kept}}});
    let (answered, heard) = yes_to(Agent::Takes(took), always()).await;
    answered.unwrap();
    assert_eq!(heard[2]["params"]["answer"], json!({ "keep": kept }));
}

#[tokio::test]
async fn a16_what_an_agent_refuses_is_told_as_what_it_is() {
    let first = json!({"result": {"answer": {"no": "not now"}, "by": "zed (pid 7)"}});
    let not_asked = json!({"error": {"code": -32600, "message": "gone", "data": {"notAsked": true}}});
    let senseless = json!({"error": {"code": -32602, "message": "a wrong rule"}});
    let broken = json!({"error": {"code": -32603, "message": "broken"}});
    for (answer, code, words) in [
        (first, ErrorCode::Conflict, "somebody else has answered it first: denied not now by zed (pid 7)"),
        (not_asked, ErrorCode::NotAsked, "this call is not asked for any more"),
        (senseless, ErrorCode::BadRequest, "a wrong rule"),
        (broken, ErrorCode::Conflict, "broken"),
    ] {
        let refused = yes_to(Agent::Takes(answer), request()).await.0.unwrap_err();
        assert_eq!((refused.code, refused.message.as_str()), (code, words));
    }
    let other = ApproveRequest { digest: "e".into(), ..request() };
    let (refused, heard) = yes_to(Agent::Takes(Value::Null), other).await;
    assert_eq!((refused.unwrap_err().code, heard.len()), (ErrorCode::NotAsked, 0));
}

#[tokio::test]
async fn r22_a_worker_of_the_build_before_is_answered_when_it_asks_us() {
    let (answered, heard) = yes_to(Agent::AsksUs, request()).await;
    assert_eq!(answered.unwrap(), Answered { id: id(), ask: "c1".into() });
    let outcome = |heard: &[Value]| heard.last().unwrap()["result"]["outcome"].clone();
    assert_eq!(outcome(&heard)["optionId"], "allow_once");
    // It recorded another answer than this one.
    let (refused, heard) = yes_to(Agent::AsksUs, always()).await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::Conflict);
    assert_eq!(outcome(&heard)["optionId"], "allow_always");
    // The question has the rules whole.
    assert_eq!(outcome(&heard)["_meta"]["caliban"]["keep"]["rules"], json!(["Bash(make canary)"]));
}
