//! One story with every operation of the broker, told to any store.

use std::time::Duration;

use caliban_store::broker::{
    AgentKind, AgentStatus, Broker, BrokerError, CreateSession, Delivery, DeliveryState, Freshness, IdPrefix,
    MailboxScope, NewAgent, NewBroadcast, NewMessage, PaneIdentity, Placement, PollQuery, Speaker, Task,
    TaskId, TaskState,
};
use caliban_store::doorbell::Bells;
use caliban_store::{HostId, Stamp, StoreUrl};

#[tokio::test]
async fn the_story_on_sqlite() {
    let dir = tempfile::tempdir().expect("temp dir");
    story(&StoreUrl::sqlite(dir.path().join("deep/er/store.db"))).await;
}

fn at(seconds: i64) -> Stamp {
    Stamp::from_micros(seconds * 1_000_000)
}

fn placement() -> Placement {
    Placement {
        host: HostId::of("here"),
        director: None,
        tmux_session: "main".to_owned(),
        tmux_window: "@1".to_owned(),
        tmux_pane: Some("%2".to_owned()),
        coding_agent: "claude".to_owned(),
        created_at: at(1),
        identity: Some(PaneIdentity {
            socket: "/tmp/sock".to_owned(),
            server_pid: 10,
            pane_pid: 11,
            pane_started: "boot/12".to_owned(),
        }),
    }
}

