//! The ledger, by example and against a naive model of itself.

use caliban_core::budget::{
    AccountError, Estimate, Held, Kind, Ledger, Limits, Meter, Millis, NotOpen, Reservation, ReserveRefused,
    Scope, Snapshot, Spent,
};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use proptest::prelude::*;

const T0: Millis = Millis(1_000);

fn tokens(limit: u64) -> Limits {
    Limits { tokens: Some(limit), ..Limits::NONE }
}

fn ask(tokens: u64) -> Estimate {
    Estimate { usage: input(tokens), cost: Some(MicroUsd(tokens * 10)), turns: 1 }
}

/// The same for a prompt of which a part is read from the cache.
fn ask_cached(tokens: u64, cached: u64) -> Estimate {
    let usage = Usage { input: tokens - cached, cache_read: cached, ..Usage::default() };
    Estimate { usage, ..ask(tokens) }
}

fn input(tokens: u64) -> Usage {
    Usage { input: tokens, ..Usage::default() }
}

fn fresh(limit: u64) -> Limits {
    Limits { fresh: Some(limit), ..Limits::NONE }
}

fn used(tokens: u64) -> Usage {
    // All four kinds count.
    let part = tokens / 4;
    Usage { input: tokens - 3 * part, output: part, cache_read: part, cache_write: part }
}

/// A director (0) with two helpers (1, 2); helper 2 has one of its own (3).
fn tree(pool: Limits, own: [Limits; 4], below: [Limits; 4]) -> Ledger<u32> {
    let mut ledger = Ledger::new(pool);
    for (id, parent) in [(0, None), (1, Some(0)), (2, Some(0)), (3, Some(2))] {
        ledger.open_account(id, parent, own[id as usize], below[id as usize]).unwrap();
    }
    ledger
}

fn stored(ledger: &mut Ledger<u32>, now: Millis) -> Ledger<u32> {
    let text = serde_json::to_string(&ledger.snapshot(now)).unwrap();
    Ledger::restore(serde_json::from_str::<Snapshot<u32>>(&text).unwrap()).unwrap()
}

#[test]
fn a_request_is_reserved_then_settled() {
    let mut ledger = Ledger::new(Limits::NONE);
    ledger.open_account(7, None, tokens(100), Limits::NONE).unwrap();
    let first = ledger.reserve(&7, ask(60), T0).unwrap();
    assert_eq!(
        ledger.reserve(&7, ask(50), T0),
        Err(ReserveRefused::Over {
            scope: Scope::Agent,
            kind: Kind::Tokens,
            limit: 100,
            spent: 0,
            reserved: 60,
            asked: 50
        })
    );
    ledger.settle(first, used(40), Some(MicroUsd(5))).unwrap();
    let spent = Spent { usage: used(40), usd: MicroUsd(5), turns: 1, ..Spent::default() };
    assert_eq!((ledger.spent(&7), ledger.pool_spent()), (Some(spent), spent));
    assert_eq!(ledger.remaining(&7), Some(tokens(60)));
    ledger.reserve(&7, ask(50), T0).unwrap();
}

#[test]
fn refusals_are_words() {
    let mut ledger =
        tree(tokens(1_000), [Limits::NONE; 4], [Limits::NONE, Limits::NONE, tokens(50), Limits::NONE]);
    assert_eq!(
        ledger.reserve(&3, ask(60), T0).unwrap_err().to_string(),
        "the token budget of 2 and those it started is used up: 0 of 50 tokens spent, 0 in flight, \
         the next request may need 60"
    );
    assert_eq!(
        ledger.reserve(&1, ask(1_001), T0).unwrap_err().to_string(),
        "the token budget of all agents together is used up: 0 of 1000 tokens spent, 0 in flight, \
         the next request may need 1001"
    );
    assert_eq!(ledger.reserve(&9, ask(1), T0), Err(ReserveRefused::NoAccount(9)));
    assert_eq!(
        ReserveRefused::NoPrice(Scope::Tree(2)).to_string(),
        "the budget of 2 and those it started is in dollars, and the price of this model is not known; \
         use a budget in tokens"
    );
}

