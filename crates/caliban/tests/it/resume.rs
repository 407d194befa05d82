//! Going on after a kill at any point (r17), and transcripts that a crash has torn (r16).

use std::{fs, path::Path};

use serde_json::{Value, json};
use testkit::{
    Signal, Spawned, StepExt, script,
    script::{Script, StepCondition},
    text, tool, tools, wait_until,
};

use crate::place::Place;

const INTERRUPTED: &str = "[interrupted: the session ended while this ran; its outcome is unknown. \
     Check the state before you do it again.]";

/// A place in which a silent model is waited for: what is held stays held until the kill.
fn patient(script: Script) -> Place {
    let place = Place::new(script);
    place.env.write(place.env.config().join("caliban/settings.toml"), "[retry]\nstall_seconds = 600\n");
    place
}

/// `kill -9` of the program alone, as a crash would be; what it had started goes by itself.
fn crash(place: &Place, mut running: Spawned) {
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, 137);
    wait_until("its processes are gone", || place.env.processes().is_empty());
}

fn start(place: &Place, prompt: &str) -> Spawned {
    let mut running = place.caliban().args(["-p", prompt, "--permission-mode", "unattended"]).spawn();
    running.close_stdin();
    running
}

/// `caliban --resume ID` without a prompt.
fn resume(place: &Place) -> testkit::Output {
    let id = place.session_id();
    place.caliban().args(["--resume", &id, "--permission-mode", "unattended"]).output()
}

/// The results of the last message that the model was sent: id, text, whether it failed.
fn last_results(place: &Place) -> Vec<(String, String, bool)> {
    let requests = place.server.model_requests();
    let messages = requests.last().unwrap().body["messages"].as_array().unwrap().clone();
    let blocks = messages.last().unwrap()["content"].as_array().unwrap().clone();
    let result = |block: &Value| {
        let text = match &block["content"] {
            Value::String(text) => text.clone(),
            parts => parts[0]["text"].as_str().unwrap().to_owned(),
        };
        (block["tool_use_id"].as_str().unwrap().to_owned(), text, block["is_error"] == true)
    };
    blocks.iter().filter(|block| block["type"] == "tool_result").map(result).collect()
}

fn events(place: &Place) -> Vec<String> {
    place.transcript().iter().map(|record| record["event"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn r17_killed_while_the_model_is_silent_the_same_request_is_made_again() {
    let place = patient(script![text("the answer").forever()]);
    place.server.hold();
    let running = start(&place, "hello");
    place.server.wait_for_requests(1);
    crash(&place, running);
    place.server.release();
    assert_eq!(resume(&place).ok().stdout, "the answer\n");
    let requests = place.server.model_requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].raw, requests[1].raw);
    assert_eq!(events(&place), ["started", "prompt", "asked", "resumed", "asked", "reply", "turn_ended"]);
}

#[test]
fn r17_killed_while_a_command_runs_it_is_not_run_again_and_the_model_is_told() {
    let command = "echo ran >> counter; touch started; sleep 600";
    let place = patient(script![tool("Bash", json!({"command": command})).call_id("a"), text("looked")]);
    let running = start(&place, "do it");
    wait_until("the command has started", || place.repo.join("started").exists());
    crash(&place, running);
    assert_eq!(resume(&place).ok().stdout, "looked\n");
    assert_eq!(place.env.read(place.repo.join("counter")), "ran\n");
    assert_eq!(last_results(&place), [("a".to_owned(), INTERRUPTED.to_owned(), true)]);
    let ended = place.transcript().into_iter().find(|record| record["event"] == "call_ended").unwrap();
    assert_eq!(ended["summary"], "interrupted, outcome unknown");
    place.server.assert_drained();
}

#[test]
fn r17_killed_after_a_command_its_result_is_kept() {
    let place = patient(script![
        tool("Bash", json!({"command": "echo ran >> counter; echo seen"})).call_id("a"),
        text("done").stall(0),
    ]);
    let running = start(&place, "do it");
    place.server.wait_for_requests(2);
    crash(&place, running);
    assert_eq!(resume(&place).ok().stdout, "done\n");
    assert_eq!(place.env.read(place.repo.join("counter")), "ran\n");
    let results = last_results(&place);
    assert_eq!(results.len(), 1);
    assert!(results[0].1.contains("seen") && !results[0].2, "{results:?}");
    let requests = place.server.model_requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[1].raw, requests[2].raw);
    place.server.assert_drained();
}

