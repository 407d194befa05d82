//! What was open where a daemon was started is not held by it, nor by its agents.

use std::fs;

use crate::fleet::{Fleet, caliband};

#[tokio::test]
async fn neither_a_daemon_nor_its_agents_hold_what_was_open_where_it_was_started() {
    let mut fleet = Fleet::new();
    let lock = fleet.temp.path().join("lock");
    let script = format!(
        "exec 9>'{lock}' 42>'{lock}.2' && flock 9 && flock 42 && exec {} \"$@\"",
        caliband().display(),
        lock = lock.display()
    );
    let arguments = ["-c", &script, "bash"].map(Into::into).into();
    fleet.start.programs = vec![("/bin/bash".into(), arguments)];
    let mut client = fleet.client().await;
    let id = fleet.spawn_up(&mut client, "hang").await;
    let shim = fleet.shim(id);
    for pid in [fleet.daemon_pid().unwrap(), shim.pid, shim.worker_pid.unwrap()] {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        let held: Vec<_> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        assert!(held.iter().all(|file| !file.starts_with(&lock) && !file.ends_with("lock.2")), "{held:?}");
    }
    for name in ["lock", "lock.2"] {
        fs::File::open(lock.with_file_name(name)).unwrap().try_lock().unwrap();
    }
}
