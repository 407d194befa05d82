//! Time that is not what it seems (r15): a wall clock that jumps a day, and everything stopped for longer than a
//! limit, as a machine that sleeps does it. A command has the time that it was given, no less.
//!
//! The agent is stopped with its commands, so it is a process of its own: the test runs itself again.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::bench::{Bench, helper};

/// How long a condition may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The limit of the command that stands still.
const LIMIT_MS: u64 = 3_000;
/// For how long everything stands still: longer than that limit, and than the grace of a command that is ended.
const STILL: Duration = Duration::from_millis(4_000);
/// What a command still has to do then: a twentieth of a second and more, so that an end at once is seen.
const WORK: &str = "sleep 0.05";
/// Rounds of a hundredth of a second that a command makes before and after its clock jumps.
const ROUNDS: usize = 30;
/// What the inner tests are told: the directory in which both sides put files.
const MEETING: &str = "CALIBAN_TEST_MEETING";

fn meeting() -> PathBuf {
    variable(MEETING).into()
}

#[expect(clippy::disallowed_methods, reason = "an inner test is told what to do by its environment")]
fn variable(name: &str) -> OsString {
    std::env::var_os(name).unwrap()
}

/// Debian's libfaketime, where it is installed.
fn library() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten();
    dirs.map(|dir| dir.path().join("faketime/libfaketimeMT.so.1")).find(|path| path.exists())
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn inner(name: &str, meeting: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(MEETING, meeting)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[track_caller]
fn passed(child: Child) {
    let output = child.wait_with_output().unwrap();
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// A process and all below it.
fn family(top: i32) -> Vec<i32> {
    let mut found = vec![top];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        for task in tasks {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            found.extend(children.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok()));
        }
        at += 1;
    }
    found
}

/// Stops a process and all below it for [`STILL`]; `meanwhile` happens before they go on.
fn stand_still(top: &Child, meanwhile: impl FnOnce()) {
    let top = i32::try_from(top.id()).unwrap();
    let signal = |pid: &i32, signal| {
        let _gone = rustix::process::kill_process(Pid::from_raw(*pid).unwrap(), signal);
    };
    // From the top, so that nobody sees another stop.
    let mut stopped: Vec<i32> = Vec::new();
    loop {
        let new: Vec<i32> = family(top).into_iter().filter(|pid| !stopped.contains(pid)).collect();
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|pid| signal(pid, Signal::STOP));
        stopped.extend(new);
    }
    let began = Instant::now();
    wait_for("time goes by", || began.elapsed() > STILL);
    meanwhile();
    stopped.iter().for_each(|pid| signal(pid, Signal::CONT));
}

#[test]
fn r15_time_in_which_agent_and_command_were_stopped_is_not_the_commands() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let child = inner("clock::r15_inside_stopped", dir.path()).spawn().unwrap();
    wait_for("the command is up", || at("up").exists());
    stand_still(&child, || fs::write(at("go"), "").unwrap());
    wait_for("the next is asked to end", || at("asked").exists());
    stand_still(&child, || fs::write(at("may-end"), "").unwrap());
    passed(child);
}

#[tokio::test]
#[ignore = "run by r15_time_in_which_agent_and_command_were_stopped_is_not_the_commands"]
async fn r15_inside_stopped() {
    let at = meeting().display().to_string();
    let bench = Bench::new();
    let command = format!(": > {at}/up; while [ ! -e {at}/go ]; do sleep 0.01; done; {WORK}; echo whole");
    let output = bench.call("Bash", json!({"command": command, "timeout": LIMIT_MS})).await;
    assert_eq!(output.joined_text(), "whole\n");
    // One that is asked to end, and takes a little of the grace that it has for that.
    let command = format!(
        "trap ': > {at}/asked; while [ ! -e {at}/may-end ]; do sleep 0.01; done; {WORK}; echo orderly; exit 7' TERM; \
         : > {at}/runs; while :; do sleep 0.01; done"
    );
    let output = bench.call("Bash", json!({"command": command, "timeout": 300})).await;
    let text = output.joined_text();
    // The shell may tell of its `sleep`.
    let text = text.strip_prefix("Terminated\n").unwrap_or(&text);
    assert_eq!(text, "orderly\n[timed out after 0.3 s: everything it started was ended]\n[exit code 7]");
}

