//! The broker's rules one by one: what is refused with which error, and what exactly is stored.

use caliban_store::broker::{
    AgentId, AgentKind, Broker, BrokerError, CreateSession, Freshness, IdPrefix, MailboxScope, NewAgent,
    NewBroadcast, NewMessage, PollQuery, SessionId, Speaker, TaskId, TaskKind, TaskState,
};
use caliban_store::{Stamp, StoreError, StoreUrl};

pub(crate) fn at(seconds: i64) -> Stamp {
    Stamp::from_micros(seconds * 1_000_000)
}

/// A store with a session.
pub(crate) struct World {
    _dir: tempfile::TempDir,
    pub(crate) broker: Broker,
    pub(crate) session: SessionId,
    pub(crate) director: AgentId,
}

impl World {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let url = StoreUrl::sqlite(dir.path().join("store.db"));
        let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
        let made = broker
            .create_session(&CreateSession { label: None, placement: None }, at(1))
            .await
            .expect("create");
        Self { _dir: dir, broker, session: made.session.id, director: made.director.id }
    }

    pub(crate) async fn register(&mut self, session: SessionId, name: &str) -> AgentId {
        let new = NewAgent { name: name.to_owned(), description: "d".to_owned(), skills: Vec::new() };
        self.broker.register(&session.into(), &new, at(2)).await.expect("register").id
    }

    pub(crate) fn message(
        &self,
        from: AgentId,
        to: impl Into<IdPrefix>,
        text: &str,
        id: Option<TaskId>,
    ) -> NewMessage {
        let (session, text) = (self.session, text.to_owned());
        NewMessage { session, from: from.into(), to: to.into(), text, id }
    }

    /// Sends; the answer is a new or repeated message, or the error's first word.
    async fn send(&mut self, new: &NewMessage) -> String {
        match self.broker.send(new, at(3)).await {
            Ok(sent) => format!("{:?}", sent.freshness),
            Err(error) => kind(&error),
        }
    }
}

/// The name of an error.
fn kind(error: &BrokerError) -> String {
    let shown = format!("{error:?}");
    shown.split(['(', ' ']).next().unwrap_or_default().to_owned()
}

fn refused<T: std::fmt::Debug>(outcome: Result<T, BrokerError>) -> String {
    kind(&outcome.expect_err("a refusal"))
}

#[tokio::test]
async fn m06_who_can_send_to_whom() {
    let mut world = World::new().await;
    let (alice, left) =
        (world.register(world.session, "alice").await, world.register(world.session, "left").await);
    let new = CreateSession { label: None, placement: None };
    let other = world.broker.create_session(&new, at(1)).await.expect("create").session.id;
    let away = world.register(other, "away").await;
    world.broker.deregister(world.session, &left.into(), at(2)).await.expect("deregister");
    let director = world.director;
    for (from, to, wanted) in [
        (director, alice, "New"),
        (director, director, "New"),
        (director, left, "DestinationNotFound"),
        (director, AgentId::random(), "DestinationNotFound"),
        (director, away, "DestinationNotInSession"),
        (left, alice, "SenderNotActive"),
        (away, alice, "SenderNotActive"),
    ] {
        let new = world.message(from, to, "x", None);
        assert_eq!(world.send(&new).await, wanted);
    }
    let broker = &mut world.broker;
    assert_eq!(broker.agent(world.session, &alice.into()).await.expect("agent").name, "alice");
    assert_eq!(refused(broker.agent(world.session, &left.into()).await), "AgentNotFound");
    assert_eq!(refused(broker.agent(other, &alice.into()).await), "AgentNotFound");
    assert_eq!(refused(broker.member(other, &alice.into()).await), "NotAMember");
    assert_eq!(refused(broker.session(&SessionId::random().into()).await), "SessionNotFound");
    let deleted = broker.delete_session(SessionId::random(), at(3)).await.expect("delete");
    assert_eq!(deleted.deregistered, 0, "there is no such session");
    let mut counts = Vec::new();
    for summary in broker.sessions().await.expect("sessions") {
        counts.push((
            summary.session.id,
            summary.agent_count,
            broker.active_agents(summary.session.id).await.expect("n"),
        ));
    }
    assert_eq!(counts, [(world.session, 3, 3), (other, 3, 3)]);
}

