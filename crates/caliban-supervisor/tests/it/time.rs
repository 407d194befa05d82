//! Priorities, the limit over all repos, time-outs, times and schedules, through the real daemon.

use std::fs;
use std::path::{Path, PathBuf};

use caliban_contract::{PlaceSources, Places, records};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State};
use caliban_core::names::Slug;
use caliban_core::priority::Priority;
use caliban_core::wait::QueuedFor;
use caliban_fleet::Client;
use caliban_fleet::protocol::{
    AgentRow, KeysRequest, RequeueRequest, ResumeRequest, ScheduleRequest, SpawnRequest,
};

use crate::fleet::{Fleet, fake_worker, is_alive, quick, refused, signal, until, wait_until, write};

fn with_priority(fleet: &Fleet, plan: &str, priority: Priority) -> SpawnRequest {
    let mut request = fleet.request(plan);
    request.spec.setup.priority = Some(priority);
    request
}

#[tokio::test]
async fn who_has_the_higher_priority_starts_first_and_can_be_moved_while_it_is_queued() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let first = fleet.spawn(&mut client, &format!("gate:{}", gate.display())).await;
    fleet.until_row(&mut client, first, |row| row.turns > 0).await;
    let hang = |priority| with_priority(&fleet, "hang", priority);
    let low = client.spawn(hang(Priority::Low)).await.unwrap().id;
    let normal = client.spawn(hang(Priority::Normal)).await.unwrap().id;
    let high = client.spawn(hang(Priority::High)).await.unwrap().id;
    let queue = |rows: Vec<AgentRow>| -> Vec<_> {
        rows.into_iter().skip(1).map(|row| (row.id, row.priority, row.queued_behind)).collect()
    };
    let expected =
        [(low, Priority::Low, Some(2)), (normal, Priority::Normal, Some(1)), (high, Priority::High, Some(0))];
    assert_eq!(queue(client.list().await.unwrap()), expected);
    assert_eq!(client.show(&low.to_string()).await.unwrap().queued_behind, Some(2));
    // A person moves the last one to the front; also the next daemon knows it.
    let request = RequeueRequest { priority: Some(Priority::High), ..RequeueRequest::default() };
    client.requeue(&low.to_string(), request).await.unwrap();
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    let expected = [
        (low, Priority::High, Some(0)),
        (normal, Priority::Normal, Some(2)),
        (high, Priority::High, Some(1)),
    ];
    assert_eq!(queue(client.list().await.unwrap()), expected);
    write(&gate, "");
    fleet.until_row(&mut client, low, |row| row.turns > 0).await;
    let states: Vec<State> = client.list().await.unwrap().into_iter().map(|row| row.state).collect();
    assert_eq!(states, [State::Done, State::Running, State::Spawning, State::Spawning]);
    // One that has begun is not moved.
    let (code, ..) = refused(client.requeue(&low.to_string(), request).await);
    assert_eq!(code, "conflict");
    client.kill(&low.to_string(), &quick()).await.unwrap();
    fleet.until_row(&mut client, high, |row| row.turns > 0).await;
    assert_eq!(client.show(&normal.to_string()).await.unwrap().queued_behind, Some(0));
}

/// Another repo of the same user, with a daemon of its own.
fn neighbour(fleet: &Fleet, name: &str) -> Fleet {
    let temp = tempfile::Builder::new().prefix("fl").tempdir_in("/tmp").unwrap();
    let repo = temp.path().join(name);
    fs::create_dir(&repo).unwrap();
    let sources = PlaceSources {
        daemon_runtime_dir: Some(temp.path().join("rt")),
        data: fleet.temp.path().join("data"),
        ..PlaceSources::default()
    };
    let places = Places::find(&repo, &sources).unwrap();
    Fleet { temp, places, start: fleet.start.clone() }
}

