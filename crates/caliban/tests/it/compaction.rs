//! Room in the model's window: old results go first, then a summary; what matters stays.

use serde_json::{Value, json};
use testkit::{
    Protocol, Recorded, RequestOutcome, StepExt, script,
    script::{Script, ScriptStep, StepCondition},
    text, tool,
};

use crate::place::Place;

const WINDOW: usize = 14_000;
/// Tokens of a text, by the rule of thumb that everybody here uses.
const CHARS_PER_TOKEN: usize = 4;
const FILES: usize = 16;
const TASK: &str = "read every file and tell me the word";
const SHORTENED: &str = "The conversation is about to be shortened";

/// A chain of files, each of which names the next: the model reads them one after another.
fn chain() -> Script {
    let after = |number: usize| StepCondition {
        tool_result_contains: Some(format!("this is file {number};")),
        ..StepCondition::default()
    };
    let read = |number: usize| tool("Read", json!({"file_path": format!("file{number}.txt")}));
    let todos = json!({"todos": [{"content": "find the word", "status": "in_progress"}]});
    let mut steps =
        vec![
            text("SUMMARY: some files are read, the word is not found yet.").on(SHORTENED).forever(),
            tool("TodoWrite", todos).and_tool("Read", json!({"file_path": "file0.txt"})).when(
                StepCondition { turn: Some(0), contains: Some(TASK.to_owned()), ..StepCondition::default() },
            ),
        ];
    steps.extend((1..FILES).map(|number| read(number).when(after(number - 1)).forever()));
    steps.push(text("The word is found.").when(after(FILES - 1)).forever());
    steps.push(text("You are welcome.").on("thank you"));
    Script { steps }
}

fn place_with_files() -> Place {
    let place = Place::new(chain());
    copy_files(&place);
    place
}

fn copy_files(place: &Place) {
    let settings = format!("context_window = {WINDOW}\n[limits]\nmax_turns = 60\n");
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    for number in 0..FILES {
        let line = format!("filler of file {number} {}\n", "lorem ipsum ".repeat(6));
        let text = format!("this is file {number};\n{}", line.repeat(70));
        place.env.write(place.repo.join(format!("file{number}.txt")), text);
    }
}

fn is_summary(request: &Recorded) -> bool {
    request.body["messages"].to_string().contains(SHORTENED)
}

#[test]
fn old_results_go_first_then_a_summary_and_the_task_and_todos_stay() {
    let place = place_with_files();
    let output = place.ask(TASK, []).ok();
    assert_eq!(output.stdout, "The word is found.\n");
    let requests = place.server.model_requests();
    assert!(requests.iter().all(|request| request.outcome == RequestOutcome::Answered));

    // Never more than the window, whatever was read.
    let largest = requests.iter().map(|request| request.raw.len() / CHARS_PER_TOKEN).max().unwrap();
    assert!(largest < WINDOW, "{largest} tokens in a request, the window is {WINDOW}");
    let read: usize =
        (0..FILES).map(|number| place.env.read(place.repo.join(format!("file{number}.txt"))).len()).sum();
    assert!(read / CHARS_PER_TOKEN > WINDOW, "the files would not have fitted: otherwise this tests nothing");

    // First results, then a summary.
    let records = place.transcript();
    let room: Vec<&str> = records
        .iter()
        .filter_map(|record| record["event"].as_str())
        .filter(|event| ["results_cleared", "summarised"].contains(event))
        .collect();
    assert_eq!(room.first(), Some(&"results_cleared"), "{room:?}");
    assert!(room.contains(&"summarised"), "{room:?}");

    // What matters is in every request, in its own words.
    for request in &requests {
        assert!(request.body["messages"][0].to_string().contains(TASK), "{}", request.body["messages"][0]);
    }
    let summarised = requests.iter().position(is_summary).unwrap();
    let after: Vec<&Recorded> =
        requests[summarised + 1..].iter().filter(|request| !is_summary(request)).collect();
    for request in after {
        let first = request.body["messages"][0].to_string();
        assert!(first.contains("SUMMARY: some files are read"), "{first}");
        assert!(first.contains("<todo list>\\n[~] find the word\\n</todo list>"), "{first}");
        assert_eq!(first.matches("<summary of the work so far>").count(), 1, "{first}");
    }

    // The last results are there as they came: the file that was read last, and the one before it.
    for (number, request) in requests.iter().filter(|request| !is_summary(request)).enumerate().skip(2) {
        let sent = request.body["messages"].to_string();
        assert!(sent.contains(&format!("this is file {};", number - 1)), "request {number}");
    }

    // The transcript keeps everything.
    let transcript = place.env.read(place.session().join("transcript.jsonl"));
    for number in 0..FILES {
        assert!(transcript.contains(&format!("filler of file {number} lorem")), "file {number}");
    }
}

