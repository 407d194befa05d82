//! One daemon: started when needed, found, asked, left, adopted from.

use std::fs;
use std::time::{Duration, Instant};

use caliban_contract::records::{self, ShimRecord};
use caliban_contract::{DaemonOptions, PlaceSources, Places};
use caliban_core::lifecycle::{Ending, State};
use caliban_fleet::protocol::{FleetEvent, ResumeRequest, RmRequest, SpawnRequest};
use caliban_fleet::{Client, ClientError};
use rustix::process::Signal;

use crate::fleet::{Fleet, caliband, is_alive, processes_of, signal, wait_until, write};

#[tokio::test]
async fn f06_a_command_that_needs_the_daemon_starts_it_and_f03_each_repo_has_its_own() {
    let fleet = Fleet::new();
    assert!(matches!(Client::connect(&fleet.places).await, Err(ClientError::NotRunning(_))));
    let mut client = fleet.client().await;
    let pid = client.status().await.unwrap().pid;
    assert_eq!(fleet.client().await.status().await.unwrap().pid, pid);
    assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), caliband().canonicalize().unwrap());
    let other = fleet.temp.path().join("other");
    fs::create_dir(&other).unwrap();
    let sources = PlaceSources {
        daemon_runtime_dir: Some(fleet.places.runtime().to_owned()),
        data: fleet.temp.path().join("data"),
        ..PlaceSources::default()
    };
    let places = Places::find(&other, &sources).unwrap();
    let mut second = Client::connect_or_start(&places, fleet.start.clone()).await.unwrap();
    assert_ne!(second.status().await.unwrap().pid, pid);
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn f16_status_says_health_pid_uptime_agents_and_socket() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let status = client.status().await.unwrap();
    assert_eq!(
        (
            status.health.as_str(),
            i32::try_from(status.pid).ok(),
            status.agents,
            status.socket,
            status.protocol
        ),
        ("ok", fleet.daemon_pid(), 1, fleet.places.socket(), 1)
    );
    assert_eq!(status.states, [("done".to_owned(), 1)].into());
    assert_eq!(status.found.line(), "found nothing to do");
}

#[tokio::test]
async fn f17_stop_finishes_what_is_in_flight_and_leaves_agents_alone() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let stays = fleet.spawn_up(&mut client, "hang").await;
    let slow = fleet
        .spawn_up(&mut client, &format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display()))
        .await;
    wait_until("the shell ignores TERM", || up.exists());
    let (shim, daemon) = (fleet.shim(stays), fleet.daemon_pid().unwrap());
    let mut killer = fleet.client().await;
    let name = slow.to_string();
    let request = crate::fleet::quick();
    let kill = killer.kill(&name, &request);
    let stop = async {
        let order = fleet.places.agent_dir(slow).join(records::STOP);
        crate::fleet::until("the kill is under way", || async { order.exists() }).await;
        client.shutdown().await
    };
    let (killed, stopped) = tokio::join!(kill, stop);
    stopped.unwrap();
    assert_eq!(killed.unwrap().state, State::Killed);
    wait_until("the daemon is gone", || !is_alive(daemon));
    assert!(!fleet.places.socket().exists());
    assert!(is_alive(shim.pid) && is_alive(shim.worker_pid.unwrap()));
    let mut client = fleet.client().await;
    let row = client.show(&stays.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid, row.shim_pid), (State::Running, shim.worker_pid, Some(shim.pid)));
    // The signal is the same request.
    let daemon = fleet.daemon_pid().unwrap();
    signal(daemon, Signal::TERM);
    wait_until("the daemon is gone", || !is_alive(daemon) && !fleet.places.socket().exists());
    assert!(is_alive(shim.pid));
}