/// The links of those who take a place.
fn taken(fleet: &Fleet) -> Vec<PathBuf> {
    let dir = fleet.places.base().parent().unwrap().parent().unwrap().join("running");
    let names = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_place = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        !name.starts_with('.') && !name.starts_with("waits-")
    };
    names.filter(is_place).collect()
}

#[tokio::test]
async fn the_limit_over_all_repos_holds_between_daemons_and_a_free_place_goes_to_who_waits_longest() {
    let one = Fleet::with(|options| options.max_running_user = Some(2));
    let two = neighbour(&one, "two");
    let (mut a, mut b) = (one.client().await, two.client().await);
    let gate = |n: usize| one.temp.path().join(format!("gate{n}"));
    let plan = |n: usize| format!("gate:{}", gate(n).display());
    let first = one.spawn(&mut a, &plan(0)).await;
    let second = two.spawn(&mut b, &plan(1)).await;
    one.until_row(&mut a, first, |row| row.turns > 0).await;
    two.until_row(&mut b, second, |row| row.turns > 0).await;
    let third = two.spawn(&mut b, &plan(2)).await;
    let limit = Some(QueuedFor::UserLimit { limit: 2 });
    two.until_row(&mut b, third, |row| row.queued_for == limit).await;
    let fourth = one.spawn(&mut a, &plan(3)).await;
    one.until_row(&mut a, fourth, |row| row.queued_for == limit).await;
    // The place that the first repo frees goes to the second, whose agent has waited longer.
    write(&gate(0), "");
    two.until_row(&mut b, third, |row| row.turns > 0).await;
    let row = a.show(&fourth.to_string()).await.unwrap();
    assert_eq!((row.state, row.queued_behind), (State::Spawning, Some(0)));
    // A higher priority is ahead of who waits longer, in whichever repo.
    let fifth = b.spawn(with_priority(&two, &plan(4), Priority::High)).await.unwrap().id;
    two.until_row(&mut b, fifth, |row| row.queued_for == limit).await;
    write(&gate(1), "");
    two.until_row(&mut b, fifth, |row| row.turns > 0).await;
    assert_eq!(a.show(&fourth.to_string()).await.unwrap().state, State::Spawning);
    assert_eq!(taken(&one).len(), 2);
    [2, 3, 4].map(gate).iter().for_each(|gate| write(gate, ""));
    one.until_state(&mut a, fourth, State::Done).await;
    two.until_state(&mut b, fifth, State::Done).await;
    wait_until("no place is taken", || taken(&one).is_empty());
}

#[tokio::test]
async fn no_place_leaks_or_is_given_twice_when_daemons_and_agents_are_killed() {
    let one = Fleet::with(|options| options.max_running_user = Some(1));
    let two = neighbour(&one, "two");
    let (mut a, mut b) = (one.client().await, two.client().await);
    let runs = one.spawn_up(&mut a, "hang").await;
    let waits = two.spawn(&mut b, "hang").await;
    let limit = Some(QueuedFor::UserLimit { limit: 1 });
    two.until_row(&mut b, waits, |row| row.queued_for == limit).await;
    // Its daemon is killed: the agent lives, and keeps its place.
    one.kill_daemon();
    let log = || fs::read_to_string(two.places.log()).unwrap_or_default();
    two.kill_daemon();
    let mut b = two.client().await;
    two.until_row(&mut b, waits, |row| row.queued_for == limit).await;
    assert_eq!((taken(&one).len(), two.runs(waits)), (1, 0), "{}", log());
    // The agent is killed while no daemon of its repo is there: nobody rings, and the place is free all the same.
    let shim = one.shim(runs);
    signal(shim.pid, rustix::process::Signal::KILL);
    wait_until("the shim is gone", || !is_alive(shim.pid));
    two.until_row(&mut b, waits, |row| row.turns > 0).await;
    // Its daemon is back, and finds no place.
    let mut a = one.client().await;
    let late = one.spawn(&mut a, "done").await;
    one.until_row(&mut a, late, |row| row.queued_for == limit).await;
    // Idle agents and those that ask take none.
    b.kill(&waits.to_string(), &quick()).await.unwrap();
    one.until_state(&mut a, late, State::Done).await;
    let idle = two.spawn_up(&mut b, "serve").await;
    assert_eq!(b.show(&idle.to_string()).await.unwrap().state, State::Idle);
    let last = one.spawn(&mut a, "done").await;
    one.until_state(&mut a, last, State::Done).await;
}

