//! A storm of refusals in time of our own: twenty agents that always want more, one key, and a server that allows so much.
//!
//! Agents do what `caliban-providers` does with the governor's answers (`governor::pass`, `retry::run`); the lane is the ledger's.
//! No clock is read, so ten minutes take as long as their writes do, and every run is the same.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use caliban_store::StoreUrl;
use caliban_store::ledger::{Admission, GovernorTicket, Lane, Ledger};

use crate::ledger::owner;

const AGENTS: usize = 20;
/// How long a server needs for an answer, or a refusal.
const LATENCY_MS: u64 = 200;
/// What an agent sleeps at least and at most before it asks the governor again.
const SLEEP_MS: std::ops::RangeInclusive<u64> = 5..=5_000;
/// How long an agent waits for rate limits in all before it fails (`retry.patience_seconds`).
const PATIENCE_MS: u64 = 30 * 60 * 1000;

/// What a server does with a request at a time: `Ok`, or the wait that it asks for.
trait Server {
    fn request(&mut self, now: u64) -> Result<(), Option<u64>>;
    /// What it would have allowed until then.
    fn allowed(&self, now: u64) -> u64;
}

/// So many in each window.
struct Windows {
    each: u64,
    ms: u64,
    window: u64,
    used: u64,
}

impl Server for Windows {
    fn request(&mut self, now: u64) -> Result<(), Option<u64>> {
        if now / self.ms != self.window {
            (self.window, self.used) = (now / self.ms, 0);
        }
        if self.used < self.each {
            self.used += 1;
            return Ok(());
        }
        let left = (self.window + 1) * self.ms - now;
        // As `Retry-After` has it: whole seconds.
        Err(Some(left.div_ceil(1000) * 1000))
    }

    fn allowed(&self, now: u64) -> u64 {
        now / self.ms * self.each
    }
}

/// A bucket that fills all the time, as Anthropic's.
struct Bucket {
    each: u64,
    size: u64,
    /// Thousandths, and when they were counted.
    full: u64,
    at: u64,
}

impl Server for Bucket {
    fn request(&mut self, now: u64) -> Result<(), Option<u64>> {
        self.full = (self.full + (now - self.at) * 1000 / self.each).min(self.size * 1000);
        self.at = now;
        if self.full >= 1000 {
            self.full -= 1000;
            return Ok(());
        }
        Err(Some(1000))
    }

    fn allowed(&self, now: u64) -> u64 {
        self.size + now / self.each
    }
}

/// Refuses everybody until then, and never says for how long.
struct Overloaded {
    until: u64,
}

impl Server for Overloaded {
    fn request(&mut self, now: u64) -> Result<(), Option<u64>> {
        if now < self.until { Err(None) } else { Ok(()) }
    }

