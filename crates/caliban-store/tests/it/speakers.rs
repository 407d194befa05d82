//! a11 in the store: as whom a process may act, and with what limits.

use std::path::Path;
use std::time::Duration;

use caliban_store::broker::{
    Agent, AgentId, BURST, Broker, BrokerError, Capability, CreateSession, EVERY, Enclosure, HOPS,
    IDENTITIES, IdPrefix, NewAgent, NewBroadcast, NewMember, NewMessage, Owner, Placement, SessionId,
    Speaker, Task,
};
use caliban_store::{HostId, Stamp, StoreUrl};

fn at(seconds: i64) -> Stamp {
    Stamp::from_micros(1_800_000_000_000_000 + seconds * 1_000_000)
}

fn owner(name: &str) -> Owner {
    Owner::of_directory(&Path::new("/agents").join(name))
}

fn worker(name: &str) -> Speaker {
    Speaker::Worker { owner: owner(name), capability: Capability::random() }
}

/// A store with a session; a broker for each speaker.
struct World {
    _dir: tempfile::TempDir,
    url: StoreUrl,
    session: SessionId,
    director: AgentId,
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let url = StoreUrl::sqlite(dir.path().join("store.db"));
        let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
        let new = CreateSession { label: None, placement: None };
        let made = broker.create_session(&new, at(0)).await.expect("create");
        broker.close().await;
        Self { _dir: dir, url, session: made.session.id, director: made.director.id }
    }

    async fn open(&self, speaker: &Speaker) -> Broker {
        Broker::open(&self.url, speaker.clone()).await.expect("open")
    }

    async fn register(&self, broker: &mut Broker, name: &str) -> Agent {
        let new = NewAgent { name: name.to_owned(), description: String::new(), skills: Vec::new() };
        broker.register(&self.session.into(), &new, at(0)).await.expect("register")
    }

    async fn send(
        &self,
        broker: &mut Broker,
        from: AgentId,
        to: AgentId,
        now: Stamp,
    ) -> Result<Task, BrokerError> {
        let new = NewMessage {
            session: self.session,
            from: from.into(),
            to: to.into(),
            text: "x".to_owned(),
            id: None,
        };
        broker.send(&new, now).await.map(|sent| sent.task)
    }
}

#[tokio::test]
async fn a11_a_sealed_identity_wants_the_capability_of_its_worker() {
    let world = World::new().await;
    let first = worker("first");
    let mut holder = world.open(&first).await;
    let me = world.register(&mut holder, "me").await;
    assert_eq!((&me.owner, me.seal.is_some()), (&Some(owner("first")), true));
    let sent = world.send(&mut holder, me.id, world.director, at(1)).await.expect("send");

    // Another run's worker of the same agent, another agent's worker, and processes of another agent.
    let strangers =
        [worker("first"), worker("other"), Speaker::Only(vec![owner("other")]), Speaker::Only(vec![])];
    for stranger in &strangers {
        let mut broker = world.open(stranger).await;
        let refused = |what: &str, outcome: Result<(), BrokerError>| {
            let is = matches!(&outcome, Err(BrokerError::NotYours { agent: Some(id), .. }) if *id == me.id);
            assert!(is, "{what} as {stranger:?}: {outcome:?}");
        };
        refused("send", world.send(&mut broker, me.id, world.director, at(1)).await.map(drop));
        let all = NewBroadcast { session: world.session, from: me.id.into(), text: "x".to_owned(), id: None };
        refused("broadcast", broker.broadcast(&all, at(1)).await.map(drop));
        let (task, by): (IdPrefix, IdPrefix) = (sent.id.into(), me.id.into());
        refused("cancel", broker.cancel(world.session, &by, &task, at(1)).await.map(drop));
        refused("ack", broker.ack(world.session, &by, &task, at(1)).await.map(drop));
        refused("deregister", broker.deregister(world.session, &by, at(1)).await.map(drop));
        refused("read", broker.check_reader(&me).await);
        // A retry does not get round it either.
        let again = NewMessage {
            session: world.session,
            from: me.id.into(),
            to: world.director.into(),
            text: "x".to_owned(),
            id: Some(sent.id),
        };
        refused("retry", broker.send(&again, at(1)).await.map(drop));
        let deleted = broker.delete_session(world.session, at(1)).await;
        assert!(matches!(deleted, Err(BrokerError::NotYours { .. })), "{deleted:?}");
        broker.close().await;
    }

    // The processes of the agent itself, also when another agent's are between, and people.
    for friend in [
        Speaker::Only(vec![owner("first")]),
        Speaker::Only(vec![owner("inner"), owner("first")]),
        Speaker::Anybody,
    ] {
        let mut broker = world.open(&friend).await;
        world.send(&mut broker, me.id, world.director, at(1)).await.expect("send");
        broker.close().await;
    }

    // The next run's worker takes over; then the last one's word counts no more. Nobody takes what is another's.
    let (next, other) = (worker("first"), worker("other"));
    let (mut new, mut thief) = (world.open(&next).await, world.open(&other).await);
    thief.seal(&[me.id]).await.expect("seal");
    assert!(world.send(&mut thief, me.id, world.director, at(2)).await.is_err());
    new.seal(&[me.id]).await.expect("seal");
    world.send(&mut new, me.id, world.director, at(2)).await.expect("send");
    assert!(world.send(&mut holder, me.id, world.director, at(2)).await.is_err());
    for broker in [holder, new, thief] {
        broker.close().await;
    }
}

