//! Command hooks of the settings: what each is told, and what its answer does.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::{Signal, StepExt, Tmux, script, script::Script, text, tool, tools, wait_until};

use crate::place::Place;

/// A place with these hooks in the user's settings: event, matcher, command.
fn with_hooks(script: Script, hooks: &[(&str, Option<&str>, &str)]) -> Place {
    let place = Place::new(script);
    let mut settings = "[retry]\nattempts = 2\n".to_owned();
    for (event, matcher, command) in hooks {
        settings.push_str(&format!("[[hooks.{event}]]\ncommand = {}\n", toml_text(command)));
        if let Some(matcher) = matcher {
            settings.push_str(&format!("matcher = {}\n", toml_text(matcher)));
        }
    }
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    place
}

fn toml_text(text: &str) -> String {
    assert!(!text.contains("'''"));
    format!("'''{text}'''")
}

/// A command that keeps what it is told, one line for each time.
const KEEP: &str = "cat >> \"$CALIBAN_PROJECT_DIR/told\"; echo >> \"$CALIBAN_PROJECT_DIR/told\"";

fn told(place: &Place) -> Vec<Value> {
    let text = place.env.read(place.repo.join("told"));
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn events(place: &Place, event: &str) -> Vec<Value> {
    place.transcript().into_iter().filter(|record| record["event"] == event).collect()
}

fn notes(place: &Place) -> Vec<String> {
    events(place, "note").iter().map(|note| note["text"].as_str().unwrap().to_owned()).collect()
}

/// The text of the last tool result that the model was sent.
fn last_result(place: &Place) -> String {
    let requests = place.server.model_requests();
    let messages = requests.last().unwrap().body["messages"].as_array().unwrap().clone();
    let block = messages.last().unwrap()["content"][0].clone();
    assert_eq!(block["type"], "tool_result", "{block}");
    match &block["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("|")
        }
        other => panic!("{other}"),
    }
}

