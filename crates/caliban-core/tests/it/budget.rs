//! Budgets: the arithmetic of a meter, what refusals say, and what a family counts along.

use caliban_core::budget::{
    AccountError, Estimate, FamilyTally, Held, Kind, Limits, Meter, Millis, ReserveRefused, Scope, Spent,
};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use proptest::prelude::*;

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

fn used(tokens: u64) -> Usage {
    // All four kinds count.
    let part = tokens / 4;
    Usage { input: tokens - 3 * part, output: part, cache_read: part, cache_write: part }
}

fn spent(usage: Usage) -> Meter {
    Meter { spent: Spent { usage, ..Spent::default() }, ..Meter::default() }
}

fn refused(meter: &Meter, limits: Limits, estimate: Estimate, scope: Scope<u32>) -> String {
    meter.check(limits, estimate, scope).unwrap_err().to_string()
}

#[test]
fn what_is_spent_held_and_asked_for_stays_within_a_limit() {
    let mut meter = spent(used(40));
    meter.hold(Held::from(ask(30)));
    assert_eq!(meter.check(tokens(100), ask(30), Scope::<u32>::Agent), Ok(()));
    let over = ReserveRefused::Over {
        scope: Scope::Agent,
        kind: Kind::Tokens,
        limit: 100,
        spent: 40,
        reserved: 30,
        asked: 31,
    };
    assert_eq!(meter.check(tokens(100), ask(31), Scope::<u32>::Agent), Err(over));
    // What was spent takes the place of what was held for it.
    meter.book(Held::from(ask(30)), Spent { usage: used(20), ..Spent::default() });
    assert_eq!(meter, spent(used(40) + used(20)));
}

#[test]
fn refusals_are_words() {
    let none = Meter::default();
    assert_eq!(
        refused(&none, tokens(50), ask(60), Scope::Tree(2)),
        "the token budget of 2 and those it started is used up: 0 of 50 tokens spent, 0 in flight, \
         the next request may need 60"
    );
    assert_eq!(
        refused(&none, tokens(1_000), ask(1_001), Scope::Pool),
        "the token budget of all agents together is used up: 0 of 1000 tokens spent, 0 in flight, \
         the next request may need 1001"
    );
    let fresh = Limits { fresh: Some(100), ..Limits::NONE };
    let usage = Usage { input: 20, output: 10, cache_read: 900, cache_write: 30 };
    let mut meter = spent(usage);
    meter.hold(Held::from(ask_cached(940, 900)));
    assert_eq!(
        refused(&meter, fresh, ask_cached(901, 900), Scope::Tree(0)),
        "the token budget of 0 and those it started is used up: 60 of 100 new tokens spent, 40 in flight, the next \
         request may need 1"
    );
    let turns = Limits { turns: Some(2), ..Limits::NONE };
    let two = Meter { spent: Spent { turns: 2, ..Spent::default() }, ..Meter::default() };
    assert_eq!(
        refused(&two, turns, ask(1), Scope::Agent),
        "the turn budget of this agent is used up: 2 of 2 turns taken"
    );
    // A summary is no turn.
    assert_eq!(two.check(turns, Estimate { turns: 0, ..ask(1) }, Scope::<u32>::Agent), Ok(()));
    let money = Limits { usd: Some(MicroUsd(500)), ..Limits::NONE };
    let mut held = Meter::default();
    held.hold(Held::from(ask(50)));
    assert_eq!(
        refused(&held, money, ask(1), Scope::Agent),
        "the dollar budget of this agent is used up: $0.0000 of $0.0005 spent, $0.0005 in flight, \
         the next request may need $0.0001"
    );
    let unpriced = Estimate { cost: None, ..ask(5) };
    assert_eq!(
        refused(&none, money, unpriced, Scope::Tree(2)),
        "the budget of 2 and those it started is in dollars, and the price of this model is not known; \
         use a budget in tokens"
    );
    assert_eq!(none.check(Limits::NONE, unpriced, Scope::<u32>::Agent), Ok(()));
}

#[test]
fn b09_r20_a_limit_of_new_tokens_does_not_count_what_is_read_from_the_cache() {
    let fresh = Limits { fresh: Some(100), ..Limits::NONE };
    let meter = spent(Usage { input: 20, output: 10, cache_read: 900, cache_write: 30 });
    assert_eq!(meter.check(fresh, ask_cached(940, 900), Scope::<u32>::Agent), Ok(()));
    assert!(meter.check(fresh, ask_cached(941, 900), Scope::<u32>::Agent).is_err());
}

