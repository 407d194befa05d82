//! For those who come from Claude Code: its settings, aliases of models, its MCP servers, its matchers of hooks.

use serde_json::json;
use testkit::{StepExt, script, text, tool, tools};

use crate::{
    fleet::{Fleet, bash},
    place::Place,
};

const SETTINGS: &str = r#"{
  "model": "opus",
  "permissions": {"allow": ["Bash(sh say.sh:*)"], "deny": ["Read(./.env)", "Frobnicate(x)"]},
  "env": {"GREETING": "hello from the settings"},
  "hooks": {"PreToolUse": [{"matcher": "^Bash$", "hooks": [{"type": "command", "command": "echo $GREETING >> hooked"}]}]}
}"#;

fn place() -> Place {
    let place = Place::new(script![
        tools([("Bash", json!({"command": "sh say.sh"})), ("Read", json!({"file_path": ".env"})),]),
        text("done"),
    ]);
    place.env.write(place.repo.join(".claude/settings.json"), SETTINGS);
    place.env.write(place.repo.join("say.sh"), "echo \"$GREETING\" > said\n");
    place.env.write(place.repo.join(".env"), "canary");
    place
}

#[test]
fn the_settings_of_claude_code_are_used_in_a_trusted_repo() {
    let place = place();
    let trusted = place.verb(["trust"]).ok().stdout;
    assert!(trusted.contains("in use now: .claude/settings.json"), "{trusted}");
    assert!(trusted.contains("variable for commands: GREETING"), "{trusted}");
    let output = place.ask("say it", []).expect_code(3);
    let left = "not understood and left out: model, the deny rule `Frobnicate(x)`";
    assert!(output.stderr.contains(left), "{}", output.stderr);
    assert_eq!(place.env.read(place.repo.join("said")), "hello from the settings\n");
    assert_eq!(place.env.read(place.repo.join("hooked")), "hello from the settings\n");
    let told = place.server.model_requests()[1].body["messages"].to_string();
    assert!(told.contains("denied by Read(./.env)") && !told.contains("canary"), "{told}");
}

#[test]
fn in_a_repo_that_nobody_trusts_only_its_denials_hold() {
    let place = place();
    let flags = ["--permission-mode", "unattended"];
    let output = place.ask("say it", flags).expect_code(3);
    assert!(
        output.stderr.contains("settings.json: its 1 deny rule holds without trust"),
        "{}",
        output.stderr
    );
    assert_eq!(place.env.read(place.repo.join("said")), "\n");
    assert!(!place.repo.join("hooked").exists());
    let told = place.server.model_requests()[1].body["messages"].to_string();
    assert!(told.contains("denied by Read(./.env)") && !told.contains("canary"), "{told}");
    // For an agent in the background as well.
    let fleet = Fleet { place: self::place() };
    let id = fleet.bg("say it", ["--isolation", "none", flags[0], flags[1]]);
    fleet.wait_for(&id, "done");
    let told = fleet.place.server.model_requests()[1].body["messages"].to_string();
    assert!(told.contains("denied by Read(./.env)") && !told.contains("canary"), "{told}");
}

#[test]
fn the_users_own_settings_of_claude_code_count_when_that_is_set() {
    for wanted in [false, true] {
        let place = Place::new(script![bash("sh say.sh"), text("done")]);
        place.env.write(place.repo.join("say.sh"), "echo \"$GREETING\" > said\n");
        place.env.write(place.env.home().join(".claude/settings.json"), SETTINGS);
        let path = place.env.config().join("caliban/settings.toml");
        let settings = place.env.read(&path);
        place.env.write(&path, format!("{settings}[claude]\nuser_settings = {wanted}\n"));
        let output = place.ask("say it", []);
        assert_eq!(output.code, if wanted { 0 } else { 3 }, "{output:?}");
        assert_eq!(place.repo.join("said").exists(), wanted);
    }
}

#[test]
fn short_names_of_models_resolve() {
    let place = Place::new(script![
        tool("AgentTool", json!({"description": "look", "prompt": "look around", "model": "haiku"})),
        text("the helper's answer").on("look around"),
        text("done"),
    ]);
    let args = ["--provider", "anthropic", "--model", "opus", "-p", "go"];
    place.env.start("caliban", args).dir(&place.repo).output().ok();
    let models: Vec<String> = place
        .server
        .model_requests()
        .iter()
        .map(|request| request.body["model"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(models, ["claude-opus-5-5", "claude-haiku-5-5", "claude-opus-5-5"]);
}

#[test]
fn one_bad_server_in_mcp_json_does_not_spoil_the_rest() {
    let place = Place::new(script![text("done")]);
    let servers = json!({"mcpServers": {
        "good": {"command": "/bin/false"}, "odd": {"type": "carrier-pigeon", "url": "http://x"}, "bad name!": {"command": "x"},
        "neither": {"type": "stdio"}, "old": {"type": "sse", "url": "http://127.0.0.1:9/sse"},
    }, "someKeyOfTheirs": 1});
    place.env.write(place.repo.join(".mcp.json"), servers.to_string());
    place.verb(["trust"]).ok();
    let output = place.ask("hello", []).ok();
    for words in [
        "server `odd`: found the type `carrier-pigeon`, expected `stdio`, `http` or `sse`; it is left out",
        "found the server name `bad name!`",
        "server `neither`: found neither of `command` and `url`, expected one of them; it is left out",
        "the MCP server good is left out: ",
        "the MCP server old is left out: ",
    ] {
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
}

#[test]
fn hooks_that_can_never_run_and_tools_of_agent_types_that_are_none_are_told() {
    let place = Place::new(script![bash("echo hi"), text("done")]);
    let path = place.env.config().join("caliban/settings.toml");
    let settings = place.env.read(&path);
    let hooks = "[[hooks.PreToolUse]]\nmatcher = \"^Bash$\"\ncommand = \"echo ran >> hooked\"\n\
                 [[hooks.PreToolUse]]\nmatcher = \"Bsh|(Edit\"\ncommand = \"guard\"\n\
                 [[hooks.PostToolUse]]\nmatcher = \"Bsh\"\ncommand = \"guard\"\n";
    place.env.write(&path, format!("{settings}{hooks}"));
    let agents = place.env.config().join("caliban/agents");
    place.env.write(
        agents.join("r.md"),
        "---\nname: r\ndescription: reads\ntools: Raed, Task, Grep\n---\nRead.\n",
    );
    let output = place.ask("go", ["--permission-mode", "unattended"]).ok();
    assert_eq!(place.env.read(place.repo.join("hooked")), "ran\n");
    for words in [
        "the hook PreToolUse `guard` never runs: its matcher `Bsh|(Edit` is no regular expression",
        "the hook PostToolUse `guard` never runs: its matcher `Bsh` fits no tool",
        "r.md: there is no tool `Raed`; did you mean `Read`?",
    ] {
        assert!(output.stderr.contains(words), "{words}: {}", output.stderr);
    }
    let types = place.verb(["agents", "types"]).ok();
    assert!(types.stdout.contains("r  (the caller's model; AgentTool, Grep)"), "{}", types.stdout);
}
