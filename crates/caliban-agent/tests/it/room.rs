//! Room for what matters: what the model has not answered yet is in the request that is to answer it.

use std::sync::Arc;

use caliban_agent::{
    Agent, Kit,
    conversation::{CLEARED, INTERRUPTED, NOT_RUN},
    event::{Event, Outcome},
    transcript,
};
use caliban_core::{
    message::{Block, Message, Role},
    usage::Usage,
};
use caliban_providers::{ModelReply, ProviderError};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    turns::{Told, call, reply, says},
    world::{World, prompt},
};

const SUMMARY: &str = "<summary of the work so far>\nthe summary\n</summary>";

/// A reply that brings the use of the window to so many tokens.
fn using(tokens: u64, reply: ModelReply) -> ModelReply {
    ModelReply { usage: Usage { input: tokens, output: 1, ..Usage::default() }, ..reply }
}

/// A kit with a small window and a model that is told what to say.
fn small(world: &World, model: &Arc<Told>) -> Kit {
    Kit { window: Some(4_000), provider: model.clone(), context: Vec::new(), ..world.kit() }
}

fn user(texts: &[&str]) -> Message {
    let blocks = texts.iter().map(|text| Block::Text { text: (*text).to_owned() }).collect();
    Message { role: Role::User, blocks }
}

fn staged(id: &str, says: &str) -> Block {
    let input = json!({"name": id, "says": says});
    Block::ToolUse { id: id.into(), name: "Staged".into(), input, extra: None }
}

#[tokio::test]
async fn a_prompt_behind_a_long_reply_is_in_the_request_that_answers_it() {
    let world = World::new(json!({"steps": []}));
    let long = "x".repeat(4_000);
    let model = Told::new(vec![
        Ok(says("one")),
        Ok(using(3_500, says(&long))),
        Ok(says("the summary")),
        Ok(says("three")),
    ]);
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    for text in ["the task", "the second", "NEWPROMPT3"] {
        assert_eq!(prompt(&mut agent, text).await.outcome, Outcome::Done);
    }
    let asked = model.asked.lock().unwrap();
    assert_eq!(asked[3], [user(&["the task", SUMMARY, "NEWPROMPT3"])]);
}

#[tokio::test]
async fn a_prompt_that_is_long_itself_is_in_the_request_that_answers_it() {
    let world = World::new(json!({"steps": []}));
    let model = Told::new(vec![Ok(using(2_000, says("one"))), Ok(says("the summary")), Ok(says("two"))]);
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    prompt(&mut agent, "the task").await;
    let log = "y".repeat(8_000);
    assert_eq!(prompt(&mut agent, &log).await.outcome, Outcome::Done);
    let asked = model.asked.lock().unwrap();
    assert_eq!(asked[2], [user(&["the task", SUMMARY, &log])]);
}

#[tokio::test]
async fn fresh_results_stay_with_their_calls_and_what_was_said_meanwhile() {
    let world = World::new(json!({"steps": []}));
    let long = "z".repeat(6_000);
    let model = Told::new(vec![
        Ok(says("one")),
        Ok(using(2_000, reply(vec![staged("a", &long)]))),
        Ok(says("the summary")),
        Ok(says("two")),
    ]);
    world.stage.hold("a");
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    prompt(&mut agent, "the task").await;
    let handle = agent.handle();
    let person = async {
        world.stage.reached("a begins").await;
        handle.steer("by the way", None).await.unwrap();
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "the second"), person);
    assert_eq!(report.outcome, Outcome::Done);
    let result = Block::ToolResult {
        id: "a".into(),
        content: vec![caliban_core::message::ResultPart::Text { text: long.clone() }],
        is_error: false,
    };
    let asked = model.asked.lock().unwrap();
    assert_eq!(
        asked[3],
        [
            user(&["the task", SUMMARY]),
            Message { role: Role::Assistant, blocks: vec![staged("a", &long)] },
            Message { role: Role::User, blocks: vec![result, Block::Text { text: "by the way".into() }] },
        ]
    );
}

#[tokio::test]
async fn results_that_fill_the_window_alone_can_be_asked_for_again_in_parts() {
    let world = World::new(json!({"steps": []}));
    let model =
        Told::new(vec![Ok(using(2_000, reply(vec![staged("a", &"z".repeat(20_000))]))), Ok(says("done"))]);
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    assert_eq!(prompt(&mut agent, "the task").await.outcome, Outcome::Done);
    let asked = model.asked.lock().unwrap();
    let Block::ToolResult { content, .. } = &asked[1][2].blocks[0] else { panic!("{:?}", asked[1]) };
    assert_eq!(*content, [caliban_core::message::ResultPart::Text { text: CLEARED.into() }]);
}

#[tokio::test]
async fn a_model_for_which_the_newest_results_are_too_much_is_asked_without_them() {
    let world = World::new(json!({"steps": []}));
    let too_long = || Err(ProviderError::ContextTooLong { model: "told".into(), reason: "too long".into() });
    let model = Told::new(vec![
        Ok(says("one")),
        Ok(using(2_000, reply(vec![staged("a", &"z".repeat(4_000))]))),
        too_long(),
        Ok(says("the summary")),
        too_long(),
        Ok(says("done")),
    ]);
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    prompt(&mut agent, "the task").await;
    assert_eq!(prompt(&mut agent, "the second").await.outcome, Outcome::Done);
    let asked = model.asked.lock().unwrap();
    let sizes: Vec<usize> =
        asked.iter().map(|messages| format!("{messages:?}").matches('z').count()).collect();
    assert_eq!((asked.len(), sizes[4], sizes[5]), (6, 8_000, 4_000), "with the result, and without it");
}