/// A director (0) with two helpers (1, 2); helper 2 has one of its own (3).
fn family(limits: [Option<u64>; 4]) -> FamilyTally {
    let mut tally = FamilyTally::new("0", limits[0]);
    for (id, parent) in [(1, "0"), (2, "0"), (3, "2")] {
        tally.add(&id.to_string(), parent, limits[id]).unwrap();
    }
    tally
}

#[test]
fn a_name_is_taken_once_below_somebody() {
    let mut tally = family([None; 4]);
    assert_eq!(tally.add("3", "0", None), Err(AccountError::Exists("3".into())));
    assert_eq!(tally.add("8", "9", None), Err(AccountError::NoParent("9".into())));
}

#[test]
fn what_an_agent_spends_counts_for_all_above_it() {
    let mut tally = family([None; 4]);
    let some = Spent { usage: used(70), usd: MicroUsd(3), turns: 4, wall_ms: 5, unpriced: 1 };
    tally.book("3", some);
    tally.book("nobody", some);
    assert_eq!(["0", "1", "2", "3"].map(|id| tally.spent(id)), [some, Spent::default(), some, some]);
    assert_eq!(["0", "2", "3"].map(|id| tally.own(id)), [Spent::default(), Spent::default(), some]);
    assert_eq!(tally.worked_ms(), 5);
}

#[test]
fn a_trees_time_is_that_in_which_anybody_in_it_works() {
    let mut tally = family([None; 4]);
    // 2 is the parent of 3; 1 and 2 are helpers of 0.
    tally.start("0", Millis(1_000));
    tally.start("3", Millis(2_000));
    tally.start("1", Millis(3_000));
    tally.pause("0", Millis(4_000));
    tally.pause("1", Millis(5_000));
    tally.pause("3", Millis(7_000));
    // Everybody waits: for an hour nobody's time goes on.
    tally.start("2", Millis(3_607_000));
    tally.count_time(Millis(3_608_000));
    assert_eq!(["0", "1", "2", "3"].map(|id| tally.spent(id).wall_ms), [7_000, 2_000, 6_000, 5_000]);
    // A clock that goes back takes nothing back, and gives nothing twice.
    tally.count_time(Millis(0));
    tally.pause("2", Millis(3_608_000));
    assert_eq!(tally.worked_ms(), 7_000);
}

#[test]
fn the_narrowest_limit_of_time_holds_and_the_nearest_is_named() {
    let mut tally = family([Some(9_000), None, Some(3_000), None]);
    assert_eq!((tally.time_left("3"), tally.time_left("1")), (Some(3_000), Some(9_000)));
    tally.start("3", Millis(0));
    tally.pause("3", Millis(2_000));
    assert_eq!((tally.time_left("3"), tally.time_is_up("3")), (Some(1_000), None));
    tally.start("3", Millis(2_000));
    tally.count_time(Millis(3_000));
    assert_eq!(
        tally.time_is_up("3").unwrap().to_string(),
        "the time budget of 2 and those it started is used up: 3 of 3 seconds"
    );
    assert_eq!((tally.time_left("1"), tally.time_is_up("1")), (Some(6_000), None));
    assert_eq!(family([None; 4]).time_left("3"), None);
}

proptest! {
    #[test]
    fn a_tally_counts_what_each_agent_and_all_below_it_did(
        steps in proptest::collection::vec((0usize..4, any::<bool>(), 0u64..500, 0u64..50), 0..60),
    ) {
        const PARENTS: [Option<usize>; 4] = [None, Some(0), Some(0), Some(2)];
        let is_below = |agent: usize, root: usize| {
            std::iter::successors(Some(agent), |agent| PARENTS[*agent]).any(|above| above == root)
        };
        let mut tally = family([None; 4]);
        let (mut now, mut at_work, mut expected) = (0, [false; 4], [(0u64, 0u64); 4]);
        for (agent, works, elapsed, tokens) in steps {
            for (root, (time, _)) in expected.iter_mut().enumerate() {
                let is_busy = (0..4).any(|agent| at_work[agent] && is_below(agent, root));
                *time += if is_busy { elapsed } else { 0 };
            }
            now += elapsed;
            let id = agent.to_string();
            match works {
                true => tally.start(&id, Millis(now)),
                false => tally.pause(&id, Millis(now)),
            }
            at_work[agent] = works;
            tally.book(&id, Spent { usage: used(tokens), ..Spent::default() });
            for (root, (_, spent)) in expected.iter_mut().enumerate() {
                *spent += if is_below(agent, root) { tokens } else { 0 };
            }
            let found = [0, 1, 2, 3].map(|id: usize| {
                let spent = tally.spent(&id.to_string());
                (spent.wall_ms, spent.usage.total())
            });
            prop_assert_eq!(found, expected);
        }
    }
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