#[test]
fn a_dollar_limit_needs_a_price() {
    let mut ledger = Ledger::new(Limits::NONE);
    ledger.open_account(0, None, Limits { usd: Some(MicroUsd(500)), ..Limits::NONE }, Limits::NONE).unwrap();
    ledger.open_account(1, None, Limits::NONE, Limits::NONE).unwrap();
    let unpriced = Estimate { cost: None, ..ask(5) };
    assert_eq!(ledger.reserve(&0, unpriced, T0), Err(ReserveRefused::NoPrice(Scope::Agent)));
    // Without such a limit it is counted as unknown, not as free.
    let open = ledger.reserve(&1, unpriced, T0).unwrap();
    ledger.settle(open, used(5), None).unwrap();
    assert_eq!(ledger.spent(&1), Some(Spent { usage: used(5), turns: 1, unpriced: 1, ..Spent::default() }));
    let open = ledger.reserve(&0, ask(50), T0).unwrap();
    assert_eq!(
        ledger.reserve(&0, ask(1), T0).unwrap_err().to_string(),
        "the dollar budget of this agent is used up: $0.0000 of $0.0005 spent, $0.0005 in flight, \
         the next request may need $0.0001"
    );
    // A settled cost that is not known counts as what was reserved.
    ledger.settle(open, used(5), None).unwrap();
    let spent = ledger.spent(&0).unwrap();
    assert_eq!((spent.usd, spent.unpriced), (MicroUsd(500), 0));
    // A cost that is known in the end is not counted as unknown.
    let open = ledger.reserve(&1, unpriced, T0).unwrap();
    ledger.settle(open, used(5), Some(MicroUsd(7))).unwrap();
    let spent = ledger.spent(&1).unwrap();
    assert_eq!((spent.usd, spent.unpriced), (MicroUsd(7), 1));
}

#[test]
fn what_is_left_is_the_narrowest_of_each_kind() {
    let all = |tokens, usd, turns, wall_ms| Limits {
        fresh: None,
        tokens: Some(tokens),
        usd: Some(MicroUsd(usd)),
        turns: Some(turns),
        wall_ms: Some(wall_ms),
    };
    let mut ledger = Ledger::new(all(100, 9_000, 90, 9_000));
    ledger.open_account(0, None, Limits::NONE, all(900, 1_000, 90, 8_000)).unwrap();
    ledger.open_account(1, Some(0), all(900, 9_000, 10, 7_000), Limits::NONE).unwrap();
    assert_eq!(ledger.remaining(&1), Some(all(100, 1_000, 10, 7_000)));
    ledger.start(&1, Millis(0));
    let open = ledger.reserve(&1, ask(20), Millis(1_000)).unwrap();
    ledger.settle(open, used(10), Some(MicroUsd(50))).unwrap();
    ledger.reserve(&1, ask(20), Millis(2_000)).unwrap();
    assert_eq!(ledger.remaining(&1), Some(all(70, 750, 8, 5_000)));
    assert_eq!(ledger.remaining(&9), None);
}

#[test]
fn agents_one_below_the_other_are_restored() {
    let mut ledger = Ledger::new(Limits::NONE);
    for id in 0..4_u32 {
        ledger.open_account(id, id.checked_sub(1), Limits::NONE, Limits::NONE).unwrap();
    }
    ledger.carry_over(&3, Spent { turns: 1, ..Spent::default() }).unwrap();
    assert_eq!(stored(&mut ledger, T0).tree_spent(&0).unwrap().turns, 1);
}

#[test]
fn ended_agents_keep_counting_in_tree_and_pool() {
    let mut ledger =
        tree(tokens(200), [Limits::NONE; 4], [tokens(100), Limits::NONE, Limits::NONE, Limits::NONE]);
    let open = ledger.reserve(&3, ask(70), T0).unwrap();
    ledger.settle(open, used(70), None).unwrap();
    ledger.end(&3, T0);
    assert_eq!(ledger.tree_spent(&0).unwrap().usage.total(), 70);
    assert_eq!(ledger.spent(&0).unwrap().usage.total(), 0);
    assert_eq!(
        ledger.reserve(&1, ask(31), T0),
        Err(ReserveRefused::Over {
            scope: Scope::Tree(0),
            kind: Kind::Tokens,
            limit: 100,
            spent: 70,
            reserved: 0,
            asked: 31
        })
    );
    assert_eq!(ledger.open_account(3, None, Limits::NONE, Limits::NONE), Err(AccountError::Exists(3)));
    assert_eq!(ledger.open_account(8, Some(9), Limits::NONE, Limits::NONE), Err(AccountError::NoParent(9)));
}