#[test]
fn r15_a_wall_clock_that_jumps_ends_no_command() {
    let library = library().unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("clock"), "+0d").unwrap();
    let child = inner("clock::r15_inside_jumping", dir.path())
        .env("LD_PRELOAD", library)
        .env("FAKETIME_TIMESTAMP_FILE", dir.path().join("clock"))
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("FAKETIME_DISABLE_SHM", "1")
        .spawn()
        .unwrap();
    passed(child);
}

#[tokio::test]
#[ignore = "run by r15_a_wall_clock_that_jumps_ends_no_command"]
async fn r15_inside_jumping() {
    let meeting = meeting();
    let jump = |to: &str| {
        fs::write(meeting.join("clock.new"), to).unwrap();
        fs::rename(meeting.join("clock.new"), meeting.join("clock")).unwrap();
    };
    // The same clock for agent, keeper and command.
    let faked: Vec<(OsString, OsString)> = [
        "LD_PRELOAD",
        "FAKETIME_TIMESTAMP_FILE",
        "FAKETIME_NO_CACHE",
        "FAKETIME_DONT_FAKE_MONOTONIC",
        "FAKETIME_DISABLE_SHM",
    ]
    .into_iter()
    .map(|name| (name.into(), variable(name)))
    .collect();
    let keeper = meeting.join("keeper");
    let exports: String = faked
        .iter()
        .map(|(name, value)| format!("export {}='{}'\n", name.display(), value.display()))
        .collect();
    fs::write(&keeper, format!("#!/bin/sh\n{exports}exec '{}' \"$@\"\n", helper().display())).unwrap();
    fs::set_permissions(&keeper, fs::Permissions::from_mode(0o700)).unwrap();
    let bench = Bench::with(|options| {
        options.helper = keeper.clone();
        options.env.extend(faked.clone());
    });
    let at = meeting.display().to_string();
    let day = Duration::from_secs(23 * 60 * 60);
    for (n, to) in ["+1d", "-1d", "+0d"].into_iter().enumerate() {
        let command = format!(
            ": > {at}/up{n}; while [ ! -e {at}/go{n} ]; do echo >> {at}/rounds{n}; sleep 0.01; done; echo whole"
        );
        let call = bench.call("Bash", json!({"command": command, "timeout": 60_000}));
        let jumps = async {
            while !meeting.join(format!("up{n}")).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let rounds = || fs::read(meeting.join(format!("rounds{n}"))).map_or(0, |rounds| rounds.len());
            let before = std::time::SystemTime::now();
            jump(to);
            let after = std::time::SystemTime::now();
            let jumped = after.duration_since(before).unwrap_or_else(|error| error.duration());
            assert!(jumped > day, "the clock did not jump: {jumped:?}");
            // Long enough for a time-out by the wall clock to be seen.
            while rounds() < ROUNDS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            fs::write(meeting.join(format!("go{n}")), "").unwrap();
        };
        let (output, ()) = tokio::join!(call, jumps);
        assert_eq!(output.joined_text(), "whole\n", "{to}");
        // The grace of one that is ended, too.
        let command = format!(
            "trap 'while [ ! -e {at}/end{n} ]; do sleep 0.01; done; echo orderly; exit 7' TERM; \
             : > {at}/asked{n}; while :; do sleep 0.01; done"
        );
        let call = bench.call("Bash", json!({"command": command, "timeout": 400}));
        let jumps = async {
            while !meeting.join(format!("asked{n}")).exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            jump(if n == 1 { "+1d" } else { "-1d" });
            fs::write(meeting.join(format!("end{n}")), "").unwrap();
        };
        let (output, ()) = tokio::join!(call, jumps);
        assert!(output.joined_text().contains("orderly\n[timed out after 0.4 s"), "{}", output.joined_text());
        jump(to);
    }
}
