//! Short numbers beside the ids: 1, 2, 3 … for the agents of a session and for its messages.

use serde_json::{Value, json};

use crate::world::{World, ok, refused};

fn run(world: &World, args: &[&str]) -> crate::world::Said {
    world.run(&[&["--session-id", "@S"], args].concat())
}

/// Two sessions: the numbers of one say nothing about the other.
fn two_sessions() -> World {
    let world = World::with_session();
    for name in ["alice", "bob"] {
        world.agent(name);
    }
    let other = world.json(&["session", "create", "--no-tmux", "--json"]);
    world.name("OTHER", other["session_id"].as_str().expect("id"));
    world
}

fn numbers(rows: &Value) -> Vec<i64> {
    rows.as_array().expect("rows").iter().map(|row| row["number"].as_i64().expect("number")).collect()
}

#[test]
fn m06_a_number_is_taken_wherever_an_id_is() {
    let world = two_sessions();
    let agents = world.json(&["--session-id", "@S", "--json", "agent", "list", "--agent-id", "4"]);
    assert_eq!(numbers(&agents), [1, 2, 3, 4]);
    let elsewhere = world.json(&["--session-id", "@OTHER", "--json", "agent", "list", "--agent-id", "2"]);
    assert_eq!(numbers(&elsewhere), [1, 2]);
    assert_eq!(run(&world, &["agent", "show", "--agent-id", "1", "--id", "3"]), ok("<alice8> alice active"));
    for text in ["one", "two", "three"] {
        let sent = run(&world, &["message", "send", "--agent-id", "3", "--to", "4", "--text", text]);
        assert_eq!(sent.code, 0, "{}", sent.err);
    }
    // A message of another session has its own first number.
    let sent = world.json(&[
        "--session-id",
        "@OTHER",
        "--json",
        "message",
        "send",
        "--agent-id",
        "1",
        "--to",
        "2",
        "--text",
        "x",
    ]);
    assert_eq!(sent["task"]["number"], json!(1));
    let polled = world.json(&["--session-id", "@S", "--json", "message", "poll", "--agent-id", "4"]);
    assert_eq!(numbers(&polled), [3, 2, 1]);
    assert_eq!(run(&world, &["message", "ack", "--agent-id", "4", "--task-id", "2", "--quiet"]).code, 0);
    assert_eq!(run(&world, &["message", "cancel", "--agent-id", "3", "--task-id", "3"]).code, 0);
    let left = world.json(&["--session-id", "@S", "--json", "message", "poll", "--agent-id", "4"]);
    assert_eq!(numbers(&left), [1]);
    let shown = run(&world, &["message", "show", "--agent-id", "4", "--task-id", "2"]);
    assert!(shown.out.ends_with("| state:completed]\ntwo\n"), "{}", shown.out);
    // A retry by number is the same message.
    let id = "0a1b2c3d-0000-4000-8000-00000000000f";
    let send = ["message", "send", "--agent-id", "3", "--to", "4", "--text", "four", "--id", id, "--quiet"];
    assert_eq!((run(&world, &send), run(&world, &send)), (ok("0a1b2c3d"), ok("0a1b2c3d")));
    assert_eq!(world.mailbox("bob")[0]["number"], json!(4));
    assert_eq!(world.mailbox("bob").len(), 4);
    // What has no such number is not found, in the words of each command.
    assert_eq!(
        run(&world, &["message", "ack", "--agent-id", "4", "--task-id", "9"]),
        refused("Task 9 not found")
    );
    assert_eq!(
        run(&world, &["message", "poll", "--agent-id", "9"]),
        refused("agent 9 is not a member of session <S>.")
    );
    assert_eq!(
        run(&world, &["message", "send", "--agent-id", "3", "--to", "9", "--text", "x"]),
        refused("Destination agent not found: 9")
    );
    assert_eq!(run(&world, &["agent", "show", "--agent-id", "1", "--id", "0"]).code, 1);
    // A number is nobody else's when its agent has left.
    assert_eq!(run(&world, &["agent", "deregister", "--agent-id", "4"]).code, 0);
    world.agent("carol");
    assert_eq!(run(&world, &["agent", "show", "--agent-id", "1", "--id", "5"]), ok("<carol8> carol active"));
}

