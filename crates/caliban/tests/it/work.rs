//! The agent at work: tools, order, permissions, limits, exit codes.

use serde_json::{Value, json};
use testkit::{
    ModelServer, Protocol, StepExt, script,
    script::{Script, ScriptStep},
    text, tool, tools, wait_until,
};

use crate::place::Place;

const PROTOCOLS: [Protocol; 3] = [Protocol::Anthropic, Protocol::Responses, Protocol::Chat];

/// Five small programs with a bug each, a test for each; 50 turns that read, fix and test them.
fn fifty_turns() -> Script {
    let mut steps: Vec<ScriptStep> = Vec::new();
    for number in 1..=5 {
        let file = format!("src/part{number}.sh");
        let test = format!("sh tests/part{number}.sh");
        steps.push(tool("Read", json!({"file_path": file})));
        steps.push(tool("Grep", json!({"pattern": "echo", "path": "src"})));
        steps.push(tool("Bash", json!({"command": test})));
        steps.push(tool("Edit", json!({"file_path": file, "old_string": "wrong", "new_string": "better"})));
        steps.push(tool("Bash", json!({"command": test})));
        steps.push(tool("Edit", json!({"file_path": file, "old_string": "better", "new_string": "right"})));
        steps.push(tool("Bash", json!({"command": test})));
        steps.push(tool("Glob", json!({"pattern": "**/*.sh"})));
        let line = format!("part {number}\n");
        steps.push(tool("Write", json!({"file_path": format!("notes/{number}.md"), "content": line})));
        steps.push(tool(
            "TodoWrite",
            json!({"todos": [
                {"content": format!("part {number}"), "status": "completed"},
            ]}),
        ));
    }
    steps.pop();
    steps.push(text("All five parts are right."));
    Script { steps }
}

#[test]
fn fifty_turns_end_with_the_right_tree() {
    for protocol in PROTOCOLS {
        let place = Place::with(ModelServer::start(fifty_turns()), protocol);
        for number in 1..=5 {
            let source = format!("echo wrong {number}\n");
            place.env.write(place.repo.join(format!("src/part{number}.sh")), source);
            let test =
                format!("test \"$(sh src/part{number}.sh)\" = 'right {number}' && echo pass {number}\n");
            place.env.write(place.repo.join(format!("tests/part{number}.sh")), test);
        }
        let output = place
            .ask("fix all parts", ["--permission-mode", "accept-edits", "--allow", "Bash(sh tests/*)"])
            .ok();
        assert_eq!(output.stdout, "All five parts are right.\n", "{protocol:?}");
        assert_eq!(place.server.model_requests().len(), 50, "{protocol:?}");
        for number in 1..=5 {
            let part = place.repo.join(format!("src/part{number}.sh"));
            assert_eq!(place.env.read(part), format!("echo right {number}\n"), "{protocol:?}");
            assert_eq!(
                place.env.read(place.repo.join(format!("notes/{number}.md"))),
                format!("part {number}\n")
            );
        }
        let exits: Vec<Value> = place
            .transcript()
            .into_iter()
            .filter(|record| record["event"] == "call_ended" && !record["exit_code"].is_null())
            .map(|record| record["exit_code"].clone())
            .collect();
        assert_eq!(exits, [1, 1, 0].repeat(5), "{protocol:?}");
        place.server.assert_drained();
    }
}

#[test]
fn refused_calls_are_told_with_the_rule_that_would_allow_them() {
    let place = Place::new(script![
        tool("Bash", json!({"command": "cargo test --workspace"})),
        text("I could not run it."),
    ]);
    let output = place.ask("test it", []).expect_code(3);
    assert_eq!(output.stdout, "I could not run it.\n");
    assert!(output.stderr.contains("1 call was refused"), "{}", output.stderr);
    assert!(output.stderr.contains("--allow 'Bash(cargo test --workspace)'"), "{}", output.stderr);
    let second = place.server.model_requests()[1].body.to_string();
    assert!(second.contains("Not carried out"), "{second}");
    place.server.assert_drained();
}

