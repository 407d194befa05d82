//! Sub-agents (s01–s10, s12): `AgentTool` through the program.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{
    Recorded, Signal, StepExt, script,
    script::{Script, ScriptStep},
    text, tool, tools, wait_until,
};

use crate::place::Place;

/// The conversation that began with this prompt.
fn of<'a>(requests: &'a [Recorded], prompt: &str) -> Vec<&'a Recorded> {
    let begins = |request: &&Recorded| {
        let first = request.body["messages"][0]["content"].as_array().unwrap();
        first.iter().any(|block| block["text"].as_str().is_some_and(|text| text == prompt))
    };
    requests.iter().filter(begins).collect()
}

fn tool_names(request: &Recorded) -> Vec<String> {
    let tools = request.body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// What the parent got back from its calls.
fn results(place: &Place) -> Vec<(String, bool)> {
    let ended = |record: &Value| {
        let text = record["content"][0]["text"].as_str().unwrap().to_owned();
        (text, record["is_error"] == true)
    };
    place.transcript().iter().filter(|record| record["event"] == "call_ended").map(ended).collect()
}

/// The directories of the sub-agents' sessions.
fn children(place: &Place) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(place.session().join("sub")) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

fn agent(prompt: &str) -> ScriptStep {
    tool("AgentTool", json!({"prompt": prompt}))
}

fn call(input: Value) -> ScriptStep {
    tool("AgentTool", input)
}

/// The parent makes one call and says `parent done`.
fn parent(step: ScriptStep) -> Vec<ScriptStep> {
    vec![step.on_first("the parent's task"), text("parent done").on_first("the parent's task")]
}

fn with_child(step: ScriptStep, child: Vec<ScriptStep>) -> Script {
    Script { steps: parent(step).into_iter().chain(child).collect() }
}

const TASK: &str = "the parent's task";

/// A parent whose child reads a file.
fn with_reader() -> Place {
    Place::new(with_child(
        agent("the child's task"),
        vec![
            tool("Read", json!({"file_path": "README.md"})).on_first("the child's task"),
            text("It says: A repo.").on_first("the child's task"),
        ],
    ))
}

#[test]
fn s01_a_fresh_agent_works_while_the_parent_waits_for_its_one_answer() {
    let place = with_reader();
    let output = place.caliban().args(["-p", TASK, "--debug"]).output().ok();
    assert_eq!(output.stdout, "parent done\n");
    assert_eq!(results(&place), [("It says: A repo.".to_owned(), false)]);
    let requests = place.server.model_requests();
    let child = of(&requests, "the child's task");
    assert_eq!((requests.len(), child.len()), (4, 2));
    assert!(child[0].body["system"].to_string().contains("You are a sub-agent"));
    // Nothing of the parent's conversation is in the child's, and the other way round only the answer.
    assert!(!child.iter().any(|request| request.body.to_string().contains(TASK)));
    place.server.assert_drained();
}

#[test]
fn s04_the_turns_of_a_sub_agent_are_in_the_debug_log_and_not_in_the_parents_session() {
    let place = with_reader();
    let output = place.caliban().args(["-p", TASK, "--debug"]).output().ok();
    let requests = place.server.model_requests();
    let parents = of(&requests, TASK);
    assert!(!parents[1].body.to_string().contains("# A repo"), "the child's reading is the child's");
    let own = place.env.read(place.session().join("transcript.jsonl"));
    assert!(!own.contains("# A repo") && !own.contains("README.md"), "{own}");
    // It has a transcript of its own below the parent's, and its turns are in the debug log.
    let children = children(&place);
    let id = format!("{}-helper-1", place.session_id());
    assert_eq!(children, [place.session().join("sub").join(&id)]);
    let first: Value =
        serde_json::from_str(place.env.read(children[0].join("transcript.jsonl")).lines().next().unwrap())
            .unwrap();
    assert_eq!((&first["session"], &first["parent"]), (&json!(id), &json!(place.session_id())));
    assert!(children[0].join("session.json").exists());
    assert!(
        output.stderr.contains("It says: A repo.") && output.stderr.contains("Read README.md"),
        "{}",
        output.stderr
    );
}

#[test]
fn s02_at_most_twenty_turns() {
    let place = Place::new(with_child(
        agent("loop for ever"),
        vec![
            tool("Glob", json!({"pattern": "*"})).and_text("still at it").on_first("loop for ever").forever(),
        ],
    ));
    assert_eq!(place.ask(TASK, ["--max-turns", "100"]).ok().stdout, "parent done\n");
    assert_eq!(of(&place.server.model_requests(), "loop for ever").len(), 20);
    let said = "[the sub-agent reached its limit of 20 turns; its last words follow]\n\nstill at it";
    assert_eq!(results(&place), [(said.to_owned(), true)]);
}

#[test]
fn s03_the_answer_is_cut_to_5000_characters_and_the_whole_is_kept_and_readable() {
    let long: String = "äöü ".repeat(2_000);
    let place = Place::new(with_child(agent("say a lot"), vec![text(long.clone()).on_first("say a lot")]));
    place.ask(TASK, []).ok();
    let (answer, failed) = results(&place).remove(0);
    let (shown, rest) = answer.split_once("\n[cut; the whole answer is in ").unwrap();
    assert!(!failed);
    assert_eq!(shown, long.chars().take(5_000).collect::<String>());
    let file = rest.strip_suffix(']').unwrap();
    assert_eq!(place.env.read(file), long);
    // The parent may read it without being asked.
    place.server.set_script(script![tool("Read", json!({"file_path": file})), text("read")]);
    place.ask("read it", ["--continue"]).ok();
    assert!(results(&place).last().unwrap().0.contains("äöü"));
    // An answer that just fits is whole.
    let fits = "ä".repeat(5_000);
    let place = Place::new(with_child(agent("say enough"), vec![text(fits.clone()).on_first("say enough")]));
    place.ask(TASK, []).ok();
    assert_eq!(results(&place), [(fits, false)]);
}

#[test]
fn s05_cancelling_the_parent_cancels_the_child_and_its_commands() {
    let place = Place::new(with_child(
        agent("wait"),
        vec![tool("Bash", json!({"command": "touch started; sleep 600"})).on_first("wait")],
    ));
    let mut running = place.caliban().args(["-p", TASK, "--permission-mode", "unattended"]).spawn();
    wait_until("the child's command has started", || place.repo.join("started").exists());
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, 130);
    wait_until("its processes are gone", || place.env.processes().is_empty());
    let transcript = place.env.read(children(&place)[0].join("transcript.jsonl"));
    let last: Value = serde_json::from_str(transcript.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["outcome"]), (&json!("turn_ended"), &json!({"kind": "cancelled"})));

    // While the child's model is silent.
    let place = Place::new(with_child(agent("wait"), vec![text("never").stall(0).on_first("wait")]));
    let mut running = place.caliban().args(["-p", TASK]).spawn();
    place.server.wait_for_requests(2);
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, 130);
    place.server.wait_for_hangups(1);
}

