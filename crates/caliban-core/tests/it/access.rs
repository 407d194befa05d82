//! What a call would touch.

use caliban_core::access::Access;

#[test]
fn what_can_change_something_outside_the_conversation() {
    let mcp = |read_only| Access::Mcp { server: "s".to_owned(), tool: "t".to_owned(), read_only };
    for (access, wanted) in [
        (Access::Read("/a".into()), false),
        (Access::Write("/a".into()), true),
        (Access::Command { line: "ls".to_owned(), cwd: "/".into(), outside: None }, true),
        (Access::Fetch { url: "http://a/".to_owned(), host: "a".to_owned() }, false),
        (mcp(true), false),
        (mcp(false), true),
        (Access::Agent, true),
        (Access::AgentInWorktree, true),
        (Access::Nothing, false),
    ] {
        assert_eq!(access.changes_something(), wanted, "{access:?}");
    }
}
