//! `approve <agent>` answers what was shown, and an answer needs no room on the disk of its own.

use std::path::PathBuf;

use serde_json::Value;
use testkit::{script, text, wait_until};

use crate::fleet::{Fleet, bash};

#[test]
fn a16_an_agents_name_approves_only_what_was_listed() {
    let fleet = Fleet::new(script![bash("touch one"), bash("touch two"), text("all done")]);
    let id = fleet.bg("the task", []);
    fleet.wait_for_ask(&id);
    assert_eq!(fleet.run(["approve", &id]).ok().stdout, format!("allowed for {id}: Bash touch one\n"));
    // The next question comes; nobody has listed it.
    let mut refused = String::new();
    wait_until("it asks again", || {
        let output = fleet.run(["approve", &id]);
        assert_ne!(output.code, 0, "{output:?}");
        refused = output.stderr;
        !refused.contains("there is no open question")
    });
    assert!(refused.contains(&format!("what {id} asks now was not listed yet: Bash touch two")), "{refused}");
    assert!(refused.contains("caliban approve 2"), "{refused}");
    assert!(!fleet.worktree(&id).join("two").exists());
    // It is now.
    assert_eq!(fleet.run(["approve", &id]).ok().stdout, format!("allowed for {id}: Bash touch two\n"));
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("two").exists());
}

#[test]
fn r11_where_numbers_cannot_be_kept_an_agent_can_be_answered_by_its_name() {
    let fleet = Fleet::new(script![bash("touch asked-for"), text("all done")]);
    let id = fleet.bg("the task", []);
    let dir = PathBuf::from(fleet.row(&id)["dir"].as_str().unwrap());
    let base = dir.parent().unwrap().parent().unwrap();
    // Nobody can write them, root included.
    for file in ["approvals.json", "approvals.lock"] {
        let _listed = std::fs::remove_file(base.join(file));
        std::fs::create_dir_all(base.join(file).join("in the way")).unwrap();
    }
    fleet.wait_for_ask(&id);
    let listed = fleet.run(["approvals", "--json"]).ok();
    assert_eq!(listed.json::<Value>()[0]["number"], Value::Null);
    assert!(listed.stderr.contains("no numbers can be kept in"), "{}", listed.stderr);
    let text = fleet.run(["approvals"]).ok().stdout;
    assert!(text.starts_with(&format!("-  {id}  ")), "{text}");
    // A question that nobody can have read yet is not approved by name.
    wait_until("it is old enough", || fleet.run(["approve", &id]).code == 0);
    fleet.run(["agents", "wait", &id]).ok();
    assert!(fleet.worktree(&id).join("asked-for").exists());
}
