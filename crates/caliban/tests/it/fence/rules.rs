//! What a rule means: "do not ask". The fence holds, unless the rule says `outside`.

use serde_json::{Value, json};
use testkit::{script::Script, text, tool};

use super::{go, results, run_with};
use crate::place::Place;

fn outside(place: &Place) -> bool {
    place.repo.parent().unwrap().join("outside").exists()
}

/// The decisions about calls of Bash, in their order.
fn decided(place: &Place) -> Vec<String> {
    results(place).into_iter().map(|(decision, ..)| decision).collect()
}

/// Seen: a rule for `make` and a Makefile that the agent had edited ran anything.
#[test]
fn a17_a_build_file_that_the_agent_edited_gains_nothing_by_a_rule() {
    let makefile = json!({"file_path": "Makefile", "content": "all:\n\ttouch built; touch ../outside\n"});
    let make = |line: &str| tool("Bash", json!({"command": line}));
    let calls = [
        tool("Write", makefile),
        make("make"),
        make("cd / && make -C $OLDPWD"),
        make("make | tail -1"),
        text("done"),
    ];
    let place = Place::new(Script { steps: calls.into() });
    go(&place, "accept-edits", &["--allow", "Bash(make *)"]);
    assert_eq!(decided(&place)[1..], ["edit", "edit", "edit"], "{:?}", results(&place));
    assert!(place.repo.join("built").exists() && !outside(&place));
}

#[test]
fn a17_an_outside_rule_lets_a_command_run_as_the_user_where_it_was_given() {
    let lines = [
        "touch ../outside | tail -1",
        "cd src && touch ../../outside",
        "X=1 touch ../outside",
        "PATH=. touch ../outside",
        "touch ../outside; cp a b",
        "cp a b",
    ];
    let place = Place::new(super::script(&lines.map(|line| json!({"command": line}))));
    std::fs::create_dir_all(place.repo.join("src")).unwrap();
    go(&place, "default", &["--allow", "Bash(touch *) outside"]);
    assert_eq!(decided(&place), ["none", "unasked", "unasked", "unasked", "unasked", "unasked"]);
    assert!(outside(&place));
}

/// Waits until what was written before is surely older than what begins now: the clock of a file system may be behind.
fn settle() {
    let written = std::time::Instant::now();
    testkit::wait_until("it was there before", || written.elapsed().as_millis() > 40);
}

/// A program or script that the agent has written is not the one that the rule was given for.
#[test]
fn a17_what_the_agent_has_written_does_not_run_by_an_outside_rule() {
    let bash = |line: &str| tool("Bash", json!({"command": line}));
    let write = json!({"file_path": "new.sh", "content": "touch ../outside\n"});
    let calls = [
        bash("sh kept.sh"),
        tool("Write", write),
        bash("sh new.sh"),
        // By a command in the fence, and by a directory that takes the place of another.
        bash("cp new.sh kept.sh; mkdir tools2; cp new.sh tools2/run.sh; mv tools old; mv tools2 tools"),
        bash("sh kept.sh"),
        bash("sh tools/run.sh"),
        bash("rm kept.sh; ln -s new.sh kept.sh"),
        bash("sh kept.sh"),
        text("done"),
    ];
    let place = Place::new(Script { steps: calls.into() });
    for name in ["kept.sh", "tools/run.sh"] {
        place.env.write(place.repo.join(name), "echo as the user left it\n");
    }
    settle();
    let rules = ["--allow", "Bash(sh *) outside"];
    go(&place, "accept-edits", &rules);
    let results = results(&place);
    let decided: Vec<&str> = results.iter().map(|(decision, ..)| decision.as_str()).collect();
    assert_eq!(
        decided,
        ["none", "none", "unasked", "edit", "unasked", "unasked", "edit", "unasked"],
        "{results:?}"
    );
    assert!(results[2].1.contains("the agent may have written"), "{results:?}");
    assert!(!outside(&place));
    // In a new conversation the scripts are what the user accepted.
    let place = Place::new(super::script(&[json!({"command": "sh new.sh"})]));
    place.env.write(place.repo.join("new.sh"), "touch ../outside\n");
    settle();
    go(&place, "default", &rules);
    assert!(outside(&place));
}

