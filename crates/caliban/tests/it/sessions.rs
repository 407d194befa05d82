//! `caliban sessions …`, `--continue`, `--resume`, and what a session is on disk.

use serde_json::{Value, json};
use testkit::{StepExt, script, script::Script, text, tool, tools};

use crate::place::Place;

/// Two turns: a tool that works, one that is refused, an answer; then a second prompt.
fn worked() -> Place {
    let place = Place::new(script![
        tools([
            ("Bash", json!({"command": "echo seen"})),
            ("Bash", json!({"command": "curl example.org"})),
            ("Read", json!({"file_path": "nowhere.txt"})),
        ])
        .and_text("Let me look.")
        .costs(100, 10),
        text("It is seen.").costs(200, 20),
        text("You are welcome.").costs(300, 30),
    ]);
    place.ask("have a look\nat this", ["--allow", "Bash(echo *)"]).expect_code(3);
    place.ask("thanks", ["--continue"]).ok();
    place
}

/// Output with what differs from run to run taken out: directories, the id, times and durations.
fn plain(place: &Place, text: &str) -> String {
    let text =
        text.replace(&place.session_id(), "SESSION1").replace(&place.env.root().display().to_string(), "~");
    let Some((before, after)) = text.split_once(" after ") else { return text };
    format!("{before} after *{}", &after[after.find(" s").unwrap()..])
}

/// The same with one column of each line but the first replaced.
fn without_column(text: &str, from: usize, to: usize) -> String {
    let line = |(number, line): (usize, &str)| {
        let chars: Vec<char> = line.chars().collect();
        if number == 0 {
            return format!("{line}\n");
        }
        let (before, after): (String, String) =
            (chars[..from].iter().collect(), chars[to..].iter().collect());
        format!("{before}*{after}\n")
    };
    text.lines().enumerate().map(line).collect()
}

/// A value with every field of these names replaced by a star.
fn without(mut value: Value, names: &[&str]) -> Value {
    fn walk(value: &mut Value, names: &[&str]) {
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    if names.contains(&name.as_str()) { *field = json!("*") } else { walk(field, names) }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| walk(item, names)),
            _ => {}
        }
    }
    walk(&mut value, names);
    value
}

#[test]
fn list_shows_each_session_on_a_line() {
    let place = worked();
    let listed = place.verb(["sessions", "list"]).ok();
    assert_eq!(
        without_column(&plain(&place, &listed.stdout), 10, 26),
        "ID        CHANGED           STATE            TURNS     TOKENS  TITLE\n\
         SESSION1  *  done                 3        660  have a look\n"
    );
    let listed: Value = place.verb(["sessions", "list", "--json"]).ok().json();
    assert_eq!(
        without(listed, &["changed"]),
        json!([{
            "id": place.session_id(), "changed": "*", "state": "done", "model": "test-model", "turns": 3,
            "tokens": 660, "title": "have a look", "repo": place.repo,
        }])
    );
    // From elsewhere nothing is seen but with --all.
    assert_eq!(place.env.run(["sessions", "list"]).ok().stdout, "No sessions yet.\n");
    let all = place.env.run(["sessions", "list", "--all"]).ok();
    assert!(plain(&place, &all.stdout).ends_with("have a look  [~/repo]\n"), "{}", all.stdout);
}

/// What lists say is kept by size and time of the transcript; only one that has changed is read again.
#[test]
fn a_list_reads_again_only_what_has_changed() {
    let place = worked();
    let list = || place.verb(["sessions", "list", "--json"]).ok().json::<Value>();
    let (before, id) = (list(), place.session_id());
    assert_eq!(before[0]["turns"], 3);
    let transcript = place.session().join("transcript.jsonl");
    let (bytes, changed) =
        (std::fs::read(&transcript).unwrap(), std::fs::metadata(&transcript).unwrap().modified().unwrap());
    // Lines that are no records; a last one would count as torn.
    let other: Vec<u8> = (0..bytes.len()).map(|at| if at % 2 == 0 { b'x' } else { b'\n' }).collect();
    std::fs::write(&transcript, other).unwrap();
    std::fs::File::options().write(true).open(&transcript).unwrap().set_modified(changed).unwrap();
    assert_eq!(list(), before);
    // Without the index it is read, and is none.
    let index = place.session().parent().unwrap().with_file_name("sessions.index.json");
    std::fs::remove_file(&index).unwrap();
    assert_eq!(list()[0]["state"], "unreadable");
    // One that changes is read again; so is all where the index is no index.
    std::fs::write(&transcript, &bytes).unwrap();
    assert_eq!(list()[0]["turns"], 3);
    std::fs::write(&index, "{").unwrap();
    assert_eq!(list()[0]["turns"], 3);
    place.verb(["sessions", "rm", &id]).ok();
    assert_eq!(list(), json!([]));
    let left: Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
    assert_eq!(left["sessions"], json!({}));
}

