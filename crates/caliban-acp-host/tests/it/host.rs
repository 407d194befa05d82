//! A session's host, without connections.

use std::sync::{Arc, Mutex, OnceLock};

use caliban_acp_host::{
    Clients, SessionHost,
    host::{TakenPrompt, Unavailable, Unsaid},
};
use caliban_agent::{
    Agent,
    event::{Author, Event, Outcome},
    feed::{Cursor, FeedEntry},
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
        let FeedEntry::Record(record) = entry else { continue };
        match &record.event {
            Event::Prompt { .. } => said.push(format!("user: {}", record.event.typed().unwrap())),
            Event::Queued { text, .. } => said.push(format!("queued: {text}")),
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
    assert_eq!(ticket.taken, TakenPrompt::Began);
    let ended = ticket.ended().await.unwrap();
    assert_eq!((ended.report.outcome.clone(), ended.report.turns), (Outcome::Done, 2));
    assert_eq!(
        said(&host),
        ["user: first", "model: one", "queued: too late", "end", "user: too late", "model: two", "end"]
    );
    assert!(!host.is_running());
    host.close().await;
}

#[tokio::test]
async fn a_message_is_delivered_once_whatever_the_agent_does() {
    let (world, gate) = World::gated(json!({"steps": [{"text": "one"}, {"text": "two"}, {"text": "three"}]}));
    let host = world.host("s").await;
    let mut first = host.deliver("a".to_owned(), Some("id-1".to_owned())).await.unwrap();
    assert_eq!(first.taken, TakenPrompt::Began);
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

#[tokio::test]
async fn an_agent_at_work_does_not_retire_and_one_that_rests_takes_nothing_more() {
    let (world, gate) = World::gated(json!({"steps": [{"text": "one"}]}));
    let host = world.host("s").await;
    let mut ticket = host.prompt(Message::user("go"), Author::User).await.unwrap();
    assert_eq!(host.retire(), Err(Unavailable::Busy));
    gate.add_permits(1);
    ticket.ended().await.unwrap();
    assert_eq!(host.retire(), Ok(()));
    assert!(matches!(host.deliver("late".to_owned(), None).await, Err(Unsaid::Closed)));
    assert!(matches!(host.prompt(Message::user("late"), Author::User).await, Err(Unsaid::Closed)));
    assert_eq!(said(&host), ["user: go", "model: one", "end"]);
    host.close().await;
    let again = Agent::resume(world.kit("s")).await.unwrap();
    assert!(!again.has_unfinished_turn(), "what was refused is not on the disk");
}

#[tokio::test]
async fn a_message_that_was_acknowledged_is_never_left_behind_by_retiring() {
    for round in 0..10 {
        let world = World::new(json!({"steps": [{"text": "one"}, {"text": "two"}]}));
        let host = world.host("s").await;
        host.prompt(Message::user("go"), Author::User).await.unwrap().ended().await.unwrap();
        let speaker = tokio::spawn({
            let host = host.clone();
            async move { host.deliver("also this".to_owned(), Some("1".to_owned())).await.is_ok() }
        });
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        while host.retire().is_err() {
            tokio::task::yield_now().await;
        }
        let is_acknowledged = speaker.await.unwrap();
        host.close().await;
        // Either it was heard in a turn of its own, or it is not even on the disk.
        let heard: &[&str] = if is_acknowledged {
            &["user: go", "model: one", "end", "queued: also this", "user: also this", "model: two", "end"]
        } else {
            &["user: go", "model: one", "end"]
        };
        assert_eq!(said(&host), heard, "round {round}");
    }
}

#[tokio::test]
async fn who_leaves_while_speaking_is_heard_all_the_same() {
    let world = World::new(json!({"steps": [{"text": "one"}]}));
    let host = world.host("s").await;
    // Begun, and dropped before the disk has said anything.
    let mut speaking = Box::pin(host.deliver("hello".to_owned(), Some("1".to_owned())));
    assert!(futures_util::poll!(&mut speaking).is_pending());
    tokio::task::yield_now().await;
    drop(speaking);
    let mut again = host.deliver("hello".to_owned(), Some("1".to_owned())).await.unwrap();
    assert_eq!(again.ended().await.unwrap().report.outcome, Outcome::Done);
    assert_eq!(said(&host), ["queued: hello", "user: hello", "model: one", "end"]);
    host.close().await;
}

#[tokio::test]
async fn a_cancel_ends_what_is_on_its_way_to_the_disk_and_the_words_stay_in_the_conversation() {
    let (world, gate) = World::gated(json!({"steps": [{"repeat": true, "text": "ok"}]}));
    let host = world.host("s").await;
    let mut first = host.prompt(Message::user("a"), Author::User).await.unwrap();
    // Begun, and cancelled before the disk has said anything.
    let mut coming = Box::pin(host.deliver("b".to_owned(), Some("1".to_owned())));
    assert!(futures_util::poll!(&mut coming).is_pending());
    host.cancel();
    let mut second = coming.await.unwrap();
    for ticket in [&mut first, &mut second] {
        assert_eq!(ticket.ended().await.unwrap().report.outcome, Outcome::Cancelled);
    }
    while host.is_running() {
        tokio::task::yield_now().await;
    }
    assert!(!host.handle().is_queue_waiting(), "taken down, not left for the next start");
    // Also when nothing runs.
    let mut coming = Box::pin(host.deliver("c".to_owned(), Some("2".to_owned())));
    assert!(futures_util::poll!(&mut coming).is_pending());
    host.cancel();
    assert_eq!(coming.await.unwrap().ended().await.unwrap().report.outcome, Outcome::Cancelled);
    gate.add_permits(9);
    let mut last = host.prompt(Message::user("d"), Author::User).await.unwrap();
    assert_eq!(last.ended().await.unwrap().report.outcome, Outcome::Done);
    let heard: Vec<String> = said(&host)
        .into_iter()
        .filter(|line| line.starts_with("user") || line.starts_with("model"))
        .collect();
    assert_eq!(heard, ["user: a", "user: b", "user: c", "user: d", "model: ok"]);
    host.close().await;
}

/// Somebody who speaks.
type Speaking =
    std::pin::Pin<Box<dyn Future<Output = Result<caliban_acp_host::host::Ticket, Unsaid>> + Send>>;

#[tokio::test]
async fn what_is_said_after_a_cancel_is_worked_on_though_the_turn_has_not_ended() {
    let speak: [fn(SessionHost) -> Speaking; 2] = [
        |host| Box::pin(async move { host.deliver("b".to_owned(), Some("1".to_owned())).await }),
        |host| Box::pin(async move { host.prompt(Message::user("b"), Author::User).await }),
    ];
    for speak in speak {
        let world = World::new(json!({"steps": [
            {"tool_calls": [{"name": "Glob", "input": {"pattern": "*"}}]},
            {"repeat": true, "text": "ok"},
        ]}));
        let mut kit = world.kit("s");
        let host: Arc<OnceLock<SessionHost>> = Arc::default();
        let speaking: Arc<Mutex<Option<Speaking>>> = Arc::default();
        kit.hooks.closures.push(Arc::new({
            let (host, speaking) = (host.clone(), speaking.clone());
            move |event, _: &serde_json::Value| {
                // In the middle of the turn: a cancel, and then words.
                if event == HookEvent::PreToolUse {
                    let host = host.get().unwrap().clone();
                    host.cancel();
                    let mut words = futures_util::future::maybe_done(speak(host));
                    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
                    let _pending = std::pin::Pin::new(&mut words).poll(&mut context);
                    *speaking.lock().unwrap() = Some(Box::pin(async move {
                        (&mut words).await;
                        std::pin::Pin::new(&mut words).take_output().unwrap()
                    }));
                }
                HookAnswer::default()
            }
        }));
        assert!(host.set(SessionHost::start(Agent::new(kit).await.unwrap(), Clients::Many)).is_ok());
        let host = host.get().unwrap();
        let mut first = host.prompt(Message::user("a"), Author::User).await.unwrap();
        assert_eq!(first.ended().await.unwrap().report.outcome, Outcome::Cancelled);
        let speaking = speaking.lock().unwrap().take().unwrap();
        let report = speaking.await.unwrap().ended().await.unwrap().report;
        assert_eq!((report.outcome.clone(), report.text.as_str()), (Outcome::Done, "ok"));
        let spoken = |line: &String| line.starts_with("user") || line.starts_with("model");
        let heard: Vec<String> = said(host).into_iter().filter(spoken).collect();
        assert_eq!(heard, ["user: a", "model: ", "user: b", "model: ok"]);
        host.close().await;
    }
}

#[tokio::test]
async fn a_message_that_was_heard_before_a_restart_begins_no_turn() {
    let world = World::new(json!({"steps": [{"text": "one"}]}));
    let host = world.host("s").await;
    let mut ticket = host.deliver("a".to_owned(), Some("id-1".to_owned())).await.unwrap();
    ticket.ended().await.unwrap();
    host.close().await;
    let host = SessionHost::start(Agent::resume(world.kit("s")).await.unwrap(), Clients::Many);
    let mut again = host.deliver("a".to_owned(), Some("id-1".to_owned())).await.unwrap();
    assert_eq!(again.ended().await.unwrap().report.outcome, Outcome::Done);
    assert_eq!(said(&host), ["queued: a", "user: a", "model: one", "end"]);
    host.close().await;
}

/// What began, and how often.
fn begun(host: &SessionHost) -> Vec<String> {
    let feed = host.handle().feed();
    let mut cursor = Cursor::default();
    let mut begun = Vec::new();
    while let Some(entry) = feed.next(&mut cursor) {
        let FeedEntry::Record(record) = entry else { continue };
        if let Event::CallStarted { input, .. } = &record.event {
            begun.push(input["file_path"].as_str().unwrap().to_owned());
        }
    }
    begun
}

#[tokio::test]
async fn r17_a_call_whose_end_could_not_be_recorded_is_not_run_again() {
    let write = |path: &str| json!({"name": "Write", "input": {"file_path": path, "content": "x"}});
    let world = World::new(json!({"steps": [{"tool_calls": [write("a"), write("b")]}, {"text": "I see"}]}));
    let mut kit = world.kit("s");
    kit.policy.write().unwrap().mode = caliban_permissions::Mode::Unattended;
    kit.hooks.closures.push(Arc::new(|event, details: &serde_json::Value| {
        let is_second = event == HookEvent::PreToolUse && details["tool_input"]["file_path"] == "b";
        // More than a record can hold.
        let context = if is_second { vec!["x".repeat(64 << 20)] } else { Vec::new() };
        HookAnswer { context, ..HookAnswer::default() }
    }));
    let host = SessionHost::start(Agent::new(kit).await.unwrap(), Clients::Many);
    let mut ticket = host.prompt(Message::user("go"), Author::User).await.unwrap();
    let outcome = ticket.ended().await.unwrap().report.outcome.clone();
    assert!(matches!(&outcome, Outcome::Failed { error, .. } if error.contains("too large")), "{outcome:?}");
    let mut ticket = host.deliver("go on".to_owned(), None).await.unwrap();
    assert_eq!(ticket.ended().await.unwrap().report.outcome, Outcome::Done);
    assert_eq!(begun(&host), ["a", "b"]);
    host.close().await;
}

/// A conversation that is worth a summary, with a model that does not answer any more.
async fn long(world: &World, gate: &tokio::sync::Semaphore) -> SessionHost {
    let host = world.host("s").await;
    gate.add_permits(2);
    for _ in 0..2 {
        let words = Message::user("x".repeat(100_000));
        host.prompt(words, Author::User).await.unwrap().ended().await.unwrap();
    }
    host
}

#[tokio::test]
async fn a_summary_that_does_not_come_can_be_cancelled() {
    let (world, gate) = World::gated(json!({"steps": [{"repeat": true, "text": "one"}]}));
    let host = long(&world, &gate).await;
    let result = host.compact().unwrap();
    host.cancel();
    assert_eq!(result.await.unwrap(), Err(Outcome::Cancelled));
    host.close().await;
}

#[tokio::test]
async fn a_summary_that_does_not_come_ends_with_the_time_that_the_agent_has() {
    let limits = caliban_core::budget::Limits { wall_ms: Some(2_000), ..caliban_core::budget::Limits::NONE };
    let (world, gate) = World::gated(json!({"steps": [{"repeat": true, "text": "one"}]}));
    let host = long(&world.with_budget(limits), &gate).await;
    let result = host.compact().unwrap().await.unwrap();
    assert!(matches!(&result, Err(Outcome::Budget { .. })), "{result:?}");
    host.close().await;
}

/// `/undo` is such a step: nobody's prompt may begin a turn between the look and the work.
#[tokio::test]
async fn what_is_done_at_rest_meets_no_turn_and_what_was_said_meanwhile_is_heard_afterwards() {
    let world = World::new(json!({"steps": [{"text": "heard"}]}));
    let host = world.host("s").await;
    let other = host.clone();
    let work = host.while_at_rest(move || {
        let refused = matches!((other.go_on(), other.compact()), (Err(_), Err(_)));
        (refused, other.handle().feed().end())
    });
    let ((refused, at), ticket) =
        tokio::join!(async { work.await.unwrap() }, host.prompt(Message::user("hi"), Author::User));
    assert!(refused, "it counts as work");
    let ended = ticket.unwrap().ended().await.unwrap();
    assert_eq!(ended.report.text, "heard");
    assert!(ended.at > at, "the turn came after the work");
    // While a turn runs there is no rest.
    let (world, gate) = World::gated(json!({"steps": [{"text": "late"}]}));
    let busy = world.host("b").await;
    let mut ticket = busy.prompt(Message::user("hi"), Author::User).await.unwrap();
    assert!(busy.while_at_rest(|| panic!("a turn runs")).await.is_err());
    gate.add_permits(1);
    ticket.ended().await.unwrap();
    host.close().await;
    busy.close().await;
}
