//! r01: random `kill -9` of the daemon under load; afterwards the history is checked: nothing that was acknowledged
//! is lost, nothing is there twice, nothing ran twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::State;
use caliban_fleet::protocol::{ErrorCode, KillRequest, RmRequest, SpawnRequest};
use caliban_fleet::{Client, ClientError};
use rustix::process::Signal;

use crate::fleet::{Fleet, processes_of, signal};

/// Kills in the ordinary tests; `CALIBAN_SOAK_KILLS` sets another number for `cargo xtask soak`.
const KILLS: u64 = 50;
/// Clients that spawn at once.
const CLIENTS: u64 = 4;

#[expect(
    clippy::disallowed_methods,
    reason = "a test is told by its environment how long to run, and with which seed"
)]
pub(crate) fn number(name: &str, default: impl FnOnce() -> u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or_else(default)
}

/// What was acknowledged about an agent.
#[derive(Clone)]
struct Known {
    id: AgentId,
    last: Acknowledged,
    /// Messages that it has, in order.
    said: Vec<String>,
    /// How often it left memory.
    slept: usize,
}

/// What was acknowledged last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acknowledged {
    Spawned,
    Killed,
    Removed,
}

/// What was acknowledged, for each key.
type History = Arc<Mutex<BTreeMap<String, Known>>>;

#[tokio::test]
async fn r01_no_kill_of_the_daemon_loses_or_doubles_an_acknowledged_spawn_or_message() {
    let seed = number("CALIBAN_SOAK_SEED", || fastrand::u64(..));
    let kills = number("CALIBAN_SOAK_KILLS", || KILLS);
    println!("seed {seed}, {kills} kills (CALIBAN_SOAK_SEED={seed} repeats it)");
    let fleet = Arc::new(Fleet::new());
    let (history, over): (History, _) = (Arc::default(), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let (fleet, history, over) = (fleet.clone(), history.clone(), over.clone());
            let random = fastrand::Rng::with_seed(seed.wrapping_add(n));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(load(&fleet, n, random, &history, &over));
            })
        })
        .collect();
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut killed = 0;
    while killed < kills {
        tokio::time::sleep(Duration::from_micros(random.u64(500..40_000))).await;
        let acknowledged = progress(&history);
        // One that is dead already counts for nothing.
        if let Some(pid) = fleet.daemon_pid() {
            signal(pid, Signal::KILL);
            killed += 1;
        }
        assert!(!clients.iter().any(std::thread::JoinHandle::is_finished), "a client has failed");
        // Under load: some of the kills hit a daemon that has acknowledged something.
        if random.u8(..4) == 0 {
            let goes_on = || async { progress(&history) > acknowledged };
            crate::fleet::until("work goes on", goes_on).await;
        }
    }
    over.store(true, Ordering::SeqCst);
    clients.into_iter().for_each(|client| client.join().unwrap());
    println!("{}", check(&fleet, &history).await);
}

/// How much was acknowledged.
fn progress(history: &History) -> usize {
    history.lock().unwrap().values().map(|known| 1 + known.said.len() + known.slept).sum()
}

