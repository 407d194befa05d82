//! A run ends when the work has ended: half an answer is never a whole one, background commands are waited for, limits
//! have a last word.

use serde_json::{Value, json};
use testkit::{
    ModelServer, Protocol, StepExt, script,
    script::{Script, ScriptStep, ScriptStop},
    text, think, tool, tools,
};

use crate::{fleet::bash, place::Place};

const UNATTENDED: [&str; 2] = ["--permission-mode", "unattended"];

fn stopped(step: ScriptStep, word: &str) -> ScriptStep {
    step.stopping(ScriptStop::Other(word.to_owned()))
}

fn asked(script: Script, protocol: Protocol) -> testkit::Output {
    Place::with(ModelServer::start(script), protocol).ask("hello", [])
}

/// All text of the last message of a request.
fn last_message(place: &Place, request: usize) -> String {
    place.server.model_requests()[request].body["messages"].as_array().unwrap().last().unwrap().to_string()
}

#[test]
fn an_answer_that_was_cut_and_continued_is_printed_whole() {
    for protocol in Protocol::ALL {
        let cut = |part: &str| text(part).stopping(ScriptStop::MaxTokens);
        let output = asked(script![cut("one "), cut("two "), text("three")], protocol).ok();
        assert_eq!(output.stdout, "one two three\n", "{protocol:?}");
        let output = asked(script![cut("never whole").forever()], protocol).expect_code(1);
        assert_eq!(output.stdout, "", "{protocol:?}");
        let words = "error: the answer is not whole: the output limit cut it off 4 times\nhint: ";
        assert!(output.stderr.contains(words), "{protocol:?}: {}", output.stderr);
    }
}

#[test]
fn reasons_to_stop_that_are_no_end_are_asked_again_and_never_a_success() {
    let reasons = [
        (Protocol::Gemini, "MALFORMED_FUNCTION_CALL"),
        (Protocol::Gemini, "UNEXPECTED_TOOL_CALL"),
        (Protocol::Gemini, "OTHER"),
        (Protocol::Gemini, "LANGUAGE"),
        (Protocol::Anthropic, "never_heard_of"),
        (Protocol::Chat, "error"),
    ];
    for (protocol, word) in reasons {
        let output = asked(script![stopped(text("half"), word), text("whole")], protocol).ok();
        assert_eq!(output.stdout, "whole\n", "{word}");
        let output = asked(script![stopped(text("half"), word).forever()], protocol).expect_code(1);
        let words = format!("the model gave no answer, 3 times in a row: it stopped with \"{word}\"");
        assert!(output.stderr.contains(&words), "{word}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{word}");
    }
}

#[test]
fn a_pause_goes_on_and_a_full_window_is_made_room_in() {
    let script = script![stopped(text("one "), "pause_turn"), text("two")];
    assert_eq!(asked(script, Protocol::Anthropic).ok().stdout, "one two\n");
    let script = script![
        stopped(text("one "), "model_context_window_exceeded"),
        text("the summary").on("about to be shortened"),
        text("two"),
    ];
    assert_eq!(asked(script, Protocol::Anthropic).ok().stdout, "one two\n");
}

#[test]
fn a_pause_or_a_full_window_that_never_ends_is_a_failure_in_words() {
    for (word, requests, words) in [
        ("pause_turn", 11, "error: the answer is not whole: the model paused 11 times\nhint: go on with "),
        (
            "model_context_window_exceeded",
            4,
            "error: the answer is not whole: the model's window is full\nhint: begin a new session",
        ),
    ] {
        let place = Place::new(script![
            text("the summary").on("about to be shortened").forever(),
            stopped(text("part "), word).forever(),
        ]);
        let output = place.ask("hello", []).expect_code(1);
        assert_eq!(output.stdout, "", "{word}");
        assert!(output.stderr.contains(words), "{word}: {}", output.stderr);
        let answers = place.server.model_requests().len() - summaries(&place);
        assert_eq!(answers, requests, "{word}");
    }
}

/// How many requests asked for a summary.
fn summaries(place: &Place) -> usize {
    let requests = 0..place.server.model_requests().len();
    requests.filter(|request| last_message(place, *request).contains("about to be shortened")).count()
}

