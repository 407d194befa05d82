//! Time that is not what it seems: a wall clock that jumps by a day, forth and back, for client, daemon, shims,
//! workers and what these start; and everything stopped for longer than any interval at which something is looked at.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use caliban_contract::records::{self, ExitRecord};
use caliban_core::lifecycle::State;
use caliban_fleet::Client;
use caliban_fleet::protocol::KillRequest;
use rustix::process::Signal;

use crate::fleet::{Fleet, processes_of, quick, signal, until, wait_until, write};

/// 23 hours: an age beyond it comes from the jump, not from a slow machine.
const NEARLY_A_DAY_MS: u64 = 23 * 60 * 60 * 1000;

/// Debian's libfaketime, where it is installed.
pub(crate) fn library() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten();
    dirs.map(|dir| dir.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

/// What libfaketime is told: the same clock for all. The monotonic one stays as it is, as with a real jump.
const FAKED: [&str; 5] = [
    "LD_PRELOAD",
    "FAKETIME_TIMESTAMP_FILE",
    "FAKETIME_NO_CACHE",
    "FAKETIME_DONT_FAKE_MONOTONIC",
    "FAKETIME_DISABLE_SHM",
];

#[expect(clippy::disallowed_methods, reason = "an inner test is told what to do by its environment")]
fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// The client's clock jumps, too, so the test runs itself again in a process with that clock.
#[test]
fn r15_a_clock_that_jumps_a_day_changes_no_order_and_no_time_out() {
    let library = library().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let clock = dir.path().join("clock");
    write(&clock, "+0d");
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "clock::r15_inside", "--ignored", "--nocapture"])
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", clock)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_DISABLE_SHM", "1")
        .output()
        .unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[tokio::test]
