//! On whose behalf a process acts: a person's, or an agent's (a11). Read from the processes above it, never from what it says.
//!
//! The walk goes from the process up to the first one. A shim or a worker of any fleet is known by its command line, and names
//! an agent only when `shim.json` in that directory records this very process: pid, start time and boot. Neither `setsid` nor a
//! double fork leads out, because shims adopt orphans of their tree.
//!
//! Where `/proc` hides the processes of other users (`hidepid`), the walk ends at the first of those. An agent's processes are
//! ours, so no agent stands above a stranger. A hidden process of our own (`sshd` hides itself) proves nothing.
//!
//! A process that has left the tree still has its mark (`process_mark.rs`). One that cannot be seen is never taken for a
//! person's. ADR 0040 says what this cannot prevent.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use caliban_process::{boot_id, stat};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::modes;
use crate::process_mark::{self, AgentMark};
use crate::records::{self, ShimRecord};

/// The largest command line that is read.
const COMMAND_CAP: u64 = 256 * 1024;
/// How many processes may stand above one. A person's are fewer.
const DEPTH: usize = 1024;
/// How often the walk begins anew because a process ended during it.
const ATTEMPTS: usize = 20;

/// Who stands above a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ancestry {
    /// No agent.
    Person,
    /// Agents, the innermost first. Empty when an agent stands above that no record names.
    Agents(Vec<AgentAbove>),
    /// A member of a broker's team, in its pane: another program's agent. It decides nothing for a person.
    Member,
    /// The process is gone or hidden, or its ancestors end faster than they can be read.
    Unknown,
}

/// An agent above a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentAbove {
    /// Its directory.
    pub dir: PathBuf,
    /// Its run.
    pub nonce: String,
    /// Which of its processes the walk began at.
    pub which: AgentProcess,
}

/// Which process of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentProcess {
    /// The agent itself.
    Worker,
    /// Something that it started.
    Command,
}

impl AgentAbove {
    /// Its account in the ledger: the repo's hash and its id, out of `…/repos/<hash>/agents/<id>`.
    #[must_use]
    pub fn account(&self) -> Option<String> {
        let name = |path: &Path| path.file_name()?.to_str().map(str::to_owned);
        Some(format!("{}/{}", name(self.dir.parent()?.parent()?)?, name(&self.dir)?))
    }
}

impl Ancestry {
    /// The process in words, when an agent or nobody knows who acts through it; none for a person.
    #[must_use]
    pub fn agent_in_words(&self) -> Option<String> {
        match self {
            Self::Person => None,
            Self::Agents(agents) => Some(match agents.first().and_then(|agent| agent.dir.file_name()) {
                Some(id) => format!("a process of agent {}", id.to_string_lossy()),
                None => "a process of an agent".to_owned(),
            }),
            Self::Member => Some("a process of a team's member".to_owned()),
            Self::Unknown => Some("a process that cannot be seen".to_owned()),
        }
    }
}

/// Who stands above a process; the process may be the agent itself. A command of an agent in the foreground is an agent's,
/// too, without a name: whoever it asks for more than the agent has must refuse. Where no agent is seen above, the mark tells.
#[must_use]
pub fn above(pid: i32) -> Ancestry {
    // The mark is read first: if another process gets the pid meanwhile, the walk judges that one.
    let mark = process_mark::of(pid);
    match (look(pid, &[modes::REAP]), mark) {
        (Ancestry::Person, Err(_)) => Ancestry::Unknown,
        (found, mark) => marked(found, mark.ok().flatten()),
    }
}

fn marked(found: Ancestry, mark: Option<AgentMark>) -> Ancestry {
    match (found, mark) {
        (Ancestry::Person, Some(AgentMark::Agent | AgentMark::Command)) => Ancestry::Agents(Vec::new()),
        (Ancestry::Person, Some(AgentMark::Member)) => Ancestry::Member,
        (found, _) => found,
    }
}

/// The same, but only agents of a fleet count: for the broker a command of an agent in the foreground speaks for its person.
#[must_use]
pub fn fleet_above(pid: i32) -> Ancestry {
    look(pid, &[])
}

