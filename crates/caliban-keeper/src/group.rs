//! The control group of one run, where the machine lets us make one (adr 0033). It is made below the group that the shim
//! is in, so that no limit is lost, and is named after agent, run and shim.
//!
//! It answers two questions that `/proc` cannot: whether the kernel ended a process of *this* run for want of memory, and
//! which processes belong to the run, whatever they did to their session, environment and parents.
//!
//! The shim joins the group, starts the worker, and leaves the group. So the worker is inside before it can fork, and
//! neither a limit nor `cgroup.kill` hits the shim. A write to `cgroup.procs` of version 2 may take some milliseconds
//! because the kernel waits for all processors; a spawn is acknowledged before that.
//!
//! Version 1 is used where it has the memory controller, else version 2. Below a group that has processes, version 2
//! gives a child no memory controller: then the count is that of the nearest group that has one, which others share.
//!
//! Refuses: making anything outside our own group, changing `cgroup.subtree_control`, a path that does not end in the
//! name of the run.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use caliban_contract::records::ToldBy;
use caliban_contract::tree_limits::TreeLimits;
use caliban_process::stat;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::out_of_memory::{OWN_SCORE, OomCount, WORKER_SCORE, own_score};
use crate::tree::own_pid;

/// How the names of our groups begin.
const PREFIX: &str = "caliban-";
/// The most that is read of a kernel file.
const FILE_CAP: u64 = 4 * 1024 * 1024;
/// How often the group is made: a starting daemon may sweep it away before it is joined.
const TRIES: usize = 3;
/// How often removing a group is tried: its last process may still be leaving it.
const REMOVE_TRIES: u32 = 20;
const REMOVE_PAUSE: Duration = Duration::from_millis(1);

/// The control group of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    dir: PathBuf,
    name: String,
}

/// The name of a run's group. An empty group is needed as long as the shim with this pid lives.
fn name_of(agent: &str, nonce: &str, shim: i32) -> String {
    format!("{PREFIX}{agent}-{nonce}-{shim}")
}

impl Group {
    /// The group that a shim recorded; none when it is not that of this run.
    pub fn recorded(path: &Path, agent: &str, nonce: &str, shim: i32) -> Option<Self> {
        let name = name_of(agent, nonce, shim);
        let fits = path.is_absolute()
            && path.file_name().is_some_and(|last| last == name.as_str())
            && path.components().all(|part| !matches!(part, Component::ParentDir));
        fits.then(|| Self { dir: path.to_owned(), name })
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Processes of the group and of groups that these made in it. A group of another agent is not looked into.
    pub fn members(&self) -> Vec<i32> {
        let mut found = Vec::new();
        collect(&self.dir, &mut found);
        found.sort_unstable();
        found.dedup();
        found.retain(|pid| *pid != own_pid() && self.holds(*pid));
        found
    }

    /// One round of KILL to all members but those that `spares` names; returns how many members it met.
    pub fn kill(&self, spares: impl Fn(i32) -> bool) -> usize {
        let members = self.members();
        let (spared, ours): (Vec<i32>, Vec<i32>) = members.into_iter().partition(|pid| spares(*pid));
        if ours.is_empty() {
            return 0;
        }
        // All at once, which no fork escapes; not while we or a spared process are inside.
        if spared.is_empty() && !self.holds(own_pid()) && put(&self.dir.join("cgroup.kill"), "1").is_ok() {
            return ours.len();
        }
        for pid in &ours {
            let Some(id) = Pid::from_raw(*pid) else { continue };
            let Ok(process) = rustix::process::pidfd_open(id, PidfdFlags::empty()) else { continue };
            // Checked after opening: the descriptor stays with the process that had the pid then.
            if self.holds(*pid) {
                let _gone_already = rustix::process::pidfd_send_signal(&process, Signal::KILL);
            }
        }
        ours.len()
    }

    /// Removes it; one with processes stays.
    pub fn remove(&self) {
        for _ in 0..REMOVE_TRIES {
            match remove_below(&self.dir) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(REMOVE_PAUSE),
                Ok(()) | Err(_) => return,
            }
        }
    }