#[ignore = "run by r15_a_clock_that_jumps_a_day_changes_no_order_and_no_time_out"]
async fn r15_inside() {
    let mut fleet = Fleet::with(|options| options.max_running = 1);
    let faked: Vec<(String, String)> =
        FAKED.iter().map(|name| ((*name).to_owned(), variable(name))).collect();
    let clock = PathBuf::from(&faked[1].1);
    let jump = |to: &str| {
        write(&clock.with_extension("new"), to);
        fs::rename(clock.with_extension("new"), &clock).unwrap();
    };
    for (name, value) in &faked {
        fleet.start.environment.insert(name.into(), value.into());
    }
    let mut client = fleet.client().await;
    let request = |plan: &str| {
        let mut request = fleet.request(plan);
        request.spec.env.extend(faked.clone());
        request
    };
    let spawn_up = async |client: &mut Client, plan: &str| {
        let id = client.spawn(request(plan)).await.unwrap().id;
        fleet.until_row(client, id, |row| row.pid.is_some() && row.turns > 0).await;
        id
    };
    let sleeper = spawn_up(&mut client, "serve").await;
    let up = fleet.temp.path().join("up");
    let stubborn = format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display());
    let first = spawn_up(&mut client, &stubborn).await;
    wait_until("the shell ignores TERM", || up.exists());
    let mut ids = vec![sleeper, first];
    // Each is queued at another time of day: the later ones "before" the earlier ones.
    for to in ["+1d", "-1d", "+0d"] {
        jump(to);
        ids.push(client.spawn(request("hang")).await.unwrap().id);
    }
    let mut last = request("done");
    last.spec.after = vec![ids[4]];
    jump("-1d");
    ids.push(client.spawn(last).await.unwrap().id);
    let listed = |rows: Vec<caliban_fleet::protocol::AgentRow>| -> Vec<_> {
        rows.into_iter().map(|row| row.id).collect()
    };
    let rows = client.list().await.unwrap();
    assert_eq!(rows[1].age_ms, 0, "an age is never negative");
    assert_eq!(listed(rows), ids);
    jump("+1d");
    let rows = client.list().await.unwrap();
    assert!(rows[1].age_ms > NEARLY_A_DAY_MS, "the daemon does not see the jump: {}", rows[1].age_ms);
    assert_eq!(listed(rows), ids);

    // Places go in the order of the spawns, and a kill ends although the daemon's clock jumps within its grace.
    for (n, to) in [(1, "-1d"), (2, "+1d"), (3, "-1d")] {
        let name = ids[n].to_string();
        let order = fleet.places.agent_dir(ids[n]).join(records::STOP);
        let request = quick();
        let jumps = async {
            until("the order is out", || async { order.exists() }).await;
            jump(to);
        };
        let (killed, ()) = tokio::join!(client.kill(&name, &request), jumps);
        assert_eq!(killed.unwrap().state, State::Killed);
        fleet.until_row(&mut client, ids[n + 1], |row| row.state == State::Running && row.turns > 0).await;
        let queued = ids[n + 2..5].iter().map(|id| fleet.runs(*id)).sum::<usize>();
        assert_eq!(queued, 0, "a later one overtook");
    }
    // What was to come after the last one fails with it.
    jump("+1d");
    client.kill(&ids[4].to_string(), &quick()).await.unwrap();
    fleet.until_state(&mut client, ids[5], State::Failed).await;
    let exit: ExitRecord = records::read(&fleet.places.agent_dir(ids[4]), records::EXIT).unwrap();
    assert!(exit.at + NEARLY_A_DAY_MS / 2 > now_ms(), "the shim does not see the jump: {}", exit.at);

    // A grace is neither shortened nor lengthened.
    for (n, to) in ["-1d", "+1d"].into_iter().enumerate() {
        let orderly = Orderly::new(&fleet, &format!("orderly{n}"));
        let id = spawn_up(&mut client, &orderly.plan()).await;
        orderly.is_up();
        let name = id.to_string();
        let long = KillRequest { grace_ms: Some(600_000) };
        let jumps = async {
            until("it is asked to end", || async { orderly.is_asked() }).await;
            jump(to);
            orderly.may_end();
        };
        let (killed, ()) = tokio::join!(client.kill(&name, &long), jumps);
        assert_eq!((killed.unwrap().state, orderly.has_ended()), (State::Killed, true));
        ids.push(id);
    }

    fleet.tell(sleeper, "sleep");
    fleet.until_row(&mut client, sleeper, |row| row.hibernated).await;
    jump("-1d");
    client.wake(&sleeper.to_string()).await.unwrap();
    wait_until("it runs again", || fleet.runs(sleeper) == 2);
    let row = fleet.until_row(&mut client, sleeper, |row| row.pid.is_some()).await;
    assert_eq!((row.state, row.hibernated), (State::Idle, false));
    // One that starts a second from now does so whatever day it is then.
    let mut soon = request("done");
    soon.spec.start_in_ms = Some(1_000);
    soon.spec.start_at_ms = Some(now_ms() + 1_000);
    let soon = client.spawn(soon).await.unwrap().id;
    jump("-2d");
    fleet.until_state(&mut client, soon, State::Done).await;
    ids.push(soon);
    // Also when the daemon that was asked is gone by then.
    let mut later = request("done");
    later.spec.start_in_ms = Some(3_000);
    later.spec.start_at_ms = Some(now_ms() + 3_000);
    let later = client.spawn(later).await.unwrap().id;
    fleet.kill_daemon();
    jump("-3d");
    let mut client = fleet.client().await;
    fleet.until_state(&mut client, later, State::Done).await;
    ids.push(later);
    // The next daemon has the same order.
    fleet.kill_daemon();
    jump("+1d");
    let mut client = fleet.client().await;
    assert_eq!(listed(client.list().await.unwrap()), ids);
}

/// What a tool still has to do then: a tenth of a second and more, so that a KILL at once is seen.
const WORK: &str = "for i in 0 1 2 3 4 5 6 7 8 9; do sleep 0.01; done";