#[test]
fn a_number_that_begins_another_ones_id_is_ambiguous() {
    let world = two_sessions();
    world.send("T", "alice", "bob", "x");
    // Message 1234 of the session, and one whose id begins with 1234.
    let make = |id: &str, number: i64| {
        format!(
            "INSERT INTO tasks (task_id, context_id, from_agent_id, to_agent_id, type, created_at, status_state, \
             status_timestamp, text, delivery_state, number) SELECT '{id}', context_id, from_agent_id, to_agent_id, type, \
             created_at, status_state, status_timestamp, text, delivery_state, {number} FROM tasks WHERE number = 1;"
        )
    };
    let (one, other) = ("12345678-0000-4000-8000-000000000001", "aaaaaaaa-0000-4000-8000-000000000002");
    let sql = make(one, 7) + &make(other, 1234);
    let database = world.database();
    let done = world.program("sqlite3", &[database.to_str().expect("path"), &sql]).status().expect("sqlite3");
    assert!(done.success());
    let show = |id: &str| run(&world, &["message", "show", "--agent-id", "@bob", "--task-id", id, "--full"]);
    let candidates = world.mask(&format!("{one}, {other}"));
    assert_eq!(show("1234"), refused(&format!("'1234' is ambiguous; it could be {candidates}")));
    assert!(show("12345678").out.contains("number:   7"));
    assert!(show("7").out.contains("number:   7"));
    assert!(show("aaaa").out.contains("number:   1234"));
}

/// A database as schema 3 had it, with two sessions, agents and messages in them.
#[test]
fn r22_an_older_database_is_upgraded_whole_or_not_at_all() {
    let world = World::new();
    let database = world.database();
    std::fs::create_dir_all(database.parent().expect("parent")).expect("mkdir");
    let path = database.to_str().expect("path");
    let sql = |sql: &str| {
        let done = world.program("sqlite3", &["-bail", path, sql]).output().expect("sqlite3");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let id = |n: u32| format!("00000000-0000-4000-8000-{n:012}");
    let ts = "2026-01-01T00:00:00.000000+00:00";
    sql(caliban_store::broker::SCHEMA.tables);
    sql(&format!(
        "PRAGMA application_id = {}; PRAGMA user_version = 3",
        caliban_store::broker::SCHEMA.application_id
    ));
    for (session, agents) in [(1, [11, 12]), (2, [21, 22])] {
        sql(&format!("INSERT INTO sessions (session_id, created_at) VALUES ('{}', '{ts}')", id(session)));
        for agent in agents {
            sql(&format!(
                "INSERT INTO agents (agent_id, session_id, name, description, status, kind, registered_at, agent_card_json) \
                 VALUES ('{}', '{}', 'a{agent}', 'd', 'active', 'user', '{ts}', '{{}}')",
                id(agent),
                id(session)
            ));
        }
    }
    for (task, from, to) in [(101, 11, 12), (102, 21, 22), (103, 12, 11), (104, 22, 21), (105, 11, 12)] {
        sql(&format!(
            "INSERT INTO tasks (task_id, context_id, from_agent_id, to_agent_id, type, created_at, status_state, \
             status_timestamp, text, delivery_state) VALUES ('{}', '{}', '{}', '{}', 'unicast', '{ts}', \
             'input_required', '{ts}', 't{task}', 'stored')",
            id(task),
            id(to),
            id(from),
            id(to)
        ));
    }
    // Something is in the way of the last step: nothing of the upgrade is left.
    sql("CREATE INDEX tasks_by_number ON sessions (label)");
    assert_eq!(world.run(&["session", "list"]).code, 1);
    assert_eq!(
        sql("PRAGMA user_version; SELECT COUNT(*) FROM pragma_table_info('tasks') WHERE name = 'number'"),
        "3\n0\n"
    );
    sql("DROP INDEX tasks_by_number");
    let head = caliban_store::broker::SCHEMA.version();
    assert_eq!(
        world.run(&["--json", "db", "init"]),
        ok(&format!(
            "{{\"database\":\"<dir>/home/.local/share/cafleet/registry.db\",\"schema\":{head},\"result\":\"upgraded\"}}"
        ))
    );
    world.name("S", &id(1));
    let polled = |session: u32, agent: u32| {
        let (session, agent) = (id(session), id(agent));
        let rows = world.json(&["--session-id", &session, "--json", "message", "poll", "--agent-id", &agent]);
        rows.as_array()
            .expect("rows")
            .iter()
            .map(|row| (row["text"].as_str().expect("text").to_owned(), row["number"].as_i64()))
            .collect::<Vec<_>>()
    };
    assert_eq!(polled(1, 12), [("t105".to_owned(), Some(3)), ("t101".to_owned(), Some(1))]);
    assert_eq!(polled(1, 11), [("t103".to_owned(), Some(2))]);
    assert_eq!(polled(2, 21), [("t104".to_owned(), Some(2))]);
    // New ones go on where the old ones end.
    let sent = world.json(&[
        "--session-id",
        &id(2),
        "--json",
        "message",
        "send",
        "--agent-id",
        "1",
        "--to",
        "2",
        "--text",
        "x",
    ]);
    assert_eq!(sent["task"]["number"], json!(3));
    world.agent("new");
    let agents = world.json(&["--session-id", "@S", "--json", "agent", "list", "--agent-id", "@new"]);
    assert_eq!(numbers(&agents), [1, 2, 3]);
}