#[test]
fn a_rule_that_denies_beats_one_that_allows_and_every_part_of_a_line_counts() {
    let calls = [
        ("Bash", json!({"command": "touch allowed"})),
        ("Bash", json!({"command": "touch allowed; rm -rf precious"})),
        ("Bash", json!({"command": "echo $(rm precious)"})),
        ("Bash", json!({"command": "r\"m\" precious"})),
    ];
    let place = Place::new(script![tools(calls), text("ok")]);
    let precious = place.env.write(place.repo.join("precious"), "keep me");
    let flags = ["--permission-mode", "unattended", "--allow", "Bash(*)", "--deny", "Bash(rm *)"];
    place.ask("clean up", flags).expect_code(3);
    assert_eq!(place.env.read(precious), "keep me");
    assert!(place.repo.join("allowed").exists());
    let verdicts: Vec<Value> = place
        .transcript()
        .into_iter()
        .filter(|record| record["event"] == "call_refused")
        .map(|record| record["decision"]["verdict"].clone())
        .collect();
    assert_eq!(verdicts, ["denied", "denied", "denied"]);
}

#[test]
fn plan_mode_changes_nothing() {
    let place = Place::new(script![
        tools([
            ("Read", json!({"file_path": "README.md"})),
            ("Write", json!({"file_path": "new.txt", "content": "x"})),
            ("Bash", json!({"command": "touch made"})),
            ("Bash", json!({"command": "git status"})),
        ]),
        text("a plan"),
    ]);
    place.env.write(place.repo.join("README.md"), "hello\n");
    place.ask("plan it", ["--permission-mode", "plan"]).expect_code(3);
    assert!(!place.repo.join("new.txt").exists());
    assert!(!place.repo.join("made").exists());
    let ended = place.transcript().into_iter().filter(|record| record["event"] == "call_ended").count();
    assert_eq!(ended, 2);
}

#[test]
fn links_out_of_the_project_are_followed_before_a_rule_is_asked() {
    let place = Place::new(script![
        tools([
            ("Write", json!({"file_path": "link/file", "content": "x"})),
            ("Read", json!({"file_path": "link/secret"})),
        ]),
        text("ok"),
    ]);
    let outside = place.env.root().join("outside");
    place.env.write(outside.join("secret"), "canary");
    std::os::unix::fs::symlink(&outside, place.repo.join("link")).unwrap();
    place.ask("go", ["--permission-mode", "accept-edits"]).expect_code(3);
    assert!(!outside.join("file").exists());
    assert!(!place.server.model_requests()[1].body.to_string().contains("canary"));
}

#[test]
fn the_turn_limit_ends_the_run_with_code_4() {
    let place = Place::new(script![tool("Glob", json!({"pattern": "*"})).forever()]);
    let output = place.ask("loop", ["--max-turns", "3"]).expect_code(4);
    assert!(output.stderr.contains("the limit of 3 turns is reached"), "{}", output.stderr);
    assert_eq!(place.server.model_requests().len(), 3);
}

#[test]
fn a_token_budget_is_asked_before_each_request() {
    let place = Place::new(script![tool("Glob", json!({"pattern": "*"})).costs(8_000, 100).forever()]);
    let output = place.ask("loop", ["--budget-tokens", "20000"]).expect_code(4);
    assert!(output.stderr.contains("budget"), "{}", output.stderr);
    // 8,100 are spent by one request; a third would begin at 16,200 and need more than is left.
    assert_eq!(place.server.model_requests().len(), 2);
}

#[test]
fn r20_a_budget_counts_what_an_earlier_process_spent() {
    let place = Place::new(script![
        text("one").costs(8_000, 100),
        text("two").costs(8_000, 100),
        text("three").costs(8_000, 100)
    ]);
    place.ask("first", ["--budget-tokens", "20000"]).ok();
    place.ask("second", ["--continue", "--budget-tokens", "20000"]).ok();
    place.ask("third", ["--continue", "--budget-tokens", "20000"]).expect_code(4);
    assert_eq!(place.server.model_requests().len(), 2);
}

#[test]
fn a_budget_in_dollars_needs_a_known_price() {
    let place = Place::new(script![text("hi")]);
    let output = place.ask("hello", ["--budget-usd", "1"]).expect_code(4);
    assert!(output.stderr.contains("price of this model is not known"), "{}", output.stderr);
    assert!(place.server.model_requests().is_empty());
}