    fn allowed(&self, _now: u64) -> u64 {
        u64::MAX
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Does {
    /// Asks the governor, with the ticket that it has.
    Asks(Option<i64>),
    /// Has sent a request, and gets this answer now.
    Hears { sent: u64, refused: bool, asked: Option<u64> },
}

#[derive(Debug, Default)]
struct Outcome {
    answered: u64,
    refused: u64,
    longest_wait: u64,
    /// When each agent was first answered.
    first: VecDeque<u64>,
}

/// Runs agents against a server for so many milliseconds.
async fn storm(server: &mut dyn Server, until: u64) -> Outcome {
    let dir = tempfile::tempdir().expect("temp dir");
    let mut ledger = Ledger::open(&StoreUrl::sqlite(dir.path().join("ledger.db"))).await.expect("open");
    let lane = Lane::new("boot", "storm");
    let mut events: BinaryHeap<Reverse<(u64, usize, Does)>> =
        (0..AGENTS).map(|agent| Reverse((agent as u64, agent, Does::Asks(None)))).collect();
    let (mut since, mut random) = (vec![None::<u64>; AGENTS], fastrand::Rng::with_seed(7));
    let (mut outcome, mut is_answered) = (Outcome::default(), [false; AGENTS]);
    while let Some(Reverse((now, agent, does))) = events.pop() {
        if now >= until {
            break;
        }
        let me = owner(i32::try_from(agent).expect("few") + 1);
        let next = match does {
            Does::Asks(ticket) => {
                let began = *since[agent].get_or_insert(now);
                match ledger.admit(&lane, 0, ticket.map(GovernorTicket), &me, now, now).await.expect("admit")
                {
                    Admission::Go => {
                        outcome.longest_wait = outcome.longest_wait.max(now - began);
                        let answer = server.request(now);
                        let asked = answer.err().flatten();
                        (now + LATENCY_MS, Does::Hears { sent: now, refused: answer.is_err(), asked })
                    }
                    Admission::Wait { until_ms, ticket, .. } => {
                        let sleep = until_ms.saturating_sub(now).clamp(*SLEEP_MS.start(), *SLEEP_MS.end());
                        (now + sleep, Does::Asks(Some(ticket.0)))
                    }
                }
            }
            Does::Hears { sent, refused: true, asked } => {
                outcome.refused += 1;
                // A little more than asked, as `retry::decide` has it.
                let asked = asked.map(|asked| asked + random.u64(0..=500.min(asked / 10)));
                ledger.limited(&lane, "busy", asked, sent, now).await.expect("limited");
                (now, Does::Asks(None))
            }
            Does::Hears { .. } => {
                outcome.answered += 1;
                since[agent] = None;
                if !std::mem::replace(&mut is_answered[agent], true) {
                    outcome.first.push_back(now);
                }
                ledger.answered(&lane, None, now).await.expect("answered");
                (now, Does::Asks(None))
            }
        };
        events.push(Reverse((next.0, agent, next.1)));
    }
    let waiting = since.iter().flatten().map(|began| until - began).max().unwrap_or_default();
    outcome.longest_wait = outcome.longest_wait.max(waiting);
    ledger.close().await;
    outcome
}

#[expect(clippy::print_stdout, reason = "the figure is for people")]
fn goodput(outcome: &Outcome, server: &dyn Server, until: u64) -> f64 {
    let ratio = outcome.answered as f64 / server.allowed(until) as f64;
    println!("{outcome:?}: {:.1} % of the allowance", ratio * 100.0);
    ratio
}

#[tokio::test]
async fn r24_twenty_agents_use_at_least_95_percent_of_what_a_window_allows() {
    let mut server = Windows { each: 50, ms: 10_000, window: 0, used: 0 };
    let until = 60_000;
    let outcome = storm(&mut server, until).await;
    assert!(goodput(&outcome, &server, until) >= 0.95);
    assert!(outcome.refused < outcome.answered / 2, "{outcome:?}");
}

#[tokio::test]
async fn r24_twenty_agents_use_at_least_95_percent_of_a_bucket_that_fills() {
    let mut server = Bucket { each: 100, size: 20, full: 20_000, at: 0 };
    let until = 60_000;
    let outcome = storm(&mut server, until).await;
    assert!(goodput(&outcome, &server, until) >= 0.95);
    assert!(outcome.refused < outcome.answered / 2, "{outcome:?}");
}

#[tokio::test]
async fn r24_ten_minutes_of_refusals_fail_nobody_and_all_are_back_soon() {
    let until = 10 * 60 * 1000;
    let mut server = Overloaded { until };
    let outcome = storm(&mut server, until + 15_000).await;
    assert!(outcome.longest_wait < PATIENCE_MS, "{outcome:?}");
    assert_eq!(outcome.first.len(), AGENTS, "{outcome:?}");
    // One asks for all of them, so nobody makes it worse.
    assert!(outcome.refused < until / 1000, "{outcome:?}");
    assert!(outcome.first.back().is_some_and(|last| last - until < 12_000), "{outcome:?}");
}
