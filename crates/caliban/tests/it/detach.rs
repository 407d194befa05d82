//! Services that outlive their agent: by a rule or an approval of their own, reported, listed and ended.

use serde_json::{Value, json};
use testkit::{StepExt as _, script, script::ScriptStep, text, tool, wait_until};

use crate::{
    commands::says,
    fleet::Fleet,
    place::Place,
    screen::{leave, open},
};

const SERVICE: &str = "echo $$ > pid; echo ready; exec sleep 1000";

fn service() -> ScriptStep {
    tool("Bash", json!({"command": SERVICE, "detach": true}))
}

fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start().chars().next();
    state.is_some_and(|state| state != 'Z')
}

fn pid(place: &Place, file: &std::path::Path) -> i32 {
    place.env.read(file).trim().parse().unwrap()
}

#[test]
fn a_service_needs_a_rule_of_its_own_whatever_the_mode_is() {
    for rule in ["Bash", "Bash(sleep *)", "*"] {
        let place = Place::new(script![service(), text("no service")]);
        let flags = ["--permission-mode", "unattended", "--allow", rule];
        let output = place.ask("serve", flags).expect_code(3);
        assert!(output.stderr.contains("--allow 'Detach'"), "{rule}: {}", output.stderr);
        assert!(!place.repo.join("pid").exists(), "{rule}");
    }
    let place = Place::new(script![service(), text("no service")]);
    let flags = ["--permission-mode", "unattended", "--allow", "Detach", "--deny", "Detach"];
    place.ask("serve", flags).expect_code(3);
    assert!(!place.repo.join("pid").exists());
}

#[test]
fn a_service_that_is_asked_for_and_approved_runs_and_a_denied_one_does_not() {
    // Commands pass unasked here: what is asked is the detaching.
    let flags = ["--permission-mode", "accept-edits", "--allow", "Bash", "--isolation", "none"];
    let fleet = Fleet::new(script![service(), text("it serves")]);
    let id = fleet.bg("serve", flags);
    fleet.wait_for_ask(&id);
    let asked = fleet.run(["approvals"]).ok().stdout;
    assert!(asked.contains("Detach") && asked.contains("sleep 1000"), "{asked}");
    assert!(!fleet.place.repo.join("pid").exists());
    fleet.run(["approve", &id]).ok();
    fleet.wait_for(&id, "done");
    let served = pid(&fleet.place, &fleet.place.repo.join("pid"));
    assert!(runs(served));
    fleet.run(["jobs", "stop", "--all"]).ok();
    assert!(!runs(served));
    let fleet = Fleet::new(script![service(), text("no service").on("not now")]);
    let id = fleet.bg("serve", flags);
    fleet.wait_for_ask(&id);
    fleet.run(["deny", &id, "--reason", "not now"]).ok();
    fleet.wait_for(&id, "done");
    assert!(!fleet.place.repo.join("pid").exists());
}

#[test]
fn a_service_outlives_its_agent_is_reported_listed_and_ended() {
    let place = Place::new(script![service(), text("it serves")]);
    let flags = ["--permission-mode", "unattended", "--allow", "Detach", "--output-format", "json"];
    let result: Value = place.ask("serve", flags).ok().json();
    let pid = pid(&place, &place.repo.join("pid"));
    assert!(runs(pid));
    let jobs: Vec<Value> = place.verb(["jobs", "list", "--json"]).ok().json();
    let [job] = jobs.as_slice() else { panic!("{jobs:?}") };
    let id = job["id"].as_str().unwrap();
    let note = format!("left running: {id} ({SERVICE}); `caliban jobs stop ID` ends one");
    assert_eq!((&result["result"], &result["notes"]), (&json!("it serves"), &json!([note])));
    assert_eq!(
        (&job["state"], &job["command"], &job["agent"], &job["exit_code"]),
        (&json!("running"), &json!(SERVICE), &json!(place.session_id()), &Value::Null)
    );
    assert_eq!(place.env.read(job["output"].as_str().unwrap()), "ready\n");
    let told = place.server.model_requests()[1].body["messages"].to_string();
    assert!(told.contains("ready") && told.contains(&format!("detached as {id}")), "{told}");
    let list = place.verb(["jobs", "list"]).ok().stdout;
    assert!(list.contains(&format!("{id}  running ")) && list.contains("sleep 1000"), "{list}");
    assert_eq!(place.verb(["jobs", "stop", &id[..4]]).ok().stdout, format!("{id} ended\n"));
    assert!(!runs(pid));
    assert_eq!(place.verb(["jobs", "stop", id]).ok().stdout, format!("{id} had ended already\n"));
    let jobs: Vec<Value> = place.verb(["jobs", "list", "--json"]).ok().json();
    assert_eq!((&jobs[0]["state"], &jobs[0]["exit_code"]), (&json!("ended"), &json!(143)));
    let output = place.verb(["jobs", "stop", "nope"]).expect_code(1);
    assert!(output.stderr.contains("there is no detached command \"nope\""), "{}", output.stderr);
}