#[test]
fn s06_the_model_can_be_another_one() {
    let place = Place::new(with_child(
        call(json!({"prompt": "think", "model": "small-model"})),
        vec![text("thought").on_first("think")],
    ));
    place.ask(TASK, []).ok();
    let requests = place.server.model_requests();
    let models: Vec<&str> = requests.iter().map(|request| request.body["model"].as_str().unwrap()).collect();
    assert_eq!(models, ["test-model", "small-model", "test-model"]);
}

fn with_hook(place: &Place) {
    let keep = "cat >> \"$CALIBAN_PROJECT_DIR/told\"; echo >> \"$CALIBAN_PROJECT_DIR/told\"";
    let settings: String = ["PreToolUse", "SubagentStop", "Stop"]
        .map(|event| format!("[[hooks.{event}]]\ncommand = '''{keep}'''\n"))
        .concat();
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
}

fn told(place: &Place) -> Vec<(String, String)> {
    let text = place.env.read(place.repo.join("told"));
    let told =
        text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str::<Value>(line).unwrap());
    told.map(|told| {
        let field = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
        (field("hook_event_name"), field("tool_name"))
    })
    .collect()
}

#[test]
fn s07_hooks_are_inherited_unless_they_are_not_wanted() {
    let pair = |event: &str, tool: &str| (event.to_owned(), tool.to_owned());
    let child =
        || vec![tool("Glob", json!({"pattern": "*"})).on_first("look"), text("seen").on_first("look")];
    let place = Place::new(with_child(agent("look"), child()));
    with_hook(&place);
    place.ask(TASK, []).ok();
    assert_eq!(
        told(&place),
        [
            pair("PreToolUse", "AgentTool"),
            pair("PreToolUse", "Glob"),
            pair("SubagentStop", ""),
            pair("Stop", "")
        ]
    );
    // What can refuse a call stays, unless its owner says that it is optional.
    let without = || with_child(call(json!({"prompt": "look", "inherit_hooks": false})), child());
    let place = Place::new(without());
    with_hook(&place);
    place.ask(TASK, []).ok();
    assert_eq!(told(&place), [pair("PreToolUse", "AgentTool"), pair("PreToolUse", "Glob"), pair("Stop", "")]);
    let place = Place::new(without());
    with_hook(&place);
    let path = place.env.config().join("caliban/settings.toml");
    let settings = place.env.read(&path).replacen("'''\n", "'''\noptional = true\n", 1);
    place.env.write(path, settings);
    place.ask(TASK, []).ok();
    assert_eq!(told(&place), [pair("PreToolUse", "AgentTool"), pair("Stop", "")]);
}