#[test]
fn r17_of_several_calls_only_those_that_had_not_begun_are_run() {
    let place = patient(script![
        tools([
            ("Bash", json!({"command": "echo one >> counter"})),
            ("Bash", json!({"command": "echo two >> counter; touch started; sleep 600"})),
            ("Bash", json!({"command": "echo three >> counter"})),
        ]),
        text("done"),
    ]);
    let running = start(&place, "do it");
    wait_until("the second command has started", || place.repo.join("started").exists());
    crash(&place, running);
    resume(&place).ok();
    assert_eq!(place.env.read(place.repo.join("counter")), "one\ntwo\nthree\n");
    let results = last_results(&place);
    assert_eq!(results.iter().map(|result| result.2).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(results[1].1, INTERRUPTED);
}

#[test]
fn r17_killed_again_while_going_on_nothing_runs_twice() {
    let place = patient(script![
        tools([
            ("Bash", json!({"command": "echo one >> counter; touch started1; sleep 600"})),
            ("Bash", json!({"command": "echo two >> counter; touch started2; sleep 600"})),
        ]),
        text("done"),
    ]);
    let running = start(&place, "do it");
    wait_until("the first command has started", || place.repo.join("started1").exists());
    crash(&place, running);
    let id = place.session_id();
    let running = place.caliban().args(["--resume", &id, "--permission-mode", "unattended"]).spawn();
    wait_until("the second command has started", || place.repo.join("started2").exists());
    crash(&place, running);
    resume(&place).ok();
    assert_eq!(place.env.read(place.repo.join("counter")), "one\ntwo\n");
    let results = last_results(&place);
    assert_eq!(results.iter().map(|result| result.1.as_str()).collect::<Vec<_>>(), [INTERRUPTED; 2]);
}

#[test]
fn r17_killed_after_the_answer_it_is_printed_without_asking_the_model() {
    let place = patient(script![text("the answer")]);
    place.ask("hello", []).ok();
    let file = place.session().join("transcript.jsonl");
    let whole = place.env.read(&file);
    let (before, last) = whole.trim_end().rsplit_once('\n').unwrap();
    assert!(last.contains("turn_ended"), "{last}");
    place.env.write(&file, format!("{before}\n"));
    assert_eq!(resume(&place).ok().stdout, "the answer\n");
    assert_eq!(place.server.model_requests().len(), 1);
    // Now there is nothing left to go on with.
    let output = resume(&place).expect_code(2);
    assert!(output.stderr.starts_with("error: there is no prompt"), "{}", output.stderr);
}

#[test]
fn r17_a_prompt_after_a_kill_closes_what_was_open() {
    let command = "echo ran >> counter; touch started; sleep 600";
    let place = patient(script![
        tools([("Bash", json!({"command": command})), ("Bash", json!({"command": "echo never >> counter"}))]),
        text("as you say"),
    ]);
    let running = start(&place, "do it");
    wait_until("the command has started", || place.repo.join("started").exists());
    crash(&place, running);
    let output = place.ask("leave it", ["--continue", "--permission-mode", "unattended"]).ok();
    assert_eq!(output.stdout, "as you say\n");
    assert_eq!(place.env.read(place.repo.join("counter")), "ran\n");
    let results: Vec<String> = last_results(&place).into_iter().map(|result| result.1).collect();
    assert_eq!(results, [INTERRUPTED, "[not run: the session ended before this began.]"]);
    place.server.assert_drained();
}

#[test]
fn r17_two_calls_of_one_id_run_once_each() {
    let second = "echo two >> counter; touch started; sleep 600";
    let place = patient(script![
        tools([("Bash", json!({"command": "echo one >> counter"}))])
            .call_id("x")
            .and_tool("Bash", json!({"command": second}))
            .call_id("x"),
        text("looked"),
    ]);
    let running = start(&place, "do it");
    wait_until("the second command has started", || place.repo.join("started").exists());
    crash(&place, running);
    assert_eq!(resume(&place).ok().stdout, "looked\n");
    assert_eq!(place.env.read(place.repo.join("counter")), "one\ntwo\n");
    let results = last_results(&place);
    assert_eq!(results[1], ("x_2".to_owned(), INTERRUPTED.to_owned(), true), "{results:?}");
    place.server.assert_drained();
}

#[test]
fn r17_a_session_that_was_killed_in_a_call_can_be_compacted_and_gone_on_with() {
    let place = patient(script![
        text("SUMMARY").on("The conversation is about to be shortened"),
        text("x".repeat(200_000)).on("first"),
        tools([
            ("Bash", json!({"command": "touch started; sleep 600"})),
            ("Bash", json!({"command": "echo never >> counter"})),
        ])
        .on("second"),
        text("looked").on("third"),
    ]);
    place.ask("first", []).ok();
    let id = place.session_id();
    let flags = ["-p", "second", "--continue", "--permission-mode", "unattended"];
    let mut running = place.caliban().args(flags).spawn();
    running.close_stdin();
    wait_until("the command has started", || place.repo.join("started").exists());
    crash(&place, running);
    let compacted = place.verb(["sessions", "compact", &id]).ok();
    assert!(compacted.stdout.contains("4 messages became 3"), "{}", compacted.stdout);
    assert_eq!(place.ask("third", ["--continue"]).ok().stdout, "looked\n");
    // The server holds the rules about calls and results.
    place.server.assert_drained();
    let results: Vec<String> = last_results(&place).into_iter().map(|result| result.1).collect();
    assert_eq!(results, [INTERRUPTED, "[not run: the session ended before this began.]"]);
    assert!(!place.repo.join("counter").exists());
}

#[test]
fn a_resumed_session_stands_where_its_last_command_went() {
    let bash = |command: &str| tool("Bash", json!({"command": command}));
    let place = patient(script![
        bash("mkdir sub && cd sub").on("first"),
        // Its end is recorded while another call of the same reply still runs.
        tools([
            ("Bash", json!({"command": "mkdir deeper && cd deeper"})),
            ("Bash", json!({"command": "touch started; sleep 600"})),
        ]),
        bash("pwd").on("second"),
        tool("Write", json!({"file_path": "f.txt", "content": "here"})),
        text("done"),
    ]);
    let running = start(&place, "first");
    let deeper = place.repo.join("sub/deeper");
    wait_until("the last command has started", || deeper.join("started").exists());
    crash(&place, running);
    place.ask("second", ["--continue", "--permission-mode", "unattended"]).ok();
    assert_eq!(place.env.read(deeper.join("f.txt")), "here");
    place.server.assert_drained();
}

/// A small generator, so that a printed seed is the whole story.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
fn r16_r17_random_kills_lose_nothing_and_repeat_nothing() {
    const STEPS: usize = 12;
    const KILLS: usize = 20;
    let seed =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64 | 1;
    let mut dice = Dice(seed);
    // By the number of answers so far, not in order: an answer that a kill swallowed is given again.
    let at = |turn| StepCondition { turn: Some(turn), ..StepCondition::default() };
    let mut steps: Vec<_> = (0..STEPS)
        .map(|turn| {
            let command = format!("echo {turn} >> counter; echo did {turn}");
            tool("Bash", json!({"command": command})).when(at(turn)).forever()
        })
        .collect();
    steps.push(text("all done").when(at(STEPS)).forever());
    let place = patient(Script { steps });
    let file = |place: &Place| place.session().join("transcript.jsonl");
    let mut kills = 0;
    let mut running = start(&place, "count");
    let output = loop {
        let lines =
            |place: &Place| fs::read(file(place)).map_or(0, |bytes| bytes.split(|b| *b == b'\n').count());
        wait_until("the session is there", || {
            place.env.data().join("caliban/repos").is_dir() && place.sessions().len() == 1
                || !running.running()
        });
        // Not before the prompt is recorded: until then there is nothing to go on with.
        let goal = (lines(&place) + usize::try_from(dice.roll(6)).unwrap()).max(3);
        wait_until("the transcript has grown", || lines(&place) >= goal || !running.running());
        if !running.running() || kills == KILLS {
            break running.wait();
        }
        running.signal(Signal::KILL);
        let killed = running.wait();
        if killed.code == 0 {
            break killed;
        }
        kills += 1;
        wait_until("its processes are gone", || place.env.processes().is_empty());
        let id = place.session_id();
        running = place.caliban().args(["--resume", &id, "--permission-mode", "unattended"]).spawn();
        running.close_stdin();
    };
    let story = format!("seed {seed}, {kills} kills");
    let records = place.transcript();
    let mut replies = records.iter().filter(|record| record["event"] == "reply");
    assert_eq!(replies.next_back().unwrap()["message"]["blocks"][0]["text"], "all done", "{story}");
    if output.code != 2 {
        assert_eq!((output.code, output.stdout.as_str()), (0, "all done\n"), "{story}: {}", output.stderr);
    } else {
        // The last kill came after the end of the turn: nothing was left to go on with.
        assert!(output.stderr.starts_with("error: there is no prompt"), "{story}: {}", output.stderr);
    }
    assert!(records.iter().any(|record| record["event"] == "turn_ended"), "{story}");
    let numbers: Vec<u64> = records.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..records.len() as u64).collect::<Vec<_>>(), "{story}");
    let counted = place.env.read(place.repo.join("counter"));
    for turn in 0..STEPS {
        let id = format!("call_{turn}_0");
        let of = |event: &str| {
            records.iter().filter(|record| record["event"] == event && record["id"] == id).collect::<Vec<_>>()
        };
        let ran = counted.lines().filter(|line| *line == turn.to_string()).count();
        assert_eq!((of("call_started").len(), of("call_ended").len()), (1, 1), "{story}: call {turn}");
        let ended = of("call_ended")[0];
        if ended["summary"] == "interrupted, outcome unknown" {
            assert!(ran <= 1, "{story}: call {turn} ran {ran} times");
        } else {
            assert_eq!(ran, 1, "{story}: call {turn} was acknowledged");
            assert!(ended["content"].to_string().contains(&format!("did {turn}")), "{story}: {ended}");
        }
    }
    let stray: Vec<_> = place
        .server
        .model_requests()
        .into_iter()
        .filter(|request| {
            matches!(
                request.outcome,
                testkit::RequestOutcome::Rejected(_) | testkit::RequestOutcome::Unmatched(_)
            )
        })
        .collect();
    assert!(stray.is_empty(), "{story}: {stray:?}");
}

