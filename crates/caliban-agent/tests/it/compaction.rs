//! What a conversation looks like to the model after room was made: pure, so every shape can be tried.

use caliban_agent::{
    conversation::{CLEARED, Conversation, INTERRUPTED, NOT_RUN},
    event::{Author, CallVerdict, Decision, Event},
};
use caliban_core::{
    message::{Block, Message, ResultPart, Role, StopReason},
    usage::Usage,
};
use serde_json::json;

fn prompt(text: &str) -> Event {
    Event::Prompt { message: Message::user(text), author: Author::User, context: 0, queued: None }
}

fn calls(ids: &[&str]) -> Event {
    let call =
        |id: &&str| Block::ToolUse { id: (*id).to_owned(), name: "T".into(), input: json!({}), extra: None };
    reply(ids.iter().map(call).collect())
}

fn says(text: &str) -> Event {
    reply(vec![Block::Text { text: text.into() }])
}

fn reply(blocks: Vec<Block>) -> Event {
    let message = Message { role: Role::Assistant, blocks };
    Event::Reply { message, usage: Usage::default(), stop: StopReason::ToolUse, model: "m".into(), ms: 0 }
}

fn started(id: &str) -> Event {
    let decision = Decision {
        verdict: CallVerdict::Allowed,
        rule: None,
        why: String::new(),
        fence: caliban_core::fence::Profile::None,
    };
    Event::CallStarted { id: id.into(), name: "T".into(), input: json!({}), decision }
}

fn ended(id: &str, text: &str) -> Event {
    let content = vec![ResultPart::Text { text: text.into() }];
    let (summary, exit_code, whole) = (String::new(), None, None);
    Event::CallEnded { id: id.into(), content, is_error: false, summary, exit_code, whole, ms: 0 }
}

/// A conversation in short: `U:text R:id=text` and `A:text C:id`.
fn shown(events: &[Event]) -> Vec<String> {
    let block = |block: &Block| match block {
        Block::Text { text } => format!("T:{text}"),
        Block::ToolUse { id, .. } => format!("C:{id}"),
        Block::ToolResult { id, content, .. } => match &content[..] {
            [ResultPart::Text { text }] => format!("R:{id}={text}"),
            other => format!("R:{id}={other:?}"),
        },
        other => format!("{other:?}"),
    };
    let message = |message: &Message| {
        let who = if message.role == Role::User { "user" } else { "model" };
        let blocks: Vec<String> = message.blocks.iter().map(block).collect();
        format!("{who} {}", blocks.join(" "))
    };
    Conversation::replay(events).messages().iter().map(message).collect()
}

#[test]
fn results_stand_together_in_the_models_order_whatever_ended_first() {
    let events =
        [prompt("go"), calls(&["a", "b"]), started("a"), started("b"), ended("b", "2"), ended("a", "1")];
    assert_eq!(shown(&events), ["user T:go", "model C:a C:b", "user R:a=1 R:b=2"]);
    // Until all are there, none is: a request would be refused.
    assert_eq!(shown(&events[..5]), ["user T:go", "model C:a C:b"]);
}

#[test]
fn what_a_prompt_finds_open_is_answered_for_it() {
    let events =
        [prompt("go"), calls(&["a", "b", "c"]), started("a"), ended("a", "1"), started("b"), prompt("stop")];
    assert_eq!(
        shown(&events),
        [
            "user T:go".to_owned(),
            "model C:a C:b C:c".to_owned(),
            format!("user R:a=1 R:b={INTERRUPTED} R:c={NOT_RUN} T:stop")
        ]
    );
}

#[test]
fn cleared_results_keep_their_place_and_a_summary_keeps_the_task_and_the_tail() {
    let mut events = vec![prompt("the task")];
    for id in ["a", "b", "c"] {
        events.extend([calls(&[id]), started(id), ended(id, "long")]);
    }
    events.push(Event::ResultsCleared { ids: vec!["a".into()] });
    let cleared = shown(&events);
    assert_eq!(cleared[2], format!("user R:a={CLEARED}"));
    assert_eq!(cleared[4], "user R:b=long");
    events.push(Event::Summarised { summary: "so far".into(), keep_tail: 2, usage: Usage::default() });
    assert_eq!(
        shown(&events),
        ["user T:the task T:<summary of the work so far>\nso far\n</summary>", "model C:c", "user R:c=long"]
    );
    // A second one takes the first one's place in the model's mind, and the task is still there.
    events.extend([says("hm"), prompt("more"), says("done")]);
    events.push(Event::Summarised { summary: "later".into(), keep_tail: 1, usage: Usage::default() });
    let last = shown(&events);
    assert_eq!(last.len(), 2);
    assert!(last[0].starts_with("user T:the task ") && last[0].ends_with("later\n</summary>"), "{last:?}");
}

#[test]
fn roles_alternate_whatever_was_kept() {
    for keep_tail in 0..8 {
        let mut events = vec![prompt("the task")];
        for id in ["a", "b", "c"] {
            events.extend([calls(&[id]), started(id), ended(id, "r")]);
        }
        events.push(Event::Summarised { summary: "s".into(), keep_tail, usage: Usage::default() });
        let conversation = Conversation::replay(&events);
        let roles: Vec<Role> = conversation.messages().iter().map(|message| message.role).collect();
        assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{keep_tail}: {roles:?}");
        assert_eq!(roles[0], Role::User);
    }
}

#[test]
fn a_summary_over_open_calls_leaves_no_result_without_its_call() {
    // As an earlier caliban recorded it: killed in a call, compacted, and then gone on with.
    for keep_tail in 0..4 {
        let mut events =
            vec![prompt("the task"), says("hm"), prompt("more"), calls(&["a", "b"]), started("a")];
        events.push(Event::Summarised { summary: "s".into(), keep_tail, usage: Usage::default() });
        events.extend([ended("a", "late"), prompt("go on")]);
        let (mut called, mut answered) = (Vec::new(), Vec::new());
        for message in Conversation::replay(&events).messages() {
            for block in &message.blocks {
                match block {
                    Block::ToolUse { id, .. } => called.push(id.clone()),
                    Block::ToolResult { id, .. } => {
                        assert!(called.contains(id), "{keep_tail}: {:?}", shown(&events));
                        answered.push(id.clone());
                    }
                    _ => {}
                }
            }
        }
        assert_eq!(called, answered, "{keep_tail}: {:?}", shown(&events));
    }
}

#[test]
fn r17_of_two_calls_of_one_id_the_one_that_began_has_begun() {
    // As an earlier caliban recorded it, which took ids as they came.
    let events = [prompt("go"), calls(&["x", "x"]), started("x"), ended("x", "1"), started("x")];
    let conversation = Conversation::replay(&events);
    let open: Vec<(&str, bool)> =
        conversation.open_calls().map(|call| (call.id.as_str(), call.started)).collect();
    assert_eq!(open, [("x", true)], "it is not begun again");
}