#[test]
fn turns_and_running_time_are_limits_too() {
    let limits = Limits { turns: Some(2), wall_ms: Some(10_000), ..Limits::NONE };
    let mut ledger = Ledger::new(Limits::NONE);
    ledger.open_account(0, None, limits, Limits::NONE).unwrap();
    ledger.start(&0, Millis(0));
    ledger.pause(&0, Millis(4_000));
    ledger.start(&0, Millis(100_000));
    for now in [101_000, 102_000] {
        let open = ledger.reserve(&0, ask(1), Millis(now)).unwrap();
        ledger.settle(open, used(1), None).unwrap();
    }
    assert_eq!(
        ledger.reserve(&0, ask(1), Millis(103_000)).unwrap_err().to_string(),
        "the turn budget of this agent is used up: 2 of 2 turns taken"
    );
    // A summary is no turn.
    let summary = Estimate { turns: 0, ..ask(1) };
    let open = ledger.reserve(&0, summary, Millis(105_000)).unwrap();
    ledger.release(open).unwrap();
    assert_eq!(
        ledger.reserve(&0, summary, Millis(106_000)).unwrap_err().to_string(),
        "the time budget of this agent is used up: 10 of 10 seconds"
    );
    // A clock that goes back takes nothing back, and gives nothing twice.
    ledger.snapshot(Millis(0));
    ledger.pause(&0, Millis(106_000));
    assert_eq!(ledger.spent(&0).unwrap().wall_ms, 10_000);
}

/// Own time, and that of the tree, of all four; and the pool's.
fn times(ledger: &Ledger<u32>) -> ([(u64, u64); 4], u64) {
    let of = |agent| (ledger.spent(&agent).unwrap().wall_ms, ledger.tree_spent(&agent).unwrap().wall_ms);
    ([of(0), of(1), of(2), of(3)], ledger.pool_spent().wall_ms)
}

#[test]
fn a_trees_time_is_that_in_which_anybody_in_it_works() {
    let mut ledger = tree(Limits::NONE, [Limits::NONE; 4], [Limits::NONE; 4]);
    // 2 is the parent of 3; 1 and 2 are helpers of 0.
    ledger.start(&0, Millis(1_000));
    ledger.start(&3, Millis(2_000));
    ledger.start(&1, Millis(3_000));
    ledger.pause(&0, Millis(4_000));
    ledger.pause(&1, Millis(5_000));
    ledger.pause(&3, Millis(7_000));
    // Everybody waits: for an hour nobody's time goes on.
    ledger.start(&2, Millis(3_607_000));
    ledger.count_time(Millis(3_608_000));
    let expected = ([(3_000, 7_000), (2_000, 2_000), (1_000, 6_000), (5_000, 5_000)], 7_000);
    assert_eq!(times(&ledger), expected);
    let stored = stored(&mut ledger, Millis(3_608_000));
    assert_eq!(times(&stored), expected);
}

#[test]
fn a_clock_that_begins_again_after_a_restart_counts_from_there() {
    let mut ledger = tree(Limits::NONE, [Limits::NONE; 4], [Limits::NONE; 4]);
    ledger.start(&0, Millis(50_000));
    let mut ledger = stored(&mut ledger, Millis(60_000));
    ledger.start(&0, Millis(5));
    ledger.pause(&0, Millis(1_005));
    assert_eq!(ledger.spent(&0).unwrap().wall_ms, 11_000);
}

#[test]
fn r20_open_reservations_hold_across_a_restart() {
    let mut ledger = Ledger::new(tokens(100));
    ledger.open_account(0, None, Limits::NONE, Limits::NONE).unwrap();
    ledger.start(&0, Millis(0));
    let late = ledger.reserve(&0, ask(60), Millis(500)).unwrap();
    let lost = ledger.reserve(&0, ask(30), Millis(500)).unwrap();
    let mut ledger = stored(&mut ledger, Millis(2_000));
    assert_eq!(ledger.remaining(&0), Some(tokens(10)));
    assert_eq!(ledger.spent(&0).unwrap().wall_ms, 2_000);
    // The worker outlived the daemon and says what it was.
    ledger.settle(late, used(20), None).unwrap();
    assert_eq!(ledger.remaining(&0), Some(tokens(50)));
    // The other one never will.
    ledger.end(&0, Millis(0));
    assert_eq!(ledger.remaining(&0), Some(tokens(50)));
    assert_eq!(ledger.spent(&0).unwrap().usage.total(), 50);
    assert_eq!(ledger.settle(lost, used(1), None), Err(NotOpen));
    assert_eq!(ledger.release(late), Err(NotOpen));
}