    /// Whether the kernel says that a process is in it. No record and no other file can make a stranger a member.
    fn holds(&self, pid: i32) -> bool {
        let Ok(text) = read_text(format!("/proc/{pid}/cgroup")) else { return false };
        text.lines().filter_map(|line| line.splitn(3, ':').nth(2)).any(|path| {
            // If the path has several groups of ours, the process belongs to the innermost.
            path.split('/').rfind(|part| is_ours(part)).is_some_and(|part| part == self.name)
        })
    }
}

/// The group that a shim is in, and the one that it made.
#[derive(Debug)]
pub struct ShimGroups {
    home: Option<OwnGroup>,
    group: Option<Group>,
}

impl ShimGroups {
    /// Makes the group of a run and joins it. Everything else works without one, too.
    pub fn join(agent: &str, nonce: &str) -> Self {
        let home = OwnGroup::own();
        let group = home.as_ref().and_then(|home| {
            let name = name_of(agent, nonce, own_pid());
            let group = Group { dir: home.outside().join(&name), name };
            home.enter(&group).ok().map(|()| group)
        });
        Self { home, group }
    }

    /// The group; none when none could be made.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Has the kernel hold the run to its limits, as far as the group has the controllers for it. Returns the limits that are
    /// left to be watched.
    pub fn hold(&self, limits: TreeLimits) -> TreeLimits {
        match (&self.home, &self.group) {
            (Some(home), Some(group)) => home.version.hold(&group.dir, limits),
            _ => limits,
        }
    }

    /// Whether the run has come up to the memory that it is held to. A limit of a group above it does not count.
    pub fn was_at_memory_limit(&self) -> bool {
        let Some((home, group)) = self.home.as_ref().zip(self.group.as_ref()) else { return false };
        home.version.was_at_memory_limit(&group.dir)
    }

    /// Leaves the group, once the worker is in it.
    pub fn step_out(&self) {
        if let (Some(home), Some(_)) = (&self.home, &self.group) {
            // Best effort: a group that the shim is in is killed process by process, and the next daemon removes it.
            let _stays_inside = put(&home.outside().join(home.version.join_file()), "0");
        }
    }

    /// The count to look at when the worker has ended.
    pub fn oom_count(&self) -> Option<OomCount> {
        let own =
            self.home.as_ref().zip(self.group.as_ref()).and_then(|(home, group)| {
                OomCount::of(ToldBy::Run, group.dir.join(home.version.count_file()))
            });
        own.or_else(|| self.home.as_ref()?.shared_count()).or_else(OomCount::machine)
    }
}

/// For a daemon that a worker had to start: it serves everybody, so it leaves the group of that one agent and takes back
/// the worker's raised OOM score.
pub fn leave_agent() {
    if own_score().is_some_and(|score| score >= WORKER_SCORE) {
        let _stays = put(Path::new(OWN_SCORE), "0");
    }
    if let Some(place) = OwnGroup::own().filter(|place| place.outside() != place.dir) {
        let _stays = put(&place.outside().join(place.version.join_file()), "0");
    }
}

/// Which of these limits the kernel would not hold an agent to that is started from here: tried with a group that is removed
/// again. The others are watched.
pub fn watched_here(limits: TreeLimits) -> TreeLimits {
    let Some(place) = OwnGroup::own() else { return limits };
    let dir = place.outside().join(name_of("0", "try", own_pid()));
    if fs::create_dir(&dir).is_err() {
        return limits;
    }
    let watched = place.version.hold(&dir, limits);
    let _swept_later = fs::remove_dir(&dir);
    watched
}

/// The bytes of memory that the kernel holds the run to in which this process is; none outside of a run, and without a limit.
pub(crate) fn held_memory() -> Option<u64> {
    /// From here on version 1 means that there is no limit.
    const NONE: u64 = 1 << 62;
    let own = OwnGroup::own()?;
    let run = own.dir.ancestors().find(|dir| dir.file_name().is_some_and(is_ours_os))?;
    let most: u64 = read_text(run.join(own.version.memory_file())).ok()?.trim().parse().ok()?;
    (most < NONE).then_some(most)
}

/// Removes empty groups whose shims are gone: killed together with their daemon, and their agents removed.
pub fn sweep() {
    let Some(place) = OwnGroup::own() else { return };
    for entry in fs::read_dir(place.outside()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(shim) = name.to_str().filter(|name| is_ours(name)).and_then(|name| name.rsplit('-').next())
        else {
            continue;
        };
        let lives = shim.parse().ok().and_then(stat).is_some_and(|stat| !stat.is_over());
        if !lives {
            // The kernel refuses when somebody is in it.
            let _populated = remove_below(&entry.path());
        }
    }
}

