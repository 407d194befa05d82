//! What an agent's work begins from: the commit that its base stood for when it was asked for.

use serde_json::json;
use testkit::{StepExt, script, text, tool};

use crate::fleet::Fleet;

impl Fleet {
    fn git(&self, args: &[&str]) -> String {
        self.place.env.git(&self.place.repo, args).trim().to_owned()
    }

    fn commit(&self, name: &str) -> String {
        self.place.env.write(self.place.repo.join(name), name);
        self.git(&["add", name]);
        self.git(&["commit", "-qm", name]);
        self.git(&["rev-parse", "HEAD"])
    }
}

#[test]
fn an_agent_begins_from_what_its_base_was_when_it_was_asked_for() {
    let fleet = Fleet::new(script![text("done").forever()]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    let before = fleet.git(&["rev-parse", "HEAD"]);
    fleet.git(&["branch", "side"]);
    fleet.place.server.hold();
    // One is at work; the others wait for its place.
    let first = fleet.bg("first", ["--label", "first"]);
    fleet.place.server.wait_for_requests(1);
    fleet.bg("of head", ["--label", "of-head"]);
    fleet.bg("of a branch", ["--label", "of-side", "--base", "side"]);
    fleet.bg("of hardly a file", ["--label", "of-fresh", "--base", "fresh"]);
    fleet.git(&["checkout", "-q", "-b", "other"]);
    let later = fleet.commit("later.txt");
    fleet.git(&["branch", "-f", "side", "HEAD"]);
    fleet.place.server.release();
    fleet.run(["agents", "wait", &first, "of-head", "of-side", "of-fresh"]).ok();
    for label in ["of-head", "of-side", "of-fresh"] {
        let row = fleet.row(label);
        assert_eq!(row["base_commit"], json!(before), "{label}");
        let id = row["id"].as_str().unwrap();
        assert!(!fleet.worktree(id).join("later.txt").exists(), "{label}");
    }
    // The same request again begins where it began.
    let again = fleet.run(["respawn", "of-head"]).ok().stdout.trim().to_owned();
    fleet.run(["agents", "wait", &again]).ok();
    assert_eq!(fleet.row(&again)["base_commit"], json!(before));
    // A new one does not.
    let new = fleet.bg("a new one", []);
    fleet.run(["agents", "wait", &new]).ok();
    assert_eq!(fleet.row(&new)["base_commit"], json!(later));
}

#[test]
fn a_helper_in_the_background_begins_from_what_its_base_was_when_it_was_started() {
    let helper = json!({"prompt": "the helper's task", "background": true, "label": "helper",
        "isolation": "worktree", "worktree": {"base_ref": "side"}});
    let fleet = Fleet::new(script![
        tool("AgentTool", helper).on_first("the parent's task"),
        text("parent done").on_first("the parent's task"),
        text("first done").on_first("first"),
        text("helper done").on_first("the helper's task"),
    ]);
    fleet.settings("[fleet]\nmax_running = 1\n");
    let before = fleet.git(&["rev-parse", "HEAD"]);
    fleet.git(&["branch", "side"]);
    let parent = fleet.place.caliban().args(["-p", "the parent's task", "--permission-mode", "unattended"]);
    fleet.place.server.hold();
    let first = fleet.bg("first", []);
    fleet.place.server.wait_for_requests(1);
    let parent = parent.spawn();
    fleet.place.server.wait_for_requests(2);
    // Both are answered; the helper waits for the place of the first until that one has ended.
    fleet.place.server.release();
    parent.wait().ok();
    fleet.git(&["checkout", "-q", "side"]);
    fleet.commit("later.txt");
    fleet.run(["agents", "wait", &first, "helper"]).ok();
    let row = fleet.row("helper");
    let spec = fleet.place.env.read(std::path::Path::new(row["dir"].as_str().unwrap()).join("spec.json"));
    let spec: serde_json::Value = serde_json::from_str(&spec).unwrap();
    let asked = json!({"kind": "worktree", "base_ref": "side", "base_commit": before});
    assert_eq!((&spec["isolation"], &row["base_commit"]), (&asked, &json!(before)));
}

#[test]
fn a_base_that_cannot_be_seen_is_refused_and_so_is_a_link_that_leads_out() {
    let fleet = Fleet::new(script![]);
    let refused = |more: &[&str]| {
        let output = fleet.place.caliban().args(["--bg", "the task"]).args(more).output().expect_code(2);
        assert_eq!(output.stdout, "");
        output.stderr
    };
    fleet.place.env.write(fleet.place.repo.join("src/a.txt"), "a");
    fleet.git(&["add", "src"]);
    fleet.git(&["commit", "-qm", "src"]);
    std::os::unix::fs::symlink("/", fleet.place.repo.join("out")).unwrap();
    let cases = [
        (["--base", "nowhere"], "error: --base: 'nowhere' names no commit\n"),
        (["--symlink", ".."], "error: --symlink: '..': '..' is not allowed\n"),
        (["--symlink", "/etc"], "error: --symlink: '/etc': it is not relative to the repository's root\n"),
        (["--symlink", ".git"], "error: --symlink: '.git': it names git's own directory\n"),
        (
            ["--symlink", "out"],
            "error: --symlink: 'out': it is no directory, or there is a link on the way\n",
        ),
        (
            ["--symlink", "out/etc"],
            "error: --symlink: 'out/etc': it is no directory, or there is a link on the way\n",
        ),
        (["--symlink", "nope"], "error: --symlink: 'nope': it does not exist\n"),
        (["--symlink", "src"], "error: --symlink: 'src': git tracks it, so the worktree has its own\n"),
        (["--symlink", "."], "error: --symlink: '.': it is the repository itself\n"),
    ];
    for (flags, words) in cases {
        let said = refused(&flags);
        assert!(said.starts_with(words), "{flags:?}: {said}");
    }
    assert_eq!(fleet.rows(), Vec::<serde_json::Value>::new());
}