#[tokio::test]
async fn an_agent_ends_when_its_time_is_up_also_with_another_daemon_and_has_it_anew_when_resumed() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut request = fleet.request("hang");
    request.spec.timeout_ms = Some(3_600_000);
    let id = client.spawn(request).await.unwrap().id;
    let row = fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    assert!(row.timeout_ms == Some(3_600_000) && row.time_left_ms.is_some_and(|left| left > 3_000_000));
    // As if it had begun that long ago: the next daemon counts from what is written down.
    fleet.kill_daemon();
    began_earlier(&fleet, id, 3_600_000);
    let mut client = fleet.client().await;
    let row = fleet.until_state(&mut client, id, State::Failed).await;
    assert_eq!(row.ending, Some(Ending::TimedOut { after_ms: 3_600_000 }));
    assert_eq!(crate::fleet::processes_of(&id.to_string()), Vec::<i32>::new());
    // Resumed, it has its time anew, or another one.
    let limits = caliban_contract::limits::RaisedLimits { timeout_ms: Some(7_200_000), ..Default::default() };
    client.resume(&id.to_string(), &ResumeRequest { limits, ..Default::default() }).await.unwrap();
    let row = fleet.until_row(&mut client, id, |row| row.state == State::Running).await;
    assert!(row.time_left_ms.is_some_and(|left| left > 7_000_000), "{row:?}");
    // A daemon that is killed between the order and the end leaves the rest, with its reason, to the next.
    fleet.kill_daemon();
    began_earlier(&fleet, id, 7_200_000);
    let stop = serde_json::json!({"nonce": fleet.shim(id).nonce, "grace_ms": 200, "timed_out_ms": 7_200_000});
    write(&fleet.places.agent_dir(id).join(records::STOP), &stop.to_string());
    let mut client = fleet.client().await;
    let row = fleet.until_state(&mut client, id, State::Failed).await;
    assert_eq!(row.ending, Some(Ending::TimedOut { after_ms: 7_200_000 }));
}

fn began_earlier(fleet: &Fleet, id: AgentId, by: u64) {
    let dir = fleet.places.agent_dir(id);
    let mut begun: records::BegunRecord = records::read(&dir, records::BEGUN).unwrap();
    begun.monotonic_ms = begun.monotonic_ms.saturating_sub(by);
    // The machine may be up for less than that.
    begun.boot_id = if begun.monotonic_ms == 0 { "another".to_owned() } else { begun.boot_id };
    begun.at -= by;
    records::write(&dir, records::BEGUN, &begun).unwrap();
}

#[tokio::test]
async fn an_agent_that_sleeps_ends_when_its_time_is_up() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut request = fleet.request("serve");
    request.spec.timeout_ms = Some(3_600_000);
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    fleet.tell(id, "sleep");
    fleet.until_row(&mut client, id, |row| row.hibernated).await;
    fleet.kill_daemon();
    began_earlier(&fleet, id, 3_600_000);
    let mut client = fleet.client().await;
    let row = fleet.until_state(&mut client, id, State::Failed).await;
    assert_eq!(row.ending, Some(Ending::TimedOut { after_ms: 3_600_000 }));
}

