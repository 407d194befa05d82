//! A wall clock that jumps by a day, forth and back, under a running daemon. Shims and workers keep the true one.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use caliban_core::lifecycle::State;
use caliban_supervisor::records;

use crate::fleet::{Fleet, quick, until, wait_until, write};

/// 23 hours: an age beyond it comes from the jump, not from a slow machine.
const NEARLY_A_DAY_MS: u64 = 23 * 60 * 60 * 1000;

/// Debian's libfaketime, where it is installed.
fn library() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten();
    dirs.map(|dir| dir.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

/// The daemons whose shared memory libfaketime leaves behind when they are killed.
struct Shared(Vec<i32>);

impl Drop for Shared {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _gone = fs::remove_file(format!("/dev/shm/faketime_shm_{pid}"));
            let _gone = fs::remove_file(format!("/dev/shm/sem.faketime_sem_{pid}"));
        }
    }
}

#[tokio::test]
async fn r15_a_clock_that_jumps_a_day_changes_no_order_and_no_time_out() {
    let Some(library) = library() else {
        let _unread = writeln!(std::io::stderr(), "skipped: libfaketime is not installed");
        return;
    };
    let mut shared = Shared(Vec::new());
    let mut fleet = Fleet::with(|options| options.max_running = 1);
    let clock = fleet.temp.path().join("clock");
    let jump = |to: &str| {
        write(&clock.with_extension("new"), to);
        fs::rename(clock.with_extension("new"), &clock).unwrap();
    };
    jump("+0d");
    // The monotonic clock stays as it is, as with a real jump.
    for (name, value) in [
        ("LD_PRELOAD", library.as_os_str()),
        ("FAKETIME_TIMESTAMP_FILE", clock.as_os_str()),
        ("FAKETIME_NO_CACHE", "1".as_ref()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".as_ref()),
    ] {
        fleet.start.environment.insert(name.into(), value.into());
    }
    let mut client = fleet.client().await;
    shared.0.extend(fleet.daemon_pid());
    let sleeper = fleet.spawn_up(&mut client, "serve").await;
    let up = fleet.temp.path().join("up");
    let stubborn = format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display());
    let first = fleet.spawn_up(&mut client, &stubborn).await;
    wait_until("the shell ignores TERM", || up.exists());
    let mut ids = vec![sleeper, first];
    // Each is queued at another time of day: the later ones "before" the earlier ones.
    for to in ["+1d", "-1d", "+0d"] {
        jump(to);
        ids.push(fleet.spawn(&mut client, "hang").await);
    }
    let mut last = fleet.request("done");
    last.spec.after = vec![ids[4]];
    jump("-1d");
    ids.push(client.spawn(last).await.unwrap().id);
    let listed = |rows: Vec<caliban_supervisor::protocol::AgentRow>| -> Vec<_> {
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

    fleet.tell(sleeper, "sleep");
    fleet.until_row(&mut client, sleeper, |row| row.hibernated).await;
    jump("-1d");
    client.wake(&sleeper.to_string()).await.unwrap();
    wait_until("it runs again", || fleet.runs(sleeper) == 2);
    let row = fleet.until_row(&mut client, sleeper, |row| row.pid.is_some()).await;
    assert_eq!((row.state, row.hibernated), (State::Idle, false));
    // The next daemon has the same order.
    fleet.kill_daemon();
    jump("+1d");
    let mut client = fleet.client().await;
    shared.0.extend(fleet.daemon_pid());
    assert_eq!(listed(client.list().await.unwrap()), ids);
}