/// Who stands above this process. In a pid namespace of its own, or where nothing can be seen, the mark tells.
///
/// Looked at once: whoever started this process did so whatever ends later. What could not be told is looked at again.
#[must_use]
pub fn own() -> Ancestry {
    static KNOWN: OnceLock<Ancestry> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return known.clone();
    }
    let found = i32::try_from(std::process::id()).map_or(Ancestry::Unknown, above);
    let own = marked(found, process_mark::found());
    match own {
        Ancestry::Unknown => own,
        own => KNOWN.get_or_init(|| own).clone(),
    }
}

fn look(pid: i32, keepers: &[&str]) -> Ancestry {
    (0..ATTEMPTS).find_map(|_| walk(&Proc, pid, keepers)).unwrap_or(Ancestry::Unknown)
}

/// How processes are looked at.
trait Sight {
    /// Its parent and when it was started; none when it is gone or hidden.
    fn stat(&self, pid: i32) -> Option<(i32, u64)>;
    /// Its command line.
    fn command(&self, pid: i32) -> Option<Vec<u8>>;
    /// Whether there is one, be it hidden.
    fn reach(&self, pid: i32) -> SignalReach;
    /// All that can be seen.
    fn visible(&self) -> Option<Vec<i32>>;
    /// Its children, hidden ones too.
    fn children(&self, pid: i32) -> Option<Vec<i32>>;
    /// The shim's record in an agent's directory.
    fn record(&self, dir: &Path) -> Option<ShimRecord>;
    /// The present boot.
    fn boot(&self) -> Option<String>;
}

/// Whom a signal would reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalReach {
    Nobody,
    Ours,
    Others,
}

/// `/proc`.
struct Proc;

impl Sight for Proc {
    fn stat(&self, pid: i32) -> Option<(i32, u64)> {
        stat(pid).map(|stat| (stat.parent, stat.start_time))
    }

    fn command(&self, pid: i32) -> Option<Vec<u8>> {
        records::read_capped(Path::new(&format!("/proc/{pid}/cmdline")), COMMAND_CAP).ok()
    }

    fn reach(&self, pid: i32) -> SignalReach {
        let Some(pid) = Pid::from_raw(pid) else { return SignalReach::Nobody };
        match rustix::process::test_kill_process(pid) {
            Ok(()) => SignalReach::Ours,
            Err(Errno::PERM) => SignalReach::Others,
            Err(_) => SignalReach::Nobody,
        }
    }

    fn visible(&self) -> Option<Vec<i32>> {
        let names = std::fs::read_dir("/proc").ok()?.flatten();
        let pids = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Some(pids.filter(|pid| self.stat(*pid).is_some()).collect())
    }

    fn children(&self, pid: i32) -> Option<Vec<i32>> {
        let mut all = Vec::new();
        for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
            let line = std::fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
            all.extend(line.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        Some(all)
    }

    fn record(&self, dir: &Path) -> Option<ShimRecord> {
        records::read(dir, records::SHIM)
    }

    fn boot(&self) -> Option<String> {
        boot_id().ok()
    }
}

/// Walks up; `None` when a process ended meanwhile. `keepers` are further modes, as first arguments, below which every process
/// is an agent's.
fn walk(sight: &impl Sight, pid: i32, keepers: &[&str]) -> Option<Ancestry> {
    let (mut at, mut born) = (pid, u64::MAX);
    let mut below = None;
    let (mut agents, mut is_agents): (Vec<AgentAbove>, bool) = (Vec::new(), false);
    let top = loop {
        // Nothing stands above the first process.
        if at == 0 && born != u64::MAX {
            break Ancestry::Person;
        }
        let Some((parent, start_time)) = sight.stat(at) else { break beyond(sight, at, below?)? };
        // A parent is older than its child. A younger process has the pid of one that is gone.
        if start_time > born {
            return None;
        }
        let line = sight.command(at)?;
        let mut arguments = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).skip(1);
        if let Some(mode) = arguments.next() {
            is_agents |= is_agents_mode(&mode) || keepers.contains(&&*mode);
            let dir = PathBuf::from(&*arguments.next().unwrap_or_default());
            // A shim records its worker a moment after it started it: until then the worker has no name.
            if is_agents_mode(&mode)
                && let Some(record) =
                    sight.record(&dir).filter(|record| is_about(record, at, start_time, sight))
                && agents.iter().all(|known| known.dir != dir)
            {
                let which =
                    if record.worker_pid == Some(pid) { AgentProcess::Worker } else { AgentProcess::Command };
                agents.push(AgentAbove { dir, nonce: record.nonce, which });
            }
        }
        below = Some((at, start_time, below.map_or(1, |(.., depth)| depth + 1)));
        if below.is_some_and(|(.., depth)| depth >= DEPTH) {
            is_agents = true;
            break Ancestry::Person;
        }
        (at, born) = (parent, start_time);
    };
    Some(if is_agents { Ancestry::Agents(agents) } else { top })
}

