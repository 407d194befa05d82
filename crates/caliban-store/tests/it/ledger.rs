//! The ledger's story: pools, dead processes, limits that change, history, the governor.

use caliban_core::budget::{Kind, Limits, ReserveRefused, Scope, Spent};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use caliban_store::ledger::{
    Account, AccountId, Admission, AskTurn, By, Filter, First, Granted, LEASE_MS, Lane, Ledger, LedgerError,
    LedgerRequest, LimitAsker, Near, OpenedAccount, Opening, Pool, QuestionEnd, Reached, ReservationOwner,
    SetLimit,
};
use caliban_store::{Stamp, StoreError, StoreUrl};
use jiff::civil::{Date, date};

pub(crate) const DAY: Date = date(2026, 11, 17);

pub(crate) fn id(name: &str) -> AccountId {
    AccountId::new("9f", name)
}

pub(crate) fn tokens(tokens: u64) -> Limits {
    Limits { tokens: Some(tokens), ..Limits::NONE }
}

pub(crate) fn owner(pid: i32) -> ReservationOwner {
    ReservationOwner { boot: "boot".to_owned(), pid, started: 7 }
}

pub(crate) fn account(name: &str, parent: Option<&str>, tree: Limits) -> Account {
    Account {
        id: id(name),
        parent: parent.map(id),
        repo: "/repo".into(),
        label: None,
        own: Limits::NONE,
        tree,
    }
}

fn input(input: u64) -> Usage {
    Usage { input, ..Usage::default() }
}

pub(crate) fn request<'a>(
    account: &'a AccountId,
    owner: &'a ReservationOwner,
    amount: u64,
) -> LedgerRequest<'a> {
    LedgerRequest {
        account,
        owner,
        model: "m",
        usage: input(amount),
        cost: Some(MicroUsd(amount)),
        turns: 1,
        day: DAY,
        per_repo_day: Limits::NONE,
        per_day: Limits::NONE,
    }
}

struct World {
    ledger: Ledger,
    _dir: tempfile::TempDir,
}

async fn world() -> World {
    let dir = tempfile::tempdir().expect("temp dir");
    let url = StoreUrl::sqlite(dir.path().join("ledger.db"));
    World { ledger: Ledger::open(&url).await.expect("open"), _dir: dir }
}

impl World {
    async fn opens(&mut self, account: &Account) -> OpenedAccount {
        self.ledger.open_account(account, Stamp::now()).await.expect("open account")
    }

    async fn asks(&mut self, name: &str, amount: u64) -> Result<Granted, LedgerError> {
        self.asks_on(name, amount, DAY, Limits::NONE, 1).await
    }

    async fn asks_on(
        &mut self,
        name: &str,
        amount: u64,
        day: Date,
        per_day: Limits,
        pid: i32,
    ) -> Result<Granted, LedgerError> {
        let (account, owner) = (id(name), owner(pid));
        let request = LedgerRequest { day, per_day, ..request(&account, &owner, amount) };
        self.ledger.reserve(&request, Stamp::now()).await
    }

    async fn opens_and_asks(&mut self, opening: Opening<'_>, amount: u64) -> First {
        let owner = owner(1);
        let request = request(&opening.account.id, &owner, amount);
        self.ledger.open_and_reserve(&[opening], &request, Stamp::now()).await.expect("store")
    }

    async fn pool(&mut self, pool: Pool) -> (u64, u64) {
        let state = self.ledger.pool(&pool, Limits::NONE).await.expect("pool");
        (state.meter.spent.usage.total(), state.meter.held.tokens)
    }
}

fn over(refused: Result<Granted, LedgerError>) -> Option<Scope<AccountId>> {
    match refused {
        Err(LedgerError::Refused(ReserveRefused::Over { scope, kind: Kind::Tokens, .. })) => Some(scope),
        _ => None,
    }
}

#[tokio::test]
async fn r20_a_child_spends_from_its_trees_pool_and_what_it_leaves_is_there_for_all() {
    let mut world = world().await;
    world.opens(&account("p", None, tokens(100))).await;
    world.opens(&account("c", Some("p"), Limits::NONE)).await;
    let first = world.asks("c", 60).await.expect("fits").reservation;
    assert_eq!(over(world.asks("p", 50).await), Some(Scope::Tree(id("p"))));
    // It took less than was held: the rest is the parent's again, without a grant.
    world.ledger.settle(&first, input(20), Some(MicroUsd(1)), 5).await.expect("settle");
    let second = world.asks("p", 50).await.expect("fits").reservation;
    world.ledger.release(&second).await.expect("release");
    assert_eq!(world.pool(Pool::Tree(id("p"))).await, (20, 0));
    assert_eq!(world.pool(Pool::Agent(id("p"))).await, (0, 0));
    assert_eq!(world.pool(Pool::Agent(id("c"))).await, (20, 0));
    assert_eq!(world.pool(Pool::RepoDay("/repo".into(), DAY)).await, (20, 0));
    assert_eq!(world.pool(Pool::Everything).await, (20, 0));
}

