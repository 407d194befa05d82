//! Watches what a command, or all of an agent, takes, and says when it is too much (a20). The kernel itself refuses further
//! processes to a fenced command (`RLIMIT_NPROC` in the fence), but not to root; where a control group is lent to us, it holds
//! an agent's memory (`group.rs`). Everything else is seen here.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use std::{fs, io};

use caliban_contract::tree_limits::{Excess, TreeLimits};
use caliban_core::fence::Profile;
use caliban_fence::{Access, Fence};

use crate::launch::{Launch, Streams};

/// How often processes and memory of a command are looked at. A short command ends before the first look.
const LOOK: Duration = Duration::from_millis(200);
/// The same of an agent, and of a program that serves for long. A command that takes too much is ended long before.
const AGENT_LOOK: Duration = Duration::from_secs(1);
/// How many looks in a row must find too much of an agent.
const AGENT_LOOKS: u32 = 3;
/// How often the disk is looked at, at most.
const DISK_LOOK: Duration = Duration::from_secs(1);
/// A look at the disk may take this part of the time.
const DISK_SHARE: u32 = 10;
/// The most files that a command may change: a look has to end.
const FILES: u64 = 2_000_000;
/// How many looks at the disk in a row must find that a process of a fence hides its files.
const HIDDEN_LOOKS: u32 = 3;

