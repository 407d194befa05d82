//! The screen at several sizes, as a whole.

use caliban_acp::v1::{
    Cost, Diff, Meta, Plan, PlanEntry, PlanEntryPriority, PlanEntryStatus, SessionUpdate, ToolCallContent,
    ToolCallUpdateFields, ToolKind, UsageUpdate,
};
use caliban_tui::events::{AgentEvent, BackgroundRow, BackgroundStatus};
use crossterm::event::KeyCode;
use serde_json::json;

use crate::world::World;

const SIZES: [(u16, u16); 4] = [(60, 20), (80, 24), (120, 40), (200, 60)];

const ANSWER: &str = "\
## What was wrong

The parser read **one byte too many** when a line ended with `\\r\\n`; see [the rule](https://example.org/rfc).

1. `read_line` keeps the `\\r`
2. the caller compares with `\"\"`

```rust
fn line(text: &str) -> &str {
    text.trim_end_matches(['\\r', '\\n']) // both
}
```

| case | before | now |
|------|--------|-----|
| `\\n`  | ok     | ok  |
| `\\r\\n` | wrong | ok |
";

fn session(size: (u16, u16)) -> World {
    let mut world = World::new(size);
    world.says("the parser test fails on windows, please look at @src/parser.rs");
    world.thinks("The test compares lines.\nWindows has two characters at the end of a line.");
    world.calls("c1", "Read: src/parser.rs", ToolKind::Read);
    world.ends("c1", "120 lines", true);
    world.calls("c2", "Edit: src/parser.rs", ToolKind::Edit);
    let diff = Diff::new(
        "/w/src/parser.rs",
        "fn line(text: &str) -> &str {\n    text.trim_end_matches(['\\r', '\\n'])\n}\n",
    )
    .old_text("fn line(text: &str) -> &str {\n    text.trim_end_matches('\\n')\n}\n".to_owned());
    world.call_update("c2", ToolCallUpdateFields::new().content(vec![ToolCallContent::Diff(diff)]));
    world.ends("c2", "1 change", true);
    world.calls("c3", "Bash: cargo test parser", ToolKind::Execute);
    world.output("c3", "running 12 tests\n............\ntest result: ok. 12 passed; 0 failed\n");
    world.ends("c3", "exit 0", true);
    world.streams("m1", ANSWER);
    let spent = Meta::from_iter([("caliban".to_owned(), json!({"tokens": 12_345}))]);
    let usage = UsageUpdate::new(48_000, 200_000).cost(Cost::new(0.42, "USD")).meta(spent);
    world.update(SessionUpdate::UsageUpdate(usage));
    world
}

#[test]
fn a_conversation_at_every_size() {
    for size in SIZES {
        let mut world = session(size);
        world.turn_ends();
        insta::assert_snapshot!(format!("conversation_{}x{}", size.0, size.1), world.screen());
    }
}

#[test]
fn work_with_a_queue_a_todo_list_and_background_agents_at_every_size() {
    for size in SIZES {
        let mut world = session(size);
        let entry = |text: &str, status| PlanEntry::new(text, PlanEntryPriority::Medium, status);
        world.update(SessionUpdate::Plan(Plan::new(vec![
            entry("find the fault", PlanEntryStatus::Completed),
            entry("mend the parser", PlanEntryStatus::InProgress),
            entry("write a test", PlanEntryStatus::Pending),
        ])));
        world.control('t');
        let row = |id, status, summary: &str, ended_ms| BackgroundRow {
            id,
            status,
            summary: summary.into(),
            model: "m".into(),
            activity: Option::<u64>::is_none(&ended_ms).then(|| "Bash cargo test --workspace".into()),
            started_ms: 1_000,
            ended_ms,
            tokens: 12_345,
            cached: if id == 1 { 80_000 } else { 0 },
        };
        world.agent(AgentEvent::Background(vec![
            row(0, BackgroundStatus::Running, "run all the tests and fix any failures", None),
            row(1, BackgroundStatus::Completed, "update the documentation of the parser", Some(81_000)),
            row(2, BackgroundStatus::BudgetExceeded, "rename everything", Some(9_000)),
        ]));
        world.state.set_wall(66_000);
        world.calls("c9", "Bash: cargo build --release", ToolKind::Execute);
        world.output("c9", "   Compiling parser v0.1.0\n   Compiling caliban v0.1.0\n");
        world.types("then write the changelog");
        world.key(KeyCode::Tab);
        world.types("a draft of two\\");
        world.key(KeyCode::Enter);
        world.types("lines");
        world.pass(12_000);
        insta::assert_snapshot!(format!("work_{}x{}", size.0, size.1), world.screen());
    }
}

#[test]
fn a_question_at_every_size() {
    for size in SIZES {
        let mut world = session(size);
        world
            .asks(1, json!({"command": "git push --force origin main\nrm -rf target", "timeout_ms": 60_000}));
        insta::assert_snapshot!(format!("banner_{}x{}", size.0, size.1), world.screen());
        world.key(KeyCode::Tab);
        world.screen();
        world.pass(3_000);
        insta::assert_snapshot!(format!("question_{}x{}", size.0, size.1), world.screen());
    }
}

#[test]
fn an_empty_session() {
    let mut world = World::closed((80, 24));
    insta::assert_snapshot!("opening", world.screen());
    world.open(false);
    insta::assert_snapshot!("empty", world.screen());
}

#[test]
fn a_tiny_screen_breaks_nothing() {
    for size in [(1, 1), (2, 3), (10, 4), (40, 8), (300, 2)] {
        let mut world = session(size);
        world.asks(1, json!({"command": "make"}));
        world.screen();
        world.key(KeyCode::Tab);
        world.screen();
    }
}

#[test]
fn words_for_somebody_who_listens_at_every_size() {
    for size in SIZES {
        let mut world = session(size);
        world.listens();
        world.turn_ends();
        insta::assert_snapshot!(format!("words_{}x{}", size.0, size.1), world.screen());
    }
}

#[test]
fn nothing_moves_by_itself_for_somebody_who_listens() {
    let mut world = World::new((80, 24));
    world.listens();
    world.says("begin");
    assert_eq!(world.state.deadline(world.now), None);
    let before = world.screen();
    world.pass(5_000);
    assert_eq!(world.screen(), before);
    assert!(!before.contains('─'), "{before}");
}