#[tokio::test]
async fn r20_what_a_dead_process_holds_is_spent_once_and_not_given_out_again() {
    let mut world = world().await;
    world.opens(&account("a", None, tokens(100))).await;
    let lost = world.asks_on("a", 30, DAY, Limits::NONE, 4).await.expect("fits").reservation;
    world.ledger.count(&lost, input(50), Some(MicroUsd(50))).await.expect("count");
    assert_eq!(world.pool(Pool::Tree(id("a"))).await, (0, 50));
    assert_eq!(over(world.asks("a", 60).await), Some(Scope::Tree(id("a"))));
    let living = world.asks("a", 10).await.expect("fits").reservation;
    assert_eq!(world.ledger.settle_dead(|owner| owner.pid == 4).await.expect("dead"), 1);
    assert_eq!(world.ledger.settle_dead(|owner| owner.pid == 4).await.expect("dead"), 0);
    assert_eq!(world.pool(Pool::Tree(id("a"))).await, (50, 10));
    // One that was taken for dead and is not: what it took beyond its reservation is booked besides.
    world.ledger.settle(&lost, input(55), Some(MicroUsd(55)), 0).await.expect("settle");
    world.ledger.settle(&living, input(10), Some(MicroUsd(10)), 0).await.expect("settle");
    assert_eq!(world.pool(Pool::Tree(id("a"))).await, (85, 0));
    let lines = world.ledger.history(&[By::Agent], &Filter::default()).await.expect("history");
    assert_eq!((lines[0].requests, lines[0].spent.usage.total(), lines[0].spent.usd), (2, 85, MicroUsd(85)));
}

#[tokio::test]
async fn r20_b09_a_limit_of_new_tokens_counts_nothing_that_is_read_from_the_cache() {
    let mut world = world().await;
    world.opens(&account("bg", None, Limits { fresh: Some(100), ..Limits::NONE })).await;
    let (account, owner) = (id("bg"), owner(1));
    let cached = |input, cache_read| Usage { input, cache_read, ..Usage::default() };
    let asks = |usage| LedgerRequest { usage, ..request(&account, &owner, 0) };
    let first = world.ledger.reserve(&asks(cached(60, 900)), Stamp::now()).await.expect("fits").reservation;
    let refused = world.ledger.reserve(&asks(cached(41, 0)), Stamp::now()).await;
    assert!(
        matches!(
            &refused,
            Err(LedgerError::Refused(ReserveRefused::Over { kind: Kind::Fresh, reserved: 60, .. }))
        ),
        "{refused:?}"
    );
    // The server says that less of it was in the cache: more is held, also for a process that is killed now.
    world.ledger.count(&first, cached(90, 800), None).await.expect("count");
    assert!(world.ledger.reserve(&asks(cached(11, 0)), Stamp::now()).await.is_err());
    assert_eq!(world.ledger.settle_dead(|_| true).await.expect("dead"), 1);
    let spent = world.ledger.pool(&Pool::Tree(id("bg")), Limits::NONE).await.expect("pool").meter;
    assert_eq!((spent.spent.usage.fresh(), spent.spent.usage.total()), (90, 960));
    assert_eq!((spent.held.fresh, spent.held.tokens), (0, 0));
    // It was alive after all, and nothing was in the cache: the rest of the new tokens is booked.
    world.ledger.settle(&first, cached(950, 0), None, 0).await.expect("settle");
    let spent = world.ledger.pool(&Pool::Tree(id("bg")), Limits::NONE).await.expect("pool").meter.spent;
    assert!(spent.usage.fresh() >= 950, "{spent:?}");
}

#[tokio::test]
async fn r20_limits_of_days_hold_for_all_and_a_new_day_begins_anew() {
    let mut world = world().await;
    for name in ["a", "b"] {
        world.opens(&account(name, None, Limits::NONE)).await;
    }
    let per_day = tokens(100);
    world.asks_on("a", 70, DAY, per_day, 1).await.expect("fits");
    assert_eq!(over(world.asks_on("b", 40, DAY, per_day, 1).await), Some(Scope::Day));
    world.asks_on("b", 40, DAY.tomorrow().expect("day"), per_day, 1).await.expect("another day");
    // What a person sets holds in place of the settings, at once.
    world.ledger.change_limit(&SetLimit::Day, Some(tokens(200))).await.expect("set");
    world.asks_on("b", 40, DAY, per_day, 1).await.expect("raised");
    let repo = SetLimit::RepoDay("/repo".into());
    world.ledger.change_limit(&repo, Some(tokens(120))).await.expect("set");
    assert_eq!(over(world.asks_on("b", 40, DAY, per_day, 1).await), Some(Scope::RepoDay));
    world.ledger.change_limit(&repo, None).await.expect("unset");
    world.asks_on("b", 40, DAY, per_day, 1).await.expect("fits");
}