fn is_agents_mode(mode: &str) -> bool {
    // What an agent left running is still the agent's.
    mode == modes::SHIM || mode == modes::WORKER || mode == modes::DETACHED
}

/// What stands above a process (`below`) whose parent cannot be seen; `None` when the parent has only ended meanwhile.
fn beyond(sight: &impl Sight, hidden: i32, below: (i32, u64, usize)) -> Option<Ancestry> {
    let reach = sight.reach(hidden);
    // As long as it is the parent of somebody, its number is nobody else's.
    if sight.stat(below.0) != Some((hidden, below.1)) || sight.stat(hidden).is_some() {
        return None;
    }
    match reach {
        SignalReach::Nobody => None,
        SignalReach::Others => Some(Ancestry::Person),
        SignalReach::Ours if is_hidden_below_an_agent(sight) => Some(Ancestry::Unknown),
        SignalReach::Ours => Some(Ancestry::Person),
    }
}

/// Whether an agent may have processes of ours that cannot be seen. The topmost of those is the child of one that can.
fn is_hidden_below_an_agent(sight: &impl Sight) -> bool {
    let Some(visible) = sight.visible() else { return true };
    visible.into_iter().filter(|pid| is_seen_below_an_agent(sight, *pid)).any(|pid| {
        let hides = |child: i32| sight.reach(child) == SignalReach::Ours && sight.stat(child).is_none();
        match sight.children(pid) {
            Some(children) => children.into_iter().any(hides),
            // It has ended, or the kernel does not say.
            None => sight.stat(pid).is_some(),
        }
    })
}

fn is_seen_below_an_agent(sight: &impl Sight, pid: i32) -> bool {
    let mut at = pid;
    for _ in 0..DEPTH {
        let (Some((parent, _)), Some(line)) = (sight.stat(at), sight.command(at)) else { return false };
        let mode = line.split(|byte| *byte == 0).nth(1).map(String::from_utf8_lossy).unwrap_or_default();
        if is_agents_mode(&mode) {
            return true;
        }
        at = parent;
    }
    true
}