#[test]
fn a_model_cannot_switch_a_blocking_hook_off() {
    for background in [false, true] {
        let input = json!({"prompt": "look", "inherit_hooks": false, "background": background});
        let place = Place::new(with_child(
            call(input),
            vec![
                tool("Bash", json!({"command": "touch made"})).on_first("look"),
                text("seen").on_first("look"),
            ],
        ));
        let settings = "[[hooks.PreToolUse]]\nmatcher = \"Bash\"\ncommand = 'echo no >&2; exit 2'\n";
        place.env.write(place.env.config().join("caliban/settings.toml"), settings);
        place.ask(TASK, ["--permission-mode", "unattended"]).ok();
        if background {
            let rows: Vec<Value> = place.verb(["agents", "list", "--json"]).ok().json();
            place.verb(["agents", "wait", rows[0]["id"].as_str().unwrap()]);
        }
        let requests = place.server.model_requests();
        let last = of(&requests, "look").last().unwrap().body["messages"].to_string();
        assert!(last.contains("a hook blocked this call: no"), "{last}");
        assert!(!place.repo.join("made").exists());
    }
}

#[test]
fn what_helpers_spend_is_in_every_total() {
    let place = Place::new(with_child(
        agent("look"),
        vec![tool("Glob", json!({"pattern": "*"})).on_first("look"), text("seen").on_first("look")],
    ));
    let result: Value = place.ask(TASK, ["--output-format", "json"]).ok().json();
    let usage = &result["usage"];
    let all = |value: &Value, names: [&str; 4]| names.map(|name| value[name].as_u64().unwrap());
    let told = all(
        usage,
        ["input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"],
    );
    assert!(told[0] > 0 && told[1] > 0, "{usage}");
    let names = ["input", "output", "cache_read", "cache_write"];
    let shown: Value = place.verb(["sessions", "show", &place.session_id(), "--json"]).ok().json();
    assert_eq!(all(&shown["usage"], names), told);
    let file: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    assert_eq!(all(&file["usage"], names), told);
    let rows: Vec<Value> = place.verb(["sessions", "list", "--json"]).ok().json();
    assert_eq!(rows[0]["tokens"], told.iter().sum::<u64>());
}