/// A fleet whose daemon and agents have a clock of their own, which starts on a Tuesday evening, in UTC.
fn clocked(change: impl FnOnce(&mut caliban_contract::DaemonOptions)) -> (Fleet, PathBuf) {
    let library = crate::clock::library().unwrap();
    let mut fleet = Fleet::with(change);
    let clock = fleet.temp.path().join("clock");
    set(&clock, "2026-11-17T20:00:00Z");
    let variables = [
        ("LD_PRELOAD", library.into_os_string()),
        ("FAKETIME_TIMESTAMP_FILE", clock.clone().into_os_string()),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ("FAKETIME_DISABLE_SHM", "1".into()),
        ("TZ", "UTC".into()),
    ];
    for (name, value) in variables {
        fleet.start.environment.insert(name.into(), value);
    }
    (fleet, clock)
}

/// Sets the clock, whole at once; from then on it goes as ours does.
fn set(clock: &Path, time: &str) {
    let new = clock.with_extension("new");
    let ahead = i128::from(ms(time)) - i128::from(caliban_contract::wall_ms());
    write(&new, &format!("{:+}", (ahead + 999).div_euclid(1000)));
    fs::rename(new, clock).unwrap();
}

fn every(fleet: &Fleet, name: &str, when: &str, plan: &str) -> ScheduleRequest {
    let request = fleet.request(plan);
    ScheduleRequest {
        name: Slug::parse(name).unwrap(),
        every: when.parse().unwrap(),
        overlap: false,
        spec: request.spec,
        secrets: request.secrets,
        program: Some(fake_worker()),
    }
}

async fn labelled(client: &mut Client, label: &str) -> AgentRow {
    let mut found = None;
    until("the run begins", || {
        let mut client = client.another();
        let label = label.to_owned();
        async move { client.list().await.unwrap().iter().any(|row| row.label.as_deref() == Some(&label)) }
    })
    .await;
    for row in client.list().await.unwrap() {
        if row.label.as_deref() == Some(label) {
            found = Some(row);
        }
    }
    found.unwrap()
}

#[tokio::test]
async fn r15_a_schedule_runs_when_it_is_due_once_also_when_it_was_missed_and_says_so() {
    let (fleet, clock) = clocked(|_| {});
    let mut client = fleet.client().await;
    let row = client.schedule(&every(&fleet, "nightly", "02:00", "done")).await.unwrap();
    assert_eq!((row.runs, row.next_at), (0, ms("2026-11-18T02:00:00Z")));
    let (code, ..) = refused(client.schedule(&every(&fleet, "nightly", "03:00", "done")).await);
    assert_eq!(code, "conflict");
    // A daemon that is killed loses nothing.
    fleet.kill_daemon();
    let mut client = fleet.client().await;
    set(&clock, "2026-11-18T02:00:00Z");
    let first = labelled(&mut client, "nightly-1").await;
    assert_eq!(first.schedule.as_ref().map(|run| (run.number, run.due_at)), Some((1, row.next_at)));
    let first = fleet.until_state(&mut client, first.id, State::Done).await;
    assert_eq!(first.late_ms, None);
    // Three nights without a daemon: one run, late.
    fleet.kill_daemon();
    set(&clock, "2026-11-21T09:12:00Z");
    let mut client = fleet.client().await;
    let status = client.status().await.unwrap();
    assert_eq!(status.found.missed.len(), 1, "{:?}", status.found);
    assert!(status.found.missed[0].starts_with("schedule nightly: a run was due 2d 7h ago"), "{status:?}");
    let second = labelled(&mut client, "nightly-2").await;
    let second = fleet.until_state(&mut client, second.id, State::Done).await;
    assert!(second.late_ms.is_some_and(|late| late >= 55 * 3_600_000), "{second:?}");
    let rows = client.schedules().await.unwrap();
    let last = rows[0].last.clone().unwrap();
    assert_eq!((rows[0].runs, rows[0].next_at), (2, ms("2026-11-22T02:00:00Z")));
    assert_eq!((last.agent, last.due_at, last.missed), (second.id, ms("2026-11-19T02:00:00Z"), 2));
    let note = rows[0].note.clone().unwrap();
    assert!(note.starts_with("the run due at 2026-11-19 02:00 began 2d 7h"), "{note}");
    assert!(note.ends_with("late; 2 more were missed"), "{note}");
    assert!(fleet.log().contains("schedule nightly: the run due at"), "{}", fleet.log());
    // The clock is set back by a day: no night has two runs.
    set(&clock, "2026-11-20T01:59:00Z");
    let third = client.run_schedule("nightly").await.unwrap();
    fleet.until_state(&mut client, third.id, State::Done).await;
    set(&clock, "2026-11-20T02:00:30Z");
    until("the daemon looks at its schedules", || ticks(&fleet)).await;
    assert_eq!(client.schedules().await.unwrap()[0].runs, 3);
    assert_eq!(client.schedules().await.unwrap()[0].next_at, ms("2026-11-22T02:00:00Z"));
}