#[test]
fn an_empty_answer_is_asked_again_and_then_a_failure() {
    for nothing in [text(""), think("hm").and_text("")] {
        let script = script![text("there").on("could not be used: it was empty"), nothing.forever()];
        assert_eq!(asked(script, Protocol::Anthropic).ok().stdout, "there\n");
    }
    let output = asked(script![text("").forever()], Protocol::Anthropic).expect_code(1);
    let words = "the model gave no answer, 3 times in a row: it was empty";
    assert!(output.stderr.contains(words), "{}", output.stderr);
}

fn background(command: &str) -> ScriptStep {
    tool("Bash", json!({"command": command, "run_in_background": true}))
}

#[test]
fn a_run_waits_for_its_background_commands_and_tells_the_model() {
    let place = Place::new(script![
        background("sleep 1; echo trained > model.bin; echo finished"),
        text("it is being trained"),
        text("it is trained").on("Background commands have ended"),
    ]);
    assert_eq!(place.ask("train it", UNATTENDED).ok().stdout, "it is trained\n");
    assert_eq!(place.env.read(place.repo.join("model.bin")), "trained\n");
    let told = last_message(&place, 2);
    assert!(told.contains("finished") && told.contains("bash_1: exit code 0"), "{told}");
}

#[test]
fn a_run_does_not_wait_for_a_program_that_waits_for_somebody_who_types() {
    let place = Place::new(script![
        tool("Bash", json!({"command": "cat", "tty": true})),
        tool("BashInput", json!({"bash_id": "bash_1", "text": "hello\n"})),
        text("typed"),
    ]);
    // Without an end of the wait the test would not end.
    place.env.write(place.env.config().join("caliban/settings.toml"), "[bash]\njob_wait_seconds = 100000\n");
    let output = place.ask("type", ["--output-format", "json", UNATTENDED[0], UNATTENDED[1]]).ok();
    let result: Value = output.json();
    let note = "background commands still ran and were ended: bash_1 (cat)";
    assert_eq!((&result["result"], &result["notes"]), (&json!("typed"), &json!([note])));
    let told = last_message(&place, 2);
    assert!(told.contains("hello"), "{told}");
}

#[test]
fn a_command_that_does_not_end_is_ended_with_the_run_and_that_is_said() {
    let place = Place::new(script![
        background("sleep 600"),
        text("done"),
        text("leave it").on("still run: bash_1 (sleep 600)"),
    ]);
    place.env.write(place.env.config().join("caliban/settings.toml"), "[bash]\njob_wait_seconds = 1\n");
    let output = place.ask("serve it", ["--output-format", "json", UNATTENDED[0], UNATTENDED[1]]).ok();
    let result: Value = output.json();
    let note = "background commands still ran and were ended: bash_1 (sleep 600)";
    assert_eq!((&result["result"], &result["notes"]), (&json!("leave it"), &json!([note])));
}

#[test]
fn the_model_can_wait_for_a_background_command() {
    let place = Place::new(script![
        background("sleep 1; echo finished"),
        tool("BashOutput", json!({"bash_id": "bash_1", "wait_ms": 60_000})),
        text("seen"),
    ]);
    assert_eq!(place.ask("wait for it", UNATTENDED).ok().stdout, "seen\n");
    let told = last_message(&place, 2);
    assert!(told.contains("finished") && told.contains("bash_1: exit code 0"), "{told}");
    assert_eq!(place.server.model_requests().len(), 3, "its end is not told again");
}