#[test]
fn s08_s09_a_sub_agent_has_the_parents_tools_but_for_its_own_kind() {
    let child = || vec![text("ok").on_first("look")];
    for input in [json!({"prompt": "look"}), json!({"prompt": "look", "tool_allowlist": null})] {
        let place = Place::new(with_child(call(input), child()));
        place.ask(TASK, []).ok();
        let requests = place.server.model_requests();
        let mut parents = tool_names(&requests[0]);
        assert!(parents.contains(&"AgentTool".to_owned()), "{parents:?}");
        parents.retain(|name| name != "AgentTool");
        assert_eq!(tool_names(&requests[1]), parents);
    }
    let input = json!({"prompt": "look", "tool_allowlist": ["Grep", "NoSuchTool", "AgentTool", "Read"]});
    let place = Place::new(with_child(call(input), child()));
    place.ask(TASK, []).ok();
    let mut names = tool_names(&place.server.model_requests()[1]);
    names.sort();
    assert_eq!(names, ["Grep", "Read"]);
    let said = "ok\n\n[unknown tools dropped from tool_allowlist: NoSuchTool, AgentTool]";
    assert_eq!(results(&place), [(said.to_owned(), false)]);
    // None at all is what was asked for, too.
    let place = Place::new(with_child(call(json!({"prompt": "look", "tool_allowlist": []})), child()));
    place.ask(TASK, []).ok();
    let request = place.server.model_requests()[1].body.clone();
    assert!(request["tools"].as_array().is_none_or(Vec::is_empty), "{}", request["tools"]);
}

#[test]
fn s09_a_child_that_asks_for_a_helper_is_told_that_there_is_none() {
    let place = Place::new(with_child(
        agent("delegate"),
        vec![agent("deeper").on_first("delegate"), text("alone then").on_first("delegate")],
    ));
    place.ask(TASK, []).ok();
    assert_eq!(results(&place), [("alone then".to_owned(), false)]);
    let requests = place.server.model_requests();
    let last = of(&requests, "delegate")[1].body["messages"].to_string();
    assert!(last.contains("there is no tool \\\"AgentTool\\\""), "{last}");
    assert!(of(&requests, "deeper").is_empty());
}

#[test]
fn s10_without_isolation_it_works_in_the_parents_directory() {
    let place = Place::new(with_child(
        call(json!({"prompt": "write", "isolation": "none"})),
        vec![
            tool("Write", json!({"file_path": "made.txt", "content": "by the child"})).on_first("write"),
            text("written").on_first("write"),
        ],
    ));
    place.ask(TASK, ["--permission-mode", "accept-edits"]).ok();
    assert_eq!(place.env.read(place.repo.join("made.txt")), "by the child");
    // Nonsense is an error that the model can read.
    let place = Place::new(Script { steps: parent(call(json!({"prompt": "x", "isolation": "moon"}))) });
    place.ask(TASK, []).ok();
    let refused = place.transcript().into_iter().find(|record| record["event"] == "call_refused").unwrap();
    assert!(refused["message"].as_str().unwrap().contains("unknown variant `moon`"), "{refused}");
}

#[test]
fn s11_f02_background_hands_over_to_the_fleet_and_names_the_way_back() {
    let mut steps =
        parent(call(json!({"prompt": "LATER: look around", "background": true, "label": "later"})));
    steps.push(text("I looked.").on_first("LATER"));
    let place = Place::new(Script { steps });
    place.ask(TASK, []).ok();
    let (said, failed) = results(&place).remove(0);
    assert!(!failed, "{said}");
    let id = said.strip_prefix("Started background agent ").and_then(|rest| rest.get(..8)).unwrap();
    assert!(said.contains(&format!("caliban attach {id}")), "{said}");
    assert!(children(&place).is_empty(), "it is an agent of the fleet, not of this session");
    // It outlives the session that asked for it.
    place.verb(["agents", "wait", id]).ok();
    assert!(place.verb(["logs", id]).ok().stdout.contains("I looked."));
    place.verb(["daemon", "stop"]).ok();
}

#[test]
fn s12_switched_off_the_model_never_sees_it() {
    for (flag, variable) in [(Some("--no-sub-agent"), None), (None, Some("1"))] {
        let mut place = Place::new(script![text("ok")]);
        if let Some(value) = variable {
            place.env.set("CALIBAN_NO_SUB_AGENT", value);
        }
        place.ask("hello", flag).ok();
        let request = &place.server.model_requests()[0];
        assert!(!String::from_utf8_lossy(&request.raw).contains("AgentTool"), "{flag:?} {variable:?}");
    }
    let place = Place::new(script![text("ok")]);
    place.ask("hello", []).ok();
    assert!(tool_names(&place.server.model_requests()[0]).contains(&"AgentTool".to_owned()));
}

