//! The calls of one reply: side by side where they can be, in the model's order where one could disturb the other. What
//! counts is what a call will really touch.

use std::sync::Arc;

use caliban_agent::{
    Agent,
    event::Outcome,
    hooks::{ClosureHook, HookAnswer, HookEvent},
};
use caliban_permissions::Mode;
use serde_json::{Value, json};

use crate::world::{World, prompt};

fn call(name: &str, field: &str, path: &str) -> Value {
    json!({"name": "Staged", "input": {"name": name, field: path}})
}

/// A hook that gives the call of this name another path to write.
fn rewriting(name: &'static str, path: &'static str) -> ClosureHook {
    Arc::new(move |event: HookEvent, told: &Value| {
        let is_it = event == HookEvent::PreToolUse && told["tool_input"]["name"] == name;
        let input = is_it.then(|| json!({"name": name, "write": path}));
        HookAnswer { input, ..HookAnswer::default() }
    })
}

/// Runs the calls with the first one held until the last one has ended; what became of the others, in order.
async fn run(calls: &[Value], hooks: Vec<ClosureHook>, prepare: impl Fn(&World)) -> Vec<String> {
    let mut world = World::new(json!({"steps": [{"tool_calls": calls}, {"text": "done"}]}));
    world.hooks = hooks;
    prepare(&world);
    world.stage.hold("a");
    let kit = world.kit();
    kit.policy.write().unwrap().mode = Mode::Unattended;
    let mut agent = Agent::new(kit).await.unwrap();
    let stage = async {
        world.stage.reached("a begins").await;
        world.stage.reached("last ends").await;
        world.stage.release("a");
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), stage);
    assert_eq!(report.outcome, Outcome::Done);
    // The last one begins beside the first; which of the two is first is nobody's business.
    world.stage.log().into_iter().filter(|line| !line.starts_with("last")).collect()
}

const IN_ORDER: [&str; 4] = ["a begins", "a ends", "b begins", "b ends"];

#[tokio::test]
async fn calls_that_touch_the_same_wait_for_each_other_and_others_do_not() {
    let calls = [call("a", "write", "x"), call("b", "read", "x"), call("last", "write", "y")];
    assert_eq!(run(&calls, Vec::new(), |_| {}).await, IN_ORDER);
}

#[tokio::test]
async fn a_call_that_a_hook_leads_to_an_earlier_ones_file_waits_for_that() {
    let calls = [call("a", "write", "x"), call("b", "write", "z"), call("last", "write", "y")];
    assert_eq!(run(&calls, vec![rewriting("b", "x")], |_| {}).await, IN_ORDER);
}

#[tokio::test]
async fn a_call_waits_for_an_earlier_one_that_a_hook_leads_to_its_file() {
    let calls = [call("a", "write", "z"), call("b", "write", "x"), call("last", "write", "y")];
    assert_eq!(run(&calls, vec![rewriting("a", "x")], |_| {}).await, IN_ORDER);
}

#[tokio::test]
async fn a_call_that_a_hook_leads_away_waits_for_nobody() {
    let calls = [call("a", "write", "x"), call("b", "write", "w"), call("last", "write", "w")];
    let log = run(&calls, vec![rewriting("b", "x")], |_| {}).await;
    // The last one's file is free: the hook has led b away from it.
    assert_eq!(log, IN_ORDER);
}

#[tokio::test]
async fn two_names_of_one_file_are_one_file() {
    let calls = [call("a", "write", "x"), call("b", "read", "link"), call("last", "write", "y")];
    let log = run(&calls, Vec::new(), |world| {
        std::fs::write(world.root().join("x"), "").unwrap();
        std::os::unix::fs::symlink("x", world.root().join("link")).unwrap();
    });
    assert_eq!(log.await, IN_ORDER);
}

#[tokio::test]
async fn a_call_waits_for_an_earlier_one_whose_hook_has_not_answered() {
    // The hook leads b, which waits for a, to the file of c.
    let calls = [call("a", "write", "x"), call("b", "write", "x"), call("c", "write", "y")];
    let mut world = World::new(json!({"steps": [{"tool_calls": calls}, {"text": "done"}]}));
    world.hooks = vec![rewriting("b", "y")];
    world.stage.hold("a");
    let kit = world.kit();
    kit.policy.write().unwrap().mode = Mode::Unattended;
    let mut agent = Agent::new(kit).await.unwrap();
    let stage = async {
        world.stage.reached("a begins").await;
        // Long enough for c to begin, if nothing held it.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        world.stage.release("a");
    };
    tokio::join!(prompt(&mut agent, "go"), stage);
    assert_eq!(world.stage.log(), ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]);
}

#[tokio::test]
async fn a11_not_more_than_sixteen_calls_of_a_reply_are_under_way_at_once() {
    let names: Vec<String> = (0..40).map(|number| format!("call {number}")).collect();
    let calls: Vec<Value> = names.iter().map(|name| call(name, "read", name)).collect();
    let world = World::new(json!({"steps": [{"tool_calls": calls}, {"text": "done"}]}));
    names.iter().for_each(|name| world.stage.hold(name));
    let mut agent = Agent::new(world.kit()).await.unwrap();
    let stage = async {
        world.stage.reached("call 15 begins").await;
        // The next ones can begin only now.
        for name in &names {
            let begun = world.stage.log().iter().filter(|line| line.ends_with("begins")).count();
            let ended = world.stage.log().iter().filter(|line| line.ends_with("ends")).count();
            assert!(begun - ended <= 16, "{begun} begun, {ended} ended");
            world.stage.release(name);
            world.stage.reached(&format!("{name} ends")).await;
        }
    };
    let (report, ()) = tokio::join!(prompt(&mut agent, "go"), stage);
    assert_eq!((report.outcome, world.stage.log().len()), (Outcome::Done, 80));
}
