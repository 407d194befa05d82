//! The ledger against sums over a list of requests: whatever is opened, reserved, counted, settled, released, killed and limited in
//! whatever order, a request is granted exactly when it fits, and every pool is the sum of its requests.
//!
//! `ledger_model.rs` compares with the ledger in memory, which has the same arithmetic; here nothing is shared with the code.

use caliban_core::budget::Limits;
use caliban_core::usage::Usage;
use caliban_store::ledger::{Account, Ledger, LedgerError, LedgerRequest, Pool, Reservation, SetLimit};
use caliban_store::{Stamp, StoreUrl};
use proptest::prelude::*;

use crate::ledger::{DAY, account, id, owner};

const AGENTS: usize = 4;

#[derive(Debug, Clone)]
enum Step {
    /// A process of an agent starts; the agent may be known.
    Open {
        agent: usize,
        parent: Option<usize>,
        own: Option<u64>,
        tree: Option<u64>,
    },
    Reserve {
        agent: usize,
        tokens: u64,
        pid: i32,
    },
    Count {
        which: usize,
        tokens: u64,
    },
    Settle {
        which: usize,
        tokens: u64,
    },
    Release {
        which: usize,
    },
    Kill {
        pid: i32,
    },
    LimitTree {
        agent: usize,
        limit: Option<u64>,
    },
    LimitDay {
        limit: Option<u64>,
    },
    LimitRepo {
        limit: Option<u64>,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let limit = || prop::option::weighted(0.7, 0..400_u64);
    prop_oneof![
        3 => (0..AGENTS, prop::option::of(0..AGENTS), limit(), limit())
            .prop_map(|(agent, parent, own, tree)| Step::Open { agent, parent, own, tree }),
        8 => (0..AGENTS, 0..90_u64, 1..4_i32)
            .prop_map(|(agent, tokens, pid)| Step::Reserve { agent, tokens, pid }),
        3 => (any::<usize>(), 0..150_u64).prop_map(|(which, tokens)| Step::Count { which, tokens }),
        4 => (any::<usize>(), 0..150_u64).prop_map(|(which, tokens)| Step::Settle { which, tokens }),
        2 => any::<usize>().prop_map(|which| Step::Release { which }),
        1 => (1..4_i32).prop_map(|pid| Step::Kill { pid }),
        2 => (0..AGENTS, limit()).prop_map(|(agent, limit)| Step::LimitTree { agent, limit }),
        1 => limit().prop_map(|limit| Step::LimitDay { limit }),
        1 => limit().prop_map(|limit| Step::LimitRepo { limit }),
    ]
}

/// An agent, as the last process that opened it said, and what a person has set.
#[derive(Debug, Clone, Default)]
struct Agent {
    parent: Option<usize>,
    own: Option<u64>,
    asked: Option<u64>,
    tree: Option<u64>,
}

#[derive(Debug)]
struct Sent {
    reservation: Reservation,
    agent: usize,
    pid: i32,
    estimate: u64,
    held: u64,
    spent: u64,
    is_open: bool,
}

#[derive(Debug, Default)]
struct Model {
    agents: [Option<Agent>; AGENTS],
    sent: Vec<Sent>,
    day: Option<u64>,
    repo: Option<u64>,
    /// What the settings say where nobody has set anything.
    settings: Option<u64>,
}

impl Model {
    fn above(&self, agent: usize) -> Vec<usize> {
        let mut chain = vec![agent];
        while let Some(parent) = chain.last().and_then(|agent| self.agents[*agent].as_ref()?.parent) {
            chain.push(parent);
        }
        chain
    }

    /// Spent and held by those of which this holds.
    fn sum(&self, of: impl Fn(usize) -> bool) -> (u64, u64) {
        let all = self.sent.iter().filter(|sent| of(sent.agent));
        all.fold((0, 0), |(spent, held), sent| (spent + sent.spent, held + sent.held))
    }

    fn fits(&self, agent: usize, tokens: u64) -> bool {
        // A request that asks for nothing is not stopped, not even where a pool is overdrawn.
        let fits = |(spent, held): (u64, u64), limit: Option<u64>| {
            tokens == 0 || limit.is_none_or(|limit| spent + held + tokens <= limit)
        };
        let Some(asking) = &self.agents[agent] else { return false };
        let trees = self.above(agent).into_iter().all(|top| {
            let limit = self.agents[top].as_ref().and_then(|agent| agent.tree);
            fits(self.sum(|one| self.above(one).contains(&top)), limit)
        });
        trees
            && fits(self.sum(|one| one == agent), asking.own)
            && fits(self.sum(|_| true), self.repo)
            && fits(self.sum(|_| true), self.day.or(self.settings))
    }

