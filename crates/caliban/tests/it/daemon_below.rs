//! A daemon that a command of an agent had to start: it is everybody's, and nothing of that agent's.

use testkit::{StepExt, script, text, wait_until};

use crate::fleet::{Fleet, bash};

/// The running daemon, by its command line.
fn daemon(fleet: &Fleet) -> Option<u32> {
    let processes = fleet.place.env.processes();
    let mut daemons =
        processes.into_iter().filter(|(_, line)| line.contains(" --runtime ") && line.contains(" --base "));
    daemons.next().map(|(pid, _)| pid)
}

fn of_proc(pid: u32, file: &str) -> String {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_daemon_that_an_agents_command_had_to_start_outlives_it_with_a_persons_agents() {
    let program = std::env::current_exe().unwrap();
    let program = program.ancestors().nth(2).unwrap().join("caliban");
    // Its own and not listed yet: the daemon is started by this very command.
    let command =
        format!("{} agents list; while [ ! -e ../go ]; do sleep 0.01; done; echo over", program.display());
    let fleet = Fleet::new(script![
        bash(&command).on_first("first task"),
        text("first done").on_first("first task"),
        bash("sleep 1000").on_first("a person's task"),
    ]);
    let first = fleet.place.caliban().args(["-p", "first task", "--permission-mode", "unattended"]).spawn();
    wait_until("the command has started a daemon", || daemon(&fleet).is_some());
    let pid = daemon(&fleet).unwrap();
    let theirs = fleet.bg("a person's task", ["--permission-mode", "unattended"]);
    wait_until("the person's agent is in its command", || {
        fleet.place.env.processes().iter().any(|(_, line)| line == "sleep 1000")
    });
    fleet.place.env.write(fleet.place.repo.parent().unwrap().join("go"), "");
    first.wait().ok();
    let row = fleet.row(&theirs);
    assert_eq!((row["state"].as_str(), row["parent"].as_str()), (Some("running"), None), "{row:#}");
    assert_eq!(daemon(&fleet), Some(pid));

    // It is nothing of that agent's: no mark, no secret, a session of its own, nowhere.
    let environment = of_proc(pid, "environ");
    let names: Vec<&str> =
        environment.split('\0').filter_map(|variable| variable.split('=').next()).collect();
    for name in ["CALIBAN_AGENT_ID", "CALIBAN_JOB", "CALIBAN", "ANTHROPIC_API_KEY"] {
        assert!(!names.contains(&name), "{name} in {names:?}");
    }
    assert_eq!(std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), std::path::Path::new("/"));
    let stat = of_proc(pid, "stat");
    let session = stat.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
    assert_eq!(session, pid.to_string());
    // The agents that it starts neither.
    let marked = fleet.place.env.processes().into_iter().filter(|(_, line)| line.contains(" __shim "));
    let marked: Vec<String> = marked.map(|(pid, _)| of_proc(pid, "environ")).collect();
    assert_eq!(marked.len(), 1);
    assert!(!marked[0].contains("CALIBAN_JOB="), "{}", marked[0]);
}
