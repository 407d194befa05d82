//! Every prompt that a person says is shown to the user's hooks, whenever it is said.

use std::sync::{Arc, Mutex};

use caliban_agent::{
    Agent, Kit,
    event::{Author, Event, Outcome},
    hooks::{ClosureHook, HookAnswer, HookEvent},
    transcript,
};
use caliban_core::message::Message;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{World, prompt};

/// A world whose hook writes down what it is asked, blocks what has a `secret` and adds a word to the rest.
fn hooked(script: Value) -> (World, Arc<Mutex<Vec<String>>>) {
    let mut world = World::new(script);
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = asked.clone();
    let hook: ClosureHook = Arc::new(move |event, input: &Value| {
        if event != HookEvent::UserPromptSubmit {
            return HookAnswer::default();
        }
        let prompt = input["prompt"].as_str().unwrap().to_owned();
        log.lock().unwrap().push(prompt.clone());
        let block = prompt.contains("secret").then(|| "not that".to_owned());
        HookAnswer { block, context: vec![format!("about {prompt}: ")], ..HookAnswer::default() }
    });
    world.hooks = vec![hook];
    (world, asked)
}

fn script() -> Value {
    json!({"steps": [{"tool_calls": [{"name": "Staged", "input": {"name": "a"}}]}, {"repeat": true, "text": "done"}]})
}

#[tokio::test]
async fn what_is_said_while_the_agent_works_is_shown_to_hooks() {
    let (world, asked) = hooked(script());
    world.stage.hold("a");
    let mut agent = Agent::new(world.kit()).await.unwrap();
    let handle = agent.handle();
    let person = async {
        world.stage.reached("a begins").await;
        handle.steer("the secret", None).await.unwrap();
        handle.steer("and this", None).await.unwrap();
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), person);
    assert_eq!(report.outcome, Outcome::Done);
    assert_eq!(*asked.lock().unwrap(), ["go", "the secret", "and this"]);
    assert_eq!(agent.conversation().messages()[2].text(), "about and this: \n\nand this");
    let notes: Vec<String> = transcript::read(&world.session())
        .unwrap()
        .into_iter()
        .filter_map(|record| match record.event {
            Event::Note { text } => Some(text),
            _ => None,
        })
        .collect();
    assert_eq!(notes, ["the prompt was blocked by a hook: not that"]);
    agent.close().await;
    // What was blocked does not come back.
    let agent = Agent::resume(world.kit()).await.unwrap();
    assert!(!agent.has_unfinished_turn());
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn what_is_said_and_cancelled_is_shown_to_hooks_as_well() {
    let (world, asked) = hooked(script());
    let mut agent = Agent::new(Kit { context: Vec::new(), ..world.kit() }).await.unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let report = agent.prompt(Message::user("go"), Author::User, &cancel).await;
    assert_eq!(report.outcome, Outcome::Cancelled);
    agent.handle().steer("more", None).await.unwrap();
    assert_eq!(agent.go_on(&cancel).await.outcome, Outcome::Cancelled);
    assert_eq!(*asked.lock().unwrap(), ["go", "more"]);
    assert_eq!(agent.conversation().messages()[0].text(), "about go: \n\ngo\n\nabout more: \n\nmore");
}

#[tokio::test]
async fn when_nothing_was_said_but_what_is_blocked_the_model_is_not_asked() {
    let (world, asked) = hooked(json!({"steps": [{"text": "hello"}]}));
    let mut agent = Agent::new(world.kit()).await.unwrap();
    prompt(&mut agent, "hi").await;
    agent.handle().steer("a secret", None).await.unwrap();
    let report = agent.go_on(&CancellationToken::new()).await;
    assert_eq!(report.outcome, Outcome::failed("the prompt was blocked by a hook: not that"));
    assert_eq!((asked.lock().unwrap().len(), report.turns), (2, 0));
    assert!(!agent.has_unfinished_turn());
}