/// The group that this process is in, as a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnGroup {
    version: Version,
    dir: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Version 1 can move a single thread, which takes no machine-wide lock.
    fn join_file(self) -> &'static str {
        match self {
            Self::One => "tasks",
            Self::Two => "cgroup.procs",
        }
    }

    fn memory_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// The file that keeps memory beyond the limit from going to swap, and what it is told.
    fn swap(self, most: u64) -> (&'static str, u64) {
        match self {
            // Memory and swap together.
            Self::One => ("memory.memsw.limit_in_bytes", most),
            Self::Two => ("memory.swap.max", 0),
        }
    }

    /// Processes have a hierarchy of their own in version 1, so they are watched there.
    fn pids_file(self) -> Option<&'static str> {
        (self == Self::Two).then_some("pids.max")
    }

    /// Writes limits to the files of a group; returns those for which there is no file that takes them.
    fn hold(self, dir: &Path, limits: TreeLimits) -> TreeLimits {
        let takes = |file: Option<&str>, most: &u64| {
            file.is_some_and(|file| put(&dir.join(file), &most.to_string()).is_ok())
        };
        let takes_memory = |most: &u64| {
            let (swap, told) = self.swap(*most);
            // In this order: version 1 refuses a sum below the limit of memory.
            takes(Some(self.memory_file()), most) && takes(Some(swap), &told)
        };
        TreeLimits {
            pids: limits.pids.filter(|most| !takes(self.pids_file(), most)),
            memory: limits.memory.filter(|most| !takes_memory(most)),
            disk: limits.disk,
        }
    }

    fn was_at_memory_limit(self, dir: &Path) -> bool {
        let count = match self {
            Self::One => read_text(dir.join("memory.failcnt")).ok(),
            Self::Two => read_text(dir.join("memory.events"))
                .ok()
                .and_then(|text| text.lines().find_map(|line| line.strip_prefix("max ").map(str::to_owned))),
        };
        count.and_then(|count| count.trim().parse::<u64>().ok()).is_some_and(|count| count > 0)
    }

    fn count_file(self) -> &'static str {
        match self {
            Self::One => "memory.oom_control",
            Self::Two => "memory.events",
        }
    }
}

impl OwnGroup {
    pub(crate) fn own() -> Option<Self> {
        let groups = read_text("/proc/self/cgroup").ok()?;
        let mounts = read_text("/proc/self/mountinfo").ok()?;
        locate(&groups, &mounts)
    }

    /// The nearest group that is not one of ours.
    fn outside(&self) -> &Path {
        let inside = self.dir.ancestors().filter(|dir| dir.file_name().is_some_and(is_ours_os));
        inside.last().and_then(Path::parent).unwrap_or(&self.dir)
    }

    fn enter(&self, group: &Group) -> io::Result<()> {
        let mut tries = 1;
        loop {
            fs::create_dir(&group.dir)?;
            let joined = put(&group.dir.join(self.version.join_file()), "0");
            if joined.is_err() {
                // A starting daemon swept it away, or it cannot be joined at all: then it is not left behind.
                let _gone = fs::remove_dir(&group.dir);
            }
            if joined.is_ok() || tries == TRIES {
                return joined;
            }
            tries += 1;
        }
    }

    /// The count of the nearest group that has one.
    pub(crate) fn shared_count(&self) -> Option<OomCount> {
        let mut dirs = self.dir.ancestors();
        dirs.find_map(|dir| OomCount::of(ToldBy::Group, dir.join(self.version.count_file())))
    }
}

/// From `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn locate(groups: &str, mounts: &str) -> Option<OwnGroup> {
    let one = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == "memory").then_some(path)
    });
    let two = groups.lines().find_map(|line| line.strip_prefix("0::"));
    let at = |version, path: Option<&str>| {
        let path = path?;
        mounts.lines().rev().find_map(|line| Some(OwnGroup { version, dir: directory(version, path, line)? }))
    };
    at(Version::One, one).or_else(|| at(Version::Two, two))
}