#[tokio::test]
async fn f17_whoever_waits_for_a_mute_worker_does_not_keep_the_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "mute").await.to_string();
    // This one starts no daemon.
    let mut waits = Client::connect(&fleet.places).await.unwrap();
    let stop = async {
        client.show(&id).await.unwrap();
        client.shutdown().await
    };
    let (awake, stopped) = tokio::join!(waits.wake(&id), stop);
    stopped.unwrap();
    assert!(matches!(awake, Err(ClientError::NotRunning(_))), "{awake:?}");
    assert!(!fleet.log().contains("unanswered"), "{}", fleet.log());
}

#[tokio::test]
async fn f20_r03_agents_survive_daemons_and_are_adopted_with_id_pid_and_state() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut before = Vec::new();
    for plan in ["hang", "serve", "hang", "mute"] {
        let id = fleet.spawn(&mut client, plan).await;
        let state = if plan == "serve" { State::Idle } else { State::Running };
        let row = fleet.until_row(&mut client, id, |row| row.state == state && row.pid.is_some()).await;
        before.push((row.id, row.pid, row.shim_pid, row.state));
    }
    let asks = before[1].0;
    fleet.tell(asks, "ask");
    fleet.until_row(&mut client, asks, |row| row.waiting_for.is_some()).await;
    before[1].3 = State::Running;
    let ask = client.show(&asks.to_string()).await.unwrap().asks;
    for n in 0..5 {
        if n == 2 {
            fleet.client().await.shutdown().await.unwrap();
        } else {
            fleet.kill_daemon();
        }
        let mut client = fleet.client().await;
        let rows = client.list().await.unwrap();
        let after: Vec<_> = rows.iter().map(|row| (row.id, row.pid, row.shim_pid, row.state)).collect();
        assert_eq!(after, before);
        assert_eq!(rows[1].asks, ask);
        assert_eq!(client.status().await.unwrap().found.line(), "found 4 living agents");
    }
    // One whose process is gone meanwhile has crashed, and can be recovered.
    fleet.kill_daemon();
    let lost = before[0].0;
    for pid in processes_of(&lost.to_string()) {
        signal(pid, Signal::KILL);
    }
    wait_until("it is gone", || processes_of(&lost.to_string()).is_empty());
    let mut client = fleet.client().await;
    let row = client.show(&lost.to_string()).await.unwrap();
    assert_eq!((row.state, row.ending), (State::Crashed, Some(Ending::Unknown)));
    assert_eq!(client.status().await.unwrap().found.line(), "found 3 living agents, 1 crashed");
    client.resume(&lost.to_string(), &ResumeRequest::default()).await.unwrap();
    fleet.until_row(&mut client, lost, |row| row.state == State::Running && row.runs == 2).await;
}

#[tokio::test]
async fn f20_what_ended_while_no_daemon_ran_is_known_by_its_last_words() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let id = fleet.spawn_up(&mut client, &format!("gate:{}", gate.display())).await;
    let shim = fleet.shim(id);
    fleet.kill_daemon();
    write(&gate, "");
    wait_until("it has ended", || !is_alive(shim.pid));
    let mut client = fleet.client().await;
    let row = client.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.ending), (State::Done, Some(Ending::Finished)));
    assert_eq!(client.status().await.unwrap().found.line(), "found 1 ended");
}

#[tokio::test]
async fn a_shim_killed_while_no_daemon_ran_leaves_nothing() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let shim = fleet.shim(id);
    fleet.kill_daemon();
    signal(shim.pid, Signal::KILL);
    wait_until("the shim is gone", || !is_alive(shim.pid));
    assert!(is_alive(shim.worker_pid.unwrap()));
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Crashed);
    assert!(!is_alive(shim.worker_pid.unwrap()));
    assert_eq!(client.status().await.unwrap().found.line(), "found 1 crashed, ended 1 stray process");
}