/// Everything the broker promises about its store, in one go.
async fn story(url: &StoreUrl) {
    let mut broker = Broker::open(url, Speaker::Anybody).await.expect("open");

    // A session comes with its Director and its Administrator.
    let new = CreateSession { label: Some("project".to_owned()), placement: Some(placement()) };
    let made = broker.create_session(&new, at(1)).await.expect("create");
    let session = made.session.id;
    let director: IdPrefix = made.director.id.into();
    assert_eq!(made.director.placement, Some(placement()));
    let agents = broker.agents(session).await.expect("agents");
    let kinds: Vec<_> = agents.iter().map(|agent| (agent.name.as_str(), agent.kind, agent.status)).collect();
    assert_eq!(
        kinds,
        [
            ("Director", AgentKind::User, AgentStatus::Active),
            ("Administrator", AgentKind::Administrator, AgentStatus::Active),
        ]
    );
    assert_eq!(agents[0], made.director);

    // Two more agents.
    let register = async |broker: &mut Broker, name: &str| {
        let new = NewAgent { name: name.to_owned(), description: "d".to_owned(), skills: Vec::new() };
        broker.register(&session.into(), &new, at(2)).await.expect("register")
    };
    let alice = register(&mut broker, "alice").await;
    let bob = register(&mut broker, "bob").await;

    // Messages: the clock goes backwards, the order does not.
    let send = async |broker: &mut Broker, text: &str, id: Option<TaskId>, now: Stamp| {
        let new = NewMessage { session, from: alice.id.into(), to: bob.id.into(), text: text.to_owned(), id };
        broker.send(&new, now).await
    };
    let first = send(&mut broker, "one", None, at(1_000)).await.expect("send");
    let again = send(&mut broker, "one", Some(first.task.id), at(1_001)).await.expect("repeat");
    assert_eq!((again.freshness, &again.task), (Freshness::Repeated, &first.task));
    let taken = send(&mut broker, "other", Some(first.task.id), at(1_001)).await;
    assert!(matches!(taken, Err(BrokerError::IdTaken(id)) if id == first.task.id));
    send(&mut broker, "two", None, at(10)).await.expect("send");
    send(&mut broker, "three", None, at(500)).await.expect("send");
    let query = |scope, after| PollQuery { agent: bob.id, scope, since: None, after, page_size: 10 };
    let newest = broker.poll(&query(MailboxScope::Open, None)).await.expect("poll");
    assert_eq!(texts(&newest.tasks), ["three", "two", "one"]);
    let onward = broker.poll(&query(MailboxScope::Open, Some(first.task.seq))).await.expect("poll");
    assert_eq!(texts(&onward.tasks), ["two", "three"]);
    let since = PollQuery { since: Some(at(500)), ..query(MailboxScope::Open, None) };
    assert_eq!(texts(&broker.poll(&since).await.expect("poll").tasks), ["three", "one"]);
    let page =
        broker.poll(&PollQuery { page_size: 2, ..query(MailboxScope::Open, None) }).await.expect("poll");
    assert_eq!((texts(&page.tasks), page.more), (vec!["three", "two"], true));

    // The end of a message is guarded.
    let one: IdPrefix = first.task.id.into();
    let wrong = broker.ack(session, &alice.id.into(), &one, at(3)).await;
    assert!(matches!(wrong, Err(BrokerError::NotTheRecipient)));
    let done = broker.ack(session, &bob.id.into(), &one, at(3)).await.expect("ack");
    assert_eq!((done.state, done.status_at), (TaskState::Completed, at(3)));
    let late = broker.cancel(session, &alice.id.into(), &one, at(4)).await;
    assert!(matches!(late, Err(BrokerError::CannotCancel(TaskState::Completed))));
    assert_eq!(
        texts(&broker.poll(&query(MailboxScope::Open, None)).await.expect("poll").tasks),
        ["three", "two"]
    );
    assert_eq!(
        texts(&broker.poll(&query(MailboxScope::All, None)).await.expect("poll").tasks),
        ["three", "two", "one"]
    );

    // A broadcast reaches everybody else, but not the Administrator.
    let new = NewBroadcast { session, from: alice.id.into(), text: "all".to_owned(), id: None };
    let broadcast = broker.broadcast(&new, at(5)).await.expect("broadcast");
    let names: Vec<_> = broadcast.recipients.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["Director", "bob"]);
    let retry = NewBroadcast { id: Some(broadcast.summary.id), ..new };
    let repeated = broker.broadcast(&retry, at(6)).await.expect("repeat");
    assert_eq!((repeated.freshness, repeated.summary), (Freshness::Repeated, broadcast.summary));
    assert_eq!(repeated.recipients, broadcast.recipients);

    // Delivery: claimed once, never after its end.
    let waiting = broker.undelivered(made.director.id).await.expect("undelivered");
    assert_eq!(texts(&waiting), ["all"]);
    let held = Delivery { state: DeliveryState::Held, note: Some("busy".to_owned()) };
    broker.put_off(&[waiting[0].id], &held).await.expect("hold");
    assert_eq!(broker.task(session, &waiting[0].id.into()).await.expect("task").delivery, held);
    assert!(broker.claim_delivery(waiting[0].id).await.expect("claim"));
    assert!(!broker.claim_delivery(waiting[0].id).await.expect("claim"));
    let typed = Delivery { state: DeliveryState::Confirmed, note: None };
    broker.record_delivery(waiting[0].id, &typed).await.expect("record");
    assert_eq!(broker.task(session, &waiting[0].id.into()).await.expect("task").delivery, typed);
    assert!(!broker.claim_delivery(first.task.id).await.expect("claim"), "it is acknowledged");

    // A waiter is woken by another connection's commit.
    let carol = register(&mut broker, "carol").await;
    let mut other = Broker::open(url, Speaker::Anybody).await.expect("open again");
    let mail =
        PollQuery { agent: carol.id, scope: MailboxScope::Open, since: None, after: None, page_size: 10 };
    let waiter = tokio::spawn(async move { other.wait(&mail, Duration::from_secs(3600)).await });
    let new =
        NewMessage { session, from: alice.id.into(), to: carol.id.into(), text: "wake".to_owned(), id: None };
    broker.send(&new, at(7)).await.expect("send");
    let woken = waiter.await.expect("join").expect("wait");
    assert_eq!(texts(&woken.tasks), ["wake"]);

    // The built-in two stay, the others may leave.
    assert!(matches!(broker.deregister(session, &director, at(8)).await, Err(BrokerError::RootDirector)));
    let administrator: IdPrefix = made.administrator.into();
    assert!(matches!(
        broker.deregister(session, &administrator, at(8)).await,
        Err(BrokerError::Administrator)
    ));
    assert_eq!(broker.deregister(session, &carol.id.into(), at(8)).await.expect("leave"), carol.id);
    assert!(matches!(
        broker.deregister(session, &carol.id.into(), at(8)).await,
        Err(BrokerError::AlreadyDeregistered(_))
    ));

    // Deleting is soft and can be repeated; nobody comes in afterwards.
    assert_eq!(broker.delete_session(session, at(9)).await.expect("delete").deregistered, 4);
    assert_eq!(broker.delete_session(session, at(10)).await.expect("delete").deregistered, 0);
    assert_eq!(broker.session(&session.into()).await.expect("session").deleted_at, Some(at(9)));
    assert_eq!(broker.sessions().await.expect("sessions"), []);
    assert_eq!(broker.member(session, &director).await.expect("member").placement, None);
    let late = NewAgent { name: "late".to_owned(), description: String::new(), skills: Vec::new() };
    let refused = broker.register(&session.into(), &late, at(11)).await;
    assert!(matches!(refused, Err(BrokerError::SessionDeleted(id)) if id == session));
    assert_eq!(texts(&broker.poll(&query(MailboxScope::All, None)).await.expect("poll").tasks).len(), 4);
    broker.close().await;
}