/// The directory of the group `path` if this line of `mountinfo` is the right mount.
fn directory(version: Version, path: &str, line: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    let (mut before, mut after) = (before.split(' ').skip(3), after.split(' '));
    let (root, point) = (before.next()?, before.next()?);
    let (kind, options) = (after.next()?, after.nth(1)?);
    let fits = match version {
        Version::One => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
        Version::Two => kind == "cgroup2",
    };
    let below = Path::new(path).strip_prefix(root).ok()?;
    // No group when the path is outside of what we see (`/../..`) or the mount point has an escaped character.
    let plain = below.components().all(|part| matches!(part, Component::Normal(_))) && !point.contains('\\');
    (fits && plain).then(|| if below == Path::new("") { point.into() } else { Path::new(point).join(below) })
}

/// Whether a group's name is one that [`name_of`] makes.
fn is_ours(name: &str) -> bool {
    let parts: Vec<&str> = name.strip_prefix(PREFIX).unwrap_or_default().split('-').collect();
    let [agent, nonce, shim] = parts.as_slice() else { return false };
    let made_of =
        |part: &str, fits: fn(&u8) -> bool| !part.is_empty() && part.bytes().all(|byte| fits(&byte));
    made_of(agent, u8::is_ascii_hexdigit)
        && made_of(nonce, u8::is_ascii_alphanumeric)
        && made_of(shim, u8::is_ascii_digit)
}

fn is_ours_os(name: &std::ffi::OsStr) -> bool {
    name.to_str().is_some_and(is_ours)
}

fn collect(dir: &Path, found: &mut Vec<i32>) {
    let Ok(text) = read_text(dir.join("cgroup.procs")) else { return };
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 0));
    for below in groups_below(dir) {
        collect(&below, found);
    }
}

/// Groups directly in a group, without those of other agents.
fn groups_below(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.filter(|entry| !is_ours_os(&entry.file_name())).map(|entry| entry.path()).collect()
}

fn remove_below(dir: &Path) -> io::Result<()> {
    groups_below(dir).iter().try_for_each(|below| remove_below(below))?;
    fs::remove_dir(dir)
}

/// A kernel file. The path may come from a record, so a pipe that somebody put there must not block us.
fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let mut bytes = Vec::new();
    file.take(FILE_CAP).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes to a kernel file; never creates one.