#[test]
fn show_says_what_was_asked_and_what_came_of_it() {
    let place = worked();
    let id = place.session_id();
    let shown = place.verb(["sessions", "show", &id]).ok();
    let directory = plain(&place, &place.session().display().to_string());
    assert_eq!(
        plain(&place, &shown.stdout),
        format!(
            "session  SESSION1\n\
             files    {directory}\n\
             where    ~/repo\n\
             model    test-model (anthropic)\n\
             state    done\n\
             spent    3 turns, 600 tokens in, 60 out, 0 from cache, 0 to cache, -\n\
             \n> have a look\n> at this\n\nIt is seen.\n\n> thanks\n\nYou are welcome.\n"
        )
    );
    let shown: Value = place.verb(["sessions", "show", &id, "--json"]).ok().json();
    let file: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    assert_eq!(shown["messages"], file["messages"]);
    assert_eq!(
        without(shown, &["created", "changed", "messages"]),
        json!({
            "id": id, "directory": place.session(), "state": "done", "title": "have a look",
            "header": {"version": 1, "session": id, "cwd": place.repo, "provider": "anthropic", "model": "test-model"},
            "created": "*", "changed": "*", "turns": 3, "micro_usd": null, "todos": null, "messages": "*",
            "usage": {"input": 600, "output": 60, "cache_read": 0, "cache_write": 0},
        })
    );
}

#[test]
fn replay_shows_the_conversation_as_it_ran() {
    let place = worked();
    let id = place.session_id();
    let expected = "session SESSION1 with test-model in ~/repo\n\
         \nuser> have a look\nat this\n\
         \nLet me look.\n\
         \n• Bash echo seen\n  seen\n  (exit 0 after * s)\n\
         \n• Bash not carried out: runs `curl example.org`, and nobody is there to be asked\n\
         \n• Read nowhere.txt\n  nowhere.txt does not exist\n  (nowhere.txt does not exist)\n\
         \nIt is seen.\n\
         \n-- done; 2 turns, 330 tokens in all --\n\
         \n-- taken up again with test-model --\n\
         \nuser> thanks\n\
         \nYou are welcome.\n\
         \n-- done; 1 turn, 660 tokens in all --\n";
    let replayed = place.verb(["sessions", "replay", &id]).ok();
    assert_eq!(plain(&place, &replayed.stdout), expected);
    // At a speed that leaves no time to wait it is the same.
    let replayed = place.verb(["sessions", "replay", &id, "--speed", "1000000"]).ok();
    assert_eq!(plain(&place, &replayed.stdout), expected);
    assert!(
        place.verb(["sessions", "replay", &id, "--speed", "0"]).expect_code(2).stderr.contains("above 0")
    );
}

#[test]
fn audit_lists_every_call_with_its_decision() {
    let place = worked();
    let id = place.session_id();
    let audit = place.verb(["sessions", "audit", &id]).ok();
    let (audit, spent) = audit.stdout.trim_end().rsplit_once('\n').unwrap();
    let shown = place.verb(["sessions", "show", &id]).ok().stdout;
    assert!(spent.starts_with("spent    ") && shown.lines().any(|line| line == spent), "{spent}\n{shown}");
    let audit = without_column(&without_column(&format!("{audit}\n"), 45, 53), 0, 19);
    assert_eq!(
        audit,
        "TIME                 DECISION   RESULT             MS  EXIT  TOOL          CALL  (why)\n\
         *  allowed    ok           *     0  Bash          echo seen  (rule Bash(echo *) (flag --allow))\n\
         *  unasked    not run      *     -  Bash          curl example.org  \
         (runs `curl example.org`, and nobody is there to be asked)\n\
         *  allowed    failed       *     -  Read          nowhere.txt  (reads inside the project)\n"
    );
    let audit: Value = place.verb(["sessions", "audit", &id, "--json"]).ok().json();
    assert_eq!(
        without(audit, &["at", "ms"]),
        json!([
            {"at": "*", "id": "call_0_0", "tool": "Bash", "input": {"command": "echo seen"},
             "decision": {"verdict": "allowed", "rule": "Bash(echo *) (flag --allow)",
                          "why": "allowed by Bash(echo *) (flag --allow)", "fence": "edit"},
             "ms": "*", "exit_code": 0, "result": "ok"},
            {"at": "*", "id": "call_0_1", "tool": "Bash", "input": {"command": "curl example.org"},
             "decision": {"verdict": "unasked", "why": "runs `curl example.org`, and nobody is there to be asked"}, "result": "not run"},
            {"at": "*", "id": "call_0_2", "tool": "Read", "input": {"file_path": "nowhere.txt"},
             "decision": {"verdict": "allowed", "why": "reads inside the project"}, "ms": "*", "result": "failed"},
        ])
    );
}