#[test]
fn calls_that_make_no_sense_are_told_to_the_model() {
    let place = Place::new(script![
        tool("NoSuchTool", json!({})),
        text("").and_broken_tool("Read", "{\"file_path\": "),
        tool("Read", json!({"nonsense": 1})),
        text("ok"),
    ]);
    place.ask("go", []).ok();
    let messages = place.transcript();
    let refused: Vec<&str> = messages
        .iter()
        .filter(|record| record["event"] == "call_refused")
        .map(|record| record["message"].as_str().unwrap())
        .collect();
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(refused[0].contains("there is no tool \"NoSuchTool\""), "{}", refused[0]);
    assert!(refused[1].contains("not a JSON object"), "{}", refused[1]);
    assert!(refused[2].contains("file_path"), "{}", refused[2]);
}

#[test]
fn an_interrupt_ends_the_request_the_command_and_the_program() {
    // While the model is silent.
    let place = Place::new(script![text("never").in_chunks(2).stall(1)]);
    let mut running = place.caliban().args(["-p", "hello"]).spawn();
    running.close_stdin();
    place.server.wait_for_requests(1);
    running.signal(testkit::Signal::INT);
    assert_eq!(running.wait().code, 130);
    place.server.wait_for_hangups(1);

    // While a command runs that wants to stay.
    let command = "trap '' TERM INT; touch started; (setsid sleep 600 &); sleep 600; sleep 600";
    let place = Place::new(script![tool("Bash", json!({"command": command}))]);
    let mut running = place.caliban().args(["-p", "hello", "--permission-mode", "unattended"]).spawn();
    running.close_stdin();
    wait_until("the command has started", || place.repo.join("started").exists());
    running.signal(testkit::Signal::INT);
    assert_eq!(running.wait().code, 130);
    wait_until("its processes are gone", || place.env.processes().is_empty());
}

#[test]
fn stdin_is_appended_to_the_prompt() {
    let place = Place::new(script![text("ok").on("a diff"), text("ok").on("only this")]);
    place.caliban().args(["-p", "review"]).stdin("a diff\n").output().ok();
    place.caliban().args(["-p"]).stdin("only this\n").output().ok();
    place.server.assert_drained();
}

#[test]
fn a_stdin_that_stays_open_and_silent_does_not_hang_the_run() {
    let place = Place::new(script![text("ok")]);
    let mut running = place.caliban().args(["-p", "hello"]).spawn();
    running.wait_for_stdout("ok");
    assert!(running.stderr().contains("nothing came on stdin"), "{}", running.stderr());
}

#[test]
fn context_files_and_facts_come_once_and_in_front() {
    let place = Place::new(script![tool("Glob", json!({"pattern": "*"})), text("ok")]);
    place.env.write(place.repo.join("AGENTS.md"), "Always write tests.\n");
    place.ask("go", ["--system-prompt-append", "Be brief."]).ok();
    let requests = place.server.model_requests();
    let first = &requests[0].body["messages"][0]["content"];
    let texts: Vec<&str> =
        first.as_array().unwrap().iter().map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].contains("Always write tests."), "{texts:?}");
    assert!(texts[1].contains("git: branch main at "), "{texts:?}");
    assert_eq!(texts[2], "go");
    assert!(requests[0].body["system"].to_string().contains("Be brief."));
    assert_eq!(requests[1].body.to_string().matches("Always write tests.").count(), 1);
}

#[test]
fn a_search_shows_no_line_of_a_file_that_may_not_be_read() {
    let place = Place::new(script![
        tool("Grep", json!({"pattern": "canary|friend", "output_mode": "content"})),
        text("ok"),
    ]);
    place.env.write(place.repo.join("secret/keys.txt"), "canary\n");
    place.env.write(place.repo.join("open.txt"), "friend\n");
    place.ask("search", ["--deny", "Read(secret/**)"]).ok();
    let second = place.server.model_requests()[1].body.to_string();
    assert!(second.contains("friend"), "{second}");
    assert!(!second.contains("canary\\n") && !second.contains("keys.txt"), "{second}");
}
