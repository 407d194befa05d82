//! Many at once: r09, r10, first use by fifty, and what a kill leaves.

use std::collections::HashSet;
use std::io::Read;
use std::process::{Child, Stdio};

use serde_json::json;

use crate::world::{World, eventually, ok, refused};

fn start(world: &World, args: &[&str]) -> Child {
    world.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("spawn")
}

#[test]
fn m01_fifty_processes_come_first_at_once() {
    let world = World::new();
    let children: Vec<Child> = (0..50)
        .map(|n| start(&world, &["session", "create", "--no-tmux", "--label", &format!("s{n}")]))
        .collect();
    for child in children {
        assert_eq!(world.said(&child.wait_with_output().expect("output")), ok("<id>\n<id>"));
    }
    assert_eq!(world.json(&["session", "list", "--json"]).as_array().map(Vec::len), Some(50));
}

#[test]
fn r10_eight_senders_lose_nothing_and_keep_their_order() {
    const SENDERS: usize = 8;
    const EACH: usize = 200;
    let world = World::with_session();
    world.agent("bob");
    for n in 0..SENDERS {
        world.agent(&format!("sender{n}"));
    }
    let done: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SENDERS)
            .map(|n| {
                // A world is not shared between threads; its commands are made up front.
                let commands: Vec<_> = (0..EACH)
                    .map(|k| {
                        let (from, text) = (format!("@sender{n}"), format!("{k}"));
                        world.command(&[
                            "--session-id",
                            "@S",
                            "message",
                            "send",
                            "--agent-id",
                            &from,
                            "--to",
                            "@bob",
                            "--text",
                            &text,
                            "--quiet",
                        ])
                    })
                    .collect();
                scope.spawn(move || {
                    let failures = commands.into_iter().filter_map(|mut command| {
                        let output = command.output().expect("run");
                        (!output.status.success())
                            .then(|| String::from_utf8_lossy(&output.stderr).into_owned())
                    });
                    (n, failures.collect())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("join")).collect()
    });
    for (n, failures) in done {
        assert_eq!(failures, Vec::<String>::new(), "sender {n}");
    }
    let mut seen: Vec<Vec<usize>> = vec![Vec::new(); SENDERS];
    let mut after = "0".to_owned();
    let mut last_seq = 0;
    loop {
        let page = world.json(&[
            "--session-id",
            "@S",
            "--json",
            "message",
            "poll",
            "--agent-id",
            "@bob",
            "--after",
            &after,
            "--full",
            "--page-size",
            "500",
        ]);
        let page = page.as_array().expect("array").clone();
        for task in &page {
            let from = task["from_agent_id"].as_str().expect("from");
            let n = (0..SENDERS).find(|n| world.id(&format!("sender{n}")) == from).expect("known sender");
            seen[n].push(task["text"].as_str().expect("text").parse().expect("number"));
            let seq = task["seq"].as_i64().expect("seq");
            assert!(seq > last_seq);
            last_seq = seq;
        }
        match page.last() {
            Some(task) => after = task["seq"].to_string(),
            None => break,
        }
    }
    for (n, numbers) in seen.into_iter().enumerate() {
        assert_eq!(numbers, (0..EACH).collect::<Vec<_>>(), "sender {n}");
    }
}

