//! The ledger against a model: whatever happens in whatever order, its answers and sums are those of the ledger in memory.

use caliban_core::budget::{Estimate, Limits, ReserveRefused, Scope};
use caliban_core::price::MicroUsd;
use caliban_core::usage::Usage;
use caliban_store::ledger::{Ledger, LedgerError, LedgerRequest, Pool, Reservation};
use caliban_store::{Stamp, StoreUrl};
use proptest::prelude::*;

use crate::ledger::{DAY, account, id, owner, tokens};
use crate::model_ledger::{ModelLedger, ModelReservation};

const AGENTS: usize = 5;

#[derive(Debug, Clone)]
enum Step {
    Reserve { agent: usize, usage: u64, cached: u64, priced: bool, pid: i32 },
    Settle { which: usize, usage: u64, cached: u64 },
    Release { which: usize },
    Kill { pid: i32 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..AGENTS, 0..60_u64, 0..90_u64, prop::bool::weighted(0.9), 1..4_i32)
            .prop_map(|(agent, usage, cached, priced, pid)| Step::Reserve { agent, usage, cached, priced, pid }),
        3 => (any::<usize>(), 0..90_u64, 0..90_u64)
            .prop_map(|(which, usage, cached)| Step::Settle { which, usage, cached }),
        1 => any::<usize>().prop_map(|which| Step::Release { which }),
        1 => (1..4_i32).prop_map(|pid| Step::Kill { pid }),
    ]
}

/// Members: the parent of each, and a limit with whether it counts new tokens only.
type FamilyMembers = Vec<(Option<usize>, Option<(u64, bool)>)>;

/// For each agent: whose child it is, and what its tree may spend, in all or of new tokens.
fn family() -> impl Strategy<Value = FamilyMembers> {
    let parents: Vec<_> = (0..AGENTS).map(|n| prop::option::weighted(0.7, 0..n.max(1))).collect();
    (parents, prop::collection::vec(prop::option::of((0..300_u64, any::<bool>())), AGENTS)).prop_map(
        |(parents, limits)| {
            let parents = parents.into_iter().enumerate();
            parents.map(|(n, parent)| parent.filter(|parent| *parent < n)).zip(limits).collect()
        },
    )
}

type Open = (Reservation, ModelReservation, i32);

fn name(agent: usize) -> String {
    format!("a{agent}")
}

/// The refusal in a form that both have.
fn refusal(error: LedgerError) -> String {
    match error {
        LedgerError::Refused(ReserveRefused::Over { scope: Scope::Day, .. }) => "day".to_owned(),
        LedgerError::Refused(ReserveRefused::NoPrice(Scope::Day)) => "day has no price".to_owned(),
        other => other.to_string(),
    }
}

fn models_refusal(error: ReserveRefused<String>) -> String {
    match error {
        ReserveRefused::Over { scope: Scope::Pool, .. } => "day".to_owned(),
        ReserveRefused::NoPrice(Scope::Pool) => "day has no price".to_owned(),
        other => other.to_string(),
    }
}

async fn check(family: FamilyMembers, per_day: Limits, steps: Vec<Step>) {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut ledger = Ledger::open(&StoreUrl::sqlite(dir.path().join("ledger.db"))).await.expect("open");
    let mut model = ModelLedger::new(per_day);
    for (agent, (parent, limit)) in family.iter().enumerate() {
        let tree = limit.map_or(Limits::NONE, |(limit, is_fresh)| match is_fresh {
            true => Limits { fresh: Some(limit), ..Limits::NONE },
            false => tokens(limit),
        });
        let above = parent.map(name);
        let own = account(&name(agent), above.as_deref(), tree);
        ledger.open_account(&own, Stamp::now()).await.expect("open account");
        model.open_account(name(agent), above, tree);
    }
    let mut open: Vec<Open> = Vec::new();
    for step in steps {
        match step {
            Step::Reserve { agent, usage, cached, priced, pid } => {
                let cost = priced.then_some(MicroUsd(usage));
                let usage = Usage { input: usage, cache_read: cached, ..Usage::default() };
                let request = LedgerRequest {
                    account: &id(&name(agent)),
                    owner: &owner(pid),
                    model: "m",
                    usage,
                    cost,
                    turns: 1,
                    day: DAY,
                    per_repo_day: Limits::NONE,
                    per_day,
                };
                let granted = ledger.reserve(&request, Stamp::now()).await;
                let estimate = Estimate { usage, cost, turns: 1 };
                let expected = model.reserve(&name(agent), estimate);
                match (granted, expected) {
                    (Ok(granted), Ok(expected)) => open.push((granted.reservation, expected, pid)),
                    (Err(one), Err(other)) => assert_eq!(refusal(one), models_refusal(other)),
                    (one, other) => panic!("{one:?} is not {other:?}"),
                }
            }
            Step::Settle { which, usage, cached } if !open.is_empty() => {
                let (reservation, models, _) = open.swap_remove(which % open.len());
                let usage = Usage { output: usage, cache_read: cached, ..Usage::default() };
                let cost = Some(MicroUsd(usage.total()));
                ledger.settle(&reservation, usage, cost, 0).await.expect("settle");
                model.settle(models, usage, cost);
            }
            Step::Release { which } if !open.is_empty() => {
                let (reservation, models, _) = open.swap_remove(which % open.len());
                ledger.release(&reservation).await.expect("release");
                model.release(models);
            }
            Step::Kill { pid } => {
                let booked = ledger.settle_dead(|owner| owner.pid == pid).await.expect("dead");
                let (dead, living): (Vec<Open>, Vec<Open>) = open.into_iter().partition(|open| open.2 == pid);
                assert_eq!(booked, dead.len() as u64);
                for (_, models, _) in dead {
                    model.settle_unknown(models);
                }
                open = living;
            }
            Step::Settle { .. } | Step::Release { .. } => {}
        }
        for agent in 0..AGENTS {
            let tree = ledger.pool(&Pool::Tree(id(&name(agent))), Limits::NONE).await.expect("pool").meter;
            assert_eq!(tree.spent, model.tree_spent(&name(agent)));
            let own = ledger.pool(&Pool::Agent(id(&name(agent))), Limits::NONE).await.expect("pool").meter;
            assert_eq!(own.spent, model.spent(&name(agent)));
        }
        for pool in [Pool::Day(DAY), Pool::RepoDay("/repo".into(), DAY), Pool::Everything] {
            let state = ledger.pool(&pool, Limits::NONE).await.expect("pool").meter;
            assert_eq!(state.spent, model.pool_spent(), "{pool:?}");
        }
        assert_eq!(ledger.in_flight().await.expect("count"), open.len() as u64);
    }
    ledger.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn r20_the_ledger_does_what_its_model_does(
        family in family(),
        pool in prop::option::of(0..400_u64),
        usd in prop::option::weighted(0.2, 0..400_u64),
        steps in prop::collection::vec(step(), 1..40),
    ) {
        let per_day = Limits { tokens: pool, usd: usd.map(MicroUsd), ..Limits::NONE };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(check(family, per_day, steps));
    }
}
