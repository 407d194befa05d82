//! Members, commands and notices in the store: each guarded write wins once.

use std::time::Duration;

use caliban_store::broker::{
    AgentId, Broker, BrokerError, CreateSession, Delivery, DeliveryState, ExecEnd, ExecId, ExecState,
    MailboxScope, NewExec, NewMember, NewMessage, Notice, PaneIdentity, Placement, PollQuery, SessionId,
    Speaker,
};
use caliban_store::{HostId, Stamp, StoreUrl};

fn at(seconds: i64) -> Stamp {
    Stamp::from_micros(seconds * 1_000_000)
}

struct World {
    _dir: tempfile::TempDir,
    broker: Broker,
    session: SessionId,
    director: AgentId,
    administrator: AgentId,
}

fn identity(pane_pid: i64) -> PaneIdentity {
    PaneIdentity { socket: "/s".to_owned(), server_pid: 1, pane_pid, pane_started: "boot/1".to_owned() }
}

impl World {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("temp dir");
        let url = StoreUrl::sqlite(dir.path().join("store.db"));
        let mut broker = Broker::open(&url, Speaker::Anybody).await.expect("open");
        let made = broker
            .create_session(&CreateSession { label: None, placement: None }, at(1))
            .await
            .expect("create");
        Self {
            _dir: dir,
            broker,
            session: made.session.id,
            director: made.director.id,
            administrator: made.administrator,
        }
    }

    fn member(&self, director: AgentId) -> NewMember {
        NewMember {
            id: AgentId::random(),
            session: self.session,
            name: "rev".to_owned(),
            description: "d".to_owned(),
            placement: Placement {
                host: HostId::of("here"),
                director: Some(director),
                tmux_session: "main".to_owned(),
                tmux_window: "@0".to_owned(),
                tmux_pane: None,
                coding_agent: "claude".to_owned(),
                created_at: at(2),
                identity: None,
            },
            launch: "{}".to_owned(),
            maker: "1@boot/1".to_owned(),
        }
    }

    async fn pane_of(&mut self, member: AgentId) -> Option<String> {
        let found = self.broker.find_member(self.session, &member.into()).await.expect("find")?;
        found.placement.and_then(|placement| placement.tmux_pane)
    }

    async fn is_active(&mut self, member: AgentId) -> bool {
        self.broker.find_member(self.session, &member.into()).await.expect("find").is_some()
    }
}

#[tokio::test]
async fn m10_a_pending_member_is_claimed_once_or_undone() {
    let mut world = World::new().await;
    let new = world.member(world.director);
    world.broker.create_member(&new, at(2)).await.expect("create");
    assert_eq!(world.pane_of(new.id).await, None);
    let claim = async |world: &mut World, pid| {
        world.broker.claim_placement(new.id, "%1", "@0", "main", &identity(pid)).await.expect("claim")
    };
    assert_eq!(claim(&mut world, 7).await.as_deref(), Some("{}"));
    assert_eq!(claim(&mut world, 8).await, None, "a second pane gets nothing");
    assert_eq!(world.pane_of(new.id).await.as_deref(), Some("%1"));
    assert!(!world.broker.undo_member(new.id, at(3)).await.expect("undo"), "it has a pane");
    assert!(world.is_active(new.id).await);
    // A program that did not start undoes it all the same.
    assert!(world.broker.unplace_member(new.id, at(3)).await.expect("undo"));
    assert!(!world.is_active(new.id).await);

    let other = world.member(world.director);
    world.broker.create_member(&other, at(2)).await.expect("create");
    assert!(world.broker.undo_member(other.id, at(3)).await.expect("undo"));
    let late = world.broker.claim_placement(other.id, "%2", "@0", "main", &identity(9)).await.expect("claim");
    assert_eq!(late, None, "its pane comes too late");
}

#[tokio::test]
async fn m10_a_recovery_that_comes_to_nothing_leaves_the_member_where_it_was() {
    let mut world = World::new().await;
    let new = world.member(world.director);
    world.broker.create_member(&new, at(2)).await.expect("create");
    world.broker.claim_placement(new.id, "%1", "@0", "main", &identity(7)).await.expect("claim");
    world.broker.place_again(new.id, "2@boot/2", at(5)).await.expect("again");
    assert_eq!(world.pane_of(new.id).await, None);
    assert!(world.broker.undo_member(new.id, at(6)).await.expect("undo"));
    assert_eq!((world.is_active(new.id).await, world.pane_of(new.id).await.as_deref()), (true, Some("%1")));
    world.broker.place_again(new.id, "2@boot/2", at(7)).await.expect("again");
    let launch = world.broker.claim_placement(new.id, "%9", "@1", "main", &identity(8)).await.expect("claim");
    assert_eq!((launch.as_deref(), world.pane_of(new.id).await.as_deref()), (Some("{}"), Some("%9")));
}