/// Whether the daemon has looked at everything at least once since this was first asked: a spawn that is queued for a time in
/// the past is started by it.
async fn ticks(fleet: &Fleet) -> bool {
    let mut client = fleet.client().await;
    let mut request = fleet.request("done");
    request.spec.start_at_ms = Some(1);
    let id = client.spawn(request).await.unwrap().id;
    let before = client.status().await.unwrap().uptime_ms;
    fleet.until_state(&mut client, id, State::Done).await;
    until("two looks", || {
        let mut client = client.another();
        async move { client.status().await.unwrap().uptime_ms > before + 2_100 }
    })
    .await;
    true
}

#[tokio::test]
async fn two_runs_of_a_schedule_are_never_at_work_at_once_unless_that_is_asked_for() {
    let (fleet, clock) = clocked(|_| {});
    let mut client = fleet.client().await;
    client.schedule(&every(&fleet, "hourly", "1h", "hang")).await.unwrap();
    client.schedule(&ScheduleRequest { overlap: true, ..every(&fleet, "both", "1h", "hang") }).await.unwrap();
    set(&clock, "2026-11-17T21:00:30Z");
    let first = labelled(&mut client, "hourly-1").await;
    labelled(&mut client, "both-1").await;
    set(&clock, "2026-11-17T22:00:30Z");
    labelled(&mut client, "both-2").await;
    let rows = client.schedules().await.unwrap();
    let hourly = rows.iter().find(|row| row.name.as_str() == "hourly").unwrap();
    assert_eq!(hourly.runs, 1);
    let note = hourly.note.clone().unwrap();
    assert!(note.contains("was left out: hourly-1 had not ended"), "{note}");
    // Nor by hand.
    assert_eq!(refused(client.run_schedule("hourly").await).0, "conflict");
    client.kill(&first.id.to_string(), &quick()).await.unwrap();
    // Paused it starts nothing; what was due meanwhile is not missed.
    client.pause_schedule("hourly", true).await.unwrap();
    set(&clock, "2026-11-18T02:10:00Z");
    labelled(&mut client, "both-3").await;
    let row = client.pause_schedule("hourly", false).await.unwrap();
    assert_eq!((row.runs, row.paused), (1, false));
    assert!(row.next_at > ms("2026-11-18T02:10:00Z") && row.next_at <= ms("2026-11-18T03:10:00Z"));
    let made = client.run_schedule("hourly").await.unwrap();
    assert_eq!(client.show(&made.id.to_string()).await.unwrap().label.as_deref(), Some("hourly-2"));
    client.unschedule("hourly").await.unwrap();
    assert_eq!(refused(client.run_schedule("hourly").await).0, "not_found");
    assert_eq!(client.schedules().await.unwrap().len(), 1);
    // Its agents stay.
    client.show(&made.id.to_string()).await.unwrap();
}

