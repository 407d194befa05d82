//! A session's host, without connections.

use std::sync::{Arc, Mutex, OnceLock};

use caliban_acp::{
    Clients, SessionHost,
    host::{Taken, Unavailable, Unsaid},
};
use caliban_agent::{
    Agent,
    event::{Author, Event, Outcome},
    feed::{Cursor, Entry},
    handle::Handle,
    hooks::{HookAnswer, HookEvent},
};
use caliban_core::message::Message;
use serde_json::json;

use crate::world::World;

/// What people and the model have said so far.
fn said(host: &SessionHost) -> Vec<String> {
    let feed = host.handle().feed();
    let mut cursor = Cursor::default();
    let mut said = Vec::new();
    while let Some(entry) = feed.next(&mut cursor) {
        let Entry::Record(record) = entry else { continue };
        match &record.event {
            Event::Prompt { .. } => said.push(format!("user: {}", record.event.typed().unwrap())),
            Event::Reply { message, .. } => said.push(format!("model: {}", message.text())),
            Event::TurnEnded { .. } => said.push("end".to_owned()),
            _ => {}
        }
    }
    said
}

#[tokio::test]
async fn what_is_said_too_late_for_a_turn_begins_another_and_its_author_waits_for_that() {
    let world = World::new(json!({"steps": [{"text": "one"}, {"text": "two"}]}));
    let mut kit = world.kit("s");
    let handle: Arc<OnceLock<Handle>> = Arc::default();
    let late = Arc::new(Mutex::new(Some("too late")));
    kit.hooks.closures.push(Arc::new({
        let (handle, late) = (handle.clone(), late.clone());
        move |event, _: &serde_json::Value| {
            // The model has answered and nothing waited: now somebody speaks.
            if event == HookEvent::Stop
                && let Some(text) = late.lock().unwrap().take()
            {
                let handle = handle.get().unwrap().clone();
                let speak = move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                    runtime.block_on(handle.steer(text, None)).unwrap();
                };
                std::thread::spawn(speak).join().unwrap();
            }
            HookAnswer::default()
        }
    }));
    let host = SessionHost::start(Agent::new(kit).await.unwrap(), Clients::Many);
    assert!(handle.set(host.handle().clone()).is_ok());
    let mut ticket = host.prompt(Message::user("first"), Author::User).await.unwrap();
    assert_eq!(ticket.taken, Taken::Began);
    let ended = ticket.ended().await.unwrap();
    assert_eq!((ended.report.outcome.clone(), ended.report.turns), (Outcome::Done, 2));
    assert_eq!(said(&host), ["user: first", "model: one", "end", "user: too late", "model: two", "end"]);
    assert!(!host.is_running());
    host.close().await;
}

#[tokio::test]
async fn a_message_is_delivered_once_whatever_the_agent_does() {
    let (world, gate) = World::gated(json!({"steps": [{"text": "one"}, {"text": "two"}, {"text": "three"}]}));
    let host = world.host("s").await;
    let mut first = host.deliver("a".to_owned(), Some("id-1".to_owned())).await.unwrap();
    assert_eq!(first.taken, Taken::Began);
    let mut again = host.deliver("a".to_owned(), Some("id-1".to_owned())).await.unwrap();
    let mut second = host.deliver("b".to_owned(), Some("id-2".to_owned())).await.unwrap();
    gate.add_permits(3);
    for ticket in [&mut first, &mut again, &mut second] {
        assert_eq!(ticket.ended().await.unwrap().report.outcome, Outcome::Done);
    }
    let heard: Vec<String> = said(&host).into_iter().filter(|line| line.starts_with("user")).collect();
    assert_eq!(heard, ["user: a", "user: b"]);
    host.close().await;
}

#[tokio::test]
async fn what_cannot_be_done_now_is_refused() {
    let (world, _gate) = World::gated(json!({"steps": [{"text": "one"}]}));
    let host = world.host("s").await;
    let mut ticket = host.prompt(Message::user("go"), Author::User).await.unwrap();
    assert!(matches!(host.compact(), Err(Unavailable::Busy)));
    assert!(matches!(host.go_on(), Err(Unavailable::Busy)));
    host.close().await;
    assert_eq!(ticket.ended().await.unwrap().report.outcome, Outcome::Cancelled);
    assert!(matches!(host.prompt(Message::user("go"), Author::User).await, Err(Unsaid::Closed)));
    assert!(matches!(host.compact(), Err(Unavailable::Closed)));
}

#[tokio::test]
async fn a_host_that_nobody_holds_lets_go_of_its_conversation() {
    let (world, _gate) = World::gated(json!({"steps": [{"text": "one"}]}));
    let host = world.host("s").await;
    let feed = host.handle().feed().clone();
    let ticket = host.prompt(Message::user("go"), Author::User).await.unwrap();
    drop((host, ticket));
    let mut cursor = Cursor::default();
    while feed.wait(&mut cursor).await.is_some() {}
    Agent::resume(world.kit("s")).await.unwrap();
}
