//! r11, r12: a full disk and a failing sync, injected with strace.

use std::fs;

use crate::world::{Said, World, ok, refused};

/// Runs a send with a fault.
fn send_with_fault(world: &World, inject: &str) -> Said {
    let trace = world.path("trace");
    let args = [
        "-f",
        "-o",
        trace.to_str().expect("path"),
        "-e",
        inject,
        env!("CARGO_BIN_EXE_cafleet"),
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@D",
        "--to",
        "@bob",
        "--text",
        "faulty",
        "--id",
        "feedc0de-0000-4000-8000-000000000003",
    ];
    let output = world.program("strace", &args).output().expect("strace");
    let injected = fs::read_to_string(&trace).expect("trace").contains("(INJECTED)");
    assert!(injected, "the fault did not happen: {inject}");
    world.said(&output)
}

fn one() -> World {
    let world = World::with_session();
    world.agent("bob");
    world
}

#[test]
fn r12_a_failing_sync_is_not_acknowledged_and_a_retry_makes_one_message() {
    let world = one();
    let said = send_with_fault(&world, "inject=fsync,fdatasync:error=EIO");
    assert_eq!(
        said,
        refused(
            "<dir>/home/.local/share/cafleet/registry.db: disk I/O error (1034); the write is not confirmed; \
                 repeat it safely with --id <id>"
        )
    );
    let retry = [
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@D",
        "--to",
        "@bob",
        "--text",
        "faulty",
        "--id",
        "feedc0de-0000-4000-8000-000000000003",
        "--quiet",
    ];
    assert_eq!(world.run(&retry), ok("feedc0de"));
    assert_eq!(world.mailbox("bob").len(), 1);
}

#[test]
fn r11_a_full_disk_is_said_and_the_next_send_works() {
    let world = one();
    let said = send_with_fault(&world, "inject=pwrite64:error=ENOSPC");
    assert_eq!(
        said,
        refused("the disk is full; nothing was written to <dir>/home/.local/share/cafleet/registry.db")
    );
    assert_eq!(world.mailbox("bob").len(), 0);
    world.send("T", "D", "bob", "room again");
    assert_eq!(world.mailbox("bob").len(), 1);
}

#[test]
fn r11_first_use_on_a_full_disk_leaves_nothing_by_halves() {
    let world = World::new();
    let trace = world.path("trace");
    let args = [
        "-f",
        "-o",
        trace.to_str().expect("path"),
        "-e",
        "inject=pwrite64:error=ENOSPC",
        env!("CARGO_BIN_EXE_cafleet"),
        "session",
        "create",
        "--no-tmux",
    ];
    let output = world.program("strace", &args).output().expect("strace");
    assert_eq!(
        world.said(&output),
        refused("the disk is full; nothing was written to <dir>/home/.local/share/cafleet/registry.db")
    );
    assert_eq!(world.run(&["session", "list"]), ok("No sessions found."));
}

#[test]
fn r02_a_kill_at_every_write_leaves_a_store_that_works() {
    let world = one();
    let mut sent = 0;
    for when in 1..=12 {
        let trace = world.path("trace");
        let inject = format!("inject=pwrite64,fsync,fdatasync:signal=KILL:when={when}");
        let text = format!("m{when}");
        let args = [
            "-f",
            "-o",
            trace.to_str().expect("path"),
            "-e",
            &inject,
            env!("CARGO_BIN_EXE_cafleet"),
            "--session-id",
            "@S",
            "message",
            "send",
            "--agent-id",
            "@D",
            "--to",
            "@bob",
            "--text",
            &text,
            "--quiet",
        ];
        let output = world.program("strace", &args).output().expect("strace");
        let acknowledged = !output.stdout.is_empty();
        let stored = world.mailbox("bob").iter().filter(|task| task["text"] == *text).count();
        assert!(stored <= 1, "{text} is there {stored} times");
        assert!(!acknowledged || stored == 1, "{text} was acknowledged and lost");
        sent += stored;
    }
    world.send("T", "D", "bob", "after");
    assert_eq!(world.mailbox("bob").len(), sent + 1);
}
