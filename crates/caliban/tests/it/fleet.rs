//! The background fleet from the shell (f01–f20, s11, w06), through the program with real daemons and workers.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    ModelServer, Output, Protocol, StepExt, script,
    script::{Script, ScriptStep},
    status, text, tool, wait_until,
};

use crate::place::Place;

/// A place with a fleet in it.
pub(crate) struct Fleet {
    pub(crate) place: Place,
}

impl Fleet {
    /// Without the sandbox: in a fence an agent in its own worktree asks nothing, and most of these tests are about asking.
    /// `fence/background.rs` has those of the fence.
    pub(crate) fn new(script: Script) -> Self {
        Self::with(ModelServer::start(script))
    }

    /// With this server.
    pub(crate) fn with(server: ModelServer) -> Self {
        let fleet = Self { place: Place::with(server, Protocol::Anthropic) };
        let path = fleet.place.env.config().join("caliban/settings.toml");
        let text = fleet.place.env.read(&path);
        // Hooks and filters of these tests are the user's own; `git_programs.rs` has the question about them.
        let text = format!("sandbox = \"off\"\ngit_programs = \"allow\"\n{text}");
        fleet.place.env.write(path, text);
        fleet
    }

    /// More settings than those of every test.
    pub(crate) fn settings(&self, more: &str) {
        let path = self.place.env.config().join("caliban/settings.toml");
        let text = self.place.env.read(&path);
        self.place.env.write(path, format!("{text}{more}"));
    }

    /// `caliban --bg TASK …`: the id.
    pub(crate) fn bg<'a>(&self, task: &'a str, more: impl IntoIterator<Item = &'a str>) -> String {
        let output = self.place.caliban().args(["--bg", task]).args(more).output().ok();
        id_of(&output)
    }

    pub(crate) fn run<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Output {
        self.place.verb(args)
    }

    pub(crate) fn rows(&self) -> Vec<Value> {
        self.run(["agents", "list", "--json"]).ok().json()
    }

    /// One agent, by its id or label.
    pub(crate) fn row(&self, query: &str) -> Value {
        let rows = self.rows();
        let found = rows.iter().find(|row| row["id"] == query || row["label"] == query);
        found.unwrap_or_else(|| panic!("no agent {query} among {rows:#?}")).clone()
    }

    pub(crate) fn state(&self, query: &str) -> String {
        self.row(query)["state"].as_str().unwrap().to_owned()
    }

    pub(crate) fn wait_for(&self, query: &str, state: &str) {
        wait_until(&format!("{query} is {state}: {}", self.row(query)), || self.state(query) == state);
    }

    /// Waits until it asks for a permission.
    pub(crate) fn wait_for_ask(&self, query: &str) {
        wait_until("it asks", || !self.row(query)["asks"].as_array().unwrap().is_empty());
    }

    pub(crate) fn worktree(&self, id: &str) -> PathBuf {
        self.place.repo.join(".caliban/worktrees").join(id)
    }
}

pub(crate) fn id_of(output: &Output) -> String {
    let id = output.stdout.strip_suffix('\n').unwrap_or_default().to_owned();
    assert!(id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit()), "not an id alone: {output:?}");
    id
}

pub(crate) fn bash(command: &str) -> ScriptStep {
    tool("Bash", json!({"command": command}))
}

pub(crate) fn write(path: &str, content: &str) -> ScriptStep {
    tool("Write", json!({"file_path": path, "content": content}))
}

#[test]
fn f01_f06_bg_prints_the_id_alone_and_returns_before_the_model_has_answered() {
    let fleet = Fleet::new(script![text("all done")]);
    fleet.place.server.hold();
    let output = fleet.place.caliban().args(["--bg", "the task", "--label", "mine"]).output().ok();
    let id = id_of(&output);
    let place = fleet.worktree(&id);
    assert_eq!(
        output.stderr,
        format!("works on branch caliban/{id} in {}\nwatch it: caliban attach {id}\n", place.display())
    );
    fleet.place.server.wait_for_requests(1);
    let row = fleet.row("mine");
    assert_eq!(
        (&row["id"], &row["state"], &row["prompt"]),
        (&json!(id), &json!("running"), &json!("the task"))
    );
    assert_eq!((&row["branch"], &row["worktree"]), (&json!(format!("caliban/{id}")), &json!(place)));
    fleet.place.server.release();
    let waited = fleet.run(["agents", "wait", "mine"]).ok();
    assert_eq!(waited.stdout, format!("{id}  done  finished\n"));
}

