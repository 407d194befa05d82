//! The exit codes of the fleet's verbs, as the table in docs/guide/fleet.md has them; and the verbs' short forms.

use testkit::{StepExt, script, status, text};

use crate::fleet::{Fleet, bash, id_of};

#[test]
fn exit_codes_are_those_of_the_table() {
    let fleet = Fleet::new(script![
        text("done").on_first("ends well"),
        status(400).on_first("fails"),
        text("on my way").and_tool("Read", serde_json::json!({"file_path": "README.md"})).on_first("is cut"),
        bash("touch x").on_first("asks"),
        text("again").on_first("ends well"),
    ]);
    let code = |expected: i32, args: &[&str]| {
        let output = fleet.run(args.iter().copied());
        assert_eq!(output.code, expected, "{args:?}: {output:?}");
        output
    };
    let done = fleet.bg("ends well", ["--label", "well"]);
    let failed = fleet.bg("fails", ["--label", "twin"]);
    let cut = fleet.bg("is cut", ["--max-turns", "1"]);
    let asks = fleet.bg("asks", ["--label", "asker"]);

    // How agents end.
    code(0, &["agents", "wait", &done]);
    code(1, &["agents", "wait", &failed]);
    code(4, &["agents", "wait", &cut]);
    fleet.wait_for_ask(&asks);
    code(124, &["agents", "wait", &asks, "--timeout", "0.01"]);
    code(124, &["agents", "wait", &asks, &done, "--timeout", "0.01", "--json"]);
    code(0, &["agents", "wait", &asks, &done, "--any"]);
    let worker = i32::try_from(fleet.row(&asks)["pid"].as_i64().unwrap()).unwrap();
    let kill = format!("kill -9 {worker}");
    testkit::ProgramRun::new(fleet.place.env.program("sh")).args(["-c", &kill]).output().ok();
    fleet.wait_for(&asks, "crashed");
    code(1, &["agents", "wait", &asks]);
    code(0, &["resume", &asks]);
    fleet.wait_for_ask(&asks);

    // What there is not, and what is more than one.
    for args in [
        &["attach", "nobody"][..],
        &["logs", "nobody"],
        &["kill", "nobody"],
        &["stop", "nobody", "--json"],
        &["respawn", "nobody"],
        &["resume", "nobody"],
        &["rm", "nobody"],
        &["agents", "send", "nobody", "hello"],
        &["agents", "wait", "nobody"],
        &["agents", "diff", "nobody"],
        &["agents", "merge", "nobody"],
        &["approve", "nobody"],
        &["approve", "99"],
        &["deny", "99"],
        &["approvals", "99"],
        &["approve", &done],
    ] {
        let said = code(1, args);
        assert!(said.stderr.starts_with("error: "), "{args:?}: {said:?}");
    }
    let second = fleet.place.caliban().args(["--bg", "ends well", "--label", "well"]).output().ok();
    let second = id_of(&second);
    fleet.run(["agents", "wait", &second]).ok();
    let several = code(1, &["logs", "well"]);
    assert!(several.stderr.contains(&done) && several.stderr.contains(&second), "{several:?}");

    // What the state does not allow.
    code(1, &["rm", &asks]);
    code(1, &["resume", &asks]);
    code(1, &["agents", "merge", &asks]);
    code(1, &["agents", "send", &done, "hello"]);
    code(1, &["rm", &done, "nobody"]);

    // A wrong command line.
    for args in [
        &["agents", "wait"][..],
        &["agents", "wait", &asks, "--timeout", "soon"],
        &["kill", &asks, "--grace", "2h"],
        &["agents", "merge", &second, "--into", "nowhere"],
        &["agents", "send", &asks, " "],
        &["agents", "spawn", "--prompt", " "],
        &["approve", "1", "--reason", "x"],
        &["agents", "nonsense"],
        &["agents", "list", "--wach"],
    ] {
        code(2, args);
    }

    // Killed; the second time there is nothing to do.
    code(0, &["kill", &asks]);
    code(0, &["kill", &asks]);
    code(1, &["agents", "wait", &asks]);
    code(0, &["rm", &asks, &second]);
    code(0, &["daemon", "status"]);
    code(0, &["daemon", "stop"]);
    code(0, &["daemon", "stop"]);
    code(1, &["daemon", "status"]);
    code(1, &["daemon", "status", "--json"]);
}

#[test]
fn an_interrupted_wait_says_130() {
    let fleet = Fleet::new(script![bash("touch x")]);
    let id = fleet.bg("asks", []);
    fleet.wait_for_ask(&id);
    let mut waits = fleet.place.env.start("caliban", ["agents", "wait", &id]).dir(&fleet.place.repo).spawn();
    waits.wait_for_stderr("needs you");
    waits.signal(testkit::Signal::INT);
    waits.wait().expect_code(130);
}

#[test]
fn verbs_of_agents_go_without_agents() {
    let fleet = Fleet::new(script![text("done").on_first("the task")]);
    let args = fleet.place.server.args(fleet.place.protocol);
    let spawn = fleet.place.env.start("caliban", ["spawn", "--prompt", "the task"]).args(&args);
    let id = id_of(&spawn.dir(&fleet.place.repo).output().ok());
    assert_eq!(fleet.run(["wait", &id]).ok().stdout, format!("{id}  done  finished\n"));
    for (short, long) in [
        (&["diff", &id, "--json"][..], &["agents", "diff", &id, "--json"][..]),
        (&["merge", &id], &["agents", "merge", &id]),
        (&["send", &id, "hello"], &["agents", "send", &id, "hello"]),
        (&["wait", "--help"], &["agents", "wait", "--help"]),
        (&["list", "--wach"], &["agents", "list", "--wach"]),
    ] {
        let (one, other) = (fleet.run(short.iter().copied()), fleet.run(long.iter().copied()));
        assert_eq!(
            (one.code, &one.stdout, &one.stderr),
            (other.code, &other.stdout, &other.stderr),
            "{short:?}"
        );
    }
    let repo = fleet.place.repo.to_str().unwrap();
    for line in [&["--debug", "-C", repo, "list", "--json"][..], &[&format!("--cd={repo}"), "list", "--json"]]
    {
        let rows: Vec<serde_json::Value> = fleet.place.env.run(line).ok().json();
        assert_eq!(rows.len(), 1, "{line:?}");
    }
    // As for every verb: a prompt of this one word goes behind -p.
    let asked = fleet.place.ask("list", []);
    assert!(asked.stdout.is_empty() && asked.code == 1, "{asked:?}");
    assert!(
        fleet.place.server.requests().iter().any(|request| request.body.to_string().contains("\"list\""))
    );
}