#[test]
fn each_hook_is_told_what_happens_as_json() {
    let names = ["SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SubagentStop"];
    let hooks: Vec<_> = names.iter().map(|name| (*name, None, KEEP)).collect();
    let place = with_hooks(script![tool("Bash", json!({"command": "echo hi"})), text("done")], &hooks);
    place.ask("do it", ["--allow", "Bash(echo *)"]).ok();
    let base = |event: &str, more: Value| {
        let mut all = json!({
            "session_id": place.session_id(),
            "transcript_path": place.session().join("transcript.jsonl"),
            "cwd": place.repo,
            "hook_event_name": event,
        });
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    let input = json!({"command": "echo hi"});
    let content = events(&place, "call_ended")[0]["content"].clone();
    assert_eq!(
        told(&place),
        [
            base("SessionStart", json!({"source": "startup"})),
            base("UserPromptSubmit", json!({"prompt": "do it"})),
            base("PreToolUse", json!({"tool_name": "Bash", "tool_input": input})),
            base(
                "PostToolUse",
                json!({"tool_name": "Bash", "tool_input": input,
                "tool_response": {"content": content, "is_error": false}})
            ),
            base("Stop", json!({"stop_hook_active": false})),
        ]
    );
    std::fs::remove_file(place.repo.join("told")).unwrap();
    place.server.set_script(script![text("again")]);
    place.ask("more", ["--continue"]).ok();
    assert_eq!(told(&place)[0], base("SessionStart", json!({"source": "resume"})));
}

#[test]
fn what_a_hook_prints_at_the_start_and_at_a_prompt_goes_to_the_model() {
    let json = r#"{"hookSpecificOutput": {"additionalContext": "from json"}}"#;
    let place = with_hooks(
        script![text("ok")],
        &[
            ("SessionStart", None, "echo from the start"),
            ("UserPromptSubmit", None, "echo from the prompt"),
            ("UserPromptSubmit", None, &format!("echo '{json}'")),
            ("Stop", None, "echo never shown"),
        ],
    );
    place.ask("the prompt", []).ok();
    let requests = place.server.model_requests();
    let content = requests[0].body["messages"][0]["content"].as_array().unwrap();
    let texts: Vec<&str> = content.iter().skip(1).map(|block| block["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["from the start", "from the prompt", "from json", "the prompt"]);
    // What was added is not taken for what was typed.
    assert!(place.verb(["sessions", "list"]).ok().stdout.contains("the prompt"));
    let shown = place.verb(["sessions", "show", &place.session_id()]).ok().stdout;
    assert!(shown.ends_with("\n> the prompt\n\nok\n"), "{shown}");
}

#[test]
fn a_prompt_can_be_blocked() {
    let place = with_hooks(
        script![text("never")],
        &[
            ("UserPromptSubmit", None, "echo 'not on fridays' >&2; exit 2"),
            ("UserPromptSubmit", None, "touch later"),
        ],
    );
    let output = place.ask("deploy", []).expect_code(1);
    assert_eq!(output.stderr, "error: the prompt was blocked by a hook: not on fridays\n");
    assert!(place.server.model_requests().is_empty());
    assert!(!place.repo.join("later").exists(), "a block ends the asking");
}

#[test]
fn exit_2_before_a_tool_blocks_it_with_stderr_as_the_reason() {
    let place = with_hooks(
        script![
            tools([("Bash", json!({"command": "touch made"})), ("Read", json!({"file_path": "README.md"}))]),
            text("ok")
        ],
        &[("PreToolUse", Some("Bash|Write"), "echo 'ask me first' >&2; exit 2")],
    );
    place.ask("go", ["--permission-mode", "unattended"]).expect_code(3);
    assert!(!place.repo.join("made").exists());
    assert_eq!(last_result(&place), "Not carried out: a hook blocked this call: ask me first.");
    let refused = events(&place, "call_refused");
    assert_eq!(
        (refused.len(), &refused[0]["decision"]),
        (1, &json!({"verdict": "blocked", "why": "a hook blocked this call: ask me first"}))
    );
    // The matcher left the other call alone.
    assert_eq!(events(&place, "call_ended").len(), 1);
}

/// A `PreToolUse` hook that decides.
fn deciding(decision: &str, more: &str) -> String {
    format!(
        "echo '{{\"hookSpecificOutput\": {{\"hookEventName\": \"PreToolUse\", \"permissionDecision\": \"{decision}\"{more}}}}}'"
    )
}

#[test]
fn a_hook_can_allow_deny_and_ask() {
    let call = || script![tool("Bash", json!({"command": "touch made"})), text("ok")];
    let check = |decision: &str, more: &str, flags: &[&str], code: i32, verdict: &str, why: &str| {
        let place = with_hooks(call(), &[("PreToolUse", None, &deciding(decision, more))]);
        place.ask("go", flags.iter().copied()).expect_code(code);
        let records = place.transcript();
        let decision = records.iter().find_map(|record| record.get("decision")).unwrap();
        assert_eq!((decision["verdict"].as_str(), decision["why"].as_str()), (Some(verdict), Some(why)));
        assert_eq!(place.repo.join("made").exists(), code == 0);
    };
    check("allow", "", &[], 0, "allowed", "allowed by a hook");
    let reason = ", \"permissionDecisionReason\": \"no\"";
    check("deny", reason, &["--permission-mode", "unattended"], 3, "blocked", "a hook blocked this call: no");
    check(
        "ask",
        "",
        &["--permission-mode", "unattended"],
        3,
        "unasked",
        "a hook wants it asked, and nobody is there to be asked",
    );
    // A rule that denies is stronger than a hook that allows.
    let denied = "denied by Bash(touch *) (flag --deny)";
    check("allow", "", &["--deny", "Bash(touch *)"], 3, "denied", denied);
}

#[test]
fn a_hook_can_change_the_arguments_and_rules_judge_the_new_ones() {
    let changed = |command: &str| {
        deciding("ask", &format!(", \"updatedInput\": {{\"command\": \"{command}\"}}"))
            .replace("\"permissionDecision\": \"ask\", ", "")
    };
    let call = || script![tool("Bash", json!({"command": "touch wanted"})), text("ok")];
    let place = with_hooks(call(), &[("PreToolUse", None, &changed("touch better"))]);
    place.ask("go", ["--allow", "Bash(touch better)"]).ok();
    assert!(place.repo.join("better").exists() && !place.repo.join("wanted").exists());
    assert_eq!(events(&place, "call_started")[0]["input"], json!({"command": "touch better"}));

    let place = with_hooks(call(), &[("PreToolUse", None, &changed("touch worse"))]);
    place.ask("go", ["--allow", "Bash(touch wanted)"]).expect_code(3);
    assert!(!place.repo.join("worse").exists() && !place.repo.join("wanted").exists());
}

#[test]
fn feedback_after_a_tool_goes_to_the_model_with_the_result() {
    let context = r#"echo '{"hookSpecificOutput": {"additionalContext": "remember the tests"}}'"#;
    let place = with_hooks(
        script![tool("Bash", json!({"command": "echo result"})), text("ok")],
        &[("PostToolUse", Some("Bash"), context), ("PostToolUse", None, "echo 'not formatted' >&2; exit 2")],
    );
    place.ask("go", ["--allow", "Bash(echo *)"]).ok();
    let result = last_result(&place);
    assert!(
        result.starts_with("result") && result.ends_with("|[a hook says: not formatted]|remember the tests"),
        "{result}"
    );
}

#[test]
fn a_stop_hook_sends_the_agent_back_to_work() {
    let once = "test -e \"$CALIBAN_PROJECT_DIR/tested\" || { echo 'run the tests first' >&2; exit 2; }";
    let place = with_hooks(
        script![
            text("done?"),
            tool("Bash", json!({"command": "touch tested"})).on("run the tests first"),
            text("done!")
        ],
        &[("Stop", None, KEEP), ("Stop", None, once)],
    );
    assert_eq!(place.ask("go", ["--permission-mode", "unattended"]).ok().stdout, "done!\n");
    let active: Vec<Value> = told(&place).iter().map(|told| told["stop_hook_active"].clone()).collect();
    assert_eq!(active, [false, true]);
    let authors: Vec<Value> =
        events(&place, "prompt").iter().map(|prompt| prompt["author"].clone()).collect();
    assert_eq!(authors, [json!("user"), json!({"hook": "Stop"})]);
    place.server.assert_drained();

    // One that is never content does not hold the agent for ever.
    let place = with_hooks(script![text("done").forever()], &[("Stop", None, "echo more >&2; exit 2")]);
    let result: Value = place.ask("go", ["--output-format", "json"]).ok().json();
    assert_eq!(place.server.model_requests().len(), 6);
    let note = "the Stop hook blocked the end 5 times and was overruled; it says: more";
    assert_eq!(result["notes"], json!([note]), "{result:#}");
}

#[test]
fn continue_false_ends_the_turn_and_no_call_runs_after_it() {
    let stop = r#"echo '{"continue": false, "stopReason": "enough"}'"#;
    let calls = || {
        script![
            tools([("Bash", json!({"command": "touch one"})), ("Read", json!({"file_path": "README.md"}))]),
            text("never")
        ]
    };
    let place = with_hooks(calls(), &[("PreToolUse", Some("Bash"), stop)]);
    let output = place.ask("go", ["--permission-mode", "unattended"]).expect_code(1);
    assert!(output.stderr.starts_with("error: stopped by a hook: enough\n"), "{}", output.stderr);
    assert!(!place.repo.join("one").exists(), "the call was stopped too");
    assert_eq!(place.server.model_requests().len(), 1);

    // After a tool: what has run is recorded, and is not run again when the session goes on.
    let place = with_hooks(calls(), &[("PostToolUse", Some("Bash"), stop)]);
    place.ask("go", ["--permission-mode", "unattended"]).expect_code(1);
    assert_eq!(events(&place, "call_ended").len(), 2);
    place.env.write(place.env.config().join("caliban/settings.toml"), "");
    let output = place.caliban().args(["--continue"]).output().ok();
    assert_eq!((output.stdout.as_str(), events(&place, "call_started").len()), ("never\n", 2));

    // At the end it beats a hook that wants more work.
    let both = r#"echo '{"continue": false, "decision": "block", "reason": "more"}'"#;
    let place = with_hooks(script![text("done").forever()], &[("Stop", None, both)]);
    place.ask("go", []).ok();
    assert_eq!(place.server.model_requests().len(), 1);
}

#[test]
fn a_hook_that_fails_is_a_note_and_the_work_goes_on() {
    let place = with_hooks(
        script![tool("Bash", json!({"command": "echo hi"})), text("done")],
        &[
            ("PreToolUse", None, "echo 'oh no' >&2; exit 1"),
            ("PostToolUse", None, "/nowhere/at/all 2> /dev/null"),
            ("Stop", None, "kill -9 $$"),
        ],
    );
    let output = place.ask("go", ["--allow", "Bash(echo *)"]).ok();
    assert_eq!(output.stdout, "done\n");
    let expected = [
        "hook PreToolUse `echo 'oh no' >&2; exit 1`: exit 1: oh no",
        "hook PostToolUse `/nowhere/at/all 2> /dev/null`: exit 127: ",
        "hook Stop `kill -9 $$`: was killed",
    ];
    assert_eq!(notes(&place), expected);
    assert_eq!(output.stderr.lines().collect::<Vec<_>>(), expected.map(|note| format!("note: {note}")));
}

#[test]
fn a_hook_that_takes_too_long_is_ended_with_all_that_it_started() {
    let place = Place::new(script![tool("Bash", json!({"command": "echo hi"})), text("done")]);
    let settings = "[[hooks.PreToolUse]]\ntimeout = 1\ncommand = '''trap \"\" TERM; sleep 600 & sleep 600; sleep 600'''\n";
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    assert_eq!(place.ask("go", ["--allow", "Bash(echo *)"]).ok().stdout, "done\n");
    wait_until("its processes are gone", || place.env.processes().is_empty());
    let notes = notes(&place);
    assert!(notes.len() == 1 && notes[0].ends_with(": took longer than 1 s and was ended"), "{notes:?}");
}

#[test]
fn a20_a_hook_that_takes_too_much_is_ended_in_words() {
    let place = Place::new(script![tool("Bash", json!({"command": "echo hi"})), text("done")]);
    let settings = "[fleet]\npids_max = 100\n\
                    [[hooks.PreToolUse]]\ncommand = '''for n in $(seq 400); do sleep 600 & done; wait'''\n";
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    assert_eq!(place.ask("go", ["--allow", "Bash(echo *)"]).ok().stdout, "done\n");
    wait_until("its processes are gone", || place.env.processes().is_empty());
    let notes = notes(&place);
    let words = ": [killed: had more than 100 processes (fleet.pids_max)]";
    assert!(notes.len() == 1 && notes[0].ends_with(words), "{notes:?}");
}

#[test]
fn what_a_hook_leaves_running_does_not_keep_its_answer_back() {
    let place = Place::new(script![tool("Bash", json!({"command": "touch made"})), text("done")]);
    let settings = "[[hooks.PreToolUse]]\ntimeout = 3\ncommand = '''sleep 600 & echo no >&2; exit 2'''\n";
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    place.ask("go", ["--permission-mode", "unattended"]).expect_code(3);
    assert!(last_result(&place).contains("a hook blocked this call: no"), "{}", last_result(&place));
    assert!(!place.repo.join("made").exists());
    assert_eq!(place.env.processes(), []);
}

#[test]
fn r06_a_killed_program_takes_its_hooks_with_it() {
    for event in ["SessionStart", "PreToolUse"] {
        let deep = "(setsid sh -c 'trap \"\" TERM; touch deep; while :; do sleep 600; done' &)";
        let command = format!("{deep}; touch started; sleep 600");
        let place = with_hooks(
            script![tool("Bash", json!({"command": "touch made"})), text("never")],
            &[(event, None, &command)],
        );
        let running = place.caliban().args(["-p", "go", "--permission-mode", "unattended"]).spawn();
        wait_until("the hook runs", || ["started", "deep"].iter().all(|name| place.repo.join(name).exists()));
        running.kill();
        wait_until("its processes are gone", || place.env.processes().is_empty());
        assert!(!place.repo.join("made").exists());
    }
}

#[test]
fn a_later_hook_judges_what_an_earlier_one_made_of_a_call() {
    let other = r#"echo '{"hookSpecificOutput": {"updatedInput": {"command": "touch other"}}}'"#;
    let place = with_hooks(
        script![tool("Bash", json!({"command": "touch one"})), text("done")],
        &[("PreToolUse", None, other), ("PreToolUse", None, KEEP)],
    );
    place.ask("go", ["--permission-mode", "unattended"]).ok();
    assert_eq!(told(&place)[0]["tool_input"], json!({"command": "touch other"}));
    assert!(place.repo.join("other").exists() && !place.repo.join("one").exists());
}

#[test]
fn a06_a_sub_agent_in_a_worktree_cannot_rewrite_the_users_hooks() {
    let task = |step: testkit::script::ScriptStep| step.on_first("the child's task");
    let isolated = json!({"prompt": "the child's task", "isolation": "worktree", "label": "w"});
    let pwn = "#!/bin/sh\ntouch ~/pwned\n";
    let place = with_hooks(
        Script {
            steps: vec![
                tool("AgentTool", isolated).on_first("the parent's task"),
                text("parent done").on_first("the parent's task"),
                task(tool("Read", json!({"file_path": "check.sh"}))),
                task(tool("Write", json!({"file_path": "check.sh", "content": pwn}))),
                task(tool("Glob", json!({"pattern": "*"}))),
                task(text("done")),
            ],
        },
        &[("PreToolUse", None, "./check.sh"), ("PreToolUse", None, "\"$CLAUDE_PROJECT_DIR/check.sh\"")],
    );
    let check = place.env.write(place.repo.join("check.sh"), "#!/bin/sh\ncat >> ~/told; echo >> ~/told\n");
    std::fs::set_permissions(&check, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    place.env.git(&place.repo, &["add", "-A"]);
    place.env.git(&place.repo, &["commit", "--quiet", "-m", "a check"]);
    place.ask("the parent's task", ["--allow", "AgentTool"]).ok();
    assert!(!place.env.home().join("pwned").exists(), "the agent's own words ran as a hook");
    assert_eq!(place.env.git(&place.repo, &["show", "caliban/w:check.sh"]), pwn.trim());
    // The user's own script was asked about every call, and told where the sub-agent works.
    let told = place.env.read(place.env.home().join("told"));
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let worktree = place.repo.join(".caliban/worktrees/w");
    let seen: Vec<(&str, bool)> = told
        .iter()
        .map(|told| (told["tool_name"].as_str().unwrap(), told["cwd"] == json!(worktree)))
        .collect();
    let twice = |name, there| [(name, there), (name, there)];
    let expected =
        [twice("AgentTool", false), twice("Read", true), twice("Write", true), twice("Glob", true)].concat();
    assert_eq!(seen, expected);
}

#[test]
fn an_interrupt_ends_a_hook_too() {
    let place = with_hooks(
        script![tool("Bash", json!({"command": "touch made"})), text("never")],
        &[("PreToolUse", None, "touch started; sleep 600")],
    );
    let mut running = place.caliban().args(["-p", "go", "--permission-mode", "unattended"]).spawn();
    wait_until("the hook has started", || place.repo.join("started").exists());
    running.signal(Signal::INT);
    assert_eq!(running.wait().code, 130);
    wait_until("its processes are gone", || place.env.processes().is_empty());
    assert!(!place.repo.join("made").exists());
}

#[test]
fn a_hook_gets_the_project_and_no_secrets() {
    let mut place = with_hooks(script![text("ok")], &[("SessionStart", None, "pwd > where; env > given")]);
    place.env.set("FOO_TOKEN", "canary-4f1d9c7e2b");
    let below = place.repo.join("below");
    std::fs::create_dir(&below).unwrap();
    place.caliban().args(["-p", "go"]).dir(&below).output().ok();
    let root = place.repo.display().to_string();
    assert_eq!(place.env.read(place.repo.join("where")), format!("{root}\n"));
    let given = place.env.read(place.repo.join("given"));
    assert!(given.contains(&format!("CLAUDE_PROJECT_DIR={root}\n")), "{given}");
    assert!(!given.contains("canary"), "{given}");
}

#[test]
fn hostile_answers_of_a_hook_are_bounded_and_inert() {
    let place = with_hooks(
        script![text("ok")],
        &[
            ("SessionStart", None, "yes 'x' | head -c 10000000"),
            ("UserPromptSubmit", None, "printf '\\033]52;c;x\\007' >&2; exit 1"),
        ],
    );
    let output = place.ask("go", []).ok();
    assert!(!output.stderr.contains('\u{1b}') && output.stderr.contains("␛]52;c;x␇"), "{:?}", output.stderr);
    let size = place.server.model_requests()[0].raw.len();
    assert!(size < 256 * 1024, "{size} bytes");
}

#[test]
fn a_person_is_asked_and_the_notification_hook_is_told() {
    let place = with_hooks(
        script![tool("Bash", json!({"command": "touch made"})), text("made it")],
        &[("Notification", None, KEEP)],
    );
    let terminal = Tmux::start(&place.env, 120, 30);
    let program: PathBuf = place.env.cmd("caliban").get_program().into();
    let args = place.server.args(place.protocol).join(" ");
    terminal.send_text(&format!(
        "cd {} && {} {args} --plain 'make it'",
        place.repo.display(),
        program.display()
    ));
    terminal.send_keys(&["Enter"]);
    terminal.wait_for_text("y = yes");
    let kept = place.repo.join("told");
    wait_until("the hook was told", || std::fs::read_to_string(&kept).is_ok_and(|told| told.ends_with('\n')));
    assert_eq!(
        told(&place),
        [json!({
            "session_id": place.session_id(),
            "transcript_path": place.session().join("transcript.jsonl"),
            "cwd": place.repo,
            "hook_event_name": "Notification",
            "message": "caliban needs your permission to use Bash",
        })]
    );
    assert!(!place.repo.join("made").exists());
    // A yes that comes too soon to have read the question is none.
    let shown = std::time::Instant::now();
    let reading_time = std::time::Duration::from_secs(1);
    wait_until("the question can have been read", || shown.elapsed() > reading_time);
    terminal.send_keys(&["y", "Enter"]);
    terminal.wait_for_text("made it");
    assert!(place.repo.join("made").exists());
    let answers: Vec<Value> =
        events(&place, "ask_answered").iter().map(|event| event["answer"].clone()).collect();
    assert_eq!(answers, ["once"]);
}

#[test]
fn t25_plain_what_was_typed_before_a_question_never_answers_it() {
    let place =
        Place::new(script![tool("Bash", json!({"command": "rm -rf precious"})), text("nothing removed")]);
    std::fs::create_dir(place.repo.join("precious")).unwrap();
    place.server.hold();
    let terminal = Tmux::start(&place.env, 120, 30);
    let program: PathBuf = place.env.cmd("caliban").get_program().into();
    let args = place.server.args(place.protocol).join(" ");
    terminal.send_text(&format!(
        "cd {} && {} {args} --plain 'tidy up'",
        place.repo.display(),
        program.display()
    ));
    terminal.send_keys(&["Enter"]);
    place.server.wait_for_requests(1);
    // A whole line, and one that is begun and not finished.
    terminal.send_keys(&["y", "Enter", "y"]);
    terminal.wait_for("both are typed", |screen| screen.contains("\ny\ny"));
    place.server.release();
    terminal.wait_for_text("no answer to it: y");
    terminal.send_keys(&["Enter"]);
    terminal.wait_for("neither is taken", |screen| screen.matches("no answer to it: y").count() == 2);
    assert!(place.repo.join("precious").exists());
    assert!(events(&place, "ask_answered").is_empty());
    terminal.send_keys(&["n", "Enter"]);
    terminal.wait_for_text("nothing removed");
    assert!(place.repo.join("precious").exists());
}

#[test]
fn an_interrupt_ends_a_question_too() {
    let place = Place::new(script![tool("Bash", json!({"command": "touch made"})), text("never")]);
    let terminal = Tmux::start(&place.env, 120, 30);
    let program: PathBuf = place.env.cmd("caliban").get_program().into();
    let args = place.server.args(place.protocol).join(" ");
    let line = format!(
        "cd {} && {} {args} --plain 'make it'; echo code=$?",
        place.repo.display(),
        program.display()
    );
    terminal.send_text(&line);
    terminal.send_keys(&["Enter"]);
    terminal.wait_for_text("y = yes");
    terminal.send_keys(&["C-c"]);
    terminal.wait_for_text("code=130");
    assert!(!place.repo.join("made").exists());
    assert!(events(&place, "ask_answered").is_empty(), "nobody has said anything");
    let refused = events(&place, "call_refused");
    assert_eq!(refused[0]["decision"]["verdict"], "cancelled");
}