#[test]
fn r06_without_detach_all_ends_with_the_agent_and_a_failed_service_is_told() {
    let failed = tool("Bash", json!({"command": "echo no such port >&2; exit 3", "detach": true}));
    let left = tool("Bash", json!({"command": "setsid sh -c 'echo $$ > pid; exec sleep 1000' & sleep 0.2"}));
    let place = Place::new(script![failed, left, text("done")]);
    let flags = ["--permission-mode", "unattended", "--allow", "Detach"];
    place.ask("serve", flags).ok();
    let told = place.server.model_requests()[1].body["messages"].to_string();
    assert!(told.contains("no such port") && told.contains("ended at once"), "{told}");
    assert!(!runs(pid(&place, &place.repo.join("pid"))));
    assert_eq!(place.verb(["jobs", "stop", "--all"]).ok().stdout, "No detached commands run.\n");
}

#[test]
fn a_session_on_the_screen_says_what_it_leaves_running() {
    let place = Place::new(script![service(), text("it serves")]);
    let tmux = open(&place, "--allow 'Bash(*) outside' --allow Edit --allow Detach");
    says(&tmux, "serve");
    tmux.wait_for_text("it serves");
    let screen = leave(&tmux);
    assert!(screen.contains("note: left running: ") && screen.contains("(echo $$ > pid;"), "{screen}");
    let pid = pid(&place, &place.repo.join("pid"));
    assert!(runs(pid));
    place.verb(["jobs", "stop", "--all"]).ok();
    assert!(!runs(pid));
}

#[test]
fn the_service_of_a_background_agent_is_listed_with_it_and_ends_when_the_living_agent_is_killed() {
    let fleet = Fleet::new(script![service(), text("it serves")]);
    let flags = ["--permission-mode", "unattended", "--allow", "Detach", "--isolation", "none"];
    let ended = fleet.bg("serve", flags);
    fleet.wait_for(&ended, "done");
    let first = pid(&fleet.place, &fleet.place.repo.join("pid"));
    assert!(runs(first));
    let list = fleet.run(["agents", "list"]).ok().stdout;
    assert!(list.contains(&format!("left running by {ended}: ")), "{list}");
    let left = fleet.row(&ended)["left_running"].clone();
    assert_eq!((&left[0]["command"], &left[0]["state"]), (&json!(SERVICE), &json!("running")));
    // Of an agent that has ended it is the user's.
    fleet.run(["agents", "kill", &ended]).ok();
    assert!(runs(first));
    fleet.run(["jobs", "stop", "--all"]).ok();
    assert!(!runs(first));
    assert_eq!(fleet.row(&ended)["left_running"], Value::Null);
    // Of one that lives it ends with it.
    let fleet = Fleet::new(script![
        service(),
        tool("Bash", json!({"command": "touch waiting; sleep 1000"})),
        text("never said"),
    ]);
    let living = fleet.bg("serve", flags);
    wait_until("it waits", || fleet.place.repo.join("waiting").exists());
    let second = pid(&fleet.place, &fleet.place.repo.join("pid"));
    assert!(runs(second));
    fleet.run(["agents", "kill", &living]).ok();
    assert!(!runs(second));
}

#[test]
fn a20_a_service_that_takes_too_much_is_ended_and_listed_with_the_reason() {
    let eat = "exec /usr/bin/python3 -c 'import time; time.sleep(1.5); all = [bytearray(67108864) for _ in range(8)]; time.sleep(600)'";
    let fork = "sleep 1.5; for n in $(seq 400); do sleep 600 & done; wait";
    for (limit, command, words) in [
        ("memory_max = '256 MB'", eat, "killed: used more than 256 MB of memory (fleet.memory_max)"),
        ("pids_max = 100", fork, "killed: had more than 100 processes (fleet.pids_max)"),
    ] {
        let place =
            Place::new(script![tool("Bash", json!({"command": command, "detach": true})), text("it serves")]);
        place.env.write(place.env.config().join("caliban/settings.toml"), format!("[fleet]\n{limit}\n"));
        place.ask("serve", ["--permission-mode", "unattended", "--allow", "Detach"]).ok();
        wait_until("it is ended", || {
            let jobs: Vec<Value> = place.verb(["jobs", "list", "--json"]).ok().json();
            jobs[0]["state"] == "ended" && jobs[0]["exceeded"] == words
        });
        let list = place.verb(["jobs", "list"]).ok().stdout;
        assert!(list.contains(words), "{list}");
        wait_until("its processes are gone", || place.env.processes().is_empty());
    }
}
