//! Who speaks: read from the processes above, whatever the command line and the environment say (a11).

use std::process::{Command, Stdio};

use caliban_store::HostId;
use testkit::{Lack, skip};

use crate::world::{Said, World, ok, refused};

/// A pid namespace of its own with its own `/proc`, as a sandbox or an agent that wants out makes one.
const UNSHARE: [&str; 3] = ["unshare", "-Urpf", "--mount-proc"];

/// What somebody in a namespace is told who wants to be `@who` of a session that was made outside.
fn unproven(who: &str) -> Said {
    let words = format!(
        "this process runs in a pid namespace (a container, a sandbox, unshare) that does not show who started it, and the \
         session was made outside: it cannot act as its Director or Administrator (<{who}>)"
    );
    let hint = "run it where the session was made ('cafleet setup' keeps claude and codex from running cafleet in their \
                sandbox); in another container, or after a restart of this one, make a session there";
    Said { err: format!("Error: {words}\nhint: {hint}\n"), ..refused("") }
}

/// Runs cafleet behind another program.
fn behind(world: &World, before: &[&str], args: &[&str]) -> Said {
    let binary = env!("CARGO_BIN_EXE_cafleet");
    let words = [&before[1..], &[binary], args].concat();
    world.said(&world.program(before[0], &words).output().expect("run"))
}

fn can_unshare() -> bool {
    let mut command = Command::new(UNSHARE[0]);
    let worked = command.args(&UNSHARE[1..]).arg("true").stderr(Stdio::null()).status();
    let worked = worked.is_ok_and(|status| status.success());
    if !worked {
        skip(Lack::Mounts);
    }
    worked
}

#[test]
fn a11_a_pid_namespace_does_not_make_anybody_director_or_administrator() {
    if !can_unshare() {
        return;
    }
    let world = World::with_session();
    world.agent("bob");
    let setsid = [&UNSHARE[..], &["setsid", "--wait"]].concat();
    // A shell is the namespace's first process, and cafleet a process below it.
    let shell = [&UNSHARE[..], &["sh", "-c", "\"$@\" & wait $!", "sh"]].concat();
    let twice = [&UNSHARE[..], &UNSHARE[..]].concat();
    for before in [&UNSHARE[..], &setsid, &shell, &twice] {
        let send = |from: &str| {
            let args =
                ["--session-id", "@S", "message", "send", "--agent-id", from, "--to", "@bob", "--text", "x"];
            behind(&world, before, &args)
        };
        assert_eq!(send("@D"), unproven("D"), "{before:?}");
        assert_eq!(send("@ADMIN"), unproven("ADMIN"), "{before:?}");
        let read = ["--session-id", "@S", "message", "poll", "--agent-id", "@D"];
        assert_eq!(behind(&world, before, &read), unproven("D"), "{before:?}");
        assert_eq!(behind(&world, before, &["session", "delete", "@S"]), unproven("D"), "{before:?}");
        // A member in a sandbox still has its own mailbox.
        let own = ["--session-id", "@S", "message", "poll", "--agent-id", "@bob"];
        assert_eq!(behind(&world, before, &own), ok("No messages found."), "{before:?}");
    }
    assert_eq!(world.mailbox("bob"), Vec::<serde_json::Value>::new());
    // With the /proc of outside the walk goes on outside.
    let bare = ["unshare", "-Urpf"];
    let read = ["--session-id", "@S", "message", "poll", "--agent-id", "@D"];
    assert_eq!(behind(&world, &bare, &read), ok("No messages found."));
    // The person who made the session is who they were.
    assert_eq!(world.run(&["session", "delete", "@S"]), ok("Deleted session <S>. Deregistered 3 agents."));
}

#[test]
fn a11_a_whole_session_in_one_pid_namespace_works_as_anywhere() {
    if !can_unshare() {
        return;
    }
    let world = World::new();
    let cafleet = env!("CARGO_BIN_EXE_cafleet");
    let script = format!(
        "set -e; c={cafleet}; ids=$($c session create --no-tmux); set -- $ids\n\
         $c --session-id $1 agent register --name bob --description d > /dev/null\n\
         $c --session-id $1 message send --agent-id $2 --to 3 --text hello > /dev/null\n\
         $c --session-id $1 message poll --agent-id 3 | tail -1\n\
         $c --session-id $1 message show --agent-id $2 --task-id 1 | tail -1\n\
         $c session delete $1"
    );
    let args = [&UNSHARE[1..], &["sh", "-c", &script]].concat();
    let said = world.said(&world.program(UNSHARE[0], &args).output().expect("run"));
    assert_eq!(said, ok("hello\nhello\nDeleted session <id>. Deregistered 3 agents."));
}

/// In the pane of a member it is the member who speaks, also after `setsid` and in a namespace.
#[test]
fn a11_in_a_members_pane_speaks_the_member_and_nobody_else() {
    let world = World::with_session();
    for name in ["bob", "carol"] {
        world.agent(name);
    }
    // The pane's first process is a shell of ours.
    let cafleet = env!("CARGO_BIN_EXE_cafleet");
    let script = format!(
        "read go; for before in '' 'setsid --wait' {unshare}; do for who in {bob} {d} {carol}; do \
         $before {cafleet} --session-id {s} message poll --agent-id $who 2>&1 | head -1; done; done",
        unshare = if can_unshare() { "'unshare -Urpf --mount-proc'" } else { "" },
        bob = world.id("bob"),
        d = world.id("D"),
        carol = world.id("carol"),
        s = world.id("S"),
    );
    let mut shell = world.program("sh", &["-c", &script]);
    shell.env("TMUX", "/nowhere/sock,1,0").env("TMUX_PANE", "%7");
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("spawn");
    place(&world, "bob", shell.id());
    std::io::Write::write_all(&mut shell.stdin.take().expect("stdin"), b"go\n").expect("write");
    let out = world.said(&shell.wait_with_output().expect("wait")).out;
    let refusal = |who: &str| {
        format!(
            "Error: this process runs in the pane of member <bob> and cannot act as <{who}>; pass --agent-id <bob>"
        )
    };
    let mut lines = out.lines();
    while let Some(first) = lines.next() {
        assert_eq!(first, "No messages found.", "{out}");
        assert_eq!(lines.next(), Some(&*refusal("D")), "{out}");
        assert_eq!(lines.next(), Some(&*refusal("carol")), "{out}");
    }
    assert!(out.lines().count() >= 6, "{out}");
}

/// Puts a member into the pane whose first process is `pid`.
fn place(world: &World, member: &str, pid: u32) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    let started =
        stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19)).expect("start time");
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("boot");
    let sql = format!(
        "INSERT INTO agent_placements (agent_id, director_agent_id, host, tmux_session, tmux_window_id, tmux_pane_id, \
         coding_agent, created_at, tmux_socket, tmux_server_pid, tmux_pane_pid, tmux_pane_started) VALUES \
         ('{}', '{}', '{}', 'main', '@1', '%7', 'claude', '2026-01-01T00:00:00.000000+00:00', '/nowhere/sock', 1, {pid}, \
         '{}/{started}')",
        world.id(member),
        world.id("D"),
        HostId::of(&caliban_process::machine().expect("machine")),
        boot.trim(),
    );
    let done = Command::new("sqlite3").arg(world.database()).arg(sql).status().expect("sqlite3");
    assert!(done.success());
}