#[test]
fn r09_of_ack_and_cancel_exactly_one_wins() {
    let world = World::with_session();
    world.agent("bob");
    for round in 0..20 {
        let name = format!("T{round}");
        world.send(&name, "D", "bob", "x");
        let task = format!("@{name}");
        let ack = start(
            &world,
            &["--session-id", "@S", "message", "ack", "--agent-id", "@bob", "--task-id", &task, "--quiet"],
        );
        let cancel = start(
            &world,
            &["--session-id", "@S", "--json", "message", "cancel", "--agent-id", "@D", "--task-id", &task],
        );
        let ack = world.said(&ack.wait_with_output().expect("output"));
        let cancel = world.said(&cancel.wait_with_output().expect("output"));
        let state = world.mailbox("bob")[0]["status_state"].as_str().expect("state").to_owned();
        match state.as_str() {
            "completed" => {
                assert_eq!(ack, ok(&format!("<{name}8>")));
                assert_eq!(cancel.code, 1);
                assert!(cancel.err.contains("Cannot cancel task in state completed"), "{}", cancel.err);
            }
            "canceled" => {
                assert_eq!(ack, refused("Cannot ACK task in state canceled"));
                assert_eq!(cancel.code, 0);
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
fn r09_two_consumers_acknowledge_once() {
    let world = World::with_session();
    world.agent("bob");
    for round in 0..10 {
        let name = format!("T{round}");
        world.send(&name, "D", "bob", "x");
        let task = format!("@{name}");
        let args =
            ["--session-id", "@S", "message", "ack", "--agent-id", "@bob", "--task-id", &task, "--quiet"];
        let both = [start(&world, &args), start(&world, &args)];
        let mut said: Vec<_> =
            both.into_iter().map(|child| world.said(&child.wait_with_output().expect("output"))).collect();
        said.sort_by_key(|said| said.code);
        assert_eq!(said, [ok(&format!("<{name}8>")), refused("Cannot ACK task in state completed")]);
    }
}

#[test]
fn r09_the_same_id_twice_is_one_message() {
    let world = World::with_session();
    world.agent("bob");
    world.agent("eve");
    let id = "feedc0de-0000-4000-8000-000000000001";
    let args = [
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@D",
        "--to",
        "@bob",
        "--text",
        "once",
        "--id",
        id,
        "--quiet",
    ];
    let both = [start(&world, &args), start(&world, &args)];
    for child in both {
        assert_eq!(world.said(&child.wait_with_output().expect("output")), ok("feedc0de"));
    }
    assert_eq!(world.mailbox("bob").len(), 1);
    // A different message under the same id is not taken for it.
    let taken = refused("--id <id> is already used by a different message; nothing was sent");
    for (from, to, text) in [("@D", "@bob", "twice"), ("@D", "@eve", "once"), ("@eve", "@bob", "once")] {
        let said = world.run(&[
            "--session-id",
            "@S",
            "message",
            "send",
            "--agent-id",
            from,
            "--to",
            to,
            "--text",
            text,
            "--id",
            id,
        ]);
        assert_eq!(said, taken);
    }
    assert_eq!((world.mailbox("bob").len(), world.mailbox("eve").len()), (1, 0));
    // A retry is a retry even when the recipient has left; a new message to it is not.
    assert_eq!(world.run(&["--session-id", "@S", "agent", "deregister", "--agent-id", "@bob"]).code, 0);
    assert_eq!(world.run(&args), ok("feedc0de"));
    let new = world.run(&[
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@D",
        "--to",
        "@bob",
        "--text",
        "once",
    ]);
    assert_eq!(new, refused("Destination agent not found: <bob>"));
}

#[test]
fn r09_a_kill_between_commit_and_answer_and_a_retry_make_one_message() {
    let world = World::with_session();
    world.agent("bob");
    let id = "feedc0de-0000-4000-8000-000000000002";
    let args = [
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@D",
        "--to",
        "@bob",
        "--text",
        "once",
        "--id",
        id,
        "--quiet",
    ];
    // The answer goes into a pipe that is full, so the sender hangs between commit and answer.
    let (mut reader, writer) = std::io::pipe().expect("pipe");
    fill(&writer);
    let mut child = world.command(&args).stdout(Stdio::from(writer)).spawn().expect("spawn");
    eventually("the commit", || (world.mailbox("bob").len() == 1).then_some(()));
    assert_eq!(child.try_wait().expect("wait"), None, "the sender should still hang");
    child.kill().expect("kill");
    child.wait().expect("wait");
    let mut said = Vec::new();
    reader.read_to_end(&mut said).expect("read");
    assert!(said.iter().all(|byte| *byte == b'.'), "no answer got through");
    assert_eq!(world.run(&args), ok("feedc0de"));
    let mailbox = world.mailbox("bob");
    assert_eq!(mailbox.iter().map(|task| &task["task_id"]).collect::<Vec<_>>(), [&json!(id)]);
}

/// Writes into a pipe until nothing more fits.
fn fill(pipe: &std::io::PipeWriter) {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let flags = fcntl_getfl(pipe).expect("flags");
    fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("flags");
    while rustix::io::write(pipe, &[b'.'; 4096]).is_ok() {}
    while rustix::io::write(pipe, b".").is_ok() {}
    fcntl_setfl(pipe, flags).expect("flags");
}

#[test]
fn r01_senders_killed_at_random_lose_nothing_that_was_acknowledged() {
    let world = World::with_session();
    world.agent("bob");
    let mut acknowledged = HashSet::new();
    for round in 0..40_u32 {
        let text = format!("m{round}");
        let mut child = start(
            &world,
            &[
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
            ],
        );
        // Each round a little later: the kill falls into every part of the command.
        let until = std::time::Instant::now() + std::time::Duration::from_micros(u64::from(round) * 250);
        while std::time::Instant::now() < until {
            std::hint::spin_loop();
        }
        // It may have ended by itself.
        let _ = child.kill();
        let mut out = String::new();
        child.stdout.take().expect("stdout").read_to_string(&mut out).expect("read");
        child.wait().expect("wait");
        if out.ends_with('\n') {
            acknowledged.insert(text);
        }
    }
    let stored: Vec<String> =
        world.mailbox("bob").iter().map(|task| task["text"].as_str().expect("text").to_owned()).collect();
    let distinct: HashSet<String> = stored.iter().cloned().collect();
    assert_eq!(stored.len(), distinct.len(), "nothing twice");
    assert_eq!(acknowledged.difference(&distinct).count(), 0);
    assert_eq!(
        world
            .run(&[
                "--session-id",
                "@S",
                "message",
                "send",
                "--agent-id",
                "@D",
                "--to",
                "@bob",
                "--text",
                "after",
                "--quiet"
            ])
            .code,
        0
    );
}
