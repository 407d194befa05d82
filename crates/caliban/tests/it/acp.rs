//! What an editor finds in `caliban acp` beside a conversation: what is advertised, refused, offered and asked of it.

use serde_json::{Value, json};
use testkit::{ModelServer, Protocol, StepExt as _, script, text, tool, wait_until};

use crate::{bg::Editor, place::Place};

fn connect(place: &Place) -> (Editor, Value) {
    Editor::connect(place, &json!({}))
}

/// A new session, and what was answered.
fn begin(editor: &mut Editor, place: &Place) -> Value {
    let made = editor.call("session/new", json!({"cwd": place.repo, "mcpServers": []}));
    editor.in_session(made["sessionId"].as_str().unwrap_or_default());
    made
}

#[test]
fn mcp_servers_over_http_are_advertised() {
    let place = Place::new(script![]);
    let (_editor, welcome) = connect(&place);
    assert_eq!(welcome["agentCapabilities"]["mcpCapabilities"]["http"], json!(true), "{welcome}");
}

#[test]
fn the_sessions_of_a_directory_that_is_gone_are_listed_all_the_same() {
    let place = Place::new(script![text("hi")]);
    place.ask("hello there", []).ok();
    let (mut editor, _) = connect(&place);
    let elsewhere = editor.call("session/list", json!({"cwd": "/nowhere/at/all"}));
    assert_eq!(elsewhere, json!({"sessions": []}));
    std::fs::rename(&place.repo, place.repo.with_extension("moved")).unwrap();
    let listed = editor.call("session/list", json!({"cwd": place.repo}));
    assert_eq!(listed["sessions"][0]["title"], json!("hello there"), "{listed}");
}

#[test]
fn without_a_key_the_client_is_told_to_authenticate() {
    let mut place = Place::with(ModelServer::start(script![]), Protocol::Anthropic);
    // The provider itself, which is not reached: without a key nothing begins.
    place.env.unset("ANTHROPIC_API_KEY").unset("ANTHROPIC_BASE_URL");
    let (mut editor, _) = connect(&place);
    let id = editor.send("session/new", json!({"cwd": place.repo, "mcpServers": []}));
    editor.answer(id);
    let messages = editor.messages();
    let answer = messages.iter().find(|message| message["id"] == json!(id)).unwrap();
    assert_eq!(answer["error"]["code"], json!(-32000), "auth_required: {answer}");
    assert!(answer["error"].to_string().contains("ANTHROPIC_API_KEY"), "{answer}");
}

#[test]
fn commands_say_what_they_take_and_take_it() {
    let place = Place::new(script![]);
    let (mut editor, _) = connect(&place);
    begin(&mut editor, &place);
    let commands = || {
        let messages = editor.messages();
        let update = |message: &Value| message["params"]["update"]["availableCommands"].as_array().cloned();
        messages.iter().find_map(update)
    };
    wait_until("the commands", || commands().is_some());
    let commands = commands().unwrap();
    let hint = |name: &str| {
        let command = commands.iter().find(|command| command["name"] == json!(name)).unwrap();
        command["input"]["hint"].clone()
    };
    assert_eq!((hint("help"), hint("status")), (json!("[command]"), Value::Null));
    let said = editor.command("/help compact");
    assert!(said.contains("/compact") && !said.contains("/status"), "{said}");
}