#[test]
fn f01_agents_spawn_is_the_same_and_takes_a_prompt_from_a_file() {
    let fleet = Fleet::new(script![text("one").on_first("from stdin"), text("two").on_first("from a flag")]);
    let args = fleet.place.server.args(fleet.place.protocol);
    let spawn = |more: &[&str], stdin: &str| {
        let run = fleet.place.env.start("caliban", ["agents", "spawn"]).args(&args).args(more);
        run.dir(&fleet.place.repo).stdin(stdin).output()
    };
    let one = id_of(&spawn(&["--prompt-file", "-"], "from stdin").ok());
    let two: Value = spawn(&["--prompt", "from a flag", "--json", "--isolation", "none"], "").ok().json();
    assert_eq!((&two["branch"], &two["directory"]), (&Value::Null, &json!(fleet.place.repo)));
    assert_eq!(two["worktree"], Value::Null);
    fleet.run(["agents", "wait", &one, two["id"].as_str().unwrap()]).ok();
    assert_eq!((fleet.row(&one)["prompt"].as_str(), fleet.rows().len()), (Some("from stdin"), 2));
    let refused = spawn(&[], "").expect_code(2);
    assert!(refused.stderr.contains("--prompt"), "{}", refused.stderr);
    let empty = spawn(&["--prompt", "  "], "").expect_code(2);
    assert!(empty.stderr.contains("the prompt is empty"), "{}", empty.stderr);
}

#[test]
fn f01_with_json_bg_prints_the_new_agent_and_p_its_answer() {
    let fleet = Fleet::new(script![text("one").on_first("the task"), text("two").on_first("another task")]);
    let run = |args: [&str; 3]| fleet.place.caliban().args(args).output();
    let made: Value = run(["--bg", "the task", "--json"]).ok().json();
    let id = made["id"].as_str().unwrap();
    assert_eq!(made["branch"], format!("caliban/{id}"));
    fleet.run(["agents", "wait", id]).ok();
    let answer: Value = run(["-p", "another task", "--json"]).ok().json();
    assert_eq!(answer["result"], "two", "{answer:#}");
}

#[test]
fn f02_s11_a_background_helper_of_an_agent_becomes_one_of_the_fleet() {
    let fleet = Fleet::new(script![
        tool("AgentTool", json!({"prompt": "the helper's task", "background": true, "label": "helper"}))
            .on_first("the parent's task"),
        text("parent done").on_first("the parent's task"),
        text("helper done").on_first("the helper's task"),
    ]);
    fleet.place.ask("the parent's task", []).ok();
    let result = fleet.place.transcript().into_iter().find(|record| record["event"] == "call_ended").unwrap();
    let told = result["content"][0]["text"].as_str().unwrap().to_owned();
    let row = fleet.row("helper");
    let id = row["id"].as_str().unwrap();
    assert!(told.contains(id) && told.contains(&format!("caliban attach {id}")), "{told}");
    fleet.run(["agents", "wait", id]).ok();
    let logs = fleet.run(["logs", id]).ok();
    assert!(logs.stdout.contains("helper done"), "{}", logs.stdout);
}

