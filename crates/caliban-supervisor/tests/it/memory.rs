//! An agent that the kernel ends for want of memory. The kernel's part is played: the fleet runs in a mount
//! namespace of its own where the test writes the count of `memory.events`, and the worker gets a real KILL.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use caliban_core::ids::AgentId;
use caliban_core::lifecycle::{Ending, State};
use caliban_supervisor::protocol::ResumeRequest;
use rustix::process::Signal;

use crate::fleet::{Fleet, caliband, is_alive, signal, wait_until, write};

/// Where the shim looks for the count, below `/sys/fs/cgroup`.
fn own_group() -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    groups.lines().find_map(|line| line.strip_prefix("0::/")).map(str::to_owned)
}

/// A fleet whose daemon and agents see a `memory.events` of the test's, where that can be had.
fn fleet_with_own_count() -> Option<(Fleet, String)> {
    let group = own_group()?;
    let mount = "mount -t tmpfs none /sys/fs/cgroup";
    let can = Command::new("unshare").args(["-m", "--propagation", "private", "sh", "-c", mount]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let mut fleet = Fleet::new();
    let inside = format!(
        "{mount} && mkdir -p '/sys/fs/cgroup/{group}' && echo 'oom_kill 0' > '/sys/fs/cgroup/{group}/memory.events' && exec {} \"$@\"",
        caliband().display()
    );
    let arguments = ["-m", "--propagation", "private", "sh", "-c", &inside, "sh"];
    let unshare =
        ["/usr/bin/unshare", "/bin/unshare"].map(PathBuf::from).into_iter().find(|at| at.exists())?;
    fleet.start.programs = vec![(unshare, arguments.map(Into::into).into())];
    Some((fleet, group))
}

#[tokio::test]
async fn r14_an_agent_out_of_memory_ends_alone_and_its_row_says_why() {
    let Some((fleet, group)) = fleet_with_own_count() else {
        let _unread = writeln!(std::io::stderr(), "skipped: no mount namespace or no cgroup v2 here");
        return;
    };
    let mut client = fleet.client().await;
    let daemon = fleet.daemon_pid().unwrap();
    let neighbour = fleet.spawn_up(&mut client, "hang").await;
    let hungry = fleet.spawn_up(&mut client, "hang").await;
    let beside = fleet.shim(neighbour);
    let worker = |id: AgentId| fleet.shim(id).worker_pid.unwrap();

    write(&PathBuf::from(format!("/proc/{daemon}/root/sys/fs/cgroup/{group}/memory.events")), "oom_kill 1\n");
    signal(worker(hungry), Signal::KILL);
    let row = fleet.until_state(&mut client, hungry, State::Crashed).await;
    assert_eq!(
        (row.ending, row.note.as_deref()),
        (Some(Ending::Signal { number: 9 }), Some("the kernel ended it for want of memory"))
    );
    // Nobody else felt it.
    let row = client.show(&neighbour.to_string()).await.unwrap();
    assert_eq!((row.state, row.pid, row.note), (State::Running, beside.worker_pid, None));
    assert!(is_alive(beside.pid) && is_alive(daemon));
    assert_eq!(fleet.daemon_pid(), Some(daemon));

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
