//! Programs that a repo makes git run: named, asked about once, and not run before.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use testkit::{script, text, tool};

use crate::fleet::Fleet;

/// A repo that came in a tarball, with a filter and a hook; the file that they write when they run.
fn hostile() -> (Fleet, std::path::PathBuf) {
    let fleet = Fleet::new(script![text("done"), text("done")]);
    let settings = fleet.place.env.config().join("caliban/settings.toml");
    let told = fleet.place.env.read(&settings).replace("git_programs = \"allow\"\n", "");
    fleet.place.env.write(settings, told);
    let ran = fleet.place.env.root().join("ran");
    let trap = fleet.place.env.write("trap", format!("#!/bin/sh\necho \"$0\" >> '{}'\ncat\n", ran.display()));
    std::fs::set_permissions(&trap, std::fs::Permissions::from_mode(0o755)).unwrap();
    let repo = &fleet.place.repo;
    let config = repo.join(".git/config");
    let before = fleet.place.env.read(&config);
    let filter = format!("[filter \"x\"]\n\tsmudge = {0}\n\tclean = cat\n", trap.display());
    fleet.place.env.write(&config, format!("{before}{filter}"));
    fleet.place.env.write(repo.join(".git/info/attributes"), "* filter=x\n");
    std::fs::create_dir_all(repo.join(".git/hooks")).unwrap();
    std::fs::copy(&trap, repo.join(".git/hooks/post-merge")).unwrap();
    (fleet, ran)
}

fn has_run(ran: &std::path::Path) -> String {
    std::fs::read_to_string(ran).unwrap_or_default()
}

/// Seen: a filter in the configuration of an unpacked repo ran as the user when `--bg` made the worktree.
#[test]
fn a06_programs_of_a_repos_configuration_are_named_and_run_only_when_they_were_accepted() {
    let (fleet, ran) = hostile();
    let refused = fleet.run(["--bg", "the task"]).expect_code(1);
    assert!(refused.stderr.contains("runs programs when a worktree is made"), "{}", refused.stderr);
    assert!(refused.stderr.contains("filter.x.smudge = "), "{}", refused.stderr);
    assert!(!refused.stderr.contains("post-merge"), "no hook runs then: {}", refused.stderr);
    assert!(refused.stderr.contains("hint: `caliban trust`"), "{}", refused.stderr);
    assert_eq!((has_run(&ran).as_str(), fleet.rows().len()), ("", 0));
    let trusted = fleet.run(["trust"]).ok().stdout;
    assert!(
        trusted.contains("git runs: filter.x.smudge") && trusted.contains("git runs: hook post-merge"),
        "{trusted}"
    );
    assert_eq!(has_run(&ran), "");
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    assert!(has_run(&ran).contains("trap"), "an accepted filter runs");
}

/// Seen: a sub-agent of a session in the foreground got its worktree without a question.
#[test]
fn a06_a_worktree_of_a_sub_agent_runs_them_only_when_they_were_accepted() {
    let (fleet, ran) = hostile();
    let call = || tool("AgentTool", json!({"prompt": "look", "isolation": "worktree"}));
    fleet.place.server.set_script(script![call(), text("done")]);
    fleet.place.ask("go", ["--permission-mode", "unattended"]);
    let told = fleet.place.transcript();
    let told = serde_json::to_string(&told).unwrap();
    assert!(
        told.contains("runs programs when a worktree is made") && told.contains("filter.x.smudge"),
        "{told}"
    );
    assert!(told.contains("`caliban trust` accepts them"), "{told}");
    assert_eq!(has_run(&ran), "");
    fleet.run(["trust"]).ok();
    fleet.place.server.set_script(script![call(), text("found"), text("done")]);
    fleet.place.ask("go", ["--permission-mode", "unattended"]).ok();
    assert!(has_run(&ran).contains("trap"), "an accepted filter runs");
}

#[test]
fn a06_a_merge_asks_about_hooks_and_again_when_they_are_others() {
    let (fleet, ran) = hostile();
    fleet.run(["trust"]).ok();
    let id = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &id]).ok();
    let worktree = fleet.worktree(&id);
    fleet.place.env.write(worktree.join("new.txt"), "new\n");
    fleet.place.env.git(&worktree, &["add", "new.txt"]);
    fleet.place.env.git(&worktree, &["commit", "-qm", "new"]);
    // Another hook of the same name is another program.
    let hook = fleet.place.repo.join(".git/hooks/post-merge");
    let text = fleet.place.env.read(&hook);
    std::fs::write(&hook, format!("{text}# changed\n")).unwrap();
    std::fs::write(&ran, "").unwrap();
    let merge = ["agents", "merge", id.as_str(), "--json"];
    let refused = fleet.run(merge).expect_code(1);
    assert!(refused.stderr.contains("runs programs when work is merged"), "{}", refused.stderr);
    assert!(refused.stderr.contains("hook post-merge"), "{}", refused.stderr);
    let told: serde_json::Value = refused.json();
    assert_eq!(told["reason"], "git_programs");
    assert_eq!(has_run(&ran), "");
    fleet.run(["trust"]).ok();
    fleet.run(merge).ok();
    assert!(has_run(&ran).contains("post-merge"), "{}", has_run(&ran));
}