#[test]
fn f04_f05_f16_the_daemons_status_and_its_socket() {
    use sha2::Digest as _;
    let fleet = Fleet::new(script![text("done")]);
    let none = fleet.run(["daemon", "status"]).expect_code(1);
    assert!(none.stderr.contains("no daemon is running"), "{}", none.stderr);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let status: Value = fleet.run(["daemon", "status", "--json"]).ok().json();
    let digest = sha2::Sha256::digest(fleet.place.repo.to_str().unwrap().as_bytes());
    let hash: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let socket = fleet.place.env.runtime().join(format!("caliban/{hash}.sock"));
    assert_eq!(
        [&status["health"], &status["agents"], &status["socket"], &status["states"]],
        [&json!("ok"), &json!(1), &json!(socket), &json!({"done": 1})]
    );
    let text = fleet.run(["daemon", "status"]).ok().stdout;
    for part in ["health   ok", "agents   1 (1 done)", "uptime ", &socket.to_string_lossy()] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(text.contains(&format!("pid      {}", status["pid"])), "{text}");
}

#[test]
fn f08_f09_the_label_is_in_the_list_and_in_the_logs() {
    let fleet = Fleet::new(script![text("done")]);
    let none = fleet.run(["agents", "list"]).ok();
    assert_eq!(none.stdout, "No agents. Start one: caliban --bg \"<task>\"\n");
    let id = fleet.bg("the task", ["--label", "my-label"]);
    fleet.run(["agents", "wait", "my-label"]).ok();
    let list = fleet.run(["agents", "list"]).ok().stdout;
    let row: Vec<&str> = list.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..3], [id.as_str(), "my-label", "done"], "{list}");
    assert!(row.contains(&format!("caliban/{id}").as_str()), "{list}");
    assert!(fleet.run(["logs", &id]).ok().stdout.starts_with(&format!("agent {id} (my-label): the task\n")));
    let wrong = fleet.place.caliban().args(["--bg", "x", "--label", "My Label"]).output().expect_code(2);
    assert!(wrong.stderr.contains("--label") && wrong.stderr.contains("my-label"), "{}", wrong.stderr);
}

#[test]
fn f11_f18_logs_print_the_session_the_worker_and_what_comes() {
    let fleet = Fleet::new(script![
        text("first part").and_tool("Read", json!({"file_path": "README.md"})),
        text("last part")
    ]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let logs = fleet.run(["agents", "logs", &id]).ok().stdout;
    let parts =
        ["user> the task", "first part", "• Read README.md", "last part", "-- done: finished; 2 turns"];
    let places: Vec<Option<usize>> = parts.iter().map(|part| logs.find(part)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} in {logs}");
    let dir = PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap());
    assert_eq!(
        fleet.run(["logs", &id, "--json"]).ok().stdout,
        format!("{}\n", fleet.place.env.read(dir.join("session.json")).trim_end())
    );
    assert_eq!(fleet.run(["logs", &id, "--raw"]).ok().stdout, fleet.place.env.read(dir.join("worker.log")));
    let followed = fleet.run(["logs", &id, "-f"]).ok().stdout;
    assert_eq!(followed, logs);
    let records = fleet.run(["logs", &id, "-f", "--json"]).ok().json_lines();
    assert_eq!(records.first().map(|record| record["event"].clone()), Some(json!("started")));
}