async fn load(fleet: &Fleet, n: u64, mut random: fastrand::Rng, history: &History, over: &AtomicBool) {
    let mut count = 0;
    while !over.load(Ordering::SeqCst) {
        count += 1;
        let key = format!("{n}-{count}");
        let plan = ["hang", "done", "done", "serve"][random.usize(..4)];
        let request = SpawnRequest { key: Some(key.clone()), ..fleet.request(plan) };
        let id =
            insist(fleet, async |client| client.spawn(request.clone()).await.map(|spawned| spawned.id)).await;
        let mut known = Known { id, last: Acknowledged::Spawned, said: Vec::new(), slept: 0 };
        let note = |known: &Known| history.lock().unwrap().insert(key.clone(), known.clone());
        note(&known);
        match plan {
            "hang" => {
                let (name, quick) = (id.to_string(), KillRequest { grace_ms: Some(200) });
                let state =
                    insist(fleet, async |client| client.kill(&name, &quick).await.map(|row| row.state)).await;
                assert_eq!(state, State::Killed, "{id}\n{}", fleet.log());
                known.last = Acknowledged::Killed;
                note(&known);
            }
            "serve" => {
                for turn in 0..random.usize(1..4) {
                    let message = format!("{key}-{turn} hello");
                    reach(fleet, id, &format!("say {message}"), "has it").await;
                    known.said.push(message);
                    note(&known);
                    if random.bool() {
                        fleet.tell(id, "sleep");
                        known.slept += 1;
                        note(&known);
                    }
                }
                reach(fleet, id, "end", "ends").await;
            }
            _ if random.u8(..4) == 0 => {
                remove(fleet, id).await;
                known.last = Acknowledged::Removed;
                note(&known);
            }
            _ => {}
        }
    }
}

