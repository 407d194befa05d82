//! Ending agents: nothing is left, and the state is true at every moment.

use caliban_contract::{PlaceSources, Places};
use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State};
use caliban_fleet::Client;
use caliban_fleet::protocol::{KillRequest, ResumeRequest};
use rustix::process::Signal;
use testkit::{Lack, skip};

use crate::fleet::{Fleet, is_alive, processes_of, quick, signal, wait_until};

#[tokio::test]
async fn f12_kill_is_term_and_after_the_grace_kill() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let obedient = fleet.spawn_up(&mut client, "hang").await;
    let row = client.kill(&obedient.to_string(), &quick()).await.unwrap();
    assert_eq!((row.state, row.ending), (State::Killed, Some(Ending::Signal { number: 15 })));
    // Killing again changes nothing.
    let again = client.kill(&obedient.to_string(), &quick()).await.unwrap();
    assert_eq!((again.state, again.ending), (State::Killed, Some(Ending::Signal { number: 15 })));

    let up = fleet.temp.path().join("up");
    let stubborn = fleet
        .spawn_up(&mut client, &format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display()))
        .await;
    wait_until("the shell ignores TERM", || up.exists());
    let row = client.kill(&stubborn.to_string(), &quick()).await.unwrap();
    assert_eq!(row.state, State::Killed);
    assert_eq!(processes_of(&stubborn.to_string()), Vec::<i32>::new());
}

/// A fleet whose shims see a control group of version 2 only, or none, where that can be had.
fn fleet_after(prepared: &str) -> Option<Fleet> {
    let can = std::process::Command::new("unshare").args(["-m", "sh", "-c", prepared]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        skip(Lack::Mounts);
        return None;
    }
    let mut fleet = Fleet::new();
    let inside = format!("{prepared} && exec {} \"$@\"", crate::fleet::caliband().display());
    let arguments = ["-m", "sh", "-c", &inside, "sh"];
    fleet.start.programs = vec![("/usr/bin/unshare".into(), arguments.map(Into::into).into())];
    Some(fleet)
}

/// What hides all control groups.
const NONE: &str = "mount -t tmpfs none /sys/fs/cgroup";
/// What hides version 1, if version 2 is there.
const VERSION_2: &str = "umount /sys/fs/cgroup/memory && grep -q ' - cgroup2 ' /proc/self/mountinfo";

#[tokio::test]
async fn r06_kill_leaves_nothing_of_a_tree_that_resists() {
    kill_a_tree_that_resists(&Fleet::new()).await;
}

#[tokio::test]
async fn r06_the_same_without_a_control_group() {
    let Some(fleet) = fleet_after(NONE) else { return };
    kill_a_tree_that_resists(&fleet).await;
}

#[tokio::test]
async fn r06_the_same_in_a_control_group_of_version_2() {
    let Some(fleet) = fleet_after(VERSION_2) else { return };
    kill_a_tree_that_resists(&fleet).await;
}

async fn kill_a_tree_that_resists(fleet: &Fleet) {
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    // Ignores TERM, leaves the session, forks twice, forks on and on, and one takes its marker away.
    let script = format!(
        "trap '' TERM
         setsid sh -c 'trap \"\" TERM; (sleep 300 & sleep 301 &) ; while :; do sleep 0.05; done' &
         (setsid sh -c 'trap \"\" TERM; (env -i /bin/sh -c \"trap : TERM; echo \\$\\$ > {0}.pid; mv {0}.pid {0}; while :; do sleep 0.05; done\" &)' &)
         while :; do (sleep 0.01 &); sleep 0.02; done",
        up.display()
    );
    let id = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    wait_until("the last of the tree is up", || up.exists());
    let unmarked: i32 = std::fs::read_to_string(&up).unwrap().trim().parse().unwrap();
    assert!(is_alive(unmarked));
    let group = fleet.shim(id).group;
    let mut watcher = fleet.client().await;
    let name = id.to_string();
    let watched = name.clone();
    let watch = async move {
        loop {
            let row = watcher.show(&watched).await.unwrap();
            if row.state == State::Killed {
                return (processes_of(&watched), is_alive(unmarked));
            }
            assert_eq!(row.state, State::Running);
            tokio::task::yield_now().await;
        }
    };
    let request = quick();
    let (killed, seen) = tokio::join!(client.kill(&name, &request), watch);
    assert_eq!(killed.unwrap().state, State::Killed);
    assert_eq!(seen, (Vec::new(), false));
    assert!(group.is_none_or(|group| !group.exists()));
}