#[test]
fn f11_logs_can_be_followed_while_the_agent_works() {
    let fleet = Fleet::new(script![
        text("heard").and_tool("Read", json!({"file_path": "README.md"})),
        text("the end")
    ]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let mut follow = fleet.place.env.start("caliban", ["logs", "-f", &id]).dir(&fleet.place.repo).spawn();
    follow.wait_for_stdout("user> the task");
    fleet.place.server.release();
    let output = follow.wait().ok();
    assert!(
        output.stdout.contains("the end") && output.stdout.contains("-- done: finished"),
        "{}",
        output.stdout
    );
}

#[test]
fn f15_f12_kill_and_stop_end_the_whole_tree_before_they_return() {
    let fleet = Fleet::new(script![bash("echo started > started; sleep 1000").forever()]);
    for verb in [&["kill"][..], &["stop"], &["agents", "kill"], &["agents", "stop"]] {
        let id = fleet.bg("the task", ["--permission-mode", "unattended"]);
        wait_until("the command runs", || fleet.worktree(&id).join("started").exists());
        let pid = fleet.row(&id)["pid"].as_i64().unwrap();
        let output = fleet.run(verb.iter().copied().chain([id.as_str(), "--grace", "1"])).ok();
        assert_eq!(output.stdout, format!("{id} killed\n"));
        let left = |line: &str| line.contains("sleep 1000") || line.contains(&id);
        let left: Vec<_> = fleet.place.env.processes().into_iter().filter(|(_, line)| left(line)).collect();
        assert_eq!(left, [], "{verb:?} of {pid}");
        assert_eq!(fleet.state(&id), "killed");
        let again = fleet.run(["kill", &id]).ok().stdout;
        assert!(again.starts_with(&format!("{id} had ended already: killed")), "{again}");
    }
}

#[test]
fn f13_f15_respawn_gives_a_new_id_and_the_old_one_is_gone() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let old = fleet.bg("the task", ["--label", "again"]);
    fleet.run(["agents", "wait", &old]).ok();
    let output = fleet.run(["respawn", &old]).ok();
    let new = id_of(&output);
    assert_ne!(new, old);
    assert!(output.stderr.contains(&format!("agent {old} is gone")), "{}", output.stderr);
    fleet.run(["agents", "wait", &new]).ok();
    let row = fleet.row(&new);
    assert_eq!((&row["prompt"], &row["label"], fleet.rows().len()), (&json!("the task"), &json!("again"), 1));
    let unknown = fleet.run(["logs", &old]).expect_code(1);
    assert!(unknown.stderr.contains("no agent has the id"), "{}", unknown.stderr);
}