#[tokio::test]
async fn r20_a_raised_limit_holds_until_the_agent_is_started_with_another() {
    let mut world = world().await;
    let own = account("a", None, tokens(10));
    assert_eq!(world.opens(&own).await, OpenedAccount::New);
    assert!(over(world.asks("a", 20).await).is_some());
    assert!(world.ledger.set_tree_limits(&id("a"), tokens(100)).await.expect("set"));
    assert!(!world.ledger.set_tree_limits(&id("nobody"), tokens(100)).await.expect("set"));
    world.asks("a", 20).await.expect("raised");
    assert_eq!(world.opens(&own).await, OpenedAccount::Known);
    world.asks("a", 20).await.expect("the same start");
    world.opens(&account("a", None, tokens(45))).await;
    assert!(over(world.asks("a", 20).await).is_some(), "another start");
}

#[tokio::test]
async fn r20_at_four_fifths_of_a_limit_one_notice_is_given() {
    let mut world = world().await;
    world.opens(&account("a", None, tokens(100))).await;
    assert_eq!(world.asks("a", 79).await.expect("fits").near, []);
    let near = Near { scope: Scope::Tree(id("a")), kind: Kind::Tokens, limit: 100, used: 80 };
    assert_eq!(world.asks("a", 1).await.expect("fits").near, [near]);
    assert_eq!(world.asks("a", 1).await.expect("fits").near, []);
    world.ledger.set_tree_limits(&id("a"), tokens(101)).await.expect("set");
    assert_eq!(world.asks("a", 1).await.expect("fits").near.len(), 1, "another limit");
}

#[tokio::test]
async fn a_parent_that_opens_later_is_the_same_and_what_was_spent_before_counts() {
    let mut world = world().await;
    world.opens(&account("c", Some("p"), Limits::NONE)).await;
    world.asks("c", 30).await.expect("fits");
    assert_eq!(world.opens(&account("p", None, tokens(50))).await, OpenedAccount::New);
    assert_eq!(over(world.asks("c", 30).await), Some(Scope::Tree(id("p"))));
    // The first request of a process opens its account; that counts also when the request is refused.
    let late = account("d", Some("p"), Limits::NONE);
    let earlier = Spent { usage: input(15), ..Spent::default() };
    let first = world.opens_and_asks(Opening { account: &late, earlier, today: Spent::default() }, 6).await;
    assert_eq!(first.known, None);
    assert!(matches!(first.granted, Err(ReserveRefused::Over { scope: Scope::Tree(_), .. })), "{first:?}");
    assert_eq!(world.pool(Pool::Tree(id("p"))).await, (15, 30));
    assert_eq!(world.pool(Pool::Day(DAY)).await, (0, 30));
    // Another process of the same conversation: the ledger knows what was spent, and does not count it twice.
    let again = world.opens_and_asks(Opening { account: &late, earlier, today: Spent::default() }, 5).await;
    assert_eq!(again.known, Some(earlier));
    assert!(again.granted.is_ok(), "{again:?}");
    assert_eq!(world.pool(Pool::Tree(id("p"))).await, (15, 35));
}

#[tokio::test]
async fn history_adds_up_by_what_is_asked_for() {
    let mut world = world().await;
    let mut labelled = account("b", None, Limits::NONE);
    (labelled.label, labelled.repo) = (Some("review".to_owned()), "/other".into());
    for own in [account("a", None, Limits::NONE), labelled] {
        world.opens(&own).await;
    }
    for (name, amount, day) in
        [("a", 1, DAY), ("a", 2, DAY), ("b", 4, DAY), ("b", 8, DAY.yesterday().expect("day"))]
    {
        let granted = world.asks_on(name, amount, day, Limits::NONE, 1).await.expect("fits");
        world.ledger.settle(&granted.reservation, input(amount), None, 10).await.expect("settle");
    }
    let mut sums = async |by: &[By], filter: &Filter| -> Vec<u64> {
        let lines = world.ledger.history(by, filter).await.expect("history");
        lines.iter().map(|line| line.spent.usage.total()).collect()
    };
    let all = Filter::default();
    assert_eq!(sums(&[], &all).await, [15]);
    assert_eq!(sums(&[By::Day], &all).await, [8, 7]);
    assert_eq!(sums(&[By::Day, By::Repo], &all).await, [8, 4, 3]);
    assert_eq!(sums(&[By::Label], &all).await, [3, 12]);
    assert_eq!(sums(&[By::Agent], &Filter { since: Some(DAY), ..Filter::default() }).await, [3, 4]);
    assert_eq!(sums(&[By::Model], &Filter { repo: Some("/other".into()), ..Filter::default() }).await, [12]);
    assert_eq!(sums(&[], &Filter { until: Some(date(2020, 1, 1)), ..Filter::default() }).await, [0_u64; 0]);
    let lines = world.ledger.history(&[By::Agent, By::Label], &all).await.expect("history");
    assert_eq!(lines[1].agent.as_ref().map(AccountId::short), Some("b"));
    assert_eq!(
        (lines[1].label.as_deref(), lines[1].requests, lines[1].spent.wall_ms),
        (Some("review"), 2, 20)
    );
}