    fn open(&self, which: usize) -> Option<usize> {
        let open: Vec<usize> = (0..self.sent.len()).filter(|at| self.sent[*at].is_open).collect();
        open.get(which.checked_rem(open.len())?).copied()
    }
}

fn limits(tokens: Option<u64>) -> Limits {
    Limits { tokens, ..Limits::NONE }
}

fn name(agent: usize) -> String {
    format!("a{agent}")
}

async fn check(settings: Option<u64>, steps: Vec<Step>) {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut ledger = Ledger::open(&StoreUrl::sqlite(dir.path().join("ledger.db"))).await.expect("open");
    let mut model = Model { settings, ..Model::default() };
    for step in steps {
        take(&mut ledger, &mut model, step).await;
        for agent in 0..AGENTS {
            let of = async |ledger: &mut Ledger, pool| {
                let meter = ledger.pool(&pool, Limits::NONE).await.expect("pool").meter;
                (meter.spent.usage.total(), meter.held.tokens)
            };
            let tree = of(&mut ledger, Pool::Tree(id(&name(agent)))).await;
            assert_eq!(tree, model.sum(|one| model.above(one).contains(&agent)), "the tree of {agent}");
            let own = of(&mut ledger, Pool::Agent(id(&name(agent)))).await;
            assert_eq!(own, model.sum(|one| one == agent), "agent {agent}");
            let day = of(&mut ledger, Pool::Day(DAY)).await;
            assert_eq!(day, model.sum(|_| true), "the day");
        }
        let open = model.sent.iter().filter(|sent| sent.is_open).count();
        assert_eq!(ledger.in_flight().await.expect("count"), open as u64);
    }
    ledger.close().await;
}

async fn take(ledger: &mut Ledger, model: &mut Model, step: Step) {
    let usage = |tokens| Usage { output: tokens, ..Usage::default() };
    match step {
        Step::Open { agent, parent, own, tree } => {
            let known = model.agents[agent].take();
            // Who is above is said once, by those who are there.
            let parent = match &known {
                Some(known) => known.parent,
                None => parent.filter(|parent| model.agents[*parent].is_some()),
            };
            let opened = Account {
                own: limits(own),
                ..account(&name(agent), parent.map(name).as_deref(), limits(tree))
            };
            ledger.open_account(&opened, Stamp::now()).await.expect("open account");
            let kept = known.filter(|known| known.asked == tree).map_or(tree, |known| known.tree);
            model.agents[agent] = Some(Agent { parent, own, asked: tree, tree: kept });
        }
        Step::Reserve { agent, tokens, pid } => {
            let request = LedgerRequest {
                account: &id(&name(agent)),
                owner: &owner(pid),
                model: "m",
                usage: Usage { input: tokens, ..Usage::default() },
                cost: None,
                turns: 1,
                day: DAY,
                per_repo_day: Limits::NONE,
                per_day: limits(model.settings),
            };
            let granted = ledger.reserve(&request, Stamp::now()).await;
            let expected = model.fits(agent, tokens);
            match granted {
                Ok(granted) => {
                    assert!(expected, "granted {tokens} to {agent}");
                    let reservation = granted.reservation;
                    let (held, estimate) = (tokens, tokens);
                    model.sent.push(Sent {
                        reservation,
                        agent,
                        pid,
                        estimate,
                        held,
                        spent: 0,
                        is_open: true,
                    });
                }
                Err(LedgerError::Refused(refused)) => assert!(!expected, "{refused}"),
                Err(error) => panic!("{error}"),
            }
        }
        Step::Count { which, tokens } => {
            let Some(at) = model.open(which) else { return };
            let sent = &mut model.sent[at];
            ledger.count(&sent.reservation, usage(tokens), None).await.expect("count");
            sent.held = sent.held.max(tokens);
        }
        Step::Settle { which, tokens } => {
            // Also those that were taken for dead: what they took beyond their reservation is booked once more.
            if model.sent.is_empty() {
                return;
            }
            let at = which % model.sent.len();
            let sent = &mut model.sent[at];
            if !sent.is_open && sent.pid == 0 {
                return;
            }
            ledger.settle(&sent.reservation, usage(tokens), None, 0).await.expect("settle");
            match sent.is_open {
                true => sent.spent = tokens,
                false => sent.spent += tokens.saturating_sub(sent.estimate),
            }
            (sent.held, sent.is_open, sent.pid) = (0, false, 0);
        }
        Step::Release { which } => {
            let Some(at) = model.open(which) else { return };
            let sent = &mut model.sent[at];
            ledger.release(&sent.reservation).await.expect("release");
            (sent.held, sent.is_open, sent.pid) = (0, false, 0);
        }
        Step::Kill { pid } => {
            let booked = ledger.settle_dead(|owner| owner.pid == pid).await.expect("dead");
            let dead = model.sent.iter_mut().filter(|sent| sent.is_open && sent.pid == pid);
            let mut count = 0;
            for sent in dead {
                (sent.spent, sent.held, sent.is_open) = (sent.held, 0, false);
                count += 1;
            }
            assert_eq!(booked, count);
        }
        Step::LimitTree { agent, limit } => {
            let set = ledger.set_tree_limits(&id(&name(agent)), limits(limit)).await.expect("set");
            assert_eq!(set, model.agents[agent].is_some());
            if let Some(agent) = &mut model.agents[agent] {
                agent.tree = limit;
            }
        }
        Step::LimitDay { limit } => {
            ledger.change_limit(&SetLimit::Day, limit.map(|limit| limits(Some(limit)))).await.expect("set");
            model.day = limit;
        }
        Step::LimitRepo { limit } => {
            let whose = SetLimit::RepoDay("/repo".into());
            ledger.change_limit(&whose, limit.map(|limit| limits(Some(limit)))).await.expect("set");
            model.repo = limit;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn r20_every_pool_is_the_sum_of_its_requests_and_a_request_is_granted_exactly_when_it_fits(
        settings in prop::option::of(0..600_u64),
        steps in prop::collection::vec(step(), 1..50),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(check(settings, steps));
    }
}