/// The messages of a request without cache marks, which move on with the conversation.
fn plain_messages(request: &Recorded) -> Vec<Value> {
    let mut messages = request.body["messages"].as_array().unwrap().clone();
    for message in &mut messages {
        for block in message["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
    }
    messages
}

#[test]
fn results_go_oldest_first_and_no_more_than_needed_and_a_summary_is_made_of_what_is_there() {
    let place = place_with_files();
    place.ask(TASK, []).ok();
    let requests = place.server.model_requests();
    let tokens = |request: &Recorded| request.raw.len() / CHARS_PER_TOKEN;
    let cleared = |request: &Recorded| {
        let results = plain_messages(request).into_iter().flat_map(|message| {
            let blocks = message["content"].as_array().unwrap().clone();
            blocks.into_iter().filter(|block| block["type"] == "tool_result")
        });
        results
            .map(|block| block["content"].to_string().contains("dropped to save space"))
            .collect::<Vec<bool>>()
    };
    let mut times = (0, 0);
    for pair in requests.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let count = |request: &Recorded| cleared(request).into_iter().filter(|is| *is).count();
        if !is_summary(before) && !is_summary(after) && count(after) > count(before) {
            times.0 += 1;
            // Oldest first: no whole long result stands before a cleared one, but the short one of TodoWrite.
            let marks = cleared(after);
            let last = marks.iter().rposition(|is| *is).unwrap();
            assert!(marks[..=last].iter().filter(|is| !**is).count() <= 1, "{marks:?}");
            // What is left is most of what may be left: not everything that could have gone has gone.
            let left = tokens(after) * 100 / WINDOW;
            assert!((45..75).contains(&left), "{left} % are left of the window");
        }
        if is_summary(after) && !is_summary(before) {
            times.1 += 1;
            // The request before it is its beginning, byte for byte: the provider has that in its cache.
            let (begin, whole) = (plain_messages(before), plain_messages(after));
            assert!(begin[..] == whole[..begin.len()], "the prefix has changed");
            for key in ["system", "tools", "model"] {
                assert_eq!(before.body[key], after.body[key], "{key}");
            }
            assert_eq!(after.body.get("tool_choice"), None);
            assert_eq!(after.body["max_tokens"], WINDOW * 15 / 100);
        }
    }
    assert!(times.0 >= 1 && times.1 >= 1, "{times:?}");
}

#[test]
fn a_summary_that_comes_empty_is_asked_for_again_and_nothing_is_lost_without_one() {
    let again = text("short").on(SHORTENED);
    let mut script = chain();
    script.steps[0] = again.forever();
    script.steps.insert(0, text("").on(SHORTENED));
    let chained = Place::new(script);
    copy_files(&chained);
    assert_eq!(chained.ask(TASK, []).ok().stdout, "The word is found.\n");
    let requests = chained.server.model_requests();
    let summaries: Vec<&Recorded> = requests.iter().filter(|request| is_summary(request)).collect();
    assert!(summaries.len() >= 2, "{}", summaries.len());
    assert_eq!(summaries[0].body.get("tool_choice"), None);
    assert_eq!(summaries[1].body["tool_choice"], json!({"type": "none"}), "now it has to answer");
    assert!(!chained.env.read(chained.session().join("transcript.jsonl")).contains("gave no summary"));
}

