//! What an agent's shell hands on to the agents that it starts, and what it cannot change for others (a11).

use serde_json::{Value, json};
use testkit::{script, text, wait_until};

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
             {program} resume {ended} --budget-tokens 99000000\n",
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
        assert!(spec["budget"]["tokens"].as_u64().unwrap() <= 50_000, "{spec:#}");
        assert_eq!(spec["env"]["XDG_CONFIG_HOME"], json!(env.config()), "{spec:#}");
        fleet.run(["kill", child]).ok();
    }
    assert!(!outside.exists());
    assert_eq!(fleet.state(&ended), "done");
}