#[tokio::test]
async fn r09_an_id_is_one_message_whatever_else_is_different() {
    let mut world = World::new().await;
    let (alice, bob) =
        (world.register(world.session, "alice").await, world.register(world.session, "bob").await);
    let id = TaskId::random();
    let first = world.message(alice, bob, "x", Some(id));
    assert_eq!(world.send(&first).await, "New");
    assert_eq!(world.send(&first).await, "Repeated");
    let director = world.director;
    for new in [
        world.message(director, bob, "x", Some(id)),
        world.message(alice, director, "x", Some(id)),
        world.message(alice, bob, "y", Some(id)),
    ] {
        assert_eq!(world.send(&new).await, "IdTaken");
    }
    // The ids of a broadcast and of its copies are taken, too; so is a message's for a broadcast.
    let all = |text: &str, from: AgentId, id: TaskId| NewBroadcast {
        session: world.session,
        from: from.into(),
        text: text.to_owned(),
        id: Some(id),
    };
    let summary = TaskId::random();
    let (sent, wrong) = (
        all("x", alice, summary),
        [all("y", alice, summary), all("x", director, summary), all("x", alice, id)],
    );
    let done = world.broker.broadcast(&sent, at(4)).await.expect("broadcast");
    assert_eq!((done.freshness, done.recipients.len()), (Freshness::New, 2));
    for new in &wrong {
        assert_eq!(refused(world.broker.broadcast(new, at(4)).await), "IdTaken");
    }
    let query = PollQuery { agent: bob, scope: MailboxScope::Open, since: None, after: None, page_size: 1 };
    let copy = world.broker.poll(&query).await.expect("poll").tasks.remove(0);
    for taken in [summary, copy.id] {
        let new = world.message(alice, bob, "x", Some(taken));
        assert_eq!(world.send(&new).await, "IdTaken");
    }
    // A retry is a retry although its recipient has left, and only in its own session.
    world.broker.deregister(world.session, &bob.into(), at(5)).await.expect("deregister");
    assert_eq!(world.send(&first).await, "Repeated");
    let new = CreateSession { label: None, placement: None };
    let other = world.broker.create_session(&new, at(1)).await.expect("create").session.id;
    assert_eq!(world.send(&NewMessage { session: other, ..first }).await, "SenderNotActive");
}

#[tokio::test]
async fn m09_a_broadcast_is_a_summary_and_copies_that_name_it() {
    let mut world = World::new().await;
    let alice = world.register(world.session, "alice").await;
    let new = NewBroadcast { session: world.session, from: alice.into(), text: "x".to_owned(), id: None };
    let done = world.broker.broadcast(&new, at(4)).await.expect("broadcast");
    let summary = world.broker.task(world.session, &done.summary.id.into()).await.expect("task");
    assert_eq!(summary, done.summary);
    assert_eq!(
        (
            summary.context,
            summary.from,
            summary.to,
            summary.kind,
            summary.state,
            summary.origin,
            summary.text.as_str()
        ),
        (
            alice,
            alice,
            None,
            TaskKind::BroadcastSummary,
            TaskState::Completed,
            Some(summary.id),
            "Broadcast sent to 1 recipients"
        )
    );
    let query =
        PollQuery { agent: world.director, scope: MailboxScope::All, since: None, after: None, page_size: 9 };
    let page = world.broker.poll(&query).await.expect("poll");
    let [copy] = &page.tasks[..] else { panic!("{page:?}") };
    assert_eq!(
        (copy.to, copy.kind, copy.state, copy.origin, copy.text.as_str(), page.more),
        (Some(world.director), TaskKind::Unicast, TaskState::InputRequired, Some(summary.id), "x", false)
    );
    // A summary is in nobody's mailbox and has no end.
    let own = PollQuery { agent: alice, ..query };
    assert_eq!(world.broker.poll(&own).await.expect("poll").tasks, []);
    let (by, task): (IdPrefix, IdPrefix) = (alice.into(), summary.id.into());
    assert_eq!(refused(world.broker.cancel(world.session, &by, &task, at(5)).await), "CannotCancel");
}