fn put(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw
";
    const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[track_caller]
    fn check(groups: &str, mounts: &str, expected: Option<(Version, &str)>) {
        let expected = expected.map(|(version, dir)| OwnGroup { version, dir: dir.into() });
        assert_eq!(locate(groups, mounts), expected);
    }

    #[test]
    fn the_own_group_is_found_in_every_kind_of_machine() {
        let hybrid = "4:memory:/some/where\n1:name=systemd:/\n0::/else\n";
        check(hybrid, HYBRID, Some((Version::One, "/sys/fs/cgroup/memory/some/where")));
        check("4:memory:/\n0::/\n", HYBRID, Some((Version::One, "/sys/fs/cgroup/memory")));
        check(
            "0::/user.slice/a b.scope\n",
            UNIFIED,
            Some((Version::Two, "/sys/fs/cgroup/user.slice/a b.scope")),
        );
        check("0::/x\n", HYBRID, Some((Version::Two, "/sys/fs/cgroup/unified/x")));
        // Containers: only a part is mounted; or we are outside of what is.
        let part = "9 8 0:1 /box/1 /sys/fs/cgroup/memory ro - cgroup cgroup rw,cpu,memory\n";
        check("4:cpu,memory:/box/1/in\n", part, Some((Version::One, "/sys/fs/cgroup/memory/in")));
        check("4:cpu,memory:/box/2\n", part, None);
        check("0::/../../x\n", UNIFIED, None);
        check("0::/\n", "9 8 0:1 / /a\\040b rw - cgroup2 cgroup2 rw\n", None);
        check("", UNIFIED, None);
        check("0::/\n", "", None);
    }

    /// A directory is as good as a group here: what counts is which files there are, and that none is made.
    #[test]
    fn a20_a_group_holds_what_it_has_files_for_and_the_rest_is_watched() {
        let limits = TreeLimits { pids: Some(7), memory: Some(4 << 30), disk: Some(1) };
        let held = |version: Version, files: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            files.iter().for_each(|file| fs::write(dir.path().join(file), "").unwrap());
            let watched = version.hold(dir.path(), limits);
            let text = |file: &&str| fs::read_to_string(dir.path().join(file)).unwrap();
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), files.len());
            (watched, files.iter().map(text).collect::<Vec<_>>())
        };
        let bytes = (4_u64 << 30).to_string();
        assert_eq!(held(Version::Two, &[]), (limits, vec![]));
        let (watched, written) = held(Version::Two, &["memory.max", "memory.swap.max", "pids.max"]);
        assert_eq!(watched, TreeLimits { disk: Some(1), ..TreeLimits::default() });
        assert_eq!(written, [bytes.as_str(), "0", "7"]);
        // What goes to swap would be held by nobody.
        let (watched, written) = held(Version::Two, &["memory.max", "pids.max"]);
        assert_eq!(watched, TreeLimits { pids: None, ..limits });
        assert_eq!(written, [bytes.as_str(), "7"]);
        let (watched, written) = held(Version::Two, &["pids.max"]);
        assert_eq!((watched, written), (TreeLimits { pids: None, ..limits }, vec!["7".to_owned()]));
        let files = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max"];
        let (watched, written) = held(Version::One, &files);
        assert_eq!(watched, TreeLimits { memory: None, ..limits });
        assert_eq!(written, [bytes.as_str(), bytes.as_str(), ""]);
        assert_eq!(held(Version::One, &files[..1]).0, limits);
    }

    #[test]
    fn a20_only_a_runs_own_limit_is_blamed() {
        let dir = tempfile::tempdir().unwrap();
        let said = |version: Version, file: &str, text: &str| {
            fs::write(dir.path().join(file), text).unwrap();
            version.was_at_memory_limit(dir.path())
        };
        assert!(!said(Version::Two, "memory.events", "low 0\nhigh 0\nmax 0\noom 1\noom_kill 1\n"));
        assert!(said(Version::Two, "memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\n"));
        assert!(!said(Version::One, "memory.failcnt", "0\n"));
        assert!(said(Version::One, "memory.failcnt", "3\n"));
    }

    #[test]
    fn only_the_group_of_the_very_run_is_taken_from_a_record() {
        let (agent, nonce) = ("0000aaaa", "00ff");
        let recorded = |path: &str| Group::recorded(Path::new(path), agent, nonce, 7);
        let name = "caliban-0000aaaa-00ff-7";
        assert_eq!(name_of(agent, nonce, 7), name);
        let group = recorded(&format!("/sys/fs/cgroup/x/{name}")).unwrap();
        assert_eq!(group.path(), Path::new("/sys/fs/cgroup/x/caliban-0000aaaa-00ff-7"));
        for other in ["/sys/fs/cgroup", "/sys/fs/cgroup/caliban-0000aaaa-00ff-8", "/", ""] {
            assert_eq!(recorded(other), None, "{other}");
        }
        assert_eq!(recorded(&format!("/sys/../{name}")), None);
        assert_eq!(recorded(name), None);
        assert!(is_ours(name));
        for other in
            ["caliban-", "caliban-x-y-1", "caliban-00-11", "caliban-00-11-1-2", "caliban-00--1", "app.slice"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn our_groups_are_made_outside_of_each_other() {
        let place = |dir: &str| OwnGroup { version: Version::Two, dir: dir.into() };
        let ours = "caliban-0000aaaa-00ff-7";
        assert_eq!(place("/c/a").outside(), Path::new("/c/a"));
        assert_eq!(place(&format!("/c/a/{ours}")).outside(), Path::new("/c/a"));
        assert_eq!(place(&format!("/c/a/{ours}/tool/{ours}/x")).outside(), Path::new("/c/a"));
    }

    /// A file cannot make a stranger a member: the kernel is asked.
    #[test]
    fn r04_a_false_list_of_a_group_hits_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let name = "caliban-0000aaaa-00ff-7";
        let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        fs::create_dir(dir.path().join(name)).unwrap();
        fs::write(dir.path().join(name).join("cgroup.procs"), format!("{}\n", stranger.id())).unwrap();
        let group = Group::recorded(&dir.path().join(name), "0000aaaa", "00ff", 7).unwrap();
        assert_eq!(group.kill(|_| false), 0);
        assert_eq!(stranger.try_wait().unwrap(), None);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}