#[tokio::test]
async fn m10_who_can_be_a_director() {
    let mut world = World::new().await;
    for (director, ok) in [(world.director, true), (world.administrator, false), (AgentId::random(), false)] {
        let made = world.broker.create_member(&world.member(director), at(2)).await;
        match made {
            Ok(_) => assert!(ok),
            Err(BrokerError::NotADirector(id)) => assert_eq!((ok, id), (false, director.to_string())),
            Err(other) => panic!("{other}"),
        }
    }
    let mut named = world.member(world.director);
    named.name = "ADMINISTRATOR".to_owned();
    assert!(matches!(world.broker.create_member(&named, at(2)).await, Err(BrokerError::ReservedName(_))));
    world.broker.delete_session(world.session, at(3)).await.expect("delete");
    let late = world.broker.create_member(&world.member(world.director), at(4)).await;
    assert!(matches!(late, Err(BrokerError::SessionDeleted(_))));
}

#[tokio::test]
async fn m10_a_command_begins_once_and_not_after_it_was_called_lost() {
    let mut world = World::new().await;
    let new = world.member(world.director);
    world.broker.create_member(&new, at(2)).await.expect("create");
    let exec = |id| NewExec {
        id,
        session: world.session,
        member: new.id,
        director: world.director,
        command: "ls".to_owned(),
    };
    let (done, lost) = (ExecId::random(), ExecId::random());
    for id in [done, lost] {
        world.broker.queue_exec(&exec(id), at(3)).await.expect("queue");
    }
    assert!(!world.broker.begin_exec(done, "r", at(4)).await.expect("begin"), "it was not typed");
    assert!(world.broker.claim_exec(done, at(4)).await.expect("claim"));
    assert!(!world.broker.claim_exec(done, at(4)).await.expect("claim"), "typed once");
    assert!(world.broker.unclaim_exec(done, "busy", at(4)).await.expect("unclaim"));
    assert!(world.broker.claim_exec(done, at(5)).await.expect("claim"));
    assert!(world.broker.begin_exec(done, "r", at(6)).await.expect("begin"));
    assert!(!world.broker.begin_exec(done, "r2", at(6)).await.expect("begin"), "run once");
    let end = ExecEnd::Done { exit_code: 3, output: "out".to_owned() };
    assert!(world.broker.end_exec(done, &end, at(7)).await.expect("end"));
    assert!(!world.broker.end_exec(done, &ExecEnd::Lost("x".to_owned()), at(8)).await.expect("end"));
    let found = world.broker.exec(done).await.expect("exec").expect("there");
    assert_eq!(
        (found.state, found.exit_code, found.output.as_deref(), found.changed_at),
        (ExecState::Done, Some(3), Some("out"), at(7))
    );
    let open: Vec<ExecId> =
        world.broker.open_execs(world.session).await.expect("open").iter().map(|exec| exec.id).collect();
    assert_eq!(open, [lost]);
    assert!(world.broker.claim_exec(lost, at(8)).await.expect("claim"));
    assert!(world.broker.end_exec(lost, &ExecEnd::Lost("never began".to_owned()), at(9)).await.expect("end"));
    assert!(!world.broker.begin_exec(lost, "r", at(10)).await.expect("begin"), "too late");
    let like = world.broker.execs_like(world.director, &lost.short()).await.expect("like");
    assert_eq!((like.len(), like[0].note.as_deref()), (1, Some("never began")));
}

#[tokio::test]
async fn m08_a_notice_is_sent_once_to_director_and_user() {
    let mut world = World::new().await;
    let notice = |to_user| Notice {
        session: world.session,
        subject: format!("held:{to_user}"),
        director: Some(world.director),
        to_user,
        text: "overdue".to_owned(),
    };
    assert!(world.broker.notice(&notice(true), at(2)).await.expect("notice"));
    assert!(!world.broker.notice(&notice(true), at(3)).await.expect("notice"), "once");
    assert!(world.broker.notice(&notice(false), at(4)).await.expect("notice"));
    for (who, count) in [(world.director, 2), (world.administrator, 1)] {
        let query =
            PollQuery { agent: who, scope: MailboxScope::All, since: None, after: None, page_size: 10 };
        let page = world.broker.poll(&query).await.expect("poll");
        assert_eq!(page.tasks.len(), count);
        assert!(page.tasks.iter().all(|task| task.from == world.administrator && task.text == "overdue"));
    }
}