/// A waiter looks by itself once a second; that must not be what wakes it.
#[tokio::test]
async fn whoever_gets_a_message_or_is_deregistered_is_rung_for() {
    let dir = tempfile::tempdir().expect("temp dir");
    let url = StoreUrl::sqlite(dir.path().join("store.db"));
    let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
    let new = CreateSession { label: None, placement: None };
    let made = broker.create_session(&new, at(1)).await.expect("create");
    let (session, director) = (made.session.id, made.director.id);
    let new = NewAgent { name: "a".to_owned(), description: String::new(), skills: Vec::new() };
    let agent = broker.register(&session.into(), &new, at(1)).await.expect("register").id;
    let mut bell = Bells::at(dir.path().join("store.db.bells")).listen(&agent.to_string()).expect("bell");
    let mut rung = async |what: &str| {
        let heard = tokio::time::timeout(Duration::from_secs(60), bell.rung()).await;
        assert!(matches!(heard, Ok(Ok(()))), "{what} did not ring");
    };
    let message =
        NewMessage { session, from: director.into(), to: agent.into(), text: "x".to_owned(), id: None };
    broker.send(&message, at(2)).await.expect("send");
    rung("send").await;
    let all = NewBroadcast { session, from: director.into(), text: "x".to_owned(), id: None };
    broker.broadcast(&all, at(2)).await.expect("broadcast");
    rung("broadcast").await;
    broker.delete_session(session, at(3)).await.expect("delete");
    rung("delete").await;
    broker.close().await;
}

fn texts(tasks: &[Task]) -> Vec<&str> {
    tasks.iter().map(|task| task.text.as_str()).collect()
}

/// A server's handlers move between threads: every operation's future must be able to.
#[tokio::test]
async fn every_operation_can_be_sent_to_another_thread() {
    fn sendable<T: Send>(future: T) -> T {
        future
    }
    let dir = tempfile::tempdir().expect("temp dir");
    let url = StoreUrl::sqlite(dir.path().join("store.db"));
    let mut broker = sendable(Broker::open(&url, Speaker::Anybody)).await.expect("open");
    let new = CreateSession { label: None, placement: None };
    let made = sendable(broker.create_session(&new, at(1))).await.expect("create");
    let (session, director) = (made.session.id, IdPrefix::from(made.director.id));
    let agent = NewAgent { name: "a".to_owned(), description: String::new(), skills: Vec::new() };
    sendable(broker.register(&session.into(), &agent, at(1))).await.expect("register");
    let message =
        NewMessage { session, from: director.clone(), to: director.clone(), text: "x".to_owned(), id: None };
    let sent = sendable(broker.send(&message, at(1))).await.expect("send");
    let all = NewBroadcast { session, from: director.clone(), text: "x".to_owned(), id: None };
    sendable(broker.broadcast(&all, at(1))).await.expect("broadcast");
    sendable(broker.claim_delivery(sent.task.id)).await.expect("claim");
    sendable(broker.ack(session, &director, &sent.task.id.into(), at(1))).await.expect("ack");
    sendable(broker.delete_session(session, at(1))).await.expect("delete");
    sendable(broker.close()).await;
}