/// Wakes an agent and says something to it, until it has answered.
async fn reach(fleet: &Fleet, id: AgentId, line: &str, answer: &str) {
    let name = id.to_string();
    loop {
        let awake = insist(fleet, async |client| match client.wake(&name).await {
            // It is not started yet.
            Err(ClientError::Refused(error)) if error.code == ErrorCode::Queued => {
                Err(ClientError::Broken(error.message))
            }
            other => other,
        })
        .await;
        assert_eq!(awake.id, id);
        // It may have gone to sleep meanwhile: then it is woken again.
        match fleet.ask(id, line) {
            Some(said) => return assert_eq!(said, answer),
            None => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Removes an agent when it is done.
async fn remove(fleet: &Fleet, id: AgentId) {
    let name = id.to_string();
    while insist(fleet, async |client| client.show(&name).await.map(|row| row.state)).await != State::Done {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // From here on nobody can say whether it is there, until the answer comes.
    insist(fleet, async |client| match client.rm(&name, RmRequest::default()).await {
        // The answer to an earlier try was lost.
        Err(ClientError::Refused(error)) if error.code == ErrorCode::NotFound => Ok(()),
        Err(ClientError::Refused(error)) if error.code == ErrorCode::Conflict => {
            Err(ClientError::Broken(error.message))
        }
        other => other.map(|_| ()),
    })
    .await;
}

/// Asks until there is an answer; only the daemon's death is an excuse.
async fn insist<T>(fleet: &Fleet, mut ask: impl AsyncFnMut(&mut Client) -> Result<T, ClientError>) -> T {
    loop {
        let outcome = match Client::connect_or_start(&fleet.places, fleet.start.clone()).await {
            Ok(mut client) => ask(&mut client).await,
            Err(error) => Err(error),
        };
        match outcome {
            Ok(value) => return value,
            Err(
                ClientError::Broken(_)
                | ClientError::Unsure(_)
                | ClientError::NotRunning(_)
                | ClientError::Start(_),
            ) => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Compares what was acknowledged with what is there; says how much that was.
async fn check(fleet: &Fleet, history: &History) -> String {
    let history = history.lock().unwrap().clone();
    let mut client = fleet.client().await;
    for Known { id, last, said, slept } in history.values() {
        match last {
            Acknowledged::Spawned => {
                fleet.until_state(&mut client, *id, State::Done).await;
                let runs = fleet.lines(*id, "runs");
                assert!((1..=slept + 1).contains(&runs.len()), "{id}: slept {slept} times, ran {runs:?}");
                let once: BTreeSet<&String> = runs.iter().collect();
                assert_eq!(once.len(), runs.len(), "{id}: a run began twice: {runs:?}");
                assert_eq!(&fleet.lines(*id, "said"), said, "{id}");
            }
            Acknowledged::Killed => {
                let row = client.show(&id.to_string()).await.unwrap();
                assert_eq!(row.state, State::Killed, "{id}");
                // It may not have come to run.
                assert!(fleet.runs(*id) <= 1, "{id} ran {} times", fleet.runs(*id));
            }
            Acknowledged::Removed => assert!(!fleet.places.agent_dir(*id).exists(), "{id}"),
        }
        assert_eq!(fleet.lines(*id, "doubled"), Vec::<String>::new(), "{id}: two workers at once");
        assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
    }
    let mut registered: Vec<AgentId> = client.list().await.unwrap().into_iter().map(|row| row.id).collect();
    let stays = history.values().filter(|known| known.last != Acknowledged::Removed);
    let mut acknowledged: Vec<AgentId> = stays.map(|known| known.id).collect();
    registered.sort_unstable();
    acknowledged.sort_unstable();
    assert_eq!(registered, acknowledged);
    let counted = |fits: fn(&Known) -> bool| history.values().filter(|known| fits(known)).count();
    assert!(counted(|known| !known.said.is_empty()) > 0, "nobody was spoken to");
    format!(
        "{} spawned, {} killed, {} removed, {} messages, {} sleeps",
        history.len(),
        counted(|known| known.last == Acknowledged::Killed),
        counted(|known| known.last == Acknowledged::Removed),
        history.values().map(|known| known.said.len()).sum::<usize>(),
        history.values().map(|known| known.slept).sum::<usize>(),
    )
}

/// Calls at which the daemon, its threads and what it starts are killed, each in turn.
const BOUNDARIES: &str = "write,pwrite64,fdatasync,fsync,rename,mkdir,unlink,ftruncate";

#[tokio::test]
async fn r02_a_kill_at_every_write_of_a_spawn_loses_and_doubles_nothing() {
    let (mut interrupted, mut acknowledged) = (0, 0);
    // Later ones are the same calls again, in a run that is over.
    let boundaries = number("CALIBAN_SOAK_BOUNDARIES", || 40);
    for n in 1..=boundaries {
        let mut fleet = Fleet::new();
        let sound = std::mem::take(&mut fleet.start.programs);
        let inject = format!("inject={BOUNDARIES}:signal=KILL:when={n}");
        let trace = format!("trace={BOUNDARIES}");
        let strace = ["-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
        let mut arguments: Vec<std::ffi::OsString> = strace.iter().map(Into::into).collect();
        arguments.push(crate::fleet::caliband().into());
        fleet.start.programs = vec![("/usr/bin/strace".into(), arguments)];
        let request = SpawnRequest { key: Some("once".to_owned()), ..fleet.request("done") };
        // Whatever becomes of this one.
        let first = match Client::connect_or_start(&fleet.places, fleet.start.clone()).await {
            Ok(mut client) => client.spawn(request.clone()).await.map(|spawned| spawned.id),
            Err(error) => Err(error),
        };
        fleet.start.programs = sound;
        let id = insist(&fleet, async |client| client.spawn(request.clone()).await.map(|spawned| spawned.id))
            .await;
        match first {
            Ok(first) => {
                assert_eq!(first, id, "boundary {n}: acknowledged and not there");
                acknowledged += 1;
            }
            Err(_) => interrupted += 1,
        }
        let name = id.to_string();
        let state = loop {
            let state = insist(&fleet, async |client| client.show(&name).await.map(|row| row.state)).await;
            if state.is_ending() {
                break state;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        // The shim or the worker may have been the one that was killed.
        assert!(matches!(state, State::Done | State::Crashed), "boundary {n}: {state}\n{}", fleet.log());
        let runs = fleet.runs(id);
        assert!(
            runs == 1 || (state == State::Crashed && runs == 0),
            "boundary {n}: {state} after {runs} runs"
        );
        assert_eq!(processes_of(&name), Vec::<i32>::new(), "boundary {n}");
        assert_eq!(insist(&fleet, async |client| client.list().await.map(|rows| rows.len())).await, 1);
    }
    println!("{interrupted} spawns were interrupted, {acknowledged} acknowledged");
    assert!(interrupted > 0 && acknowledged > 0, "{interrupted} {acknowledged}");
}
