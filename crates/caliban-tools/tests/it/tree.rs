//! Nothing of a command outlives it (r06), whatever the command does.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use caliban_keeper::{Launch, LaunchEnvironment, Streams};
use caliban_tools::{CallContext, JobState};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::bench::{Bench, helper};

/// How long a condition may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts processes of all the kinds that are hard to get rid of; each writes its id into `pids/`, and
/// the command goes on when all have.
const HARD: &str = r#"
    mkdir -p pids
    note() { echo $BASHPID > pids/$1; }
    (trap '' TERM HUP INT; note ignores-term; while :; do sleep 1000; done) &
    setsid bash -c 'echo $$ > pids/setsid; exec sleep 1000' &
    setsid bash -c 'trap "" TERM; (echo $BASHPID > pids/double-fork; while :; do sleep 1000; done) & exit' &
    (setsid setsid bash -c 'echo $$ > pids/deep; trap "" TERM; setsid bash -c "echo \$\$ > pids/deeper; exec sleep 1000"; :') &
    (note stopped; kill -STOP $BASHPID) &
    while [ $(cat pids/* 2>/dev/null | wc -l) -lt 6 ]; do sleep 0.01; done
"#;
const HARD_ONES: usize = 6;

fn pids(root: &Path) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(root.join("pids")) else { return Vec::new() };
    entries.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok()?.trim().parse().ok()).collect()
}

/// Whether the process runs; one that only waits to be reaped by somebody does not.
fn runs(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

fn running(root: &Path) -> Vec<i32> {
    pids(root).into_iter().filter(|pid| runs(*pid)).collect()
}

/// Processes whose working directory is below `root`: finds what never wrote its id down.
fn below(root: &Path) -> Vec<i32> {
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let cwd = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        (cwd.starts_with(root) && runs(pid)).then_some(pid)
    });
    found.collect()
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn r06_what_the_command_leaves_is_gone_when_the_call_returns() {
    let bench = Bench::new();
    let output = bench.bash(HARD).await;
    assert_eq!(pids(&bench.root).len(), HARD_ONES);
    assert_eq!(running(&bench.root), [0; 0]);
    assert_eq!(below(&bench.root), [0; 0]);
    assert!(output.joined_text().contains("left running were ended"), "{}", output.joined_text());
}

#[tokio::test]
async fn r06_time_running_out_ends_all_of_it() {
    let bench = Bench::new();
    let command = format!("{HARD} sleep 1000");
    let output = bench.call("Bash", json!({"command": command, "timeout": 8_000})).await;
    assert!(output.joined_text().contains("[timed out after 8 s"), "{}", output.joined_text());
    assert_eq!(pids(&bench.root).len(), HARD_ONES);
    assert_eq!(running(&bench.root), [0; 0]);
    assert_eq!(below(&bench.root), [0; 0]);
}

#[tokio::test]
async fn a_command_has_a_session_of_its_own_and_no_terminal() {
    let bench = Bench::new();
    // The keeper leads it: what a terminal of the agent's sends reaches neither.
    let command =
        "read -r _ _ _ _ _ session _ < /proc/$$/stat; [ $session = $PPID ] && echo own; : < /dev/tty";
    let text = bench.bash(command).await.joined_text();
    assert!(text.starts_with("own\n") && text.contains("/dev/tty: No such device"), "{text}");
}

#[tokio::test]
async fn r06_stopped_and_deep_processes_are_asked_to_end() {
    let bench = Bench::new();
    let asked = |name: &str| format!("trap \"echo asked > {name}; exit\" TERM; echo $$ > pids/{name}");
    // The command itself, one below it, one below a session of its own; all stopped.
    let command = format!(
        "mkdir pids; bash -c '{}; kill -STOP $$; while :; do sleep 0.01; done' &
         setsid bash -c 'setsid bash -c \"{}; kill -STOP \\$\\$; while :; do sleep 0.01; done\"; :' &
         {}; kill -STOP $$; while :; do sleep 0.01; done",
        asked("near"),
        asked("deep").replace('"', "\\\"").replace("$$", "\\$\\$"),
        asked("top"),
    );
    let stopped = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('T')
    };
    let all = until("all are stopped", || {
        let pids = pids(&bench.root);
        pids.len() == 3 && pids.into_iter().all(stopped)
    });
    let call = bench.bash(&command);
    let ((), _) = tokio::join!(
        async {
            all.await;
            bench.cancel.cancel()
        },
        call
    );
    bench.workspace.shutdown().await;
    for name in ["top", "near", "deep"] {
        assert_eq!(bench.get(name), b"asked\n", "{name}");
    }
    assert_eq!(below(&bench.root), [0; 0]);
}

#[tokio::test]
async fn r06_a_cancelled_call_returns_at_once_and_shutdown_waits_for_the_end() {
    let bench = Arc::new(Bench::new());
    let call = tokio::spawn({
        let bench = bench.clone();
        async move { bench.bash(&format!("echo begun; {HARD} sleep 1000")).await }
    });
    until("the processes start", || pids(&bench.root).len() == HARD_ONES).await;
    bench.cancel.cancel();
    let output = call.await.unwrap();
    assert_eq!(
        (output.joined_text().as_str(), output.is_error),
        ("begun\n[interrupted: everything it started is being ended]", true)
    );
    bench.workspace.shutdown().await;
    assert_eq!(running(&bench.root), [0; 0]);
    assert_eq!(below(&bench.root), [0; 0]);
    let fresh = CancellationToken::new();
    let after = bench.tool("Bash").call(
        json!({"command": "true"}),
        CallContext { id: "c", cancel: &fresh, progress: &|_| {}, fence: None },
    );
    assert_eq!(after.await.joined_text(), "the session is ending: no command is started any more");
}

#[tokio::test]
async fn r06_a_dropped_call_ends_its_command() {
    let bench = Bench::new();
    {
        let command = format!("{HARD} sleep 1000");
        let call = bench.bash(&command);
        let started = until("the processes start", || pids(&bench.root).len() == HARD_ONES);
        tokio::select! {
            _ = call => panic!("ended"),
            () = started => {}
        }
    }
    bench.workspace.shutdown().await;
    assert_eq!(running(&bench.root), [0; 0]);
}

#[tokio::test]
async fn r06_forks_in_a_loop_are_ended() {
    let bench = Bench::new();
    // Bounded in speed by the sleeps, so that the machine survives a failing test.
    let command = "ulimit -u 2000; (while :; do sleep 0.2 & sleep 0.01; done) & bash -c 'while :; do (setsid bash -c \"echo x >> links; sleep 0.1\" &) ; sleep 0.005; done' & sleep 1000";
    let output = bench.call("Bash", json!({"command": command, "timeout": 2_000})).await;
    assert!(output.joined_text().contains("timed out"), "{}", output.joined_text());
    assert!(bench.get("links").len() > 10);
    assert_eq!(below(&bench.root), [0; 0]);
}

#[tokio::test]
async fn r06_a_fork_bomb_is_ended() {
    let bench = Bench::new();
    let probe = bench.bash("[ $(id -u) = 0 ] && setpriv --reuid=61234 --clear-groups true").await;
    if probe.is_error {
        // Nothing would bound the bomb.
        return testkit::skip(testkit::Lack::OtherUsers);
    }
    // Another user, so that the limit holds (it does not for root) and hits nobody else.
    let command = "setpriv --reuid=61234 --clear-groups bash -c 'cd / && ulimit -u 150; bomb() { bomb | bomb & }; \
                   bomb 2>/dev/null; while :; do sleep 1; done' 2>/dev/null";
    let output = bench.call("Bash", json!({"command": command, "timeout": 1_500})).await;
    assert!(output.joined_text().contains("timed out"), "{}", output.joined_text());
    assert_eq!(below(&bench.root), [0; 0]);
    let left = bomb_processes();
    assert_eq!(left, [0; 0], "processes of the bomb");
}

/// A user that nobody else is.
const BOMBER: u32 = 61_234;

/// Running processes of the user that the bomb runs as.
fn bomb_processes() -> Vec<i32> {
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let meta = entry.metadata().ok()?;
        (meta.uid() == BOMBER && runs(pid)).then_some(pid)
    });
    found.collect()
}

#[tokio::test]
async fn r06_a_chain_that_forks_and_exits_is_caught() {
    let bench = Bench::new();
    // Each link starts the next one and exits at once: no process lives long enough to be listed twice.
    bench.put("link.sh", "trap '' TERM\necho x >> links\nsetsid bash link.sh &\n");
    let output = bench.call("Bash", json!({"command": "bash link.sh; sleep 1000", "timeout": 1_500})).await;
    assert!(output.joined_text().contains("timed out"), "{}", output.joined_text());
    assert!(bench.get("links").len() > 10);
    assert_eq!(below(&bench.root), [0; 0]);
}

#[tokio::test]
async fn r06_a_keeper_that_is_stopped_or_killed_by_its_own_command_loses_nothing() {
    let bench = Bench::new();
    let output = bench.bash(&format!("{HARD} kill -9 $PPID; sleep 1000")).await;
    assert!(
        output.joined_text().contains("[the keeper of this command was killed; "),
        "{}",
        output.joined_text()
    );
    assert_eq!(pids(&bench.root).len(), HARD_ONES);
    until("all are gone", || running(&bench.root).is_empty() && below(&bench.root).is_empty()).await;
    let output = bench.call("Bash", json!({"command": "kill -STOP $PPID; sleep 1000", "timeout": 300})).await;
    assert!(output.joined_text().starts_with("[timed out after 0.3 s"), "{}", output.joined_text());
    // It was woken, and did its work itself.
    assert!(!output.joined_text().contains("keeper"), "{}", output.joined_text());
    assert_eq!(below(&bench.root), [0; 0]);
}

/// A bench whose commands have a home, and a command that starts holders of these locks below `$HOME` and waits for them;
/// each says its id and that of its child in a file `held-<number>`.
fn bench_with_holders(locks: &[&str]) -> (Bench, String) {
    let bench = Bench::with(|options| options.env.push(("HOME".into(), options.root.join("home").into())));
    let start = locks.iter().enumerate().map(|(number, lock)| {
        let dir = Path::new(lock).parent().unwrap().display();
        let name = Path::new(lock).file_name().unwrap().display();
        format!(
            "mkdir -p ~/{dir}; (setsid '{}' hold ~/{dir} {name} held-{number} &)
             while [ ! -e held-{number} ]; do sleep 0.01; done\n",
            helper().display()
        )
    });
    let command = start.collect();
    (bench, command)
}

/// Which of holder and child run.
fn held(bench: &Bench, number: usize) -> Vec<(i32, bool)> {
    let text = String::from_utf8(bench.get(&format!("held-{number}"))).unwrap();
    text.split(' ').map(|pid| pid.parse().unwrap()).map(|pid: i32| (pid, runs(pid))).collect()
}

/// Ends whoever was left on purpose.
fn end(found: &[(i32, bool)]) {
    for (pid, _) in found.iter().filter(|(_, runs)| *runs) {
        let _gone = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

const DAEMON: &str = ".local/share/caliban/repos/00ff/daemon.lock";
const SHIM: &str = ".local/share/caliban/repos/11ee/agents/0a0b0c0d/shim.lock";

#[tokio::test]
async fn a_daemon_that_a_command_had_to_start_stays_with_all_below_it() {
    // Nobody sees which files the holders have open, or what they run.
    if !testkit::processes_can_hide() {
        return;
    }
    let (bench, start) = bench_with_holders(&[DAEMON, SHIM]);
    let output = bench.bash(&format!("{start} echo up")).await;
    let (daemon, shim) = (held(&bench, 0), held(&bench, 1));
    end(&[daemon.clone(), shim.clone()].concat());
    assert_eq!((output.joined_text().as_str(), output.is_error), ("up\n", false));
    assert!(daemon.iter().chain(&shim).all(|(_, runs)| *runs), "{daemon:?} {shim:?}");
}

#[tokio::test]
async fn r06_the_rest_of_a_command_that_started_a_daemon_is_ended_whatever_it_does() {
    let (bench, start) = bench_with_holders(&[DAEMON]);
    // Nothing waits for the daemon: the command's own resist, and are gone when the call returns.
    let output = bench.bash(&format!("{start} {HARD}")).await;
    let daemon = held(&bench, 0);
    end(&daemon);
    assert!(daemon.iter().all(|(_, runs)| *runs), "{daemon:?}");
    assert!(output.joined_text().contains("left running were ended"), "{}", output.joined_text());
    assert_eq!((pids(&bench.root).len(), running(&bench.root)), (HARD_ONES, vec![]));
}

#[tokio::test]
async fn r06_who_only_pretends_to_be_a_daemon_is_ended() {
    // A lock of another name, one that is nobody's place, and a fleet that is not the user's.
    let (bench, start) = bench_with_holders(&[
        ".local/share/caliban/repos/00ff/start.lock",
        ".local/share/caliban/daemon.lock",
        "elsewhere/caliban/repos/00ff/daemon.lock",
    ]);
    let repo = ".local/share/caliban/repos/22dd";
    // One says in the file that it is the daemon, and has it open. One holds the lock and is another program; what is
    // below it leads a session and inherited the lock.
    let liars = format!(
        "mkdir -p ~/{repo} pids; cd ~/{repo}; pids=$OLDPWD/pids
         setsid bash -c 'echo \"pid $$ start $(cut -d\" \" -f22 /proc/$$/stat)\" > daemon.lock; exec 9< daemon.lock; echo $$ > '$pids'/says; sleep 1000; :' &
         mkdir -p ../33cc
         setsid flock ../33cc/daemon.lock setsid bash -c 'echo $$ > '$pids'/inherited; sleep 1000; :' &
         while [ $(cat $pids/* 2>/dev/null | wc -l) -lt 2 ]; do sleep 0.01; done"
    );
    let output = bench.bash(&format!("{start} {liars}")).await;
    let holders: Vec<(i32, bool)> = (0..3).flat_map(|number| held(&bench, number)).collect();
    end(&holders);
    assert!(holders.iter().all(|(_, runs)| !*runs), "{holders:?}");
    assert_eq!((pids(&bench.root).len(), running(&bench.root)), (2, vec![]));
    assert!(output.joined_text().contains("left running were ended"), "{}", output.joined_text());
}

/// A keeper whose parent is a process that the test can kill.
fn keeper_below_a_shell(root: &Path, command: &str) -> Child {
    let launch = Launch {
        program: "/bin/bash".into(),
        arguments: vec!["-c".into(), command.into()],
        directory: root.to_owned(),
        identity: None,
        environment: LaunchEnvironment::Exactly(vec![("PATH".into(), "/usr/bin:/bin".into())]),
        streams: Streams::Shell,
        fence: None,
        limits: caliban_contract::tree_limits::TreeLimits::default(),
    };
    fs::write(root.join("order"), launch.encode().unwrap()).unwrap();
    // The shell holds the write end of the keeper's input, as an agent does.
    Command::new("/bin/bash")
        .args(["-c", "mkfifo control; \"$0\" __reap < control > out 2> report & echo $! > keeper; exec 9> control; cat order >&9; wait"])
        .arg(helper())
        .current_dir(root)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn r06_a_parent_killed_with_9_takes_the_tree_with_it() {
    let bench = Bench::new();
    let mut parent = keeper_below_a_shell(&bench.root, &format!("{HARD} sleep 1000"));
    until("the processes start", || pids(&bench.root).len() == HARD_ONES).await;
    parent.kill().unwrap();
    parent.wait().unwrap();
    until("all are gone", || running(&bench.root).is_empty() && below(&bench.root).is_empty()).await;
}

#[tokio::test]
async fn r06_term_to_the_keeper_ends_the_tree_and_reports() {
    let bench = Bench::new();
    let mut parent = keeper_below_a_shell(&bench.root, &format!("{HARD} sleep 1000"));
    until("the processes start", || pids(&bench.root).len() == HARD_ONES).await;
    let keeper = fs::read_to_string(bench.path("keeper")).unwrap();
    assert!(Command::new("kill").args(["-TERM", keeper.trim()]).status().unwrap().success());
    parent.wait().unwrap();
    assert_eq!(running(&bench.root), [0; 0]);
    let report: serde_json::Value = serde_json::from_slice(&bench.get("report")).unwrap();
    assert_eq!(report["outcome"], json!({"Killed": 15}));
    assert_eq!(report["stuck"], json!(0));
}

#[tokio::test]
async fn background_jobs_are_read_killed_and_ended_with_the_workspace() {
    let bench = Bench::new();
    let start = async |command: &str| {
        bench.ok("Bash", json!({"command": command, "run_in_background": true, "description": "d"})).await
    };
    let text = start("echo one; while [ ! -e go ]; do sleep 0.01; done; echo two; exit 5").await;
    let file = bench.workspace.output_dir().join("bash-1.txt");
    assert_eq!(
        text,
        format!(
            "started in the background as bash_1; its output goes to {}. BashOutput shows what is new, KillShell ends it.",
            file.display()
        )
    );
    until("it speaks", || fs::read(&file).is_ok_and(|text| text == b"one\n")).await;
    let read = async || bench.call("BashOutput", json!({"bash_id": "bash_1"})).await;
    assert_eq!(read().await.joined_text(), "one\n[bash_1: running; new output above]");
    assert_eq!(read().await.joined_text(), "[bash_1: running; no new output]");
    bench.put("go", "");
    until("it ends", || bench.workspace.jobs()[0].state == JobState::Ended(Some(5))).await;
    let output = read().await;
    assert_eq!(output.joined_text(), "two\n[bash_1: exit code 5; new output above]");
    assert_eq!(output.exit_code, Some(5));

    start(&format!("{HARD} sleep 1000")).await;
    until("the processes start", || pids(&bench.root).len() == HARD_ONES).await;
    assert_eq!(
        bench.ok("KillShell", json!({"shell_id": "bash_2"})).await,
        "ended bash_2 and everything it started"
    );
    assert_eq!(running(&bench.root), [0; 0]);
    assert_eq!(bench.ok("KillShell", json!({"shell_id": "bash_2"})).await, "bash_2 had already ended");

    start("seq 1 20; sleep 1000").await;
    let third = bench.workspace.output_dir().join("bash-3.txt");
    until("it speaks", || fs::read(&third).is_ok_and(|text| text.ends_with(b"20\n"))).await;
    assert_eq!(
        bench.ok("BashOutput", json!({"bash_id": "bash_3", "filter": "^1.$"})).await,
        "10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n[bash_3: running; new output above]"
    );
    let jobs = bench.workspace.jobs();
    assert_eq!(jobs.len(), 3);
    assert_eq!((jobs[2].id.as_str(), jobs[2].description.as_deref()), ("bash_3", Some("d")));
    assert_eq!(
        bench.err("BashOutput", json!({"bash_id": "nope"})).await,
        "there is no background job `nope`; there are bash_1, bash_2, bash_3"
    );
    bench.workspace.shutdown().await;
    assert_eq!(below(&bench.root), [0; 0]);
    assert_eq!(bench.workspace.jobs()[2].state, JobState::Ended(Some(143)));
}

#[tokio::test]
async fn jobs_of_a_child_workspace_end_with_it_and_with_its_parent() {
    let bench = Bench::new();
    let child = bench.workspace.child(&bench.root).unwrap();
    let tools = caliban_tools::builtin(&child);
    let bash = tools.iter().find(|tool| tool.spec().name == "Bash").unwrap();
    let call = CallContext { id: "c", cancel: &bench.cancel, progress: &|_| {}, fence: None };
    let command = format!("{HARD} sleep 1000");
    let output = bash.call(json!({"command": command, "run_in_background": true}), call).await;
    assert!(!output.is_error, "{}", output.joined_text());
    assert_eq!(bench.workspace.jobs(), []);
    assert_eq!(child.jobs().len(), 1);
    until("the processes start", || pids(&bench.root).len() == HARD_ONES).await;
    bench.workspace.shutdown().await;
    assert_eq!(running(&bench.root), [0; 0]);
    child.shutdown().await;
}

#[tokio::test]
async fn a_dropped_workspace_ends_its_jobs() {
    let bench = Bench::new();
    let root = bench.root.clone();
    let command = format!("{HARD} sleep 1000");
    bench.ok("Bash", json!({"command": command, "run_in_background": true})).await;
    until("the processes start", || pids(&root).len() == HARD_ONES).await;
    let ids = pids(&root);
    drop(bench);
    until("all are gone", || !ids.iter().any(|pid| runs(*pid))).await;
}
