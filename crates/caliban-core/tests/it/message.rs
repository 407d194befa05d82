//! Messages and what was spent on them.

use caliban_core::message::{Block, Message, Role};
use caliban_core::usage::Usage;
use serde_json::json;

#[test]
fn a_message_gives_its_text_and_its_calls() {
    assert_eq!(Message::user("hi").blocks, [Block::Text { text: "hi".to_owned() }]);
    let call = |id: &str| Block::ToolUse {
        id: id.to_owned(),
        name: "Read".to_owned(),
        input: json!({"path": id}),
        extra: None,
    };
    let text = |text: &str| Block::Text { text: text.to_owned() };
    let image = Block::Image { media_type: "image/png".to_owned(), data: String::new() };
    let message = Message {
        role: Role::Assistant,
        blocks: vec![text("one"), call("a"), image, text("two"), call("b")],
    };
    assert_eq!(message.text(), "one\n\ntwo");
    let (a, b) = (json!({"path": "a"}), json!({"path": "b"}));
    assert_eq!(message.tool_uses().collect::<Vec<_>>(), [("a", "Read", &a), ("b", "Read", &b)]);
}

#[test]
fn usage_adds_up_by_kind() {
    let one = Usage { input: 1, output: 2, cache_read: 4, cache_write: 8 };
    assert_eq!((one.total(), one.prompt()), (15, 13));
    let twice = Usage { input: 2, output: 4, cache_read: 8, cache_write: 16 };
    let mut sum = one;
    sum += one;
    assert_eq!((sum, [one, one].into_iter().sum::<Usage>()), (twice, twice));
    assert_eq!((Usage { input: u64::MAX, ..one } + one).total(), u64::MAX);
}