#[tokio::test]
async fn a11_the_limits_are_the_agents_and_not_the_identitys() {
    let world = World::new().await;
    let mut cli = world.open(&Speaker::Only(vec![owner("a")])).await;
    // Each registration takes one of the allowance.
    let (one, two) = (world.register(&mut cli, "one").await, world.register(&mut cli, "two").await);
    let mut sent = 0;
    let wait = loop {
        let from = if sent % 2 == 0 { one.id } else { two.id };
        match world.send(&mut cli, from, world.director, at(0)).await {
            Ok(_) => sent += 1,
            Err(BrokerError::TooFast(wait)) => break wait,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!((sent, wait), (BURST - 2, EVERY));
    // A broadcast is one; a person is not counted; what was refused took nothing.
    let all = NewBroadcast { session: world.session, from: one.id.into(), text: "x".to_owned(), id: None };
    assert!(
        matches!(cli.broadcast(&all, at(2)).await, Err(BrokerError::TooFast(left)) if left == Duration::from_secs(1))
    );
    let mut person = world.open(&Speaker::Anybody).await;
    world.send(&mut person, one.id, world.director, at(2)).await.expect("a person");
    let known = cli.broadcast(&all, at(3)).await.expect("broadcast").summary.id;
    // A retry of what is stored is no new message.
    let again = NewBroadcast { id: Some(known), ..all };
    cli.broadcast(&again, at(3)).await.expect("retry");
    assert!(matches!(
        world.send(&mut cli, one.id, world.director, at(3)).await,
        Err(BrokerError::TooFast(_))
    ));
    for broker in [cli, person] {
        broker.close().await;
    }
}

#[tokio::test]
async fn a11_hops_count_answers_and_a_person_begins_anew() {
    let world = World::new().await;
    let (mut a, mut b) = (world.open(&worker("a")).await, world.open(&worker("b")).await);
    let (alice, bob) = (world.register(&mut a, "alice").await, world.register(&mut b, "bob").await);
    let later = |n: u32| at(100 + i64::from(n) * 10);
    let by = |id: AgentId| IdPrefix::from(id);
    // Each hears and then answers; a broadcast answers too.
    let mut last = world.send(&mut a, alice.id, bob.id, later(0)).await.expect("first");
    for n in 1..=HOPS {
        let (broker, from, to) =
            if n % 2 == 1 { (&mut b, bob.id, alice.id) } else { (&mut a, alice.id, bob.id) };
        broker.ack(world.session, &by(from), &last.id.into(), later(n)).await.expect("ack");
        last = world.send(broker, from, to, later(n)).await.expect("answer");
        assert_eq!(last.hops, n);
        broker.answered().await.expect("turn over");
    }
    // The recipient of the last one cannot answer, heard or not; in its next turn it speaks again.
    let refused = |outcome: Result<Task, BrokerError>| matches!(outcome, Err(BrokerError::TooManyHops));
    assert!(refused(world.send(&mut b, bob.id, alice.id, later(90)).await), "it lies in the mailbox");
    b.ack(world.session, &by(bob.id), &last.id.into(), later(90)).await.expect("ack");
    assert!(refused(world.send(&mut b, bob.id, world.director, later(90)).await), "it was heard");
    let all = NewBroadcast { session: world.session, from: bob.id.into(), text: "x".to_owned(), id: None };
    assert!(matches!(b.broadcast(&all, later(90)).await, Err(BrokerError::TooManyHops)));
    let mut cli = world.open(&Speaker::Only(vec![owner("b")])).await;
    assert!(refused(world.send(&mut cli, bob.id, alice.id, later(90)).await), "by the command neither");
    let mut person = world.open(&Speaker::Anybody).await;
    let word = world.send(&mut person, world.director, bob.id, later(91)).await.expect("a person");
    assert_eq!(word.hops, 0);
    b.ack(world.session, &by(bob.id), &word.id.into(), later(91)).await.expect("ack");
    assert_eq!(world.send(&mut b, bob.id, alice.id, later(92)).await.expect("anew").hops, 0);
    for broker in [a, b, cli, person] {
        broker.close().await;
    }
}

#[tokio::test]
async fn a11_a_worker_seals_what_is_nobodys_and_nothing_of_another_agent() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Anybody).await;
    let free = world.register(&mut broker, "free").await;
    broker.speak_as(worker("other"));
    let taken = world.register(&mut broker, "taken").await;
    broker.speak_as(worker("mine"));
    broker.seal(&[free.id, taken.id]).await.expect("seal");
    for (agent, name, is_mine) in [(free, "mine", true), (taken, "other", false)] {
        let now = broker.member(world.session, &agent.id.into()).await.expect("member");
        assert_eq!((&now.owner, broker.speaker().may_be(&now)), (&Some(owner(name)), is_mine));
    }
    broker.close().await;
}

