//! Calls that wait for a person.

use std::sync::Arc;

use caliban_acp::v1::{StopReason, ToolCallContent, ToolCallStatus};
use caliban_acp_host::Sessions;
use caliban_agent::Agent;
use caliban_core::ask::Answer;
use serde_json::{Value, json};

use crate::world::{Watcher, World, calls};

fn write(path: &str) -> Value {
    json!({"name": "Write", "input": {"file_path": path, "content": "new\n"}})
}

fn script() -> Value {
    json!({"steps": [
        {"tool_calls": [write("a.txt")]},
        {"text": "first"},
        {"tool_calls": [write("b.txt")]},
        {"text": "second"},
    ]})
}

#[tokio::test]
async fn the_question_shows_the_change_and_yes_carries_it_out() {
    let world = Arc::new(World::new(script()));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    let session = watcher.new_session(&world, Vec::new()).await;
    let prompt = tokio::spawn(watcher.begin(&session, "go"));
    watcher.until(|watcher| !watcher.questions.is_empty()).await;
    assert!(!world.root().join("a.txt").exists());
    let question = watcher.questions.pop().unwrap();
    let fields = &question.request.tool_call.fields;
    assert_eq!(fields.title.as_deref(), Some("Write: a.txt"));
    let Some([ToolCallContent::Diff(diff)]) = fields.content.as_deref() else { panic!("{fields:?}") };
    assert_eq!((diff.path.clone(), diff.new_text.as_str()), (world.root().join("a.txt"), "new\n"));
    question.answer(Answer::Once).await.unwrap();
    let answer = watcher.run(prompt).await.unwrap().unwrap();
    assert_eq!((answer.stop_reason, watcher.text()), (StopReason::EndTurn, "first".into()));
    assert_eq!(std::fs::read_to_string(world.root().join("a.txt")).unwrap(), "new\n");
    sessions.close_all().await;
}

#[tokio::test]
async fn no_is_told_to_the_model_with_the_reason_and_once_is_once() {
    let world = Arc::new(World::new(script()));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    let session = watcher.new_session(&world, Vec::new()).await;
    for (number, reply) in [Answer::Once, Answer::No(Some("not there".into()))].into_iter().enumerate() {
        let prompt = watcher.begin(&session, &format!("go {number}"));
        let prompt = tokio::spawn(prompt);
        watcher.until(|watcher| !watcher.questions.is_empty()).await;
        watcher.questions.pop().unwrap().answer(reply).await.unwrap();
        watcher.run(prompt).await.unwrap().unwrap();
    }
    assert!(world.root().join("a.txt").exists());
    assert!(!world.root().join("b.txt").exists());
    assert_eq!(
        calls(&watcher.view()),
        [
            ("Write: a.txt".to_owned(), ToolCallStatus::Completed),
            ("Write: b.txt".to_owned(), ToolCallStatus::Failed),
        ]
    );
    assert!(format!("{:?}", watcher.view()).contains("the user rejected this call: not there"));
    sessions.close_all().await;
}

#[tokio::test]
async fn always_is_not_asked_again() {
    let world = Arc::new(World::new(json!({"steps": [
        {"tool_calls": [write("a.txt")]},
        {"text": "first"},
        {"tool_calls": [{"name": "Write", "input": {"file_path": "a.txt", "content": "newer\n"}}]},
        {"text": "second"},
    ]})));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    let session = watcher.new_session(&world, Vec::new()).await;
    let prompt = tokio::spawn(watcher.begin(&session, "go"));
    watcher.until(|watcher| !watcher.questions.is_empty()).await;
    let question = watcher.questions.pop().unwrap();
    assert!(question.offers_always(), "{:?}", question.request.options);
    let [rules, _] = question.rules();
    let kept = caliban_core::kept_rules::KeptRules { rules, ..Default::default() };
    question.answer(Answer::Keep(kept)).await.unwrap();
    watcher.run(prompt).await.unwrap().unwrap();
    watcher.prompt(&session, "again").await;
    assert!(watcher.questions.is_empty());
    assert_eq!(std::fs::read_to_string(world.root().join("a.txt")).unwrap(), "newer\n");
    sessions.close_all().await;
}

#[tokio::test]
async fn cancelling_a_turn_takes_the_question_back() {
    let world = Arc::new(World::new(script()));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    let session = watcher.new_session(&world, Vec::new()).await;
    let prompt = tokio::spawn(watcher.begin(&session, "go"));
    watcher.until(|watcher| !watcher.questions.is_empty()).await;
    watcher.client.cancel(&session).await.unwrap();
    let answer = watcher.run(prompt).await.unwrap().unwrap();
    assert_eq!(answer.stop_reason, StopReason::Cancelled);
    let question = watcher.questions.pop().unwrap();
    watcher.run(question.withdrawn().cancelled()).await;
    // Too late: nothing is carried out.
    question.answer(Answer::Once).await.unwrap();
    sessions.close_all().await;
    assert!(!world.root().join("a.txt").exists());
}