fn seen_after(place: &Place, file: &Path, bytes: &[u8]) -> Vec<String> {
    fs::write(file, bytes).unwrap();
    let output = place.ask("again", ["--continue"]);
    assert_eq!((output.code, output.stdout.as_str()), (0, "hello\n"), "{}", output.stderr);
    // Every line is whole again, and nothing that was whole before is gone.
    events(place)
}

#[test]
fn r16_a_torn_tail_is_repaired() {
    let place = Place::new(script![text("hello").forever()]);
    place.ask("hi", []).ok();
    let file = place.session().join("transcript.jsonl");
    let whole = fs::read(&file).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    let kept = ["started", "prompt", "asked", "reply"];
    let again = ["resumed", "prompt", "asked", "reply", "turn_ended"];
    for cut in [last, last + 1, last + (whole.len() - last) / 2, whole.len() - 1] {
        assert_eq!(
            seen_after(&place, &file, &whole[..cut]),
            [&kept[..], &again[..]].concat(),
            "cut at {cut}"
        );
    }
    for garbage in [&b"{\"seq\":"[..], b"\0\0\0\0\n", b"\xff\xfe garbage\n", b"{}\n"] {
        let torn = [&whole[..], garbage].concat();
        let expected = [&kept[..], &["turn_ended"], &again[..]].concat();
        assert_eq!(seen_after(&place, &file, &torn), expected, "{garbage:?}");
    }
}