#[tokio::test]
async fn r24_a_lane_is_closed_as_long_as_asked_and_those_who_wait_come_back_apart_and_by_priority() {
    let mut world = world().await;
    let (ledger, lane) = (&mut world.ledger, Lane::new("boot", "anthropic/1"));
    let me = owner(1);
    assert_eq!(ledger.admit(&lane, 0, None, &me, 1_000, 1_000).await.expect("admit"), Admission::Go);
    ledger.limited(&lane, "429", Some(5_000), 1_000, 1_100).await.expect("limited");
    let mut tickets = Vec::new();
    for priority in [0, 0, 5] {
        match ledger.admit(&lane, priority, None, &me, 1_200, 1_200).await.expect("admit") {
            Admission::Wait { until_ms, ticket, reason } => {
                assert!(until_ms >= 6_100 && reason == "429", "{until_ms} {reason}");
                tickets.push((priority, ticket));
            }
            Admission::Go => panic!("the lane is closed"),
        }
    }
    // Another provider is not.
    assert_eq!(
        ledger.admit(&Lane::new("boot", "x"), 0, None, &me, 1_200, 1_200).await.expect("admit"),
        Admission::Go
    );
    let mut served = Vec::new();
    let mut now = 6_100;
    while !tickets.is_empty() && now < 20_000 {
        let mut left = Vec::new();
        for (priority, ticket) in tickets {
            match ledger.admit(&lane, priority, Some(ticket), &me, now, now).await.expect("admit") {
                Admission::Go => served.push((priority, now)),
                Admission::Wait { .. } => left.push((priority, ticket)),
            }
        }
        tickets = left;
        now += 50;
    }
    let order: Vec<i64> = served.iter().map(|(priority, _)| *priority).collect();
    assert_eq!(order, [5, 0, 0]);
    assert!(served.windows(2).all(|two| two[1].1 >= two[0].1 + 250), "{served:?}");
    ledger.answered(&lane, None, now).await.expect("answered");
    assert_eq!(ledger.admit(&lane, 0, None, &me, now + 250, now + 250).await.expect("admit"), Admission::Go);
    assert_eq!(ledger.lane(&lane).await.expect("lane").0.strikes, 0);
}

#[tokio::test]
async fn r24_requests_are_spaced_to_the_allowance_that_the_server_names() {
    let mut world = world().await;
    let (ledger, lane, me) = (&mut world.ledger, Lane::new("boot", "l"), owner(1));
    ledger.answered(&lane, Some((100, 90, 60_000)), 0).await.expect("answered");
    for _ in 0..3 {
        assert_eq!(ledger.admit(&lane, 0, None, &me, 1, 1).await.expect("admit"), Admission::Go);
    }
    ledger.answered(&lane, Some((100, 10, 60_000)), 0).await.expect("answered");
    assert_eq!(ledger.admit(&lane, 0, None, &me, 1, 1).await.expect("admit"), Admission::Go);
    let Admission::Wait { until_ms, ticket, .. } =
        ledger.admit(&lane, 0, None, &me, 2, 2).await.expect("admit")
    else {
        panic!("the next one is six seconds later")
    };
    assert_eq!(until_ms, 6_001);
    ledger.give_up(ticket).await.expect("give up");
    ledger.answered(&lane, Some((100, 0, 60_000)), 10).await.expect("answered");
    let closed = ledger.admit(&lane, 0, None, &me, 20, 20).await.expect("admit");
    assert!(matches!(closed, Admission::Wait { until_ms: 60_010, .. }), "{closed:?}");
    // A process that is killed while it waits is in nobody's way.
    ledger.settle_dead(|_| true).await.expect("dead");
    assert_eq!(ledger.lane(&lane).await.expect("lane").1, 0);
}