/// A command in the background could add to the script while `sh` reads it.
#[test]
fn a19_no_script_runs_by_an_outside_rule_beside_a_command_that_can_change_it() {
    let bash = |line: &str| tool("Bash", json!({"command": line}));
    let beside = json!({"command": "touch made; sleep 600", "run_in_background": true, "description": "d"});
    let kill = tool("KillShell", json!({"shell_id": "bash_1"}));
    let calls = [tool("Bash", beside), bash("sh kept.sh"), kill, bash("sh kept.sh"), text("done")];
    let place = Place::new(Script { steps: calls.into() });
    place.env.write(place.repo.join("kept.sh"), "touch ../outside\n");
    settle();
    go(&place, "accept-edits", &["--allow", "Bash(sh *) outside"]);
    let results = results(&place);
    let decided: Vec<&str> = results.iter().map(|(decision, ..)| decision.as_str()).collect();
    assert_eq!(decided, ["edit", "unasked", "none", "none"], "{results:?}");
    assert!(results[1].1.contains("while another command of this conversation runs"), "{results:?}");
    assert!(outside(&place));
}

/// A command can find out where its `/tmp` lies outside, and name a script there.
#[test]
fn a18_a_script_in_the_agents_tmp_does_not_run_by_an_outside_rule() {
    let bash = |line: &str| tool("Bash", json!({"command": line}));
    let write = "/usr/bin/python3 -c \"open('/tmp/x.sh', 'w').write('touch ../outside')\"";
    let place = Place::new(Script { steps: vec![bash(write), text("done")] });
    let rules = ["--allow", "Bash(sh *) outside"];
    go(&place, "accept-edits", &rules);
    let script = place.session().join("tmp/x.sh");
    assert!(script.exists(), "{:?}", results(&place));
    place.server.set_script(Script { steps: vec![bash(&format!("sh {}", script.display())), text("done")] });
    place.ask("go on", ["--continue", "--permission-mode", "accept-edits", rules[0], rules[1]]);
    let results = results(&place);
    assert!(results[1].1.contains("the agent may have written"), "{results:?}");
    assert!(!outside(&place));
}

/// With nobody to ask it runs once, and the end of the run names what would have helped.
#[test]
fn r17_a_command_that_its_fence_stopped_runs_once_and_the_end_says_what_helps() {
    let line = "echo ran >> runs; mkdir /usr/made-by-a-test";
    let place =
        Place::new(super::script(&[json!({"command": line}), json!({"command": "cat /nowhere-at-all"})]));
    let output = place.ask("go", ["--permission-mode", "accept-edits"]).ok();
    assert_eq!(place.env.read(place.repo.join("runs")), "ran\n");
    let notes: Vec<&str> = output.stderr.lines().filter(|line| line.starts_with("note: ")).collect();
    assert_eq!(notes.len(), 1, "{}", output.stderr);
    assert!(
        notes[0].contains(
            "failed because of its fence: --allow 'Bash(mkdir /usr/made-by-a-test) outside' runs it outside"
        ),
        "{}",
        output.stderr
    );
    let json: Value = {
        let again = Place::new(super::script(&[json!({"command": "mkdir /usr/made-by-a-test"})]));
        again.ask("go", ["--permission-mode", "accept-edits", "--output-format", "json"]).ok().json()
    };
    assert!(json["notes"][0].as_str().is_some_and(|note| note.contains("because of its fence")), "{json}");
}

/// In the fence `.git` cannot be changed in the user's own tree: without a rule it asks at once, with one it fails and says what helps.
#[test]
fn a17_a_commit_in_the_users_own_tree_needs_an_outside_rule() {
    let commit = json!({"command": "git add -A && git commit -qm work"});
    let place = run_with("accept-edits", std::slice::from_ref(&commit), &[]);
    assert_eq!(decided(&place), ["unasked"]);
    let made = |rule: &str| {
        let place = Place::new(super::script(std::slice::from_ref(&commit)));
        place.env.write(place.repo.join("made"), "x");
        let output = place.ask("go", ["--permission-mode", "default", "--allow", rule]).ok();
        let subject = place.env.git(&place.repo, &["log", "-1", "--format=%s"]).trim().to_owned();
        (subject == "work", decided(&place).concat(), output.stderr)
    };
    let (is_made, fence, said) = made("Bash(git *)");
    assert_eq!((is_made, fence.as_str()), (false, "edit"), "{said}");
    let rules =
        "--allow 'Bash(git add -A) outside' --allow 'Bash(git commit -qm work) outside' runs it outside";
    assert!(said.contains(rules), "{said}");
    let (is_made, fence, said) = made("Bash(git *) outside");
    assert_eq!((is_made, fence.as_str()), (true, "none"), "{said}");
}