#[tokio::test]
async fn a11_in_the_pane_of_a_member_one_is_that_member_and_what_it_registers() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Anybody).await;
    let new = NewMember {
        id: AgentId::random(),
        session: world.session,
        name: "rev".to_owned(),
        description: String::new(),
        placement: Placement {
            host: HostId::of("here"),
            director: Some(world.director),
            tmux_session: "main".to_owned(),
            tmux_window: "@0".to_owned(),
            tmux_pane: None,
            coding_agent: "claude".to_owned(),
            created_at: at(0),
            identity: None,
        },
        launch: "{}".to_owned(),
        maker: "1@boot/1".to_owned(),
    };
    broker.create_member(&new, at(0)).await.expect("create");
    let foreign = world.register(&mut broker, "foreign").await;
    broker.speak_as(Speaker::Member(new.id));
    let own = world.register(&mut broker, "own").await;
    for id in [new.id, own.id] {
        world.send(&mut broker, id, world.director, at(1)).await.expect("send");
    }
    for id in [foreign.id, world.director] {
        let refused = world.send(&mut broker, id, new.id, at(1)).await;
        let is = matches!(refused, Err(BrokerError::NotThisMember { agent, member }) if (agent, member) == (id, new.id));
        assert!(is, "{refused:?}");
    }
    broker.speak_as(Speaker::Member(foreign.id));
    assert!(world.send(&mut broker, own.id, world.director, at(1)).await.is_err(), "another member");
    assert!(!broker.sees_all(world.session).await.expect("sees"));
    broker.close().await;
}

#[tokio::test]
async fn a11_in_a_namespace_only_sessions_made_there_trust_whom_nobody_sees() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Anybody).await;
    broker.is_at("ns-1");
    let new = CreateSession { label: None, placement: None };
    let made = broker.create_session(&new, at(0)).await.expect("create");
    let here = World { session: made.session.id, director: made.director.id, ..world };
    let plain = here.register(&mut broker, "plain").await;
    broker.speak_as(Speaker::Only(vec![owner("a")]));
    let owned = here.register(&mut broker, "owned").await;
    let (inside, outside) = (Enclosure::of("ns-1"), Enclosure::of("ns-2"));

    broker.speak_as(Speaker::Within(inside));
    assert!(broker.sees_all(here.session).await.expect("sees"));
    for from in [here.director, made.administrator, plain.id] {
        let to = if from == plain.id { here.director } else { plain.id };
        here.send(&mut broker, from, to, at(1)).await.expect("send");
    }

    broker.speak_as(Speaker::Within(outside));
    assert!(!broker.sees_all(here.session).await.expect("sees"));
    here.send(&mut broker, plain.id, here.director, at(1)).await.expect("an ordinary one");
    for from in [here.director, made.administrator] {
        let refused = here.send(&mut broker, from, plain.id, at(1)).await;
        assert!(matches!(refused, Err(BrokerError::Unproven(id)) if id == from), "{refused:?}");
    }
    let refused = here.send(&mut broker, owned.id, here.director, at(1)).await;
    assert!(matches!(refused, Err(BrokerError::NotYours { .. })), "{refused:?}");
    broker.close().await;
}