#[tokio::test]
async fn r25_r05_a_stopped_process_that_is_first_in_the_queue_keeps_nobody_waiting() {
    let mut world = world().await;
    let (ledger, lane) = (&mut world.ledger, Lane::new("boot", "l"));
    let (stopped, other) = (owner(1), owner(2));
    ledger.limited(&lane, "429", Some(1_000), 0, 1).await.expect("limited");
    let mut take = async |me| match ledger.admit(&lane, 0, None, me, 2, 2).await.expect("admit") {
        Admission::Wait { ticket, .. } => ticket,
        Admission::Go => panic!("the lane is closed"),
    };
    let (first, second) = (take(&stopped).await, take(&other).await);
    // The second one asks again and again; the first one does not.
    let mut now = 2;
    let served = loop {
        now += 1_000;
        match ledger.admit(&lane, 0, Some(second), &other, now, now).await.expect("admit") {
            Admission::Go => break now,
            Admission::Wait { ticket, .. } => assert_eq!(ticket, second, "it keeps its place"),
        }
    };
    assert!(served <= LEASE_MS + 2_000, "{served}");
    // Somebody else is refused meanwhile: whoever was stopped does not send, but queues again.
    ledger.limited(&lane, "429", Some(60_000), now, now).await.expect("limited");
    let late = ledger.admit(&lane, 0, Some(first), &stopped, now + 1, now + 1).await.expect("admit");
    assert!(matches!(late, Admission::Wait { ticket, .. } if ticket != first), "{late:?}");
    // A suspend, which `awake_ms` does not count, changes no order.
    let Admission::Wait { ticket, .. } = late else { panic!("it waits") };
    let behind = ledger.admit(&lane, 0, None, &other, now + 90_000, now + 2).await.expect("admit");
    assert!(matches!(behind, Admission::Wait { .. }), "{behind:?}");
    let again = ledger.admit(&lane, 0, Some(ticket), &stopped, now + 90_001, now + 3).await.expect("admit");
    assert_eq!(again, Admission::Go);
}

#[tokio::test]
async fn r15_a_lane_of_another_boot_closes_nothing() {
    let mut world = world().await;
    let me = owner(1);
    let (before, after) = (Lane::new("one", "key"), Lane::new("two", "key"));
    world.ledger.limited(&before, "429", Some(3_600_000), 0, 9_000_000).await.expect("limited");
    let admitted = world.ledger.admit(&after, 0, None, &me, 5, 5).await.expect("admit");
    assert_eq!(admitted, Admission::Go);
    world.ledger.limited(&after, "429", Some(10), 5, 6).await.expect("limited");
    let (old, _) = world.ledger.lane(&before).await.expect("lane");
    assert_eq!(old.until_ms, 0, "it is forgotten");
}

/// What is done to the file, and whether a running process may go on afterwards.
#[tokio::test]
async fn r25_r20_nothing_is_reserved_in_a_ledger_that_was_deleted_cut_or_replaced() {
    type Harm = fn(&std::path::Path);
    let delete: Harm = |file| std::fs::remove_file(file).expect("remove");
    let cut: Harm = |file| {
        let opened = std::fs::OpenOptions::new().write(true).open(file).expect("open");
        opened.set_len(0).expect("cut");
    };
    let cut_a_little: Harm = |file| {
        let opened = std::fs::OpenOptions::new().write(true).open(file).expect("open");
        opened.set_len(4096).expect("cut");
    };
    let replace: Harm = |file| {
        std::fs::write(file.with_extension("new"), "not a database").expect("write");
        std::fs::rename(file.with_extension("new"), file).expect("rename");
    };
    let delete_log: Harm = |file| {
        std::fs::remove_file(file.with_extension("db-wal")).expect("remove");
        std::fs::remove_file(file).expect("remove");
    };
    for (name, harm) in [
        ("delete", delete),
        ("cut", cut),
        ("cut a little", cut_a_little),
        ("replace", replace),
        ("log", delete_log),
    ] {
        let dir = tempfile::tempdir().expect("temp dir");
        let file = dir.path().join("ledger.db");
        let url = StoreUrl::sqlite(&file);
        // Closed once, so that the tables are in the file itself.
        Ledger::open(&url).await.expect("made").close().await;
        let mut ledger = Ledger::open(&url).await.expect("open");
        let account = account("a", None, Limits::NONE);
        ledger.open_account(&account, Stamp::now()).await.expect("account");
        let (id, me) = (account.id.clone(), owner(1));
        let held = ledger.reserve(&request(&id, &me, 10), Stamp::now()).await.expect("reserve");
        harm(&file);
        let refused = ledger.reserve(&request(&id, &me, 10), Stamp::now()).await;
        let is_noticed = matches!(refused, Err(LedgerError::Store(StoreError::Replaced(_))));
        assert!(is_noticed, "{name}: {refused:?}");
        assert!(
            name == "replace" || !file.exists() || file.metadata().expect("file").len() <= 4096,
            "{name}"
        );
        // As somebody who starts now would make it.
        for left in ["db", "db-wal", "db-shm"] {
            let _absent = std::fs::remove_file(file.with_extension(left));
        }
        let fresh = Ledger::open(&url).await.expect("a new one");
        assert_eq!(ledger.generation().await.expect("whole again"), 1, "{name}");
        // The reservation is not in this file: it is settled into nothing, not into another's row.
        ledger.settle(&held.reservation, Usage::default(), None, 0).await.expect("settle");
        let today = Spent { usage: Usage { input: 7, ..Usage::default() }, ..Spent::default() };
        let opening = Opening { account: &account, earlier: today, today };
        let limits = Limits { tokens: Some(16), ..Limits::NONE };
        let asked = LedgerRequest { per_day: limits, ..request(&id, &me, 10) };
        let first = ledger.open_and_reserve(&[opening], &asked, Stamp::now()).await.expect("store");
        assert!(first.granted.is_err(), "{name}: what was spent today counts in the new file, too");
        fresh.close().await;
        ledger.close().await;
    }
}

