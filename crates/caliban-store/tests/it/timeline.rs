//! What people see of a session's messages, many messages at once, and waiting for them.

use std::time::Duration;

use caliban_store::broker::{
    AgentId, BrokerError, IdPrefix, MailboxScope, NewBroadcast, NewMessage, Of, PollQuery, Task, TaskId,
    TaskKind,
};

use crate::rules::{World, at};

fn texts(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.text.as_str()).collect()
}

#[tokio::test]
async fn many_messages_are_stored_together_and_each_has_its_own_answer() {
    let mut world = World::new().await;
    let (one, two) = (world.register(world.session, "one").await, world.register(world.session, "two").await);
    let nobody = AgentId::random();
    let mut first = world.message(world.director, one, "a", None);
    first.id = Some(TaskId::random());
    let all = [
        first.clone(),
        world.message(world.director, nobody, "b", None),
        world.message(one, two, "c", None),
        first.clone(),
    ];
    let answers = world.broker.send_all(&all, at(2)).await.expect("store");
    let ids: Vec<Option<TaskId>> =
        answers.iter().map(|answer| answer.as_ref().ok().map(|sent| sent.task.id)).collect();
    assert_eq!((ids.len(), ids[0], ids[1], ids[3]), (4, first.id, None, first.id), "{answers:?}");
    let newest = world.broker.timeline(world.session, Of::Session, 10).await.expect("timeline");
    assert_eq!(texts(&newest), ["c", "a"]);
}

/// More than one statement writes; senders and recipients are named by an id and by the beginning of one.
#[tokio::test]
async fn the_answers_to_a_large_group_are_what_is_stored() {
    let mut world = World::new().await;
    let one = world.register(world.session, "one").await;
    let short = IdPrefix::parse(&one.short()).expect("prefix");
    let message = |n: usize| {
        let new = world.message(world.director, one, &n.to_string(), None);
        if n.is_multiple_of(2) { new } else { NewMessage { to: short.clone(), ..new } }
    };
    let all: Vec<NewMessage> = (0..75).map(message).collect();
    let answers = world.broker.send_all(&all, at(2)).await.expect("store");
    let answered: Vec<Task> = answers.into_iter().map(|answer| answer.expect("sent").task).collect();
    let mut stored = world.broker.timeline(world.session, Of::Session, 100).await.expect("timeline");
    stored.reverse();
    assert_eq!(answered, stored);
    let numbers: Vec<i64> = stored.iter().filter_map(|task| task.number).collect();
    assert_eq!(numbers, (1..=75).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_timeline_shows_a_session_a_mailbox_or_a_sender() {
    let mut world = World::new().await;
    let (one, two) = (world.register(world.session, "one").await, world.register(world.session, "two").await);
    for (from, to, text) in [(world.director, one, "To 100%"), (one, two, "to_two"), (two, one, "back")] {
        world.broker.send(&world.message(from, to, text, None), at(2)).await.expect("send");
    }
    let all = NewBroadcast { session: world.session, from: two.into(), text: "all".to_owned(), id: None };
    world.broker.broadcast(&all, at(3)).await.expect("broadcast");
    let mut told = async |of: Of, limit: u32| -> Vec<Task> {
        world.broker.timeline(world.session, of, limit).await.expect("timeline")
    };
    let session = told(Of::Session, 10).await;
    let kinds = |kind: TaskKind| session.iter().filter(|task| task.kind == kind).count();
    assert_eq!((kinds(TaskKind::Unicast), kinds(TaskKind::BroadcastSummary)), (5, 1));
    assert_eq!(texts(&told(Of::Inbox(one), 10).await), ["all", "back", "To 100%"]);
    assert_eq!(texts(&told(Of::Inbox(one), 1).await), ["all"]);
    assert_eq!(texts(&told(Of::Sent(one), 10).await), ["to_two"]);
    let mut found = async |text: &str| -> Vec<(String, String)> {
        let found = world.broker.find_text(text, 10).await.expect("find");
        assert!(found.iter().all(|found| found.session == world.session));
        found.into_iter().map(|found| (found.from_name, found.task.text)).collect()
    };
    let pair = |from: &str, text: &str| (from.to_owned(), text.to_owned());
    assert_eq!(found("TO").await, [pair("one", "to_two"), pair("Director", "To 100%")]);
    assert_eq!(found("0%").await, [pair("Director", "To 100%")]);
    assert_eq!(found("o_t").await, [pair("one", "to_two")]);
    // Who has left is shown if it has messages.
    let silent = world.register(world.session, "silent").await;
    for agent in [one, silent] {
        world.broker.deregister(world.session, &agent.into(), at(4)).await.expect("leave");
    }
    let names: Vec<String> = world
        .broker
        .everybody(world.session)
        .await
        .expect("everybody")
        .into_iter()
        .map(|agent| agent.name)
        .collect();
    assert_eq!(names, ["Director", "Administrator", "one", "two"]);
}

#[tokio::test]
async fn a_retry_names_sender_and_recipient_as_it_likes() {
    let mut world = World::new().await;
    let one = world.register(world.session, "one").await;
    let two = world.register(world.session, "two").await;
    let mut first = world.message(world.director, one, "a", None);
    first.id = Some(TaskId::random());
    world.broker.send(&first, at(2)).await.expect("send");
    let agents = world.broker.agents(world.session).await.expect("agents");
    let number = |id: AgentId| -> IdPrefix {
        let agent = agents.iter().find(|agent| agent.id == id).expect("there");
        IdPrefix::parse(&agent.number.expect("number").to_string()).expect("number")
    };
    let by_number = NewMessage { to: number(one), from: number(world.director), ..first.clone() };
    world.broker.send(&by_number, at(3)).await.expect("the same message");
    let other = NewMessage { to: number(two), ..first };
    let refused = world.broker.send(&other, at(3)).await;
    assert!(matches!(refused, Err(BrokerError::IdTaken(_))), "{refused:?}");
}

/// Who has left gets nothing more, and waits for nothing.
#[tokio::test]
async fn the_wait_of_an_agent_that_has_left_is_over_at_once() {
    let mut world = World::new().await;
    let one = world.register(world.session, "one").await;
    world.broker.deregister(world.session, &one.into(), at(2)).await.expect("leave");
    let query = PollQuery { agent: one, scope: MailboxScope::All, since: None, after: None, page_size: 10 };
    let waiting = world.broker.wait(&query, Duration::from_secs(600));
    let page = tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("at once").expect("page");
    assert_eq!(page.tasks, []);
}

#[tokio::test]
async fn a_page_says_whether_there_is_more_and_an_agent_is_found_in_any_session() {
    let mut world = World::new().await;
    let one = world.register(world.session, "one").await;
    for text in ["a", "b"] {
        world.broker.send(&world.message(world.director, one, text, None), at(2)).await.expect("send");
    }
    for (page_size, more) in [(1, true), (2, false), (3, false)] {
        let query = PollQuery { agent: one, scope: MailboxScope::All, since: None, after: None, page_size };
        assert_eq!(world.broker.poll(&query).await.expect("poll").more, more, "{page_size}");
    }
    let found = world.broker.agent_of_any(one).await.expect("look").map(|agent| agent.name);
    assert_eq!(found.as_deref(), Some("one"));
    assert_eq!(world.broker.agent_of_any(AgentId::random()).await.expect("look"), None);
}