#[tokio::test]
async fn m08_what_is_owed_and_what_a_new_pane_gets() {
    let mut world = World::new().await;
    let new = world.member(world.director);
    world.broker.create_member(&new, at(2)).await.expect("create");
    world.broker.claim_placement(new.id, "%1", "@0", "main", &identity(7)).await.expect("claim");
    assert_eq!(world.broker.owed(world.session).await.expect("owed"), 0);
    let message = NewMessage {
        session: world.session,
        from: world.director.into(),
        to: new.id.into(),
        text: "x".to_owned(),
        id: None,
    };
    let sent = world.broker.send(&message, at(3)).await.expect("send").task.id;
    assert_eq!(world.broker.owed(world.session).await.expect("owed"), 1);
    let gone = Delivery { state: DeliveryState::Failed, note: Some("no pane".to_owned()) };
    world.broker.put_off(&[sent], &gone).await.expect("put off");
    assert_eq!(world.broker.owed(world.session).await.expect("owed"), 0);
    world.broker.hold_again(new.id).await.expect("again");
    assert_eq!(world.broker.owed(world.session).await.expect("owed"), 1);
    // One whose typing was interrupted is not typed again.
    assert!(world.broker.claim_delivery(sent).await.expect("claim"));
    world.broker.hold_again(new.id).await.expect("again");
    assert_eq!(world.broker.undelivered(new.id).await.expect("undelivered").len(), 0);
    assert_eq!(world.broker.unconfirmed(new.id).await.expect("unconfirmed").len(), 1);
    // Nor is one that was typed into a pane that is gone.
    let typed = Delivery { state: DeliveryState::Typed, note: None };
    world.broker.record_delivery(sent, &typed).await.expect("typed");
    assert_eq!(world.broker.owed(world.session).await.expect("owed"), 1);
    world.broker.give_up_typed(new.id).await.expect("give up");
    assert_eq!(world.broker.owed(world.session).await.expect("owed"), 0);
    world.broker.hold_again(new.id).await.expect("again");
    assert_eq!(world.broker.undelivered(new.id).await.expect("undelivered").len(), 0);
    let activity = world.broker.activity(new.id).await.expect("activity");
    assert_eq!((activity.received, activity.sent, activity.unread, activity.held), (Some(at(3)), None, 1, 0));
}

#[tokio::test]
async fn m08_there_is_one_deliverer_and_it_can_be_woken() {
    let mut world = World::new().await;
    let held = world.broker.lock_deliverer(world.session).await.expect("free");
    assert!(world.broker.lock_deliverer(world.session).await.is_none());
    let mut bell = world.broker.deliverer_bell(world.session).await.expect("bell");
    world.broker.wake_deliverer(world.session).await;
    tokio::time::timeout(Duration::from_secs(60), bell.rung()).await.expect("rung").expect("bell");
    drop(held);
    assert!(world.broker.lock_deliverer(world.session).await.is_some());
    world.broker.record_deliverer(world.session, "1@b", at(2)).await.expect("record");
    world.broker.record_deliverer(world.session, "2@b", at(3)).await.expect("record");
    let known = world.broker.deliverer(world.session).await.expect("known").expect("there");
    assert_eq!((known.process.as_str(), known.since), ("2@b", at(3)));
}

#[tokio::test]
async fn m10_a_member_is_listed_moved_and_removed() {
    let mut world = World::new().await;
    let (one, two) = (world.member(world.director), world.member(world.director));
    for new in [&one, &two] {
        world.broker.create_member(new, at(2)).await.expect("create");
    }
    let launch = world.broker.launch(one.id).await.expect("launch");
    assert_eq!(launch, Some(("{}".to_owned(), "1@boot/1".to_owned())));
    assert_eq!(world.broker.launch(AgentId::random()).await.expect("launch"), None);
    let listed = async |world: &mut World| -> Vec<AgentId> {
        let members = world.broker.members(world.session, world.director).await.expect("members");
        members.iter().map(|member| member.id).collect()
    };
    assert_eq!(listed(&mut world).await, [one.id, two.id]);
    let there = Placement { tmux_pane: Some("%5".to_owned()), ..one.placement.clone() };
    world.broker.move_to(one.id, &there).await.expect("move");
    assert_eq!(world.pane_of(one.id).await.as_deref(), Some("%5"));
    let director = world.broker.find_member(world.session, &world.director.into()).await.expect("find");
    let director = director.expect("there");
    assert!(world.broker.remove_member(&director, one.id, at(3)).await.expect("remove"));
    assert!(!world.broker.remove_member(&director, one.id, at(4)).await.expect("remove"), "once");
    assert_eq!(listed(&mut world).await, [two.id]);
    assert!(!world.is_active(one.id).await);
}