#[tokio::test]
async fn a_lone_client_that_cannot_ask_means_no() {
    let world = Arc::new(World::new(script()));
    let sessions = Arc::new(Sessions::made_by(world.clone()));
    let mut watcher = Watcher::connect(&sessions).await;
    let session = watcher.new_session(&world, Vec::new()).await;
    let prompt = tokio::spawn(watcher.begin(&session, "go"));
    watcher.until(|watcher| !watcher.questions.is_empty()).await;
    watcher.questions.clear(); // answers an internal error
    watcher.run(prompt).await.unwrap().unwrap();
    assert_eq!(calls(&watcher.view()), [("Write: a.txt".to_owned(), ToolCallStatus::Failed)]);
    sessions.close_all().await;
}

#[tokio::test]
async fn a16_the_first_answer_wins_and_the_others_questions_are_taken_back() {
    let world = World::new(script());
    let host = world.host("shared").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut first = Watcher::attach(&sessions, &host).await;
    let mut second = Watcher::attach(&sessions, &host).await;
    let prompt = tokio::spawn(first.begin("shared", "go"));
    first.until(|watcher| !watcher.questions.is_empty()).await;
    second.until(|watcher| !watcher.questions.is_empty()).await;
    // A third one comes while the question is open.
    let mut third = Watcher::attach(&sessions, &host).await;
    third.until(|watcher| !watcher.questions.is_empty()).await;
    second.questions.pop().unwrap().answer(Answer::Once).await.unwrap();
    let loser = first.questions.pop().unwrap();
    let third_question = third.questions.pop().unwrap();
    first.run(prompt).await.unwrap().unwrap();
    first.run(loser.withdrawn().cancelled()).await;
    third.run(third_question.withdrawn().cancelled()).await;
    // An answer after the fact changes nothing.
    loser.answer(Answer::No(None)).await.unwrap();
    third_question.answer(Answer::No(None)).await.unwrap();
    assert!(world.root().join("a.txt").exists());
    for watcher in [&mut second, &mut third] {
        watcher.until(|watcher| watcher.ends.len() == 1).await;
        assert_eq!(calls(&watcher.view()), [("Write: a.txt".to_owned(), ToolCallStatus::Completed)]);
    }
    host.close().await;
}

#[tokio::test]
async fn a_question_waits_for_whoever_comes_next_and_across_a_restart() {
    let world = World::new(script());
    let host = world.host("parked").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut first = Watcher::attach(&sessions, &host).await;
    let prompt = tokio::spawn(first.begin("parked", "go"));
    first.until(|watcher| !watcher.questions.is_empty()).await;
    drop((first, prompt));
    let mut second = Watcher::attach(&sessions, &host).await;
    second.until(|watcher| !watcher.questions.is_empty()).await;
    assert!(host.is_running());
    // The process dies with the question open: the file is let go, nothing is answered.
    drop(second);
    host.close().await;
    drop((host, sessions));

    let agent = Agent::resume(world.kit("parked")).await.unwrap();
    let host = caliban_acp_host::SessionHost::start(agent, caliban_acp_host::Clients::Many);
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut third = Watcher::attach(&sessions, &host).await;
    assert_eq!(third.text(), "");
    let answer = third.prompt("parked", "what happened?").await;
    assert_eq!(answer.stop_reason, StopReason::EndTurn);
    host.close().await;
}

#[tokio::test]
async fn a_helpers_question_is_asked_where_its_parent_is_watched() {
    let world = World::new(json!({"steps": [
        {"when": {"first_prompt_contains": "delegate"}, "tool_calls": [
            {"name": "AgentTool", "input": {"prompt": "write the file", "label": "scribe"}}]},
        {"when": {"first_prompt_contains": "write the file"}, "tool_calls": [write("a.txt")]},
        {"when": {"first_prompt_contains": "write the file"}, "text": "written"},
        {"when": {"first_prompt_contains": "delegate"}, "text": "it is done"},
    ]}))
    .with_helpers();
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut first = Watcher::attach(&sessions, &host).await;
    let prompt = tokio::spawn(first.begin("s", "delegate this"));
    first.until(|watcher| !watcher.questions.is_empty()).await;
    let mut second = Watcher::attach(&sessions, &host).await;
    second.until(|watcher| !watcher.questions.is_empty()).await;
    let question = second.questions.pop().unwrap();
    assert_eq!(question.request.tool_call.fields.title.as_deref(), Some("scribe: Write: a.txt"));
    question.answer(Answer::Once).await.unwrap();
    let answer = first.run(prompt).await.unwrap().unwrap();
    assert_eq!((answer.stop_reason, first.text()), (StopReason::EndTurn, "it is done".into()));
    let other = first.questions.pop().unwrap();
    first.run(other.withdrawn().cancelled()).await;
    assert!(world.root().join("a.txt").exists());
    host.close().await;
}
