//! One session, several clients.

use std::sync::Arc;

use caliban_acp::v1::{ContentBlock, SessionUpdate, StopReason};
use caliban_acp_host::Sessions;
use caliban_agent::{
    event::{Author, Event, Outcome},
    feed::{Cursor, Feed, FeedEntry},
};
use caliban_core::message::Message;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};

use crate::world::{Item, Watcher, World, pipe};

#[tokio::test]
async fn a_prompt_is_shown_to_all_but_its_author_and_bystanders_learn_of_the_end() {
    let world = World::new(json!({"steps": [{"text": "hello both"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut author = Watcher::attach(&sessions, &host).await;
    let mut bystander = Watcher::attach(&sessions, &host).await;
    author.prompt("s", "hi").await;
    bystander.until(|watcher| watcher.ends.len() == 1).await;
    let common = [Item::Title("hi".into()), Item::Agent("hello both".into())];
    assert_eq!(author.view(), common);
    assert_eq!(bystander.view(), [&common[..1], &[Item::User("hi".into())], &common[1..]].concat());
    assert_eq!((author.ends.len(), bystander.ends[0].outcome.clone()), (0, Outcome::Done));
    host.close().await;
}

#[tokio::test]
async fn who_comes_in_the_middle_misses_nothing_and_sees_nothing_twice() {
    let (world, gate) = World::gated(json!({"steps": [
        {"text": "one ", "chunks": 2, "tool_calls": [{"name": "Glob", "input": {"pattern": "*"}}]},
        {"text": "two ", "chunks": 2, "tool_calls": [{"name": "Glob", "input": {"pattern": "*"}}]},
        {"text": "three", "chunks": 2},
    ]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut watchers = vec![Watcher::attach(&sessions, &host).await];
    let mut ticket = host.prompt(Message::user("count"), Author::User).await.unwrap();
    for text in ["one ", "two "] {
        gate.add_permits(1);
        watchers[0].until(|watcher| watcher.text().ends_with(text)).await;
        watchers.push(Watcher::attach(&sessions, &host).await);
    }
    gate.add_permits(1);
    let ended = ticket.ended().await.unwrap();
    assert_eq!(ended.report.outcome, Outcome::Done);
    watchers.push(Watcher::attach(&sessions, &host).await);
    for watcher in &mut watchers {
        watcher.until(|watcher| watcher.ends.len() == 1).await;
    }
    let whole = watchers[0].view();
    assert_eq!(watchers[0].text(), "one two three");
    for watcher in &watchers[1..] {
        assert_eq!(watcher.view(), whole);
    }
    host.close().await;
}

#[tokio::test]
async fn a_prompt_while_a_turn_runs_goes_into_it() {
    let (world, gate) = World::gated(json!({"steps": [
        {"text": "working", "tool_calls": [{"name": "Glob", "input": {"pattern": "*"}}]},
        {"when": {"contains": "also b"}, "text": " on both"},
    ]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut first = Watcher::attach(&sessions, &host).await;
    let mut second = Watcher::attach(&sessions, &host).await;
    let began = tokio::spawn(first.begin("s", "do a"));
    second.until(|watcher| watcher.view().contains(&Item::User("do a".into()))).await;
    let joined = tokio::spawn(second.begin("s", "also b"));
    // It is on the disk before the model is asked again.
    let feed = host.handle().feed().clone();
    let mut cursor = Cursor::default();
    second
        .run(async {
            loop {
                if let Some(FeedEntry::Record(record)) = feed.wait(&mut cursor).await
                    && matches!(&record.event, Event::Queued { .. })
                {
                    break;
                }
            }
            // The record is seen a moment before the message stands in the queue.
            while !host.handle().is_queue_waiting() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    gate.add_permits(2);
    assert_eq!(second.run(joined).await.unwrap().unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!(first.run(began).await.unwrap().unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!((first.text(), second.text()), ("working on both".into(), "working on both".into()));
    let words = |watcher: &Watcher, text: &str| watcher.view().contains(&Item::User(text.into()));
    assert_eq!((words(&first, "do a"), words(&first, "also b")), (false, true), "{:?}", first.view());
    assert_eq!((words(&second, "do a"), words(&second, "also b")), (true, false), "{:?}", second.view());
    host.close().await;
}

/// What a client is shown of what people said.
fn words(watcher: &Watcher) -> Vec<String> {
    let word = |item: Item| match item {
        Item::User(text) => Some(text),
        _ => None,
    };
    watcher.view().into_iter().filter_map(word).collect()
}

#[tokio::test]
async fn who_reads_late_is_not_shown_its_own_words() {
    let (world, gate) = World::gated(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut watcher = Watcher::attach(&sessions, &host).await;
    // More than the pipe and its buffers hold: the client's walk stands still, and the turn is over before it goes on.
    for _ in 0..256 {
        host.handle().feed().push(FeedEntry::Text("x".repeat(PIECE)));
    }
    let feed = host.handle().feed().clone();
    let mut cursor = feed.end();
    let began = tokio::spawn(watcher.begin("s", "first"));
    until(&feed, &mut cursor, |event| matches!(event, Event::Prompt { .. })).await;
    let joined = tokio::spawn(watcher.begin("s", "second"));
    until(&feed, &mut cursor, |event| matches!(event, Event::Queued { .. })).await;
    gate.add_permits(9);
    until(&feed, &mut cursor, |event| matches!(event, Event::TurnEnded { .. })).await;
    while host.is_running() {
        tokio::task::yield_now().await;
    }
    for prompt in [began, joined] {
        assert_eq!(watcher.run(prompt).await.unwrap().unwrap().stop_reason, StopReason::EndTurn);
    }
    assert_eq!(words(&watcher), Vec::<String>::new());
    host.close().await;
}

/// Walks to the first record of this kind.
async fn until(feed: &Feed, cursor: &mut Cursor, is_it: impl Fn(&Event) -> bool) {
    while let Some(entry) = feed.wait(cursor).await {
        if let FeedEntry::Record(record) = entry
            && is_it(&record.event)
        {
            return;
        }
    }
    panic!("the session was closed");
}

#[tokio::test]
async fn the_same_words_of_two_people_are_two() {
    let (world, gate) = World::gated(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut first = Watcher::attach(&sessions, &host).await;
    let mut second = Watcher::attach(&sessions, &host).await;
    let feed = host.handle().feed().clone();
    let mut cursor = feed.end();
    let began = tokio::spawn(first.begin("s", "go"));
    until(&feed, &mut cursor, |event| matches!(event, Event::Prompt { .. })).await;
    let joined = tokio::spawn(second.begin("s", "go"));
    until(&feed, &mut cursor, |event| matches!(event, Event::Queued { .. })).await;
    gate.add_permits(9);
    first.run(began).await.unwrap().unwrap();
    second.run(joined).await.unwrap().unwrap();
    assert_eq!((words(&first), words(&second)), (vec!["go".to_owned()], vec!["go".to_owned()]));
    host.close().await;
}

#[tokio::test]
async fn a_message_is_shown_to_all_but_its_author_too() {
    let world = World::new(json!({"steps": [{"text": "ok"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut author = Watcher::attach(&sessions, &host).await;
    let mut other = Watcher::attach(&sessions, &host).await;
    let client = author.client.clone();
    let message = json!({"sessionId": "s", "text": "hello"});
    author.run(client.peer().call::<serde_json::Value>("_caliban/send", &message)).await.unwrap();
    for watcher in [&mut author, &mut other] {
        watcher.until(|watcher| watcher.ends.len() == 1).await;
    }
    assert_eq!((words(&author), words(&other)), (vec![], vec!["hello".to_owned()]));
    host.close().await;
}

#[tokio::test]
async fn pictures_begin_a_turn_of_their_own() {
    let (world, gate) = World::gated(json!({"steps": [{"text": "one"}, {"text": "two"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut watcher = Watcher::attach(&sessions, &host).await;
    let first = tokio::spawn(watcher.begin("s", "go"));
    watcher
        .until(|watcher| watcher.updates.iter().any(|it| matches!(it, SessionUpdate::SessionInfoUpdate(_))))
        .await;
    let client = watcher.client.clone();
    let picture: ContentBlock =
        serde_json::from_value(json!({"type": "image", "mimeType": "image/png", "data": "aGk="})).unwrap();
    let second = tokio::spawn(async move { client.prompt("s", vec!["see".into(), picture]).await });
    gate.add_permits(2);
    watcher.run(first).await.unwrap().unwrap();
    watcher.run(second).await.unwrap().unwrap();
    assert_eq!(watcher.text(), "onetwo");
    host.close().await;
}

#[tokio::test]
async fn an_agent_works_on_without_clients() {
    let (world, gate) = World::gated(json!({"steps": [{"text": "done alone"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut watcher = Watcher::attach(&sessions, &host).await;
    let prompt = tokio::spawn(watcher.begin("s", "go"));
    watcher
        .until(|watcher| watcher.updates.iter().any(|it| matches!(it, SessionUpdate::SessionInfoUpdate(_))))
        .await;
    drop(watcher);
    prompt.abort();
    gate.add_permits(1);
    let mut later = Watcher::attach(&sessions, &host).await;
    later.until(|watcher| watcher.ends.len() == 1).await;
    assert_eq!((later.text(), later.ends[0].outcome.clone()), ("done alone".into(), Outcome::Done));
    let error = later.client.clone();
    let error = later.run(error.new_session(&world.root(), Vec::new())).await.unwrap_err();
    assert_eq!(error.hint(), Some("load session s".into()));
    host.close().await;
    later.until(|watcher| watcher.closed == ["s"]).await;
}

#[tokio::test]
async fn a_mode_that_one_client_sets_is_told_to_all() {
    let world = World::new(json!({"steps": []}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let mut first = Watcher::attach(&sessions, &host).await;
    let mut second = Watcher::attach(&sessions, &host).await;
    let client = first.client.clone();
    first.run(client.set_mode("s", "plan")).await.unwrap();
    let told = |update: &SessionUpdate| matches!(update, SessionUpdate::CurrentModeUpdate(it) if &*it.current_mode_id.0 == "plan");
    second.until(|watcher| watcher.updates.iter().any(told)).await;
    assert_eq!(host.mode(), caliban_permissions::Mode::Plan);
    host.close().await;
}

/// How much streams past the silent client.
const STREAMED: usize = 50 * 1024 * 1024;
const PIECE: usize = 4 * 1024;

#[tokio::test]
async fn r23_a_client_that_never_reads_slows_nobody_and_misses_nothing() {
    let world = World::new(json!({"steps": [{"text": "end"}]}));
    let host = world.host("s").await;
    let sessions = Arc::new(Sessions::only(host.clone()));
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}});
    let load = json!({"jsonrpc": "2.0", "id": 2, "method": "session/load",
        "params": {"sessionId": "s", "cwd": world.root(), "mcpServers": []}});
    let (mut silent, mut reader) = (pipe(&sessions), pipe(&sessions));
    for pipe in [&mut silent, &mut reader] {
        pipe.write_all(format!("{hello}\n{load}\n").as_bytes()).await.unwrap();
    }
    let reader = tokio::spawn(said(reader));
    // As a model streams: straight into the log, which nothing can stop.
    let feed = host.handle().feed().clone();
    for _ in 0..STREAMED / PIECE {
        feed.push(FeedEntry::Text("x".repeat(PIECE)));
        tokio::task::yield_now().await;
    }
    let mut ticket = host.prompt(Message::user("talk"), Author::User).await.unwrap();
    assert_eq!(ticket.ended().await.unwrap().report.outcome, Outcome::Done);
    assert_eq!(reader.await.unwrap(), STREAMED + "end".len());
    // The other one wakes up, and everything is there.
    assert_eq!(said(silent).await, STREAMED + "end".len());
    host.close().await;
}

/// Reads until the turn has ended: how many bytes the agent has said. (Taking 50 MB apart as JSON is slow in a test.)
async fn said(pipe: DuplexStream) -> usize {
    let mut lines = BufReader::new(pipe).lines();
    let mut seen = 0;
    loop {
        let line = lines.next_line().await.unwrap().expect("the connection is still there");
        if line.len() < PIECE && line.contains("_caliban/turn_ended") {
            return seen;
        }
        if let Some((_, rest)) =
            line.split_once("\"agent_message_chunk\",\"content\":{\"type\":\"text\",\"text\":\"")
        {
            seen += rest.find('"').unwrap();
        }
    }
}