#[tokio::test]
async fn f12_what_is_stopped_is_asked_to_end_all_the_same() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let (up, ended) = (fleet.temp.path().join("up"), fleet.temp.path().join("ended"));
    let script = format!(
        "trap ': > {1}; exit 0' TERM; echo $$ > {0}.pid; mv {0}.pid {0}; while :; do sleep 0.01; done",
        up.display(),
        ended.display()
    );
    let id = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    wait_until("it is up", || up.exists());
    let tool: i32 = std::fs::read_to_string(&up).unwrap().trim().parse().unwrap();
    signal(tool, Signal::STOP);
    let row = client.kill(&id.to_string(), &KillRequest { grace_ms: Some(3_000) }).await.unwrap();
    assert_eq!((row.state, ended.exists(), is_alive(tool)), (State::Killed, true, false));
}

#[tokio::test]
async fn r06_what_is_in_its_control_group_ends_with_it_whoever_started_it() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let Some(group) = fleet.shim(id).group else {
        return skip(Lack::ControlGroups);
    };
    // Ours, not the shim's: only the group tells.
    let mut joined = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    let mut stranger = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    crate::fleet::write(&group.join("cgroup.procs"), &joined.id().to_string());
    client.kill(&id.to_string(), &quick()).await.unwrap();
    assert_eq!((is_alive(i32::try_from(joined.id()).unwrap()), group.exists()), (false, false));
    joined.wait().unwrap();
    assert_eq!(stranger.try_wait().unwrap(), None);
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// What became of the shell that started a daemon.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    Behind,
    Waiting,
}

/// A daemon of another repo that an agent has started, as its `caliban agents list` there would, and an agent of it.
async fn daemon_of_another_repo(fleet: &Fleet, left: Left) -> (AgentId, i32, Client, AgentId) {
    let root = fleet.temp.path();
    std::fs::create_dir(root.join("other")).unwrap();
    let sources = PlaceSources {
        daemon_runtime_dir: Some(root.join("rt")),
        data: root.join("data"),
        ..PlaceSources::default()
    };
    let other = Places::find(&root.join("other"), &sources).unwrap();
    let script = format!(
        "{} env -u CALIBAN_AGENT_ID {} --repo {} --runtime {} --base {} > /dev/null 2>&1 & {}",
        if left == Left::Behind { "(" } else { "" },
        crate::fleet::caliband().display(),
        other.repo().display(),
        other.runtime().display(),
        other.base().display(),
        if left == Left::Behind { ")" } else { "wait" }
    );
    let mut client = fleet.client().await;
    let starter = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    wait_until("the other daemon listens", || {
        std::os::unix::net::UnixStream::connect(other.socket()).is_ok()
    });
    let mut theirs = Client::connect(&other).await.unwrap();
    let daemon = i32::try_from(theirs.status().await.unwrap().pid).unwrap();
    let shim = fleet.shim(starter).pid;
    wait_until("it is where it should be", || (parent(daemon) == Some(shim)) == (left == Left::Behind));
    // A person's, from their own shell.
    let id = theirs.spawn(fleet.request("hang")).await.unwrap().id;
    fleet.until_row(&mut theirs, id, |row| row.pid.is_some() && row.turns > 0).await;
    (starter, daemon, theirs, id)
}

#[tokio::test]
async fn a_daemon_of_another_repo_that_an_agent_had_to_start_stays_when_that_is_killed() {
    let fleet = Fleet::new();
    let (starter, daemon, mut theirs, id) = daemon_of_another_repo(&fleet, Left::Behind).await;
    let mut client = fleet.client().await;
    let row = client.kill(&starter.to_string(), &quick()).await.unwrap();
    let after = theirs.show(&id.to_string()).await.unwrap();
    assert_eq!((row.state, row.note, after.state, after.parent), (State::Killed, None, State::Running, None));
    assert!(is_alive(daemon) && is_alive(after.pid.unwrap()));
    // Its shim has left it to somebody else.
    assert!(!is_alive(fleet.shim(starter).pid));
}