#[tokio::test]
async fn a_schedule_whose_keys_went_with_a_reboot_waits_for_them_and_runs_once() {
    let (fleet, clock) = clocked(|_| {});
    let mut client = fleet.client().await;
    let mut request = every(&fleet, "nightly", "02:00", "done");
    request.secrets.secrets.insert("KEY".to_owned(), "canary".to_owned());
    client.schedule(&request).await.unwrap();
    assert!(!fs::read(fleet.places.database()).unwrap().windows(6).any(|part| part == b"canary"));
    fleet.kill_daemon();
    fs::remove_dir_all(fleet.places.runtime()).unwrap();
    set(&clock, "2026-11-18T08:00:00Z");
    let mut client = fleet.client().await;
    let row = client.schedules().await.unwrap().remove(0);
    assert!(row.needs_keys && row.runs == 0, "{row:?}");
    let secrets = request.secrets.clone();
    client.schedule_keys(&KeysRequest { secrets }).await.unwrap();
    let run = labelled(&mut client, "nightly-1").await;
    let run = fleet.until_state(&mut client, run.id, State::Done).await;
    assert!(run.late_ms.is_some());
}

#[tokio::test]
async fn an_agent_with_a_time_waits_for_it_and_starts_late_when_no_daemon_was_there() {
    let (fleet, clock) = clocked(|_| {});
    let mut client = fleet.client().await;
    let at = |text| {
        let mut request = fleet.request("done");
        request.spec.start_at_ms = Some(ms(text));
        request
    };
    let first = client.spawn(at("2026-11-18T07:00:00Z")).await.unwrap().id;
    let second = client.spawn(at("2026-11-19T07:00:00Z")).await.unwrap().id;
    let now = client.spawn(at("2026-11-30T07:00:00Z")).await.unwrap().id;
    let row = client.show(&first.to_string()).await.unwrap();
    assert_eq!(row.queued_for, Some(QueuedFor::Time { at_ms: ms("2026-11-18T07:00:00Z") }));
    set(&clock, "2026-11-18T07:00:00Z");
    let row = fleet.until_state(&mut client, first, State::Done).await;
    assert_eq!((row.late_ms, fleet.runs(second)), (None, 0));
    let request = RequeueRequest { start_at_ms: Some(0), ..RequeueRequest::default() };
    client.requeue(&now.to_string(), request).await.unwrap();
    fleet.until_state(&mut client, now, State::Done).await;
    fleet.kill_daemon();
    set(&clock, "2026-11-19T09:00:00Z");
    let mut client = fleet.client().await;
    let missed = client.status().await.unwrap().found.missed;
    assert_eq!(missed.len(), 1, "{missed:?}");
    let row = fleet.until_state(&mut client, second, State::Done).await;
    assert!(row.late_ms.is_some_and(|late| (7_200_000..7_300_000).contains(&late)), "{row:?}");
}

#[tokio::test]
async fn in_quiet_hours_only_those_start_for_whom_they_do_not_hold() {
    let quiet = |options: &mut caliban_contract::DaemonOptions| {
        options.quiet_hours = "23:00-07:00".parse().unwrap();
    };
    let (fleet, clock) = clocked(quiet);
    let mut client = fleet.client().await;
    let before = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, before, State::Done).await;
    set(&clock, "2026-11-17T23:30:00Z");
    let waits = fleet.spawn(&mut client, "done").await;
    let high = client.spawn(with_priority(&fleet, "done", Priority::High)).await.unwrap().id;
    let mut request = fleet.request("done");
    request.spec.setup.ignores_quiet_hours = true;
    let free = client.spawn(request).await.unwrap().id;
    fleet.until_state(&mut client, high, State::Done).await;
    fleet.until_state(&mut client, free, State::Done).await;
    let row = client.show(&waits.to_string()).await.unwrap();
    let until_ms = ms("2026-11-18T07:00:00Z");
    assert_eq!(row.queued_for, Some(QueuedFor::QuietHours { until_ms }));
    set(&clock, "2026-11-18T07:00:00Z");
    fleet.until_state(&mut client, waits, State::Done).await;
}

fn ms(text: &str) -> u64 {
    let at: jiff::Timestamp = text.parse().unwrap();
    u64::try_from(at.as_millisecond()).unwrap()
}