#[test]
fn r16_killed_before_the_first_record_the_session_can_still_be_used() {
    let place = Place::new(script![text("hello").forever()]);
    place.ask("hi", []).ok();
    fs::write(place.session().join("transcript.jsonl"), b"{\"seq\":0,\"at\":\"20").unwrap();
    let listed = place.verb(["sessions", "list"]).ok();
    assert!(listed.stdout.contains("empty"), "{}", listed.stdout);
    place.ask("again", ["--continue"]).ok();
    let requests = place.server.model_requests();
    assert_eq!(
        requests[0].body["messages"].to_string().replace("\"hi\"", "\"again\""),
        requests[1].body["messages"].to_string()
    );
}

#[test]
fn r16_a_broken_line_in_the_middle_is_named_and_nothing_is_changed() {
    let place = Place::new(script![text("hello").forever()]);
    place.ask("hi", []).ok();
    let file = place.session().join("transcript.jsonl");
    let mut lines: Vec<String> = place.env.read(&file).lines().map(str::to_owned).collect();
    lines[1] = "garbage".to_owned();
    let broken = lines.join("\n") + "\n";
    place.env.write(&file, &broken);
    let at =
        format!("error: {}:2: not a transcript record: expected value at line 1 column 1\n", file.display());
    let id = place.session_id();
    let hint = format!("hint: `caliban sessions rm {id}` removes it\n");
    assert_eq!(place.ask("again", ["--continue"]).expect_code(1).stderr, at);
    for verb in ["show", "replay", "audit"] {
        assert_eq!(
            place.verb(["sessions", verb, &id]).expect_code(1).stderr,
            format!("{at}{hint}"),
            "{verb}"
        );
    }
    assert!(place.verb(["sessions", "list"]).ok().stdout.contains("unreadable"));
    assert_eq!(place.env.read(&file), broken);

    // A record that is missing is no less of a hole.
    lines.remove(1);
    place.env.write(&file, lines.join("\n") + "\n");
    let output = place.ask("again", ["--continue"]).expect_code(1);
    assert!(
        output.stderr.contains(":2: not a transcript record: record 2 where 1 was expected"),
        "{}",
        output.stderr
    );
    assert_eq!(place.server.model_requests().len(), 1);
}

#[test]
fn r22_a_transcript_of_a_newer_caliban_is_refused_and_left_alone() {
    let place = Place::new(script![text("hello").forever()]);
    place.ask("hi", []).ok();
    let file = place.session().join("transcript.jsonl");
    let newer = place.env.read(&file).replacen("\"version\":1", "\"version\":2", 1);
    let unknown = "{\"seq\":0,\"version\":2,\"shape\":\"unknown\"}\n".to_owned();
    for text in [newer, unknown] {
        place.env.write(&file, &text);
        let said = format!("error: {} has format 2; this caliban reads up to 1\n", file.display());
        assert_eq!(place.ask("again", ["--continue"]).expect_code(1).stderr, said);
        assert_eq!(place.env.read(&file), text);
    }
    assert_eq!(place.server.model_requests().len(), 1);
}