#[tokio::test]
async fn a_daemon_of_another_repo_stays_when_the_shim_above_it_is_killed() {
    let fleet = Fleet::new();
    let (starter, daemon, mut theirs, id) = daemon_of_another_repo(&fleet, Left::Waiting).await;
    signal(fleet.shim(starter).pid, Signal::KILL);
    let mut client = fleet.client().await;
    fleet.until_state(&mut client, starter, State::Crashed).await;
    let after = theirs.show(&id.to_string()).await.unwrap();
    assert_eq!((after.state, is_alive(daemon)), (State::Running, true));
}

/// A control group that nobody can be killed in while it is frozen.
struct Ice(std::path::PathBuf);

impl Ice {
    /// One with this process, frozen, where the machine has such groups.
    fn around(pid: i32, name: &str) -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own =
            groups.lines().find_map(|line| line.split_once(":freezer:/").map(|(_, path)| path.to_owned()))?;
        let ice = Self(std::path::Path::new("/sys/fs/cgroup/freezer").join(own).join(name));
        std::fs::create_dir(&ice.0).ok()?;
        std::fs::write(ice.0.join("cgroup.procs"), pid.to_string()).ok()?;
        std::fs::write(ice.0.join("freezer.state"), "FROZEN").ok()?;
        wait_until("it is frozen", || {
            std::fs::read_to_string(ice.0.join("freezer.state")).is_ok_and(|state| state.trim() == "FROZEN")
        });
        Some(ice)
    }

    fn thaw(&self) {
        let _gone = std::fs::write(self.0.join("freezer.state"), "THAWED");
    }
}

impl Drop for Ice {
    fn drop(&mut self) {
        self.thaw();
        wait_until("nobody is in it", || std::fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

#[tokio::test]
async fn r06_who_cannot_be_ended_is_named() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let script = format!("sh -c 'echo $$ > {0}.pid; mv {0}.pid {0}; exec sleep 300' &", up.display());
    let id = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    wait_until("it is up", || up.exists());
    let tool: i32 = std::fs::read_to_string(&up).unwrap().trim().parse().unwrap();
    let Some(ice) = Ice::around(tool, &format!("test-{id}")) else {
        return skip(Lack::ControlGroups);
    };
    let row = client.kill(&id.to_string(), &quick()).await.unwrap();
    let words = format!("processes of it that could not be ended: {tool}");
    assert_eq!((row.state, row.note, is_alive(tool)), (State::Killed, Some(words), true));
    // The KILL still waits for it.
    ice.thaw();
    wait_until("it is gone", || !is_alive(tool));
}

#[tokio::test]
async fn what_a_finished_worker_leaves_behind_is_ended() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    let mut request = fleet.request(&format!("gate:{}", gate.display()));
    request.program = Some(fleet.temp.path().join("worker"));
    let script =
        format!("#!/bin/sh\nsetsid sleep 300 &\nexec {} \"$@\"\n", crate::fleet::fake_worker().display());
    crate::fleet::write(request.program.as_ref().unwrap(), &script);
    let mode: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(request.program.as_ref().unwrap(), mode).unwrap();
    let id = client.spawn(request).await.unwrap().id;
    fleet.until_row(&mut client, id, |row| row.turns > 0).await;
    wait_until("shim, worker and sleeper are there", || processes_of(&id.to_string()).len() == 3);
    crate::fleet::write(&gate, "");
    fleet.until_state(&mut client, id, State::Done).await;
    assert_eq!(processes_of(&id.to_string()), Vec::<i32>::new());
}

#[tokio::test]
async fn r07_a_killed_shim_is_noticed_its_tree_removed_and_resume_works() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "sh:setsid sleep 300 & sleep 301 & wait").await;
    let name = id.to_string();
    wait_until("the sleepers are there", || processes_of(&name).len() >= 5);
    let shim = fleet.shim(id);
    signal(shim.pid, Signal::KILL);
    let row = fleet.until_state(&mut client, id, State::Crashed).await;
    assert_eq!(row.ending, Some(Ending::Unknown));
    assert_eq!(processes_of(&name), Vec::<i32>::new());
    client.resume(&name, &ResumeRequest::default()).await.unwrap();
    fleet.until_row(&mut client, id, |row| row.state == State::Running && row.turns > 0).await;
    wait_until("it runs again", || fleet.runs(id) == 2);
}

#[tokio::test]
async fn r07_what_hid_from_everything_but_its_group_is_ended_with_a_killed_shim() {
    hide_from_everything_but_the_group(&Fleet::new()).await;
}

#[tokio::test]
async fn r07_the_same_in_a_control_group_of_version_2() {
    let Some(fleet) = fleet_after(VERSION_2) else { return };
    hide_from_everything_but_the_group(&fleet).await;
}