#[tokio::test]
async fn each_summary_takes_the_place_of_the_one_before() {
    let world = World::new(json!({"steps": []}));
    let todos = |text: &str| Block::ToolUse {
        id: text.into(),
        name: "TodoWrite".into(),
        input: json!({"todos": [{"content": text, "status": "pending"}]}),
        extra: None,
    };
    let mut answers = Vec::new();
    for number in ["first", "second", "third"] {
        answers.extend([reply(vec![todos(number)]), says(&"x".repeat(4_000)), says(number)]);
    }
    let model = Told::new(answers.into_iter().map(Ok).collect());
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    for number in ["first", "second", "third"] {
        prompt(&mut agent, &format!("prompt {number}")).await;
        agent.compact(&CancellationToken::new()).await.unwrap();
        let list = format!(
            "<summary of the work so far>\n{number}\n</summary>\n<todo list>\n[ ] {number}\n</todo list>"
        );
        assert_eq!(agent.conversation().messages()[0], user(&["prompt first", &list]), "{number}");
    }
    // The model has the last word: nothing waits for it.
    assert!(!agent.has_unfinished_turn());
}

#[tokio::test]
async fn results_of_the_last_turns_are_not_cleared_when_there_is_room_for_them() {
    let world = World::new(json!({"steps": []}));
    let model = Told::new(vec![Ok(reply(vec![staged("a", &"z".repeat(1_000))])), Ok(says("done"))]);
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    prompt(&mut agent, "the task").await;
    let before = agent.conversation().messages().to_vec();
    agent.compact(&CancellationToken::new()).await.unwrap();
    assert_eq!(agent.conversation().messages(), before);
}

#[tokio::test]
async fn the_models_last_word_stays_however_long_it_is() {
    let world = World::new(json!({"steps": []}));
    let long = "x".repeat(8_000);
    let model = Told::new(vec![Ok(says("one")), Ok(says(&long)), Ok(says("the summary"))]);
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    prompt(&mut agent, "the task").await;
    prompt(&mut agent, "the second").await;
    agent.compact(&CancellationToken::new()).await.unwrap();
    assert_eq!(
        agent.conversation().messages(),
        [user(&["the task", SUMMARY]), Message { role: Role::Assistant, ..user(&[&long]) }]
    );
    assert!(!agent.has_unfinished_turn(), "no request is owed");
}

#[tokio::test]
async fn calls_that_a_kill_left_open_have_ends_before_room_is_made() {
    let world = World::new(json!({"steps": []}));
    let long = "x".repeat(4_000);
    let model =
        Told::new(vec![Ok(says(&long)), Ok(reply(vec![call("a", "a"), call("b", "b"), call("c", "c")]))]);
    world.stage.hold("a");
    world.stage.hold("b");
    let mut agent = Agent::new(small(&world, &model)).await.unwrap();
    prompt(&mut agent, "the task").await;
    tokio::select! {
        report = prompt(&mut agent, "the second") => panic!("{report:?}"),
        () = async { world.stage.reached("b begins").await; world.stage.reached("c ends").await } => {}
    }
    agent.close().await;
    // As if the kill had come before the second call began.
    let file = world.session().join(transcript::FILE_NAME);
    let text = std::fs::read_to_string(&file).unwrap();
    let until = text.lines().position(|line| line.contains("call_started") && line.contains("\"id\":\"b\""));
    let kept: String = text.lines().take(until.unwrap()).map(|line| format!("{line}\n")).collect();
    std::fs::write(&file, kept).unwrap();

    let model = Told::new(vec![Ok(says("the summary")), Ok(says("done"))]);
    let mut agent = Agent::resume(small(&world, &model)).await.unwrap();
    agent.compact(&CancellationToken::new()).await.unwrap();
    assert_eq!(prompt(&mut agent, "go on").await.outcome, Outcome::Done);
    let asked = model.asked.lock().unwrap();
    let results: Vec<(String, String)> = asked[0]
        .iter()
        .flat_map(|message| &message.blocks)
        .filter_map(|block| match block {
            Block::ToolResult { id, content, .. } => Some((id.clone(), format!("{content:?}"))),
            _ => None,
        })
        .collect();
    let [(a, interrupted), (b, not_run), (c, ..)] = &results[..] else { panic!("{results:?}") };
    assert_eq!([a, b, c], ["a", "b", "c"]);
    assert!(interrupted.contains(INTERRUPTED) && not_run.contains(NOT_RUN), "{results:?}");
    let events: Vec<&str> =
        Vec::from_iter(transcript::read(&world.session()).unwrap().iter().filter_map(|record| {
            match &record.event {
                Event::CallEnded { .. } => Some("ended"),
                Event::CallRefused { .. } => Some("refused"),
                Event::Summarised { .. } => Some("summarised"),
                _ => None,
            }
        }));
    assert_eq!(events.last(), Some(&"summarised"));
}
