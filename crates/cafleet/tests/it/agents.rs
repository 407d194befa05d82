//! m05: agents.

use crate::world::{World, ok, refused};

#[test]
fn m05_register_list_and_show() {
    let world = World::with_session();
    let said = world.run(&[
        "--session-id",
        "@S",
        "agent",
        "register",
        "--name",
        "Code Review Agent",
        "--description",
        "Reviews pull requests",
    ]);
    assert_eq!(said, ok("Agent registered successfully!\nagent_id: <id>\nname: Code Review Agent"));
    let long = "x".repeat(61);
    let made = world.json(&[
        "--session-id",
        "@S",
        "--json",
        "agent",
        "register",
        "--name",
        "bob",
        "--description",
        &long,
        "--skills",
        "[\"rust\"]",
    ]);
    world.name("bob", made["agent_id"].as_str().expect("id"));
    assert_eq!(
        world.mask(&made.to_string()),
        "{\"agent_id\":\"<bob>\",\"name\":\"bob\",\"registered_at\":\"<ts>\",\"number\":4}"
    );

    let listed = world.run(&["--session-id", "@S8", "agent", "list", "--agent-id", "@bob8"]);
    let lines: Vec<&str> = listed.out.split("\n\n").collect();
    assert_eq!(lines.len(), 4, "{}", listed.out);
    assert_eq!(
        (lines[0], lines[1], lines[3]),
        ("<D8> Director active", "<ADMIN8> Administrator active", "<bob8> bob active\n")
    );
    let shown = world.run(&["--session-id", "@S", "agent", "show", "--agent-id", "@bob", "--id", "@bob8"]);
    assert_eq!(shown, ok("<bob8> bob active"));
    let full =
        world.run(&["--session-id", "@S", "agent", "show", "--agent-id", "@D", "--id", "@bob", "--full"]);
    assert_eq!(
        full,
        ok(&format!(
            "  agent_id:        <bob>\n  name:            bob\n  description:     {long}\n  status:          active\n  \
         agent_card_json: {{\"name\":\"bob\",\"description\":\"{long}\",\"skills\":[\"rust\"]}}\n  number:          4"
        ))
    );
    let compact =
        world.run(&["--session-id", "@S", "--json", "agent", "show", "--agent-id", "@D", "--id", "@bob"]);
    assert_eq!(
        compact,
        ok(&format!(
            "{{\"id\":\"<bob8>\",\"name\":\"bob\",\"description\":\"{}\\u2026\",\"status\":\"active\",\"number\":4}}",
            "x".repeat(60)
        ))
    );
    let json = world.run(&[
        "--session-id",
        "@S",
        "--json",
        "agent",
        "show",
        "--agent-id",
        "@D",
        "--id",
        "@ADMIN",
        "--full",
    ]);
    assert_eq!(
        json,
        ok(
            "{\"agent_id\":\"<ADMIN>\",\"name\":\"Administrator\",\"description\":\"Built-in Administrator of this session\",\
         \"status\":\"active\",\"registered_at\":\"<ts>\",\"agent_card_json\":{\"name\":\"Administrator\",\
         \"description\":\"Built-in Administrator of this session\",\"skills\":[],\
         \"cafleet\":{\"kind\":\"builtin-administrator\"}},\"number\":2,\"kind\":\"builtin-administrator\",\"placement\":null}"
        )
    );
}

#[test]
fn m05_the_director_and_the_administrator_stay() {
    let world = World::with_session();
    let leave = |who: &str| world.run(&["--session-id", "@S", "agent", "deregister", "--agent-id", who]);
    assert_eq!(
        leave("@D"),
        refused("cannot deregister the root Director; use 'cafleet session delete' instead.")
    );
    assert_eq!(leave("@ADMIN"), refused("Administrator cannot be deregistered"));
    world.agent("bob");
    assert_eq!(leave("@bob"), ok("Agent deregistered successfully."));
    assert_eq!(leave("@bob"), refused("agent <bob> not found or already deregistered."));
    assert_eq!(leave("@S"), refused("agent <S> is not a member of session <S>."));
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "show", "--agent-id", "@D", "--id", "@bob"]),
        refused("Agent <bob> not found")
    );
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "list", "--agent-id", "@bob"]),
        ok("<D8> Director active\n\n<ADMIN8> Administrator active")
    );
}

#[test]
fn m05_a10_nobody_else_is_called_administrator() {
    let world = World::with_session();
    let register = |name: &str| {
        world.run(&["--session-id", "@S", "agent", "register", "--name", name, "--description", "d"])
    };
    for name in ["Administrator", "administrator", " ADMINISTRATOR "] {
        let shown = name.trim();
        assert_eq!(
            register(name),
            refused(&format!("the name '{shown}' is reserved for the built-in agent; choose another"))
        );
    }
    // Nor anything that a reader takes for it: Cyrillic, fullwidth and mathematical letters, a small L for a capital I.
    for name in [
        "\u{410}dministrator",
        "Аdmіnіstrаtоr",
        "Ａｄｍｉｎｉｓｔｒａｔｏｒ",
        "𝐀𝐝𝐦𝐢𝐧𝐢𝐬𝐭𝐫𝐚𝐭𝐨𝐫",
        "ADMlNlSTRATOR",
        "Adrninistrator",
    ] {
        assert_eq!(
            register(name),
            refused(&format!("the name '{name}' is reserved for the built-in agent; choose another"))
        );
    }
    for name in ["Administrators", "Администратор", "管理者"] {
        assert_eq!(register(name).code, 0, "{name}");
    }
    // Not with an invisible character inside either.
    assert_eq!(
        register("Admin\u{200b}istrator"),
        refused("--name contains control or invisible characters: 'Admin<U+200B>istrator'")
    );
    assert_eq!(register("a\nb"), refused("--name contains control or invisible characters: 'a␊b'"));
    assert_eq!(register("  "), refused("--name must not be empty"));
    assert_eq!(register(&"n".repeat(101)), refused("--name is longer than 100 characters"));
}

#[test]
fn m05_bad_sessions_skills_and_members_are_refused() {
    let world = World::with_session();
    let register = |session: &str, more: &[&str]| {
        world.run(
            &[&["--session-id", session, "agent", "register", "--name", "a", "--description", "d"][..], more]
                .concat(),
        )
    };
    assert_eq!(register("nope", &[]), refused("Session 'nope' not found."));
    assert_eq!(register("00000000", &[]), refused("Session '00000000' not found."));
    assert_eq!(
        register("@S", &["--skills", "{"]),
        refused("Invalid JSON in --skills: EOF while parsing an object at line 1 column 1")
    );
    assert_eq!(register("@S", &["--skills", "{}"]), refused("Invalid JSON in --skills: a list is expected"));
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "list", "--agent-id", "nobody"]),
        refused("agent nobody is not a member of session <S>.")
    );
    // An agent of another session is a stranger here.
    let other = world.json(&["session", "create", "--no-tmux", "--json"]);
    world.name("X", other["director"]["agent_id"].as_str().expect("id"));
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "list", "--agent-id", "@X"]),
        refused("agent <X> is not a member of session <S>.")
    );
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "show", "--agent-id", "@D", "--id", "@X"]),
        refused("Agent <X> not found")
    );
}
