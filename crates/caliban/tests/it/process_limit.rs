//! A limit on processes: whoever gets no process or thread waits until there is room, and goes on.
//!
//! The limit counts the processes of a user and spares root, so caliban runs here as somebody else.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};
use testkit::{Lack, OpenPrograms, ProgramRun, script, skip, text, tool, wait_until};

use crate::{
    fleet::{Fleet, id_of},
    place::Place,
};

/// How often a process must have slept and woken before it counts as one that waits for room.
const TRIES: u64 = 5;

/// As good as no limit.
const PLENTY: &str = "1000";

/// Programs as a user of our own, of whose processes nobody else makes any.
struct Stranger {
    user: String,
    programs: OpenPrograms,
}

impl Stranger {
    /// Who owns everything of this place from now on.
    fn in_place(place: &Place, user: u32) -> Self {
        let user = user.to_string();
        // Git asks whose a directory is.
        place.env.git(&place.repo, &["config", "--global", "--add", "safe.directory", "*"]);
        let all = place.env.root();
        let done = Command::new("chown").args(["-hR", &format!("{user}:{user}")]).arg(all).status();
        assert!(done.unwrap().success());
        let built = ["caliban", "caliband"].map(|name| PathBuf::from(place.env.cmd(name).get_program()));
        Self { user, programs: OpenPrograms::new(built.iter().map(PathBuf::as_path)) }
    }

    /// caliban, behind these words.
    fn caliban(&self, place: &Place, words: &[&str]) -> ProgramRun {
        let mut command = place.env.program("setpriv");
        command.args(["--reuid", &self.user, "--regid", &self.user, "--clear-groups"]).args(words);
        command.arg(self.programs.path("caliban"));
        ProgramRun::new(command).dir(&place.repo)
    }

    fn processes(&self) -> Vec<u32> {
        let pids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        pids.filter(|pid| field(*pid, "Uid").as_deref() == Some(&*self.user)).collect()
    }

    /// The process that was started with this argument.
    fn process_with(&self, argument: &str) -> Option<u32> {
        self.processes().into_iter().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).nth(1) == Some(argument.as_bytes())
        })
    }

    /// Limits what this process may still make. The hard limit stays, so that the soft one can be lifted again.
    fn limit(&self, pid: u32, most: &str) {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &self.user, "--regid", &self.user, "--clear-groups", "prlimit"]);
        let done = command.args(["--pid", &pid.to_string(), &format!("--nproc={most}:")]).output().unwrap();
        assert!(done.status.success() || field(pid, "Uid").is_none(), "{done:?}");
    }

    /// Takes the limit from all processes, also from those that are made meanwhile.
    fn lift(&self, mut until: impl FnMut() -> bool) {
        wait_until("it goes on without a limit", || {
            self.processes().into_iter().for_each(|pid| self.limit(pid, PLENTY));
            until()
        });
    }
}

fn field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.split_whitespace().next().map(str::to_owned)
}

fn number(pid: u32, name: &str) -> Option<u64> {
    field(pid, name)?.parse().ok()
}

/// Waits until this process has tried again some times.
fn wait_until_it_waits(pid: u32) {
    let switches = || number(pid, "voluntary_ctxt_switches").unwrap();
    let before = switches();
    wait_until("it waits for room", || switches() >= before + TRIES);
}

fn made(place: &Place) -> Value {
    let at = |path: &Path| fs::read_to_string(path).ok();
    json!([at(&place.repo.join("made")), at(&place.repo.join("also"))])
}

#[test]
fn without_room_for_a_thread_or_a_fenced_command_a_run_waits_and_goes_on() {
    if !rustix::process::geteuid().is_root() {
        return skip(Lack::OtherUsers);
    }
    let place = Place::new(script![
        tool("Write", json!({"file_path": "also", "content": "too"})),
        tool("Bash", json!({"command": "echo -n it > made"})),
        text("done"),
    ]);
    place.env.write(place.env.config().join("caliban/settings.toml"), "sandbox = \"required\"\n");
    let stranger = Stranger::in_place(&place, 61_501);
    place.server.hold();
    // Not even a thread at its start.
    let run = stranger.caliban(&place, &["prlimit", "--nproc=1:"]);
    let run =
        run.args(place.server.args(place.protocol)).args(["-p", "go", "--permission-mode", "accept-edits"]);
    let mut run = run.spawn();
    run.close_stdin();
    let pid = run.pid();
    wait_until_it_waits(pid);
    stranger.lift(|| !place.server.model_requests().is_empty());
    // And no process for its command.
    stranger.limit(pid, "1");
    place.server.release();
    wait_until("the file is written, and the command is due", || made(&place) == json!([null, "too"]));
    wait_until_it_waits(pid);
    assert_eq!(made(&place), json!([null, "too"]));
    stranger.lift(|| !run.running());
    let output = run.wait().ok();
    assert_eq!(output.stdout, "done\n");
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    assert_eq!(made(&place), json!(["it", "too"]));
}

#[test]
fn a_worker_that_gets_no_process_waits_and_ends_done() {
    if !rustix::process::geteuid().is_root() {
        return skip(Lack::OtherUsers);
    }
    let fleet = Fleet::new(script![tool("Bash", json!({"command": "echo -n it > made"})), text("all of it")]);
    let place = &fleet.place;
    let stranger = Stranger::in_place(place, 61_502);
    let caliban = |args: &[&str]| stranger.caliban(place, &[]).args(args.iter().map(OsStr::new));
    place.server.hold();
    let server = place.server.args(place.protocol);
    let flags = ["--bg", "the task", "--permission-mode", "unattended", "--isolation", "none"];
    let started = caliban(&[]).args(server).args(flags).output().ok();
    let id = id_of(&started);
    place.server.wait_for_requests(1);
    let worker = stranger.process_with("__worker").unwrap();
    stranger.limit(worker, "1");
    place.server.release();
    wait_until_it_waits(worker);
    stranger.lift(|| place.server.model_requests().len() > 1);
    caliban(&["agents", "wait", &id]).output().ok();
    assert_eq!(made(place), json!(["it", null]));
    let rows: Value = caliban(&["agents", "list", "--json"]).output().ok().json();
    assert_eq!(json!([rows[0]["state"], rows[0]["last_text"]]), json!(["done", "all of it"]));
    let log = caliban(&["logs", &id, "--raw"]).output().ok().stdout;
    assert!(!log.contains("panicked"), "{log}");
}
