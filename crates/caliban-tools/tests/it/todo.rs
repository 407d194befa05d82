//! TodoWrite.

use caliban_tools::{Todo, TodoStatus};
use serde_json::json;

use crate::bench::Bench;

#[tokio::test]
async fn the_list_is_replaced() {
    let bench = Bench::new();
    let text = bench
        .ok(
            "TodoWrite",
            json!({"todos": [
                {"content": "a", "status": "completed"},
                {"content": "b", "status": "in_progress", "activeForm": "doing b"},
                {"content": "c", "status": "pending"}
            ]}),
        )
        .await;
    assert_eq!(text, "todo list kept: 1 of 3 done, now: doing b");
    let todo = |content: &str, status, active_form: Option<&str>| Todo {
        content: content.into(),
        status,
        active_form: active_form.map(Into::into),
    };
    assert_eq!(
        bench.workspace.todos(),
        [
            todo("a", TodoStatus::Completed, None),
            todo("b", TodoStatus::InProgress, Some("doing b")),
            todo("c", TodoStatus::Pending, None)
        ]
    );
    assert_eq!(bench.workspace.child(&bench.root).unwrap().todos(), []);
}

#[tokio::test]
async fn a_bad_list_leaves_the_old_one() {
    let bench = Bench::new();
    bench.ok("TodoWrite", json!({"todos": [{"content": "a", "status": "pending"}]})).await;
    let error = bench.err("TodoWrite", json!({"todos": [{"content": "a", "status": "later"}]})).await;
    assert_eq!(
        error,
        "TodoWrite: unknown variant `later`, expected one of `pending`, `in_progress`, `completed`"
    );
    let many: Vec<_> = (0..101).map(|n| json!({"content": n.to_string(), "status": "pending"})).collect();
    assert_eq!(bench.err("TodoWrite", json!({"todos": many})).await, "TodoWrite: 101 todos, at most 100");
    assert_eq!(
        bench.err("TodoWrite", json!({"todos": [{"content": " ", "status": "pending"}]})).await,
        "TodoWrite: a todo without content"
    );
    assert_eq!(bench.workspace.todos().len(), 1);
}