#[test]
fn several_calls_of_one_turn_run_at_the_same_time() {
    let step = || {
        tools([
            ("AgentTool", json!({"prompt": "first part", "label": "one"})),
            ("AgentTool", json!({"prompt": "second part", "label": "two"})),
        ])
    };
    // Neither is answered, and both have asked.
    let silent = |prompt: &str| text("never").stall(0).on_first(prompt);
    let place = Place::new(with_child(step(), vec![silent("first part"), silent("second part")]));
    place.env.write(place.env.config().join("caliban/settings.toml"), "[retry]\nstall_seconds = 600\n");
    let running = place.caliban().args(["-p", TASK]).spawn();
    let requests = place.server.wait_for_requests(3);
    assert_eq!((of(&requests, "first part").len(), of(&requests, "second part").len()), (1, 1));
    running.kill();

    let place = Place::new(with_child(
        step(),
        vec![text("one done").on_first("first part"), text("two done").on_first("second part")],
    ));
    assert_eq!(place.ask(TASK, []).ok().stdout, "parent done\n");
    let mut said = results(&place);
    said.sort();
    assert_eq!(said, [("one done".to_owned(), false), ("two done".to_owned(), false)]);
    // The model gets them in its own order.
    let sent = place.server.model_requests().last().unwrap().body["messages"][2].to_string();
    assert!(sent.find("one done") < sent.find("two done"), "{sent}");
    assert_eq!(children(&place).len(), 2);
}

#[test]
fn the_budget_of_the_parent_counts_the_child() {
    let place = Place::new(with_child(
        agent("spend"),
        vec![tool("Glob", json!({"pattern": "*"})).costs(10_000, 100).on_first("spend").forever()],
    ));
    place.ask(TASK, ["--budget-tokens", "50000"]).ok();
    let child = of(&place.server.model_requests(), "spend").len();
    assert_eq!(child, 4, "requests of 10,100 tokens each");
    let (said, failed) = results(&place).remove(0);
    assert!(failed && said.starts_with("[the sub-agent stopped: "), "{said}");

    // What the child has left is all that the parent has left.
    let place =
        Place::new(with_child(agent("spend"), vec![text("spent").costs(48_000, 100).on_first("spend")]));
    let output = place.ask(TASK, ["--budget-tokens", "50000", "--output-format", "json"]).expect_code(4);
    let result: Value = output.json();
    assert_eq!(result["subtype"], "error_max_budget");
    assert!(result["usage"]["input_tokens"].as_u64().unwrap() >= 48_000, "the tree's spending: {result}");
}

#[test]
fn r20_what_children_spent_counts_after_a_restart() {
    let place = Place::new(Script {
        steps: vec![
            agent("spend").costs(100, 1).on_first(TASK),
            text("done").costs(100, 1).on_first(TASK),
            text("spent").costs(30_000, 100).on_first("spend"),
            text("never").on_first(TASK),
        ],
    });
    place.ask(TASK, ["--budget-tokens", "40000"]).ok();
    // 30,302 are spent, 30,100 of them by the child; what is left does not hold 10,000.
    place.ask(&"word ".repeat(8_000), ["--continue", "--budget-tokens", "40000"]).expect_code(4);
    assert_eq!(place.server.model_requests().len(), 3);
}

#[test]
fn a_child_is_never_allowed_more_than_its_parent() {
    let place = Place::new(with_child(
        agent("try"),
        vec![tool("Bash", json!({"command": "touch made"})).on_first("try"), text("refused").on_first("try")],
    ));
    place.ask(TASK, ["--permission-mode", "plan"]).ok();
    assert!(!place.repo.join("made").exists());
    let (said, _) = results(&place).remove(0);
    assert_eq!(said, "refused\n\n[1 call(s) of the sub-agent were refused: Bash touch made]");
}

#[test]
fn a_child_that_fails_says_so_and_the_parent_goes_on() {
    let place = Place::new(with_child(agent("fail"), vec![testkit::status(400).on_first("fail")]));
    assert_eq!(place.ask(TASK, []).ok().stdout, "parent done\n");
    let (said, failed) = results(&place).remove(0);
    assert!(failed && said.starts_with("[the sub-agent failed: "), "{said}");
}

