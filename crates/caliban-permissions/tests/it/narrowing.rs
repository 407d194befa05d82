//! A sub-agent never has wider rights than its parent.

use caliban_core::access::Access;
use caliban_permissions::{Fencing, Mode, Policy, inherit};
use proptest::prelude::*;

use crate::place::{Place, read, short, write};

fn mode() -> impl Strategy<Value = Mode> {
    prop::sample::select(vec![Mode::Default, Mode::AcceptEdits, Mode::Plan, Mode::Unattended])
}

fn rules() -> impl Strategy<Value = Vec<&'static str>> {
    let all = vec![
        "*",
        "Bash",
        "Bash(git *)",
        "Bash(rm *)",
        "Edit",
        "Edit(src/**)",
        "Edit(.git/**)",
        "Edit(~/notes/**)",
        "Read",
        "Read(//etc/**)",
        "WebFetch",
        "WebFetch(domain:x.org)",
        "mcp__a",
        "ask Bash(git push *)",
        "ask Edit(src/**)",
        "deny Bash(git *)",
        "deny Bash",
        "deny Edit",
        "deny Read(src/**)",
        "deny AgentTool",
        "deny mcp__a__b",
        "deny WebFetch",
    ];
    prop::collection::vec(prop::sample::select(all), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_the_child_allows_the_parent_allows(
        parent in (mode(), rules()),
        child in (mode(), rules()),
        grandchild in (mode(), rules()),
    ) {
        let place = Place::new();
        let parent = place.policy(parent.0, &parent.1);
        let mut child = place.policy(child.0, &child.1);
        child.extra_dirs = vec![place.home.clone()];
        child.worktree = Some(place.home.join("tree"));
        child.read_dirs = vec!["/etc".into()];
        let child = inherit(&parent, child);
        let grandchild = inherit(&child, place.policy(grandchild.0, &grandchild.1));
        let calls = [
            ("Read", read(place.root.join("src/main.rs"))),
            ("Read", read("/etc/passwd")),
            ("Write", write(place.root.join("src/main.rs"))),
            ("Write", write(place.root.join(".git/config"))),
            ("Write", write(place.home.join("notes/a.md"))),
            ("Write", write(place.home.join("tree/x"))),
            ("Bash", place.command("git push")),
            ("Bash", place.command("ls; rm x")),
            ("Bash", place.command("eval \"$x\"")),
            ("Bash", place.command("ls > src/x")),
            ("WebFetch", Access::Fetch { url: "https://x.org/".to_owned(), host: "x.org".to_owned() }),
            ("mcp__a__b", Access::Mcp { server: "a".to_owned(), tool: "b".to_owned(), read_only: false }),
            ("AgentTool", Access::Agent),
            ("TodoWrite", Access::Nothing),
        ];
        for (tool, access) in calls {
            let access = [access];
            let verdict = |policy: &caliban_permissions::Policy| policy.decide(tool, &access);
            if verdict(&child).is_allowed() {
                prop_assert!(verdict(&parent).is_allowed(), "{tool} {access:?}");
            }
            if verdict(&grandchild).is_allowed() {
                prop_assert!(verdict(&child).is_allowed() && verdict(&parent).is_allowed(), "{tool} {access:?}");
            }
        }
    }
}

#[test]
fn a_child_can_narrow_further() {
    let place = Place::new();
    let parent = place.policy(Mode::Unattended, &[]);
    let child = inherit(&parent, place.policy(Mode::Plan, &[]));
    assert_eq!(short(&child.decide("Bash", &[place.command("cargo test")])), "deny");
    assert_eq!(short(&child.decide("Bash", &[place.command("ls")])), "allow");
}

#[test]
fn a_child_has_what_both_allow_and_all_that_either_forbids() {
    let place = Place::new();
    let parent = place.policy(Mode::AcceptEdits, &["Bash(make *)", "Bash(npm *)", "deny Bash(make install)"]);
    let own = place.policy(Mode::AcceptEdits, &["Bash(make *)", "Bash(cargo *)", "ask Bash(make clean)"]);
    let mut child = inherit(&parent, own);
    child.fencing = Fencing::Missing;
    let verdict = |line: &str| short(&child.decide("Bash", &[place.command(line)]));
    assert_eq!(
        ["make all", "npm test", "cargo test", "make install", "make clean"].map(verdict),
        ["allow", "ask", "ask", "deny", "ask"]
    );
    assert_eq!(short(&child.decide("Write", &[write(place.root.join("src/main.rs"))])), "allow");
}

#[test]
fn a_child_of_an_agent_in_a_worktree_does_not_write_outside_of_it() {
    let place = Place::new();
    let mut parent = place.policy(Mode::AcceptEdits, &[]);
    parent.worktree = Some(place.root.join("src"));
    let child = inherit(&parent, place.policy(Mode::AcceptEdits, &[]));
    let verdict = |path: &str| short(&child.decide("Write", &[write(place.root.join(path))]));
    assert_eq!(["src/main.rs", "notes.txt"].map(verdict), ["allow", "ask"]);
}

#[test]
fn a_policy_comes_back_from_the_disk_as_it_was_and_a_damaged_one_does_not() {
    let place = Place::new();
    let mut policy = place.policy(Mode::Plan, &["Bash(git *)", "ask Edit(src/**)", "deny mcp__a"]);
    policy.extra_dirs = vec![place.home.clone()];
    policy.worktree = Some(place.home.join("tree"));
    let stored = serde_json::to_value(&policy).unwrap();
    let back: Policy = serde_json::from_value(stored.clone()).unwrap();
    assert_eq!(format!("{back:?}"), format!("{policy:?}"));
    for (field, value) in [("mode", "yolo".into()), ("rules", serde_json::json!([{"rule": "Bash("}]))] {
        let mut damaged = stored.clone();
        damaged[field] = value;
        serde_json::from_value::<Policy>(damaged).unwrap_err();
    }
}