#[test]
fn what_was_spent_elsewhere_counts() {
    let mut ledger =
        tree(tokens(100), [Limits::NONE; 4], [tokens(60), Limits::NONE, Limits::NONE, Limits::NONE]);
    let before = Spent { usage: used(70), usd: MicroUsd(3), turns: 4, wall_ms: 5, unpriced: 1 };
    ledger.carry_over(&3, before).unwrap();
    assert_eq!(
        [ledger.spent(&3), ledger.tree_spent(&0), Some(ledger.pool_spent()), ledger.spent(&0)],
        [Some(before), Some(before), Some(before), Some(Spent::default())]
    );
    assert_eq!(ledger.remaining(&1), Some(tokens(0)));
    assert_eq!(ledger.carry_over(&9, before), Err(ReserveRefused::NoAccount(9)));
}

#[test]
fn limits_are_stored_under_clear_names() {
    let limits =
        Limits { tokens: Some(1), fresh: Some(5), usd: Some(MicroUsd(2)), turns: Some(3), wall_ms: Some(4) };
    let stored = serde_json::json!({"tokens": 1, "fresh": 5, "usd_micros": 2, "turns": 3, "wall_ms": 4});
    assert_eq!(serde_json::to_value(limits).unwrap(), stored);
    assert_eq!(serde_json::from_value::<Limits>(stored).unwrap(), limits);
    assert_eq!(serde_json::from_str::<Limits>("{}").unwrap(), Limits::NONE);
}

#[test]
fn a_ledger_that_contradicts_itself_is_refused() {
    let mut ledger = tree(Limits::NONE, [Limits::NONE; 4], [Limits::NONE; 4]);
    ledger.reserve(&1, ask(1), T0).unwrap();
    let good = serde_json::to_value(ledger.snapshot(T0)).unwrap();
    type Damage = fn(&mut serde_json::Value);
    let damages: [(Damage, &str); 5] = [
        (|v| v["accounts"][0]["parent"] = 3.into(), "an account is above itself"),
        (|v| v["accounts"][1]["parent"] = 9.into(), "an account's parent is missing"),
        (|v| v["accounts"][1]["id"] = 0.into(), "an account is there twice"),
        (|v| v["open"][0]["id"] = 9.into(), "a reservation has no account"),
        (|v| v["next"] = 0.into(), "a reservation is newer than the ledger"),
    ];
    for (damage, why) in damages {
        let mut value = good.clone();
        damage(&mut value);
        let error = Ledger::<u32>::restore(serde_json::from_value(value).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), format!("the stored ledger contradicts itself: {why}"));
    }
}

#[derive(Debug, Clone)]
enum Step {
    Reserve { agent: u32, tokens: u64, cached: u64 },
    Settle { which: usize, tokens: u64 },
    SettleUnknown { which: usize },
    Release { which: usize },
    End { agent: u32 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u32..4, 0u64..60, 0u64..80)
            .prop_map(|(agent, tokens, cached)| Step::Reserve { agent, tokens, cached: cached.min(tokens) }),
        4 => (any::<usize>(), 0u64..90).prop_map(|(which, tokens)| Step::Settle { which, tokens }),
        1 => any::<usize>().prop_map(|which| Step::SettleUnknown { which }),
        1 => any::<usize>().prop_map(|which| Step::Release { which }),
        1 => (0u32..4).prop_map(|agent| Step::End { agent }),
        1 => Just(Step::Restart),
    ]
}

fn limit() -> impl Strategy<Value = Limits> {
    let one = || proptest::option::of(0u64..200);
    (one(), one(), one(), one()).prop_map(|(tokens, fresh, usd, turns)| Limits {
        tokens,
        fresh,
        usd: usd.map(|usd| MicroUsd(usd * 10)),
        turns: turns.map(|turns| turns / 20),
        wall_ms: None,
    })
}

/// One request as the model remembers it.
struct Request {
    agent: u32,
    reservation: Reservation,
    estimate: Estimate,
    /// `None` while in flight.
    outcome: Option<[u64; 4]>,
}

/// What the model counts of a usage: tokens, new tokens, micro-dollars, turns.
fn counts(usage: Usage) -> [u64; 4] {
    [usage.total(), usage.fresh(), usage.total() * 10, 1]
}

fn is_below(agent: u32, root: u32) -> bool {
    root == agent || root == 0 || (root == 2 && agent == 3)
}