#[test]
fn agent_types_are_listed_and_can_be_named() {
    let definition = "---\nname: reviewer\ndescription: Reads with care\ntools: Read, Grep\nmodel: careful-model\n---\nBe strict.\n";
    let script = || {
        with_child(
            call(json!({"prompt": "review", "agent": "reviewer"})),
            vec![text("fine").on_first("review")],
        )
    };
    let place = Place::new(script());
    let mine = place.env.write(place.env.config().join("caliban/agents/reviewer.md"), definition);
    let listed = place.verb(["agents", "types"]).ok().stdout;
    assert_eq!(
        listed,
        format!("reviewer  (careful-model; Read, Grep)\n    Reads with care\n    {}\n", mine.display())
    );
    let listed: Value = place.verb(["agents", "types", "--json"]).ok().json();
    assert_eq!(
        listed,
        json!([{"name": "reviewer", "description": "Reads with care", "tools": ["Read", "Grep"],
                "model": "careful-model", "path": mine}])
    );
    place.ask(TASK, []).ok();
    let requests = place.server.model_requests();
    let child = of(&requests, "review")[0];
    assert_eq!(child.body["model"], "careful-model");
    let mut names = tool_names(child);
    names.sort();
    assert_eq!(names, ["Grep", "Read"]);
    assert!(
        child.body["system"].to_string().contains("# Your role\\nBe strict."),
        "{}",
        child.body["system"]
    );
    assert!(requests[0].body["tools"].to_string().contains("reviewer: Reads with care"));

    // A repo's own count only once it is trusted.
    let place = Place::new(script());
    place.env.write(place.repo.join(".claude/agents/reviewer.md"), definition);
    place.env.write(place.repo.join(".caliban/settings.toml"), "");
    place.ask(TASK, []).ok();
    let (said, failed) = results(&place).remove(0);
    assert!(failed && said.contains("there is no agent type \"reviewer\"; the types are: none"), "{said}");
    place.verb(["trust"]).ok();
    place.server.set_script(script());
    assert!(place.verb(["agents", "types"]).ok().stdout.starts_with("reviewer  "));
}

#[test]
fn r17_a_child_that_a_kill_interrupted_is_not_started_again() {
    let place = Place::new(Script {
        steps: vec![
            agent("count").on_first(TASK),
            text("looked").on_first(TASK),
            tool("Bash", json!({"command": "echo ran >> counter; touch started; sleep 600"}))
                .on_first("count"),
        ],
    });
    let mut running = place.caliban().args(["-p", TASK, "--permission-mode", "unattended"]).spawn();
    running.close_stdin();
    wait_until("the child's command has started", || place.repo.join("started").exists());
    running.signal(Signal::KILL);
    running.wait();
    wait_until("its processes are gone", || place.env.processes().is_empty());
    let id = place.session_id();
    let output = place.caliban().args(["--resume", &id, "--permission-mode", "unattended"]).output().ok();
    assert_eq!(output.stdout, "looked\n");
    assert_eq!(place.env.read(place.repo.join("counter")), "ran\n");
    assert!(results(&place)[0].0.starts_with("[interrupted: "), "{:?}", results(&place));
}

#[test]
fn s11_a_background_helper_may_do_what_its_parent_was_always_allowed_and_asks_for_the_rest() {
    use crate::fleet::{Fleet, bash};
    let fleet = Fleet::new(script![
        bash("touch one").on_first(TASK),
        call(json!({"prompt": "the helper's task", "background": true, "label": "helper"})).on_first(TASK),
        text("parent done").on_first(TASK),
        bash("touch one").on_first("the helper's task"),
        bash("mkdir three").on_first("the helper's task"),
        text("helper done").on_first("the helper's task"),
    ]);
    let parent = fleet.bg(TASK, []);
    fleet.wait_for_ask(&parent);
    fleet.run(["approve", &parent, "--always"]).ok();
    fleet.run(["agents", "wait", &parent]).ok();
    fleet.wait_for_ask("helper");
    // The first of its two commands was not asked for.
    let asks = fleet.row("helper")["asks"].clone();
    assert!(asks.to_string().contains("mkdir three"), "{asks}");
    fleet.run(["approve", "helper"]).ok();
    fleet.run(["agents", "wait", "helper"]).ok();
}