#[tokio::test]
async fn r04_a_stranger_with_the_pid_of_a_shim_gets_no_signal() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    fleet.kill_daemon();
    for pid in processes_of(&id.to_string()) {
        signal(pid, Signal::KILL);
    }
    wait_until("it is gone", || processes_of(&id.to_string()).is_empty());
    let mut stranger = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let pid = i32::try_from(stranger.id()).unwrap();
    let reused = ShimRecord { pid, worker_pid: Some(pid), ..fleet.shim(id) };
    records::write(&fleet.places.agent_dir(id), records::SHIM, &reused).unwrap();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Crashed);
    client.kill(&id.to_string(), &crate::fleet::quick()).await.unwrap();
    assert!(stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn r18_after_a_reboot_agents_are_crashed_and_can_be_resumed() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    fleet.kill_daemon();
    for pid in processes_of(&id.to_string()) {
        signal(pid, Signal::KILL);
    }
    wait_until("it is gone", || processes_of(&id.to_string()).is_empty());
    // Somebody else has the pids now, with the very start times: only the boot tells.
    let mut stranger = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let pid = i32::try_from(stranger.id()).unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start_time = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let before = ShimRecord {
        pid,
        start_time,
        boot_id: "00000000-0000-0000-0000-000000000000".to_owned(),
        worker_pid: Some(pid),
        worker_start_time: Some(start_time),
        ..fleet.shim(id)
    };
    records::write(&fleet.places.agent_dir(id), records::SHIM, &before).unwrap();
    let mut client = fleet.client().await;
    assert_eq!(client.show(&id.to_string()).await.unwrap().state, State::Crashed);
    assert!(stranger.try_wait().unwrap().is_none());
    client.resume(&id.to_string(), &ResumeRequest::default()).await.unwrap();
    fleet.until_row(&mut client, id, |row| row.state == State::Running && row.turns > 0).await;
    wait_until("it runs again", || fleet.runs(id) == 2);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[tokio::test]
async fn r08_fifty_first_commands_with_stale_files_make_one_daemon() {
    let fleet = Fleet::new();
    fleet.places.prepare().unwrap();
    // A socket that nobody serves, locks that nobody holds, files of a daemon that died while it started.
    drop(std::os::unix::net::UnixListener::bind(fleet.places.socket()).unwrap());
    drop(std::os::unix::net::UnixListener::bind(fleet.places.sockets_dir().join("daemon.new")).unwrap());
    for file in
        [fleet.places.start_lock(), fleet.places.daemon_lock(), fleet.places.log(), fleet.places.database()]
    {
        write(&file, "");
    }
    let commands: Vec<_> = (0..50)
        .map(|_| {
            let (places, start) = (fleet.places.clone(), fleet.start.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let mut client = Client::connect_or_start(&places, start).await.unwrap();
                    client.status().await.unwrap().pid
                })
            })
        })
        .collect();
    let pids: std::collections::BTreeSet<u32> = commands.into_iter().map(|c| c.join().unwrap()).collect();
    assert_eq!(pids.len(), 1);
    let started = fleet.log().lines().filter(|line| line.contains("listening")).count();
    assert_eq!(started, 1, "{}", fleet.log());
}