#[test]
fn a_resumed_session_sends_what_the_running_one_would_have() {
    let place = place_with_files();
    place.ask(TASK, []).ok();
    let before = place.server.model_requests();
    let last = before.last().unwrap().body["messages"].as_array().unwrap().clone();
    place.ask("thank you", ["--continue"]).ok();
    let requests = place.server.model_requests();
    let resumed = requests[before.len()].body["messages"].as_array().unwrap().clone();
    let plain = |message: &Value| {
        let mut text = message.clone();
        for block in text["content"].as_array_mut().unwrap() {
            block.as_object_mut().unwrap().remove("cache_control");
        }
        text
    };
    assert_eq!(
        resumed.iter().take(last.len()).map(plain).collect::<Vec<_>>(),
        last.iter().map(plain).collect::<Vec<_>>()
    );
    let more: Vec<Value> = resumed[last.len()..].iter().map(plain).collect();
    assert_eq!(
        more,
        [
            json!({"role": "assistant", "content": [{"type": "text", "text": "The word is found."}]}),
            json!({"role": "user", "content": [{"type": "text", "text": "thank you"}]}),
        ]
    );
    place.server.assert_drained();
}

/// Two long results, then a model that takes less than its window is said to be; so does the summary, if it is to.
fn too_much(summary: ScriptStep) -> Place {
    let body = Protocol::Anthropic.error_body(400, "prompt is too long: 250000 tokens > 200000 maximum");
    let result = |text: &str| StepCondition {
        tool_result_contains: Some(text.to_owned()),
        ..StepCondition::default()
    };
    let echo = |word: &str| tool("Bash", json!({"command": format!("echo {word} {}", "x".repeat(3_000))}));
    Place::new(script![
        summary.on(SHORTENED),
        text("done").on_first("<summary of the work so far>"),
        text("never").status(400).body(body).when(result("two x")),
        echo("two").when(result("one x")),
        echo("one").on("go"),
    ])
}

#[test]
fn a_model_that_says_that_it_is_too_much_gets_less() {
    let place = too_much(text("short"));
    let output = place.ask("go", ["--allow", "Bash(echo *)"]).ok();
    assert_eq!(output.stdout, "done\n");
    let requests = place.server.model_requests();
    let sizes: Vec<usize> = requests.iter().map(|request| request.raw.len()).collect();
    assert_eq!(sizes.len(), 5, "one, two, too much, summary, done: {sizes:?}");
    assert!(sizes[4] < sizes[2], "{sizes:?}");
    let last = requests[4].body["messages"].to_string();
    assert!(last.contains("<summary of the work so far>\\nshort"), "{last}");
    assert!(last.contains("two xxx") && !last.contains("one xxx"), "the newest result is there: {last}");
}

#[test]
fn a_summary_that_is_too_much_itself_is_made_of_less() {
    let body = Protocol::Anthropic.error_body(400, "prompt is too long: 250000 tokens > 200000 maximum");
    let place = too_much(text("short").status(400).body(body));
    let output = place.ask("go", ["--allow", "Bash(echo *)"]).ok();
    assert_eq!(output.stdout, "done\n");
    let requests = place.server.model_requests();
    let summaries: Vec<String> = requests
        .iter()
        .filter(|request| is_summary(request))
        .map(|request| request.body["messages"].to_string())
        .collect();
    assert_eq!(summaries.len(), 2);
    let cuts: Vec<usize> = summaries.iter().map(|summary| summary.matches("[cut]").count()).collect();
    assert_eq!(cuts, [1, 2], "first what came last, then everything");
}

#[test]
fn a_prompt_of_ten_megabytes_is_refused_in_clear_words() {
    let place = Place::new(script![text("never")]);
    let output = place.caliban().args(["-p", "sum it up"]).stdin("word ".repeat(2 * 1024 * 1024)).output();
    let output = output.expect_code(1);
    assert!(output.stderr.starts_with("error: about 262"), "{}", output.stderr);
    assert!(output.stderr.contains(" tokens are too many for test-model, which takes "), "{}", output.stderr);
    assert!(
        output.stderr.contains("hint: put long material into files that the agent can read in parts"),
        "{}",
        output.stderr
    );
    assert!(place.server.model_requests().is_empty(), "it was not even sent");
}
