//! An agent that the kernel ends for want of memory: for real in a control group with a limit, and with a played
//! kernel where the shims can make no group.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State};
use caliban_fleet::protocol::ResumeRequest;
use rustix::process::Signal;
use testkit::{Lack, skip};

use crate::fleet::{Fleet, caliband, fake_worker, is_alive, signal, wait_until, write};

/// Enough for a daemon and its shims and idle workers; soon used up by one that eats.
const LIMIT_BYTES: u64 = 256 * 1024 * 1024;

/// The group that this test stands in: where its memory is counted, and the file that joins.
fn own_group() -> Option<(PathBuf, &'static str, &'static str)> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let find = |wanted: &str| {
        groups.lines().find_map(|line| {
            let (names, path) = line.split_once(':')?.1.split_once(':')?;
            names.split(',').any(|name| name == wanted).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    if let Some(path) = find("memory") {
        return Some((Path::new("/sys/fs/cgroup/memory").join(path), "tasks", "memory.limit_in_bytes"));
    }
    Some((Path::new("/sys/fs/cgroup").join(find("")?), "cgroup.procs", "memory.max"))
}

/// A group with a limit of its own, for a fleet.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        wait_until("nobody is in the group", || {
            let inside = fs::read_dir(&self.0).into_iter().flatten().flatten();
            for below in inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
                let _busy = fs::remove_dir(below.path());
            }
            fs::remove_dir(&self.0).is_ok() || !self.0.exists()
        });
    }
}

/// A fleet whose daemon stands in a group with a limit, where such a group can be made.
fn fleet_in_small_group() -> Option<(Fleet, Small)> {
    let mut fleet = Fleet::new();
    let (own, join, limit) = own_group()?;
    let name = fleet.temp.path().file_name().unwrap().to_string_lossy().into_owned();
    let dir = own.join(format!("test-{name}"));
    fs::create_dir(&dir).ok()?;
    let small = Small(dir);
    fs::write(small.0.join(limit), LIMIT_BYTES.to_string()).ok()?;
    let inside =
        format!("echo 0 > '{}' && exec {} \"$@\"", small.0.join(join).display(), caliband().display());
    let arguments = ["-c", &inside, "sh"];
    fleet.start.programs = vec![("/bin/sh".into(), arguments.map(Into::into).into())];
    Some((fleet, small))
}

#[tokio::test]
async fn r14_the_agent_that_eats_all_memory_ends_alone_and_its_row_says_why() {
    // The fleet goes before its group.
    let Some((fleet, small)) = fleet_in_small_group() else { return skip(Lack::ControlGroups) };
    let (_small, fleet) = (small, fleet);
    let mut client = fleet.client().await;
    let daemon = fleet.daemon_pid().unwrap();
    let neighbour = fleet.spawn_up(&mut client, "hang").await;
    let gate = fleet.temp.path().join("gate");
    let hungry = fleet.spawn_up(&mut client, &format!("eat:{}", gate.display())).await;
    let beside = fleet.shim(neighbour);
    let Some(group) = fleet.shim(hungry).group else { return skip(Lack::ControlGroups) };
    let worker = |id: AgentId| fleet.shim(id).worker_pid.unwrap();
    let members = |group: &Path| fs::read_to_string(group.join("cgroup.procs")).unwrap();
    assert_eq!(members(&group), format!("{}\n", worker(hungry)));

    write(&gate, "");
    let row = fleet.until_state(&mut client, hungry, State::Crashed).await;
    assert_eq!(
        (row.ending, row.note.as_deref()),
        (Some(Ending::Signal { number: 9 }), Some("the kernel probably ended it for want of memory"))
    );
    assert!(!group.exists(), "the group is removed with the run");
    // Nobody else felt it.
    let row = client.show(&neighbour.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid, row.note), (State::Running, beside.worker_pid, None));
    assert!(is_alive(beside.pid) && is_alive(daemon));
    assert_eq!(fleet.daemon_pid(), Some(daemon));

    fs::remove_file(&gate).unwrap();
    client.resume(&hungry.to_string(), &ResumeRequest::default()).await.unwrap();
    wait_until("it runs again", || fleet.runs(hungry) == 2);
    let row =
        fleet.until_row(&mut client, hungry, |row| row.state == State::Running && row.pid.is_some()).await;
    assert_eq!((row.ending, row.note), (None, None));
    // A KILL with memory enough is not blamed on memory.
    signal(worker(hungry), Signal::KILL);
    let row = fleet.until_state(&mut client, hungry, State::Crashed).await;
    assert_eq!((row.ending, row.note), (Some(Ending::Signal { number: 9 }), None));
}

/// A fleet whose shims can make no group and see a count of the test's, where that can be had.
fn fleet_with_played_count() -> Option<(Fleet, PathBuf)> {
    let (group, _, _) = own_group()?;
    let mount = "mount -t tmpfs none /sys/fs/cgroup";
    let can = Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", mount]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut fleet = Fleet::new();
    let v1 = group.starts_with("/sys/fs/cgroup/memory");
    let count = group.join(if v1 { "memory.oom_control" } else { "memory.events" });
    let inside = format!(
        "{mount} && mkdir -p '{}' && echo 'oom_kill 0' > '{}' && exec {} \"$@\"",
        group.display(),
        count.display(),
        caliband().display()
    );
    let arguments = ["-m", "--propagation", "private", "sh", "-c", &inside, "sh"];
    fleet.start.programs = vec![("/usr/bin/unshare".into(), arguments.map(Into::into).into())];
    Some((fleet, count))
}

#[tokio::test]
async fn r14_without_a_group_of_its_own_the_reason_is_shown_as_probable() {
    let Some((fleet, count)) = fleet_with_played_count() else { return skip(Lack::Mounts) };
    let mut client = fleet.client().await;
    let daemon = fleet.daemon_pid().unwrap();
    let hungry = fleet.spawn_up(&mut client, "hang").await;
    let shim = fleet.shim(hungry);
    assert_eq!(shim.group, None);
    let count = PathBuf::from(format!("/proc/{daemon}/root{}", count.display()));
    write(&count, "oom_kill 1\n");
    signal(shim.worker_pid.unwrap(), Signal::KILL);
    let row = fleet.until_state(&mut client, hungry, State::Crashed).await;
    assert_eq!(
        (row.ending, row.note.as_deref()),
        (Some(Ending::Signal { number: 9 }), Some("the kernel probably ended it for want of memory"))
    );
    // A KILL of ours is not blamed on memory, however it stands with that.
    let mut request = fleet.request("hang");
    let program = fleet.temp.path().join("stubborn");
    write(&program, &format!("#!/bin/sh\ntrap '' TERM\nexec {} \"$@\"\n", fake_worker().display()));
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    request.program = Some(program);
    let stubborn = client.spawn(request).await.unwrap().id;
    fleet.until_row(&mut client, stubborn, |row| row.turns > 0).await;
    write(&count, "oom_kill 2\n");
    let row = client.kill(&stubborn.to_string(), &crate::fleet::quick()).await.unwrap();
    assert_eq!((row.state, row.ending, row.note), (State::Killed, Some(Ending::Signal { number: 9 }), None));
}
