//! `_caliban/answer`: an answer to exactly one call, from a client that need not be at the session.

use std::sync::Arc;

use caliban_acp::{
    AcpClient, ClientError,
    connection::CallError,
    extension::{ANSWER, AnswerRequest, is_not_asked_error},
};
use caliban_acp_host::{Caller, Say, ServeOptions, Sessions};
use caliban_core::{
    ask::{Answer, GivenAnswer},
    kept_rules::KeptRules,
};
use serde_json::{Value, json};

use crate::world::{Watcher, World};

fn script() -> Value {
    json!({"steps": [
        {"tool_calls": [{"name": "Write", "input": {"file_path": "a.txt", "content": "new\n"}}]},
        {"text": "done"},
    ]})
}

/// A program of a person.
fn zed() -> ServeOptions {
    let caller = Caller { say: Say::Full, name: Some("zed (pid 7)".to_owned()) };
    ServeOptions { caller, ..ServeOptions::socket("0") }
}

/// A session in which a call waits, with the client that began it, and the answer's request.
struct Asked {
    world: World,
    sessions: Arc<Sessions>,
    first: Watcher,
    turn: tokio::task::JoinHandle<Result<caliban_acp::v1::PromptResponse, ClientError>>,
    request: AnswerRequest,
}

impl Asked {
    async fn new() -> Self {
        let world = World::new(script());
        let host = world.host("door").await;
        let sessions = Arc::new(Sessions::only(host.clone()));
        let mut first = Watcher::attach(&sessions, &host).await;
        let turn = tokio::spawn(first.begin("door", "go"));
        first.until(|watcher| !watcher.questions.is_empty()).await;
        let question = &first.questions[0];
        let request = AnswerRequest {
            session_id: "door".to_owned(),
            ask: question.request.tool_call.tool_call_id.to_string(),
            digest: question.digest().unwrap().to_owned(),
            answer: Answer::Once,
        };
        Self { world, sessions, first, turn, request }
    }

    fn is_written(&self) -> bool {
        self.world.root().join("a.txt").exists()
    }
}

/// Asks, and keeps taking events until the answer is there.
async fn give(watcher: &mut Watcher, request: &AnswerRequest) -> Result<GivenAnswer, ClientError> {
    let client: AcpClient = watcher.client.clone();
    watcher.run(async move { client.answer(request).await }).await
}

fn refusal(answer: Result<GivenAnswer, ClientError>) -> caliban_acp::v1::Error {
    match answer {
        Err(ClientError::Call(CallError::Refused(error))) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a16_an_answer_goes_to_exactly_one_call_and_tells_what_was_recorded_first() {
    let mut asked = Asked::new().await;
    let mut door = Watcher::connect_as(&asked.sessions, zed()).await;
    assert!(door.client.takes_answers());
    let of = |answer| AnswerRequest { answer, ..asked.request.clone() };
    for wrong in [
        AnswerRequest { digest: "0".repeat(32), ..asked.request.clone() },
        AnswerRequest { ask: "another".to_owned(), ..asked.request.clone() },
    ] {
        assert!(is_not_asked_error(&refusal(give(&mut door, &wrong).await)));
    }
    for senseless in [Answer::AlwaysOutside, Answer::Keep(KeptRules::default())] {
        assert!(!is_not_asked_error(&refusal(give(&mut door, &of(senseless)).await)));
    }
    assert!(!asked.is_written());
    let recorded = GivenAnswer { answer: Answer::Once, by: Some("zed (pid 7)".to_owned()) };
    assert_eq!(give(&mut door, &asked.request).await.unwrap(), recorded);
    // Who comes late is told who was first, and nothing changes.
    let late = of(Answer::No(Some("no".to_owned())));
    assert_eq!(give(&mut door, &late).await.unwrap(), recorded);
    let question = asked.first.questions.pop().unwrap();
    asked.first.run(question.withdrawn().cancelled()).await;
    asked.first.run(&mut asked.turn).await.unwrap().unwrap();
    assert!(asked.is_written());
    let transcript =
        std::fs::read_to_string(asked.world.directory.path().join("door/transcript.jsonl")).unwrap();
    let answers: Vec<Value> = transcript
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|record: &Value| record["event"] == "ask_answered")
        .collect();
    assert_eq!(answers.len(), 1, "{transcript}");
    assert_eq!((&answers[0]["answer"], &answers[0]["by"]), (&json!("once"), &json!("zed (pid 7)")));
}

#[tokio::test]
async fn a16_an_answer_of_a_client_that_hangs_up_counts() {
    let mut asked = Asked::new().await;
    let door = Watcher::connect_as(&asked.sessions, zed()).await;
    let _nobody_waits = door.client.peer().request(ANSWER, &asked.request).await.unwrap();
    door.events.close().await;
    asked.first.run(&mut asked.turn).await.unwrap().unwrap();
    assert!(asked.is_written());
}

#[tokio::test]
async fn a11_who_decides_nothing_gives_no_answer() {
    let mut asked = Asked::new().await;
    let nobody = ServeOptions { caller: Caller::nobody("a process of agent x"), ..ServeOptions::socket("0") };
    let mut door = Watcher::connect_as(&asked.sessions, nobody).await;
    assert!(door.client.no_say().is_some() && door.client.takes_answers());
    let refused = refusal(give(&mut door, &asked.request).await);
    assert!(refused.message.contains("a process of agent x cannot decide"), "{}", refused.message);
    assert!(!asked.is_written());
    let of_another = AnswerRequest { session_id: "another".to_owned(), ..asked.request.clone() };
    let mut person = Watcher::connect_as(&asked.sessions, zed()).await;
    refusal(give(&mut person, &of_another).await);
    assert_eq!(give(&mut person, &asked.request).await.unwrap().answer, Answer::Once);
    asked.first.run(&mut asked.turn).await.unwrap().unwrap();
}
