//! The workflow of the seed document, command for command.

use crate::panes::Tmux;
use crate::world::ok;

#[test]
fn m04_m05_m06_the_seeds_own_walk() {
    let tmux = Tmux::start();
    let world = &tmux.world;
    // Verify the pane, create a session.
    assert_eq!(
        world.run(&["doctor"]),
        ok("tmux:\n  session_name: main\n  window_id: @0\n  pane_id: %0\n  TMUX_PANE: %0")
    );
    let text = world.run(&["session", "create", "--label", "my-project"]);
    assert_eq!(text, ok("<id>\n<id>"));
    let made = world.json(&["session", "create", "--label", "my-project", "--json"]);
    world.name_session(&made);
    // Register with the broker.
    let agent = world.run(&[
        "--session-id",
        "@S",
        "agent",
        "register",
        "--name",
        "Code Review Agent",
        "--description",
        "Reviews pull requests",
    ]);
    assert_eq!(agent, ok("Agent registered successfully!\nagent_id: <id>\nname: Code Review Agent"));
    let me = world.json(&[
        "--session-id",
        "@S",
        "--json",
        "agent",
        "register",
        "--name",
        "My Agent",
        "--description",
        "...",
    ]);
    world.name("ME", me["agent_id"].as_str().expect("id"));
    let target = world.json(&[
        "--session-id",
        "@S",
        "--json",
        "agent",
        "register",
        "--name",
        "Claude-A",
        "--description",
        "one",
    ]);
    world.name("TARGET", target["agent_id"].as_str().expect("id"));
    // Discover other agents.
    let listed = world.run(&["--session-id", "@S", "--json", "agent", "list", "--agent-id", "@ME"]);
    assert!(listed.out.contains("{\"id\":\"<D8>\",\"name\":\"Director\",\"description\":\"Root Director of this session\",\"status\":\"active\",\"coding_agent\":\"claude\",\"number\":1}"), "{}", listed.out);
    let shown = world.run(&["--session-id", "@S", "agent", "show", "--agent-id", "@ME", "--id", "@TARGET"]);
    assert_eq!(shown, ok("<TARGET8> Claude-A active"));
    // Send, poll in every documented form, acknowledge.
    let sent = world.run(&[
        "--session-id",
        "@S",
        "message",
        "send",
        "--agent-id",
        "@ME",
        "--to",
        "@TARGET",
        "--text",
        "Please review PR #42",
    ]);
    world.name("T", world.mailbox("TARGET")[0]["task_id"].as_str().expect("id"));
    let task = "[<T8> | from:<ME8> | <ts>]\nPlease review PR #42";
    assert_eq!((sent.code, sent.err.as_str()), (0, ""));
    for more in [&[][..], &["--since", "2026-03-28T12:00:00+00:00"], &["--page-size", "10"]] {
        let poll = [&["--session-id", "@S", "message", "poll", "--agent-id", "@TARGET"][..], more].concat();
        assert_eq!(world.run(&poll), ok(task), "{more:?}");
    }
    let pretty =
        world.run(&["--session-id", "@S", "--json", "--pretty", "message", "poll", "--agent-id", "@TARGET"]);
    assert!(pretty.out.starts_with("[\n  {\n    \"id\": \"<T8>\",\n"), "{}", pretty.out);
    let full = world.run(&["--session-id", "@S", "message", "poll", "--agent-id", "@TARGET", "--full"]);
    assert!(full.out.starts_with("  id:       <T>\n  state:    input_required\n"), "{}", full.out);
    assert_eq!(
        world.run(&[
            "--session-id",
            "@S",
            "message",
            "ack",
            "--agent-id",
            "@TARGET",
            "--task-id",
            "@T",
            "--quiet"
        ]),
        ok("<T8>")
    );
    // Leave, tear down.
    assert_eq!(
        world.run(&["--session-id", "@S", "agent", "deregister", "--agent-id", "@ME"]),
        ok("Agent deregistered successfully.")
    );
    assert_eq!(world.run(&["session", "delete", "@S"]), ok("Deleted session <S>. Deregistered 4 agents."));
}
