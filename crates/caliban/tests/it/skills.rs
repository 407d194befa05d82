//! Skills: name and description in the first request, the body on use; only of repos that are trusted, and the user's own.

use serde_json::{Value, json};
use testkit::{script, text, tool};

use crate::place::Place;

fn skill(place: &Place, path: &str, description: &str) {
    let text = format!("---\nname: deploy\ndescription: {description}\n---\nRun ship.sh with care.\n");
    place.env.write(place.repo.join(path), text);
}

fn tools(place: &Place, request: usize) -> Vec<Value> {
    place.server.model_requests()[request].body["tools"].as_array().unwrap().clone()
}

#[test]
fn the_model_is_told_of_skills_and_gets_one_when_it_asks() {
    let place = Place::new(script![
        tool("Skill", json!({"name": "deploy"})),
        tool("Read", json!({"file_path": ".claude/skills/deploy/ship.sh"})),
        text("shipped"),
    ]);
    skill(&place, ".claude/skills/deploy/SKILL.md", "How to deploy; use it before any release");
    place.env.write(place.repo.join(".claude/skills/deploy/ship.sh"), "echo ship");
    // What nobody trusts is not even named to the model.
    let output = place.ask("deploy it", []).ok();
    assert!(output.stderr.contains(".claude/skills/deploy/SKILL.md ignored"), "{}", output.stderr);
    assert!(!tools(&place, 0).iter().any(|tool| tool["name"] == "Skill"));

    let place = Place::new(script![
        tool("Skill", json!({"name": "deploy"})),
        tool("Read", json!({"file_path": ".claude/skills/deploy/ship.sh"})),
        text("shipped"),
    ]);
    skill(&place, ".claude/skills/deploy/SKILL.md", "How to deploy; use it before any release");
    place.env.write(place.repo.join(".claude/skills/deploy/ship.sh"), "echo ship");
    place.verb(["trust"]).ok();
    assert_eq!(place.ask("deploy it", []).ok().stdout, "shipped\n");
    let tools = tools(&place, 0);
    let told = tools.iter().find(|tool| tool["name"] == "Skill").unwrap()["description"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(told.ends_with("\n- deploy: How to deploy; use it before any release"), "{told}");
    let first = place.server.model_requests()[0].body.to_string();
    assert!(!first.contains("with care"));
    let second = place.server.model_requests()[1].body["messages"].to_string();
    assert!(second.contains("Run ship.sh with care."), "{second}");
    let third = place.server.model_requests()[2].body["messages"].to_string();
    assert!(third.contains("echo ship"), "{third}");
    // A skill that changes is not trusted any more.
    skill(&place, ".claude/skills/deploy/SKILL.md", "Something else");
    assert!(place.ask("again", []).stderr.contains("changed since you trusted"));
}

#[test]
fn the_users_own_skills_need_no_trust() {
    let place = Place::new(script![tool("Skill", json!({"name": "notes"})), text("done"),]);
    let dir = place.env.config().join("caliban/skills/notes");
    place.env.write(dir.join("SKILL.md"), "---\ndescription: How notes are kept\n---\nIn notes.md.\n");
    place.env.write(place.env.config().join("caliban/skills/broken/SKILL.md"), "no front matter");
    let output = place.ask("note it", []).ok();
    assert!(output.stderr.contains("broken/SKILL.md: a skill needs a `description`"), "{}", output.stderr);
    let second = place.server.model_requests()[1].body["messages"].to_string();
    assert!(second.contains("In notes.md."), "{second}");
}