#[tokio::test]
async fn m06_a_message_has_one_end_and_its_id_one_meaning() {
    let mut world = World::new().await;
    let (session, alice) = (world.session, world.register(world.session, "alice").await);
    let id = |last: &str| TaskId::parse(&format!("aaaa0000-0000-4000-8000-00000000000{last}")).expect("id");
    for last in ["1", "2"] {
        let new = world.message(alice, world.director, "x", Some(id(last)));
        assert_eq!(world.send(&new).await, "New");
    }
    let prefix = |text: &str| IdPrefix::parse(text).expect("prefix");
    let broker = &mut world.broker;
    let both = vec![id("1").to_string(), id("2").to_string()];
    let outcome = broker.task(session, &prefix("AAAA")).await;
    assert!(
        matches!(&outcome, Err(BrokerError::Ambiguous { given, candidates }) if given == "AAAA" && *candidates == both),
        "{outcome:?}"
    );
    assert_eq!(refused(broker.task(session, &prefix("bbbb")).await), "TaskNotFound");
    assert_eq!(refused(broker.task(SessionId::random(), &id("1").into()).await), "TaskNotFound");
    let (sender, recipient): (IdPrefix, IdPrefix) = (alice.into(), world.director.into());
    assert_eq!(refused(broker.cancel(session, &recipient, &id("1").into(), at(4)).await), "NotTheSender");
    let ended = broker.cancel(session, &sender, &id("1").into(), at(4)).await.expect("cancel");
    assert_eq!((ended.state, ended.status_at), (TaskState::Canceled, at(4)));
    assert_eq!(refused(broker.ack(session, &recipient, &id("1").into(), at(5)).await), "CannotAck");
    assert_eq!(refused(broker.ack(session, &prefix("bbbb"), &id("2").into(), at(5)).await), "NotAMember");
    assert_eq!(refused(broker.ack(session, &recipient, &prefix("bbbb"), at(5)).await), "TaskNotFound");
    assert_eq!(
        broker.ack(session, &recipient, &id("2").into(), at(5)).await.expect("ack").state,
        TaskState::Completed
    );
}

#[tokio::test]
async fn m04_a_session_begins_with_two_agents_of_its_own() {
    let mut world = World::new().await;
    let agents = world.broker.agents(world.session).await.expect("agents");
    let [director, administrator] = &agents[..] else { panic!("{agents:?}") };
    assert_eq!(
        (director.id, director.name.as_str(), director.description.as_str(), director.kind),
        (world.director, "Director", "Root Director of this session", AgentKind::User)
    );
    assert_eq!(
        director.card,
        r#"{"name":"Director","description":"Root Director of this session","skills":[]}"#
    );
    assert_ne!(administrator.id, director.id);
    assert_eq!(
        (administrator.name.as_str(), administrator.description.as_str(), administrator.kind),
        ("Administrator", "Built-in Administrator of this session", AgentKind::Administrator)
    );
    assert_eq!((&administrator.placement, &administrator.owner), (&None, &None));
    assert!(administrator.card.contains(r#""kind":"builtin-administrator""#), "{}", administrator.card);
    for name in ["Administrator", " administrator "] {
        let new = NewAgent { name: name.to_owned(), description: String::new(), skills: Vec::new() };
        assert_eq!(refused(world.broker.register(&world.session.into(), &new, at(2)).await), "ReservedName");
    }
    assert_eq!(administrator.id.short(), administrator.id.to_string()[..8]);
}

/// What a dashboard or a waiting agent holds open for hours.
#[tokio::test]
async fn r25_nothing_is_acknowledged_in_a_store_that_was_deleted_cut_or_replaced() {
    for loss in ["deleted", "cut", "replaced"] {
        let mut world = World::new().await;
        let file = world._dir.path().join("store.db");
        let to = world.register(world.session, "one").await;
        let new = world.message(world.director, to, "hello", None);
        let url = StoreUrl::sqlite(&file);
        // Closed once, so that all is in the file itself and not in its log.
        world.broker.close().await;
        world.broker = Broker::open(&url, Speaker::Anybody).await.expect("again");
        match loss {
            "deleted" => std::fs::remove_file(&file).expect("delete"),
            "cut" => {
                std::fs::File::options().write(true).open(&file).expect("open").set_len(0).expect("cut");
            }
            _ => {
                std::fs::write(file.with_extension("new"), "not a database").expect("write");
                std::fs::rename(file.with_extension("new"), &file).expect("replace");
            }
        }
        let refused = world.broker.send(&new, at(3)).await;
        assert!(matches!(&refused, Err(BrokerError::Store(StoreError::Replaced(_)))), "{loss}: {refused:?}");
        let query =
            PollQuery { agent: to, scope: MailboxScope::Open, since: None, after: None, page_size: 9 };
        assert!(world.broker.poll(&query).await.is_err(), "{loss}: what is read there is nobody's mail");
        // As a command that starts now makes it: who went on waiting finds itself in the new one.
        for left in ["db", "db-wal", "db-shm"] {
            let _absent = std::fs::remove_file(file.with_extension(left));
        }
        let mut fresh = Broker::open(&url, Speaker::Anybody).await.expect("a new one");
        let made =
            fresh.create_session(&CreateSession { label: None, placement: None }, at(4)).await.expect("made");
        let found = world.broker.session(&made.session.id.into()).await.expect("seen");
        assert_eq!(found.id, made.session.id, "{loss}");
    }
}
