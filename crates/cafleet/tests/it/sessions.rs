//! m01, m03, m04, m11, m12: sessions and the database.

use serde_json::json;

use crate::world::{World, ok, refused};

#[test]
fn m04_outside_tmux_nothing_is_written() {
    let world = World::new();
    let mut expected = refused("cafleet session create must be run inside a tmux session");
    let hint =
        "'cafleet session create --no-tmux' makes a session without a pane; its Director polls for messages";
    expected.err += &format!("hint: {hint}\n");
    assert_eq!(world.run(&["session", "create", "--label", "x"]), expected);
    let said = world.run(&["--json", "session", "create"]);
    let error: serde_json::Value = serde_json::from_str(&said.err).expect("JSON");
    assert_eq!(error["error"]["hint"], hint);
    assert!(!world.path("home").exists());
}

#[test]
fn m04_create_prints_two_ids_and_json_has_the_rest() {
    let world = World::new();
    let text = world.run(&["session", "create", "--no-tmux", "--label", "my-project"]);
    assert_eq!(text, ok("<id>\n<id>"));
    let made = world.json(&["session", "create", "--no-tmux", "--label", "two", "--json"]);
    world.name_session(&made);
    assert_eq!(
        world.mask(&made.to_string()),
        "{\"session_id\":\"<S>\",\"label\":\"two\",\"created_at\":\"<ts>\",\"administrator_agent_id\":\"<ADMIN>\",\
         \"director\":{\"agent_id\":\"<D>\",\"name\":\"Director\",\"description\":\"Root Director of this session\",\
         \"registered_at\":\"<ts>\",\"placement\":null}}"
    );
    let full = world.run(&["session", "create", "--no-tmux", "--full"]);
    assert_eq!(
        full,
        ok(
            "<id>\n<id>\nlabel:         \ncreated_at:    <ts>\ndirector_name: Director\npane:          -\nadministrator: <id>"
        )
    );
}

#[test]
fn m04_list_show_and_delete() {
    let world = World::new();
    assert_eq!(world.run(&["session", "list"]), ok("No sessions found."));
    assert_eq!(world.json(&["session", "list", "--json"]), json!([]));
    let one = world.json(&["session", "create", "--no-tmux", "--label", "first", "--json"]);
    world.name("ONE", one["session_id"].as_str().expect("id"));
    let two = world.json(&["session", "create", "--no-tmux", "--json"]);
    world.name("TWO", two["session_id"].as_str().expect("id"));
    world.name("D2", two["director"]["agent_id"].as_str().expect("id"));
    assert_eq!(
        world.run(&["session", "list"]),
        ok("SESSION_ID                            LABEL  AGENTS  CREATED_AT\n\
            <ONE>  first       2  <ts>\n<TWO>              2  <ts>")
    );
    let rows = world.json(&["--json", "session", "list"]);
    assert_eq!(
        world.mask(&rows.to_string()),
        "[{\"session_id\":\"<ONE>\",\"label\":\"first\",\"created_at\":\"<ts>\",\"agent_count\":2},\
         {\"session_id\":\"<TWO>\",\"label\":null,\"created_at\":\"<ts>\",\"agent_count\":2}]"
    );
    assert_eq!(
        world.run(&["session", "delete", "@TWO"]),
        ok("Deleted session <TWO>. Deregistered 2 agents.")
    );
    assert_eq!(
        world.run(&["session", "delete", "@TWO8"]),
        ok("Deleted session <TWO>. Deregistered 0 agents.")
    );
    assert_eq!(world.json(&["session", "list", "--json"]).as_array().map(Vec::len), Some(1));
    let shown = world.json(&["session", "show", "@TWO", "--json"]);
    assert_eq!(
        world.mask(&shown.to_string()),
        "{\"session_id\":\"<TWO>\",\"label\":null,\"created_at\":\"<ts>\",\"agent_count\":0,\
         \"deleted_at\":\"<ts>\",\"director_agent_id\":\"<D2>\"}"
    );
    assert_eq!(
        world.run(&["session", "show", "@ONE8"]),
        ok(
            "session_id:        <ONE>\nlabel:             first\nagents:            2\ncreated_at:        <ts>\n\
            deleted_at:        -\ndirector_agent_id: <id>"
        )
    );
    let unknown = "00000000-0000-4000-8000-000000000000";
    for verb in ["show", "delete"] {
        let said = world.command(&["session", verb, unknown]).output().expect("run");
        assert_eq!(String::from_utf8_lossy(&said.stderr), format!("Error: session '{unknown}' not found.\n"));
        assert_eq!(world.run(&["session", verb, "abc"]), refused("session 'abc' not found."));
    }
}

#[test]
fn m12_a_deleted_session_takes_nobody_and_keeps_its_messages() {
    let world = World::with_session();
    world.agent("alice");
    world.send("T", "D", "alice", "kept");
    assert_eq!(world.run(&["session", "delete", "@S"]), ok("Deleted session <S>. Deregistered 3 agents."));
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "register", "--name", "late", "--description", "d"]),
        refused("session <S> is deleted")
    );
    assert_eq!(
        world.run(&[
            "--session-id",
            "@S",
            "message",
            "send",
            "--agent-id",
            "@D",
            "--to",
            "@alice",
            "--text",
            "x"
        ]),
        refused("Sender agent not found or not active in session: <D>")
    );
    // Who was there may still read and acknowledge what it has, and is not made to wait for more.
    assert_eq!(
        world.run(&["--session-id", "@S", "message", "poll", "--agent-id", "@alice"]),
        ok("[<T8> | from:<D8> | <ts>]\nkept")
    );
    assert_eq!(
        world.run(&[
            "--session-id",
            "@S",
            "message",
            "ack",
            "--agent-id",
            "@alice",
            "--task-id",
            "@T",
            "--quiet"
        ]),
        ok("<T8>")
    );
    assert_eq!(
        world.run(&["--session-id", "@S", "message", "poll", "--agent-id", "@alice", "--wait", "3600"]),
        ok("No messages found.")
    );
}

#[test]
fn m03_the_database_is_where_the_environment_says() {
    let mut world = World::new();
    world.set("CAFLEET_DATABASE_URL", format!("sqlite:///{}", world.path("else/where.db").display()));
    let head = caliban_store::broker::SCHEMA.version();
    let made = format!("Database created at schema {head}: <dir>/else/where.db");
    assert_eq!(world.run(&["db", "init"]), ok(&made));
    let there = format!("Database already at head (schema {head}): <dir>/else/where.db");
    assert_eq!(world.run(&["db", "init"]), ok(&there));
    assert!(!world.path("home").exists());
    world.set("CAFLEET_DATABASE_URL", "sqlite://");
    assert_eq!(
        world.run(&["db", "init"]),
        refused("no file path in the database URL 'sqlite://'; write sqlite:////absolute/path/registry.db")
    );
    world.set("CAFLEET_DATABASE_URL", "");
    assert_eq!(
        world.json(&["--json", "db", "init"]),
        json!({"database": world.database(), "schema": head, "result": "created"})
    );
}

#[test]
fn m03_a_text_length_that_is_no_number_is_refused() {
    let mut world = World::new();
    world.set("CAFLEET_MAX_TEXT_LEN", "long");
    assert_eq!(
        world.run(&["session", "list"]),
        refused("CAFLEET_MAX_TEXT_LEN must be a whole number, not 'long'")
    );
}

#[test]
fn m01_a_database_is_private_and_made_on_first_use() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::with_session();
    for name in ["registry.db", "registry.db-wal", "registry.db.lock"] {
        let mode = std::fs::metadata(world.database().with_file_name(name)).expect(name).permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}