fn asker<'a>(account: &'a AccountId, owner: &'a ReservationOwner, since_ms: u64) -> LimitAsker<'a> {
    LimitAsker { account, owner, since_ms }
}

#[tokio::test]
async fn r20_a_yes_raises_the_limit_that_was_shown_once_and_a_day_for_that_day_only() {
    let mut world = world().await;
    let own = Account { own: tokens(50), ..account("a", None, tokens(100)) };
    world.opens(&own).await;
    let reached = |pool: Pool, limit| Reached { pool, kind: Kind::Tokens, limit, of_settings: tokens(100) };
    let of_agent = reached(Pool::Agent(id("a")), 50);
    assert_eq!(over(world.asks("a", 60).await), Some(Scope::Agent));
    assert!(world.ledger.raise(&of_agent, 25).await.expect("raise"));
    assert!(!world.ledger.raise(&of_agent, 25).await.expect("raise"), "it is another limit now");
    // The next start with the same settings keeps it; with others, those hold.
    world.opens(&own).await;
    assert_eq!(
        world.ledger.pool(&Pool::Agent(id("a")), Limits::NONE).await.expect("pool").limits,
        Some(tokens(75))
    );
    world.opens(&Account { own: tokens(40), ..own.clone() }).await;
    assert_eq!(
        world.ledger.pool(&Pool::Agent(id("a")), Limits::NONE).await.expect("pool").limits,
        Some(tokens(40))
    );
    let nobody = reached(Pool::Agent(id("nobody")), 100);
    assert!(!world.ledger.raise(&nobody, 25).await.expect("raise"), "there is no such agent");
    let tree = reached(Pool::Tree(id("a")), 100);
    assert!(world.ledger.raise(&tree, 50).await.expect("raise"));
    assert_eq!(
        world.ledger.pool(&Pool::Tree(id("a")), Limits::NONE).await.expect("pool").limits,
        Some(tokens(150))
    );
    // A day's limit of the settings, for that day; the next has what it had.
    world.opens(&account("b", None, Limits::NONE)).await;
    assert_eq!(over(world.asks_on("b", 120, DAY, tokens(100), 1).await), Some(Scope::Day));
    assert!(world.ledger.raise(&reached(Pool::Day(DAY), 100), 50).await.expect("raise"));
    world.asks_on("b", 120, DAY, tokens(100), 1).await.expect("raised");
    let tomorrow = DAY.tomorrow().expect("day");
    assert_eq!(over(world.asks_on("b", 120, tomorrow, tokens(100), 1).await), Some(Scope::Day));
    let repo = Pool::RepoDay("/repo".into(), DAY);
    assert!(world.ledger.raise(&reached(repo.clone(), 100), 50).await.expect("raise"));
    assert_eq!(world.ledger.pool(&repo, tokens(100)).await.expect("pool").limits, Some(tokens(150)));
    // What a person sets afterwards takes its place.
    world.ledger.change_limit(&SetLimit::RepoDay("/repo".into()), None).await.expect("unset");
    assert_eq!(world.ledger.pool(&repo, tokens(100)).await.expect("pool").limits, None);
    world.ledger.change_limit(&SetLimit::Day, Some(tokens(90))).await.expect("set");
    assert_eq!(
        world.ledger.pool(&Pool::Day(DAY), Limits::NONE).await.expect("pool").limits,
        Some(tokens(90))
    );
}

