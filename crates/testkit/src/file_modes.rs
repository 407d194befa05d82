//! Tests about what a user may not do and root may: files that may not be read or written, processes that hide. They run
//! in a process that has dropped those capabilities.

use std::process::Command;

/// The capabilities that let root read and write everything: their bits in `/proc/self/status`, and their names.
const FILES: (u64, &str) = (1 << 1 | 1 << 2, "-dac_override,-dac_read_search");
/// The one that lets root look into every process.
const PROCESSES: (u64, &str) = (1 << 19, "-sys_ptrace");

/// Whether file modes apply to this process. If not, runs the calling test again in a process to which they do, which
/// must pass; the caller then returns.
#[track_caller]
pub fn file_modes_count() -> bool {
    runs_without(FILES)
}

/// The same for processes that hide (`PR_SET_DUMPABLE`).
#[track_caller]
pub fn processes_can_hide() -> bool {
    runs_without(PROCESSES)
}

#[track_caller]
fn runs_without(rights: (u64, &str)) -> bool {
    if effective() & rights.0 == 0 {
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("a test's thread has its name");
    let inner = Command::new("setpriv")
        .arg(format!("--bounding-set={}", rights.1))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .output()
        .expect("setpriv is part of util-linux");
    let said = String::from_utf8_lossy(&inner.stdout);
    assert!(
        inner.status.success() && said.contains("1 passed"),
        "{test} without the rights of root: {}\n{said}{}",
        inner.status,
        String::from_utf8_lossy(&inner.stderr)
    );
    false
}

/// The effective capabilities of this process.
fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    u64::from_str_radix(line.expect("Linux shows capabilities").trim(), 16).unwrap()
}
