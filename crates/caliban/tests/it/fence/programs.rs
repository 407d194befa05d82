//! Programs of the user's own in the fence that the settings give them: hooks, MCP servers, the setup command, `fleet.notify`.

use serde_json::json;
use testkit::{script, text, tool, wait_until};

use crate::{fleet::Fleet, place::Place};

const PROGRAMS: [&str; 4] = ["hook", "mcp", "setup", "notify"];

/// A background agent with all of them, each of which writes a file in the agent's worktree and one outside. Which files are there.
fn written(profile: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let fleet = Fleet { place: Place::new(script![tool("Bash", json!({"command": "ls"})), text("done")]) };
    let out = fleet.place.env.root().join("work/outside");
    std::fs::create_dir_all(&out).unwrap();
    let line =
        |name: &str, at: &str| format!("cd {at}; touch {name}.made; touch {}/{name}; true", out.display());
    fleet.settings(&format!(
        "[fence]\nhooks = '{profile}'\nmcp = '{profile}'\nsetup = '{profile}'\nnotify = '{profile}'\n\
         [[hooks.PreToolUse]]\ncommand = '{}'\n[mcp.servers.x]\ncommand = 'sh'\nargs = ['-c', '{}; exec cat']\n\
         [worktrees]\nsetup = '{}'\n[fleet]\nnotify = '{}'\n",
        line("hook", ".caliban/worktrees/*"),
        line("mcp", "."),
        line("setup", "."),
        line("notify", "."),
    ));
    let id = fleet.bg("the task", []);
    wait_until("it is done", || fleet.state(&id) == "done");
    let tree = fleet.worktree(&id);
    // Told at the very end, and nobody waits for it.
    wait_until("the end is told", || tree.join("notify.made").exists());
    let there = |has: &dyn Fn(&str) -> bool| PROGRAMS.into_iter().filter(|name| has(name)).collect();
    (there(&|name| tree.join(format!("{name}.made")).exists()), there(&|name| out.join(name).exists()))
}

#[test]
fn a17_hooks_servers_setup_and_notify_run_in_the_fence_of_the_settings() {
    assert_eq!(written("none"), (PROGRAMS.to_vec(), PROGRAMS.to_vec()));
    assert_eq!(written("edit"), (PROGRAMS.to_vec(), Vec::new()));
}