/// Ends when a command takes more than it may; never without a limit.
pub(crate) async fn command_exceeded(launch: &Launch) -> Excess {
    let limits = launch.fence.as_ref().map_or(launch.limits, |fence| fence.limits);
    if limits == TreeLimits::default() {
        return std::future::pending().await;
    }
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let places = places(launch, began);
    let mut hidden = HiddenTables::default();
    // Nobody waits for a look when the command has ended.
    let awaited = Arc::new(());
    let mut next_files = Instant::now() + DISK_LOOK;
    let mut unnamed = UnnamedFiles::default();
    let pause = if launch.streams == Streams::Live { AGENT_LOOK } else { LOOK };
    loop {
        tokio::time::sleep(pause).await;
        if let Some(excess) = taken_too_much(limits, unnamed.in_memory) {
            return excess;
        }
        if Instant::now() >= next_files {
            let (looked, awaited) = (Instant::now(), Arc::downgrade(&awaited));
            let places = if limits.disk.is_some() { places.clone() } else { Vec::new() };
            let look = move || {
                let is_awaited = || awaited.strong_count() > 0;
                (DiskUse::of(&places, began, &is_awaited), UnnamedFiles::below(began))
            };
            let (used, found) = tokio::task::spawn_blocking(look).await.unwrap_or_default();
            unnamed = found.files;
            if let Some(excess) = limits.disk.and_then(|most| used.excess(unnamed.on_disk, most)) {
                return excess;
            }
            if launch.fence.is_some() && hidden.are_found_again(found.tables) {
                return Excess::Hidden;
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
            Excess::Memory(_) | Excess::Disk(_) | Excess::Files(_) | Excess::Hidden => {
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

/// The bytes of files that are open and have no name (any more).
#[derive(Debug, Clone, Copy, Default)]
struct UnnamedFiles {
    on_disk: u64,
    /// `memfd_create`, and files of a `tmpfs`.
    in_memory: u64,
}

/// What is found at the descriptors of all processes below this one.
#[derive(Debug, Default)]
struct FoundDescriptors {
    files: UnnamedFiles,
    tables: Tables,
}

/// Which processes show their descriptors. One does not that runs a program that may not be read.
#[derive(Debug, Default)]
struct Tables {
    is_any_shown: bool,
    hidden: BTreeSet<i32>,
}

impl Tables {
    fn entries(&mut self, pid: i32) -> Option<fs::ReadDir> {
        match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => {
                self.is_any_shown = true;
                Some(entries)
            }
            Err(error) => {
                let is_over = || caliban_process::stat(pid).is_none_or(|stat| stat.is_over());
                if error.kind() == io::ErrorKind::PermissionDenied && !is_over() {
                    self.hidden.insert(pid);
                }
                None
            }
        }
    }
}

/// In how many looks in a row each process was hidden.
#[derive(Debug, Default)]
struct HiddenTables(BTreeMap<i32, u32>);

impl HiddenTables {
    fn are_found_again(&mut self, tables: Tables) -> bool {
        // Where we can look into nobody, nobody hides: the first process of a fence is ours.
        let hidden = if tables.is_any_shown { tables.hidden } else { BTreeSet::new() };
        let counted = hidden.into_iter().map(|pid| (pid, self.0.get(&pid).map_or(1, |looks| looks + 1)));
        self.0 = counted.collect();
        self.0.values().any(|looks| *looks >= HIDDEN_LOOKS)
    }
}

impl UnnamedFiles {
    fn below(began: u64) -> FoundDescriptors {
        let mut found = Self::default();
        let mut seen = BTreeSet::new();
        let mut tables = Tables::default();
        for entry in below().into_iter().filter_map(|pid| tables.entries(pid)).flatten().flatten() {
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
        FoundDescriptors { files: found, tables }
    }
}

/// Kinds of file systems, as the kernel numbers them.
const TMPFS: u64 = 0x0102_1994;
const HUGETLBFS: u64 = 0x9584_58f6;

/// A directory, and since when (in seconds since 1970) what was changed in it counts.
#[derive(Debug, Clone)]
struct WatchedPlace {
    path: PathBuf,
    since: u64,
}

fn places(launch: &Launch, began: u64) -> Vec<WatchedPlace> {
    match &launch.fence {
        Some(fence) if fence.profile != Profile::Open => places_in(fence, began),
        // All of the machine can be written there.
        Some(_) | None => vec![WatchedPlace { path: launch.directory.clone(), since: began }],
    }
}

/// Only the agent writes in its `/tmp` and in a worktree of its own: what its earlier commands left there counts, too.
fn places_in(fence: &Fence, began: u64) -> Vec<WatchedPlace> {
    let writable = fence.binds.iter().filter(|bind| bind.access == Access::ReadWrite);
    let watched = writable.map(|bind| {
        let own = fence.own_since.as_ref().filter(|own| own.place.path() == bind.source.path());
        let since = match own {
            Some(own) => own.seconds.min(began),
            None if bind.target.path() == Path::new("/tmp") => 0,
            None => began,
        };
        WatchedPlace { path: bind.source.path().to_owned(), since }
    });
    watched.collect()
}

/// What is on the disk in watched places.
#[derive(Debug, Default, PartialEq, Eq)]
struct DiskUse {
    /// Bytes, as the file system counts them.
    bytes: u64,
    /// Those of files that were changed since the command began.
    by_command: u64,
    files: u64,
}

impl DiskUse {
    /// Links are not followed.
    fn of(places: &[WatchedPlace], began: u64, is_awaited: &dyn Fn() -> bool) -> Self {
        let mut used = Self::default();
        places.iter().for_each(|place| used.add(place, began, is_awaited));
        used
    }

    fn add(&mut self, place: &WatchedPlace, began: u64, is_awaited: &dyn Fn() -> bool) {
        let mut open = vec![place.path.clone()];
        while let Some(directory) = open.pop().filter(|_| is_awaited()) {
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let Ok(about) = entry.metadata() else { continue };
                let is_since =
                    |since: u64| u64::try_from(about.ctime()).is_ok_and(|changed| changed >= since);
                if about.is_dir() {
                    open.push(entry.path());
                }
                if !is_since(place.since) {
                    continue;
                }
                self.files += 1;
                if self.files > FILES {
                    return;
                }
                if !about.is_dir() {
                    let bytes = about.blocks() * 512;
                    self.bytes += bytes;
                    self.by_command += if is_since(began) { bytes } else { 0 };
                }
            }
        }
    }

    /// Whether it is too much. A command that writes nothing goes on: it may be the one that removes.
    fn excess(&self, unnamed: u64, most: u64) -> Option<Excess> {
        let is_writing = self.by_command + unnamed > 0;
        match self {
            Self { files, .. } if *files > FILES => Some(Excess::Files(FILES)),
            Self { bytes, .. } if bytes + unnamed > most && is_writing => Some(Excess::Disk(most)),
            _ => None,
        }
    }
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
        let used_in = |since, began| {
            DiskUse::of(&[WatchedPlace { path: dir.path().to_owned(), since }], began, &|| true)
        };
        let is_file = |bytes: u64| (1 << 20..2 << 20).contains(&bytes);
        let used = used_in(now - 100, now - 100);
        assert!(is_file(used.bytes) && is_file(used.by_command), "{used:?}");
        assert_eq!(used_in(now + 100, now + 100), DiskUse::default());
        // What earlier commands left counts for one that writes, and ends none that does not.
        let used = used_in(0, now + 100);
        assert!(is_file(used.bytes) && used.by_command == 0, "{used:?}");
        assert_eq!(used.excess(0, 1), None);
        assert_eq!(DiskUse { by_command: 1, ..used }.excess(0, 1), Some(Excess::Disk(1)));
    }

    #[test]
    fn a20_more_files_than_can_be_looked_at_are_too_many() {
        let used = DiskUse { files: FILES + 1, ..DiskUse::default() };
        assert_eq!(used.excess(0, 64 << 30), Some(Excess::Files(FILES)));
    }

    #[test]
    fn a20_who_runs_a_program_that_may_not_be_read_hides() {
        use std::os::unix::fs::PermissionsExt as _;
        let test = "limit_watch::tests::a20_who_runs_a_program_that_may_not_be_read_hides";
        if testkit::was_run_by_another_user(test) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("sleep");
        fs::copy("/bin/sleep", &program).unwrap();
        let mut shown = std::process::Command::new(&program).arg("600").spawn().unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o111)).unwrap();
        let mut hides = std::process::Command::new(&program).arg("600").spawn().unwrap();
        let mut tables = Tables::default();
        let is_shown = [&shown, &hides].map(|process| tables.entries(process.id().cast_signed()).is_some());
        for process in [&mut shown, &mut hides] {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        assert_eq!((is_shown, tables.is_any_shown), ([true, false], true));
        assert_eq!(tables.hidden, BTreeSet::from([hides.id().cast_signed()]));
    }

    #[test]
    fn a20_only_a_process_that_stays_hidden_counts_as_hidden() {
        let mut found = HiddenTables::default();
        let look =
            |is_any_shown, pids: &[i32]| Tables { is_any_shown, hidden: pids.iter().copied().collect() };
        let looks = [look(true, &[7]), look(true, &[7, 8]), look(true, &[8]), look(true, &[8, 9])];
        assert_eq!(looks.map(|look| found.are_found_again(look)), [false, false, false, true]);
        // Nobody is shown to us: nobody hides.
        assert!((0..5).all(|_| !HiddenTables::default().are_found_again(look(false, &[7]))));
    }
}
