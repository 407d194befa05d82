//! Watches what a command, or all of an agent, takes, and says when it is too much (a20). The kernel itself refuses further
//! processes to a fenced command (`RLIMIT_NPROC` in the fence), but not to root; where a control group is lent to us, it holds
//! an agent's memory (`group.rs`). Everything else is seen here.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
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
    let mut next_files = Instant::now() + DISK_LOOK;
    let mut unnamed = UnnamedFiles::default();
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(excess) = taken_too_much(limits, unnamed.in_memory) {
            return excess;
        }
        if Instant::now() >= next_files {
            let (looked, places, began) = (Instant::now(), places.clone(), began.as_secs());
            let look = move || (used(&places, began), UnnamedFiles::below(began));
            let (used, found) = tokio::task::spawn_blocking(look).await.unwrap_or_default();
            unnamed = found;
            if let Some(most) = limits.disk.filter(|most| used + unnamed.on_disk > *most) {
                return Excess::Disk(most);
            }
            next_files = Instant::now() + DISK_LOOK.max(looked.elapsed() * DISK_SHARE);
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
        match taken_too_much(limits, 0) {
            Some(excess) if found + 1 >= AGENT_LOOKS => return excess,
            Some(_) => found += 1,
            None => found = 0,
        }
    }
}

/// Of these processes the one that has most below it of what there is too much of.
pub fn heaviest(of: &[i32], excess: Excess) -> Option<i32> {
    let weight = |top: &i32| {
        let tree = tree(vec![*top]);
        match excess {
            Excess::Pids(_) => tree.len() as u64,
            Excess::Memory(_) | Excess::Disk(_) => {
                let memory = tree.iter().map(|pid| TakenMemory::of(*pid));
                memory.map(|memory| memory.own + memory.shared).sum()
            }
        }
    };
    of.iter().copied().max_by_key(weight)
}

/// `unnamed` are the bytes of files in memory that have no name.
fn taken_too_much(limits: TreeLimits, unnamed: u64) -> Option<Excess> {
    let below = below();
    if let Some(most) = limits.pids.filter(|most| below.len() as u64 > *most) {
        return Some(Excess::Pids(most));
    }
    let most = limits.memory?;
    let taken = |shared: fn(i32, &TakenMemory) -> u64| {
        let all = below.iter().map(|pid| (*pid, TakenMemory::of(*pid)));
        let (own, shared) =
            all.fold((0, 0), |(own, sum), (pid, memory)| (own + memory.own, sum + shared(pid, &memory)));
        // What is open may be mapped, too.
        own + shared.max(unnamed)
    };
    // Whoever shares a page has it whole at first: the exact part of each takes the kernel long to tell.
    let is_too_much = taken(|_, memory| memory.shared) > most
        && taken(|pid, memory| part_of_shared(pid).unwrap_or(memory.shared)) > most;
    is_too_much.then_some(Excess::Memory(most))
}

/// The processes below this one.
fn below() -> Vec<i32> {
    tree(caliban_process::children(std::process::id().cast_signed()))
}

/// These processes and those below them.
fn tree(tops: Vec<i32>) -> Vec<i32> {
    let (mut found, mut at) = (tops, 0);
    while let Some(pid) = found.get(at).copied() {
        found.extend(caliban_process::listed_children(pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// The bytes of memory that a process has for itself, in swap too, and those of memory that can be shared.
struct TakenMemory {
    own: u64,
    shared: u64,
}

impl TakenMemory {
    fn of(pid: i32) -> Self {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let field = |name: &str| kilobytes(&text, name).unwrap_or_default() * 1024;
        Self { own: field("RssAnon:") + field("VmSwap:"), shared: field("RssShmem:") }
    }
}

/// A process's part of shared memory: a page that four have counts a quarter. None where it hides.
fn part_of_shared(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    Some(kilobytes(&text, "Pss_Shmem:")? * 1024)
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// The bytes of files that are open and have no name (any more), of all processes below this one. Those of a process that hides are
/// not seen.
#[derive(Debug, Clone, Copy, Default)]
struct UnnamedFiles {
    on_disk: u64,
    /// `memfd_create`, and files of a `tmpfs`.
    in_memory: u64,
}

impl UnnamedFiles {
    fn below(began: u64) -> Self {
        let mut found = Self::default();
        let mut seen = BTreeSet::new();
        let tables = below().into_iter().map(|pid| format!("/proc/{pid}/fd"));
        for entry in tables.filter_map(|table| fs::read_dir(table).ok()).flatten().flatten() {
            let path = entry.path();
            let is_unnamed =
                fs::read_link(&path).is_ok_and(|link| link.as_os_str().as_bytes().ends_with(b" (deleted)"));
            let Some(about) = is_unnamed.then(|| fs::metadata(&path).ok()).flatten() else { continue };
            let is_new = u64::try_from(about.ctime()).is_ok_and(|changed| changed >= began);
            if !about.is_file() || !is_new || !seen.insert((about.dev(), about.ino())) {
                continue;
            }
            let kind =
                rustix::fs::statfs(&path).map_or(0, |system| u64::try_from(system.f_type).unwrap_or(0));
            let bytes = about.blocks() * 512;
            match kind {
                TMPFS | HUGETLBFS => found.in_memory += bytes,
                _ => found.on_disk += bytes,
            }
        }
        found
    }
}

/// Kinds of file systems, as the kernel numbers them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

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
