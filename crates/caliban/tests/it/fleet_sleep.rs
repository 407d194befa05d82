//! Agents that wait for a message: when they leave memory, and when not.

use serde_json::json;
use testkit::{StepExt, Tmux, script, text, tool, wait_until};

use crate::fleet::Fleet;

/// Looked at this often; the shortest sleep that the settings know takes a minute.
const LOOKS: usize = 3;

impl Fleet {
    fn is_asleep(&self, query: &str) -> bool {
        self.row(query)["hibernated"] == json!(true)
    }

    /// Waits until it has left memory, which takes longer than anything else that is waited for.
    fn wait_for_sleep(&self, query: &str) {
        for _ in 0..LOOKS {
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                wait_until("it sleeps", || self.is_asleep(query));
            }));
            if looked.is_ok() {
                return;
            }
        }
        panic!("{query} does not sleep: {:#}", self.row(query));
    }
}

#[test]
fn an_idle_agent_sleeps_when_nothing_of_it_runs_and_wakes_as_it_was() {
    let job = "while [ ! -e stop ]; do sleep 0.1; done";
    let fleet = Fleet::new(script![
        text("never said").on_first("to be cancelled"),
        tool("Bash", json!({"command": job, "run_in_background": true})).on_first("with a job"),
        text("the job runs").on_first("with a job"),
        text("nothing runs").on_first("without a job"),
        text("good morning").on_first("without a job"),
    ]);
    fleet.settings("[fleet]\nidle_minutes = 1\n");
    fleet.place.server.hold();
    let cancelled = fleet.bg("to be cancelled", ["--interactive"]);
    fleet.place.server.wait_for_requests(1);
    let tmux = Tmux::start(&fleet.place.env, 110, 40);
    let program = fleet.place.env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    tmux.send_text(&format!("cd {} && {program} attach --plain {cancelled}", fleet.place.repo.display()));
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("> to be cancelled");
    tmux.send_text("/cancel");
    tmux.send_keys(&["Enter"]);
    tmux.wait_for_text("-- turn over: interrupted --");
    tmux.send_keys(&["C-d"]);
    tmux.wait_for_text("detached");
    fleet.wait_for(&cancelled, "idle");
    fleet.place.server.release();

    let busy = fleet.bg("with a job", ["--interactive", "--permission-mode", "unattended"]);
    fleet.wait_for(&busy, "idle");
    assert_eq!(fleet.row(&busy)["doing"], json!(format!("waits for your message; in the background: {job}")));
    let idle = fleet.bg("without a job", ["--interactive"]);
    fleet.wait_for(&idle, "idle");

    fleet.wait_for_sleep(&idle);
    wait_until("the cancelled one sleeps, too", || fleet.is_asleep(&cancelled));
    // It waits for longer than the one that sleeps.
    let row = fleet.row(&busy);
    assert_eq!((&row["state"], &row["hibernated"]), (&json!("idle"), &json!(false)));
    let jobs = fleet.place.env.processes().into_iter().filter(|(_, line)| line.contains(job)).count();
    assert!(jobs > 0, "the job is gone: {:?}", fleet.place.env.processes());
    fleet.place.env.write(fleet.worktree(&busy).join("stop"), "");
    wait_until("its time is long up, and the job has ended", || fleet.is_asleep(&busy));

    // Where there is nothing to stand on nobody is woken, and nobody fails.
    let (old, new) = (fleet.place.repo.display().to_string(), fleet.place.repo.with_file_name("elsewhere"));
    std::fs::rename(&old, &new).unwrap();
    for verb in [&["send", &idle, "are you there?"][..], &["attach", &idle]] {
        let args = [&["-C", old.as_str(), "agents"], verb].concat();
        assert_eq!(
            fleet.place.env.run_in(&new, args).expect_code(1).stderr,
            format!(
                "error: agent {idle} sleeps, and cannot wake: the directory {old} is not there any more\n\
                 hint: it was told nothing and sleeps on; if the repo was moved, move it back to that place\n"
            )
        );
    }
    std::fs::rename(&new, &old).unwrap();
    assert_eq!(fleet.row(&idle)["doing"], json!("asleep, waits for your message"));

    // A message wakes it: the same agent, the same conversation.
    fleet.run(["agents", "send", &idle, "are you there?"]).ok();
    fleet.run(["agents", "wait", &idle]).ok();
    let row = fleet.row(&idle);
    assert_eq!((&row["runs"], &row["last_text"]), (&json!(2), &json!("good morning")));
    let requests = fleet.place.server.model_requests();
    let last = requests.last().unwrap().body["messages"].to_string();
    assert!(last.contains("without a job") && last.contains("are you there?"), "{last}");

    // Looking at it wakes it, too; what was cancelled stays so.
    let mut attached =
        fleet.place.env.start("caliban", ["attach", &cancelled]).dir(&fleet.place.repo).spawn();
    attached.wait_for_stdout("> to be cancelled");
    wait_until("it is awake", || {
        fleet.row(&cancelled)["runs"] == json!(2) && fleet.state(&cancelled) == "idle"
    });
    assert_eq!(fleet.place.server.model_requests().len(), requests.len());
    attached.kill();
    fleet.run(["kill", &cancelled, &busy, &idle]).ok();
}

#[test]
fn a_command_that_ends_with_its_agent_is_named() {
    let job = "while :; do sleep 0.1; done";
    let fleet = Fleet::new(script![
        tool("Bash", json!({"command": job, "run_in_background": true})),
        text("left it running").forever(),
    ]);
    fleet.settings("[bash]\njob_wait_seconds = 1\n");
    let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
    fleet.run(["agents", "wait", &id]).ok();
    let log = fleet.run(["logs", &id, "--raw"]).ok().stdout;
    assert!(log.contains(&format!("a command in the background ends with the agent: {job}")), "{log}");
    let left = fleet.place.env.processes().into_iter().filter(|(_, line)| line.contains(job)).count();
    assert_eq!(left, 0);
}