/// Spent and held of each kind of those that `of` picks.
fn sums(requests: &[Request], of: impl Fn(u32) -> bool) -> [(u64, u64); 4] {
    let mut sums = [(0, 0); 4];
    for request in requests.iter().filter(|request| of(request.agent)) {
        for (kind, sum) in sums.iter_mut().enumerate() {
            match request.outcome {
                Some(spent) => sum.0 += spent[kind],
                None => sum.1 += counts(request.estimate.usage)[kind],
            }
        }
    }
    sums
}

/// What was spent of each kind, as the ledger says.
fn told(spent: Spent) -> [u64; 4] {
    [spent.usage.total(), spent.usage.fresh(), spent.usd.0, spent.turns]
}

fn fits(limits: Limits, sums: [(u64, u64); 4], asked: [u64; 4]) -> bool {
    let limits = [limits.tokens, limits.fresh, limits.usd.map(|usd| usd.0), limits.turns];
    (0..4).all(|i| asked[i] == 0 || limits[i].is_none_or(|limit| sums[i].0 + sums[i].1 + asked[i] <= limit))
}

proptest! {
    /// The ledger grants exactly what a naive model would, never goes negative, and a restart at any point
    /// changes nothing. From "granted only within the limit" follows that spending passes a limit at most by
    /// what requests in flight took beyond their estimates.
    #[test]
    fn r20_the_ledger_never_grants_more_than_the_limit(
        pool in limit(),
        own in proptest::array::uniform4(limit()),
        below in proptest::array::uniform4(limit()),
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let mut ledger = tree(pool, own, below);
        let mut requests: Vec<Request> = Vec::new();
        for step in steps {
            let flying: Vec<usize> =
                (0..requests.len()).filter(|at| requests[*at].outcome.is_none()).collect();
            let pick = |which: usize| (!flying.is_empty()).then(|| flying[which % flying.len()]);
            match step {
                Step::Reserve { agent, tokens, cached } => {
                    let estimate = ask_cached(tokens, cached);
                    let asked = counts(estimate.usage);
                    let allowed = fits(own[agent as usize], sums(&requests, |a| a == agent), asked)
                        && fits(pool, sums(&requests, |_| true), asked)
                        && (0..4).filter(|root| is_below(agent, *root)).all(|root| {
                            fits(below[root as usize], sums(&requests, |a| is_below(a, root)), asked)
                        });
                    let answer = ledger.reserve(&agent, estimate, T0);
                    prop_assert_eq!(answer.is_ok(), allowed, "{:?}", answer);
                    if let Ok(reservation) = answer {
                        requests.push(Request { agent, reservation, estimate, outcome: None });
                    }
                }
                Step::Settle { which, tokens } => {
                    if let Some(at) = pick(which) {
                        ledger.settle(requests[at].reservation, used(tokens), Some(MicroUsd(tokens * 10))).unwrap();
                        requests[at].outcome = Some(counts(used(tokens)));
                    }
                }
                Step::SettleUnknown { which } => {
                    if let Some(at) = pick(which) {
                        ledger.settle_unknown(requests[at].reservation).unwrap();
                        requests[at].outcome = Some(counts(requests[at].estimate.usage));
                    }
                }
                Step::Release { which } => {
                    if let Some(at) = pick(which) {
                        ledger.release(requests[at].reservation).unwrap();
                        prop_assert_eq!(ledger.release(requests[at].reservation), Err(NotOpen));
                        requests[at].outcome = Some([0; 4]);
                    }
                }
                Step::End { agent } => {
                    ledger.end(&agent, T0);
                    for request in requests.iter_mut().filter(|r| r.agent == agent && r.outcome.is_none()) {
                        request.outcome = Some(counts(request.estimate.usage));
                    }
                }
                Step::Restart => ledger = stored(&mut ledger, T0),
            }
            // What it says was spent is what was spent, for each agent, each tree and all.
            for agent in 0..4 {
                let wanted = sums(&requests, |a| a == agent).map(|(spent, _)| spent);
                let spent = ledger.spent(&agent).unwrap();
                prop_assert_eq!(told(spent), wanted);
                let wanted = sums(&requests, |a| is_below(a, agent)).map(|(spent, _)| spent);
                let spent = ledger.tree_spent(&agent).unwrap();
                prop_assert_eq!(told(spent), wanted);
            }
            let spent = ledger.pool_spent();
            let all = sums(&requests, |_| true);
            prop_assert_eq!(told(spent), all.map(|(spent, _)| spent));
            // A limit is passed at most by what requests took beyond their estimates.
            for (kind, limit) in [pool.tokens, pool.fresh].into_iter().enumerate() {
                let Some(limit) = limit else { continue };
                let beyond: u64 = requests
                    .iter()
                    .filter_map(|r| Some(r.outcome?[kind].saturating_sub(counts(r.estimate.usage)[kind])))
                    .sum();
                prop_assert!(all[kind].0 + all[kind].1 <= limit + beyond);
            }
        }
    }
}