#[tokio::test]
async fn m10_a_director_is_active_and_of_the_same_session() {
    let mut world = World::new().await;
    let left = world.member(world.director);
    world.broker.create_member(&left, at(2)).await.expect("create");
    world.broker.deregister(world.session, &left.id.into(), at(3)).await.expect("leave");
    let other = CreateSession { label: None, placement: None };
    let elsewhere = world.broker.create_session(&other, at(1)).await.expect("create").director.id;
    for director in [left.id, elsewhere] {
        let made = world.broker.create_member(&world.member(director), at(4)).await;
        assert!(matches!(made, Err(BrokerError::NotADirector(_))), "{made:?}");
    }
}

#[tokio::test]
async fn a11_the_process_in_a_pane_is_its_member() {
    let mut world = World::new().await;
    let (one, two) = (world.member(world.director), world.member(world.director));
    for (new, pane, pid) in [(&one, "%1", 7), (&two, "%2", 8)] {
        world.broker.create_member(new, at(2)).await.expect("create");
        world.broker.claim_placement(new.id, pane, "@0", "main", &identity(pid)).await.expect("claim");
    }
    let boot = |pid: i64| (pid, "boot/1".to_owned());
    let cases = [
        ("here", vec![boot(8)], None, Some(two.id)),
        ("here", vec![boot(99), boot(7), boot(8)], None, Some(one.id)),
        ("here", vec![(7, "boot/2".to_owned())], None, None),
        ("there", vec![boot(7)], Some(("/s", "%1")), None),
        ("here", vec![boot(7)], Some(("/s", "%2")), Some(one.id)),
        ("here", vec![], Some(("/s", "%2")), Some(two.id)),
        ("here", vec![], Some(("/other", "%2")), None),
        ("here", vec![], Some(("/s", "%3")), None),
    ];
    for (host, processes, pane, wanted) in cases {
        let found = world.broker.member_in_pane(&HostId::of(host), &processes, pane).await.expect("look");
        assert_eq!(found, wanted, "{host} {processes:?} {pane:?}");
    }
}

#[tokio::test]
async fn m08_the_bell_of_one_sessions_deliverer_is_no_others() {
    let mut world = World::new().await;
    let new = CreateSession { label: None, placement: None };
    let other = world.broker.create_session(&new, at(1)).await.expect("create").session.id;
    let mut bell = world.broker.deliverer_bell(world.session).await.expect("bell");
    world.broker.wake_deliverer(other).await;
    let heard = tokio::time::timeout(Duration::from_millis(50), bell.rung()).await;
    assert!(heard.is_err(), "it was the other's");
}

/// Whoever waits for a member is woken by what happens to it, long before its time is over.
#[tokio::test]
async fn m10_a_maker_hears_of_its_member() {
    let mut world = World::new().await;
    let new = world.member(world.director);
    world.broker.create_member(&new, at(2)).await.expect("create");
    let url = StoreUrl::sqlite(world._dir.path().join("store.db"));
    let mut maker = Broker::open(&url, Speaker::Anybody).await.expect("open");
    let who = new.id.to_string();
    let mut wait = std::pin::pin!(maker.listen_for(&who, Duration::from_secs(600)));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut wait).await;
    assert!(early.is_err(), "nobody rang");
    world.broker.claim_placement(new.id, "%1", "@0", "main", &identity(7)).await.expect("claim");
    tokio::time::timeout(Duration::from_secs(60), wait).await.expect("heard");
}

#[tokio::test]
async fn a_pane_is_locked_once_at_a_time() {
    let world = World::new().await;
    let held = world.broker.lock_pane("%1", Duration::ZERO).await;
    assert_eq!(format!("{held:?}"), "Some(PaneLock)");
    assert!(world.broker.lock_pane("%1", Duration::ZERO).await.is_none());
    assert!(world.broker.lock_pane("%2", Duration::ZERO).await.is_some());
    drop(held);
    assert!(world.broker.lock_pane("%1", Duration::ZERO).await.is_some());
}

#[test]
fn a_command_is_open_until_it_is_done_or_lost() {
    let states = [ExecState::Queued, ExecState::Typed, ExecState::Running, ExecState::Done, ExecState::Lost];
    assert_eq!(states.map(ExecState::is_open), [true, true, true, false, false]);
    assert_eq!(states.map(|state| state.to_string()), ["queued", "typed", "running", "done", "lost"]);
}