#[test]
fn the_model_and_its_effort_are_options_that_a_client_chooses() {
    let place = Place::new(script![text("one"), text("two")]);
    let (mut editor, _) = connect(&place);
    let made = begin(&mut editor, &place);
    let value = |options: &Value, id: &str| {
        let options = options["configOptions"].as_array().unwrap();
        options.iter().find(|option| option["id"] == json!(id)).unwrap().clone()
    };
    let models = value(&made, "model");
    assert_eq!(models["category"], json!("model"), "{made}");
    let first = models["currentValue"].as_str().unwrap().to_owned();
    let others = models["options"].as_array().unwrap();
    let other = others.iter().find(|option| option["value"] != json!(first)).unwrap();
    let other = other["value"].as_str().unwrap().to_owned();
    let id = editor.prompt("hello");
    editor.answer(id);
    let session = made["sessionId"].clone();
    let set = |editor: &mut Editor, id: &str, value: &str| {
        let params = json!({"sessionId": session, "configId": id, "value": value});
        editor.call("session/set_config_option", params)
    };
    let now = set(&mut editor, "model", &other);
    assert_eq!(value(&now, "model")["currentValue"], json!(other), "{now}");
    let now = set(&mut editor, "effort", "high");
    assert_eq!(value(&now, "effort")["currentValue"], json!("high"), "{now}");
    let id = editor.prompt("and now?");
    editor.answer(id);
    let asked: Vec<String> = place
        .server
        .model_requests()
        .iter()
        .map(|request| request.body["model"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(asked, [first, other]);
    for (id, value) in [("model", "no-such-model"), ("effort", "endless"), ("colour", "red")] {
        assert!(set(&mut editor, id, value).is_string(), "{id} {value} is refused");
    }
    // Others hear of it.
    let told =
        |message: &Value| message["params"]["update"]["sessionUpdate"] == json!("config_option_update");
    assert!(editor.messages().iter().any(told));
}

#[test]
fn a_cancelled_prompt_is_counted_once() {
    let place = Place::new(script![
        text("whole").costs(100, 10).on("the second"),
        text("cut here").in_chunks(2).stall(1).costs(40_000, 2),
    ]);
    let (mut editor, _) = connect(&place);
    let session = begin(&mut editor, &place)["sessionId"].clone();
    let id = editor.prompt("the first");
    let words = |message: &Value| message.to_string().contains("agent_message_chunk");
    wait_until("the first words", || editor.messages().iter().any(words));
    editor.write(&json!({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}}));
    let cancelled = editor.answer(id);
    assert_eq!(cancelled["stopReason"], json!("cancelled"), "{cancelled}");
    let usage = |usage: &Value| json!([usage["inputTokens"], usage["outputTokens"]]);
    let spent = usage(&cancelled["usage"]);
    assert_eq!(spent[0], json!(40_000), "{cancelled}");
    let id = editor.prompt("the second");
    let answered = editor.answer(id);
    assert_eq!(usage(&answered["usage"]), json!([100, 10]), "what this prompt took: {answered}");
    // The session file and the ledger say the same.
    let output = spent[1].as_u64().unwrap() + 10;
    let file: Value = serde_json::from_str(&place.env.read(place.session().join("session.json"))).unwrap();
    assert_eq!(json!([file["usage"]["input"], file["usage"]["output"]]), json!([40_100, output]));
    let pools: Vec<Value> = place.verb(["budget", "show", "--json"]).ok().json();
    let today = pools.iter().find(|pool| pool["pool"] == "all agents today").unwrap();
    assert_eq!(json!([today["tokens"], today["in_flight_tokens"]]), json!([40_100 + output, 0]));
}

#[test]
fn a_file_that_a_prompt_names_goes_along() {
    let place = Place::new(script![text("seen")]);
    place.env.write(place.repo.join("notes.txt"), "the word is plugh");
    place.env.write(place.env.home().join("private.txt"), "not for models");
    let (mut editor, _) = connect(&place);
    begin(&mut editor, &place);
    let id = editor.prompt(&format!("read @notes.txt and @{}/private.txt", place.env.home().display()));
    editor.answer(id);
    let sent = place.server.model_requests()[0].body["messages"].to_string();
    assert!(sent.contains("the word is plugh") && !sent.contains("not for models"), "{sent}");
    // It is for the model: who loads the session sees what was typed.
    let session = json!({"sessionId": place.session_id(), "cwd": place.repo, "mcpServers": []});
    editor.call("session/close", session.clone());
    let before = editor.messages().len();
    editor.call("session/load", session);
    let shown: String = editor.messages()[before..].iter().map(Value::to_string).collect();
    assert!(shown.contains("read @notes.txt") && !shown.contains("plugh"), "{shown}");
}

/// Answers what the agent asks of the editor's files until the prompt is answered; what it was told to write.
fn with_files(editor: &mut Editor, prompt: u64, text: &str) -> Vec<Value> {
    let mut answered = 0;
    let mut written = Vec::new();
    wait_until("the prompt is answered", || {
        let messages = editor.messages();
        let asked: Vec<Value> = messages
            .iter()
            .filter(|message| message["method"].as_str().is_some_and(|method| method.starts_with("fs/")))
            .cloned()
            .collect();
        for request in &asked[answered..] {
            let result = match request["method"].as_str() {
                Some("fs/read_text_file") => json!({"content": text}),
                _ => {
                    written.push(request["params"].clone());
                    Value::Null
                }
            };
            editor.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
        }
        answered = asked.len();
        messages.iter().any(|message| message["id"] == json!(prompt) && message.get("method").is_none())
    });
    written
}

#[test]
fn what_is_not_saved_in_the_editor_counts_and_the_editor_hears_of_changes() {
    let edit = json!({"file_path": "notes.txt", "old_string": "typed", "new_string": "changed"});
    let steps =
        || script![tool("Read", json!({"file_path": "notes.txt"})), tool("Edit", edit.clone()), text("done")];
    let place = Place::new(steps());
    place.env.write(place.repo.join("notes.txt"), "saved\n");
    let abilities = json!({"fs": {"readTextFile": true, "writeTextFile": true}});
    let (mut editor, _) = Editor::connect(&place, &abilities);
    let made = begin(&mut editor, &place);
    let session = made["sessionId"].clone();
    editor.call("session/set_mode", json!({"sessionId": session, "modeId": "accept-edits"}));
    let id = editor.prompt("go");
    let written = with_files(&mut editor, id, "saved\ntyped\n");
    let path = place.repo.canonicalize().unwrap().join("notes.txt");
    assert_eq!(written, [json!({"sessionId": session, "path": path, "content": "saved\nchanged\n"})]);
    assert_eq!(place.env.read(&path), "saved\nchanged\n");
    let told = place.server.model_requests()[1].body["messages"].to_string();
    assert!(told.contains("typed") && told.contains("not saved yet"), "{told}");
    // An editor that offers nothing is asked nothing.
    let place = Place::new(steps());
    place.env.write(place.repo.join("notes.txt"), "typed\n");
    let (mut editor, _) = connect(&place);
    let session = begin(&mut editor, &place)["sessionId"].clone();
    editor.call("session/set_mode", json!({"sessionId": session, "modeId": "accept-edits"}));
    let id = editor.prompt("go");
    assert_eq!(with_files(&mut editor, id, "other"), Vec::<Value>::new());
    assert_eq!(place.env.read(place.repo.join("notes.txt")), "changed\n");
}