#[test]
fn the_fullest_limit_is_near_from_its_percentage_on() {
    let meter = Meter {
        spent: Spent { usage: used(80), usd: MicroUsd(10), turns: 8, wall_ms: 5, ..Spent::default() },
        held: Held { tokens: 10, fresh: 10, usd: MicroUsd(20), turns: 1, priced: true },
    };
    let limits = Limits {
        tokens: Some(100),
        usd: Some(MicroUsd(100)),
        turns: Some(10),
        wall_ms: Some(100),
        ..Limits::NONE
    };
    assert_eq!(meter.is_near(limits, 91), None);
    // Of two that are as full, the later.
    assert_eq!(meter.is_near(limits, 90), Some((Kind::Turns, 10, 9)));
    assert_eq!(meter.is_near(Limits { turns: None, ..limits }, 30), Some((Kind::Tokens, 100, 90)));
    let money = Limits { usd: Some(MicroUsd(100)), wall_ms: Some(100), ..Limits::NONE };
    assert_eq!(meter.is_near(money, 30), Some((Kind::Usd, 100, 30)));
    assert_eq!(meter.is_near(Limits::NONE, 0), None);
}

#[test]
fn one_limit_is_read_and_set_by_its_kind() {
    let before =
        Limits { tokens: Some(1), fresh: Some(5), usd: Some(MicroUsd(2)), turns: Some(3), wall_ms: Some(4) };
    let all = [(Kind::Tokens, 1), (Kind::Usd, 2), (Kind::Turns, 3), (Kind::Wall, 4), (Kind::Fresh, 5)];
    for (kind, limit) in all {
        assert_eq!(before.of(kind), Some(limit));
        assert_eq!(Limits::NONE.of(kind), None);
        let after = before.with(kind, 9);
        assert_eq!(after.of(kind), Some(9));
        assert_ne!(after, before);
        assert_eq!(after.with(kind, limit), before);
    }
}

#[test]
fn b09_r20_a_limit_of_new_tokens_does_not_count_what_is_read_from_the_cache() {
    let mut ledger = Ledger::new(Limits::NONE);
    ledger.open_account(0, None, Limits::NONE, fresh(100)).unwrap();
    let first = ledger.reserve(&0, ask(60), T0).unwrap();
    ledger.settle(first, Usage { input: 20, output: 10, cache_read: 900, cache_write: 30 }, None).unwrap();
    // 40 are left, whatever is read from the cache.
    let second = ledger.reserve(&0, ask_cached(940, 900), T0).unwrap();
    let refused = ledger.reserve(&0, ask_cached(901, 900), T0).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the token budget of 0 and those it started is used up: 60 of 100 new tokens spent, 40 in flight, the next \
         request may need 1"
    );
    // The cache was lost: all of it was new, and counts.
    ledger.settle(second, input(940), None).unwrap();
    assert_eq!(ledger.tree_spent(&0).unwrap().usage.fresh(), 1_000);
    assert_eq!(ledger.remaining(&0), Some(fresh(0)));
    ledger.change_tree_limits(&0, |_| fresh(1_001));
    assert_eq!(ledger.remaining(&0), Some(fresh(1)));
}

#[test]
fn r20_of_two_counts_of_a_request_the_larger_holds_in_new_tokens_and_in_all() {
    let cached = Usage { input: 10, output: 5, cache_read: 900, cache_write: 0 };
    let lost = Usage { input: 300, output: 1, cache_read: 0, cache_write: 20 };
    assert_eq!(input(10).at_least(cached), cached);
    assert_eq!(cached.at_least(input(10)), cached);
    let both = lost.at_least(cached);
    assert_eq!((both.fresh(), both.total(), both.output), (321, 915, 1));
    let both = cached.at_least(lost);
    assert_eq!((both.fresh(), both.total(), both.output), (321, 915, 5));
}