#[tokio::test]
async fn a11_who_is_nobody_makes_nothing_and_a_refusal_names_the_own_identities() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Only(Vec::new())).await;
    let new = NewAgent { name: "x".to_owned(), description: String::new(), skills: Vec::new() };
    let made = broker.register(&world.session.into(), &new, at(0)).await.map(drop);
    let session =
        broker.create_session(&CreateSession { label: None, placement: None }, at(0)).await.map(drop);
    for refused in [made, session] {
        let is =
            matches!(&refused, Err(BrokerError::NotYours { agent: None, by: None, own }) if own.is_empty());
        assert!(is, "{refused:?}");
    }
    broker.speak_as(Speaker::Only(vec![owner("a")]));
    let mut own: Vec<AgentId> = Vec::new();
    for name in ["one", "two"] {
        own.insert(0, world.register(&mut broker, name).await.id);
    }
    let refused = world.send(&mut broker, world.director, own[0], at(1)).await;
    let Err(BrokerError::NotYours { agent, by, own: named }) = refused else { panic!("{refused:?}") };
    assert_eq!((agent, by, named), (Some(world.director), Some(owner("a")), own));
    broker.close().await;
}

#[tokio::test]
async fn a11_an_agent_has_so_many_identities_and_no_more() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Only(vec![owner("inner"), owner("a")])).await;
    let new = |n: u32| NewAgent { name: format!("x{n}"), description: String::new(), skills: Vec::new() };
    for n in 0..IDENTITIES {
        broker.register(&world.session.into(), &new(n), at(i64::from(n) * 100)).await.expect("register");
    }
    let refused = broker.register(&world.session.into(), &new(IDENTITIES), at(5_000)).await;
    assert!(matches!(refused, Err(BrokerError::TooManyIdentities)), "{refused:?}");
    broker.close().await;
}

#[tokio::test]
async fn a11_what_was_answered_is_not_answered_again() {
    let world = World::new().await;
    let (mut a, mut b) = (world.open(&worker("a")).await, world.open(&worker("b")).await);
    let (alice, bob) = (world.register(&mut a, "alice").await, world.register(&mut b, "bob").await);
    let heard = world.send(&mut a, alice.id, bob.id, at(1)).await.expect("send");
    b.ack(world.session, &bob.id.into(), &heard.id.into(), at(2)).await.expect("ack");
    assert_eq!(world.send(&mut b, bob.id, world.director, at(3)).await.expect("answer").hops, 1);
    // Many at once are answers as well.
    let new = NewMessage {
        session: world.session,
        from: bob.id.into(),
        to: world.director.into(),
        text: "x".to_owned(),
        id: None,
    };
    let sent = b.send_all(&[new], at(3)).await.expect("store").remove(0).expect("sent");
    assert_eq!(sent.task.hops, 1);
    b.answered().await.expect("turn over");
    assert_eq!(world.send(&mut b, bob.id, world.director, at(4)).await.expect("anew").hops, 0);
    for broker in [a, b] {
        broker.close().await;
    }
}

#[tokio::test]
async fn a11_a_session_of_an_agent_is_its_own_and_the_administrator_is_not() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Only(vec![owner("a")])).await;
    let placement = Placement {
        host: HostId::of("here"),
        director: None,
        tmux_session: "main".to_owned(),
        tmux_window: "@0".to_owned(),
        tmux_pane: Some("%1".to_owned()),
        coding_agent: "claude".to_owned(),
        created_at: at(0),
        identity: None,
    };
    let new = CreateSession { label: None, placement: Some(placement.clone()) };
    let made = broker.create_session(&new, at(0)).await.expect("create");
    let agents = broker.agents(made.session.id).await.expect("agents");
    let stored: Vec<_> =
        agents.iter().map(|agent| (agent.owner.clone(), agent.placement.is_some())).collect();
    assert_eq!(stored, [(Some(owner("a")), true), (None, false)]);
    broker.close().await;
}

#[test]
fn an_owner_is_named_shortly_and_a_capability_not_at_all() {
    assert_eq!(owner("a3f80001").name(), "a3f80001");
    assert_eq!(format!("{:?}", Capability::random()), "Capability(…)");
}

/// Others are addressed by their names: a fleet agent takes nobody's. A person may.
#[tokio::test]
async fn a11_a_fleet_agent_takes_no_name_that_somebody_has() {
    let world = World::new().await;
    let mut broker = world.open(&Speaker::Anybody).await;
    world.register(&mut broker, "rev").await;
    world.register(&mut broker, "rev").await;
    broker.speak_as(Speaker::Only(vec![owner("a")]));
    let new = NewAgent { name: "Rev".to_owned(), description: String::new(), skills: Vec::new() };
    let refused = broker.register(&world.session.into(), &new, at(0)).await;
    assert!(matches!(&refused, Err(BrokerError::NameTaken(name)) if name == "Rev"), "{refused:?}");
    broker.close().await;
}