async fn hide_from_everything_but_the_group(fleet: &Fleet) {
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    // Out of the session, without the marker, an orphan already: neither parent, session nor environment tell.
    let script = format!(
        "(setsid env -i /bin/sh -c 'echo $$ > {0}.pid; mv {0}.pid {0}; while :; do sleep 0.05; done' &)",
        up.display()
    );
    let id = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    wait_until("it is up", || up.exists());
    let hidden: i32 = std::fs::read_to_string(&up).unwrap().trim().parse().unwrap();
    let shim = fleet.shim(id);
    let Some(group) = shim.group else {
        return skip(Lack::ControlGroups);
    };
    wait_until("it is an orphan", || parent(hidden) == Some(shim.pid));
    let mut stranger = std::process::Command::new("sleep").arg("300").spawn().unwrap();
    signal(shim.pid, Signal::KILL);
    let row = fleet.until_state(&mut client, id, State::Crashed).await;
    assert_eq!((row.ending, is_alive(hidden), group.exists()), (Some(Ending::Unknown), false, false));
    assert_eq!(stranger.try_wait().unwrap(), None);
    stranger.kill().unwrap();
    stranger.wait().unwrap();

    // The same when the daemon was killed with the shim: the next one finds it.
    client.resume(&id.to_string(), &ResumeRequest::default()).await.unwrap();
    std::fs::remove_file(&up).unwrap();
    wait_until("it is up again", || up.exists());
    let hidden: i32 = std::fs::read_to_string(&up).unwrap().trim().parse().unwrap();
    let shim = fleet.shim(id);
    wait_until("it is an orphan", || parent(hidden) == Some(shim.pid));
    fleet.kill_daemon();
    // It alone is left.
    for pid in [shim.pid, shim.worker_pid.unwrap()] {
        signal(pid, Signal::KILL);
        wait_until("it is gone", || !is_alive(pid));
    }
    assert!(is_alive(hidden));
    let mut client = fleet.client().await;
    let row = fleet.until_state(&mut client, id, State::Crashed).await;
    let group = shim.group.unwrap();
    assert_eq!((row.ending, is_alive(hidden), group.exists()), (Some(Ending::Unknown), false, false));
}

#[tokio::test]
async fn groups_whose_agents_nobody_knows_are_swept_by_the_next_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let lost = fleet.spawn_up(&mut client, "hang").await;
    let kept = fleet.spawn_up(&mut client, "hang").await;
    let (gone, stays) = (fleet.shim(lost), fleet.shim(kept));
    let (Some(group), Some(beside)) = (gone.group, stays.group) else {
        return skip(Lack::ControlGroups);
    };
    fleet.kill_daemon();
    for pid in [gone.pid, gone.worker_pid.unwrap()] {
        signal(pid, Signal::KILL);
        wait_until("it is gone", || !is_alive(pid));
    }
    // Nobody is left who could tell of it.
    std::fs::remove_dir_all(fleet.places.agent_dir(lost)).unwrap();
    assert!(group.exists());
    let _client = fleet.client().await;
    wait_until("it is swept", || !group.exists());
    assert!(beside.exists() && is_alive(stays.worker_pid.unwrap()));
}

#[tokio::test]
async fn r07_without_a_group_the_session_still_tells() {
    the_session_tells(Daemon::Same).await;
}

