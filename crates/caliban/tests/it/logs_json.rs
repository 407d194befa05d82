//! What programs read: JSON that does nothing to a terminal, and outcomes in the order in which they were asked for.

use serde_json::{Value, json};
use testkit::{StepExt as _, script, text};

use crate::fleet::Fleet;

/// A control sequence of one character (C1), a direction override, a tag beyond the first plane, a delete.
const HOSTILE: &str = "a\u{9b}2Jb\u{202e}c\u{e0041}d\u{7f}e";

fn is_inert(output: &str) {
    let found: Vec<char> = HOSTILE.chars().filter(|c| !c.is_ascii_graphic() && output.contains(*c)).collect();
    assert!(found.is_empty(), "{found:?} in {output:?}");
    assert!(
        output.ends_with('\n') && output.contains(r"a\u009b2Jb\u202ec\udb40\udc41d\u007fe"),
        "{output:?}"
    );
}

#[test]
fn a14_json_shows_what_an_agent_said_without_doing_it_to_the_terminal() {
    let fleet = Fleet::new(script![text(HOSTILE)]);
    let id = fleet.bg(HOSTILE, []);
    fleet.run(["agents", "wait", &id]).ok();
    let session = fleet.run(["logs", &id, "--json"]).ok();
    is_inert(&session.stdout);
    assert_eq!(session.stdout.matches('\n').count(), 1);
    let blocks = session.json::<Value>()["messages"][1]["blocks"].clone();
    assert_eq!(blocks, json!([{"type": "text", "text": HOSTILE}]));
    is_inert(&fleet.run(["logs", &id, "-f", "--json"]).ok().stdout);
}

#[test]
fn wait_tells_the_outcomes_in_the_order_given() {
    let fleet = Fleet::new(script![text("done").forever()]);
    let mut ids: Vec<String> = (0..3).map(|_| fleet.bg("the task", [])).collect();
    ids.sort();
    ids.reverse();
    let args = ["agents", "wait"].into_iter().chain(ids.iter().map(String::as_str));
    let lines: Vec<String> = ids.iter().map(|id| format!("{id}  done  finished\n")).collect();
    assert_eq!(fleet.run(args.clone()).ok().stdout, lines.concat());
    let outcomes: Vec<Value> = fleet.run(args.chain(["--json"])).ok().json();
    assert_eq!(
        outcomes.iter().map(|outcome| &outcome["id"]).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
}
