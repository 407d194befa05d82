//! `caliban worktrees rescue …`: saved work that is not wanted any more.

use serde_json::Value;
use testkit::{script, text};

use crate::fleet::{Fleet, write};

/// A fleet whose agents left work that a removal saved; their ids, the oldest rescue first.
fn rescued(count: usize) -> (Fleet, Vec<String>) {
    let fleet = Fleet::new(script![write("left.txt", "1\n"), text("done")]);
    let mut ids = Vec::new();
    for _ in 0..count {
        let id = fleet.bg("the task", ["--permission-mode", "accept-edits"]);
        fleet.run(["agents", "wait", &id]).ok();
        ids.push(id);
    }
    (fleet, ids)
}

fn rescues(fleet: &Fleet) -> Vec<Value> {
    fleet.run(["worktrees", "rescue", "list", "--json"]).ok().json()
}

#[test]
fn a_rescue_is_removed_by_name_and_can_be_had_back_by_what_is_printed() {
    let (fleet, ids) = rescued(1);
    fleet.run(["rm", &ids[0]]).ok();
    let before = rescues(&fleet);
    let (name, commit) = (before[0]["name"].as_str().unwrap(), before[0]["commit"].as_str().unwrap());
    let removed = fleet.run(["worktrees", "rescue", "rm", name]).ok();
    let lines: Vec<&str> = removed.stdout.lines().collect();
    assert!(lines[0].starts_with(&format!("Removed rescue {name}, saved ")), "{}", removed.stdout);
    let back = format!("git update-ref refs/caliban/rescue/{name} {commit}");
    assert_eq!(lines[1..], [format!("  get it back, until git forgets it: {back}")]);
    assert_eq!(rescues(&fleet), Vec::<Value>::new());
    let words: Vec<&str> = back.split(' ').skip(1).collect();
    fleet.place.env.git(&fleet.place.repo, &words);
    assert_eq!(rescues(&fleet), before);
}

#[test]
fn rescues_are_removed_by_number_all_or_none() {
    let (fleet, ids) = rescued(3);
    fleet.run(["rm", &ids[0], &ids[1], &ids[2]]).ok();
    let before = rescues(&fleet);
    let names: Vec<&str> = before.iter().map(|rescue| rescue["name"].as_str().unwrap()).collect();
    let list = fleet.run(["worktrees", "rescue", "list"]).ok().stdout;
    for (number, name) in names.iter().enumerate() {
        assert!(list.contains(&format!("{}  {name}  ", number + 1)), "{list}");
    }
    // Nothing goes when one of them is not there.
    for unknown in ["4", "0", "nowhere"] {
        let refused = fleet.run(["worktrees", "rescue", "rm", "1", unknown]).expect_code(1);
        assert_eq!(
            refused.stderr,
            format!(
                "error: there is no rescue '{unknown}'; nothing was removed\n\
                 hint: `caliban worktrees rescue list` shows what was saved, with names and numbers\n"
            )
        );
    }
    assert_eq!(rescues(&fleet), before);
    // Numbers are those of the list that was seen, and twice the same is once.
    let reference = format!("refs/caliban/rescue/{}", names[0]);
    let removed = fleet.run(["worktrees", "rescue", "rm", "3", &reference, "1", "--json"]).ok();
    let removed: Vec<Value> = removed.json();
    assert_eq!(removed, [before[2].clone(), before[0].clone()]);
    assert_eq!(rescues(&fleet), [before[1].clone()]);
}