#[test]
fn the_session_file_is_the_conversation_as_the_model_would_get_it() {
    let place = Place::new(script![
        tool("TodoWrite", json!({"todos": [{"content": "look", "status": "in_progress"}]})).costs(10, 1),
        text("done").costs(20, 2),
    ]);
    place.ask("hello", []).ok();
    let file: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    let facts = file["messages"][0]["blocks"][0]["text"].as_str().unwrap().to_owned();
    assert!(facts.starts_with("<environment>\n"), "{facts}");
    let result = file["messages"][2]["blocks"][0]["content"].clone();
    let told = file["messages"][2]["blocks"][1]["text"].as_str().unwrap().to_owned();
    assert!(told.starts_with("[The repository before your first call:\n"), "{told}");
    assert_eq!(
        without(file, &["created", "updated"]),
        json!({
            "version": 1, "id": place.session_id(), "cwd": place.repo, "provider": "anthropic", "model": "test-model",
            "created": "*", "updated": "*", "outcome": {"kind": "done"}, "replies": 2,
            "usage": {"input": 30, "output": 3, "cache_read": 0, "cache_write": 0},
            "todos": [{"content": "look", "status": "in_progress"}],
            "messages": [
                {"role": "user", "blocks": [{"type": "text", "text": facts}, {"type": "text", "text": "hello"}]},
                {"role": "assistant", "blocks": [{"type": "tool_use", "id": "call_0_0", "name": "TodoWrite",
                    "input": {"todos": [{"content": "look", "status": "in_progress"}]}}]},
                {"role": "user", "blocks": [
                    {"type": "tool_result", "id": "call_0_0", "content": result, "is_error": false},
                    {"type": "text", "text": told}]},
                {"role": "assistant", "blocks": [{"type": "text", "text": "done"}]},
            ],
        })
    );
}

#[test]
fn what_a_session_leaves_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = worked();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.session().join("transcript.jsonl")), 0o600);
    // The directory above lets nobody in, whatever the modes below it are.
    assert_eq!(mode(place.session().parent().unwrap()), 0o700);
}

#[test]
fn continue_takes_the_latest_and_resume_the_one_that_is_named() {
    let place = Place::new(script![
        text("one").on_first("the one"),
        text("two").on_first("the other"),
        text("one again").on_first("the one"),
        text("two again").on_first("the other")
    ]);
    let id = |output: testkit::Output| output.json::<Value>()["session_id"].as_str().unwrap().to_owned();
    let first = id(place.ask("the one", ["--output-format", "json"]).ok());
    let second = id(place.ask("the other", ["--output-format", "json"]).ok());
    assert_ne!(first, second);
    assert_eq!(place.ask("go on", ["--continue"]).ok().stdout, "two again\n");
    let prefix = (1..=8).map(|length| &first[..length]).find(|prefix| !second.starts_with(prefix)).unwrap();
    assert_eq!(place.ask("go on", ["--resume", prefix]).ok().stdout, "one again\n");
    place.server.assert_drained();

    let unknown = place.ask("go on", ["--resume", "zzzzzzzz"]).expect_code(1);
    assert_eq!(
        unknown.stderr,
        "error: there is no session \"zzzzzzzz\"\nhint: `caliban sessions list` shows the sessions of this repo, \
         with --all those of every repo\n"
    );
    let elsewhere =
        place.env.start("caliban", place.server.args(place.protocol)).args(["-p", "x", "--continue"]);
    assert_eq!(
        elsewhere.output().expect_code(1).stderr,
        "error: there is no session to go on with in this directory\nhint: start one: caliban -p \"…\"\n"
    );
}