/// A tool that takes its time when it is asked to end: until it may.
struct Orderly(PathBuf);

impl Orderly {
    fn new(fleet: &Fleet, name: &str) -> Self {
        Self(fleet.temp.path().join(name))
    }

    fn at(&self, what: &str) -> PathBuf {
        self.0.with_extension(what)
    }

    fn plan(&self) -> String {
        let at = self.0.display();
        format!(
            "sh:trap ': > {at}.asked; while [ ! -e {at}.may-end ]; do sleep 0.01; done; {WORK}; : > {at}.ended; exit 0' TERM; \
             : > {at}.up; while :; do sleep 0.01; done"
        )
    }

    fn is_up(&self) {
        wait_until("the tool is up", || self.at("up").exists());
    }

    fn is_asked(&self) -> bool {
        self.at("asked").exists()
    }

    fn may_end(&self) {
        write(&self.at("may-end"), "");
    }

    fn has_ended(&self) -> bool {
        self.at("ended").exists()
    }
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// For how long everything stands still: longer than the daemon's intervals and the grace of the kill.
const STILL: Duration = Duration::from_millis(3_500);
/// That grace.
const GRACE_MS: u64 = 3_000;

#[tokio::test]
async fn r15_a_suspended_fleet_goes_on_as_if_nothing_had_been() {
    let fleet = Fleet::with(|options| options.max_running = 2);
    let mut client = fleet.client().await;
    let idle = fleet.spawn_up(&mut client, "serve").await;
    let running = fleet.spawn_up(&mut client, "sh:while :; do sleep 0.01; done").await;
    let orderly = Orderly::new(&fleet, "orderly");
    let ending = fleet.spawn_up(&mut client, &orderly.plan()).await;
    orderly.is_up();
    let queued = fleet.spawn(&mut client, "hang").await;
    let ids = [idle, running, ending, queued];
    let daemon = fleet.daemon_pid().unwrap();
    let before = client.show(&running.to_string()).await.unwrap();

    let name = ending.to_string();
    let request = KillRequest { grace_ms: Some(GRACE_MS) };
    let mut other = fleet.client().await;
    let kill = other.kill(&name, &request);
    let suspend = async {
        until("it is asked to end", || async { orderly.is_asked() }).await;
        let mut stopped = vec![daemon];
        signal(daemon, Signal::STOP);
        // Those who fork in between are stopped in the next round.
        loop {
            let all = ids.iter().flat_map(|id| processes_of(&id.to_string()));
            let new: Vec<i32> = all.filter(|pid| !stopped.contains(pid)).collect();
            if new.is_empty() {
                break;
            }
            new.iter().for_each(|pid| signal(*pid, Signal::STOP));
            stopped.extend(new);
        }
        let began = Instant::now();
        until("time goes by", || async { began.elapsed() > STILL }).await;
        orderly.may_end();
        // Those who judge first, those who are judged last.
        stopped.iter().for_each(|pid| signal(*pid, Signal::CONT));
    };
    let (killed, ()) = tokio::join!(kill, suspend);
    assert_eq!((killed.unwrap().state, orderly.has_ended()), (State::Killed, true));

    fleet.until_row(&mut client, queued, |row| row.state == State::Running && row.turns > 0).await;
    let rows = client.list().await.unwrap();
    let seen: Vec<_> = rows.iter().map(|row| (row.id, row.state, fleet.runs(row.id))).collect();
    let expected = [
        (idle, State::Idle, 1),
        (running, State::Running, 1),
        (ending, State::Killed, 1),
        (queued, State::Running, 1),
    ];
    assert_eq!(seen, expected);
    assert_eq!((rows[1].pid, rows[1].shim_pid), (before.pid, before.shim_pid));
    assert_eq!(fleet.daemon_pid(), Some(daemon));
    assert!(rows.iter().all(|row| row.note.is_none()), "{rows:#?}");
}