#[tokio::test]
async fn r07_without_a_group_the_session_still_tells_the_next_daemon() {
    the_session_tells(Daemon::Next).await;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Daemon {
    Same,
    Next,
}

async fn the_session_tells(daemon: Daemon) {
    let Some(fleet) = fleet_after(NONE) else { return };
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let script = format!(
        "(env -i /bin/sh -c 'echo $$ > {0}.pid; mv {0}.pid {0}; while :; do sleep 0.05; done' &)",
        up.display()
    );
    let id = fleet.spawn_up(&mut client, &format!("sh:{script}")).await;
    wait_until("it is up", || up.exists());
    let hidden: i32 = std::fs::read_to_string(&up).unwrap().trim().parse().unwrap();
    let shim = fleet.shim(id);
    assert_eq!(shim.group, None);
    wait_until("it is an orphan", || parent(hidden) == Some(shim.pid));
    if daemon == Daemon::Next {
        fleet.kill_daemon();
        client = fleet.client().await;
    }
    signal(shim.pid, Signal::KILL);
    let row = fleet.until_state(&mut client, id, State::Crashed).await;
    assert_eq!((row.ending, is_alive(hidden)), (Some(Ending::Unknown), false));
    // The end of one that was ours was taken.
    wait_until("no number is held", || daemon == Daemon::Next || parent(shim.pid).is_none());
}

#[tokio::test]
async fn the_last_words_of_an_earlier_run_do_not_count() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let gate = fleet.temp.path().join("gate");
    crate::fleet::write(&gate, "");
    let id = fleet.spawn(&mut client, &format!("gate-exit:{}", gate.display())).await;
    fleet.until_state(&mut client, id, State::Failed).await;
    std::fs::remove_file(&gate).unwrap();
    client.resume(&id.to_string(), &ResumeRequest::default()).await.unwrap();
    wait_until("it runs again", || fleet.runs(id) == 2);
    let row = fleet.until_row(&mut client, id, |row| row.pid.is_some()).await;
    signal(fleet.shim(id).pid, Signal::KILL);
    let after = fleet.until_row(&mut client, id, |row| row.state.is_ending()).await;
    assert_eq!((after.state, after.ending), (State::Crashed, Some(Ending::Unknown)));
    assert!(!is_alive(row.pid.unwrap()));
}

#[tokio::test]
async fn a_run_that_has_happened_does_not_happen_again() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let id = fleet.spawn(&mut client, "done").await;
    fleet.until_state(&mut client, id, State::Done).await;
    let (dir, socket) = (fleet.places.agent_dir(id), fleet.places.agent_socket(id));
    let shim = |nonce: &str| {
        let started = std::process::Command::new(crate::fleet::caliband())
            .arg(caliban_contract::modes::SHIM)
            .arg(&dir)
            .args(["--nonce", nonce, "--grace-ms", "200"])
            .arg("--program")
            .arg(crate::fleet::fake_worker())
            .arg("--cwd")
            .arg(fleet.temp.path())
            .arg("--socket")
            .arg(&socket)
            .output()
            .unwrap();
        let said: serde_json::Value = serde_json::from_slice(&started.stdout).unwrap();
        said["word"].as_str().unwrap().to_owned()
    };
    let nonce = fleet.shim(id).nonce;
    assert_eq!((shim(&nonce).as_str(), fleet.runs(id)), ("duplicate", 1));
    // Another one does.
    assert_eq!((shim("00ff").as_str(), fleet.runs(id)), ("started", 2));
    assert_eq!((shim("00ff").as_str(), fleet.runs(id)), ("duplicate", 2));
}

fn parent(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[tokio::test]
async fn a_kill_that_was_ordered_is_finished_by_the_next_daemon() {
    let fleet = Fleet::new();
    let mut client = fleet.client().await;
    let up = fleet.temp.path().join("up");
    let id = fleet
        .spawn_up(&mut client, &format!("sh:trap '' TERM; : > {}; while :; do sleep 0.1; done", up.display()))
        .await;
    wait_until("the shell ignores TERM", || up.exists());
    let name = id.to_string();
    let stop = fleet.places.agent_dir(id).join("stop.json");
    let long = KillRequest { grace_ms: Some(600_000) };
    let mut other = fleet.client().await;
    let kill = other.kill(&name, &long);
    let die = async {
        crate::fleet::until("the order is out", || async { stop.exists() }).await;
        fleet.kill_daemon();
    };
    // The answer is lost with the daemon; the client asks the next one again.
    let next = async {
        die.await;
        let mut client = fleet.client().await;
        client.kill(&name, &quick()).await
    };
    let (first, second) = tokio::join!(kill, next);
    assert_eq!(second.unwrap().state, State::Killed);
    assert_eq!(first.unwrap().state, State::Killed);
    assert_eq!(processes_of(&name), Vec::<i32>::new());
}

#[tokio::test]
async fn a_queued_agent_is_killed_without_ever_running() {
    let fleet = Fleet::with(|options| options.max_running = 1);
    let mut client = fleet.client().await;
    fleet.spawn_up(&mut client, "hang").await;
    let queued = fleet.spawn(&mut client, "hang").await;
    let row = client.kill(&queued.to_string(), &quick()).await.unwrap();
    assert_eq!((row.state, row.ending), (State::Killed, Some(Ending::Stopped)));
    assert_eq!(fleet.runs(queued), 0);
}