/// Whether a shim's record is about this very process.
fn is_about(record: &ShimRecord, pid: i32, start_time: u64, sight: &impl Sight) -> bool {
    let is_shim = (record.pid, record.start_time) == (pid, start_time);
    let is_worker = (record.worker_pid, record.worker_start_time) == (Some(pid), Some(start_time));
    (is_shim || is_worker) && sight.boot().is_some_and(|boot| boot == record.boot_id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::process::{Command, Stdio};

    use super::*;

    /// One process: pid, parent, start time, mode and directory in its command line.
    type Row = (i32, i32, u64, &'static str, &'static str);

    /// A process that is not in `seen` is hidden, and ours when it is in `ours`.
    #[derive(Default)]
    struct Fake {
        all: BTreeMap<i32, Row>,
        seen: Vec<i32>,
        ours: Vec<i32>,
        records: BTreeMap<&'static str, ShimRecord>,
    }

    impl Sight for Fake {
        fn stat(&self, pid: i32) -> Option<(i32, u64)> {
            self.all.get(&pid).filter(|_| self.seen.contains(&pid)).map(|row| (row.1, row.2))
        }

        fn command(&self, pid: i32) -> Option<Vec<u8>> {
            let row = self.all.get(&pid)?;
            Some(format!("x\0{}\0{}\0", row.3, row.4).into_bytes())
        }

        fn reach(&self, pid: i32) -> SignalReach {
            match self.all.contains_key(&pid) {
                false => SignalReach::Nobody,
                true if self.ours.contains(&pid) => SignalReach::Ours,
                true => SignalReach::Others,
            }
        }

        fn visible(&self) -> Option<Vec<i32>> {
            Some(self.seen.clone())
        }

        fn children(&self, pid: i32) -> Option<Vec<i32>> {
            Some(self.all.values().filter(|row| row.1 == pid).map(|row| row.0).collect())
        }

        fn record(&self, dir: &Path) -> Option<ShimRecord> {
            self.records.get(dir.to_str()?).cloned()
        }

        fn boot(&self) -> Option<String> {
            Some("boot".to_owned())
        }
    }

    /// Every process is visible and ours.
    fn open(rows: &[Row], records: &[(&'static str, ShimRecord)]) -> Fake {
        let pids: Vec<i32> = rows.iter().map(|row| row.0).collect();
        Fake { records: records.iter().cloned().collect(), ..hidden(rows, &pids, &pids) }
    }

    fn hidden(rows: &[Row], seen: &[i32], ours: &[i32]) -> Fake {
        let all = rows.iter().map(|row| (row.0, *row)).collect();
        Fake { all, seen: seen.to_vec(), ours: ours.to_vec(), records: BTreeMap::new() }
    }

    fn record(pid: i32, start_time: u64) -> ShimRecord {
        ShimRecord {
            pid,
            start_time,
            boot_id: "boot".into(),
            nonce: "n".into(),
            worker_pid: Some(50),
            worker_start_time: Some(5),
            group: None,
            socket: None,
            program: None,
        }
    }

    fn agents(dirs: &[&str], which: AgentProcess) -> Option<Ancestry> {
        let agent = |dir: &&str| AgentAbove { dir: (*dir).into(), nonce: "n".into(), which };
        Some(Ancestry::Agents(dirs.iter().map(agent).collect()))
    }

    #[test]
    fn a11_a_process_is_known_by_the_shims_above_it_and_a_reused_pid_is_nobody() {
        let (init, shell, own) = ((1, 0, 0, "", ""), (40, 1, 3, "", ""), (100, 40, 9, "", ""));
        let check = |rows: &[Row], records: &[(&'static str, ShimRecord)], is: Option<Ancestry>| {
            assert_eq!(walk(&open(rows, records), 100, &[]), is);
        };
        check(&[init, shell, own], &[], Some(Ancestry::Person));
        // A pid namespace hides the parent.
        check(&[(100, 0, 9, "", "")], &[], Some(Ancestry::Person));
        let shim = (40, 1, 3, modes::SHIM, "/a");
        check(&[init, shim, own], &[("/a", record(40, 3))], agents(&["/a"], AgentProcess::Command));
        let other_boot = ShimRecord { boot_id: "before".into(), ..record(40, 3) };
        for other in [record(41, 3), record(40, 4), other_boot] {
            check(&[init, shim, own], &[("/a", other)], agents(&[], AgentProcess::Command));
        }
        check(&[init, shim, own], &[], agents(&[], AgentProcess::Command));
        // What an agent detached is still an agent's.
        check(&[init, (40, 1, 3, modes::DETACHED, "/jobs/a"), own], &[], agents(&[], AgentProcess::Command));
        // The worker alone, when its shim was killed. Shim and worker are one agent.
        let (worker, below) = ((50, 40, 5, modes::WORKER, "/a"), (100, 50, 9, "", ""));
        check(&[init, shell, worker, below], &[("/a", record(7, 7))], agents(&["/a"], AgentProcess::Command));
        check(&[init, shim, worker, below], &[("/a", record(40, 3))], agents(&["/a"], AgentProcess::Command));
        let itself = walk(&open(&[init, shim, worker], &[("/a", record(40, 3))]), 50, &[]);
        assert_eq!(itself, agents(&["/a"], AgentProcess::Worker));
        // One agent inside another, and a process that only claims to be a shim.
        let (outer, inner) = ((30, 1, 2, modes::SHIM, "/outer"), (40, 30, 3, modes::SHIM, "/a"));
        let records = [("/a", record(40, 3)), ("/outer", record(30, 2))];
        check(&[init, outer, inner, own], &records, agents(&["/a", "/outer"], AgentProcess::Command));
        check(&[init, outer, inner, own], &records[1..], agents(&["/outer"], AgentProcess::Command));
    }

    #[test]
    fn a11_a_walk_over_processes_that_end_says_nothing_and_one_without_end_is_no_person() {
        let own = (100, 40, 9, "", "");
        assert_eq!(walk(&open(&[own], &[]), 100, &[]), None);
        // The pid of the parent was given away: that process is younger than its child.
        assert_eq!(walk(&open(&[(1, 0, 0, "", ""), (40, 1, 10, "", ""), own], &[]), 100, &[]), None);
        assert_eq!(
            walk(&open(&[(40, 40, 3, "", ""), own], &[]), 100, &[]),
            agents(&[], AgentProcess::Command)
        );
    }

    #[test]
    fn a11_hidden_processes_of_others_are_no_agents_and_hidden_ones_of_ours_prove_nothing() {
        let row = |pid: i32, parent: i32, mode: &'static str| -> Row {
            (pid, parent, u64::try_from(pid).unwrap(), mode, "/none")
        };
        // A person's shell below a login of the system's.
        let login = [row(1, 0, ""), row(2, 1, ""), row(3, 2, ""), row(4, 3, "")];
        let by_others = hidden(&login, &[3, 4], &[3, 4]);
        assert_eq!(walk(&by_others, 4, &[]), Some(Ancestry::Person));
        // The process itself must be visible.
        assert_eq!(walk(&by_others, 2, &[]), None);
        // sshd runs as another user, and hides.
        assert_eq!(walk(&hidden(&login, &[3, 4], &[2, 3, 4]), 4, &[]), Some(Ancestry::Person));
        // A command of an agent that hides, however deep, while an agent has a hidden one.
        let below = [
            row(1, 0, ""),
            row(5, 1, modes::SHIM),
            row(6, 5, ""),
            row(7, 6, ""),
            row(8, 7, ""),
            row(9, 8, ""),
        ];
        let ours = [5, 6, 7, 8, 9];
        assert_eq!(walk(&hidden(&below, &[5, 6, 9], &ours), 9, &[]), Some(Ancestry::Unknown));
        // A visible process below a shim is an agent's, whoever is hidden above.
        assert_eq!(walk(&hidden(&below, &ours, &ours), 9, &[]), agents(&[], AgentProcess::Command));
        // A person's, while an agent hides nothing.
        let both = [row(1, 0, ""), row(2, 1, ""), row(3, 2, ""), row(5, 1, modes::SHIM), row(6, 5, "")];
        assert_eq!(walk(&hidden(&both, &[3, 5, 6], &[2, 3, 5, 6]), 3, &[]), Some(Ancestry::Person));
        // A parent that has only ended.
        assert_eq!(walk(&hidden(&[row(3, 2, "")], &[3], &[3]), 3, &[]), None);
    }

    #[test]
    fn a11_a_real_process_below_a_shim_is_an_agents_and_one_that_is_gone_is_unknown() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(above(own), Ancestry::Person);
        assert_eq!(above(0), Ancestry::Unknown);
        // A shell that is called like a shim, with a process below it.
        for (mode, is, is_to_the_broker) in [
            (modes::SHIM, Ancestry::Agents(Vec::new()), Ancestry::Agents(Vec::new())),
            (modes::REAP, Ancestry::Agents(Vec::new()), Ancestry::Person),
            ("__keeps", Ancestry::Person, Ancestry::Person),
        ] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(mode), "sleep 60 & echo $!; wait").unwrap();
            let mut shell =
                Command::new("sh").arg(mode).current_dir(dir.path()).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            let out = shell.stdout.as_mut().unwrap();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
            let child: i32 = line.trim().parse().unwrap();
            let found = (above(child), fleet_above(child));
            rustix::process::kill_process(Pid::from_raw(child).unwrap(), rustix::process::Signal::KILL)
                .unwrap();
            shell.wait().unwrap();
            assert_eq!(found, (is, is_to_the_broker), "{mode}");
            assert_eq!(above(child), Ancestry::Unknown);
        }
    }

    #[test]
    fn a19_a_process_that_left_its_agents_tree_is_known_by_its_mark() {
        for (limit, is) in [
            (1_u64 << 62, Ancestry::Agents(Vec::new())),
            ((1 << 62) + 1, Ancestry::Member),
            ((1 << 62) + 2, Ancestry::Agents(Vec::new())),
            (77, Ancestry::Agents(Vec::new())),
        ] {
            // A child of this test, which stands below no agent.
            let mut marked = Command::new("prlimit")
                .arg(format!("--rttime={limit}"))
                .args(["sh", "-c", "echo; read -r end"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let out = marked.stdout.as_mut().unwrap();
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut String::new()).unwrap();
            let found = above(i32::try_from(marked.id()).unwrap());
            drop(marked.stdin.take());
            marked.wait().unwrap();
            assert_eq!(found, is, "{limit}");
            assert!(found.agent_in_words().is_some());
        }
    }
}
