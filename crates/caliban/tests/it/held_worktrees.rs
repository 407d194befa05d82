//! The worktrees of background agents: nobody takes one away that an agent counts on, and a making that was cut short
//! is never taken for an agent's work.

use testkit::{script, text, wait_until};

use crate::fleet::{Fleet, write};

#[test]
fn r19_sweep_and_rm_leave_the_worktree_of_a_registered_agent_alone() {
    let fleet = Fleet::new(script![write("work", "not committed\n"), text("done")]);
    // One at work, and one that has ended and is still registered.
    let ended = fleet.bg("the task", []);
    fleet.run(["agents", "wait", &ended]).ok();
    fleet.place.server.hold();
    let running = fleet.bg("another task", []);
    fleet.place.server.wait_for_requests(3);

    let swept = fleet.run(["worktrees", "sweep"]).ok();
    let mut ids = [&ended, &running];
    ids.sort();
    let left = |id: &String| format!("Left worktree {id}: it belongs to agent {id}.\n");
    assert_eq!(swept.stdout, ids.map(left).concat());
    for id in ids {
        let refused = fleet.run(["worktrees", "rm", id]);
        assert_eq!(refused.code, 1, "{refused:?}");
        assert_eq!(
            refused.stderr,
            format!(
                "error: the worktree {id} belongs to a background agent\n\
                 hint: `caliban rm {id}` removes the agent and its worktree; its work is kept\n"
            )
        );
    }
    // A fleet of the same repo with places of its own does not know them, and leaves them alone all the same.
    let (data, runtime) = (fleet.place.env.root().join("d"), fleet.place.env.root().join("r"));
    let elsewhere = |args: [&str; 2]| {
        let run = fleet.place.env.start("caliban", args).dir(&fleet.place.repo);
        run.env("XDG_DATA_HOME", &data).env("XDG_RUNTIME_DIR", &runtime).output().ok()
    };
    assert!(elsewhere(["agents", "list"]).stdout.starts_with("No agents."));
    wait_until("it has swept", || elsewhere(["daemon", "status"]).stdout.contains("belongs to agent"));
    elsewhere(["daemon", "stop"]);
    assert!(fleet.worktree(&ended).join("work").exists());
    assert!(fleet.worktree(&running).exists());
    fleet.place.server.release();
    fleet.run(["agents", "wait", &running]).ok();
    fleet.run(["rm", &ended]).ok();
    assert!(!fleet.worktree(&ended).exists());
}

#[test]
fn r19_an_agent_that_was_killed_while_its_worktree_was_made_gets_a_whole_one_at_its_resume() {
    let fleet = Fleet::new(script![text("done")]);
    let gate = fleet.place.env.home().join("gate");
    // The setup command waits: the agent is killed before its worktree is whole.
    let setup = format!(
        "\n[worktrees]\nsetup = \"test -e '{0}.open' || {{ touch '{0}'; sleep 1000; }}\"\n",
        gate.display()
    );
    fleet.settings(&setup);
    let id = fleet.bg("the task", []);
    wait_until("the setup command runs", || gate.exists());
    fleet.run(["kill", &id]).ok();
    assert_eq!(fleet.state(&id), "killed");
    let tree = fleet.worktree(&id);
    // As a git that was killed in the middle of a checkout leaves it.
    let admin = fleet.place.repo.join(".git/worktrees").join(&id);
    std::fs::rename(admin.join("index"), admin.join("index.lock")).unwrap();
    for file in fleet.place.env.git(&fleet.place.repo, &["ls-files"]).lines() {
        std::fs::remove_file(tree.join(file)).unwrap();
    }
    let refused = fleet.run(["agents", "merge", &id, "--commit", "all"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    fleet.place.env.write(gate.with_extension("open"), "");
    fleet.run(["resume", &id]).ok();
    fleet.run(["agents", "wait", &id]).ok();
    assert_eq!(fleet.place.env.git(&tree, &["status", "--porcelain"]), "");
    assert_eq!(fleet.run(["agents", "diff", &id]).ok().stdout, "");
}
