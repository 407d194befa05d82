//! What an agent's shell hands on to the agents that it starts, and what it cannot change for others (a11).

use serde_json::{Value, json};
use testkit::{StepExt as _, script, text, tool, wait_until};

use crate::fleet::{Fleet, id_of};

fn spec(fleet: &Fleet, row: &Value) -> Value {
    serde_json::from_str(&fleet.place.env.read(row["dir"].as_str().unwrap().to_owned() + "/spec.json"))
        .unwrap()
}

#[test]
fn a11_an_agents_shell_changes_neither_the_settings_of_what_it_starts_nor_anybodys_limits() {
    let fleet = Fleet::new(script![text("over")]);
    fleet.settings("[limits]\nbudget_tokens = 100000\n");
    let env = &fleet.place.env;
    let ended = fleet.bg("the first task", ["--isolation", "none"]);
    fleet.run(["agents", "wait", &ended]).ok();
    let program = env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    let outside = env.work().join("outside.txt");
    let evil = env.work().join("evil");
    env.write(evil.join("caliban/settings.toml"), "[permissions]\nmode = 'unattended'\nallow = ['Write']\n");
    let steps = env.work().join("steps.json");
    let write = json!({"name": "Write", "input": {"file_path": outside, "content": "x"}});
    let go = json!({"name": "Bash", "input": {"command": "sh go.sh"}});
    let script = json!({"steps": [
        {"when": {"first_prompt_contains": "PARENT"}, "tool_calls": [go]},
        {"when": {"first_prompt_contains": "PARENT"}, "text": "over"},
        {"when": {"first_prompt_contains": "CHILD"}, "tool_calls": [write], "repeat": true},
    ]});
    env.write(&steps, script.to_string());
    let bg = format!("{program} --bg --isolation none --script {}", steps.display());
    env.write(
        fleet.place.repo.join("go.sh"),
        format!(
            "CALIBAN_PERMISSION_MODE=unattended {bg} CHILD --label by-mode || exit 1\n\
             XDG_CONFIG_HOME={} {bg} CHILD --label by-settings || exit 1\n\
             {bg} CHILD --label third && {program} kill third && {program} resume third --budget-tokens 99000000\n",
            evil.display()
        ),
    );
    let steps = steps.to_str().unwrap();
    let flags = ["--bg", "PARENT", "--isolation", "none", "--script", steps, "--allow", "Bash(sh go.sh)"];
    let parent = id_of(&fleet.run(flags).ok());
    fleet.run(["agents", "wait", &parent]).ok();
    let told = fleet.run(["logs", &parent, "--json"]).ok().stdout;
    let words = format!("a process of agent {parent} cannot change what an agent may spend: a person does");
    assert!(told.contains(&words), "{told}");
    // Both ask a person, and have their part of what the settings give their parent.
    for child in ["by-mode", "by-settings"] {
        wait_until(&format!("{child} asks or has ended: {told}"), || {
            let row = fleet.row(child);
            !row["asks"].as_array().unwrap().is_empty()
                || row["state"] != "running" && row["state"] != "spawning"
        });
        let row = fleet.row(child);
        assert_eq!((&row["parent"], &row["state"]), (&json!(parent), &json!("running")), "{row:#}");
        let spec = spec(&fleet, &row);
        assert_eq!(spec["permission_mode"], "default", "{spec:#}");
        assert_eq!(spec["budget"]["tokens"], 100_000, "{spec:#}");
        assert!(spec["account_above"].as_str().unwrap().contains('/'), "{spec:#}");
        assert_eq!(spec["env"]["XDG_CONFIG_HOME"], json!(env.config()), "{spec:#}");
        fleet.run(["kill", child]).ok();
    }
    assert!(!outside.exists());
    assert_eq!(fleet.state(&ended), "done");
}

#[test]
fn s08_a11_a_restricted_agent_hands_on_no_tool_that_it_does_not_have() {
    let helper = json!({"prompt": "by call", "background": true, "label": "by-call", "isolation": "none"});
    let fleet = Fleet::new(script![
        tool("AgentTool", json!({"prompt": "in process"})).on_first("PARENT"),
        tool("AgentTool", helper).on_first("PARENT"),
        tool("Bash", json!({"command": "sh go.sh"})).on_first("PARENT"),
        text("over").on_first("PARENT"),
        text("ok").on_first("in process"),
        text("ok").on_first("by call"),
    ]);
    let env = &fleet.place.env;
    let program = env.cmd("caliban").get_program().to_str().unwrap().to_owned();
    // The key is not for the agent's commands: what a command starts answers from a script here.
    let steps = env.work().join("steps.json");
    let write = json!({"name": "Write", "input": {"file_path": "made.txt", "content": "x"}});
    env.write(&steps, json!({"steps": [{"tool_calls": [write]}, {"text": "over"}]}).to_string());
    env.write(
        fleet.place.repo.join("go.sh"),
        format!(
            "{program} --bg 'by shell' --label by-shell --isolation none --script {} || exit 1\n",
            steps.display()
        ),
    );
    // The limit comes from the type, not from a flag.
    env.write(
        env.config().join("caliban/agents/narrow.md"),
        "---\ntools: Read, Bash, AgentTool\n---\nYou look.",
    );
    let flags = ["--bg", "PARENT", "--isolation", "none", "--agent", "narrow", "--allow", "Bash(sh go.sh)"];
    let parent = id_of(&fleet.run(flags).ok());
    fleet.run(["agents", "wait", &parent]).ok();
    fleet.run(["agents", "wait", "by-call"]).ok();
    for prompt in ["in process", "by call"] {
        let requests = fleet.place.server.model_requests();
        let first = requests.iter().find(|request| request.body["messages"][0].to_string().contains(prompt));
        let tools = first.unwrap().body["tools"].as_array().unwrap().clone();
        let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"Read") && !names.contains(&"Write"), "{prompt}: {names:?}");
    }
    fleet.run(["agents", "wait", "by-shell"]).ok();
    let told = fleet.run(["logs", "by-shell"]).ok().stdout;
    assert!(told.contains("there is no tool \"Write\""), "{told}");
}