#[test]
fn f14_f15_rm_takes_a_stopped_agent_and_force_takes_any() {
    let fleet = Fleet::new(script![text("done").forever()]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let refused = fleet.run(["rm", &id]).expect_code(1);
    assert!(refused.stderr.contains("hint:"), "{}", refused.stderr);
    assert_eq!(fleet.state(&id), "running");
    let removed = fleet.run(["rm", "--force", &id]).ok().stdout;
    assert!(removed.starts_with(&format!("{id} removed\n")), "{removed}");
    assert_eq!(fleet.rows(), Vec::<Value>::new());
    assert!(!fleet.worktree(&id).exists());
    fleet.place.server.release();
    let id = fleet.bg("another", []);
    fleet.run(["agents", "wait", &id]).ok();
    fleet.run(["agents", "rm", &id]).ok();
    assert_eq!(fleet.rows(), Vec::<Value>::new());
}

#[test]
fn f17_f20_agents_outlive_the_daemon_and_are_adopted_as_they_were() {
    let fleet = Fleet::new(script![text("done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let pid = fleet.row(&id)["pid"].clone();
    assert_eq!(fleet.run(["daemon", "stop"]).ok().stdout, "The daemon has left; agents go on.\n");
    assert_eq!(fleet.run(["daemon", "stop"]).ok().stdout, "No daemon was running.\n");
    let row = fleet.row(&id);
    assert_eq!((&row["pid"], &row["state"]), (&pid, &json!("running")));
    let restarted = fleet.run(["daemon", "restart"]).ok().stdout;
    assert!(restarted.contains("found 1 living agent"), "{restarted}");
    assert_eq!(fleet.row(&id)["pid"], pid);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
    let log = fleet.run(["daemon", "logs", "-n", "3"]).ok().stdout;
    assert_eq!(log.lines().count(), 3, "{log}");
}

#[test]
fn f20_a_crashed_agent_goes_on_with_resume_under_the_same_id() {
    let fleet = Fleet::new(script![text("never mind").forever()]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    let pid = fleet.row(&id)["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    fleet.wait_for(&id, "crashed");
    fleet.run(["agents", "wait", &id]).expect_code(1);
    fleet.place.server.release();
    assert_eq!(fleet.run(["resume", &id]).ok().stdout, format!("{id}\n"));
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.rows().len(), 1);
}

#[test]
fn f20_a_killed_agent_goes_on_with_a_message_after_the_daemon_has_left() {
    let fleet = Fleet::new(script![text("first answer"), text("second answer")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    fleet.run(["kill", &id]).ok();
    fleet.run(["daemon", "stop"]).ok();
    fleet.run(["resume", &id, "--prompt", "go on"]).ok();
    fleet.place.server.wait_for_requests(2);
    fleet.wait_for(&id, "idle");
    let requests = fleet.place.server.model_requests();
    let last = requests.last().unwrap().body["messages"].to_string();
    assert_eq!(last.matches("go on").count(), 1, "{last}");
}

#[test]
fn resume_continues_the_conversation_with_the_next_message() {
    let fleet = Fleet::new(script![text("first answer"), text("second answer"), text("third answer")]);
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    fleet.run(["resume", &id, "--prompt", "and now?"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let requests = fleet.place.server.model_requests();
    let last = requests.last().unwrap().body["messages"].to_string();
    for part in ["the task", "first answer", "and now?"] {
        assert!(last.contains(part), "{part} is not in {last}");
    }
    assert!(fleet.run(["logs", &id]).ok().stdout.contains("second answer"));
    // What was heard is not said again.
    fleet.run(["resume", &id, "--prompt", "and then?"]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    let requests = fleet.place.server.model_requests();
    let last = requests.last().unwrap().body["messages"].to_string();
    assert_eq!((last.matches("and now?").count(), last.matches("and then?").count()), (1, 1), "{last}");
}

#[test]
fn wait_ends_with_the_agents_outcome() {
    let fleet = Fleet::new(script![
        text("fine").on_first("one that is done").forever(),
        status(400).on_first("one that fails").forever(),
        tool("Read", json!({"file_path": "README.md"})).on_first("one without turns").forever(),
    ]);
    let done = fleet.bg("one that is done", []);
    let failed = fleet.bg("one that fails", []);
    let limit = fleet.bg("one without turns", ["--max-turns", "1"]);
    let code = |ids: &[&str]| {
        let args = ["agents", "wait"].into_iter().chain(ids.iter().copied());
        fleet.run(args).code
    };
    assert_eq!([code(&[&done]), code(&[&failed]), code(&[&limit])], [0, 1, 4]);
    assert_eq!([code(&[&done, &limit]), code(&[&limit, &failed])], [4, 1]);
    let json: Vec<Value> = fleet.run(["agents", "wait", &limit, "--json"]).expect_code(4).json();
    assert_eq!((&json[0]["id"], &json[0]["state"]), (&json!(limit), &json!("failed")));
    fleet.place.server.hold();
    let held = fleet.bg("one that is done, later", []);
    let timed = fleet.run(["agents", "wait", &held, "--timeout", "0.2"]).expect_code(124);
    assert!(timed.stderr.contains("the time is up"), "{}", timed.stderr);
    assert_eq!(fleet.run(["agents", "wait", "--any", &held, &done]).code, 0);
    fleet.place.server.release();
    assert_eq!(code(&[&held]), 0);
}

#[test]
fn more_agents_than_places_wait_in_order_and_none_is_refused() {
    let fleet = Fleet::new(script![text("done").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    fleet.place.server.hold();
    let first = fleet.bg("the first", []);
    fleet.place.server.wait_for_requests(1);
    let second = fleet.bg("the second", []);
    let third = fleet.bg("the third", []);
    let waits = |id: &str| {
        let row = fleet.row(id);
        (row["state"].as_str().unwrap().to_owned(), row["doing"].as_str().unwrap().to_owned())
    };
    assert_eq!(waits(&second), ("spawning".into(), "queued, next to start".into()));
    assert_eq!(waits(&third), ("spawning".into(), "queued behind 1".into()));
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first, &second, &third]).ok();
}

#[test]
fn after_waits_for_others_to_be_done() {
    let fleet = Fleet::new(script![text("done").forever()]);
    fleet.place.server.hold();
    let first = fleet.bg("the first", ["--label", "first"]);
    let second = fleet.bg("the second", ["--after", "first"]);
    assert_eq!(fleet.row(&second)["doing"], format!("queued, starts after {first}"));
    fleet.place.server.wait_for_requests(1);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &second]).ok();
    let started = |id: &str| fleet.row(id)["state"].clone();
    assert_eq!((started(&first), started(&second)), (json!("done"), json!("done")));
    let unknown = fleet.place.caliban().args(["--bg", "x", "--after", "nobody"]).output().expect_code(1);
    assert!(unknown.stderr.contains("no agent has the id"), "{}", unknown.stderr);
}

#[test]
fn an_id_can_be_a_prefix_and_an_ambiguous_one_lists_the_candidates() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let mut ids: Vec<String> = Vec::new();
    // Seventeen ids have two with the same first character.
    for number in 0..17 {
        ids.push(fleet.bg(&format!("task {number}"), ["--isolation", "none"]));
    }
    let count = |prefix: &str| ids.iter().filter(|id| id.starts_with(prefix)).count();
    let shared = ids.iter().map(|id| &id[..1]).find(|prefix| count(prefix) > 1).unwrap();
    let refused = fleet.run(["logs", shared]).expect_code(1);
    for id in ids.iter().filter(|id| id.starts_with(shared)) {
        assert!(refused.stderr.contains(id.as_str()), "{id} is not in {}", refused.stderr);
    }
    let unique = (1..8).map(|length| &ids[0][..length]).find(|prefix| count(prefix) == 1).unwrap();
    assert!(fleet.run(["logs", unique]).ok().stdout.starts_with(&format!("agent {}", ids[0])));
}

#[test]
fn send_reaches_an_interactive_agent_that_has_answered() {
    let fleet = Fleet::new(script![text("first answer"), text("second answer")]);
    let id = fleet.bg("the task", ["--interactive"]);
    fleet.wait_for(&id, "idle");
    let row = fleet.row(&id);
    assert_eq!((&row["needs_you"], &row["doing"]), (&json!(false), &json!("waits for your message")));
    assert_eq!(fleet.run(["agents", "wait", &id]).code, 0);
    assert_eq!(
        fleet.run(["agents", "send", &id, "also the refresh path"]).ok().stdout,
        format!("{id} has it\n")
    );
    // What follows waits for the answer to this message.
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.run(["logs", &id]).ok().stdout.contains("second answer"));
    let requests = fleet.place.server.model_requests();
    assert!(requests.last().unwrap().body["messages"].to_string().contains("also the refresh path"));
    fleet.run(["kill", &id]).ok();
    let ended = fleet.run(["agents", "send", &id, "more"]).expect_code(1);
    assert!(ended.stderr.contains("resume"), "{}", ended.stderr);
}

#[test]
fn send_steers_an_agent_at_work() {
    let fleet = Fleet::new(script![tool("Read", json!({"file_path": "README.md"})), text("done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", []);
    fleet.place.server.wait_for_requests(1);
    fleet.run(["agents", "send", &id, "mind the tests"]).ok();
    fleet.place.server.release();
    fleet.run(["agents", "wait", &id]).ok();
    let requests = fleet.place.server.model_requests();
    assert!(requests[1].body["messages"].to_string().contains("mind the tests"), "{:#}", requests[1].body);
}

#[test]
fn the_worker_is_set_up_with_the_callers_flags() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let output = fleet
        .place
        .env
        .start("caliban", ["--provider", "anthropic", "--model", "another-model", "--bg", "the task"])
        .args(["--system-prompt-append", "Be brief.", "--tools", "Read,Glob"])
        .dir(&fleet.place.repo)
        .output()
        .ok();
    fleet.run(["agents", "wait", &id_of(&output)]).ok();
    let request = &fleet.place.server.model_requests()[0].body;
    assert_eq!(request["model"], "another-model");
    assert!(request["system"].to_string().contains("Be brief."), "{:#}", request["system"]);
    let tools: Vec<&str> =
        request["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["Read", "Glob"]);
}

#[test]
fn a12_no_secret_of_the_caller_is_below_the_data_directory() {
    let mut fleet = Fleet::new(script![text("done")]);
    fleet.place.env.set("ANTHROPIC_API_KEY", "sk-canary-0123456789");
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let headers = fleet.place.server.model_requests()[0].headers.clone();
    assert!(headers.contains(&("x-api-key".to_owned(), "sk-canary-0123456789".to_owned())), "{headers:?}");
    let mut dirs = vec![fleet.place.env.data()];
    let mut files = 0;
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.is_file() {
                files += 1;
                let bytes = std::fs::read(&path).unwrap();
                let found = bytes.windows(9).any(|part| part == b"sk-canary");
                assert!(!found, "the key is in {}", path.display());
            }
        }
    }
    assert!(files > 5, "{files} files");
}

#[test]
fn outside_of_git_an_agent_works_in_the_callers_directory() {
    let fleet = Fleet::new(script![write("made.txt", "hello\n"), text("done")]);
    let work = fleet.place.env.work();
    let args = fleet.place.server.args(fleet.place.protocol);
    let bg = |more: &[&str]| {
        let run = fleet.place.env.start("caliban", &args).args(["--bg", "the task"]).args(more);
        run.dir(&work).output()
    };
    let output = bg(&["--permission-mode", "accept-edits"]).ok();
    let place =
        format!("it works in your own directory, {}: there is no git repo with a commit", work.display());
    assert!(output.stderr.starts_with(&place), "{}", output.stderr);
    assert!(output.stderr.contains(&format!("works in {}\n", work.display())), "{}", output.stderr);
    fleet.place.env.run_in(&work, ["agents", "wait", &id_of(&output)]).ok();
    assert_eq!(fleet.place.env.read("made.txt"), "hello\n");
    let refused = bg(&["--isolation", "worktree"]).expect_code(2);
    assert!(refused.stderr.contains("--isolation none"), "{}", refused.stderr);
}

#[test]
fn a_mistake_is_said_before_anything_is_started() {
    let fleet = Fleet::new(script![]);
    let refused = |args: &[&str], words: &str| {
        let output = fleet.place.env.run_in(&fleet.place.repo, args).expect_code(2);
        assert!(output.stderr.contains(words), "{args:?}: {}", output.stderr);
    };
    refused(&["-p", "hi", "--label", "x"], "add --bg");
    refused(&["--bg"], "--bg needs a prompt");
    refused(&["--bg", "x", "--continue"], "--continue");
    refused(&["--bg", "x", "--isolation", "none", "--base", "main"], "--base is about a worktree");
    refused(&["--bg", "x", "--base", "nowhere"], "--base: 'nowhere' names no commit");
    refused(&["--bg", "x", "--agent", "nobody"], "there is no agent type");
    refused(&["agents", "wait", "x", "--timeout", "soon"], "expected seconds");
    let nobody = fleet.place.env.run_in(fleet.place.env.work(), ["agents", "list"]).ok();
    assert_eq!(nobody.stdout, "No agents. Start one: caliban --bg \"<task>\"\n");
}

#[test]
fn the_list_can_be_watched_without_a_terminal() {
    let fleet = Fleet::new(script![text("done")]);
    fleet.place.server.hold();
    let id = fleet.bg("the task", ["--label", "seen"]);
    fleet.place.server.wait_for_requests(1);
    let start = |args: &[&str]| fleet.place.env.start("caliban", args).dir(&fleet.place.repo).spawn();
    let mut lines = start(&["agents", "list", "--watch"]);
    let mut json = start(&["agents", "list", "--watch", "--json"]);
    lines.wait_for_stdout(&format!("{id} (seen)  running"));
    json.wait_for_stdout(&id);
    fleet.place.server.release();
    lines.wait_for_stdout(&format!("{id} (seen)  done  finished\n"));
    json.wait_for_stdout("\"state\":\"done\"");
    lines.signal(testkit::Signal::INT);
    json.signal(testkit::Signal::INT);
    lines.wait().ok();
    let last = json.wait().ok().json_lines().pop().unwrap();
    assert_eq!((&last["id"], &last["state"]), (&json!(id), &json!("done")));
}