#[tokio::test]
async fn r20_a_yes_at_a_days_limit_raises_no_other_limit_of_that_day() {
    let mut world = world().await;
    world.opens(&account("a", None, Limits::NONE)).await;
    // The settings of one repo narrow the day to 100 tokens; elsewhere it has 1,000.
    let narrow = Reached { pool: Pool::Day(DAY), kind: Kind::Tokens, limit: 100, of_settings: tokens(100) };
    assert_eq!(over(world.asks_on("a", 120, DAY, tokens(100), 1).await), Some(Scope::Day));
    assert!(world.ledger.raise(&narrow, 50).await.expect("raise"));
    world.asks_on("a", 120, DAY, tokens(100), 1).await.expect("raised");
    world.asks_on("a", 500, DAY, tokens(1_000), 1).await.expect("the wide limit holds as it was");
    assert_eq!(over(world.asks_on("a", 500, DAY, tokens(1_000), 1).await), Some(Scope::Day));
    // Raised once more, it is still one limit.
    assert!(world.ledger.raise(&Reached { limit: 150, ..narrow.clone() }, 700).await.expect("raise"));
    world.asks_on("a", 200, DAY, tokens(100), 1).await.expect("raised again");
    // A limit that a person has set can be raised, too, and what a person sets takes back every raise.
    world.ledger.change_limit(&SetLimit::Day, Some(tokens(900))).await.expect("set");
    assert_eq!(over(world.asks_on("a", 200, DAY, tokens(100), 1).await), Some(Scope::Day));
    assert!(world.ledger.raise(&Reached { limit: 900, ..narrow.clone() }, 600).await.expect("raise"));
    world.asks_on("a", 200, DAY, tokens(1_000), 1).await.expect("for whoever has the set limit");
    world.ledger.change_limit(&SetLimit::Day, None).await.expect("unset");
    assert_eq!(over(world.asks_on("a", 1, DAY, tokens(100), 1).await), Some(Scope::Day));
}

#[tokio::test]
async fn r20_of_all_who_come_to_a_limit_one_asks() {
    let mut world = world().await;
    let (a, b, first, second) = (id("a"), id("b"), owner(1), owner(2));
    let (one, other) = (asker(&a, &first, 10), asker(&b, &second, 10));
    let pool = Pool::Day(DAY);
    let nobody = |_: &ReservationOwner| false;
    assert_eq!(world.ledger.take_question(&pool, one, nobody).await.expect("turn"), AskTurn::Ours);
    assert_eq!(world.ledger.take_question(&pool, one, nobody).await.expect("turn"), AskTurn::Ours);
    assert_eq!(
        world.ledger.take_question(&pool, other, nobody).await.expect("turn"),
        AskTurn::Others(id("a"))
    );
    // Another process of the same agent is somebody else, too.
    let again = asker(&a, &second, 10);
    assert_eq!(
        world.ledger.take_question(&pool, again, nobody).await.expect("turn"),
        AskTurn::Others(id("a"))
    );
    // Another limit is another question.
    assert_eq!(
        world.ledger.take_question(&Pool::Tree(id("b")), other, nobody).await.expect("turn"),
        AskTurn::Ours
    );
    // Its no is the answer for those who waited, and not for who comes later.
    world.ledger.close_question(&pool, one, QuestionEnd::Denied(20)).await.expect("close");
    assert_eq!(world.ledger.take_question(&pool, other, nobody).await.expect("turn"), AskTurn::Denied);
    assert_eq!(
        world.ledger.take_question(&pool, asker(&b, &second, 21), nobody).await.expect("turn"),
        AskTurn::Ours
    );
    // Whoever asks and is gone asks no more.
    assert_eq!(
        world.ledger.take_question(&pool, one, |owner| owner.pid == 2).await.expect("turn"),
        AskTurn::Ours
    );
    world.ledger.close_question(&pool, one, QuestionEnd::Open).await.expect("close");
    assert_eq!(world.ledger.take_question(&pool, other, nobody).await.expect("turn"), AskTurn::Ours);
}

#[tokio::test]
async fn r20_the_fullest_limit_is_the_nearest() {
    let mut world = world().await;
    // Of two that are as full, the narrower one: it comes first.
    for (name, tree, day, wanted) in [
        ("a", 100, 90, (Scope::Day, 90)),
        ("b", 100, 180, (Scope::Day, 180)),
        ("c", 100, 310, (Scope::Tree(id("c")), 100)),
        ("d", 100, 400, (Scope::Tree(id("d")), 100)),
    ] {
        world.opens(&account(name, None, tokens(tree))).await;
        let granted = world.asks_on(name, 85, DAY, tokens(day), 1).await.expect("fits");
        let nearest = granted.nearest.expect("near");
        assert_eq!((nearest.scope, nearest.limit), wanted);
    }
}