#[test]
fn the_last_turn_is_an_answer_without_tools() {
    let no_calls = json!({"functionCallingConfig": {"mode": "NONE"}});
    for (protocol, field, choice) in [
        (Protocol::Anthropic, "tool_choice", json!({"type": "none"})),
        (Protocol::Responses, "tool_choice", json!("none")),
        (Protocol::Chat, "tool_choice", json!("none")),
        (Protocol::Gemini, "toolConfig", no_calls),
    ] {
        let place =
            Place::with(ModelServer::start(script![bash("true"), text("what I have so far")]), protocol);
        let output = place.ask("go", ["--max-turns", "2", UNATTENDED[0], UNATTENDED[1]]).expect_code(4);
        assert_eq!(output.stdout, "what I have so far\n", "{protocol:?}");
        assert!(output.stderr.contains("the limit of 2 turns is reached"), "{}", output.stderr);
        let requests = place.server.model_requests();
        assert_eq!(requests[0].body.get(field), None, "{protocol:?}");
        assert_eq!(requests[1].body[field], choice, "{protocol:?}");
        assert!(requests[1].body.to_string().contains("Answer now with what you have"), "{protocol:?}");
    }
    // Also when it has answered and was asked again: here by news of a background command.
    let job = json!({"command": "true", "run_in_background": true});
    let place = Place::new(script![tool("Bash", job), text("being done"), text("done, as far as I know")]);
    let output = place.ask("go", ["--max-turns", "3", UNATTENDED[0], UNATTENDED[1]]);
    assert_eq!(output.stdout, "done, as far as I know\n", "{}", output.stderr);
    assert_eq!(place.server.model_requests()[2].body["tool_choice"], json!({"type": "none"}));
    // A model that does not work yet is not told that it has to end.
    let place = Place::new(script![text("the answer")]);
    assert_eq!(place.ask("go", ["--max-turns", "1"]).ok().stdout, "the answer\n");
    assert!(!last_message(&place, 0).contains("Answer now"));
}

#[test]
fn s02_a_sub_agents_twentieth_turn_is_its_report() {
    let place = Place::new(script![
        text("I got this far").on("Answer now with what you have").on_first("the helper's task"),
        bash("true").on_first("the helper's task").forever(),
        tool("AgentTool", json!({"prompt": "the helper's task"})),
        text("done"),
    ]);
    assert_eq!(place.ask("go", UNATTENDED).ok().stdout, "done\n");
    let told = last_message(&place, 21);
    assert!(told.contains("reached its limit of 20 turns; its last words follow"), "{told}");
    assert!(told.contains("I got this far"), "{told}");
}

#[test]
fn news_of_many_background_commands_are_as_long_as_one_output() {
    let job = || ("Bash", json!({"command": "seq 1 20000", "run_in_background": true}));
    let place = Place::new(script![tools((0..20).map(|_| job())), text("all ran").forever()]);
    place.ask("count", UNATTENDED).ok();
    let told: Vec<String> =
        (1..place.server.model_requests().len()).map(|n| last_message(&place, n)).collect();
    let news = told.iter().filter(|told| told.contains("Background commands have ended"));
    for news in news.clone() {
        assert!(news.len() < 60_000, "{} bytes", news.len());
        assert!(news.contains("left out"), "{news}");
    }
    assert!(news.count() > 0, "{told:?}");
}

#[test]
fn the_same_failing_call_is_told_at_the_third_and_ended_at_the_eighth_reply() {
    let same = || [("Bash", json!({"command": "false"})), ("Bash", json!({"command": "false"}))];
    let place = Place::new(script![tools(same()).forever()]);
    let output = place.ask("go", UNATTENDED).expect_code(1);
    assert!(
        output.stderr.contains("no progress: the same Bash call failed 8 times in a row"),
        "{}",
        output.stderr
    );
    assert_eq!(place.server.model_requests().len(), 8, "a batch counts once");
    let nudge = "The same Bash call has failed 3 times in a row";
    let nudged: Vec<bool> = (0..8).map(|request| last_message(&place, request).contains(nudge)).collect();
    assert_eq!(nudged, [false, false, false, true, false, false, false, false]);
}

#[test]
fn arguments_that_the_output_limit_cut_off_are_said_to_be() {
    let cut = ScriptStep::default().and_broken_tool("Write", "{\"file_path\": \"a\", \"content\": \"lo");
    let place = Place::new(script![cut.stopping(ScriptStop::MaxTokens), text("in parts then")]);
    assert_eq!(place.ask("write it", UNATTENDED).ok().stdout, "in parts then\n");
    let told = last_message(&place, 1);
    assert!(told.contains("The output limit cut your answer off") && told.contains("in parts"), "{told}");
}
