//! Noticing that a git waits for something that will never come: a pipe in the place of a file that it reads.

use std::time::Duration;

use rustix::process::Pid;

/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Returns when every thread of `pid` has slept for `patience` without using the processor. A process that waits for a disk
/// does not sleep in this sense. Never returns where that cannot be seen, or without a limit.
pub(super) async fn stalled(pid: Option<Pid>, patience: Option<Duration>) {
    if let (Some(pid), Some(patience)) = (pid, patience) {
        let looks = (patience.as_millis() / LOOK.as_millis()).max(1);
        let (mut seen, mut same) = (None, 0);
        loop {
            tokio::time::sleep(LOOK).await;
            match asleep(pid) {
                None => (seen, same) = (None, 0),
                now if now == seen => same += 1,
                now => (seen, same) = (now, 0),
            }
            if same >= looks {
                return;
            }
        }
    }
    std::future::pending::<()>().await;
}

/// The processor time of a process all of whose threads sleep; `None` when one of them does not, or when nothing is known.
fn asleep(pid: Pid) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).ok()?;
    let mut used = 0;
    for task in tasks {
        let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        // The name before it may hold anything.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        if fields.first() != Some(&"S") {
            return None;
        }
        let ticks = |field: usize| fields.get(field).and_then(|ticks| ticks.parse::<u64>().ok());
        used += ticks(11)? + ticks(12)?;
    }
    Some(used)
}
