//! Memory of running processes, as the kernel counts it.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

/// The memory of a process, in KB.
#[derive(Debug, Clone, Copy)]
pub(super) struct HeldMemory {
    /// All resident memory, shared or not.
    pub(super) resident_kb: f64,
    /// The unshared memory, which would be freed if the process ended.
    pub(super) private_kb: f64,
}

/// The present memory of a process.
pub(super) fn held(pid: u64) -> Result<HeldMemory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = |name: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        number.with_context(|| format!("{path} has no {name}"))
    };
    Ok(HeldMemory {
        resident_kb: field("Rss")?,
        private_kb: field("Private_Clean")? + field("Private_Dirty")?,
    })
}

/// The memory of a process that does nothing.
pub(super) fn held_by_bare() -> Result<HeldMemory> {
    let mut child = Command::new("sleep")
        .arg("60")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot run sleep")?;
    let sleeps = sleeping(u64::from(child.id()));
    let held = sleeps.and_then(|()| held(u64::from(child.id())));
    child.kill().context("cannot end sleep")?;
    child.wait().context("cannot wait for sleep")?;
    held
}

/// Waits until a process has started and sleeps in the kernel.
fn sleeping(pid: u64) -> Result<()> {
    loop {
        let call = std::fs::read_to_string(format!("/proc/{pid}/comm")).context("sleep is gone")?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("sleep is gone")?;
        if call.trim() == "sleep" && stat.contains(") S ") {
            return Ok(());
        }
        std::thread::yield_now();
    }
}
