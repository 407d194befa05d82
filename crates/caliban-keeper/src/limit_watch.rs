//! Watches what a command, or all of an agent, takes, and says when it is too much (a20). The kernel itself refuses further
//! processes to a fenced command (`RLIMIT_NPROC` in the fence), but not to root; where a control group is lent to us, it holds
//! an agent's memory (`group.rs`). Everything else is seen here.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use caliban_contract::tree_limits::{Excess, TreeLimits};
use caliban_core::fence::Profile;
use caliban_fence::{Access, Fence};

use crate::launch::Launch;

/// How often processes and memory of a command are looked at. A short command ends before the first look.
const LOOK: Duration = Duration::from_millis(200);
/// The same of an agent. A command that takes too much is ended long before.
const AGENT_LOOK: Duration = Duration::from_secs(1);
/// How many looks in a row must find too much of an agent.
const AGENT_LOOKS: u32 = 3;
/// How often the disk is looked at, at most.
const DISK_LOOK: Duration = Duration::from_secs(1);
/// A look at the disk may take this part of the time.
const DISK_SHARE: u32 = 10;
/// The most files of one look. What lies in more of them is not counted.
const FILES: usize = 2_000_000;

/// Ends when a command takes more than it may; never without a limit.
pub(crate) async fn command_exceeded(launch: &Launch) -> Excess {
    let limits = launch.fence.as_ref().map_or(launch.limits, |fence| fence.limits);
    if limits == TreeLimits::default() {
        return std::future::pending().await;
    }
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let places = places(launch);
    let mut next_disk = Instant::now() + DISK_LOOK;
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(excess) = taken_too_much(limits) {
            return excess;
        }
        if let Some(most) = limits.disk.filter(|_| Instant::now() >= next_disk) {
            let (looked, places) = (Instant::now(), places.clone());
            let used = tokio::task::spawn_blocking(move || used(&places, began.as_secs())).await;
            if used.is_ok_and(|used| used > most) {
                return Excess::Disk(most);
            }
            next_disk = Instant::now() + DISK_LOOK.max(looked.elapsed() * DISK_SHARE);
        }
    }
}

/// Ends when all that is below this process takes more processes or memory than it may; never without a limit. What one command
/// puts on the disk is seen where that is kept.
pub async fn agent_exceeded(limits: TreeLimits) -> Excess {
    if limits.pids.is_none() && limits.memory.is_none() {
        return std::future::pending().await;
    }
    let mut found = 0;
    loop {
        tokio::time::sleep(AGENT_LOOK).await;
        match taken_too_much(limits) {
            Some(excess) if found + 1 >= AGENT_LOOKS => return excess,
            Some(_) => found += 1,
            None => found = 0,
        }
    }
}

fn taken_too_much(limits: TreeLimits) -> Option<Excess> {
    let (pids, memory) = taken();
    let many = limits.pids.filter(|most| pids > *most).map(Excess::Pids);
    many.or_else(|| limits.memory.filter(|most| memory > *most).map(Excess::Memory))
}

/// How many processes are below this one, and the bytes of memory that each has for itself, in swap too.
fn taken() -> (u64, u64) {
    let (mut pids, mut memory) = (0, 0);
    let mut open = caliban_process::children(std::process::id().cast_signed());
    while let Some(pid) = open.pop() {
        pids += 1;
        memory += own_memory(pid);
        open.extend(caliban_process::listed_children(pid).unwrap_or_default());
    }
    (pids, memory)
}

fn own_memory(pid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kilobytes = text.lines().filter_map(|line| {
        let rest = line.strip_prefix("RssAnon:").or_else(|| line.strip_prefix("VmSwap:"))?;
        rest.split_whitespace().next()?.parse::<u64>().ok()
    });
    kilobytes.sum::<u64>() * 1024
}

/// A directory, and whether all that is in it counts or only what was changed since the command began.
#[derive(Debug, Clone)]
struct WatchedPlace {
    path: PathBuf,
    counts_all: bool,
}

fn places(launch: &Launch) -> Vec<WatchedPlace> {
    match &launch.fence {
        Some(fence) if fence.profile != Profile::Open => places_in(fence),
        // All of the machine can be written there.
        Some(_) | None => vec![WatchedPlace { path: launch.directory.clone(), counts_all: false }],
    }
}

fn places_in(fence: &Fence) -> Vec<WatchedPlace> {
    // All of the command's `/tmp` is the agent's own.
    let writable = fence.binds.iter().filter(|bind| bind.access == Access::ReadWrite);
    let watched = writable.map(|bind| WatchedPlace {
        path: bind.source.path().to_owned(),
        counts_all: bind.target.path() == Path::new("/tmp"),
    });
    watched.collect()
}

/// The bytes on the disk, as the file system counts them. Links are not followed.
fn used(places: &[WatchedPlace], began: u64) -> u64 {
    let mut left = FILES;
    places.iter().map(|place| used_below(&place.path, place.counts_all, began, &mut left)).sum()
}

fn used_below(top: &Path, counts_all: bool, began: u64, left: &mut usize) -> u64 {
    let mut bytes = 0;
    let mut open = vec![top.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if *left == 0 {
                return bytes;
            }
            *left -= 1;
            let Ok(about) = entry.metadata() else { continue };
            if about.is_dir() {
                open.push(entry.path());
            } else if counts_all || u64::try_from(about.ctime()).is_ok_and(|changed| changed >= began) {
                bytes += about.blocks() * 512;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a20_only_what_was_changed_counts_where_others_files_are() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(dir.path().join("sub/file"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("link")).unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let used_in =
            |counts_all, began| used(&[WatchedPlace { path: dir.path().to_owned(), counts_all }], began);
        assert!((1 << 20..2 << 20).contains(&used_in(true, now + 100)));
        assert!((1 << 20..2 << 20).contains(&used_in(false, now - 100)));
        assert_eq!(used_in(false, now + 100), 0);
    }
}