#[tokio::test]
async fn r20_what_is_released_is_held_no_more_and_a_request_without_a_price_is_counted() {
    let mut world = world().await;
    world.opens(&account("a", None, Limits::NONE)).await;
    let granted = world.asks("a", 30).await.expect("fits");
    world.ledger.release(&granted.reservation).await.expect("release");
    let day = Pool::Day(DAY);
    let held = world.ledger.pool(&day, Limits::NONE).await.expect("pool").meter.held;
    assert_eq!((held.tokens, held.usd, held.turns), (0, MicroUsd(0), 0));
    // The price of the estimate stands for one that the answer lacks.
    let priced = world.asks("a", 5).await.expect("fits");
    world.ledger.settle(&priced.reservation, input(5), None, 0).await.expect("settle");
    let (account, owner) = (id("a"), owner(1));
    let request = LedgerRequest { cost: None, ..request(&account, &owner, 7) };
    let unpriced = world.ledger.reserve(&request, Stamp::now()).await.expect("fits");
    let spent = world.ledger.pool(&day, Limits::NONE).await.expect("pool").meter.spent;
    assert_eq!((spent.unpriced, spent.usd), (0, MicroUsd(5)));
    world.ledger.settle(&unpriced.reservation, input(7), None, 0).await.expect("settle");
    let spent = world.ledger.pool(&day, Limits::NONE).await.expect("pool").meter.spent;
    assert_eq!((spent.unpriced, spent.usd, spent.usage.total()), (1, MicroUsd(5), 12));
}

#[tokio::test]
async fn accounts_are_found_by_their_label_or_the_beginning_of_their_name() {
    let mut world = world().await;
    let labelled = Account { label: Some("review".to_owned()), ..account("b7", Some("a1"), tokens(9)) };
    for own in [&account("a1", None, Limits::NONE), &account("a2", None, Limits::NONE), &labelled] {
        world.opens(own).await;
    }
    let mut found = async |name: &str| world.ledger.find_accounts(name).await.expect("find");
    assert_eq!(found("review").await, std::slice::from_ref(&labelled));
    assert_eq!(found("b").await, [labelled]);
    let ids: Vec<AccountId> = found("a").await.into_iter().map(|account| account.id).collect();
    assert_eq!(ids, [id("a2"), id("a1")]);
    assert_eq!(found("c").await, []);
}

#[tokio::test]
async fn a_limit_that_a_person_set_is_told() {
    let mut world = world().await;
    assert_eq!(world.ledger.set_limit(&SetLimit::Day).await.expect("read"), None);
    world.ledger.change_limit(&SetLimit::Day, Some(tokens(90))).await.expect("set");
    assert_eq!(world.ledger.set_limit(&SetLimit::Day).await.expect("read"), Some(tokens(90)));
    world.ledger.change_limit(&SetLimit::Day, None).await.expect("unset");
    assert_eq!(world.ledger.set_limit(&SetLimit::Day).await.expect("read"), None);
}

#[tokio::test]
async fn r24_a_lane_stands_as_the_server_said() {
    let mut world = world().await;
    let (ledger, me) = (&mut world.ledger, owner(1));
    let lane = |name: &str| Lane::new("boot", name);
    // While there is nothing to wait for, asking writes nothing.
    let open = lane("open");
    assert_eq!(ledger.admit(&open, 0, None, &me, 1_000, 1_000).await.expect("admit"), Admission::Go);
    assert_eq!(ledger.lane(&open).await.expect("lane"), Default::default());
    // The server may name no time; then the wait is ours.
    for (name, asked, until) in [("zero", Some(0), 1_500), ("none", None, 1_500), ("asked", Some(7), 1_007)] {
        let state = ledger.limited(&lane(name), "429", asked, 1_000, 1_000).await.expect("limited");
        assert_eq!((state.until_ms, state.strikes, state.reason.as_str()), (until, 1, "429"), "{name}");
        assert_eq!(ledger.lane(&lane(name)).await.expect("lane"), (state, 0));
    }
    let waiting = ledger.admit(&lane("none"), 0, None, &me, 1_000, 1_000).await.expect("admit");
    assert!(matches!(waiting, Admission::Wait { until_ms: 1_500, .. }), "{waiting:?}");
    assert_eq!(ledger.lane(&lane("none")).await.expect("lane").1, 1);
    // Up to half of the allowance nobody is slowed down.
    for (left, interval) in [(50, 0), (49, 1_224)] {
        let name = lane(&format!("half{left}"));
        ledger.answered(&name, Some((100, left, 60_000)), 10).await.expect("answered");
        assert_eq!(ledger.lane(&name).await.expect("lane").0.interval_ms, interval);
    }
    // Used up: closed until it is renewed, and it says why if that is to come.
    for (reset, until, reason) in [(60_000, 60_010, "the allowance of this key is used up"), (0, 10, "")] {
        let name = lane(&format!("used{reset}"));
        ledger.answered(&name, Some((100, 0, reset)), 10).await.expect("answered");
        let (state, _) = ledger.lane(&name).await.expect("lane");
        assert_eq!((state.until_ms, state.reason.as_str()), (until, reason));
    }
}

#[test]
fn a_refusal_is_not_a_busy_store() {
    assert!(!LedgerError::Refused(ReserveRefused::NoAccount(id("a"))).is_busy());
    assert!(LedgerError::Store(StoreError::Busy("/x".into())).is_busy());
}