#[test]
fn an_ambiguous_beginning_names_the_candidates() {
    let place = Place::new(script![text("hi").forever()]);
    let mut ids: Vec<String> = Vec::new();
    // Seventeen ids of hex digits: two of them begin alike.
    for _ in 0..17 {
        let output = place.ask("hello", ["--output-format", "json"]).ok();
        ids.push(output.json::<Value>()["session_id"].as_str().unwrap().to_owned());
        ids.sort();
        if ids.windows(2).any(|pair| pair[0][..1] == pair[1][..1]) {
            break;
        }
    }
    let pair = ids.windows(2).find(|pair| pair[0][..1] == pair[1][..1]).unwrap();
    let output = place.verb(["sessions", "show", &pair[0][..1]]).expect_code(1);
    assert!(
        output.stderr.contains(&format!("several sessions begin with {:?}", &pair[0][..1])),
        "{}",
        output.stderr
    );
    assert!(pair.iter().all(|id| output.stderr.contains(id)), "{}", output.stderr);
}

#[test]
fn two_processes_on_one_session_the_second_is_told_that_it_is_in_use() {
    let place = Place::new(script![text("first"), text("second")]);
    place.server.hold();
    let running = place.caliban().args(["-p", "hello"]).spawn();
    place.server.wait_for_requests(1);
    let id = place.session_id();
    let file = place.session().join("transcript.jsonl");
    let before = place.env.read(&file);
    let busy = format!("{} is in use by another caliban process\n", file.display());
    assert_eq!(place.ask("me too", ["--resume", &id]).expect_code(1).stderr, format!("error: {busy}"));
    assert_eq!(place.verb(["sessions", "compact", &id]).expect_code(1).stderr, format!("error: {busy}"));
    assert_eq!(
        place.verb(["sessions", "rm", &id]).expect_code(1).stderr,
        format!("error: session {id} is at work: {busy}hint: end it first, then remove it\n")
    );
    // Whoever only looks is not kept out.
    assert!(place.verb(["sessions", "list"]).ok().stdout.contains("unfinished"));
    assert_eq!(place.env.read(&file), before);
    place.server.release();
    assert_eq!(running.wait().ok().stdout, "first\n");
}

#[test]
fn rm_removes_all_or_nothing_of_what_is_named() {
    let place = worked();
    let (id, directory) = (place.session_id(), place.session());
    place.verb(["sessions", "rm", &id, "zzzzzzzz"]).expect_code(1);
    assert!(directory.join("transcript.jsonl").exists());
    assert_eq!(place.verb(["sessions", "rm", &id[..4]]).ok().stdout, format!("Removed session {id}.\n"));
    assert!(!directory.exists());
    assert_eq!(place.verb(["sessions", "list"]).ok().stdout, "No sessions yet.\n");
}

#[test]
fn compact_puts_a_summary_in_place_of_the_older_part() {
    let answer = |number: usize| text(format!("answer {number} {}", "x".repeat(2_000)));
    let summary = text("We talked.").on("The conversation is about to be shortened");
    let place = Place::new(Script {
        steps: vec![answer(1), answer(2), answer(3), summary, text("more").on("go on")],
    });
    place.env.write(place.env.config().join("caliban/settings.toml"), "context_window = 5000\n");
    place.ask("question 1", []).ok();
    place.ask("question 2", ["--continue"]).ok();
    place.ask("question 3", ["--continue"]).ok();
    let id = place.session_id();
    let before = place.env.read(place.session().join("transcript.jsonl"));
    let compacted = place.verb(["sessions", "compact", &id]).ok();
    assert_eq!(
        plain(&place, &compacted.stdout),
        "Session SESSION1: 6 messages became 2; the transcript keeps everything.\n"
    );
    let after = place.env.read(place.session().join("transcript.jsonl"));
    assert!(after.starts_with(&before), "the transcript is only ever added to");
    let file: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    assert_eq!(file["messages"].as_array().unwrap().len(), 2);
    place.ask("go on", ["--continue"]).ok();
    let requests = place.server.model_requests();
    let sent = requests.last().unwrap().body["messages"].clone();
    let texts: Vec<&str> =
        sent[0]["content"].as_array().unwrap().iter().filter_map(|b| b["text"].as_str()).collect();
    assert_eq!(texts[1..], ["question 1", "<summary of the work so far>\nWe talked.\n</summary>"]);
    assert!(sent[1]["content"].to_string().contains("answer 3"), "{sent}");
    assert!(!sent.to_string().contains("answer 2"), "{sent}");
    place.server.assert_drained();
}