#[tokio::test]
async fn a_spawn_that_is_asked_for_twice_with_one_key_is_one() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let request = SpawnRequest { key: Some("the key".to_owned()), ..fleet.request("done") };
    let mut other = fleet.client().await;
    let (first, second) = tokio::join!(client.spawn(request.clone()), other.spawn(request.clone()));
    let first = first.unwrap().id;
    assert_eq!(second.unwrap().id, first);
    fleet.kill_daemon();
    assert_eq!(fleet.client().await.spawn(request).await.unwrap().id, first);
    assert_eq!(fleet.client().await.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_daemon_started_by_an_agent_and_its_agents_outlive_that_agent() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let go = fleet.temp.path().join("go");
    let daemon = format!(
        "{} --repo {} --runtime {} --base {} --options '{}'",
        caliband().display(),
        fleet.places.repo().display(),
        fleet.places.runtime().display(),
        fleet.places.base().display(),
        serde_json::to_string(&DaemonOptions { grace_ms: 300, ..DaemonOptions::default() }).unwrap(),
    );
    let script = format!(
        "while [ ! -e {0} ]; do sleep 0.02; done; env -i PATH=$PATH {daemon} >/dev/null 2>&1 &",
        go.display()
    );
    let first = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    fleet.kill_daemon();
    write(&go, "");
    wait_until("the agent's daemon listens", || {
        std::os::unix::net::UnixStream::connect(fleet.places.socket()).is_ok()
    });
    let mut client = Client::connect(&fleet.places).await.unwrap();
    let second = fleet.spawn_up(&mut client, "hang").await;
    let (pid, shim) = (fleet.daemon_pid().unwrap(), fleet.shim(second));
    // Nor do they stay in its control group, which they would be ended with.
    for ours in [pid, shim.pid] {
        let groups = fs::read_to_string(format!("/proc/{ours}/cgroup")).unwrap();
        assert!(!groups.contains(&first.to_string()), "{groups}");
    }
    client.kill(&first.to_string(), &crate::fleet::quick()).await.unwrap();
    assert!(is_alive(pid) && is_alive(shim.pid) && is_alive(shim.worker_pid.unwrap()));
    assert_eq!(client.show(&second.to_string()).await.unwrap().state, State::Running);
}

#[tokio::test]
async fn a11_an_agent_that_spawns_is_the_parent_whatever_it_says() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let answer = fleet.temp.path().join("answer");
    let body = fleet.temp.path().join("body");
    let request = serde_json::to_string(&fleet.request("done")).unwrap();
    write(&body, &request);
    let curl = format!(
        "curl -s --unix-socket {} -H 'content-type: application/json' --data-binary @{} http://x/v1/agents > {2}.new; mv {2}.new {2}",
        fleet.places.socket().display(),
        body.display(),
        answer.display()
    );
    // However deep below it the one is who asks.
    let deep = fleet.temp.path().join("deep");
    write(&deep, &format!("if [ $1 -gt 0 ]; then sh {} $(($1 - 1)); else {curl}; fi; :", deep.display()));
    let parent = fleet.spawn_up(&mut client, &format!("sh:sh {} 70; :", deep.display())).await;
    wait_until("it has an answer", || answer.exists());
    let spawned: serde_json::Value = serde_json::from_str(&fs::read_to_string(&answer).unwrap()).unwrap();
    let row = client.show(spawned["id"].as_str().unwrap()).await.unwrap();
    assert_eq!(row.parent, Some(parent));
}

/// Agents that survive; `CALIBAN_SOAK_AGENTS` sets another number for `cargo xtask soak`.
const SURVIVORS: u64 = 50;

#[tokio::test]
async fn r03_fifty_agents_survive_twenty_kills_a_stop_and_an_upgrade_with_the_same_pids() {
    let survivors = crate::history::number("CALIBAN_SOAK_AGENTS", || SURVIVORS);
    let mut fleet = Fleet::with(|options| options.max_running = u32::try_from(survivors).unwrap());
    let mut client = fleet.client().await;
    for _ in 0..survivors {
        fleet.spawn(&mut client, "hang").await;
    }
    let mut before = Vec::new();
    for row in client.list().await.unwrap() {
        let row = fleet.until_row(&mut client, row.id, |row| row.turns > 0).await;
        before.push((row.id, row.pid.unwrap(), row.shim_pid.unwrap(), row.state));
    }
    let upgrade = fleet.temp.path().join("caliband");
    fs::copy(caliband(), &upgrade).unwrap();
    for n in 0..22 {
        if n < 20 {
            fleet.kill_daemon();
        } else {
            fleet.client().await.shutdown().await.unwrap();
        }
        if n == 21 {
            fleet.start.programs = vec![(upgrade.clone(), Vec::new())];
        }
        let mut client = fleet.client().await;
        let status = client.status().await.unwrap();
        assert_eq!(status.found.line(), format!("found {survivors} living agents"));
        let rows = client.list().await.unwrap();
        let after: Vec<_> =
            rows.iter().map(|row| (row.id, row.pid.unwrap(), row.shim_pid.unwrap(), row.state)).collect();
        assert_eq!(after, before);
    }
    let pid = fleet.daemon_pid().unwrap();
    assert_eq!(fs::read_link(format!("/proc/{pid}/exe")).unwrap(), upgrade.canonicalize().unwrap());
    assert!(
        before.iter().all(|(id, pid, shim, _)| is_alive(*pid) && is_alive(*shim) && fleet.runs(*id) == 1)
    );
    // The new one is their daemon as the first was.
    let mut client = fleet.client().await;
    let row = client.kill(&before[0].0.to_string(), &crate::fleet::quick()).await.unwrap();
    assert_eq!(row.state, State::Killed);
}

