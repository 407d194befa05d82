//! A command that the kernel ends for want of memory (r14), in a control group with a limit.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::bench::{Bench, helper};

/// Enough for a shell and a keeper, soon used up by one that eats.
const LIMIT_BYTES: u64 = 64 << 20;

/// A group with a limit, and a program that starts keepers in it.
struct Small {
    dir: PathBuf,
    helper: tempfile::TempPath,
}

impl Small {
    /// One, where the machine lets us make it.
    fn new() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let find = |wanted: &str| {
            groups.lines().find_map(|line| {
                let (names, path) = line.split_once(':')?.1.split_once(':')?;
                names.split(',').any(|name| name == wanted).then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let (own, join, limit) = match find("memory") {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path), "tasks", "memory.limit_in_bytes"),
            None => {
                let path = find("")?;
                (Path::new("/sys/fs/cgroup").join(path), "cgroup.procs", "memory.max")
            }
        };
        let helper_file = tempfile::Builder::new().prefix("keeper").tempfile().unwrap().into_temp_path();
        let dir = own.join(format!("test-{}", helper_file.file_name().unwrap().to_string_lossy()));
        fs::create_dir(&dir).ok()?;
        let small = Self { dir, helper: helper_file };
        fs::write(small.dir.join(limit), LIMIT_BYTES.to_string()).ok()?;
        let join = small.dir.join(join);
        let script =
            format!("#!/bin/sh\necho 0 > '{}'\nexec '{}' \"$@\"\n", join.display(), helper().display());
        fs::write(&small.helper, script).unwrap();
        fs::set_permissions(&small.helper, fs::Permissions::from_mode(0o700)).unwrap();
        Some(small)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _busy = fs::remove_dir(&self.dir);
    }
}

#[tokio::test]
async fn r14_a_command_that_eats_all_memory_is_told_why_it_ended() {
    let Some(small) = Small::new() else { return testkit::skip(testkit::Lack::ControlGroups) };
    let bench = Bench::with(|options| options.helper = small.helper.to_path_buf());
    // One endless line, which `tail` must keep.
    let output = bench.bash("tail /dev/zero").await;
    let text = output.joined_text();
    assert!(text.contains("[probably ended by the kernel for want of memory]"), "{text}");
    assert_eq!((output.exit_code, output.is_error), (Some(137), true), "{text}");
    // One of several, whose end its caller makes something of.
    let output = bench.bash("tail /dev/zero; [ $? = 137 ] && exit 2").await;
    let text = output.joined_text();
    assert!(text.contains("[memory ran out while it ran: the kernel ended a process for that]"), "{text}");
    assert_eq!(output.exit_code, Some(2), "{text}");
    // In the background, too.
    bench.ok("Bash", json!({"command": "tail /dev/zero", "run_in_background": true})).await;
    let ended = async || bench.call("BashOutput", json!({"bash_id": "bash_1"})).await;
    let text = loop {
        let output = ended().await;
        if output.exit_code.is_some() {
            break output.joined_text();
        }
        tokio::task::yield_now().await;
    };
    assert!(text.contains("[probably ended by the kernel for want of memory]"), "{text}");
    // With memory enough nothing is blamed on it.
    let output = bench.bash("kill -9 $$").await;
    assert_eq!(output.joined_text(), "[killed by signal 9: exit code 137]");
    // The command goes before its keeper and its agent.
    let text = bench.ok("Bash", json!({"command": "cat /proc/self/oom_score_adj"})).await;
    assert_eq!(text, "500\n");
}
