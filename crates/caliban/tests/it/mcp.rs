//! Tools of an MCP server, from the settings to the model and back.

use serde_json::{Value, json};
use testkit::{StepExt as _, script, text, tool, wait_until};

use crate::{
    fleet::Fleet,
    place::Place,
    screen::{leave, open},
};

/// A server of one tool, in shell: it answers `initialize`, `tools/list` and `tools/call`.
const SERVER: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*)
      echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"shell","version":"1"}}}' ;;
    *'"tools/list"'*)
      echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"greet","description":"Greets.","inputSchema":{"type":"object","properties":{"name":{"type":"string"}}}}]}}' ;;
    *'"tools/call"'*)
      echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[{"type":"text","text":"hello from the server, '"$GREETING"'"}]}}' ;;
  esac
done
"#;

fn place_with_server() -> Place {
    let place = Place::new(script![tool("mcp__shell__greet", json!({"name": "you"})), text("it greeted")]);
    let server = place.env.write(place.env.root().join("server.sh"), SERVER);
    let settings = format!(
        "[mcp.servers.shell]\ncommand = \"sh\"\nargs = [{:?}]\nenv = {{ GREETING = \"friend\" }}\n",
        server.display().to_string()
    );
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    place
}

#[test]
fn a_servers_tools_are_offered_judged_and_called() {
    let place = place_with_server();
    let output = place.ask("greet me", ["--allow", "mcp__shell"]).ok();
    assert_eq!(output.stdout, "it greeted\n");
    let requests = place.server.model_requests();
    let offered = requests[0].body["tools"].as_array().unwrap();
    let names: Vec<&Value> = offered.iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("mcp__shell__greet")), "{names:?}");
    assert!(requests[1].body.to_string().contains("hello from the server, friend"));
    testkit::wait_until("the server is gone", || place.env.processes().is_empty());
}

#[test]
fn a_servers_tools_need_a_permission() {
    let place = place_with_server();
    let output = place.ask("greet me", []).expect_code(3);
    assert!(output.stderr.contains("--allow 'mcp__shell__greet'"), "{}", output.stderr);
}

#[test]
fn a_server_that_does_not_start_is_left_out_in_words() {
    let place = Place::new(script![text("ok")]);
    let settings = "[mcp.servers.broken]\ncommand = \"/no/such/program\"\n";
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    let output = place.ask("hello", []).ok();
    assert_eq!(output.stdout, "ok\n");
    assert!(output.stderr.contains("the MCP server broken is left out"), "{}", output.stderr);
}

#[test]
fn a_resource_named_in_the_prompt_goes_with_it() {
    let server = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-06-18","capabilities":{"resources":{}}}}' ;;
    *'"resources/read"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"contents":[{"uri":"db://users","text":"ada, bob"}]}}' ;;
  esac
done
"#;
    let place = Place::new(script![text("two").forever()]);
    let server = place.env.write(place.env.root().join("server.sh"), server);
    let settings =
        format!("[mcp.servers.db]\ncommand = \"sh\"\nargs = [{:?}]\n", server.display().to_string());
    place.env.write(place.env.config().join("caliban/settings.toml"), settings);
    place.ask("how many are in @db:db://users?", []).ok();
    let request = &place.server.model_requests()[0].body;
    assert!(request["messages"].to_string().contains("[@db:db://users]\\nada, bob"), "{request}");
    let names: Vec<&Value> = request["tools"].as_array().unwrap().iter().map(|tool| &tool["name"]).collect();
    assert!(names.contains(&&json!("McpResource")), "{names:?}");
    // The same on the screen and in the background.
    let tmux = open(&place, "'who is in @db:db://users?'");
    tmux.wait_for_text("two");
    leave(&tmux);
    place.caliban().args(["--bg", "name @db:db://users", "--isolation", "none"]).output().ok();
    wait_until("the background agent asks", || place.server.model_requests().len() > 2);
    for request in &place.server.model_requests()[1..] {
        assert!(request.body["messages"].to_string().contains("ada, bob"), "{}", request.body);
    }
    place.verb(["daemon", "stop"]).ok();
}

/// A server whose tool asks before it does something.
const ASKING: &str = r#"#!/bin/sh
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"wipe","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*)
      call=$id
      echo '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Wipe all of it?","requestedSchema":{"type":"object","properties":{"sure":{"type":"boolean"}}}}}' ;;
    *'"accept"'*) echo '{"jsonrpc":"2.0","id":'"$call"',"result":{"content":[{"type":"text","text":"wiped"}]}}' ;;
    *'"decline"'*) echo '{"jsonrpc":"2.0","id":'"$call"',"result":{"content":[{"type":"text","text":"left alone"}]}}' ;;
  esac
done
"#;

#[test]
fn a_server_asks_a_person_through_the_agents_own_questions() {
    for (verb, outcome) in [("approve", "wiped"), ("deny", "left alone")] {
        let fleet = Fleet::new(script![tool("mcp__db__wipe", json!({})), text("done")]);
        let server = fleet.place.env.write(fleet.place.env.root().join("server.sh"), ASKING);
        fleet.settings(&format!(
            "[mcp.servers.db]\ncommand = \"sh\"\nargs = [{:?}]\n",
            server.display().to_string()
        ));
        let id = fleet.bg("wipe it", ["--allow", "mcp__db", "--isolation", "none"]);
        fleet.wait_for_ask(&id);
        let asks = fleet.row(&id)["asks"].to_string();
        assert!(asks.contains("Wipe all of it?") && asks.contains("the MCP server db asks"), "{asks}");
        fleet.run([verb, &id]).ok();
        fleet.wait_for(&id, "done");
        let told = fleet.place.server.model_requests()[1].body["messages"].to_string();
        assert!(told.contains(outcome), "{verb}: {told}");
    }
}