#[tokio::test]
async fn a11_one_agent_has_no_more_living_agents_than_the_settings_say() {
    let fleet = Fleet::with(|options| (options.max_running, options.max_by_model) = (1, 20));
    let mut client = fleet.client().await;
    let parent = fleet.spawn_up(&mut client, "hang").await;
    let child = || {
        let mut request = fleet.request("hang");
        request.spec.parent = Some(parent);
        request
    };
    for _ in 0..20 {
        client.spawn(child()).await.unwrap();
    }
    let (code, message, _) = crate::fleet::refused(client.spawn(child()).await);
    let expected =
        format!("agent {parent} has 20 living agents, which is all that one may have (fleet.max_by_model)");
    assert_eq!((code.as_str(), message), ("conflict", expected));
    // A person is not limited.
    fleet.spawn(&mut client, "hang").await;
}

#[tokio::test]
async fn a_daemon_without_agents_whom_nobody_asks_leaves_and_whoever_comes_gets_another() {
    const STAY: Duration = Duration::from_millis(2_000);
    let longer = async || {
        let began = Instant::now();
        // Its looks come every second.
        crate::fleet::until("time goes by", async || began.elapsed() > STAY + Duration::from_millis(1_500))
            .await;
    };
    let fleet = Fleet::with(|options| options.stay_ms = u64::try_from(STAY.as_millis()).unwrap());
    let mut client = fleet.client().await;
    // Somebody listens: it stays.
    let mut events = client.events().await.unwrap();
    while events.next().await.unwrap() != Some(FleetEvent::Ready {}) {}
    let first = i32::try_from(client.status().await.unwrap().pid).unwrap();
    longer().await;
    assert!(is_alive(first));
    drop((events, client));
    crate::fleet::until("it has left", async || !is_alive(first)).await;
    // One with an agent stays, whatever became of that.
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    client.kill(&id.to_string(), &crate::fleet::quick()).await.unwrap();
    let second = client.status().await.unwrap().pid;
    assert_ne!(i32::try_from(second).unwrap(), first);
    longer().await;
    assert_eq!(client.status().await.unwrap().pid, second);
}

/// A daemon that is killed again and again under the removal of many agents: each is removed, and nobody has to ask again.
#[tokio::test]
async fn r01_agents_are_removed_while_daemons_die() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let mut ids = Vec::new();
    for _ in 0..12 {
        ids.push(fleet.spawn(&mut client, "done").await);
    }
    for id in &ids {
        fleet.until_state(&mut client, *id, State::Done).await;
    }
    let removals: Vec<_> = ids
        .iter()
        .map(|id| {
            let (mut client, id) = (client.another(), id.to_string());
            tokio::spawn(async move { client.rm(&id, RmRequest::default()).await })
        })
        .collect();
    let mut kills = 0;
    while removals.iter().any(|removal| !removal.is_finished()) && kills < 40 {
        fleet.kill_daemon();
        kills += 1;
        drop(fleet.client().await);
    }
    for removal in removals {
        removal.await.unwrap().unwrap();
    }
    assert_eq!(fleet.client().await.list().await.unwrap().len(), 0);
}
